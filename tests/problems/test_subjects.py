"""Makes callables and cells of problems, and runs what the adapters say on small tensors."""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from problem_texts import GATHER, definition, solution, workload, writing_solution

from ledger.callables.argument_list import parse_arguments
from ledger.errors import InputError
from ledger.problems.adapters import function_adapter
from ledger.problems.cells import Problem, Subjects
from ledger.problems.documents import read_definition, read_solution, read_trace
from ledger.problems.entry_points import outputs_passed
from ledger.problems.safetensors import StoredTensor
from ledger.problems.subjects import subjects_of


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def no_file(path: str, _key: str) -> StoredTensor:
    raise InputError(f"{path}: is not there")


def made(one: dict[str, Any], traces: list[Any], solutions: tuple[Any, ...] = (), stored: Any = no_file) -> Subjects:
    problem = Problem(
        read_definition(text(one), what="d"),
        [read_trace(text(line), what="w", definition=None) for line in traces],
        [read_solution(text(item), what="s") for item in solutions],
        "problems.p",
    )
    return subjects_of(problem, stored)


def loaded(found: Subjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """Return module:name of the files of a problem, imported."""
    for path, data in found.files.items():
        file = tmp_path / "problems" / "p" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in [module for module in sys.modules if module.partition(".")[0] == "problems"]:
        monkeypatch.delitem(sys.modules, module)
    module, _, attribute = name.partition(":")
    return getattr(__import__(module, fromlist=["x"]), attribute)


def test_solution_in_python_is_a_subject_as_it_is():
    found = made(definition(), [workload(), workload(16, "w1")], (solution(),))
    cells = [one for one in found.cells if not one.instead]
    assert {one.kernel for one in cells} == {"problems.p.fused.main:run"}
    assert {one.reference for one in cells} == {"problems.p.reference:run"}
    assert cells[0].args == "x=fp32[rows,hidden] w=fp32[hidden] eps=1e-05"
    assert [dict(one.shape) for one in cells] == [{"rows": 8, "hidden": 64}, {"rows": 16, "hidden": 64}]
    assert found.files["fused/main.py"].decode() == solution()["sources"][0]["content"]
    assert [one.kernel for one in found.cells if one.instead] == ["problems.p.reference:run"] * 2


def test_definition_without_a_solution_is_a_subject_by_its_reference():
    (cell,) = made(definition(), [workload()]).cells
    assert (cell.kernel, cell.reference, cell.instead) == ("problems.p.reference:run", None, False)


def test_outputs_are_given_to_a_solution_that_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = made(definition(), [workload()], (writing_solution(),))
    assert found.cells[0].kernel == "problems.p.writes.ledger_subject:run"
    run = loaded(found, tmp_path, monkeypatch, found.cells[0].kernel)
    x, w = torch.randn(8, 64), torch.randn(64)
    (got,) = run(x, w, 1e-5)
    reference = loaded(found, tmp_path, monkeypatch, "problems.p.reference:run")
    torch.testing.assert_close(got, reference(x, w, 1e-5))


def gather_definition() -> dict[str, Any]:
    return definition(
        axes={"rows": {"type": "const", "value": 7}, "n": {"type": "var"}},
        inputs={
            "table": {"shape": ["rows", "4"], "dtype": "float32"},
            "ids": {"shape": ["n"], "dtype": "int32"},
        },
        outputs={"out": {"shape": ["n", "4"], "dtype": "float32"}},
        reference=GATHER,
        custom_inputs_entrypoint="make",
    )


def test_integers_of_a_file_are_held_and_floats_are_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    line = workload()
    line["workload"] = {
        "uuid": "w0",
        "axes": {"n": 3},
        "inputs": {"ids": {"type": "safetensors", "path": "b", "tensor_key": "k"}, "table": {"type": "random"}},
    }
    stored = StoredTensor("int32", (3,), struct.pack("<3i", 6, 0, 2))
    found = made(gather_definition(), [line], stored=lambda _path, _key: stored)
    (cell,) = found.cells
    assert cell.args == "table=fp32[rows,4]"
    subject = loaded(found, tmp_path, monkeypatch, cell.kernel)()
    table = torch.randn(7, 4)
    torch.testing.assert_close(subject(table), table[[6, 0, 2]])
    assert [name for name, _ in subject.named_buffers()] == ["held_1"]
    other = StoredTensor("int64", (3,), bytes(24))
    skipped = made(gather_definition(), [line], stored=lambda _path, _key: other)
    assert "expected int32[3]" in skipped.skipped[0].reason


def test_integers_that_the_problem_makes_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    line = workload()
    inputs = {"ids": {"type": "custom"}, "table": {"type": "custom"}}
    line["workload"] = {"uuid": "w0", "axes": {"n": 9}, "inputs": inputs}
    one = solution(sources=[{"path": "main.py", "content": "def run(table, ids):\n    return table[ids]\n"}])
    found = made(gather_definition(), [line], (one,))
    cell = found.cells[0]
    assert cell.reference == cell.kernel.replace(":Subject", ":Reference")
    subject, reference = (loaded(found, tmp_path, monkeypatch, name)() for name in (cell.kernel, cell.reference))
    table = torch.randn(7, 4)
    torch.testing.assert_close(subject(table), table[[0, 1, 2, 3, 4, 5, 6, 0, 1]])
    torch.testing.assert_close(subject(table), reference(table))


def test_signature_tells_whether_outputs_are_passed_where_the_document_does_not():
    silent = writing_solution()
    del silent["spec"]["destination_passing_style"]
    returning = solution()
    del returning["spec"]["destination_passing_style"]
    found = made(definition(), [workload()], (silent, returning))
    kernels = [one.kernel for one in found.cells if not one.instead]
    assert kernels == ["problems.p.writes.ledger_subject:run", "problems.p.fused.main:run"]


@pytest.mark.parametrize(
    ("source", "passed"),
    [
        ('torch::Tensor run(torch::Tensor x, torch::Tensor w, double eps) { return x; } m.def("run", &run);', False),
        ("void run(const torch::Tensor& x, torch::Tensor w, double eps, torch::Tensor& y)\n{ }", True),
        ("torch::Tensor run(torch::Tensor x, torch::Tensor y = torch::Tensor(), double a, int b) {", True),
        ('int run(int a, int b, int c, int d) { } int own(int x) { } m.def( "run", &own, "text");', False),
        ("torch::Tensor run(pybind11::args args, pybind11::kwargs kwargs) {", False),
        ('int other(int x) { } m.def("run", &elsewhere);', True),
        ("int run(" + "(" * 50_000, True),
    ],
)
def test_signature_of_cpp_tells_whether_outputs_are_passed(source, passed):
    spec = {"language": "cuda", "target_hardware": ["cuda"], "entry_point": "a.cpp::run", "binding": "torch"}
    one = solution("built", spec=spec, sources=[{"path": "a.cpp", "content": source}])
    silent = read_solution(text(one), what="s")
    assert outputs_passed(silent, read_definition(text(definition()), what="d")) is passed


def cuda(binding: str | None) -> dict[str, Any]:
    spec = {"language": "cuda", "target_hardware": ["cuda"], "entry_point": "a.cu::run", "binding": binding}
    return solution("built", spec=spec, sources=[{"path": "a.cu", "content": "// kernel"}])


def test_cuda_bound_by_torch_is_built_when_called_and_says_so_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = made(definition(), [workload()], (cuda("torch"),))
    assert found.cells[0].needs_gpu
    run = loaded(found, tmp_path, monkeypatch, found.cells[0].kernel)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="expected a CUDA device and nvcc"):
            run(torch.zeros(8, 64), torch.zeros(64), 1e-5)
    other = made(definition(), [workload()], (cuda(None),))
    assert "bound by tvm-ffi" in other.skipped[0].reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": {"x": {"shape": ["rows"], "dtype": "float4_e2m1"}}}, "dtype float4_e2m1 cannot be filled"),
        ({"inputs": {"x": {"shape": ["rows"], "dtype": "int32"}}}, "no input is floating"),
        ({"reference": "def run(:\n"}, "source is not Python"),
        ({"reference": "def walk(x):\n    return x\n"}, "no function 'run'"),
        ({"reference": "from ledger.kernel_files import load_kernel\ndef run(x):\n    return x\n"}, "does not use the"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_problem_that_cannot_be_a_subject_is_listed_with_the_reason(change: dict[str, Any], said: str):
    found = made(definition(**change), [workload()])
    assert not found.cells
    assert said in found.skipped[0].reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"axes": {}}, "axis rows: the workload gives no size"),
        ({"axes": {"rows": 0}}, "axis rows is 0"),
        ({"inputs": {}}, "input eps: is a scalar without a value"),
        ({"inputs": {"x": {"type": "generated"}}}, "input x is generated"),
        ({"inputs": {"x": {"type": "custom"}, "eps": {"type": "scalar", "value": 1}}}, None),
    ],
    ids=str,
)
def test_workload_that_cannot_be_a_cell_is_listed(change: dict[str, Any], said: str | None):
    found = made(definition(), [workload(**change)])
    assert (not found.cells) == (said is not None)
    assert said is None or said in found.skipped[0].reason


def test_second_workload_of_the_same_sizes_is_left_out():
    found = made(definition(), [workload(), workload(8, "w1", inputs={"eps": {"type": "scalar", "value": 2}})])
    assert len(found.cells) == 1
    assert "sizes of an earlier workload" in found.skipped[0].reason


def test_long_names_still_give_a_cell_that_a_seal_can_name():
    axes = {f"a_very_long_name_of_an_axis_{n}": {"type": "var"} for n in range(14)}
    one = definition(
        name="n" * 200,
        axes=axes,
        inputs={"x": {"shape": list(axes), "dtype": "float16"}},
        reference="run = print\n",
        outputs={},
    )
    found = made(one, [workload(axes=dict.fromkeys(axes, 3))])
    (cell,) = found.cells
    assert len(parse_arguments(cell.args)[0].dims or ()) == 14
    assert len(cell.kernel) + sum(len(f"-{key}{size}") for key, size in cell.shape.items()) < 150


def test_sizes_of_outputs_that_unfold_without_end_are_refused():
    axes = {f"a{number}": {"type": "expr", "expression": "+".join([f"a{number + 1}"] * 20)} for number in range(14)}
    axes |= {"a14": {"type": "const", "value": 1}}
    one = definition(outputs={"y": {"shape": ["a0"], "dtype": "float32"}})
    one["axes"] |= axes
    found, writes = read_definition(text(one), what="d"), read_solution(text(writing_solution()), what="s")
    with pytest.raises(InputError, match="longer than 4000 characters"):
        function_adapter(found, writes, outputs_passed=True)

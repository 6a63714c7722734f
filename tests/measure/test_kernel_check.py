"""Tests that `ledger check` passes a right kernel and names what is wrong with its wrong twins."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest
from ledger_process import run_ledger

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("torch and triton are not both installed", allow_module_level=True)

from ledger.errors import InputError
from ledger.kernel_files import build_case, load_kernel
from ledger.kernel_folder import own_folder
from ledger.measure import kernel_check
from ledger.record_files import load_hardware
from ledger.workflow.check_kernel import check_named
from ledger.workflow.new_kernel import kernel_text

ROOT = Path(__file__).parents[2]
NAME = "mine"


def write(root: Path, *changes: tuple[str, str]) -> Path:
    text = kernel_text(NAME)
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    path = own_folder(root) / f"{NAME}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def failed(root: Path) -> dict[str, str]:
    return {one.check: one.detail for one in check_named(NAME, root)[1] if one.status == "failed"}


@pytest.fixture
def uninterpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the interpreter, which takes a process for each kernel, where the error is elsewhere."""
    monkeypatch.setattr(kernel_check, "_interpreted", lambda *_: iter(()))


@pytest.mark.parametrize(
    "old, new, check, words",
    [
        ('return {"block": 1024, "num_warps": 4}', "return None", "functions", "raised AttributeError"),
        ('n, size = shape["N"]', 'n, size = shape["M"]', "functions", "raised KeyError"),
        ("def work(", "def work work(", "loads", "is not Python"),
    ],
    ids=["launch rule", "work", "syntax"],
)
def test_a_file_that_fails_by_itself_fails_a_check(tmp_path: Path, old: str, new: str, check: str, words: str):
    """A failed check, exit 1: an error of the file is none of the command."""
    write(tmp_path, (old, new))
    assert words in failed(tmp_path)[check]


def test_new_kernel_passes_every_check(tmp_path: Path):
    write(tmp_path)
    found = {one.check: one for one in check_named(NAME, tmp_path)[1]}
    assert not [one for one in found.values() if one.status == "failed"]
    skipped = {name for name, one in found.items() if one.status == "skipped"}
    assert {"loads", "docstring", "work: operations", "work: bytes", "element", "result: torch-cpu bf16"} <= set(found)
    assert "result: triton bf16, interpreted" in skipped or "result: triton bf16" in found
    assert any(name.startswith("result: triton fp16") and name not in skipped for name in found)


@pytest.mark.parametrize(
    ("old", "new", "check", "words"),
    [
        ("flops=5 * n", "flops=0", "work: operations", "the work model has 0 FLOP"),
        ("flops=5 * n", "flops=50 * n", "work: operations", "with elementwise operations (the definition makes 4)"),
        ("Tolerance(1e-7, 1e-3", "Tolerance(1e9, 1e-3", "tolerances: size", "atol of fp16 is 1e+09; expected at most"),
        ("Tolerance(1e-7, 2e-6", "Tolerance(1e-7, 0.5", "tolerances: size", "rtol of fp32 is 0.5; expected at most"),
        ("gate, up = inputs[\"gate\"].double()", "raise SystemExit(3)\n    gate, up = inputs[\"gate\"].double()",
         "element", "SystemExit: 3"),
        ("lambda shape: 0)", "lambda shape: 9 * shape['N'])", "work: operations", "expected 18, the products"),
        ("bytes_read=2 * size", "bytes_read=size", "work: bytes", "bytes_read is 2; expected 4, each tensor once"),
        ("bytes_written=size * n", "bytes_written=4 * n", "work: bytes", "bytes_written is 4; expected 2"),
        ("(1 + np.exp(-gate)) * up", "(2 + np.exp(-gate)) * up", "element", "the reference has"),
        (".mul_(inputs[\"up\"])", "", "result: torch-cpu fp32", "output is wrong"),
        (
            "inputs[\"gate\"].float()", "inputs[\"gate\"].neg_().float()",
            "result: torch-cpu fp16", "changes its input gate",
        ),
        ("out.copy_(inputs[\"gate\"]", "out.view(-1)[1:].copy_(inputs[\"gate\"]", "result: torch-cpu fp32", "at N="),
        ("        \"bf16\": Tolerance", "        \"fp64\": Tolerance", "tolerances", "none for bf16"),
        ("    cases=(", "    cases=() and (", "cases", "none; expected"),
        ("Formula:", "It is:", "docstring", "no line 'Formula:'"),
        ("    reference=reference,\n", "", "loads", "missing 1 required positional argument: 'reference'"),
        ("name=\"mine\"", "name=\"other\"", "loads", "expected the name of its file"),
    ],
)  # fmt: skip
def test_error_in_a_kernel_file_is_named(tmp_path: Path, uninterpreted: None, old, new, check, words):
    write(tmp_path, (old, new))
    found = failed(tmp_path)
    assert words in found[check], found


def test_products_that_the_operation_leaves_out_are_found(tmp_path: Path, uninterpreted: None):
    write(tmp_path, ("return gate * gate.sigmoid() * up", "return gate * gate.sigmoid() * up + 0 * (gate[None] @ up)"))
    assert "expected Operation.products to count its multiply-adds" in failed(tmp_path)["work: operations"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("element_ty), mask=inside)", "element_ty))", "writes outside its output"),
        ("tl.sigmoid(gate) * up", "tl.sigmoid(gate) * gate", "output is wrong"),
        pytest.param(
            "inside = offsets < n_elements",
            "inside = offsets < n_elements - 1",
            "output is wrong",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_error_in_the_triton_function_is_found_by_the_interpreter(tmp_path: Path, old, new, words):
    write(tmp_path, (old, new))
    found = failed(tmp_path)
    assert any(name.startswith("result: triton fp16") and words in said for name, said in found.items()), found
    assert all(name.startswith("result: triton") for name in found)


def test_the_interpreter_imports_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path)
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "__init__.py").write_text("raise SystemExit('planted')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert failed(tmp_path) == {}


def ledger(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    who = {f"GIT_{role}_{key}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return run_ledger(*arguments, cwd=folder, env={**os.environ, **who, "PYTHONPATH": path})


def test_commands_write_check_and_forecast_a_kernel_of_ones_own(tmp_path: Path):
    assert ledger(tmp_path, "init", ".").returncode == 0
    made = json.loads(ledger(tmp_path, "new", NAME, "--json").stdout)
    assert made == {"name": NAME, "path": str(tmp_path / "kernels" / f"{NAME}.py")}
    (tmp_path / "kernels" / "helper.py").write_text("x = 1\n", encoding="utf-8")
    passed = ledger(tmp_path, "check", NAME, "--json")
    document = json.loads(passed.stdout)
    assert (passed.returncode, document["name"], document["passed"]) == (0, NAME, True)
    assert {tuple(one) for one in document["checks"]} == {("check", "status", "detail")}
    listed = ledger(tmp_path, "kernels", "list", "--json")
    assert NAME in {one["name"] for one in json.loads(listed.stdout)}
    assert "skipped" in listed.stderr and "helper.py: no constant KERNEL" in listed.stderr
    options = "--hw h200 --dtype fp16 --shape N=1048576 --regime hbm-bound --pct 80"
    sealed = ledger(tmp_path, "predict", NAME, *options.split(), "--json")
    assert sealed.returncode == 0, sealed.stderr
    assert len(json.loads(sealed.stdout)) == 1


def test_exit_codes_of_check_and_new(tmp_path: Path):
    # `ledger check` looks in a repository, so a file outside one would never be found.
    outside = ledger(tmp_path, "new", NAME)
    assert outside.returncode == 2 and "not in a git repository" in outside.stderr
    assert not (tmp_path / "kernels").exists()
    ledger(tmp_path, "init", ".")
    write(tmp_path, ("    cases=(", "    cases=() and ("))
    failing = ledger(tmp_path, "check", NAME)
    assert failing.returncode == 1 and "checks failed" in failing.stderr and "Traceback" not in failing.stderr
    assert ledger(tmp_path, "check", "absent").returncode == 2
    assert ledger(tmp_path, "new", NAME).returncode == 2
    assert ledger(tmp_path, "new", "Not-A-Name").returncode == 2


# What an implementation is called


@pytest.mark.parametrize("name", ["cuda", "torch"])
def test_kernel_without_triton_is_called_what_it_is(tmp_path: Path, uninterpreted: None, name: str):
    write(tmp_path, ('{"triton": prepare, "torch-cpu"', f'{{"{name}": prepare_torch_cpu, "torch-cpu"'))
    kernel = load_kernel(NAME, tmp_path).kernel
    case = build_case(kernel, load_hardware("h200"), shape={"N": 8}, dtype="fp16")
    assert (case.implementation, case.config) == (name, {"block": 1024, "num_warps": 4})
    found = {one.check: one for one in check_named(NAME, tmp_path)[1]}
    assert any(check.startswith(f"result: {name}") for check in found)
    assert not [one for one in found.values() if one.status == "failed"]


def test_kernel_for_a_cpu_alone_has_no_case_on_a_gpu(tmp_path: Path):
    write(tmp_path, ('"triton": prepare, ', ""))
    with pytest.raises(InputError, match="mine has no triton or cuda or torch implementation for h200"):
        build_case(load_kernel(NAME, tmp_path).kernel, load_hardware("h200"), shape={"N": 8}, dtype="fp16")

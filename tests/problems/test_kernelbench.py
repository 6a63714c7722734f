"""Reads KernelBench problems without running them."""

import pytest
from problem_texts import MODEL

from ledger.errors import InputError
from ledger.problems.documents import MAX_SOURCE_TEXT
from ledger.problems.kernelbench import is_problem, model_subject, parse_module
from ledger.problems.problem_set import read_problems


def cell(text: str):
    (found,) = model_subject(text.encode(), name="p", package="problems.p").cells
    return found


def inputs(lines: str, constants: str = "B = 4\nN = 2 * 8\nshape = (3, 5)") -> str:
    return (
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x, y):\n        return x\n\n"
        f"{constants}\n\n"
        f"def get_inputs():\n{lines}\n\ndef get_init_inputs():\n    return []\n"
    )


def test_constants_become_keys_unless_the_model_is_made_with_them():
    found = cell(MODEL)
    assert found.kernel == "problems.p.ledger_subject:Subject"
    assert found.args == "x=fp32[batch_size,32] mask=bool[batch_size,32]<2"
    assert found.shape == {"batch_size": 8}


@pytest.mark.parametrize(
    ("lines", "args"),
    [
        ("    return [torch.rand(B, N)]", "x=fp32[B,N]"),
        ("    return [torch.rand((B, *shape))]", "x=fp32[B,3,5]"),
        ("    return [torch.randn(B, N // 2 - 1)]", "x=fp32[B,7]"),
        ("    return torch.ones(B), 2.5", "x=fp32[B] y=2.5"),
        ("    return [torch.rand(B, N).half().cuda()]", "x=fp16[B,N]"),
        ("    return [torch.rand(B, dtype=torch.bfloat16)]", "x=bf16[B]"),
        ("    a = torch.rand(B, N)\n    return [a.T, (a + a) / 2]", "x=fp32[N,B] y=fp32[B,N]"),
        ("    s = torch.rand(())\n    return [torch.rand(B) * s]", "x=fp32[B]"),
        ("    x = torch.rand(B)\n    return [x, torch.randint(0, N, x.shape)]", "x=fp32[B] y=int64[B]<16"),
        ("    return [torch.triu(torch.rand(N, N)), torch.rand(B).softmax(dim=-1)]", "x=fp32[N,N] y=fp32[B]"),
    ],
    ids=lambda value: value.strip().splitlines()[-1],
)
def test_calls_that_make_tensors_are_read(lines: str, args: str):
    assert cell(inputs(lines)).args == args


@pytest.mark.parametrize(
    "lines",
    [
        "    return open('/etc/passwd').read()",
        "    return [torch.load('x')]",
        "    return [torch.rand(B) for _ in range(2)]",
        "    return [torch.rand(unknown)]",
        "    return [torch.rand(10**400)]",
        "    return [torch.rand(N - 16)]",
        "    return [torch.rand(B, layout=torch.sparse_coo)]",
        "    return [torch.randint(-5, 5, (B,))]",
        "    return [3]",
        "    raise SystemExit",
        "    pass",
    ],
    ids=lambda value: value.strip()[:40],
)
def test_inputs_that_cannot_be_read_are_left_out_with_the_reason(lines: str):
    found = model_subject(inputs(lines).encode(), name="p", package="problems.p")
    assert not found.cells
    assert "expected" in found.skipped[0].reason


def test_only_a_module_with_model_and_its_functions_is_a_problem():
    assert is_problem(parse_module(MODEL.encode(), what="m"))
    assert not is_problem(parse_module(b"class Model: pass", what="m"))


@pytest.mark.parametrize(
    "data", [b"def (", b"\xff\xfe", b"x = 1" + b".a()" * 20000, b"a\0b"], ids=["cut", "utf", "deep", "nul"]
)
def test_file_that_is_no_python_is_refused(data: bytes):
    with pytest.raises(InputError, match="is not Python"):
        parse_module(data, what="m")


LONG = "0x" + "f" * 5000


@pytest.mark.parametrize(
    ("lines", "constants"),
    [
        ("    return [torch.rand(N)]", f"N = {LONG}"),
        (f"    return [torch.rand({LONG})]", ""),
        (f"    return [torch.rand(4, dtype={LONG})]", ""),
        ("    return [torch.rand(4), N]", f"N = {LONG}"),
        ("    return [torch.rand(4), 1e999]", ""),
        ("    return [torch.rand(4), torch.randint(0, -1, (4,))]", ""),
        ("    return [torch.rand(4), *many]", "row = [1]\nmany = [" + "*row, " * 2000 + "]"),
    ],
    ids=["long size", "long literal", "long dtype", "long number", "infinity", "bound", "many values"],
)
def test_numbers_that_no_campaign_can_hold_leave_a_problem_out(lines: str, constants: str):
    found = model_subject(inputs(lines, constants).encode(), name="p", package="problems.p")
    assert not found.cells and len(found.skipped) == 1


def test_parameters_that_no_seal_can_name_leave_a_problem_out():
    for names in ("größe, y", "input_1"):
        text = inputs("    return [torch.rand(4), torch.rand(4)]").replace("self, x, y", f"self, {names}")
        found = model_subject(text.encode(), name="p", package="problems.p")
        assert not found.cells and len(found.skipped) == 1


def test_more_constants_than_keys_become_numbers():
    names = [f"the_same_long_prefix_{number}" for number in range(1200)]
    text = inputs(f"    return [torch.rand({', '.join(names[:13])})]", "\n".join(f"{name} = 2" for name in names))
    found = cell(text)
    assert (found.args, found.shape) == (f"x=fp32[{','.join('2' * 13)}]", {})


def test_a_file_that_is_too_large_is_named(tmp_path):
    (tmp_path / "large.py").write_text(MODEL + "#" * MAX_SOURCE_TEXT)
    (tmp_path / "small.py").write_text(MODEL)
    found = read_problems(tmp_path)
    assert list(found.models) == ["small"]
    ((name, reason),) = found.invalid
    assert name == "large.py" and f"expected at most {MAX_SOURCE_TEXT}" in reason

"""Checks the table of third-party kernels: its adapters, its stated work, and on the CPU what torch can run."""

import ast
import json
import shlex
import shutil
from dataclasses import replace
from functools import cache
from types import FunctionType

import pytest
from desk import Desk

from examples.third_party import check, references
from examples.third_party.table import TABLE, Entry, Package, entries
from ledger.callables.argument_list import parse_arguments, with_keys
from ledger.callables.counted_work import count, input_specs
from ledger.callables.subject import SELF, Subject
from ledger.callables.subject_files import attribute_of, closure_named
from ledger.errors import InputError
from ledger.record_files import parse_yaml
from ledger.records import Work

FOLDER = TABLE.parent
# Loops over T tokens: counted for few, from which the work of all follows.
RECURRENT = ("gla", "delta_rule", "gated_delta_rule", "kda", "hgrn", "scan")
# The references compute what a causal mask hides, and linear attention in its quadratic form.
FEWER_PRODUCTS = (
    "causal_attention", "window_attention", "softcap_attention", "causal_token_attention", "forgetting_attention",
    "prefill", "retention", "lightning_attention", "linear_attention", "simple_gla", "paged_attention",
)  # fmt: skip
# Their tables are larger than the rows that are read.
FEWER_BYTES = ("paged_attention", "gather_rows")


def stated() -> list[Entry]:
    return [one for one in entries() if one.subject.reference != SELF]


def name_of_reference(entry: Entry) -> str:
    return entry.subject.reference.rpartition(":")[2]


def ids(found: list[Entry]) -> list[str]:
    return [one.name.replace(" ", "-") for one in found]


def test_table_has_enough_kernels_of_enough_packages():
    found = entries()
    packages = {one.package.distribution for one in found}
    of_torch = [one for one in found if one.package.distribution == "torch"]
    assert len(found) >= 60
    assert len(packages) >= 6
    assert len(of_torch) <= 15
    assert all(one.package.licence and one.package.version for one in found)
    cells = {(one.subject.name, one.subject.run, tuple(one.shape.items())) for one in found}
    assert len(cells) == len(found)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_adapters_have_at_most_ten_lines_and_are_all_used(path):
    named = {one.subject.name.rpartition(":")[2] for one in entries() if one.subject.module.endswith(f".{path.stem}")}
    functions = {one.name: one for one in ast.parse(path.read_text()).body if isinstance(one, ast.FunctionDef)}
    if not named:
        assert path.stem in ("check", "references", "table")
        return
    assert named == {name for name in functions if not name.startswith("_")}
    assert {
        name: one.end_lineno - one.lineno + 1 for name, one in functions.items() if one.end_lineno - one.lineno > 9
    } == {}


def test_every_reference_is_there_and_used():
    used = {name_of_reference(one) for one in stated()}
    there = {name for name, value in vars(references).items() if isinstance(value, FunctionType)}
    assert used <= there
    assert [name for name in there - used if not name.startswith("_")] == []


@cache
def counted(number: int, tokens: int | None) -> Work:
    """Return the work of an entry's reference on meta tensors, of so many tokens where it loops over them."""
    entry = entries()[number]
    subject = Subject(entry.subject.reference, entry.subject.arguments, entry.subject.run)
    shape = entry.shape if tokens is None else {**entry.shape, "T": tokens}
    function = attribute_of(subject.name, closure_named(subject.name, check.ROOT)[0])
    return count(function, subject, input_specs(function, subject, shape)).work


def work_of(entry: Entry) -> tuple[int, int]:
    """Return FLOP and bytes of a reference; of a loop over tokens those of 8 and 16, continued."""
    if name_of_reference(entry) not in RECURRENT:
        work = counted(entries().index(entry), None)
        return work.flops, work.bytes_read + work.bytes_written
    few, more = (counted(entries().index(entry), tokens) for tokens in (8, 16))
    steps = (entry.shape["T"] - 8) // 8
    few_bytes, more_bytes = (one.bytes_read + one.bytes_written for one in (few, more))
    return few.flops + steps * (more.flops - few.flops), few_bytes + steps * (more_bytes - few_bytes)


@pytest.mark.parametrize("entry", stated(), ids=ids(stated()))
def test_stated_work_is_that_of_the_reference(entry):
    flops, moved = work_of(entry)
    name = name_of_reference(entry)
    if entry.bytes is not None:
        assert entry.bytes < moved if name in FEWER_BYTES else entry.bytes == moved
    state = entry.shape.get("K", 0) * entry.shape.get("V", 0) * entry.shape.get("H", 0)
    tokens = entry.shape.get("B", 0) * entry.shape.get("T", 0)
    if name in RECURRENT and state:
        # The counter sees products with the state, not the outer product that updates it.
        assert entry.flops == flops + 2 * tokens * state
    elif name in FEWER_PRODUCTS:
        assert 0 < entry.flops < flops
    else:
        assert entry.flops in (flops, None)


def test_work_of_three_kernels_by_hand():
    found = {(one.name, one.shape.get("S")): one for one in entries()}
    rows = found["liger:rms_norm", None]
    assert (rows.flops, rows.bytes) == (0, 2 * 2 * 16384 * 4096 + 2 * 4096)
    causal = found["torch_kernels:flex_causal", 4096]
    # 4096 · 4097 ÷ 2 visible scores a head, 2 · 128 operations each for q · k and for p · v.
    assert causal.flops == 16 * (4096 * 4097 // 2) * 128 * 4
    state = found["fla:gated_delta_rule", None]
    # A token's key, value update and query each meet the 128 × 128 state.
    assert state.flops == 3 * 2 * 128 * 128 * 16 * 4 * 1024


SMALL = {"B": 2, "H": 4, "G": 4, "S": 32, "D": 16, "N": 8, "C": 8, "O": 8, "L": 8, "M": 16, "K": 16}
ON_CPU = [
    one for one in entries()
    if one.package.distribution == "torch" and not any(part in one.name for part in ("flex", "scaled", "int8"))
]  # fmt: skip


def small(entry: Entry, **more: int) -> Entry:
    return replace(entry, shape={key: min(size, {**SMALL, **more}.get(key, size)) for key, size in entry.shape.items()})


@pytest.mark.parametrize("entry", ON_CPU, ids=ids(ON_CPU))
def test_torch_kernels_agree_with_their_references_on_the_cpu(entry):
    found = check.check(small(entry), device="cpu")
    assert (found["passed"], found["calls"]) == (True, 3)
    assert not [key for key in check.row_of(entry, found) if key.endswith(("_s", "_us", "_ps", "time"))]


def test_a_wrong_kernel_is_found():
    entry = small(next(one for one in entries() if one.name == "torch_kernels:rms_norm"))
    wrong = replace(entry.subject, reference="examples.third_party.references:gemma_rms_norm")
    found = check.check(replace(entry, subject=wrong), device="cpu")
    assert not found["passed"]
    assert check.line_of(check.row_of(entry, found)).startswith("WRONG")


REFERENCES = {
    "sparsemax": ("x=fp32[4,9]", lambda y, x: ((y.sum(-1) - 1).abs().max() < 1e-9) & (y >= 0).all()),
    "l2_norm": ("x=fp32[4,9]", lambda y, x: (y.square().sum(-1) - 1).abs().max() < 1e-5),
    "token_shift": ("x=fp32[1,4,2]", lambda y, x: (y[:, 1:] + x[:, 1:] - x[:, :-1]).abs().max() < 1e-9),
}


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_references_have_the_properties_that_define_them(name):
    import torch

    text, holds = REFERENCES[name]
    arguments, _ = with_keys(parse_arguments(text), {})
    x = torch.randn([int(dim) for dim in text[text.index("[") + 1 : -1].split(",")], dtype=torch.float64)
    assert len(arguments) == 1
    assert bool(holds(getattr(references, name)(x), x))


def test_linear_attention_is_the_same_in_both_forms():
    import torch

    q, k, v = (torch.randn(1, 12, 2, 4, dtype=torch.float64) for _ in range(3))
    gate = torch.randn(1, 12, 2, dtype=torch.float64)
    quadratic = references.simple_gla(q, k, v, gate)
    recurrent = references.gla(
        q, k, v, -torch.log(torch.expm1(-16 * torch.nn.functional.logsigmoid(gate)))[..., None].expand_as(k)
    )
    assert (quadratic - recurrent).abs().max() < 1e-9


def test_a_missing_package_says_what_to_install(tmp_path):
    assert Package("no-such-kernels", "1.0", "MIT").missing() == (
        "no-such-kernels: got not installed; expected 1.0: pip install no-such-kernels==1.0"
    )
    assert Package("torch", "0.1", "BSD-3-Clause").missing() is None
    (tmp_path / "ops.py").write_text("from no_such_kernels import norm\n\n\ndef call(x):\n    return norm(x)\n")
    with pytest.raises(InputError, match=r"imports no_such_kernels, which is not installed .*pip install"):
        closure_named("ops:call", tmp_path)


def test_a_subject_that_raises_is_a_row_and_the_exit_code_is_1(tmp_path, capsys):
    out = tmp_path / "found.json"
    assert check.main(["infer:prefill", "-o", str(out), "--jobs", "1"]) == 1
    (row,) = json.loads(out.read_text())
    assert not row["passed"]
    assert "pip install flashinfer-python==" in row["error"]
    assert "0 of 1 subjects agree" in capsys.readouterr().out


def test_the_options_of_a_subject_are_those_of_predict(tmp_path, capsys):
    assert check.main(["--list", "torch_kernels:cumsum", "liger:rms_norm"]) == 0
    cumsum, *liger = capsys.readouterr().out.splitlines()
    assert "--reference examples.third_party.references:rms_norm" in liger[0]
    desk = Desk(tmp_path / "book")
    shutil.copytree(FOLDER, desk.root / "examples" / "third_party", ignore=shutil.ignore_patterns("__pycache__"))
    guess = ("--hw", "cpu", "--regime", "hbm-bound", "--pct", "30", "--dry-run")
    assert "cumsum" in desk.ledger(*shlex.split(cumsum)[1:], *guess)
    if Package("liger-kernel", "0.8.5", "BSD-2-Clause").missing():
        assert "liger_kernel, which is not installed" in desk.refused(2, *shlex.split(liger[0])[1:], *guess)


def test_what_was_checked_is_in_the_table_and_right():
    rows = json.loads((FOLDER / "checked.json").read_text())
    table = {(one.name, tuple(one.shape.items()), one.dtype): one for one in entries()}
    checked = [table[row["name"], tuple(row["shape"].items()), row["dtype"]] for row in rows]
    assert all(row["passed"] and row["calls"] >= 2 for row in rows)
    assert len(checked) >= 60
    assert len({one.package.distribution for one in checked}) >= 6
    packages = {one.package.distribution for one in checked}
    page = " ".join((check.ROOT / "docs" / "callables.md").read_text().split())
    assert f"{len(checked)}, of {len(packages)} packages, were right against float64 on an H200" in page
    for row, entry in zip(rows, checked, strict=True):
        assert row["package"] == f"{entry.package.distribution} {entry.package.version}"
        assert (row["reference"] == entry.subject.reference) or entry.subject.reference == SELF


def test_what_was_not_checked_is_of_a_package_whose_reason_is_given():
    rows = json.loads((FOLDER / "checked.json").read_text())
    checked = {(row["name"], tuple(row["shape"].items()), row["dtype"]) for row in rows}
    others = [one for one in entries() if (one.name, tuple(one.shape.items()), one.dtype) not in checked]
    reasons = parse_yaml(TABLE.read_bytes(), what="table")["not_run"]
    assert {one.package.distribution for one in others} == {name for names in reasons for name in names.split(", ")}


def test_rows_of_a_subject_replace_its_earlier_ones(tmp_path):
    first, second = (check.row_of(one, {"passed": True}) for one in entries()[:2])
    (tmp_path / "found.json").write_text(json.dumps([{**second, "passed": False}]))
    assert check.merged(tmp_path / "found.json", [second, first]) == [first, second]

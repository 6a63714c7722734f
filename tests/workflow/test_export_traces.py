"""Exports problems and measured cells as flashinfer-trace: documents are valid, and a round trip loses nothing."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from desk import Desk
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_texts import MODEL, definition, solution, workload, write_set
from trace_schema import validate

from ledger.analysis.book import Book
from ledger.errors import InputError
from ledger.problems.problem_set import read_problems
from ledger.workflow.export_traces import _Folder, export_traces
from ledger.workflow.import_problems import ImportOptions, import_problems

EMPTY = Book(head="", cells=(), seals=(), records=(), voids=(), findings=())
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NET = """
import torch


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
"""
EXTRA = st.dictionaries(st.sampled_from(["tags", "note", "hf_id", "x-more", "zz"]), JSON, max_size=3)


def through(source: Path, scratch: Path) -> Path:
    """Return the folder that an import and an export of a set of problems give."""
    root = Path(tempfile.mkdtemp(dir=scratch))
    (root / ".git").mkdir()
    import_problems(source, root, ImportOptions())
    export_traces(root, EMPTY, root / "out")
    return root / "out"


def contents(folder: Path) -> dict[str, Any]:
    """Return every document of a set as values, with the types of numbers told apart."""
    found = read_problems(folder)
    return {
        "definitions": {name: repr(json.loads(one.data)) for name, one in found.definitions.items()},
        "solutions": {
            (name, title): repr(json.loads(one.data))
            for name, items in found.solutions.items()
            for title, one in items.items()
        },
        "traces": {name: sorted(repr(json.loads(line)) for line in lines) for name, lines in found.traces.items()},
        "models": sorted(found.models.values()),
    }


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@settings(max_examples=25)
@given(EXTRA, EXTRA, EXTRA, EXTRA, st.lists(st.integers(1, 9), max_size=4, unique=True))
def test_round_trip_keeps_every_field(one: Any, other: Any, third: Any, inner: Any, rows: list[int]):
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        traces = [{**workload(size, f"w{size}", **inner), **third} for size in rows]
        evaluated = {"status": "RUNTIME_ERROR", **inner}
        traces += [{**workload(3, "w3"), "solution": "fused", "evaluation": evaluated}]
        source = write_set(scratch / "set", [definition(**one)], [solution(**other)], traces)
        (source / "model.py").write_text(MODEL)
        once = through(source, scratch)
        assert contents(once) == contents(source)
        assert tree(through(once, scratch)) == tree(once)


def test_folder_for_each_problem_keeps_its_documents(tmp_path: Path):
    source = write_set(tmp_path / "set", [definition()], [solution()], [workload()], layout="one folder")
    assert contents(through(source, tmp_path)) == contents(source)


def test_one_solution_measured_by_two_people_on_two_devices_is_one_document():
    folder = _Folder()
    made = {"author": "Ada", "spec": {"language": "triton", "target_hardware": ["B"]}, "sources": []}
    folder.add_solution("s.json", made)
    folder.add_solution("s.json", {**made, "author": "Bob", "spec": {**made["spec"], "target_hardware": ["A"]}})
    (kept,) = (json.loads(data) for data in folder.files().values())
    assert (kept["author"], kept["spec"]["target_hardware"]) == ("Ada", ["A", "B"])
    with pytest.raises(InputError, match="other content"):
        folder.add_solution("s.json", {**made, "sources": [1]})


@pytest.mark.exhaustive
def test_measured_cells_are_valid_traces_and_come_back(tmp_path: Path):
    desk = Desk(tmp_path / "book")
    source = write_set(tmp_path / "set", [definition()], [solution()], [workload(256)])
    guess = ("--hw", "cpu", "--regime", "hbm-bound", "--pct", "30")
    done = json.loads(desk.ledger("import", str(source), *guess, "--json"))
    assert [one["kernel"] for one in done["cells"]] == ["problems.norm_h64.fused.main:run"]
    desk.ledger("predict", "--from", done["campaigns"][0])
    desk.ledger("predict", "vector_add", "--dtype", "fp32", "--shape", "N=65536", *guess)
    (desk.root / "ops.py").write_text(NET)
    desk.ledger("predict", "ops:Net", "--args", "input=fp32[2*B,8]", "--shape", "B=64", *guess)
    desk.ledger("verify")
    counts = json.loads(desk.ledger("export", "-o", "out", "--json"))
    assert (counts["definitions"], counts["solutions"], counts["traces"], counts["skipped"]) == (3, 3, 3, [])
    assert validate(desk.root / "out") == 3 + 3 + counts["workloads"] + 3
    (line,) = (desk.root / "out/traces/norm/norm_h64.jsonl").read_text().splitlines()
    trace = json.loads(line)
    assert (trace["solution"], trace["workload"]) == ("fused", workload(256)["workload"])
    row = next(one for one in json.loads(desk.ledger("report", "--json"))["rows"] if "norm" in one["cell"])
    performance = trace["evaluation"]["performance"]
    assert performance == {"latency_ms": pytest.approx(row["measured"]["duration_us"] / 1000)}
    said = trace["evaluation"]["correctness"]["extra"]["ledger"]
    assert (said["seal"], said["record"]) == (row["seal"], row["record"])
    again = through(desk.root / "out", tmp_path)
    assert tree(again) == tree(desk.root / "out")
    module = next(iter((desk.root / "out/solutions/callable").rglob("*.json")))
    entry = next(one for one in json.loads(module.read_text())["sources"] if one["path"] == "ledger_entry.py")
    (desk.root / "entry.py").write_text(entry["content"] + "\nprint(run(torch.zeros(4, 8)).shape)\n")
    assert "[4, 8]" in desk.run(sys.executable, "entry.py").stdout
    assert "expected flashinfer-trace" in desk.refused(2, "export", "-o", "other", "--format", "other")


@pytest.mark.exhaustive
def test_measured_code_that_was_edited_is_no_trace_of_the_imported_solution(tmp_path: Path):
    desk = Desk(tmp_path / "book")
    source = write_set(tmp_path / "set", [definition()], [solution()], [workload(256)])
    guess = ("--hw", "cpu", "--regime", "hbm-bound", "--pct", "30")
    done = json.loads(desk.ledger("import", str(source), *guess, "--json"))
    main = desk.root / "problems/norm_h64/fused/main.py"
    main.write_text(main.read_text() + "\n# edited\n")
    desk.ledger("predict", "--from", done["campaigns"][0])
    for text in (NET, f"{NET}\n# edited\n"):
        (desk.root / "ops.py").write_text(text)
        desk.ledger("predict", "ops:Net", "--args", "input=fp32[2*B,8]", "--shape", "B=64", *guess)
        desk.ledger("verify")
    counts = json.loads(desk.ledger("export", "-o", "out", "--json"))
    assert not (desk.root / "out/traces/norm/norm_h64.jsonl").exists()
    (own,) = (desk.root / "out/traces/callable").glob("problems_*.jsonl")
    assert json.loads(own.read_text())["solution"] != "fused"
    (left,) = counts["skipped"]
    assert "is there with other content" in left["reason"]

"""Tests how the scripts of tests/gpu resume and end within a budget, without a GPU."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu import correctness, retime, sanitize, two_gpus
from measuring import cell_of, order_of, this_cpu
from mutants.residues import residues_trials
from mutants.split_k import ONE_BYTE, split_k_trials

ROOT = Path(__file__).parents[1]
TESTS = """
import time, pytest
pytestmark = pytest.mark.gpu
def test_right(): pass
def test_wrong(): assert 1 == 2
def test_long(): time.sleep(60)
def test_after(): pass
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of results after a run with a budget of two seconds."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "test_some.py").write_text(TESTS)
    _run(folder)
    return folder / "results"


def _run(folder: Path, budget_s: float = 2.0) -> None:
    arguments = [str(folder / "test_some.py"), "-q", "--rootdir", str(folder), "-p", "no:cacheprovider"]
    code = (
        "import sys, pytest; from pathlib import Path; from gpu import correctness; "
        f"pytest.main({arguments!r}, plugins=[correctness.Recorder(Path({str(folder / 'results')!r}), "
        f"('test_some',), {budget_s})])"
    )
    subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'tests' / 'support'}"},
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip


def test_the_table_names_what_failed_and_what_is_left(recorded: Path) -> None:
    tests = [*correctness.results(recorded), "test_some.py::test_after"]
    lines = correctness.table(correctness.results(recorded), tests)
    assert [line.rpartition("s  ")[2] for line in lines[:4]] == ["1 passed", "1 failed", "1 out of time", "1 not run"]
    assert lines[4].startswith("FAILED") and "assert 1 == 2" in lines[4]


def test_a_run_ends_within_its_budget_and_the_next_one_goes_on(recorded: Path) -> None:
    first = {name.partition("::")[2]: row["outcome"] for name, row in correctness.results(recorded).items()}
    assert first == {"test_right": "passed", "test_wrong": "failed", "test_long": "out of time"}
    recorded.with_name("test_some.py").write_text(TESTS.replace("60", "0").replace("1 == 2", "1 == 1"))
    _run(recorded.parent, 30.0)
    rows = [json.loads(line) for line in recorded.read_text().splitlines()]
    assert [row["test"].partition("::")[2] for row in rows[3:]] == ["test_wrong", "test_long", "test_after"]
    assert {row["outcome"] for row in correctness.results(recorded).values()} == {"passed"}


def _sanitized(folder: Path, limit_s: float) -> sanitize.Run:
    shares = ("matmul@few_rows",)
    return sanitize.sanitized("memcheck", shares, folder=folder, sanitizer="none", limit_s=limit_s, port=1)


def test_a_whole_run_of_a_sanitizer_is_not_repeated(tmp_path: Path) -> None:
    log = tmp_path / "memcheck-matmul-few_rows.txt"
    log.write_text("LAUNCHED matmul 3 WRONG 0\n")
    assert "out of time" in _sanitized(tmp_path, 0.0).trouble
    whole = "LAUNCHED matmul 3 WRONG 0\n========= ERROR SUMMARY: 0 errors\n"
    log.write_text(whole)
    assert (_sanitized(tmp_path, math.inf).text, _sanitized(tmp_path, math.inf).trouble) == (whole, "")


def test_shares_of_one_variant() -> None:
    assert sanitize.jobs_of(["matmul", "mla_decode"], "few_rows") == [("matmul@few_rows",), ("mla_decode@few_rows",)]
    assert len(sanitize.jobs_of(["matmul"], "residues")) == len(residues_trials("matmul", "fp16"))
    assert sanitize.jobs_of(["matmul"], "split_k") == [("matmul@split_k",)]
    for name, dtype in (("matmul", "fp16"), *ONE_BYTE.items()):
        chosen = [one for one in sanitize.launches(name) if one.config["variant"] == "split_k"]
        assert len(chosen) == len(split_k_trials(name, dtype))
    named = ("matmul@few_rows", "matmul:0/2", "matmul@cuda:1/2", "matmul")
    assert {sanitize.kernel_of(one) for one in named} == {"matmul"}


def test_rows_of_a_bench_are_chosen_by_name_and_joined() -> None:
    rows = json.loads((ROOT / "benchmarks" / "h200.json").read_text())["rows"]
    found = retime.chosen(rows, ["mla_decode B=1,", "gemv"])
    assert {row["kernel"] for row in found} == {"mla_decode", "gemv"} and len(found) < len(rows)
    assert retime.chosen(rows, []) == rows

    def of(row: dict[str, Any], digest: str) -> dict[str, Any]:
        return {"device": "d", "conditions": {"kernel_sha256": {row["kernel"]: digest}}, "rows": [row]}

    both = retime.joined(retime.joined(None, of(found[0], "a")), of(found[-1], "b"))
    assert [retime.name_of(row) for row in both["rows"]] == [retime.name_of(found[0]), retime.name_of(found[-1])]
    assert both["conditions"]["kernel_sha256"] == {found[0]["kernel"]: "a", found[-1]["kernel"]: "b"}


def test_a_line_compares_a_row_with_the_earlier_one() -> None:
    before = {"kernel": "k", "shape": {"N": 1}, "dtype": "fp16", "ours_us": 10.0}
    now = {**before, "ours_us": 8.0, "fastest": "ours", "ratio_to_fastest": 1.0, "sm_clock_mhz": 1755}
    assert "10.00 ->      8.00 us (0.800)  of the fastest (ours) - -> 1.000  1755 MHz" in retime.line(before, now)


def test_each_chip_measures_every_cell_as_often_and_no_run_twice() -> None:
    cells = [cell_of(this_cpu(), m=size, run=3) for size in (8, 16)]
    orders = [two_gpus.order_of_chip(order_of(*cells), chip=chip, chips=2, repeats=2) for chip in range(2)]
    assert [[(one.case.shape["M"], one.run) for one in order.cells] for order in orders] == [
        [(8, 3), (16, 3), (8, 5), (16, 5)],
        [(8, 4), (16, 4), (8, 6), (16, 6)],
    ]


def test_chips_are_compared_on_the_cells_that_they_share() -> None:
    times = {"s#a": {"A": [100, 102], "B": [110, 110]}, "s#b": {"A": [200], "B": [220]}, "s#c": {"A": [1]}}
    lines = two_gpus.chip_lines(times)
    # (110 - 101) ÷ 105.5 and 20 ÷ 210 between the chips, 2 ÷ 101 and 0 between repeats.
    assert lines[0] == "2 cells on 2 chips differ by 9.03% in the median, 9.52% at most"
    assert lines[1] == "repeats on one chip differ by 0.99% in the median, 1.98% at most"
    assert lines[2] == "B takes 1.0946 of the time of A, 1.089 to 1.100"
    assert two_gpus.chip_lines({"s#c": {"A": [1]}}) == ["no cell was measured on two chips"]

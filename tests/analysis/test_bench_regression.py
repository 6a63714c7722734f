"""Tests the comparison of two benches, and the exit codes of `ledger bench` when one has regressed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ledger.analysis.bench_regression import RatioChange, check, compare
from ledger.cli import exit_code
from ledger.cli.app import app
from ledger.errors import InputError, ThresholdMissed
from ledger.measure import bench as benches


def row(shape: dict[str, int] | None = None, dtype: str = "fp16", ours: float = 10.0, **more: float | None):
    times = {"torch_matmul_us": 20.0, "baseline_us": 30.0, "torch_eager_us": None, "torch_compile_us": None}
    return {
        "kernel": "matmul",
        "shape": shape or {"M": 64, "N": 64, "K": 64},
        "dtype": dtype,
        "ours_us": ours,
        "baseline": "torch_matmul",
        **times,
        **more,
    }


def bench(*rows, device: str = "Toy"):
    return {"device": device, "conditions": {}, "rows": list(rows)}


BEFORE = bench(row(), row(dtype="bf16"))


def test_change_is_of_the_ratio_to_a_baseline_of_the_same_run():
    # Everything is 30% slower, the baseline too: nothing changed. Then ours alone is 5% slower.
    slower_machine = bench(row(ours=13.0, torch_matmul_us=26.0), row(dtype="bf16", ours=13.65, torch_matmul_us=26.0))
    first, second = compare(slower_machine, BEFORE)
    assert first.change == pytest.approx(0.0)
    assert second.change == pytest.approx(0.05)
    assert second.sentence == "matmul K=64 M=64 N=64 bf16: 5.0% slower than before, relative to torch_matmul"


def test_another_baseline_serves_where_the_first_is_missing():
    (change,) = compare(bench(row(torch_matmul_us=None)), bench(row()))
    assert change.baseline == "baseline"


def test_check_passes_at_the_limit_and_fails_above_it():
    check([RatioChange("c", "b", 0.03)], "3%")
    check([RatioChange("c", "b", -0.5)], "0")
    with pytest.raises(ThresholdMissed, match=r"1 of 2 cells regressed: c: 3\.1% slower"):
        check([RatioChange("c", "b", 0.031), RatioChange("d", "b", 0.0)], "3%")


@pytest.mark.parametrize("limit", ["", "3 percent", "nan", "inf", "-1%", "%"])
def test_a_limit_that_is_no_percentage_is_refused(limit: str):
    with pytest.raises(InputError, match="--fail-on-regress"):
        check([RatioChange("c", "b", 0.0)], limit)


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (BEFORE, bench(row(), device="Other"), "device is 'Toy', before it was 'Other'"),
        (BEFORE, bench(row(shape={"M": 1, "N": 1, "K": 1})), "no cell in common"),
        (BEFORE, {"device": "Toy"}, "the earlier bench has no rows"),
        (BEFORE, [], "the earlier bench has no rows"),
        (BEFORE, bench({"kernel": "matmul"}), "without kernel, shape, dtype or ours_us"),
        (BEFORE, bench(row(ours=0.0)), "expected a positive time"),
        (BEFORE, bench(row(ours=float("nan"))), "expected a positive time"),
        (bench(row(torch_matmul_us=None, baseline_us=None)), BEFORE, "no baseline was measured in both"),
    ],
    ids=["device", "cell", "no-rows", "list", "fields", "zero", "nan", "baseline"],
)
def test_what_cannot_be_compared_is_told(now, before, words: str):
    with pytest.raises(InputError, match=words):
        compare(now, before)


# The command, with the timer replaced: what it prints and how it exits


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Replace the timer by a document and stand in an empty folder with a CPU profile at hand."""
    import ledger.device.local_profile
    import ledger.kernel_files
    from ledger.kernel_files import load_kernel
    from ledger.record_files import load_hardware

    document = copy.deepcopy(BEFORE)
    for line in document["rows"]:
        line |= {"ours_low_us": 9.9, "ours_high_us": 10.1, "floor_us": 5.0, "pct_of_roof": 50.0, "rel_error": 1e-4}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        ledger.device.local_profile, "profile_of_this_machine", lambda root, name: load_hardware("h200")
    )
    monkeypatch.setattr(ledger.kernel_files, "load_kernel", lambda name, *_, **__: load_kernel(name))
    found = SimpleNamespace(document=lambda: copy.deepcopy(document))

    def bench(*_, on_row, **__):
        on_row(found)
        return found

    monkeypatch.setattr(benches, "bench", bench)
    return document


def run(*options: str):
    return CliRunner().invoke(app, ["bench", "matmul", *options])


def test_bench_writes_json(timed, tmp_path: Path):
    done = run("-o", "b.json")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "b.json").read_text()) == timed


def test_an_interrupted_bench_leaves_its_rows_and_the_earlier_file(timed, tmp_path: Path, monkeypatch):
    complete = benches.bench

    def interrupted(*given, **named):
        complete(*given, **named)
        raise KeyboardInterrupt

    (tmp_path / "b.json").write_text("{}")
    monkeypatch.setattr(benches, "bench", interrupted)
    done = run("-o", "b.json")
    assert _code(done) == 130 and "b.json.partial has the rows so far" in str(done.exception)
    assert json.loads((tmp_path / "b.json.partial").read_text()) == timed
    assert (tmp_path / "b.json").read_text() == "{}"
    monkeypatch.setattr(benches, "bench", complete)
    run("-o", "b.json")
    assert json.loads((tmp_path / "b.json").read_text()) == timed and not (tmp_path / "b.json.partial").exists()


def test_bench_json_is_one_document(timed):
    assert json.loads(run("--json").stdout) == timed


@pytest.mark.parametrize(
    ("factor", "limit", "code"),
    [(1.05, "3%", 1), (1.02, "3%", 0), (0.9, "0%", 0), (1.05, None, 0)],
    ids=["5-slower", "2-slower", "faster", "no-limit"],
)
def test_a_planted_slowdown_decides_the_exit_code(timed, tmp_path: Path, factor: float, limit: str | None, code: int):
    earlier = copy.deepcopy(timed)
    for line in earlier["rows"]:
        line["ours_us"] /= factor
    (tmp_path / "before.json").write_text(json.dumps(earlier))
    options = ["--against", "before.json", *(() if limit is None else ("--fail-on-regress", limit))]
    done = run(*options)
    assert _code(done) == code
    assert "relative to torch_matmul" in done.stderr


@pytest.mark.parametrize(
    "text",
    ["", "[]", "not json", json.dumps(bench(row(), device="Other")), json.dumps(bench(row(shape={"M": 1})))],
    ids=["empty", "list", "text", "device", "cell"],
)
def test_an_earlier_file_that_is_no_such_bench_exits_2(timed, tmp_path: Path, text: str):
    (tmp_path / "before.json").write_text(text)
    assert _code(run("--against", "before.json", "--fail-on-regress", "3%")) == 2


def test_a_limit_without_an_earlier_bench_exits_2(timed):
    assert _code(run("--fail-on-regress", "3%")) == 2
    assert _code(run("--against", "missing.json")) == 2


def _code(done) -> int:
    """Return the code that main() exits with; the application itself only raises."""
    return 0 if done.exception is None else exit_code(done.exception)


def test_times_of_different_contexts_are_not_compared():
    with pytest.raises(InputError, match=r"timed back-to-back before and chain now; expected one context"):
        compare(bench(row() | {"context": "chain"}), bench(row()))
    assert compare(bench(row() | {"context": "chain"}), bench(row() | {"context": "chain"}))

"""Tries folders of public problems on this CPU: imports, shrinks, checks and measures them, and prints a table.

    python -m tests.support.problem_trial SCRATCH FOLDER [FOLDER …] [--largest 64] [--bytes 67108864] [--measure 3]

SCRATCH becomes a repository of its own. The problems' code runs there with the rights of whoever starts this.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from ledger_process import run_ledger

from ledger.analysis.campaign import parse_campaign
from ledger.callables.subject_files import load_case
from ledger.errors import LedgerError
from ledger.measure.inputs import input_sets
from ledger.measure.result_check import compare_results
from ledger.problems.cells import Cell
from ledger.workflow.import_problems import ImportOptions, import_problems
from ledger.workflow.seal import draft

IDENTITY = {f"GIT_{who}_{what}": "a@e.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def ledger(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the ledger in a folder."""
    root = str(Path(__file__).parents[2])
    return run_ledger(*arguments, cwd=folder, env={**os.environ, **IDENTITY, "PYTHONPATH": root})


def smaller(cells: list[Cell], largest: int) -> Iterator[Cell]:
    """Yield the first cell of each subject, with no size above the largest."""
    seen: set[str] = set()
    for one in cells:
        if one.kernel not in seen:
            seen.add(one.kernel)
            yield replace(one, shape={key: min(size, largest) for key, size in one.shape.items()})


def entry(cell: Cell) -> dict[str, Any]:
    """Return a cell as a campaign file has it."""
    found = {"kernel": cell.kernel, "args": cell.args, "shape": dict(cell.shape), "reference": cell.reference}
    return {**{key: value for key, value in found.items() if value}, "regime": "hbm-bound", "pct": 40.0}


def checked(cell: Cell, root: Path, most_bytes: int) -> tuple[dict[str, Any], bool]:
    """Return what one call shows on inputs that a seal of zeros gives, and whether it may be sealed."""
    document = {"campaign": "trial", "hardware": "cpu", "cells": [entry(cell)]}
    (request,) = parse_campaign(document, what="trial")[1]
    forecast = draft(request, root=root).forecast
    if forecast.work.bytes > most_bytes:
        return {"outcome": "too large here", "reason": f"{forecast.work.bytes} bytes"}, False
    case = forecast.case
    kernel = load_case(case, root).kernel
    sets = input_sets(
        kernel.operation, case.shape, case.dtype, seal="0" * 64, cell=forecast.cell, run=0, anchor=None, count=1,
        device="cpu",
    )  # fmt: skip
    inputs = next(iter(sets)).inputs
    expected = kernel.reference(inputs)
    call = kernel.implementations["torch-cpu"](inputs, None, {})
    call()
    found = compare_results(call.results(), expected, kernel.tolerances[case.dtype], name="trial")
    times = []
    for _ in range(5):
        started = time.perf_counter()
        call()
        times.append((time.perf_counter() - started) * 1e6)
    row = {"relative_error": found.relative_error, "us": round(statistics.median(times), 1), "reason": found.reference}
    return {"outcome": "correct" if found.passed else "not correct", **row}, found.passed


def sealable(cells: Iterator[Cell], root: Path, most_bytes: int, rows: dict[str, dict[str, Any]]) -> Iterator[Cell]:
    """Yield the cells that can be sealed, fit, and are correct; every one gets its outcome in `rows`."""
    for cell in cells:
        rows[cell.kernel] = {"definition": cell.definition, "solution": cell.solution, "shape": dict(cell.shape)}
        signal.alarm(60)
        try:
            row, keep = checked(cell, root, most_bytes)
        except LedgerError as error:
            row, keep = {"outcome": "not sealed", "reason": str(error)}, False
        # The code of a problem may raise anything.
        except Exception as error:  # noqa: BLE001
            row, keep = {"outcome": "raises", "reason": f"{type(error).__name__}: {error}"}, False
        finally:
            signal.alarm(0)
        rows[cell.kernel] |= row
        if keep:
            yield cell


def trial(
    scratch: Path, folders: list[Path], *, largest: int, most_bytes: int, measure: int
) -> dict[str, dict[str, Any]]:
    """Return what became of each problem of some folders, by its callable; the first `measure` of each are measured."""
    scratch.mkdir(parents=True)
    signal.signal(signal.SIGALRM, _late)
    for command in (["git", "init", "-q"], ["git", "commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run(command, cwd=scratch, env={**os.environ, **IDENTITY}, check=True)
    calibrated = ledger("calibrate", "--device", "cpu", "--quick", folder=scratch)
    assert calibrated.returncode == 0, calibrated.stderr
    os.chdir(scratch)
    rows: dict[str, dict[str, Any]] = {}
    kept: list[Cell] = []
    for number, folder in enumerate(folders):
        options = ImportOptions(into=f"p{number}", hardware="cpu", skip_invalid=True)
        done = import_problems(folder, scratch, options)
        print(f"{folder}: {done.problems} problems, {len(done.cells)} cells, {len(done.skipped)} left out", flush=True)
        for one in done.skipped:
            print(f"    left out: {one.what}: {one.reason[:160]}")
        good = list(sealable(smaller(done.cells, largest), scratch, most_bytes, rows))
        kept += good[:measure]
    if kept:
        document = {"campaign": "trial", "hardware": "cpu", "cells": [entry(one) for one in kept]}
        (scratch / "trial.yaml").write_text(yaml.safe_dump(document))
        sealed = ledger("predict", "--from", "trial.yaml", "--json", folder=scratch)
        assert sealed.returncode == 0, sealed.stderr
        ledger("verify", folder=scratch)
        fill(rows, json.loads(ledger("report", "--json", folder=scratch).stdout))
    return rows


def _late(_number: int, _frame: Any) -> None:
    raise TimeoutError("runs longer than 60 s")


def fill(rows: dict[str, dict[str, Any]], report: dict[str, Any]) -> None:
    """Add what a report says to the rows."""
    for row in report["rows"]:
        rows[row["kernel"]] |= {
            "outcome": "measured" if row["measured"] else "failed",
            "percent": (row["measured"] or {}).get("percent"),
            "reason": row.get("failure") or "",
            "row": row,
        }


def main() -> None:
    """Run the trial and print its table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--largest", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=2**26)
    parser.add_argument("--measure", type=int, default=0, help="problems of each folder to seal and measure")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    folders = [folder.resolve() for folder in given.folders]
    out = None if given.json is None else given.json.resolve()
    rows = trial(given.scratch.resolve(), folders, largest=given.largest, most_bytes=given.bytes, measure=given.measure)
    if out is not None:
        out.write_text(json.dumps(rows, indent=1))
    for name, row in rows.items():
        numbers = f"{row.get('relative_error', '')} {row.get('us', '')}"
        print(f"{row.get('outcome', 'open'):15} {name} {numbers} {str(row.get('reason', ''))[:200]}")
    outcomes = [row.get("outcome", "open") for row in rows.values()]
    print({one: outcomes.count(one) for one in sorted(set(outcomes))})


if __name__ == "__main__":
    main()

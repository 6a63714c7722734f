"""Runs the tests that need a GPU within a time budget, resumes where it stopped, and prints a table.

Usage where a GPU is: python tests/gpu/correctness.py FILE --budget SECONDS [PATTERN …]
Patterns choose tests by file and name (substrings; default: those of block-scaled fp8, few rows, divided K, far scales
of latent attention, and their wrong twins). Each result is appended to FILE, one JSON line each; tests that passed
there are not run again, those that failed or ran out of time are. Exits with 1 when a test failed, with 2 when some
were not reached.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEFAULT = (
    "test_fp8_blocks.py", "test_few_rows.py", "test_residues.py", "test_split_k.py",
    "test_mla_decode_is_right_on_the_gpu_where_references_rise",
    "test_checker_rejects_attention_mutant_on_the_gpu[mla_decode",
)  # fmt: skip


class Recorder:
    """Select tests that are left, stop at the deadline, and append each result to a file."""

    def __init__(self, path: Path, patterns: tuple[str, ...], budget_s: float) -> None:
        """Read what earlier runs recorded."""
        self.path, self.patterns, self.end = path, patterns, time.monotonic() + budget_s
        self.results = results(path)
        self.wanted: list[str] = []

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep tests of the patterns that need a GPU and have not passed."""
        chosen = [
            one
            for one in items
            if one.get_closest_marker("gpu") and any(pattern in one.nodeid for pattern in self.patterns)
        ]
        self.wanted = [one.nodeid for one in chosen]
        items[:] = [one for one in chosen if self.results.get(one.nodeid, {}).get("outcome") != "passed"]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Interrupt a test at the deadline; reach none after it."""
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.setitimer(signal.ITIMER_REAL, max(self.end - time.monotonic(), 0.01))
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        if time.monotonic() >= self.end:
            item.session.shouldstop = "out of time; run again to go on"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Append the result of a test; of its set-up only what is no success."""
        if report.when != "call" and report.passed:
            return
        says = "" if report.passed else str(report.longrepr)[-2000:]
        outcome = "out of time" if "OutOfTime" in says else report.outcome
        row = {"test": report.nodeid, "outcome": outcome, "seconds": round(report.duration, 1), "says": says}
        self.results[report.nodeid] = row
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


class OutOfTime(Exception):
    """Say that the budget ended during a test."""


def _out_of_time(*_: object) -> None:
    raise OutOfTime


def results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last result of each test that a file has, none where it is not there."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {row["test"]: row for row in rows}


def table(found: dict[str, dict[str, Any]], wanted: list[str]) -> list[str]:
    """Return a line for each test function with its outcomes and time, and the ends of what failed."""
    functions = dict.fromkeys(one.partition("[")[0] for one in wanted)
    lines = []
    for function in functions:
        rows = [found.get(one, {"outcome": "not run", "seconds": 0.0}) for one in wanted if one.startswith(function)]
        counts = Counter(row["outcome"] for row in rows)
        said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        lines.append(f"{function.rpartition('/')[2]:110}{sum(row['seconds'] for row in rows):7.1f} s  {said}")
    failed = [found[one] for one in wanted if found.get(one, {}).get("outcome") == "failed"]
    return [*lines, *(f"FAILED {row['test']}: {row['says'][-300:]}" for row in failed)]


def main() -> int:
    """Run what is left and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--budget", type=float, required=True, metavar="SECONDS")
    given = parser.parse_intermixed_args()
    recorder = Recorder(given.output, tuple(given.patterns) or DEFAULT, given.budget)
    files = sorted({one.partition("[")[0] for one in recorder.patterns if one.endswith(".py")})
    whole = len(files) == len(recorder.patterns)
    kernels = ROOT / "tests" / "kernels"
    paths = [str(kernels / one) for one in files] if whole else [str(kernels)]
    pytest.main([*paths, "-m", "gpu", "-q", "--no-header", "-p", "no:cacheprovider"], plugins=[recorder])
    print("\n".join(table(recorder.results, recorder.wanted)))
    outcomes = {recorder.results.get(one, {}).get("outcome", "not run") for one in recorder.wanted}
    return 1 if "failed" in outcomes else 2 if outcomes & {"not run", "out of time"} else 0


if __name__ == "__main__":
    sys.exit(main())

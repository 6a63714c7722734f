"""Tests that the tables of docs/timer.md are what was measured; run as a program, it prints the records'."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu.agreement import CASES

from ledger.kernel import load_kernel
from ledger.model.metrics import totals
from ledger.model.steady import steadiness
from ledger.records import Measurement
from ledger.repository.store import read_record
from ledger.showing.timer_page import cupti_lines, ncu_lines

ROOT = Path(__file__).parent.parent


def rows(least_us: float = 20.0) -> dict[str, str]:
    """Return the lines of the table by record: timed calls beside what the profiler says of one launch."""
    found = {}
    for path in sorted((ROOT / "verifications").glob("??/*.json")):
        record = read_record(Measurement, path)
        timing = record.timing
        if timing is None or record.counters is None or timing.median_ps < least_us * 1e6:
            continue
        seen = totals(record.counters, record.device.target)
        assert seen.duration_ps and seen.sm_clock_hz and record.after
        found[path.stem[:10]] = (
            f"| `{path.stem[:10]}` | {record.cell} | {timing.median_ps / 1e6:.2f} | {seen.duration_ps / 1e6:.2f} "
            f"| {100 * (seen.duration_ps / timing.median_ps - 1):+.1f}% | {record.after.sm_clock_mhz} "
            f"| {seen.sm_clock_hz / 1e6:.0f} | {timing.bytes_per_set / timing.median_ps:.2f} "
            f"| {steadiness(timing.rounds_ps).words} |"
        )
    return found


def test_every_line_of_the_table_is_what_its_record_says():
    known = rows()
    lines = [line for line in (ROOT / "docs" / "timer.md").read_text().splitlines() if line.startswith("| `")]
    assert len(lines) >= 11
    for line in lines:
        assert line == known[line.split("`")[1]]


TABLES = {"cupti-h200": cupti_lines, "ncu-h200": ncu_lines}


@pytest.mark.parametrize("name", TABLES)
def test_every_line_beside_cupti_and_ncu_is_what_was_measured(name: str):
    page = (ROOT / "docs" / "timer.md").read_text()
    for line in TABLES[name](json.loads((ROOT / "benchmarks" / "timer" / f"{name}.json").read_text())):
        assert line in page


def test_the_timer_agrees_with_cupti_within_3_percent_for_the_same_launches():
    rows = json.loads((ROOT / "benchmarks" / "timer" / "cupti-h200.json").read_text())["rows"]
    assert len(rows) == 13
    for row in rows:
        cupti = row["cupti"]
        assert cupti["timer_us"] > 20
        # The timer's call also holds what lies between a library's two kernels.
        between_us = cupti["gap_us"] if len(cupti["kernels"]) > 1 else 0
        assert cupti["us"] + between_us == pytest.approx(cupti["timer_us"], rel=0.03), row["case"]
    # The page says twelve, twice.
    assert sum(abs(row["cupti"]["us"] / row["cupti"]["timer_us"] - 1) <= 0.03 for row in rows) == 12
    assert sum(abs(row["cupti"]["us"] / row["timer"]["us"] - 1) <= 0.03 for row in rows) == 12


def test_the_page_says_how_many_calls_agree_with_ncu():
    rows = json.loads((ROOT / "benchmarks" / "timer" / "ncu-h200.json").read_text())["rows"]
    assert sum(abs(row["ncu"]["us"] / row["timer"]["us"] - 1) <= 0.03 for row in rows) == 12
    assert len(rows) == 13


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_a_case_is_no_case_of_its_kernel(case):
    kernel = load_kernel(case.kernel).kernel
    kernel.check_shape(case.shape)
    assert case.shape not in [dict(shape) for shape in kernel.cases]
    assert case.contestant == "ours" or case.contestant.replace("_", "-") in [
        n.replace("_", "-") for n in kernel.baselines
    ]


if __name__ == "__main__":
    print("\n".join(rows().values()))

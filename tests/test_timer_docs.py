"""Tests that the table of docs/timer.md is what the committed records say; run as a program, it prints the table."""

from __future__ import annotations

from pathlib import Path

from ledger.model.metrics import totals
from ledger.model.steady import steadiness
from ledger.records import Measurement
from ledger.repository.store import read_record

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


if __name__ == "__main__":
    print("\n".join(rows().values()))

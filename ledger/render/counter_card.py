"""Formats all hardware counters of one measured call. Pure; report prints it for the cells that are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ledger.analysis.formatting import PATH_NAMES, duration, si
from ledger.analysis.metric_readings import MetricReadings
from ledger.analysis.metrics import TENSOR_ROWS
from ledger.analysis.reconcile import readings_of
from ledger.analysis.report_rows import ReportRow

# NVIDIA's own rule flags bank conflicts from this share of the wavefronts on.
_CONFLICTS_FLAGGED = 0.10
_SHOWN_STALLS = 4


def counter_lines(row: ReportRow) -> list[tuple[str, str]]:
    """Return (title, words) pairs of a row's counters; none for a row without counters."""
    if row.result is None or row.view.hardware is None:
        return []
    seen = readings_of(row.result.recorded.measurement, row.view.hardware)
    if seen is None:
        return []
    parts: list[tuple[str, Iterator[str]]] = [
        ("memory", _memory(seen, row.view.forecast.work.bytes)),
        ("shared memory", _shared(seen)),
        ("arithmetic", _arithmetic(seen)),
        ("warps", _warps(seen)),
        ("launch", _launch(seen)),
        ("profiled", _profiled(seen)),
        ("causes", _causes(row)),
    ]
    said = [(title, "; ".join(words)) for title, words in parts]
    return [(title, words) for title, words in said if words]


def _number(seen: MetricReadings, name: str, form: Callable[[float], str]) -> str:
    value = seen.get(name)
    return "" if value is None else form(value)


def _percents(seen: MetricReadings, names: dict[str, str]) -> str:
    return ", ".join(f"{words} {value:.0f}%" for name, words in names.items() if (value := seen.get(name)) is not None)


def _memory(seen: MetricReadings, modelled: int) -> Iterator[str]:
    moved = seen.get("dram_bytes")
    if moved is not None:
        of = f", {moved / modelled:.2f} of the modelled" if modelled else ""
        yield f"DRAM moved {si(moved, 'B')}{of}"
    for name, words in (("l2_bytes", "L2"), ("l1_bytes", "L1 without TMA")):
        if value := seen.get(name):
            yield f"{words} {si(value, 'B')}"
    if used := _percents(seen, {"dram_percent": "DRAM", "l2_percent": "L2", "l1_percent": "L1"}):
        yield f"of peak: {used}"
    if crossed := _percents(seen, {"l2_read_percent": "L2 to SM", "l2_write_percent": "SM to L2"}):
        yield crossed
    if hit := _percents(seen, {"l2_hit_percent": "L2 hits"}):
        yield hit


def _shared(seen: MetricReadings) -> Iterator[str]:
    if used := _percents(seen, {"smem_percent": "of peak"}):
        yield used
    for way in ("load", "store"):
        share = seen.bank_conflict_share_of(way)
        if share is not None:
            flagged = " (high: 10% or more)" if share >= _CONFLICTS_FLAGGED else ""
            yield f"bank conflicts {100 * share:.1f}% of the wavefronts of {way}s{flagged}"


def _arithmetic(seen: MetricReadings) -> Iterator[str]:
    names = {"tensor_percent": "tensor", "fma_percent": "FMA", "alu_percent": "ALU", "fp64_percent": "fp64"}
    if used := _percents(seen, names):
        yield f"of peak: {used}"
    for path, rows in TENSOR_ROWS.items():
        counted = sum(seen.get(name) or 0 for name in rows)
        if counted:
            yield f"{si(counted, 'FLOP')} of {PATH_NAMES[path]}"


def _warps(seen: MetricReadings) -> Iterator[str]:
    if issue := _percents(seen, {"issue_percent": "issue slots"}):
        yield f"{issue} used"
    if active := _number(seen, "threads_per_instruction", lambda value: f"{value:.1f} of 32 threads an instruction"):
        yield active
    if stalls := [f"{name.replace('_', ' ')} {value:.2f}" for name, value in seen.stalls[:_SHOWN_STALLS] if value]:
        yield f"cycles stalled an issue: {', '.join(stalls)}"


def _launch(seen: MetricReadings) -> Iterator[str]:
    for name, form in (
        ("grid_blocks", lambda value: f"{value:.0f} blocks"),
        ("waves", lambda value: f"{value:.2f} waves"),
        ("registers_per_thread", lambda value: f"{value:.0f} registers a thread"),
    ):
        if words := _number(seen, name, form):
            yield words
    limits = " and ".join(seen.occupancy_limiters)
    if active := _percents(seen, {"warps_active_percent": "warps active"}):
        yield f"{active}, limited by {limits}" if limits else active


def _profiled(seen: MetricReadings) -> Iterator[str]:
    yield duration(round(1000 * seen.values["duration"]))
    for name, words in (("sm_clock_hz", "SM at"), ("dram_clock_hz", "DRAM at")):
        if value := seen.get(name):
            yield f"{words} {si(value, 'Hz')}"
    if seen.kernels > 1:
        yield f"{seen.kernels} kernels"


def _causes(row: ReportRow) -> Iterator[str]:
    """Yield every factor of the gap with the counter that it comes from."""
    found = row.result.verification.gap if row.result else None
    for cause in found.causes if found else ():
        counter = f" ({cause.counter.replace('_', ' ')})" if cause.counter else ""
        yield f"{cause.name.replace('_', ' ')} ×{cause.factor:.2f}{counter}"

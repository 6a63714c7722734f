"""Collects the hardware counters of the cells of an order. A failure becomes a recorded reason, never an exception."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Literal

from ledger.canonical import object_id
from ledger.device.ncu import ProfileRequest, profile
from ledger.measure.order_checks import Job, Key
from ledger.record_files import write_atomically
from ledger.records import Attachment, Counters, OrderedCell

CountersWanted = Literal["auto", "off", "full"]


@dataclass(frozen=True)
class CounterEvidence:
    """Hold the counters of a cell, or the reason why there are none, with the files kept. Units: milliseconds."""

    counters: Counters | None
    missing: str | None
    attachments: tuple[Attachment, ...] = ()
    device_ms: int = 0


def collect_counters(
    jobs: Sequence[Job],
    *,
    out: FilePath,
    wanted: CountersWanted,
    full_cells: frozenset[str],
    on_cell: Callable[[Job], None],
) -> Mapping[Key, CounterEvidence]:
    """Return the counters of every cell. One profiler run serves all cells without a full report.

    full_cells: names of cells whose whole report is kept in `out`/objects.
    """
    found = {job.key: CounterEvidence(None, "no hardware counters: the cell runs on a CPU") for job in jobs}
    gpu = [job for job in jobs if job.on_gpu]
    if wanted == "off":
        return {**found, **{job.key: CounterEvidence(None, "counters were not asked for") for job in gpu}}
    full = [job for job in gpu if wanted == "full" or job.names & full_cells]
    table_only = [job for job in gpu if job not in full]
    for job in full:
        found |= _profiled([job], out=out, full=True, on_cell=on_cell)
    if table_only:
        found |= _profiled(table_only, out=out, full=False, on_cell=on_cell)
    return found


def _profiled(
    jobs: Sequence[Job], *, out: FilePath, full: bool, on_cell: Callable[[Job], None]
) -> dict[Key, CounterEvidence]:
    for job in jobs:
        on_cell(job)
    started = time.monotonic()
    profiled = profile([ProfileRequest(job.ordered, job.file) for job in jobs], full=full)
    share_ms = round(1e3 * (time.monotonic() - started) / len(jobs))
    return {
        job.key: CounterEvidence(one.counters, one.missing, _keep_report(out, job.ordered, one.report), share_ms)
        for job, one in zip(jobs, profiled, strict=True)
    }


def _keep_report(out: FilePath, cell: OrderedCell, report: bytes | None) -> tuple[Attachment, ...]:
    if report is None:
        return ()
    digest = object_id(report)
    write_atomically(out / "objects" / digest, report)
    return (Attachment(name=f"{cell.cell}.ncu-rep", sha256=digest, bytes=len(report)),)

"""Measures an order: checks it against this machine, runs its cells one by one and writes each when it is done.

Nothing is timed before the whole order has been checked. A cell that fails, is interrupted or cannot be profiled
does not affect the others; the same call resumes an interrupted run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from ledger import __version__
from ledger.analysis.reconcile import IDLE_LAUNCH
from ledger.analysis.refusals import STOPPED
from ledger.analysis.revealing import masked_text
from ledger.callables.subject import is_callable
from ledger.canonical import encode
from ledger.device.facts import has_cuda
from ledger.device.machine_names import machine_names
from ledger.errors import InputError, LedgerError, MachineError
from ledger.launches import watch_loads
from ledger.measure.apart import Limits, run_apart
from ledger.measure.order_checks import Job, Kernels, checked_jobs, require_names
from ledger.measure.order_counters import CounterEvidence, CountersWanted, collect_counters
from ledger.measure.run_cell import Outcome, Stage, device_of, run_cell
from ledger.record_files import read_measurement, write_atomically
from ledger.records import MEASUREMENT_SCHEMA_V2, Attempt, Digest, MeasurementV2, Order, OrderedCell, Tool


@dataclass(frozen=True)
class Progress:
    """Hold the progress of an order. Units: seconds since it began."""

    cell: str
    stage: Stage
    done: int
    total: int
    elapsed_s: float


@dataclass(frozen=True)
class RunSummary:
    """Count the cells that a run measured, that failed, and that were already complete. Units: seconds.

    unloaded: the cells of which there is no record: callables that cannot be loaded here, what no node could measure.
    """

    measured: int
    failed: int
    skipped: int
    device_seconds: float
    interrupted: bool = False
    failures: tuple[tuple[str, str], ...] = ()  # cell, reason
    unloaded: tuple[tuple[str, str], ...] = ()  # cell, reason

    def check_loaded(self) -> None:
        """Check that there is a record of every cell. Raises: InputError."""
        if self.unloaded:
            raise InputError("; ".join(f"{cell}: {reason}" for cell, reason in self.unloaded))


def result_path(out: FilePath, cell: OrderedCell) -> FilePath:
    """Return where a cell's measurement is written; a repeated run has its number in the name."""
    run = "" if cell.run == 0 else f".run{cell.run}"
    return out / f"{cell.seal}.{cell.cell}{run}.json"


def run_order(
    order: Order,
    *,
    order_sha256: Digest | None,
    out: FilePath,
    kernels: Kernels,
    counters: CountersWanted = "auto",
    full_cells: frozenset[str] = frozenset(),
    only: frozenset[str] | None = None,
    limits: Limits | None = None,
    node: str | None = None,
    attempts: tuple[Attempt, ...] = (),
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> RunSummary:
    """Measure the cells of an order that are not yet complete in `out`, and write each there.

    counters: "auto" takes the table's metrics where ncu can, "full" every section and the report, "off" none.
    full_cells, only: names of cells, as CELL or SEAL#CELL. limits: of each callable, which has a process of its own.
    node, attempts: recorded with each cell: the name of this node, and earlier attempts that gave no measurement.
    Raises: MachineError, before any timing, when this device is not the order's; InputError when a kernel, a profile
    or the package is not the order's, or a name in `only` or `full_cells` is no cell of it.
    """
    started = time.monotonic()
    watch_loads()
    jobs = checked_jobs(order, kernels)
    for wanted in (full_cells, only or frozenset()):
        require_names(wanted, jobs)
    chosen = [job for job in jobs if only is None or job.names & only]
    pending = [job for job in chosen if not complete(out, job.ordered)]
    summary = RunSummary(measured=0, failed=0, skipped=len(chosen) - len(pending), device_seconds=0.0)
    origin = Origin(order_sha256, node, attempts)
    run = _Run(order, origin, out, len(chosen), on_progress, started, summary, limits or Limits())
    try:
        evidence = collect_counters(
            pending, out=out, wanted=counters, full_cells=full_cells, on_cell=lambda job: run.report(job, "profiling")
        )
        empty = _empty_launches(pending)
        for job in pending:
            run.measure(job, evidence[job.key], empty)
            _require_live(job)
    except KeyboardInterrupt:
        run.summary = replace(run.summary, interrupted=True)
    return replace(run.summary, device_seconds=time.monotonic() - run.started)


@dataclass(frozen=True)
class Origin:
    """Hold what a record says of where it was made: the order, the node, and earlier attempts at its run."""

    order_sha256: Digest | None
    node: str | None
    attempts: tuple[Attempt, ...]


@dataclass
class _Run:
    """Measure cells one by one, write each and count the outcomes."""

    order: Order
    origin: Origin
    out: FilePath
    total: int
    on_progress: Callable[[Progress], None]
    started: float
    summary: RunSummary
    limits: Limits

    def report(self, job: Job, stage: Stage) -> None:
        """Report the stage of a cell."""
        done = self.summary.skipped + self.summary.measured + self.summary.failed
        self.on_progress(Progress(job.ordered.cell, stage, done, self.total, time.monotonic() - self.started))

    def measure(self, job: Job, evidence: CounterEvidence, empty: EmptyLaunches | None) -> None:
        """Run one cell and write its record. empty: times of empty launches, None where no cell runs on a GPU."""
        empty = empty if device_of(job.ordered) == "cuda" else None
        started, when = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            outcome = self._outcome(job, launch_ps=empty.node_ps if empty else None, vary=evidence.counters is None)
        # A callable that cannot be loaded here has no record, and keeps no other cell from its own.
        except InputError as error:
            unloaded = (*self.summary.unloaded, (job.ordered.cell, str(error)))
            self.summary = replace(self.summary, unloaded=unloaded)
            return
        if empty:
            outcome = replace(outcome, extensions={**outcome.extensions, IDLE_LAUNCH: empty.idle_ps})
        device_ms = round(1e3 * (time.monotonic() - started)) + evidence.device_ms
        made = partial(_record, job, evidence, origin=self.origin, when=when, device_ms=device_ms)
        try:
            data = encode(made(outcome))
        # The process of a callable may have written parts that do not fit each other.
        except (ValidationError, LedgerError) as error:
            if not is_callable(job.ordered.case.kernel):
                raise
            outcome = Outcome(failure=f"{STOPPED}its process left no outcome that a record holds ({error})"[:4000])
            data = encode(made(outcome))
        write_atomically(result_path(self.out, job.ordered), data)
        failed = () if outcome.failure is None else ((job.ordered.cell, outcome.failure),)
        self.summary = replace(
            self.summary,
            measured=self.summary.measured + (not failed),
            failed=self.summary.failed + len(failed),
            failures=(*self.summary.failures, *failed),
        )
        self.report(job, "done")

    def _outcome(self, job: Job, *, launch_ps: int | None, vary: bool) -> Outcome:
        def on_stage(stage: Stage) -> None:
            self.report(job, stage)

        if is_callable(job.ordered.case.kernel):
            return run_apart(
                job, self.order, folder=self.out, launch_ps=launch_ps, vary=vary, limits=self.limits, on_stage=on_stage
            )
        return run_cell(
            job.ordered, job.file.kernel, facts=job.facts, launch_ps=launch_ps, vary=vary, on_stage=on_stage
        )


def complete(out: FilePath, cell: OrderedCell) -> bool:
    """Return whether a complete measurement of this run of this cell exists already."""
    path = result_path(out, cell)
    if not path.is_file():
        return False
    try:
        found = read_measurement(path)
    except LedgerError:
        return False
    return (found.seal, found.cell, found.run, found.anchor) == (cell.seal, cell.cell, cell.run, cell.anchor)


@dataclass(frozen=True)
class EmptyLaunches:
    """Hold the times of empty launches, in picoseconds: of a node of a CUDA graph, and on an idle stream."""

    node_ps: int
    idle_ps: int


def _empty_launches(jobs: Sequence[Job]) -> EmptyLaunches | None:
    if not any(device_of(job.ordered) == "cuda" for job in jobs):
        return None
    from ledger.measure.cuda_graphs import empty_node_ps
    from ledger.measure.launch_contexts import idle_launch_ps

    return EmptyLaunches(empty_node_ps(), idle_launch_ps())


def _require_live(job: Job) -> None:
    """Check that the device still works; after a fault that destroyed the context no later cell can be trusted."""
    if device_of(job.ordered) == "cpu" or not has_cuda():
        return
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise MachineError(
            f"device stopped answering after cell {job.ordered.cell} ({str(error).splitlines()[0]}); the measured "
            "cells are kept: run the same command again for the rest"
        ) from error


def _masked(text: str | None) -> str | None:
    return None if text is None else masked_text(text, machine_names())


def _masked_texts(value: Any) -> Any:
    """Return plain JSON types with every text masked."""
    if isinstance(value, dict):
        return {key: _masked_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked_texts(item) for item in value]
    return _masked(value) if isinstance(value, str) else value


def _record(
    job: Job, evidence: CounterEvidence, outcome: Outcome, *, origin: Origin, when: str, device_ms: int
) -> MeasurementV2:
    cell = job.ordered
    return MeasurementV2(
        schema=MEASUREMENT_SCHEMA_V2,
        tool=Tool(name="ledger", version=__version__),
        seal=cell.seal,
        cell=cell.cell,
        run=cell.run,
        anchor=cell.anchor,
        order_sha256=origin.order_sha256,
        case=cell.case,
        kernel_sha256=cell.kernel_sha256,
        hardware_sha256=cell.hardware_sha256,
        protocol=cell.protocol,
        device=job.facts,
        status="measured" if outcome.failure is None else "failed",
        failure=_masked(outcome.failure),
        correctness=outcome.correctness,
        samples=outcome.samples,
        timing=outcome.timing,
        before=outcome.before,
        after=outcome.after,
        counters=evidence.counters,
        counters_missing=_masked(evidence.missing),
        interventions=outcome.interventions,
        attachments=evidence.attachments,
        started_at=when,
        device_ms=device_ms,
        extensions=_masked_texts(outcome.extensions),
        ran=outcome.ran,
        attempts=origin.attempts,
        node=origin.node,
    )

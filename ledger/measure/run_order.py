"""Measures an order: checks it against this machine, runs its cells one by one and writes each when it is done.

Nothing is timed before the whole order has been checked. Cells are profiled some at a time, each before it is timed. A
cell that fails, is interrupted or cannot be profiled does not affect the others; the same call resumes an interrupted
run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from pathlib import Path as FilePath

from pydantic import ValidationError

from ledger.analysis.reconcile import IDLE_LAUNCH
from ledger.analysis.refusals import STOPPED
from ledger.canonical import encode
from ledger.errors import InputError, LedgerError
from ledger.launches import watch_loads
from ledger.measure.apart import Limits, Processes, run_apart
from ledger.measure.order_checks import Job, Kernels, Key, checked_jobs, require_names
from ledger.measure.order_counters import CounterEvidence, CountersWanted, collect_counters
from ledger.measure.order_records import Origin, record_of
from ledger.measure.run_cell import Outcome, Stage, require_live, run_cell
from ledger.record_files import read_measurement, write_atomically
from ledger.records import Attempt, Digest, Order, OrderedCell

TOGETHER = 40
"""Cells that are profiled before the first of them is timed: one run of the profiler."""
TOGETHER_AT_FIRST = 8
"""As many with a budget, while the time of a cell is unknown: what is profiled and not timed is lost."""


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
    stages: seconds that all cells together spent in each stage.
    """

    measured: int
    failed: int
    skipped: int
    device_seconds: float
    interrupted: bool = False
    failures: tuple[tuple[str, str], ...] = ()  # cell, reason
    unloaded: tuple[tuple[str, str], ...] = ()  # cell, reason
    stages: Mapping[str, float] = field(default_factory=dict)

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
    budget_s: float | None = None,
    node: str | None = None,
    attempts: tuple[Attempt, ...] = (),
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> RunSummary:
    """Measure the cells of an order that are not yet complete in `out`, and write each there.

    counters: "auto" takes the table's metrics where ncu can, "full" every section and the report, "off" none.
    full_cells, only: names of cells, as CELL or SEAL#CELL. limits: of each callable, which has a process of its own.
    budget_s: after it no cell is begun, as if interrupted.
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
    processes = Processes(order, folder=out, limits=limits or Limits())
    run = _Run(origin, out, len(chosen), on_progress, started, summary, processes)
    evidence: Mapping[Key, CounterEvidence] = {}
    empty: EmptyLaunches | None = None
    try:
        for number, job in enumerate(pending):
            run.require_time(budget_s)
            if job.key not in evidence:
                run.start_ahead(pending[number:])
                evidence = collect_counters(
                    pending[number : number + run.group_size(number, budget_s)], out=out, wanted=counters,
                    full_cells=full_cells, on_cell=lambda job: run.report(job, "profiling"),
                )  # fmt: skip
                with processes.held():
                    empty = empty or _empty_launches(pending)
            run.measure(_Turn(job, evidence[job.key], empty if job.on_gpu else None), pending[number + 1 :])
            if job.on_gpu:
                require_live(f"cell {job.ordered.cell}", "the measured cells are kept: run the same command again")
    except KeyboardInterrupt:
        run.summary = replace(run.summary, interrupted=True)
    finally:
        processes.close()
    return replace(run.summary, device_seconds=time.monotonic() - run.started, stages=run.stages)


@dataclass(frozen=True)
class _Turn:
    """Hold a cell with its counters. empty: times of empty launches, None on a CPU."""

    job: Job
    evidence: CounterEvidence
    empty: EmptyLaunches | None

    @property
    def launch_ps(self) -> int | None:
        return self.empty.node_ps if self.empty else None

    @property
    def vary(self) -> bool:
        """Tell whether interventions stand for counters."""
        return self.evidence.counters is None


@dataclass
class _Run:
    """Measure cells one by one, write each and count the outcomes."""

    origin: Origin
    out: FilePath
    total: int
    on_progress: Callable[[Progress], None]
    started: float
    summary: RunSummary
    processes: Processes
    stages: dict[str, float] = field(default_factory=dict)
    stage: tuple[Stage, float] | None = None  # and when it began

    def require_time(self, budget_s: float | None) -> None:
        """Check that another cell may begin. Raises: KeyboardInterrupt."""
        if budget_s is not None and time.monotonic() - self.started >= budget_s:
            raise KeyboardInterrupt

    def group_size(self, begun: int, budget_s: float | None) -> int:
        """Return how many cells to profile together: with a budget, about as many as it lasts for.

        begun: the cells that this run has begun; their mean time, with their share of the profiler's start, estimates
        that of the next.
        """
        if budget_s is None:
            return TOGETHER
        if not begun:
            return TOGETHER_AT_FIRST
        elapsed_s = time.monotonic() - self.started
        return max(1, min(TOGETHER, int(begun * (budget_s / elapsed_s - 1))))

    def report(self, job: Job, stage: Stage) -> None:
        """Report the stage of a cell, and count the time of the one that ends."""
        now = time.monotonic()
        if self.stage is not None:
            last, began = self.stage
            self.stages[last] = self.stages.get(last, 0.0) + now - began
        self.stage = None if stage == "done" else (stage, now)
        done = self.summary.skipped + self.summary.measured + self.summary.failed
        self.on_progress(Progress(job.ordered.cell, stage, done, self.total, now - self.started))

    def start_ahead(self, jobs: Sequence[Job]) -> None:
        """Start the processes of the next cells that have one, until a cell that is timed on the processors."""
        self.processes.start_ahead(job for job in takewhile(lambda job: job.on_gpu, jobs) if job.apart)

    def measure(self, turn: _Turn, following: Sequence[Job]) -> None:
        """Run one cell and write its record. following: the next cells."""
        job, evidence, empty = turn.job, turn.evidence, turn.empty
        started, when = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            outcome = self._outcome(turn, following)
        # A callable that cannot be loaded here has no record, and keeps no other cell from its own.
        except InputError as error:
            unloaded = (*self.summary.unloaded, (job.ordered.cell, str(error)))
            self.summary = replace(self.summary, unloaded=unloaded)
            return
        if empty:
            outcome = replace(outcome, extensions={**outcome.extensions, IDLE_LAUNCH: empty.idle_ps})
        device_ms = round(1e3 * (time.monotonic() - started)) + evidence.device_ms
        made = partial(record_of, job, evidence, origin=self.origin, when=when, device_ms=device_ms)
        try:
            data = encode(made(outcome))
        # The process of a callable may have written parts that do not fit each other.
        except (ValidationError, LedgerError) as error:
            if not job.apart:
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

    def _outcome(self, turn: _Turn, following: Sequence[Job]) -> Outcome:
        job, launch_ps, vary = turn.job, turn.launch_ps, turn.vary
        with ExitStack() as stack:

            def on_stage(stage: Stage) -> None:
                # From now on the time includes the host's.
                if stage == "timing on a stream":
                    stack.enter_context(self.processes.held())
                self.report(job, stage)

            process = stack.enter_context(self.processes.of(job)) if job.apart else None
            # A timing on the processors has them to itself.
            self.start_ahead(following if job.on_gpu else ())
            if process is None:
                return run_cell(
                    job.ordered, job.file.kernel, facts=job.facts, launch_ps=launch_ps, vary=vary, on_stage=on_stage
                )
            self.report(job, "starting")
            return run_apart(process, launch_ps=launch_ps, vary=vary, on_stage=on_stage)


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
    if not any(job.on_gpu for job in jobs):
        return None
    from ledger.measure.cuda_graphs import empty_node_ps
    from ledger.measure.launch_contexts import idle_launch_ps

    return EmptyLaunches(empty_node_ps(), idle_launch_ps())

"""Measures an order: checks it against this machine, runs its cells one by one and writes each as soon as it is done.

Nothing is timed before the whole order has been checked. A cell that fails, is interrupted or cannot be profiled
loses no other cell; the same call resumes where the last one stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import Literal

from ledger import __version__
from ledger.canonical import encode, object_id, record_id
from ledger.device.facts import facts_for, has_cuda, require_profile
from ledger.device.ncu import ProfileRequest, profile
from ledger.errors import InputError, LedgerError, MachineError
from ledger.kernel_files import KernelFile
from ledger.launches import watch_loads
from ledger.measure.inputs import torch_dtype
from ledger.measure.run_cell import Outcome, Stage, device_of, run_cell
from ledger.measure.timer import parameters_of
from ledger.record_files import read_measurement, write_atomically
from ledger.records import (
    MEASUREMENT_SCHEMA_V2,
    Attachment,
    Counters,
    DeviceFactsV2,
    Digest,
    MeasurementV2,
    Order,
    OrderedCell,
    Tool,
    is_gpu,
)
from ledger.sources.platform import contradicted_pins

CountersWanted = Literal["auto", "off", "full"]
Kernels = Callable[[Digest], KernelFile]
Key = tuple[Digest, str, int]


@dataclass(frozen=True)
class Progress:
    """Tell how far an order is. Units: seconds since it began."""

    cell: str
    stage: Stage
    done: int
    total: int
    elapsed_s: float


@dataclass(frozen=True)
class RunSummary:
    """Count what a run did: cells measured, failed, and skipped because they were complete. Units: seconds."""

    measured: int
    failed: int
    skipped: int
    device_seconds: float
    interrupted: bool = False


@dataclass(frozen=True)
class Job:
    """Hold a cell of an order with the kernel file and the device that it runs on."""

    ordered: OrderedCell
    file: KernelFile
    facts: DeviceFactsV2

    @property
    def key(self) -> Key:
        """Return what tells this cell's run from every other of an order."""
        return (self.ordered.seal, self.ordered.cell, self.ordered.run)

    @property
    def names(self) -> frozenset[str]:
        """Return what a user may call this cell."""
        return frozenset({self.ordered.cell, f"{self.ordered.seal}#{self.ordered.cell}"})


@dataclass(frozen=True)
class ProfilerEvidence:
    """Hold what the profiler gave for a cell: counters, or the reason why there are none, and files."""

    counters: Counters | None
    missing: str | None
    attachments: tuple[Attachment, ...] = ()
    device_ms: int = 0


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
    on_progress: Callable[[Progress], None] = lambda _progress: None,
) -> RunSummary:
    """Measure the cells of an order that are not yet complete in `out`, and write each there.

    counters: "auto" takes the table's metrics where ncu can, "full" every section and the report, "off" none.
    full_cells, only: names of cells, as CELL or SEAL#CELL.
    Raises: MachineError, before any timing, when this device is not the order's; InputError when a kernel, a profile
    or the package is not the order's, or a name in `only` or `full_cells` is no cell of it.
    """
    started = time.monotonic()
    watch_loads()
    jobs = _checked(order, kernels)
    for wanted in (full_cells, only or frozenset()):
        _require_names(wanted, jobs)
    chosen = [job for job in jobs if only is None or job.names & only]
    pending = [job for job in chosen if not _complete(out, job.ordered)]
    summary = RunSummary(measured=0, failed=0, skipped=len(chosen) - len(pending), device_seconds=0.0)

    def tell(job: Job, stage: Stage) -> None:
        done = summary.skipped + summary.measured + summary.failed
        on_progress(Progress(job.ordered.cell, stage, done, len(chosen), time.monotonic() - started))

    try:
        evidence = _profile(pending, out=out, counters=counters, full_cells=full_cells, tell=tell)
        launch_ps = _launch_ps(pending)
        for job in pending:
            begun = time.monotonic()
            when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            found = evidence[job.key]
            outcome = run_cell(
                job.ordered,
                job.file.kernel,
                facts=job.facts,
                launch_ps=launch_ps if device_of(job.ordered) == "cuda" else None,
                vary=found.counters is None,
                on_stage=lambda stage, job=job: tell(job, stage),  # type: ignore[misc]
            )
            took_ms = round(1e3 * (time.monotonic() - begun)) + found.device_ms
            record = _record(job, outcome, found, order_sha256=order_sha256, when=when, device_ms=took_ms)
            write_atomically(result_path(out, job.ordered), encode(record))
            summary = replace(
                summary,
                measured=summary.measured + (outcome.failure is None),
                failed=summary.failed + (outcome.failure is not None),
            )
            tell(job, "done")
            _require_live(job)
    except KeyboardInterrupt:
        summary = replace(summary, interrupted=True)
    return replace(summary, device_seconds=time.monotonic() - started)


def _require_names(wanted: frozenset[str], jobs: Sequence[Job]) -> None:
    known = frozenset[str]().union(*(job.names for job in jobs))
    if strange := sorted(wanted - known):
        raise InputError(f"cell {strange[0]!r} is not in the order; expected one of: {', '.join(sorted(known))[:600]}")


def _checked(order: Order, kernels: Kernels) -> list[Job]:
    """Check the whole order against this package and this machine."""
    if order.tool.version != __version__:
        raise InputError(
            f"order was made by ledger {order.tool.version}; this is {__version__}: install the version of the order"
        )
    for digest, hardware in order.hardware.items():
        if record_id(type(hardware), encode(hardware)) != digest:
            raise InputError(f"profile {hardware.name} of the order is not the one that {digest[:10]} names")
    return [_checked_cell(cell, order, kernels) for cell in order.cells]


def _checked_cell(cell: OrderedCell, order: Order, kernels: Kernels) -> Job:
    case = cell.case
    if cell.hardware_sha256 not in order.hardware or cell.kernel_sha256 not in order.kernels:
        raise InputError(f"cell {cell.cell}: its profile or its kernel is not in the order; expected both")
    hardware = order.hardware[cell.hardware_sha256]
    facts = facts_for(hardware)
    require_profile(hardware, facts)
    for words in contradicted_pins(cell.pins, facts.software):
        raise MachineError(f"cell {cell.cell}: {words}: install the pinned version")
    file = kernels(cell.kernel_sha256)
    if file.sha256 != cell.kernel_sha256:
        raise InputError(
            f"kernel {case.kernel}: digest is {file.sha256[:10]}; expected {cell.kernel_sha256[:10]}, which was sealed"
        )
    kernel = file.kernel
    if kernel.name != case.kernel:
        raise InputError(f"cell {cell.cell}: its sources are of kernel {kernel.name}; expected {case.kernel}")
    kernel.check_shape(case.shape)
    if case.implementation not in kernel.implementations:
        have = ", ".join(kernel.implementations)
        raise InputError(f"cell {cell.cell}: implementation is {case.implementation}; expected one of: {have}")
    if case.dtype not in kernel.tolerances or kernel.work(case.shape, case.dtype) != cell.work:
        raise InputError(f"cell {cell.cell}: dtype or work is not what kernel {case.kernel} says; expected its own")
    if (device_of(cell) == "cuda") != is_gpu(hardware.target):
        raise InputError(f"cell {cell.cell}: protocol {cell.protocol.name} does not fit {hardware.target}")
    torch_dtype(case.dtype)
    parameters_of(cell.protocol)
    return Job(cell, file, facts)


def _complete(out: FilePath, cell: OrderedCell) -> bool:
    """Tell whether a complete measurement of this very run of this cell is already there."""
    path = result_path(out, cell)
    if not path.is_file():
        return False
    try:
        found = read_measurement(path)
    except LedgerError:
        return False
    return (found.seal, found.cell, found.run, found.anchor) == (cell.seal, cell.cell, cell.run, cell.anchor)


def _launch_ps(jobs: Sequence[Job]) -> int | None:
    if not any(device_of(job.ordered) == "cuda" for job in jobs):
        return None
    from ledger.measure.cuda_graphs import empty_node_ps

    return empty_node_ps()


def _require_live(job: Job) -> None:
    """Check that the device still works; after a fault that lost the context no later cell could be trusted."""
    if device_of(job.ordered) == "cpu" or not has_cuda():
        return
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise MachineError(
            f"device stopped answering after cell {job.ordered.cell} ({str(error).splitlines()[0]}); what was measured "
            "is kept: run the same command again for the rest"
        ) from error


def _profile(
    jobs: Sequence[Job],
    *,
    out: FilePath,
    counters: CountersWanted,
    full_cells: frozenset[str],
    tell: Callable[[Job, Stage], None],
) -> Mapping[Key, ProfilerEvidence]:
    """Return the profiler's evidence of every cell; whatever goes wrong there is a reason, never an exception."""
    found = {job.key: ProfilerEvidence(None, "no hardware counters: the cell runs on a CPU") for job in jobs}
    gpu = [job for job in jobs if device_of(job.ordered) == "cuda"]
    if counters == "off":
        return {**found, **{job.key: ProfilerEvidence(None, "counters were not asked for") for job in gpu}}
    full = [job for job in gpu if counters == "full" or job.names & full_cells]
    # One profiler run serves all cells of which only the table is wanted; a full report is one file a cell.
    groups = [([job], True) for job in full] + [([job for job in gpu if job not in full], False)]
    for group, whole in groups:
        if not group:
            continue
        for job in group:
            tell(job, "profiling")
        begun = time.monotonic()
        profiled = profile([ProfileRequest(job.ordered, job.file) for job in group], full=whole)
        share_ms = round(1e3 * (time.monotonic() - begun) / len(group))
        for job, one in zip(group, profiled, strict=True):
            kept = _keep_report(out, job.ordered, one.report)
            found[job.key] = ProfilerEvidence(one.counters, one.missing, kept, share_ms)
    return found


def _keep_report(out: FilePath, cell: OrderedCell, report: bytes | None) -> tuple[Attachment, ...]:
    if report is None:
        return ()
    digest = object_id(report)
    write_atomically(out / "objects" / digest, report)
    return (Attachment(name=f"{cell.cell}.ncu-rep", sha256=digest, bytes=len(report)),)


def _record(
    job: Job, outcome: Outcome, evidence: ProfilerEvidence, *, order_sha256: Digest | None, when: str, device_ms: int
) -> MeasurementV2:
    cell = job.ordered
    return MeasurementV2(
        schema=MEASUREMENT_SCHEMA_V2,
        tool=Tool(name="ledger", version=__version__),
        seal=cell.seal,
        cell=cell.cell,
        run=cell.run,
        anchor=cell.anchor,
        order_sha256=order_sha256,
        case=cell.case,
        kernel_sha256=cell.kernel_sha256,
        hardware_sha256=cell.hardware_sha256,
        protocol=cell.protocol,
        device=job.facts,
        status="measured" if outcome.failure is None else "failed",
        failure=outcome.failure,
        correctness=outcome.correctness,
        samples=outcome.samples,
        timing=outcome.timing,
        before=outcome.before,
        after=outcome.after,
        counters=evidence.counters,
        counters_missing=evidence.missing,
        interventions=outcome.interventions,
        attachments=evidence.attachments,
        started_at=when,
        device_ms=device_ms,
        extensions=outcome.extensions,
        ran=outcome.ran,
        attempts=(),
        node=None,
    )

"""Runs one cell: inputs from its seal, the comparison with float64, the timing, the samples. Imports torch when called.

Nothing is written here and no profiler runs; measure does both.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from ledger.device.facts import cpu_cores, import_torch
from ledger.errors import explained
from ledger.kernel import Kernel
from ledger.launches import recording
from ledger.measure.correctness import compare, explain_failure, sample
from ledger.measure.cuda_graphs import time_graph
from ledger.measure.inputs import InputSet, bytes_per_set, input_sets
from ledger.measure.intervene import intervene
from ledger.measure.timer import CONFIDENCE_PPM, Timed, parameters_of, set_count, time_cpu
from ledger.philox_inputs import derive_key
from ledger.records import Binary, Correctness, DeviceFacts, DeviceState, OrderedCell, Samples, TimingV2

Stage = Literal["inputs", "checking", "timing", "varying", "profiling", "done"]


@dataclass(frozen=True)
class Outcome:
    """Hold what running one cell gave; `failure` says why there is no timing."""

    failure: str | None
    correctness: Correctness | None = None
    samples: Samples | None = None
    timing: TimingV2 | None = None
    before: DeviceState | None = None
    after: DeviceState | None = None
    extensions: dict[str, Any] = field(default_factory=dict)
    interventions: dict[str, int] = field(default_factory=dict)
    ran: tuple[Binary, ...] = ()


def device_of(cell: OrderedCell) -> Literal["cuda", "cpu"]:
    """Return where torch runs a cell, as its timing protocol says."""
    return "cpu" if cell.protocol.name.startswith("cold-cpu/") else "cuda"


def sets_of(cell: OrderedCell, kernel: Kernel, *, count: int) -> Iterator[InputSet]:
    """Yield the first `count` input sets of a cell, as its seal binds them."""
    return input_sets(
        kernel.operation,
        cell.case.shape,
        cell.case.dtype,
        seal=cell.seal,
        cell=cell.cell,
        run=cell.run,
        anchor=cell.anchor,
        count=count,
        device=device_of(cell),
    )


@contextmanager
def threads_set(threads: int | None) -> Iterator[None]:
    """Let torch use the sealed number of CPU threads, or all processors where none is sealed, while inside."""
    torch = import_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(threads or cpu_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_cell(
    cell: OrderedCell,
    kernel: Kernel,
    *,
    facts: DeviceFacts,
    launch_ps: int | None,
    vary: bool,
    on_stage: Callable[[Stage], None],
) -> Outcome:
    """Return what a cell gives; a kernel that raises or is wrong gives a failure and is never timed.

    vary: also make the interventions of grade B, once the timing is over.
    """
    try:
        with threads_set(cell.case.threads):
            return _run(cell, kernel, facts=facts, launch_ps=launch_ps, vary=vary, on_stage=on_stage)
    # A kernel file may raise anything; what it raises is the record of its failure.
    except Exception as error:  # noqa: BLE001
        return Outcome(failure=explained(error, 4000))
    finally:
        release(device_of(cell))


def release(device: str) -> None:
    """Give freed tensors' memory back to the device; one that was lost has none to give, as its next use will say."""
    gc.collect()
    if device == "cuda":
        with suppress(RuntimeError):
            import_torch().cuda.empty_cache()


def _run(
    cell: OrderedCell,
    kernel: Kernel,
    *,
    facts: DeviceFacts,
    launch_ps: int | None,
    vary: bool,
    on_stage: Callable[[Stage], None],
) -> Outcome:
    case, parameters, device = cell.case, parameters_of(cell.protocol), device_of(cell)
    on_stage("inputs")
    size = bytes_per_set(kernel.operation, case.shape, case.dtype)
    sets = list(sets_of(cell, kernel, count=set_count(size, facts.l2_bytes, parameters)))
    prepare = kernel.implementations[case.implementation]
    torch = import_torch()
    name = f"{kernel.operation.name} in float64 by torch {torch.__version__} on {device}"
    tolerance = kernel.tolerances[case.dtype]
    first = sets[0]
    with recording() as ran:
        launches = [prepare(one.inputs, one.out, case.config) for one in sets]
        on_stage("checking")
        reference = kernel.reference(first.inputs)
        launches[0]()
    correctness = compare(first.out, reference, tolerance, name=name)
    if not correctness.passed:
        return Outcome(failure=explain_failure(correctness), correctness=correctness, ran=tuple(ran))

    on_stage("timing")
    first.out.fill_(float("nan"))
    timed = time_cpu(launches, parameters) if device == "cpu" else time_graph(launches, parameters)
    again = compare(first.out, reference, tolerance, name=name)
    if not again.passed:
        calls = len(timed.rounds_ps) * timed.calls_per_round
        failure = f"right on its first call, after {calls} calls {explain_failure(again)}"
        return Outcome(failure=failure, ran=tuple(ran))
    key = derive_key(seal=cell.seal, cell=cell.cell, run=cell.run, anchor=cell.anchor)
    written = kernel.operation.output_dtype(case.dtype)
    samples = sample(first.out, dtype=written, key=key, count=parameters.sample_elements)
    extensions: dict[str, Any] = {}
    interventions: dict[str, int] = {}
    if vary:
        on_stage("varying")
        try:
            interventions = intervene(
                cell,
                kernel,
                launches,
                call_ps=timed.interval.median,
                target=facts.target,
                l2_bytes=facts.l2_bytes,
                parameters=parameters,
                device=device,
            )
        # Whatever goes wrong at another shape must not lose what was measured at the sealed one.
        except Exception as error:  # noqa: BLE001
            extensions["interventions_missing/1"] = explained(error, 400)
    return Outcome(
        failure=None,
        correctness=correctness,
        samples=samples,
        timing=_timing(timed, sets, launch_ps=launch_ps),
        before=timed.before,
        after=timed.after,
        extensions=extensions,
        interventions=interventions,
        ran=tuple(ran),
    )


def _timing(timed: Timed, sets: Sequence[InputSet], *, launch_ps: int | None) -> TimingV2:
    return TimingV2(
        rounds_ps=timed.rounds_ps,
        calls_per_round=timed.calls_per_round,
        input_sets=len(sets),
        bytes_per_set=sets[0].bytes,
        median_ps=timed.interval.median,
        low_ps=timed.interval.low,
        high_ps=timed.interval.high,
        confidence_ppm=CONFIDENCE_PPM,
        launch_ps=launch_ps,
        sm_clock_mhz=tuple(timed.clocks_mhz),
    )

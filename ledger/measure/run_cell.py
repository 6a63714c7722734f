"""Runs one cell: inputs from its seal, comparison with float64, timing, samples. Imports torch, only when called.

Writes nothing and runs no profiler: run_order does both.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ledger.analysis.cpu_noise import CPU_LOAD
from ledger.analysis.refusals import REFUSED
from ledger.analysis.steady_timing import STEADY
from ledger.analysis.stream_timing import STREAM
from ledger.callables.subject import is_callable
from ledger.device.cpu_load import cpu_times, others_percent
from ledger.device.facts import cpu_cores, has_cuda, import_torch
from ledger.errors import MachineError, SubjectRefused, explained
from ledger.kernel import Kernel, Launch
from ledger.launches import recording
from ledger.measure.correctness import compare, explain_failure, sample
from ledger.measure.cuda_graphs import own_stream, time_graph, time_graph_steadily, time_steadily
from ledger.measure.guard import Guard
from ledger.measure.inputs import InputSet, bytes_per_set, input_sets
from ledger.measure.intervene import intervene
from ledger.measure.result_check import ResultCheck, compiled_once
from ledger.measure.stream_rounds import StreamRounds, capture_problem, empty_stream_ps
from ledger.measure.timer import (
    CONFIDENCE_PPM,
    Parameters,
    SteadyParameters,
    Timed,
    sealed_parameters_of,
    set_count,
    time_cpu,
)
from ledger.philox_inputs import derive_key
from ledger.records import Binary, Correctness, DeviceFacts, DeviceState, OrderedCell, Samples, TimingV2

Stage = Literal["starting", "inputs", "checking", "timing", "timing on a stream", "varying", "profiling", "done"]


@dataclass(frozen=True)
class Outcome:
    """Hold the outcome of one cell; `failure` is the reason why there is no timing."""

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
    """Return the device type of a cell, by its timing protocol."""
    return "cpu" if cell.protocol.name.startswith("cold-cpu/") else "cuda"


def sets_of(cell: OrderedCell, kernel: Kernel, *, count: int, start: int = 0) -> Iterator[InputSet]:
    """Yield `count` input sets of a cell, generated from its seal. start: number of the first."""
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
        start=start,
    )


@contextmanager
def threads_set(threads: int | None) -> Iterator[None]:
    """Set torch to the sealed number of CPU threads, or to all processors where none is sealed, inside the block."""
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
    guard: Guard | None = None,
) -> Outcome:
    """Return the outcome of a cell; a kernel that raises or is wrong gives a failure and is never timed.

    vary: also make the interventions of grade B, after the timing. guard: made before a callable was imported.
    """
    try:
        with threads_set(cell.case.threads), _stream_of(cell):
            if guard is not None:
                guard.note_settings()
            made = _run(cell, kernel, facts=facts, launch_ps=launch_ps, vary=vary, on_stage=on_stage, guard=guard)
            if guard is not None:
                guard.check("while it was measured")
            return made
    except SubjectRefused as error:
        return Outcome(failure=REFUSED + str(error))
    # A kernel file may raise any error; the error is the recorded failure.
    except Exception as error:  # noqa: BLE001
        return Outcome(failure=explained(error, 4000))
    finally:
        # A callable's process ends with its cell.
        if guard is None:
            release(device_of(cell))


def _stream_of(cell: OrderedCell) -> AbstractContextManager[None]:
    on_gpu = device_of(cell) == "cuda" and is_callable(cell.case.kernel)
    return own_stream() if on_gpu else nullcontext()


def release(device: str) -> None:
    """Return freed memory to the device. A lost context is ignored here: its next use raises."""
    gc.collect()
    if device == "cuda":
        with suppress(RuntimeError):
            import_torch().cuda.empty_cache()


def require_live(after: str, remedy: str) -> None:
    """Check that the GPU still works, which was used last for `after`. Raises: MachineError.

    After a fault that destroyed the context nothing can be trusted that this process does on it.
    """
    if not has_cuda():
        return
    try:
        import_torch().cuda.synchronize()
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        raise MachineError(f"device stopped answering after {after} ({said}); {remedy}") from error


def _run(
    cell: OrderedCell,
    kernel: Kernel,
    *,
    facts: DeviceFacts,
    launch_ps: int | None,
    vary: bool,
    on_stage: Callable[[Stage], None],
    guard: Guard | None,
) -> Outcome:
    parameters, device = sealed_parameters_of(cell.protocol), device_of(cell)
    on_stage("inputs")
    size = bytes_per_set(kernel.operation, cell.case.shape, cell.case.dtype)
    sets = list(sets_of(cell, kernel, count=set_count(size, facts.l2_bytes, parameters)))
    prepare = kernel.implementations[cell.case.implementation]
    with recording() as ran:
        launches = [prepare(one.inputs, one.out, cell.case.config) for one in sets]
        on_stage("checking")
        check = _check_of(cell, kernel, sets, launches, device)
        launches[0]()
    if guard is not None:
        guard.check("by its first call")
    correctness = check.compare()
    if not correctness.passed:
        return Outcome(failure=explain_failure(correctness), correctness=correctness, ran=tuple(ran))

    on_stage("timing")
    check.poison()
    with compiled_once(launches):
        uncaptured = capture_problem(launches) if is_callable(cell.case.kernel) and device == "cuda" else None
        if uncaptured is not None:
            on_stage("timing on a stream")
        load = _Load()
        timed = _timed(launches, parameters, device, on_stream=uncaptured is not None)
        noise = load.document() if device == "cpu" else {} if uncaptured is None else {STREAM: {"reason": uncaptured}}
    if guard is not None:
        guard.check("while it was timed")
    again = check.again(timed)
    timed = replace(timed, rounds=None)
    if not again.passed:
        calls = len(timed.rounds_ps) * timed.calls_per_round
        failure = f"right on its first call, after {calls} calls {explain_failure(again)}"
        return Outcome(failure=failure, ran=tuple(ran))
    outcome = Outcome(
        failure=None,
        correctness=correctness,
        samples=check.samples(parameters.sample_elements),
        timing=_timing(timed, len(sets), size, launch_ps=launch_ps if uncaptured is None else empty_stream_ps()),
        before=timed.before,
        after=timed.after,
        extensions=noise if timed.steadiness is None else {**noise, STEADY: dict(timed.steadiness)},
        ran=tuple(ran),
    )
    if not vary:
        return outcome
    on_stage("varying")
    return _varied(outcome, cell, kernel, launches, facts=facts, call_ps=timed.interval.median)


class _Load:
    """Watch how much of the processors' time other processes use."""

    def __init__(self) -> None:
        self.before, self.started = cpu_times(), time.monotonic()

    def document(self) -> dict[str, Any]:
        """Return the extension that records the share, empty where the kernel does not tell."""
        share = others_percent(self.before, cpu_times())
        window_ms = round(1e3 * (time.monotonic() - self.started))
        return {} if share is None else {CPU_LOAD: {"others_ppm": round(1e4 * share), "window_ms": window_ms}}


def _timed(
    launches: Sequence[Launch], parameters: Parameters | SteadyParameters, device: str, *, on_stream: bool
) -> Timed:
    if on_stream and isinstance(parameters, SteadyParameters):
        return time_steadily(StreamRounds(launches), parameters)
    if isinstance(parameters, SteadyParameters):
        return time_graph_steadily(launches, parameters)
    return time_cpu(launches, parameters) if device == "cpu" else time_graph(launches, parameters)


def _varied(
    outcome: Outcome,
    cell: OrderedCell,
    kernel: Kernel,
    launches: Sequence[Launch],
    *,
    facts: DeviceFacts,
    call_ps: int,
) -> Outcome:
    """Return an outcome with its interventions, or with the reason why there are none."""
    try:
        varied = intervene(
            cell,
            kernel,
            launches,
            call_ps=call_ps,
            target=facts.target,
            l2_bytes=facts.l2_bytes,
            parameters=sealed_parameters_of(cell.protocol),
            device=device_of(cell),
            on_stream=STREAM in outcome.extensions,
        )
    # A failure at another shape must not lose the measurement of the sealed one.
    except Exception as error:  # noqa: BLE001
        return replace(outcome, extensions={**outcome.extensions, "interventions_missing/1": explained(error, 400)})
    return replace(outcome, interventions=varied)


def _check_of(
    cell: OrderedCell, kernel: Kernel, sets: Sequence[InputSet], launches: Sequence[Launch], device: str
) -> _Check | ResultCheck:
    if not is_callable(cell.case.kernel):
        return _Check(cell, kernel, sets[0], device)

    def fresh(start: int, count: int) -> Iterator[InputSet]:
        return sets_of(cell, kernel, count=count, start=start)

    return ResultCheck(cell, kernel, sets, launches, fresh)


class _Check:
    """Compare the output of a cell's first input set with the float64 reference."""

    def __init__(self, cell: OrderedCell, kernel: Kernel, first: InputSet, device: str) -> None:
        """Compute the reference."""
        self.cell, self.operation, self.first = cell, kernel.operation, first
        self.tolerance = kernel.tolerances[cell.case.dtype]
        self.reference_name = f"{self.operation.name} in float64 by torch {import_torch().__version__} on {device}"
        self.reference = kernel.reference(first.inputs)

    def compare(self) -> Correctness:
        """Return how far the output is from the reference."""
        return compare(self.first.out, self.reference, self.tolerance, name=self.reference_name)

    def again(self, _timed: Timed) -> Correctness:
        """Return the same after the timing."""
        return self.compare()

    def poison(self) -> None:
        """Fill the output with NaN, so that a call that writes nothing is noticed."""
        self.first.out.fill_(float("nan"))

    def samples(self, count: int) -> Samples:
        """Return output elements at positions that the seal determines."""
        cell = self.cell
        key = derive_key(seal=cell.seal, cell=cell.cell, run=cell.run, anchor=cell.anchor)
        return sample(self.first.out, dtype=self.operation.output_dtype(cell.case.dtype), key=key, count=count)


def _timing(timed: Timed, count: int, size: int, *, launch_ps: int | None) -> TimingV2:
    return TimingV2(
        rounds_ps=timed.rounds_ps,
        calls_per_round=timed.calls_per_round,
        input_sets=count,
        bytes_per_set=size,
        median_ps=timed.interval.median,
        low_ps=timed.interval.low,
        high_ps=timed.interval.high,
        confidence_ppm=CONFIDENCE_PPM,
        launch_ps=launch_ps,
        sm_clock_mhz=timed.clocks_mhz,
    )

"""Times variants of a cell that need no privilege: cache, number of calls, shape. Imports torch, only when called.

The variants are interleaved round by round, so that a drift of the clock affects all of them alike.
analysis.interventions reads the results.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from ledger.analysis.interventions import Half, InterventionReadings, stored_of
from ledger.callables.calls import Call
from ledger.kernel import GPU_IMPLEMENTATIONS, Kernel, Launch
from ledger.measure.correctness import compare
from ledger.measure.cuda_graphs import GraphRounds
from ledger.measure.inputs import InputSet, bytes_per_set, input_sets
from ledger.measure.result_check import compare_results
from ledger.measure.stream_rounds import StreamRounds
from ledger.measure.timer import CpuRounds, Parameters, SteadyParameters, median_interval, set_count
from ledger.records import OrderedCell, Work

_BUDGET_S = {"cuda": 0.5, "cpu": 2.5}
_ROUNDS = {"cuda": 12, "cpu": 7}
_LEAST_ROUNDS = 3
Rounds = GraphRounds | StreamRounds | CpuRounds
Device = Literal["cuda", "cpu"]


def halved(kernel: Kernel, shape: Mapping[str, int]) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the shapes with one axis of the output halved: such work runs in parallel, not in sequence."""
    whole = kernel.operation.output_dims(shape)
    for axis, size in shape.items():
        half = {**shape, axis: size // 2}
        if size % 2 == 0 and kernel.operation.output_dims(half) != whole:
            yield axis, half


def intervene(
    cell: OrderedCell,
    kernel: Kernel,
    launches: Sequence[Launch],
    *,
    call_ps: int,
    target: str,
    l2_bytes: int | None,
    parameters: Parameters | SteadyParameters,
    device: Device,
    on_stream: bool = False,
) -> dict[str, int]:
    """Return the readings of the interventions, as a record stores them, without those that exceed the time budget.

    launches: those that were timed, one an input set. call_ps: what was timed. on_stream: a graph cannot capture them.
    """
    budget_s, started = _BUDGET_S[device], time.monotonic()

    def affordable(sets: int) -> bool:
        # Preparing a variant runs its rotation a few times; its rounds follow.
        cost_s = (4 * sets + 2 * _LEAST_ROUNDS) * call_ps * 1e-12
        return time.monotonic() - started + cost_s < budget_s

    how: type[Rounds] = CpuRounds if device == "cpu" else StreamRounds if on_stream else GraphRounds
    found: dict[str, Rounds] = {}
    works: dict[str, Work] = {}
    if affordable(1):
        found["warm"] = _rounds(how, launches[:1])
    for axis, shape in halved(kernel, cell.case.shape):
        # A kernel may raise any error at a shape that it does not offer; the other variants are kept.
        with suppress(Exception):
            work = kernel.work(shape, cell.case.dtype)
            size = bytes_per_set(kernel.operation, shape, cell.case.dtype)
            count = set_count(size, l2_bytes, parameters)
            if affordable(count) and (more := _at(cell, kernel, shape, count, target, device)):
                found[axis], works[axis] = _rounds(how, more), work
    for name, stretch in (("cold", 1), ("double", 2)):
        if affordable(len(launches) * stretch):
            found[name] = _rounds(how, launches, stretch)
    medians = _interleave(found, most=_ROUNDS[device], until=started + budget_s)
    readings = InterventionReadings(
        cold_ps=medians.get("cold", call_ps),
        warm_ps=medians.get("warm"),
        double_ps=medians.get("double") if "cold" in medians else None,
        halves=tuple(Half(axis, medians[axis], work.flops, work.bytes) for axis, work in works.items()),
    )
    return stored_of(readings)


def _rounds(how: type[Rounds], launches: Sequence[Launch], stretch: int = 1) -> Rounds:
    rounds = how(launches, stretch=stretch)
    rounds.take(1)
    return rounds


def _at(
    cell: OrderedCell, kernel: Kernel, shape: Mapping[str, int], count: int, target: str, device: Device
) -> list[Launch] | None:
    """Return the launches of a cell at another shape with its own configuration, None where their result is wrong.

    Raises: whatever the kernel does at a shape that it does not offer.
    """
    case = cell.case
    # Only a GPU's implementation is launched with a configuration.
    if case.implementation in GPU_IMPLEMENTATIONS:
        kernel.check_config(case.config, shape, case.dtype, target)
    (first,) = input_sets(
        kernel.operation,
        shape,
        case.dtype,
        seal=cell.seal,
        cell=cell.cell,
        run=cell.run,
        anchor=cell.anchor,
        count=1,
        device=device,
    )
    # Other memory with the same values is as cold as other values, and much faster to fill.
    sets = [first, *(_copy(first) for _ in range(count - 1))]
    prepare = kernel.implementations[case.implementation]
    launches = [prepare(one.inputs, one.out, case.config) for one in sets]
    if isinstance(call := launches[0], Call):
        expected = kernel.reference(first.inputs)
        call()
        found = compare_results(call.results(), expected, kernel.tolerances[case.dtype], name="float64")
        return launches if found.passed else None
    launches[0]()
    right = compare(first.out, kernel.reference(first.inputs), kernel.tolerances[case.dtype], name="float64").passed
    return launches if right else None


def _copy(one: InputSet) -> InputSet:
    return InputSet({name: tensor.clone() for name, tensor in one.inputs.items()}, one.out.clone())


def _interleave(found: Mapping[str, Rounds], *, most: int, until: float) -> dict[str, int]:
    """Return the median of each variant's rounds, one of each in turn within the time budget."""
    samples: dict[str, list[int]] = {name: [] for name in found}
    for done in range(most):
        if done >= _LEAST_ROUNDS and time.monotonic() > until:
            break
        for name, rounds in found.items():
            samples[name] += rounds.take(1)
    return {name: median_interval(values).median for name, values in samples.items()}

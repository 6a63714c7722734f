"""Times two versions of one subject in turn on one device, on the same cold inputs. Imports torch, only when called.

compared_launches compares both with the float64 reference of the base first. Base, head and base again then run round
by round in changing order; a difference that exceeds the noise is timed once more, on new inputs and with everything
prepared anew, before it is called.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median_high
from typing import Any

from ledger.analysis.formatting import shape_text
from ledger.analysis.paired_ratio import Judged, folded, judge_rounds, logs_of, spread_of
from ledger.analysis.protocols import interleaved_protocol_for
from ledger.callables.calls import Call
from ledger.callables.subject import is_callable
from ledger.kernel import Launch
from ledger.measure.compared_launches import BothSides, SideFailed, SideName, Version, failures_of, prepare_both
from ledger.measure.comparison_effort import ON_CPU, ON_GPU, Effort
from ledger.measure.correctness import sample
from ledger.measure.cuda_graphs import GraphRounds, own_stream, replay_in_turn
from ledger.measure.inputs import InputSet, bytes_per_set, input_sets
from ledger.measure.result_check import as_list
from ledger.measure.run_cell import release, threads_set
from ledger.measure.stream_rounds import StreamRounds
from ledger.measure.timer import CpuRounds, parameters_of, set_count
from ledger.philox_inputs import derive_key
from ledger.records import Correctness, DeviceFacts, Samples

_ORDERS = tuple(itertools.permutations(range(3)))
_TOGETHER = 20
"""Rounds of each contestant that are taken before the intervals are looked at."""


@dataclass(frozen=True)
class Origin:
    """Say what the inputs are made from, as of a seal. samples: how many output elements of each side are kept."""

    seal: str
    cell: str
    run: int
    anchor: str | None = None
    samples: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """Return the key that inputs and sample positions are drawn with."""
        return derive_key(seal=self.seal, cell=self.cell, run=self.run, anchor=self.anchor)


@dataclass(frozen=True)
class SideResult:
    """Hold what was seen of the results of one side."""

    correctness: Correctness | None = None
    samples: Samples | None = None


@dataclass(frozen=True)
class Compared:
    """Hold the outcome of one case. Units: picoseconds a call, medians. runs: how many said the same.

    failure: why there is no ratio; side: whose failure it is. taken, sides, input_sets, bytes_per_set: what was seen
    of the last run, where it did not fail.
    """

    judged: Judged | None = None
    base_ps: int | None = None
    head_ps: int | None = None
    rounds: int = 0
    runs: int = 1
    failure: str | None = None
    side: SideName | None = None
    correctness: Correctness | None = None
    taken: Taken | None = None
    sides: tuple[SideResult, SideResult] = (SideResult(), SideResult())
    input_sets: int = 0
    bytes_per_set: int = 0


@dataclass
class Taken:
    """Hold the rounds of one run: picoseconds a call of base, head and base again. fold: as in Effort."""

    fold: int
    samples: tuple[list[int], list[int], list[int]] = field(default_factory=lambda: ([], [], []))

    def fastest(self, contestant: int) -> list[int]:
        """Return the fastest of every `fold` rounds in a row."""
        return folded(self.samples[contestant], self.fold)

    def logs(self, other: int) -> list[float]:
        """Return the logarithms of base ÷ another contestant."""
        return logs_of(self.samples[0], self.samples[other], self.fold)


def compare_case(
    base: Version, head: Version, *, facts: DeviceFacts, device: str, error: float, effort: Effort | None = None
) -> Compared:
    """Return how the time of head compares with that of base on one case.

    error: the chance that an equal case is called, of one run. A call that a second run does not repeat is withdrawn.
    """
    effort = effort or (ON_GPU if device == "cuda" else ON_CPU)
    case = head.case
    seal = hashlib.sha256(b"ledger/compare/1").hexdigest()
    origin = Origin(seal, f"{case.kernel} {shape_text(case.shape)} {case.dtype}", 0)
    found = compare_once(base, head, facts=facts, device=device, error=error, effort=effort, origin=origin)
    if found.judged is None or found.judged.call in ("same", "unclear"):
        return found
    again = compare_once(
        base, head, facts=facts, device=device, error=error, effort=effort, origin=replace(origin, run=1)
    )
    if again.judged is None:
        return again
    if again.judged.call != found.judged.call:
        return replace(again, judged=replace(again.judged, call="same"), runs=2)
    return replace(again, runs=2)


def compare_once(
    base: Version,
    head: Version,
    *,
    facts: DeviceFacts,
    device: str,
    error: float,
    effort: Effort,
    origin: Origin,
) -> Compared:
    """Return one run, everything prepared anew."""
    try:
        with threads_set(base.case.threads), _stream(base, device), _still(device):
            taken, sides, count = _timed(base, head, facts, device, error, effort, origin)
    except SideFailed as failed:
        return Compared(failure=f"{failed.kind}: {failed}", side=failed.side)
    finally:
        release(device)
    judged = judge_rounds(*taken.samples, fold=effort.fold, error=error, least=effort.least, most=effort.most)
    return Compared(
        judged=judged,
        base_ps=median_high(taken.fastest(0)),
        head_ps=median_high(taken.fastest(1)),
        rounds=len(taken.samples[0]),
        correctness=sides[1].correctness,
        taken=taken,
        sides=sides,
        input_sets=count,
        bytes_per_set=bytes_per_set(base.kernel.operation, base.case.shape, base.case.dtype),
    )


def _timed(
    base: Version, head: Version, facts: DeviceFacts, device: str, error: float, effort: Effort, origin: Origin
) -> tuple[Taken, tuple[SideResult, SideResult], int]:
    """Return the rounds, what was seen of both sides, and over how many input sets each rotated, copies included."""
    sets = _sets(base, facts, device, origin)
    both = prepare_both(base, head, sets, effort.copies, facts=facts, device=device)
    rounds = []
    for number, side in enumerate((both.base, both.head, both.base)):
        # On a CPU a round is a part of the rotation: each contestant begins elsewhere, so that none finds warm data.
        shift = number * len(side.launches) // 3
        with failures_of(side.name):
            rounds.append(_rounds([*side.launches[shift:], *side.launches[:shift]], device, on_stream=side.on_stream))
    with failures_of("head"):
        taken = _take(rounds, error, effort)
        both.check_again()
    first, second = (
        SideResult(side.correctness, _sampled(both, side.launches[0], origin)) for side in (both.base, both.head)
    )
    return taken, (first, second), len(both.base.launches)


def _sampled(both: BothSides, launch: Launch, origin: Origin) -> Samples | None:
    """Return output elements of one more call on the first input set, at positions that the seal draws."""
    if not origin.samples:
        return None
    launch()
    if isinstance(launch, Call):
        return sample(as_list(launch.results()), dtype="fp64", key=origin.key, count=origin.samples)
    base = both.base.version
    dtype = base.kernel.operation.output_dtype(base.case.dtype)
    return sample(both.first.out, dtype=dtype, key=origin.key, count=origin.samples)


def _take(rounds: Sequence[Any], error: float, effort: Effort) -> Taken:
    """Take rounds in turn, in each order equally often, until both intervals are narrow or the budget ends."""
    taken, started = Taken(effort.fold), time.monotonic()
    for one in rounds:
        one.take(effort.warmup_rounds)
    each_s = (time.monotonic() - started) / max(1, effort.warmup_rounds)
    # Of calls that take seconds a few rounds are all that the budget allows.
    together = min(_TOGETHER, max(effort.fold, int(effort.budget_s / max(each_s, 1e-9))))
    started = time.monotonic()
    for count in itertools.count(together, together):
        orders = [_ORDERS[(count + step) % len(_ORDERS)] for step in range(together)]
        for held, more in zip(taken.samples, _in_turn(rounds, orders), strict=True):
            held.extend(more)
        if time.monotonic() - started > effort.budget_s:
            break
        if count < effort.min_rounds:
            continue
        widest = max(spread_of(taken.logs(other), error).half_width for other in (1, 2))
        if widest <= effort.target or count >= effort.max_rounds:
            break
    return taken


def _in_turn(rounds: Sequence[Any], orders: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return one round of each contestant in each of some orders."""
    if all(isinstance(one, GraphRounds) for one in rounds):
        return replay_in_turn(rounds, orders)
    samples: list[list[int]] = [[] for _ in rounds]
    for order in orders:
        for index in order:
            samples[index] += rounds[index].take(1)
    return samples


def _sets(base: Version, facts: DeviceFacts, device: str, origin: Origin) -> list[InputSet]:
    """Return the input sets of a run, as many as the protocol of rounds rotates over."""
    case, operation = base.case, base.kernel.operation
    parameters = parameters_of(interleaved_protocol_for(case.implementation))
    with failures_of("base"):
        count = set_count(bytes_per_set(operation, case.shape, case.dtype), facts.l2_bytes, parameters)
        return list(
            input_sets(
                operation,
                case.shape,
                case.dtype,
                seal=origin.seal,
                cell=origin.cell,
                run=origin.run,
                anchor=origin.anchor,
                count=count,
                device=device,
            )
        )


def _rounds(launches: Sequence[Launch], device: str, *, on_stream: bool) -> Any:
    if device == "cpu":
        return CpuRounds(launches)
    return StreamRounds(launches) if on_stream else GraphRounds(launches, watch=False)


@contextmanager
def _stream(base: Version, device: str) -> Iterator[None]:
    if device == "cuda" and is_callable(base.case.kernel):
        with own_stream():
            yield
    else:
        yield


@contextmanager
def _still(device: str) -> Iterator[None]:
    """Keep the garbage collector out of the rounds of a CPU."""
    collecting = gc.isenabled()
    if device == "cpu":
        gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

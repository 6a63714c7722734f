"""Prepares a kernel and its library baselines on the same cold inputs, and times them interleaved.

Ours is compared with float64 first. Contestants take turns, so that a drift of the clock affects all of them alike; a
turn begins with rounds that do not count. Imports torch, only when called.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_high
from typing import Any, Literal, assert_never

from ledger.analysis.formatting import usual_order
from ledger.analysis.protocols import interleaved_protocol_for
from ledger.device.facts import cpu_state
from ledger.errors import MachineError, explained
from ledger.kernel import Kernel, Launch, Prepare, keeping
from ledger.measure.correctness import compare, explain_failure
from ledger.measure.cuda_graphs import GraphRounds
from ledger.measure.input_copies import COPIES, bytes_of_launch, further_sets
from ledger.measure.inputs import InputSet, bytes_per_set, input_sets
from ledger.measure.launch_contexts import ChainRounds, IdleRounds, between_launch
from ledger.measure.peers import Peer, peers_of
from ledger.measure.timer import (
    CpuRounds,
    Interval,
    Parameters,
    median_interval,
    parameters_of,
    set_count,
)
from ledger.records import Case, Correctness, DeviceFacts, Dtype

OURS = "ours"
Context = Literal["chain", "back-to-back", "idle", "loop"]
SETTLE_MS = 100
"""Milliseconds of a contestant's own load, not timed, with which its turn begins.

A GPU's clock follows the power of the last tens of milliseconds: for up to 75 ms after little load, calls take up to
15% less than later. A slower regulation makes them take up to 12% more 350 to 700 ms after it. Measured on an H200:
benchmarks/timer/settling-h200.json.
"""
SEED = hashlib.sha256(b"ledger/bench/1").hexdigest()
Cell = tuple[Mapping[str, int], Dtype]


@dataclass
class Contestant:
    """Hold one way to compute the result, its rounds, and whether it gave the reference's result (None: unknown).

    context: what runs before each call: the same kernel, another kernel (chain), nothing (idle); on a CPU, a loop.
    """

    name: str
    rounds: GraphRounds | ChainRounds | IdleRounds | CpuRounds
    agrees: bool | None
    context: Context
    samples: list[int] = field(default_factory=list)

    @property
    def interval(self) -> Interval:
        """Return the median and its interval, in picoseconds."""
        return median_interval(self.samples)

    @property
    def sm_clock_mhz(self) -> int | None:
        """Return the median clock under the contestant's load."""
        if isinstance(self.rounds, CpuRounds):
            return cpu_state().sm_clock_mhz
        if isinstance(self.rounds, IdleRounds):
            return None
        clocks = [state.sm_clock_mhz for state in self.rounds.states if state.sm_clock_mhz is not None]
        return median_high(clocks) if clocks else None


@dataclass(frozen=True)
class LineUp:
    """Hold the contestants of one cell, ready to be timed, and the reason for each baseline that is missing.

    Each way to compute the result is a contestant in each context; the first context is the headline.
    missing: baselines and peers that do not run, and peers whose result is wrong. releases: of the peers timed.
    """

    parameters: Parameters
    contexts: tuple[Context, ...]
    contestants: list[Contestant]
    missing: dict[str, str]
    correctness: Correctness
    input_sets: int
    releases: Mapping[str, str]

    def of(self, context: Context) -> list[Contestant]:
        """Return the contestants of one context."""
        return [one for one in self.contestants if one.context == context]

    @property
    def headline(self) -> list[Contestant]:
        """Return the contestants of the headline context."""
        return self.of(self.contexts[0])

    @property
    def ours(self) -> Contestant:
        """Return the kernel's own contestant in the headline context."""
        return next(one for one in self.headline if one.name == OURS)


def baseline_names(kernel: Kernel) -> frozenset[str]:
    """Return a kernel's baselines and peers as rows name them: with underscores."""
    peers = (peer.name for peer in peers_of(kernel.operation.name))
    return frozenset((*(name.replace("-", "_") for name in kernel.baselines), *peers))


def shape_list(case: Case) -> str:
    """Return a case's shape as KEY=SIZE, separated by commas."""
    return ",".join(f"{key}={size}" for key, size in usual_order(case.shape))


def contexts_on(device: str) -> tuple[Context, ...]:
    """Return the contexts in which calls are timed on a device, the headline first."""
    return ("chain", "back-to-back", "idle") if device == "cuda" else ("loop",)


def line_up(
    kernel: Kernel,
    case: Case,
    facts: DeviceFacts,
    *,
    device: str,
    only: frozenset[str] | None,
    contexts: tuple[Context, ...],
    peers: Sequence[Peer] = (),
    on_step: Callable[[str], None] = lambda _step: None,
) -> LineUp:
    """Make the inputs of a cell and prepare ours, the baselines and the peers in `only` (None: all) on them.

    on_step: told what begins: the inputs, the reference, the first call of each.
    Raises: MachineError when ours is wrong.
    """
    parameters = parameters_of(interleaved_protocol_for(case.implementation))
    on_step("inputs")
    sets = cold_sets(kernel, case, facts, parameters, device=device)
    on_step("reference in float64")
    reference = kernel.reference(sets[0].inputs)
    on_step(f"first call of {OURS}")
    first = _prepare(kernel, case, sets, reference, kernel.implementations[case.implementation])
    if not first.correctness.passed:
        raise MachineError(f"{kernel.name} {shape_list(case)} {case.dtype}: {explain_failure(first.correctness)}")
    own = first.launches
    if device == "cuda":
        sets, own = _with_copies(kernel, case, facts, sets, own)
    contestants = _in_contexts(OURS, own, True, contexts)
    missing: dict[str, str] = {}
    for baseline, prepare in kernel.baselines.items():
        name = baseline.replace("-", "_")
        if only is not None and name not in only:
            continue
        on_step(f"first call of {name}")
        try:
            made = _prepare(kernel, case, sets, reference, prepare)
            contestants += _in_contexts(name, made.launches, made.agrees, contexts)
        # A library may raise any error where it does not offer a baseline; the row says which.
        except Exception as error:  # noqa: BLE001
            missing[name] = explained(error, 300)
    releases: dict[str, str] = {}
    for peer in peers:
        if only is not None and peer.name not in only:
            continue
        on_step(f"first call of {peer.name}")
        try:
            launches = _checked_launches(kernel, case, sets, reference, peer)
            contestants += _in_contexts(peer.name, launches, True, contexts)
            releases[peer.name] = peer.release or peer.distribution
        # As of a baseline.
        except Exception as error:  # noqa: BLE001
            missing[peer.name] = explained(error, 300)
    return LineUp(parameters, contexts, contestants, missing, first.correctness, len(sets), releases)


@dataclass(frozen=True)
class _Prepared:
    launches: list[Launch]
    correctness: Correctness
    agrees: bool | None


def _prepare(kernel: Kernel, case: Case, sets: Sequence[InputSet], reference: Any, prepare: Prepare) -> _Prepared:
    """Return the launches of one way to compute the result, and how far its first result is from the reference."""
    first = sets[0]
    launches = [prepare(one.inputs, one.out, case.config) for one in sets]
    first.out.fill_(float("nan"))
    launches[0]()
    # A compiled baseline returns its result instead of writing it: there is nothing to compare.
    unwritten = bool(first.out.isnan().all())
    tolerance = kernel.tolerances[case.dtype]
    correctness = compare(first.out, reference, tolerance, name=f"{kernel.operation.name} in float64")
    return _Prepared(launches, correctness, None if unwritten else correctness.passed)


def _checked_launches(kernel: Kernel, case: Case, sets: Sequence[InputSet], reference: Any, peer: Peer) -> list[Launch]:
    """Return a peer's launches, one an input set. Raises: MachineError where its result is wrong."""
    calls = [peer.call(one.inputs) for one in sets]
    found = compare(calls[0](), reference, kernel.tolerances[case.dtype], name=f"{kernel.operation.name} in float64")
    if not found.passed:
        raise MachineError(explain_failure(found))
    return [keeping(call) for call in calls]


def cold_sets(kernel: Kernel, case: Case, facts: DeviceFacts, parameters: Parameters, *, device: str) -> list[InputSet]:
    """Return the input sets of a case: as many as its timing protocol rotates over."""
    count = set_count(bytes_per_set(kernel.operation, case.shape, case.dtype), facts.l2_bytes, parameters)
    return list(
        input_sets(
            kernel.operation,
            case.shape,
            case.dtype,
            seal=SEED,
            cell=f"{case.kernel}-{shape_list(case)}-{case.dtype}",
            run=0,
            anchor=None,
            count=count,
            device=device,
        )
    )


def _with_copies(
    kernel: Kernel, case: Case, facts: DeviceFacts, sets: list[InputSet], own: list[Launch]
) -> tuple[list[InputSet], list[Launch]]:
    """Return input sets on a GPU and the launches of ours on them, both with those of copies."""

    def launch_of(one: InputSet) -> Launch:
        return kernel.implementations[case.implementation](one.inputs, one.out, case.config)

    copies = further_sets(
        sets,
        own,
        COPIES,
        set_bytes=bytes_per_set(kernel.operation, case.shape, case.dtype),
        launch_bytes=bytes_of_launch(launch_of, sets[0]),
        cache_bytes=facts.l2_bytes,
    )
    return [*sets, *copies], [*own, *map(launch_of, copies)]


def line_up_twice(
    kernel: Kernel, case: Case, facts: DeviceFacts, *, device: str
) -> tuple[Parameters, tuple[Contestant, Contestant]]:
    """Return two contestants of the headline context that are both ours, with the parameters to time them by."""
    contexts = contexts_on(device)[:1]
    lined = line_up(kernel, case, facts, device=device, only=frozenset(), contexts=contexts)
    (again,) = _in_contexts("ours again", lined.ours.rounds.launches, True, contexts)
    return lined.parameters, (lined.ours, again)


def _in_contexts(
    name: str, launches: Sequence[Launch], agrees: bool | None, contexts: Sequence[Context]
) -> list[Contestant]:
    """Return one way to compute the result as a contestant in each context."""
    return [Contestant(name, _rounds(launches, context), agrees, context) for context in contexts]


def _rounds(launches: Sequence[Launch], context: Context) -> GraphRounds | ChainRounds | IdleRounds | CpuRounds:
    match context:
        case "chain":
            return ChainRounds(launches, between_launch())
        case "back-to-back":
            return GraphRounds(launches, watch=False)
        case "idle":
            return IdleRounds(launches)
        case "loop":
            return CpuRounds(launches)
    assert_never(context)


def interleave(contestants: Sequence[Contestant], parameters: Parameters) -> None:
    """Let each take turns of some rounds until every interval is narrow enough, or the budget or the rounds end.

    Turns go through the contestants and back, so that a drift favours neither end. Two turns have the fewest rounds
    that the protocol allows. Single calls after idle vary more; their interval does not prolong the run.
    """
    turn = -(-parameters.min_rounds // 2)
    settling = [_settling_rounds(one, median_high(one.rounds.take(parameters.warmup_rounds))) for one in contestants]
    turns = list(zip(contestants, settling, strict=True))
    narrowed = [one for one in contestants if one.context != "idle"]
    started = time.monotonic()
    budget_s = parameters.budget_ms * len({one.name for one in contestants}) / 1e3
    while True:
        for one, before in (*turns, *reversed(turns)):
            one.samples += one.rounds.take(before + turn)[before:]
        done = len(contestants[0].samples)
        if done < parameters.min_rounds:
            continue
        wide = any(one.interval.half_width_ppm > parameters.ci_target_ppm for one in narrowed)
        if not wide or done >= parameters.max_rounds or time.monotonic() - started > budget_s:
            return


def _settling_rounds(one: Contestant, call_ps: int) -> int:
    """Return the rounds after which a contestant's clock is its own. One more, untimed, begins every take on a GPU.

    A round takes a millisecond at least, so as many rounds as SETTLE_MS are enough.
    """
    if one.context in ("idle", "loop"):
        return 0
    return min(max(math.ceil(SETTLE_MS * 1e9 / (call_ps * one.rounds.calls)) - 1, 0), SETTLE_MS)

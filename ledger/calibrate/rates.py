"""Measures the rate of one kind of call on a GPU, in bursts or under seconds of load. Imports no torch itself.

Calls are nodes of CUDA graphs, so gaps between launches do not count. Burst is the best short round after a pause, with
the clock counted across that round. Sustained is the rate at the end of seconds of continuous load, when the power
limit sets the clock.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high

from ledger.kernel import Launch
from ledger.measure.cuda_graphs import TimedRound, capture, replay_ps, timed_rounds, warm_up
from ledger.records import DeviceState

# After a pause the power limit lets a burst begin at the boost clock; one burst follows the warm-up without.
_PAUSES_S = (0.0, 0.25)
_ROUND_PS = 1_000_000_000
_ROUNDS = 20


@dataclass(frozen=True)
class Rate:
    """Hold the rate of one kind of call, with the device's state. Units: operations or bytes per second.

    state: its SM clock is that of the very round (burst) or rounds (sustained) that the rate is of.
    """

    per_s: float
    condition: str
    state: DeviceState


def state_text(state: DeviceState) -> str:
    """Return a device's state as the text of a condition."""
    clock = "clock unknown" if state.sm_clock_mhz is None else f"SM {state.sm_clock_mhz} MHz"
    power = "power unknown" if state.power_mw is None else f"{state.power_mw / 1000:.0f} W"
    heat = "temperature unknown" if state.temperature_c is None else f"{state.temperature_c} C"
    return ", ".join([clock, power, heat, *state.throttle])


def burst(launches: Sequence[Launch], amount: float, what: str) -> Rate:
    """Return the rate of the best of many rounds of a millisecond, in bursts after a pause.

    launches: one for each input set, called in turn. amount: the work of one call.
    """
    warm_up(launches)
    one_ps = min(replay_ps(capture(launches), 2, calls=len(launches)))
    calls = len(launches) * max(1, round(_ROUND_PS / (one_ps * len(launches))))
    graph = capture([*launches] * (calls // len(launches)))
    best: tuple[TimedRound, DeviceState] | None = None
    for pause in _PAUSES_S:
        time.sleep(pause)
        rounds, state = timed_rounds(graph, _ROUNDS, calls=calls)
        fastest = min(rounds, key=lambda one: one.ps)
        if best is None or fastest.ps < best[0].ps:
            best = fastest, state
    assert best is not None
    return _rate(
        amount, best[0].ps, best[0].clock_mhz, f"{what}, best of {len(_PAUSES_S) * _ROUNDS} rounds of {calls}", best[1]
    )


def sustained(launches: Sequence[Launch], amount: float, what: str, *, seconds: float) -> Rate:
    """Return the median rate over the last third of `seconds` of continuous load, with the median clock there."""
    warm_up(launches)
    one_ps = min(replay_ps(capture(launches), 3, calls=len(launches)))
    rotations = max(1, round(0.05e12 / (one_ps * len(launches))))
    graph, calls = capture([*launches] * rotations), rotations * len(launches)
    started = time.monotonic()
    taken: list[tuple[float, list[TimedRound]]] = []
    while (at := time.monotonic() - started) < seconds:
        rounds, state = timed_rounds(graph, 4, calls=calls)
        taken.append((at, rounds))
    late = [one for at, rounds in taken if at > 2 * seconds / 3 for one in rounds] or taken[-1][1]
    clocks = [one.clock_mhz for one in late if one.clock_mhz is not None]
    clock = median_high(clocks) if clocks else None
    return _rate(amount, median_high(one.ps for one in late), clock, f"{what}, after {seconds:.0f} s of load", state)


def _rate(amount: float, ps: int, clock_mhz: int | None, what: str, state: DeviceState) -> Rate:
    state = state.model_copy(update={"sm_clock_mhz": clock_mhz})
    return Rate(amount / (ps * 1e-12), f"{what}, {state_text(state)}", state)

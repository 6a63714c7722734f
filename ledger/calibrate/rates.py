"""Measures the rate of one kind of call on a GPU, in bursts or under seconds of load. Imports no torch itself.

Calls are nodes of CUDA graphs, so gaps between launches do not count. Burst is the best short round. Sustained is the
rate at the end of seconds of continuous load, when the power limit sets the clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median_high

from ledger.kernel import Launch
from ledger.measure.cuda_graphs import capture, replay_ps, state_under, warm_up
from ledger.records import DeviceState


@dataclass(frozen=True)
class Rate:
    """Hold the rate of one kind of call and the device state under its load. Units: operations or bytes per second."""

    per_s: float
    condition: str
    state: DeviceState


def state_text(state: DeviceState) -> str:
    """Return a device's state as the text of a condition."""
    clock = "clock unknown" if state.sm_clock_mhz is None else f"SM {state.sm_clock_mhz} MHz"
    power = "power unknown" if state.power_mw is None else f"{state.power_mw / 1000:.0f} W"
    heat = "temperature unknown" if state.temperature_c is None else f"{state.temperature_c} C"
    return ", ".join([clock, power, heat, *state.throttle])


def burst(launch: Launch, amount: float, what: str, *, calls: int = 4, rounds: int = 8) -> Rate:
    """Return the rate of the best of several short rounds; `amount` is the work of one call."""
    warm_up([launch])
    graph = capture([launch] * calls)
    best = min(replay_ps(graph, rounds, calls=calls))
    state = state_under(graph)
    return Rate(amount / (best * 1e-12), f"{what}, best of {rounds} rounds of {calls}, {state_text(state)}", state)


def sustained(launch: Launch, amount: float, what: str, *, seconds: float) -> Rate:
    """Return the median rate over the last third of `seconds` of continuous load."""
    warm_up([launch])
    one_ps = min(replay_ps(capture([launch]), 3, calls=1))
    calls = max(1, round(0.05e12 / one_ps))
    graph = capture([launch] * calls)
    started = time.monotonic()
    times: list[tuple[float, int]] = []
    while (at := time.monotonic() - started) < seconds:
        times += [(at, ps) for ps in replay_ps(graph, 4, calls=calls)]
    state = state_under(graph)
    late = [ps for at, ps in times if at > 2 * seconds / 3] or [times[-1][1]]
    return Rate(
        amount / (median_high(late) * 1e-12), f"{what}, after {seconds:.0f} s of load, {state_text(state)}", state
    )

"""Takes rounds of CPU probes until the best rate of each ceiling has been reached twice. Imports no torch.

What lowers a rate (other processes, other guests of the host, a lower clock) lasts seconds, so the rounds are spread
over time. A maximum that two rounds reach is not a lucky one; a machine that was busy throughout is named by the share
of its processors that others used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledger.device.cpu_load import cpu_times, load_average, others_percent
from ledger.records import Calibration

_REPRODUCED = 0.95


@dataclass(frozen=True)
class Probe:
    """Hold one kind of call that may reach a ceiling; `amount` is the work of one call."""

    ceiling: str
    what: str
    amount: float
    call: Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """Hold how long a calibration lasts. Units: seconds. probe_s: of each probe in each round.

    Rounds are taken for at least `least_s`, and at most `most_s` where a best rate was reached only once.
    """

    probe_s: float
    least_rounds: int
    least_s: float
    most_s: float


QUICK = Plan(probe_s=0.1, least_rounds=4, least_s=14, most_s=24)
FULL = Plan(probe_s=0.3, least_rounds=6, least_s=60, most_s=120)


@dataclass(frozen=True)
class Rounds:
    """Hold the best rate of every probe in every round (rates[round][probe]), in work per second."""

    probes: tuple[Probe, ...]
    rates: tuple[tuple[float, ...], ...]
    calibration: Calibration

    @property
    def count(self) -> int:
        """Return the number of rounds."""
        return len(self.rates)

    def best_rates(self, ceilings: Sequence[str]) -> tuple[float, ...]:
        """Return the best rate of each round over the probes of some ceilings."""
        return tuple(best_rates(self.probes, self.rates, ceilings))

    def best_probe(self, ceilings: Sequence[str]) -> Probe:
        """Return the probe that reached the best rate of all rounds."""
        reached = [
            (rate, number)
            for rates in self.rates
            for number, rate in enumerate(rates)
            if self.probes[number].ceiling in ceilings
        ]
        return self.probes[max(reached)[1]]


def best_rates(probes: Sequence[Probe], rates: Sequence[Sequence[float]], ceilings: Sequence[str]) -> list[float]:
    """Return the best rate of each round over the probes of some ceilings."""
    return [max(rate for probe, rate in zip(probes, one, strict=True) if probe.ceiling in ceilings) for one in rates]


def reproduced(probes: Sequence[Probe], rates: Sequence[Sequence[float]]) -> bool:
    """Tell whether two rounds or more come within 5% of the best rate of every ceiling."""
    for ceiling in {probe.ceiling for probe in probes}:
        reached = best_rates(probes, rates, (ceiling,))
        if sum(rate >= _REPRODUCED * max(reached) for rate in reached) < 2:
            return False
    return True


def shortest_s(call: Callable[[], object], *, budget_s: float, now: Callable[[], float] = time.perf_counter) -> float:
    """Return the shortest time of a call, made at least once and again within the budget, in seconds."""
    started = now()
    shortest = float("inf")
    while True:
        begun = now()
        call()
        ended = now()
        shortest = min(shortest, ended - begun)
        if ended - started >= budget_s:
            return shortest


def take_rounds(
    probes: Sequence[Probe],
    plan: Plan,
    *,
    on_step: Callable[[str], None],
    now: Callable[[], float] = time.perf_counter,
) -> Rounds:
    """Run every probe once untimed, then take rounds until the plan's time is over and the best are reproduced."""
    load = load_average()
    on_step(f"warming up {len(probes)} operations")
    for probe in probes:
        probe.call()
    rates: list[tuple[float, ...]] = []
    shares: list[float | None] = []
    started = now()
    while not _is_enough(probes, rates, plan, elapsed_s=now() - started):
        before = cpu_times()
        rates.append(tuple(probe.amount / shortest_s(probe.call, budget_s=plan.probe_s, now=now) for probe in probes))
        shares.append(others_percent(before, cpu_times()))
        spent = f"{now() - started:.0f} s of {plan.least_s:g} to {plan.most_s:g}"
        on_step(f"round {len(rates)}, {spent}{_share_text(shares[-1])}")
    known = tuple(round(share, 1) for share in shares if share is not None)
    calibration = Calibration(duration_s=round(now() - started, 1), others_percent=known or None, load_average=load)
    return Rounds(tuple(probes), tuple(rates), calibration)


def _is_enough(probes: Sequence[Probe], rates: Sequence[tuple[float, ...]], plan: Plan, *, elapsed_s: float) -> bool:
    if len(rates) < plan.least_rounds or elapsed_s < plan.least_s:
        return False
    return elapsed_s >= plan.most_s or reproduced(probes, rates)


def _share_text(share: float | None) -> str:
    return "" if share is None else f", other processes use {share:.0f}% of the processors"

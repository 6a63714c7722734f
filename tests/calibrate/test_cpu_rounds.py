"""Tests the rounds of a CPU calibration on a scripted clock: how long they go on, and which rate counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from ledger.calibrate.cpu_rounds import Plan, Probe, best_rates, reproduced, shortest_s, take_rounds

PLAN = Plan(probe_s=0.0, least_rounds=3, least_s=4.0, most_s=8.0)


def probe(ceiling: str, what: str = "", call=lambda: None) -> Probe:
    return Probe(ceiling, what or ceiling, 12.0, call)


class Script:
    """Be a clock that only calls move, each by the next of some times."""

    def __init__(self, times: Sequence[float]) -> None:
        self.at, self.calls = 0.0, 0
        self._times: Iterator[float] = itertools.chain([0.0], times, itertools.repeat(times[-1]))

    def call(self) -> None:
        self.calls += 1
        self.at += next(self._times)

    def now(self) -> float:
        return self.at


def taken(*times: float, plan: Plan = PLAN):
    script = Script(times)
    found = take_rounds([probe("read", "sum", script.call)], plan, on_step=lambda _step: None, now=script.now)
    return found, script


def test_the_best_round_counts_and_every_round_is_kept():
    found, _ = taken(2.0, 1.0, 1.0, 3.0)
    assert found.best_rates(["read"]) == (6.0, 12.0, 12.0)
    assert (found.count, found.calibration.duration_s) == (3, 4.0)


def test_rounds_go_on_until_the_time_is_over_and_their_least_number_is_reached():
    assert taken(1.0)[0].count == 4
    assert taken(10.0)[0].count == 3


def test_a_best_rate_that_only_one_round_reached_is_tried_again_until_the_budget_ends():
    # One fast round, then only slow ones: 1 + 1.5 * 5 > 8.
    assert taken(1.0, 1.5)[0].count == 6
    # Reached again, within 5%, in the fourth round.
    assert taken(1.0, 1.5, 1.5, 1.04, 1.5)[0].count == 4


def test_reproduced_looks_at_the_best_of_each_round_and_at_every_ceiling():
    probes = [probe("read"), probe("read"), probe("copy")]
    assert reproduced(probes, [(10, 1, 5), (1, 9.5, 5)])
    assert not reproduced(probes, [(10, 1, 5), (1, 9.4, 5)])
    assert not reproduced(probes, [(10, 1, 5), (10, 1, 4)])
    assert not reproduced(probes, [(10, 1, 5)])
    assert best_rates(probes, [(10, 1, 5), (1, 9, 20)], ["read", "copy"]) == [10, 20]


def test_the_probe_of_the_best_rate_is_named():
    fast, slow = Script([1.0]), Script([2.0])
    now = lambda: fast.at + slow.at  # noqa: E731
    probes = [probe("read", "slow", slow.call), probe("read", "fast", fast.call), probe("copy", "copy", slow.call)]
    found = take_rounds(probes, PLAN, on_step=lambda _step: None, now=now)
    assert found.best_probe(["read"]).what == "fast"
    assert found.best_probe(["copy"]).what == "copy"


def test_shortest_s_calls_once_at_least_and_fills_its_budget():
    script = Script([3.0])
    script.call()
    assert (shortest_s(script.call, budget_s=0.0, now=script.now), script.calls) == (3.0, 2)
    script = Script([3.0, 1.0, 2.0, 9.0])
    script.call()
    assert (shortest_s(script.call, budget_s=5.5, now=script.now), script.calls) == (pytest.approx(1.0), 4)

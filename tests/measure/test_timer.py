"""Tests measure.timer: statistics with numbers worked by hand, and the CPU timer on calls."""

import time

import numpy as np
import pytest

from ledger.analysis.protocols import COLD_CPU, COLD_GRAPH
from ledger.errors import InputError
from ledger.measure.timer import (
    MAX_SETS,
    CpuRounds,
    Parameters,
    enough_rounds,
    median_interval,
    parameters_of,
    set_count,
    time_cpu,
)
from ledger.records import Protocol


def parameters(**changes) -> Parameters:
    return Parameters(**{**COLD_CPU.parameters, **changes})


def test_median_interval_of_a_constant_is_the_constant():
    interval = median_interval([70] * 30)
    assert (interval.median, interval.low, interval.high, interval.half_width_ppm) == (70, 70, 70, 0.0)


def test_median_interval_is_deterministic_and_frozen():
    samples = [1000 + (37 * i) % 101 for i in range(40)]
    assert median_interval(samples) == median_interval(list(samples))
    interval = median_interval(samples)
    assert interval.median == int(np.median(samples))
    assert interval.low < interval.median < interval.high


def test_median_interval_covers_the_true_median_at_its_confidence():
    rng = np.random.default_rng(7)
    trials = 300
    covered = 0
    for _ in range(trials):
        interval = median_interval([int(x) for x in 1e6 + 1e4 * rng.standard_normal(25)])
        covered += interval.low <= 1e6 <= interval.high
    assert 0.90 <= covered / trials <= 0.995


@pytest.mark.parametrize(
    ("size", "l2", "expected"),
    [
        (8_000_000, 60 * 2**20, 40),  # 5 x 62.9 MB = 314.6 MB, by 8 MB a set
        (134_000_000, 60 * 2**20, 3),
        (10**9, 60 * 2**20, 2),
        (8_000_000, None, 34),  # 268.4 MB by 8 MB
        (6, 60 * 2**20, MAX_SETS),
    ],
)
def test_set_count_fills_the_footprint(size, l2, expected):
    assert set_count(size, l2, parameters_of(COLD_GRAPH)) == expected


def test_parameters_of_refuses_a_protocol_it_cannot_follow():
    with pytest.raises(InputError, match="cold-graph/9"):
        parameters_of(Protocol(name="cold-graph/9", parameters=COLD_GRAPH.parameters))
    with pytest.raises(InputError, match="not known"):
        parameters_of(Protocol(name="cold-cpu/1", parameters={"budget_ms": 1}))


class Scripted:
    """Yield rounds from a list."""

    calls = 1

    def __init__(self, values):
        self.values = iter(values)
        self.taken = 0

    def take(self, count):
        self.taken += count
        return [next(self.values) for _ in range(count)]


def test_enough_rounds_stops_when_the_interval_is_narrow():
    source = Scripted([1000] * 1000)
    samples, _ = enough_rounds(source, parameters(min_rounds=9, warmup_rounds=2))
    assert (len(samples), source.taken) == (9, 11)


def test_enough_rounds_stops_at_the_largest_number():
    source = Scripted([1000 + 900 * (i % 2) for i in range(1000)])
    samples, interval = enough_rounds(source, parameters(max_rounds=101, budget_ms=60_000))
    assert len(samples) == 101 and interval.half_width_ppm > 0


def test_enough_rounds_keeps_every_round():
    source = Scripted([1000] * 9 + [9_999_999])
    samples, interval = enough_rounds(source, parameters(warmup_rounds=0, min_rounds=10))
    assert 9_999_999 in samples and interval.median == 1000


def test_cpu_rounds_rotate_where_they_stopped():
    order = []
    rounds = CpuRounds([lambda i=i: order.append(i) for i in range(3)])
    order.clear()
    rounds.calls, rounds._next = 2, 0
    rounds.take(3)
    assert order == [0, 1, 2, 0, 1, 2]


def test_time_cpu_times_a_sleep():
    timed = time_cpu([lambda: time.sleep(0.004)] * 2, parameters(min_rounds=5, budget_ms=100))
    assert timed.calls_per_round == 1
    assert 4e9 <= timed.interval.median < 12e9


@pytest.mark.gpu
def test_empty_node_takes_about_a_microsecond():
    from ledger.measure.cuda_graphs import empty_node_ps

    assert 3e5 < empty_node_ps() < 5e6


@pytest.mark.gpu
def test_time_graph_times_a_known_wait():
    import torch

    from ledger.measure.cuda_graphs import time_graph

    cycles = 2_000_000  # a bit more than a millisecond at 1980 MHz
    timed = time_graph([lambda: torch.cuda._sleep(cycles)] * 2, parameters(min_rounds=5, budget_ms=200))
    clock = timed.after.sm_clock_mhz
    assert timed.interval.median == pytest.approx(1e6 * cycles / clock, rel=0.1)

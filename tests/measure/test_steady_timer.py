"""Tests timing until steady on devices whose clock and time are scripted: boost, power limit, drift, noise."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ledger.analysis.steady_timing import Batch, steady_tail
from ledger.measure.steady_timer import time_until_steady
from ledger.measure.timer import SteadyParameters

PARAMETERS = SteadyParameters(
    footprint_l2_multiple=5, footprint_min_bytes=1, warmup_rounds=5, batch_ms=20, settle_batches=5, settle_ppm=10_000,
    ci_target_ppm=5_000, budget_ms=2_000, sample_elements=32, clock_tolerance_ppm=50_000,
)  # fmt: skip


class Device:
    """A device with a scripted clock; a call takes a fixed number of cycles, and a batch its duration."""

    def __init__(self, clocks: Iterator[int], *, noise: float = 0.0, cycles: float = 1.8e5) -> None:
        self.clocks, self.noise, self.cycles = clocks, noise, cycles
        self.time_s, self.draw = 0.0, random.Random(1)

    def batch(self, duration_ms: int) -> Batch:
        self.time_s += duration_ms / 1e3
        clock = next(self.clocks)
        call = self.cycles / clock * 1e6
        return Batch(tuple(round(call * (1 + self.noise * self.draw.gauss(0, 1))) for _ in range(20)), clock)

    def now(self) -> float:
        return self.time_s


def falling(*first: int, then: int) -> Iterator[int]:
    yield from first
    while True:
        yield then


def run(device: Device):
    return time_until_steady(device, PARAMETERS, now=device.now)


def test_a_constant_clock_settles_after_the_least_number_of_batches():
    found = run(Device(falling(then=1980)))
    assert found.settled and len(found.batches) == len(found.tail) == 5
    assert found.interval.median == round(1.8e5 / 1980 * 1e6)


def test_a_power_limited_kernel_is_timed_in_its_steady_state_and_its_boost_is_kept():
    found = run(Device(falling(1980, 1900, 1700, 1560, then=1545)))
    assert found.settled and [batch.clock_mhz for batch in found.tail] == [1560, 1545, 1545, 1545, 1545]
    assert found.batches[0].clock_mhz == 1980
    said = found.document()
    assert (said["boost_clock_mhz"], said["settled"], said["tail_batches"]) == (1980, True, 5)
    assert found.clocks_mhz == (1560,) * 20 + (1545,) * 80
    assert found.rounds_ps == tuple(one for batch in found.tail for one in batch.rounds_ps)


def test_a_clock_that_keeps_moving_is_said_not_to_settle():
    def swinging() -> Iterator[int]:
        while True:
            yield from (1980, 1700)

    found = run(Device(swinging()))
    assert not found.settled and len(found.tail) == 1 and len(found.batches) == 100


def test_noise_takes_more_batches_and_too_much_of_it_is_said():
    little = run(Device(falling(then=1980), noise=0.005))
    assert little.settled and little.interval.half_width_ppm <= 5_000
    much = run(Device(falling(then=1980), noise=0.2))
    assert not much.settled


def test_a_device_without_a_cycle_counter_settles_by_time_alone():
    class NoClock(Device):
        def batch(self, duration_ms: int) -> Batch:
            return Batch(super().batch(duration_ms).rounds_ps, None)

    found = run(NoClock(falling(1980, 1500, then=1400)))
    assert found.settled and len(found.batches) == 7


@pytest.mark.parametrize(
    ("clocks", "expected"),
    [((1000, 1000, 1010), 3), ((1000, 1000, 1011), 1), ((1000,), 1), ((1200, 1005, 1000), 2)],
)
def test_steady_tail(clocks: tuple[int, ...], expected: int):
    batches = [Batch((10_000,), clock) for clock in clocks]
    assert len(steady_tail(batches, tolerance_ppm=10_000)) == expected

"""Tests each term of the cost model against values worked by hand, and which of them decides the total."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.cost_model import Launch, Rates, cost, waves_of

# 10 SMs at 1 GHz, 1 TB/s.
RATES = Rates(
    clock_hz=1e9,
    dram_bytes_per_s=1e12,
    dram_latency_s=1e-6,
    fill_bytes=50,
    request_bytes=40,
    wave_request_bytes=80,
    tensor_flops=1000,
    slots={1: 10, 2: 10, 4: 8},
    launch_s={"chain": 2e-6, "idle": 5e-6},
    overlap=1e3,
)
# A step: 100 clocks of arithmetic at half the peak, 80 of fill, 50 of requests in one wave, 60 of issue.
LAUNCH = Launch(
    ctas=10,
    cluster=1,
    steps=1000,
    step_flops=50_000,
    tensor_rate=0.5,
    fill_bytes=4000,
    request_bytes=4000,
    operand_clocks=60,
    tile_clocks=3000,
    dram_bytes=20_000_000,
    in_flight_bytes=200_000,
)


def test_every_term_is_as_worked_by_hand() -> None:
    found = cost(LAUNCH, RATES, state="chain")
    assert found.tensor_s == pytest.approx(100e-6)
    assert found.fill_s == pytest.approx(80e-6)
    assert found.request_s == pytest.approx(50e-6)
    assert found.operand_s == pytest.approx(60e-6)
    assert found.tile_s == pytest.approx(3e-6)
    assert found.dram_s == pytest.approx(20e-6)
    assert found.launch_s == 2e-6
    # The largest step term, the tile and the launch; with a large exponent DRAM is hidden behind them.
    assert found.total_s == pytest.approx(105e-6, rel=1e-3)
    assert found.limiter == "tensor"


@pytest.mark.parametrize(
    ("changes", "total", "limiter"),
    [
        # A second wave for one CTA more, whose requests no longer coincide: 100 clocks a step, equal to the arithmetic.
        ({"ctas": 11}, 208e-6, "tensor"),
        # Divided evenly the eleventh tile costs each SM a tenth.
        ({"ctas": 11, "even": True}, 2e-6 + 1.1 * 103e-6, "tensor"),
        # Clusters of four leave two SMs idle.
        ({"cluster": 4}, 208e-6, "tensor"),
        ({"fill_bytes": 10_000}, 205e-6, "fill"),
        # Beyond one wave 16,000 bytes take 400 clocks a step.
        ({"ctas": 20, "request_bytes": 16_000}, 808e-6, "request"),
        ({"operand_clocks": 150}, 155e-6, "operand"),
        ({"dram_bytes": 400_000_000}, 402e-6, "dram"),
        # Ten CTAs keep 200 kB in flight in all: 20 MB take 100 latencies.
        ({"in_flight_bytes": 20_000, "dram_bytes": 40_000_000}, 202e-6, "dram"),
    ],
)
def test_the_slowest_term_decides_the_total(changes: dict[str, int], total: float, limiter: str) -> None:
    found = cost(replace(LAUNCH, **changes), RATES, state="chain")
    assert found.total_s == pytest.approx(total, rel=1e-3)
    assert found.limiter == limiter


def test_equal_terms_slow_each_other_by_the_overlap() -> None:
    # √2 times where both take 103 µs and the exponent is 2.
    equal = replace(LAUNCH, dram_bytes=103_000_000)
    assert cost(equal, replace(RATES, overlap=2), state="idle").total_s == pytest.approx(5e-6 + 2**0.5 * 103e-6)


def test_waves_are_whole_unless_work_is_divided_evenly() -> None:
    assert waves_of(replace(LAUNCH, ctas=21), RATES) == 3
    assert waves_of(replace(LAUNCH, ctas=21, even=True), RATES) == pytest.approx(2.1)
    assert waves_of(replace(LAUNCH, ctas=5), RATES) == 1
    assert waves_of(replace(LAUNCH, ctas=5, even=True), RATES) == pytest.approx(0.5)

"""Tests each term of the cost model against values worked by hand, and which of them decides the total."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.cost_model import Launch, Rates, cost

# 10 SMs at 1 GHz, 1 TB/s, 200 GB/s of L2 for each of them.
RATES = Rates(
    clock_hz=1e9,
    dram_bytes_per_s=1e12,
    l2_bytes=2000,
    request_bytes=40,
    tensor_flops=1000,
    slots={1: 10, 2: 10, 4: 8},
    resident_share=0.5,
    launch_s={"chain": 2e-6, "idle": 5e-6},
    overlap=1e3,
)
# A step: 50 clocks of requests, 100 of arithmetic, 80 of the warps.
LAUNCH = Launch(
    ctas=10,
    cluster=1,
    resident=1,
    steps=1000,
    step_flops=100_000,
    request_bytes=2000,
    hidden_clocks=60,
    exposed_clocks=20,
    serial_clocks=0,
    fixed_clocks=3000,
    dram_bytes=20_000_000,
)


def test_every_term_is_as_worked_by_hand() -> None:
    found = cost(LAUNCH, RATES, state="chain")
    assert found.request_s == pytest.approx(50e-6)
    assert found.tensor_s == pytest.approx(100e-6)
    assert found.warps_s == pytest.approx(80e-6)
    assert found.fixed_s == pytest.approx(3e-6)
    # 10 CTAs · 1000 steps · 2000 bytes = 20 MB, at 2000 bytes a clock.
    assert found.l2_s == pytest.approx(10e-6)
    assert found.dram_s == pytest.approx(20e-6)
    assert found.launch_s == 2e-6
    # The largest step term, the fixed clocks and the launch; with a large exponent L2 and DRAM are hidden behind them.
    assert found.total_s == pytest.approx(105e-6, rel=1e-3)
    assert found.limiter == "tensor"


@pytest.mark.parametrize(
    ("changes", "total", "limiter"),
    [
        # A second wave for one CTA more.
        ({"ctas": 11}, 208e-6, "tensor"),
        # Clusters of four leave two SMs idle.
        ({"cluster": 4}, 208e-6, "tensor"),
        # Two CTAs an SM: both work, but the fixed clocks of the second count half.
        ({"ctas": 20, "resident": 2}, 206.5e-6, "tensor"),
        # 110 clocks of the warps, of which co-resident CTAs hide half of 100: the arithmetic is left.
        ({"ctas": 20, "resident": 2, "hidden_clocks": 100, "exposed_clocks": 10}, 206.5e-6, "tensor"),
        ({"ctas": 20, "hidden_clocks": 100, "exposed_clocks": 10}, 228e-6, "warps"),
        # Beside the largest term, not in it.
        ({"serial_clocks": 7}, 112e-6, "tensor"),
        # 8000 bytes a step: 200 clocks from L2; all of them, 80 MB, take 40 µs.
        ({"request_bytes": 8000}, 205e-6, "request"),
        ({"exposed_clocks": 90}, 155e-6, "warps"),
        ({"dram_bytes": 400_000_000}, 402e-6, "dram"),
    ],
)
def test_the_slowest_term_decides_the_total(changes: dict[str, int], total: float, limiter: str) -> None:
    found = cost(LAUNCH._replace(**changes), RATES, state="chain")
    assert found.total_s == pytest.approx(total, rel=1e-3)
    assert found.limiter == limiter


def test_l2_serves_all_sms_together() -> None:
    # 20 MB at 100 bytes a clock.
    found = cost(LAUNCH, replace(RATES, l2_bytes=100), state="chain")
    assert found.total_s == pytest.approx(202e-6, rel=1e-3)
    assert found.limiter == "l2"


def test_a_last_wave_takes_as_long_as_a_full_one() -> None:
    # 11 CTAs on 10 SMs: two waves of 100 µs, two fixed times, a launch.
    found = cost(LAUNCH._replace(ctas=11), RATES, state="chain")
    assert found.total_s == pytest.approx(200e-6 + 6e-6 + 2e-6, rel=1e-3)
    assert cost(LAUNCH._replace(ctas=3), RATES, state="chain").tensor_s == pytest.approx(1e-4)


def test_equal_terms_slow_each_other_by_the_overlap() -> None:
    # √2 times where both take 103 µs and the exponent is 2; L2 adds its own square.
    equal = LAUNCH._replace(dram_bytes=103_000_000)
    joined = (2 * 103e-6**2 + 10e-6**2) ** 0.5
    assert cost(equal, replace(RATES, overlap=2), state="idle").total_s == pytest.approx(5e-6 + joined)

"""Tests the analytic forecasters on the toy device of tests/support/samples.py and on cases worked out here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import COMPUTE_WORK, MEMORY_WORK, TOY, burst, hardware_value, make_hardware, quantity

from ledger.analysis.forecast import FORECASTERS, analytic_forecasts, naive, reached, serial, thumb
from ledger.record_files import load_hardware
from ledger.records import Hardware, Roof, Work
from ledger.roofline import roof_of

ROOF = roof_of(TOY, "fp16_tensor")


def calibrated(launch_us: float | None = 100.0) -> Hardware:
    """Return the toy with 0.8 TB/s, 50 TFLOP/s and 0.1 ms of launch as measured."""
    more = burst(0.8, 50.0)
    if launch_us is not None:
        more["launch_graph_node"] = quantity(launch_us, "us", kind="measured")
    return make_hardware(ceilings={**hardware_value()["ceilings"], "burst": more})


def test_naive_reaches_the_roof() -> None:
    memory, compute = naive(MEMORY_WORK, ROOF, TOY), naive(COMPUTE_WORK, ROOF, TOY)
    assert memory is not None
    assert compute is not None
    assert (memory.regime, memory.percent, memory.time_s) == ("hbm-bound", pytest.approx(100), pytest.approx(1e-3))
    assert (compute.regime, compute.percent, compute.time_s) == (
        "compute-bound",
        pytest.approx(100),
        pytest.approx(1e-2),
    )


def test_thumb_takes_its_shares() -> None:
    # 1 ms ÷ 0.9 + 1 µs = 1112.1 µs: 89.9%. 10 ms ÷ 0.7 + 1 µs: 70.0%.
    memory, compute = thumb(MEMORY_WORK, ROOF, TOY), thumb(COMPUTE_WORK, ROOF, TOY)
    assert memory is not None
    assert compute is not None
    assert memory.percent == pytest.approx(100 / (1 / 0.9 + 0.001))
    assert compute.percent == pytest.approx(70, abs=0.01)
    assert (memory.regime, compute.regime) == ("hbm-bound", "compute-bound")


def test_thumb_calls_a_short_kernel_what_it_is() -> None:
    h200 = load_hardware("h200")
    roof = roof_of(h200, "fp16_tensor")

    def bytes_only(count: int) -> str:
        estimate = thumb(Work(flops=1, bytes_read=count, bytes_written=0), roof, h200)
        assert estimate is not None
        return estimate.regime

    # 4.32 TB/s is reached: 4.32 MB take the 1 µs that a launch takes.
    assert bytes_only(4_310_000) == "launch-bound"
    assert bytes_only(4_330_000) == "latency-bound"
    # 60% of 4.8 TB/s: n / (1 µs + n / 4.32 TB/s) = 2.88 TB/s at n = 8.64 MB.
    assert bytes_only(8_630_000) == "latency-bound"
    assert bytes_only(8_650_000) == "hbm-bound"


def test_thumb_is_for_gpus_with_a_data_sheet() -> None:
    assert thumb(MEMORY_WORK, ROOF, make_hardware(target="x86_64")) is None
    measured = roof_of(calibrated(), "fp16_tensor", "burst")
    assert thumb(MEMORY_WORK, measured, calibrated()) is None


def test_reached_and_serial_take_the_measured_ceilings() -> None:
    # Traffic 1 GB ÷ 0.8 TB/s = 1.25 ms, arithmetic 10 GFLOP ÷ 50 TFLOP/s = 0.2 ms, launch 0.1 ms.
    one, two = reached(MEMORY_WORK, ROOF, calibrated()), serial(MEMORY_WORK, ROOF, calibrated())
    assert one is not None
    assert two is not None
    assert one.time_s == pytest.approx(1.35e-3)
    assert one.percent == pytest.approx(100 / 1.35)
    assert two.time_s == pytest.approx(1.55e-3)
    assert (one.regime, two.regime) == ("hbm-bound", "hbm-bound")  # 74% and 65% of DRAM


def test_missing_launch_is_said() -> None:
    estimate = reached(MEMORY_WORK, ROOF, calibrated(launch_us=None))
    assert estimate is not None
    assert estimate.time_s == pytest.approx(1.25e-3)
    assert "a launch costs nothing (none was measured)" in estimate.assumptions


def test_launch_bound_when_the_launch_is_half() -> None:
    estimate = reached(MEMORY_WORK, ROOF, calibrated(launch_us=1250.0))
    assert estimate is not None
    assert estimate.regime == "launch-bound"


def test_estimates_leave_out_what_the_profile_cannot_tell() -> None:
    assert [e.model for e in analytic_forecasts(MEMORY_WORK, ROOF, TOY)] == ["naive roofline", "rule of thumb"]
    assert len(analytic_forecasts(MEMORY_WORK, ROOF, calibrated())) == len(FORECASTERS)
    assert analytic_forecasts(Work(flops=0, bytes_read=0, bytes_written=0), ROOF, TOY) == ()


amount = st.integers(min_value=0, max_value=2**53 - 1)


@given(
    flops=amount, read=amount, written=amount, peak=st.integers(10**9, 9 * 10**15), bandwidth=st.integers(10**9, 10**14)
)
def test_models_are_ordered_and_never_above_the_roof(
    flops: int, read: int, written: int, peak: int, bandwidth: int
) -> None:
    work = Work(flops=flops, bytes_read=read, bytes_written=written)
    roof = Roof(ceilings="datasheet", path="fp16_tensor", peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth)
    made = {estimate.model: estimate for estimate in analytic_forecasts(work, roof, calibrated())}
    if not made:
        return
    assert made["naive roofline"].percent == pytest.approx(100)
    assert 0 < made["rule of thumb"].percent < 100
    first, second = made["measured ceilings"].time_s, made["measured ceilings, no overlap"].time_s
    assert first <= second * (1 + 1e-12)
    assert second <= 2 * first * (1 + 1e-12)


def test_fused_kernel_on_h200_by_hand() -> None:
    # B=32, H=O=4096, fp16: 33.8 MB; 33.8 ÷ 4.32 TB/s = 7.83 µs, and 1 µs of launch: 8.83; the roof is 7.05 µs.
    h200 = load_hardware("h200")
    work = Work(flops=1_074_000_000, bytes_read=33_564_672 + 262_144, bytes_written=262_144)
    estimate = thumb(work, roof_of(h200, "fp16_tensor"), h200)
    assert estimate is not None
    total = 33_564_672 + 2 * 262_144
    assert estimate.time_s == pytest.approx(1e-6 + total / 4.32e12)
    assert estimate.percent == pytest.approx(79.9, abs=0.2)
    assert estimate.regime == "hbm-bound"

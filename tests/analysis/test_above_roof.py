"""Tests that a percent above 100 is explained by recorded facts, one planted at a time, and else called unknown."""

from __future__ import annotations

from typing import Any

from samples import COMPUTE_WORK, MS, make_forecast, make_hardware, make_measurement, make_timing, quantity, state

from ledger.analysis.above_roof import above_roof_reason
from ledger.records import DeviceFacts, Hardware
from ledger.roofline import roof_of

FAST = make_timing(MS * 4 // 5)  # 125% of the memory case's roof of 1 ms


def cpu(*rounds: float, shares: tuple[float, ...] | None = None, **more: float) -> Hardware:
    """Return a profile with burst ceilings only: 1 TB/s of DRAM, the best of some rounds."""
    ceilings: dict[str, Any] = {
        "peaks": {"fp16_tensor": quantity(100.0, "TFLOP/s", kind="measured")},
        "dram_bandwidth": quantity(1.0, "TB/s", kind="measured", **({"rounds": rounds} if rounds else {})),
        **{name: quantity(value, "TB/s", kind="measured") for name, value in more.items()},
    }
    calibration = {"calibration": {"duration_s": 15.0, "others_percent": shares, "load_average": None}}
    return make_hardware(
        target="x86_64", name="cpu", ceilings={"burst": ceilings}, **(calibration if shares is not None else {})
    )


def reason(hardware: Hardware, timing=FAST, **changes: Any) -> str | None:
    work = changes.pop("work", None)
    roof = roof_of(hardware, "fp16_tensor", changes.pop("ceilings", None))
    forecast = make_forecast(roof=roof, **({"work": work} if work else {}))
    return above_roof_reason(forecast, make_measurement(forecast, timing=timing, **changes), hardware)


def facts(l2_bytes: int) -> DeviceFacts:
    return DeviceFacts(
        name="Toy 1", target="x86_64", sms=10, memory_bytes=10**10, l2_bytes=l2_bytes, driver=None, software={}
    )


def test_a_percent_up_to_100_needs_no_reason():
    assert reason(cpu(), make_timing(MS)) is None
    assert reason(cpu(), None, status="failed", failure="x", correctness=None, samples=None) is None


def test_what_no_fact_explains_is_unknown_with_the_remedy():
    found = reason(cpu())
    assert found is not None and found.startswith("unknown: ") and found.endswith("ledger calibrate --device cpu")
    on_gpu = reason(make_hardware())
    assert on_gpu is not None and on_gpu.startswith("unknown: ") and on_gpu.endswith("ledger calibrate --device cuda")


def test_inputs_that_fit_the_cache_are_named():
    small = make_timing(MS * 4 // 5, input_sets=2, bytes_per_set=10**7)
    assert reason(cpu(), small, device=facts(10**7 + 1)) == (
        "data may have stayed in the last cache, 10.0 MB: the input sets hold 20.0 MB"
    )
    large_enough = reason(cpu(), small, device=facts(10**7))
    assert large_enough is not None and large_enough.startswith("unknown")


def test_a_spread_of_the_rounds_that_covers_the_excess_is_named():
    covering = reason(cpu(0.79, 1.0))
    assert covering is not None and covering.startswith("dram_bandwidth varied from 0.79 to 1 TB/s between the rounds")
    assert covering.endswith("by more than the 25.0 points above 100")
    narrower = reason(cpu(0.81, 1.0))
    assert narrower is not None and narrower.startswith("unknown")


def test_a_busy_calibration_is_named_and_a_quieter_timing_too():
    busy = cpu(shares=(40.0, 20.0))
    load = {"cpu_load/1": {"others_ppm": 20_000, "window_ms": 300}}
    found, quieter = reason(busy), reason(busy, extensions=load)
    assert found is not None and found.startswith("other processes used 30% of the processors while the ceilings")
    assert quieter == f"{found}, and 2% during this timing"
    assert (reason(cpu(shares=(5.0,))) or "").startswith("unknown")


def test_a_bandwidth_of_the_profile_above_that_of_the_roof_is_named():
    found = reason(cpu(dram_copy_bandwidth=1.3, dram_write_bandwidth=0.9))
    assert found == "the profile's own copy bandwidth, 1.3 TB/s, is above the 1 TB/s of the roof"


def test_the_rounds_that_count_are_those_of_the_binding_ceiling():
    # 1 TFLOP at 100 TFLOP/s is 10 ms; the DRAM rounds do not matter there.
    found = reason(cpu(0.1, 1.0, dram_copy_bandwidth=1.3), make_timing(8 * MS), work=COMPUTE_WORK)
    assert found is not None and found.startswith("unknown")


def test_a_burst_roof_is_set_against_the_datasheet_s():
    sheet = make_hardware()
    burst = {
        "peaks": {"fp16_tensor": quantity(80.0, "TFLOP/s", kind="measured")},
        "dram_bandwidth": quantity(0.8, "TB/s", kind="measured"),
    }
    ceilings = {**sheet.ceilings, **make_hardware(ceilings={"burst": burst}).ceilings}
    both = sheet.model_copy(update={"ceilings": ceilings})
    # 1.25 ms of burst roof and 1 ms of datasheet roof in 1.1 ms.
    assert reason(both, make_timing(MS * 11 // 10), ceilings="burst") == (
        "the roof is the burst rate that other code reached; of the datasheet's roof it is 90.9%"
    )


def test_a_clock_above_the_rated_one_is_named_on_the_compute_side_only():
    found = reason(make_hardware(), make_timing(9 * MS), work=COMPUTE_WORK, after=state(1200))
    assert found == "the SM clock was 1200 MHz and the datasheet rates the peak at 1000 MHz"
    assert (reason(make_hardware(), make_timing(9 * MS), work=COMPUTE_WORK, after=state(1000)) or "").startswith("unk")
    assert (reason(make_hardware(), FAST, after=state(1200)) or "").startswith("unknown")


def test_a_profile_without_the_sealed_ceilings_explains_nothing():
    forecast = make_forecast(roof=roof_of(cpu(0.8, 1.0), "fp16_tensor"))
    found = above_roof_reason(forecast, make_measurement(forecast, timing=FAST), make_hardware())
    assert found is not None and found.startswith("unknown")

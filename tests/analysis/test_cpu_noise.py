"""Tests what a calibration says of its own noise, and the load that a measurement on a CPU records."""

from __future__ import annotations

import pytest
from samples import burst, make_forecast, make_hardware, make_measurement, quantity

from ledger.analysis.cpu_noise import (
    CPU_LOAD,
    busy_text,
    calibration_notes,
    lower_than_before,
    others_percent,
    spread_percent,
)
from ledger.records import Calibration, Hardware


def measured(value: float, unit: str, *rounds: float) -> dict:
    return quantity(value, unit, kind="measured", **({"rounds": rounds} if rounds else {}))


def calibrated(*rounds: float, shares: tuple[float, ...] | None = (1.0, 3.0)) -> Hardware:
    """Return a profile whose DRAM bandwidth is the best of some rounds, in GB/s."""
    ceilings = {"peaks": {"fp32": measured(0.2, "TFLOP/s")}, "dram_bandwidth": measured(max(rounds), "GB/s", *rounds)}
    calibration = {"duration_s": 15.0, "others_percent": shares, "load_average": 4.5}
    return make_hardware(ceilings={"burst": ceilings}, calibration=calibration)


def test_spread_is_of_the_largest_round():
    assert spread_percent(calibrated(36.0, 72.0, 54.0).ceilings["burst"].dram_bandwidth) == 50
    assert spread_percent(make_hardware().ceilings["datasheet"].dram_bandwidth) is None


def test_a_quiet_calibration_says_nothing_and_a_noisy_one_names_the_ceiling_and_its_range():
    assert list(calibration_notes(calibrated(70.0, 72.0))) == []
    (note,) = calibration_notes(calibrated(36.0, 72.0))
    assert note.startswith("noisy: ") and note.endswith("dram_bandwidth 36 to 72 GB/s")
    assert list(calibration_notes(make_hardware())) == []


def test_a_busy_machine_is_named_with_its_shares_and_load():
    (note,) = calibration_notes(calibrated(70.0, 72.0, shares=(50.0, 30.0)))
    assert note.startswith("busy: other processes used 40% of the processors")
    assert "30% in the quietest round (load average 4.5 before)" in note and "calibrate again" in note
    assert busy_text(calibrated(70.0, shares=(9.0, 10.9)).calibration) is None
    assert busy_text(calibrated(70.0, shares=None).calibration) is None
    assert busy_text(None) is None


def test_notes_fit_a_line_of_a_profile():
    unit = "x" * 400
    many = {path: measured(2.0, "TFLOP/s", 1.0, 2.0) for path in ("fp64", "fp32", "fp16", "tf32_tensor", "fp16_tensor")}
    ceilings = {"peaks": many, "dram_bandwidth": measured(2.0, unit, 1.0, 2.0)}
    noisy = make_hardware(ceilings={"burst": ceilings})
    (note,) = calibration_notes(noisy)
    assert len(note) == 400


def test_a_calibration_below_the_one_before_is_named():
    earlier = make_hardware(ceilings={"burst": burst(0.072, 0.2)})
    assert list(lower_than_before(earlier, make_hardware(ceilings={"burst": burst(0.065, 0.2)}))) == []
    (note,) = lower_than_before(earlier, make_hardware(ceilings={"burst": burst(0.064, 0.2)}))
    assert note.startswith("low: ") and note.endswith("dram_bandwidth 0.064 where it was 0.072 TB/s")
    other = make_hardware(device_names=["Toy 2"], ceilings={"burst": burst(0.01, 0.2)})
    assert list(lower_than_before(earlier, other)) == []


@pytest.mark.parametrize(
    ("stored", "share"),
    [
        ({"others_ppm": 123_400, "window_ms": 50}, 12.34),
        ({"others_ppm": 0, "window_ms": 50}, 0),
        ({"others_ppm": 1_000_001}, None),
        ({"others_ppm": -1}, None),
        ({"others_ppm": True}, None),
        ({"others_ppm": "5"}, None),
        ({}, None),
        ([], None),
        (7, None),
    ],
)
def test_others_percent_reads_only_a_share(stored: object, share: float | None):
    forecast = make_forecast()
    assert others_percent(make_measurement(forecast, extensions={CPU_LOAD: stored})) == share
    assert others_percent(make_measurement(forecast)) is None


def test_a_round_must_hold_the_value():
    with pytest.raises(ValueError, match="value 73 is none of its 2 rounds"):
        make_hardware(ceilings={"burst": {**burst(1, 1), "dram_bandwidth": measured(73.0, "GB/s", 70.0, 72.0)}})
    assert Calibration(duration_s=1.0, others_percent=None, load_average=None)

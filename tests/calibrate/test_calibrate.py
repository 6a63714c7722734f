"""Runs the calibration of this machine's CPU."""

import time

import builders
import pytest
from ledger_process import run_ledger

from ledger.device import facts as device
from ledger.record_files import hardware_yaml, read_hardware
from ledger.roofline import base_units, roof_of

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be calibrated")


@pytest.mark.exhaustive
def test_calibrate_cpu_quick_writes_a_profile_of_this_machine_in_time(tmp_path):
    from ledger.calibrate.hardware_profile import calibrate_cpu

    steps = []
    started = time.monotonic()
    profile = calibrate_cpu(quick=True, on_progress=steps.append)
    assert time.monotonic() - started < 60  # 20 s on an idle machine with 2 cores, 30 s on a busy one
    assert device.profile_matches(profile, device.cpu_facts())
    burst = profile.ceilings["burst"]
    # A core of any processor that runs torch does at least a GFLOP/s and moves a GB/s; none does a PFLOP/s.
    for path in ("fp32", "fp64"):
        assert 1e9 < roof_of(profile, path).peak_flop_per_s < 1e15
    for quantity in (burst.dram_bandwidth, burst.peaks["fp32"], burst.peaks["fp64"]):
        assert quantity.value == max(quantity.rounds) and len(quantity.rounds) >= 4
    for quantity in (burst.dram_bandwidth, burst.dram_write_bandwidth, burst.dram_copy_bandwidth):
        assert (
            1e9 < base_units(quantity) < 1e13 and quantity.kind == "measured" and "MiB an array" in quantity.condition
        )
    assert base_units(burst.dram_bandwidth) == max(
        base_units(one) for one in (burst.dram_read_bandwidth, burst.dram_write_bandwidth, burst.dram_copy_bandwidth)
    )
    assert burst.launch_stream.value == min(burst.launch_stream.rounds)
    assert profile.calibration.duration_s >= 14
    assert len(steps) >= 6
    path = tmp_path / "cpu.yaml"
    path.write_bytes(hardware_yaml(profile))
    assert read_hardware(path) == profile


@pytest.mark.gpu
def test_calibrate_cuda_quick_gives_plausible_ceilings(tmp_path):
    from measuring import this_gpu

    from ledger.calibrate.hardware_profile import calibrate_cuda

    shipped = this_gpu()
    sheet = shipped.ceilings["burst"]
    peaks = dict.fromkeys(("fp32", "fp16_tensor"), sheet.peaks["fp32"])
    shipped = shipped.model_copy(update={"ceilings": {"datasheet": sheet.model_copy(update={"peaks": peaks})}})
    profile = calibrate_cuda(shipped, quick=True)
    burst = profile.ceilings["burst"]
    assert set(burst.peaks) == set(peaks) and profile.ceilings["datasheet"] == shipped.ceilings["datasheet"]
    assert burst.smem_bandwidth.value == pytest.approx(128, rel=0.05)
    assert base_units(burst.l2_bandwidth) > base_units(burst.dram_bandwidth)
    assert any(note.startswith("distrusted: fp32") for note in profile.notes)


def test_doubts_name_causes_under_half_and_distrust_above_105_percent():
    from samples import burst, make_hardware, quantity

    from ledger.calibrate.hardware_profile import doubts

    def said(bandwidth, peak):
        peaks = {"fp16_tensor": quantity(100.0, "TFLOP/s")}
        sheet = {"peaks": peaks, "dram_bandwidth": quantity(1.0, "TB/s")}
        hardware = make_hardware(ceilings={"datasheet": sheet, "burst": burst(bandwidth, peak)})
        return doubts(hardware, hardware.ceilings["burst"])

    assert said(0.5, 105.0) == ()
    (low,) = said(0.49, 80.0)
    assert low.startswith("low: dram_bandwidth is 49%") and "another process on the device" in low and "MIG" in low
    (high,) = said(0.9, 105.1)
    assert high.startswith("distrusted: fp16_tensor is 105%")


def test_a_profile_takes_the_versions_of_many_packages():
    from ledger.calibrate.hardware_profile import manifest

    facts = device.cpu_facts()
    installed = {f"platform-package-{number}": f"{number}.0.1" for number in range(100)}
    lines = manifest(facts.model_copy(update={"software": installed}))
    assert all(f"platform-package-{number} {number}.0.1" in " ".join(lines) for number in range(100))
    assert all(len(line) <= 400 for line in lines)


def test_a_profile_that_open_forecasts_name_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(builders, "VERSION", 2)
    ledger = builders.Ledger(tmp_path / "ledger")
    profile = builders.TOY.model_copy(update={"name": "cpu"})
    ledger.put_profile(profile)
    ledger.seal(builders.on_profile(profile, builders.forecast()))
    done = run_ledger("calibrate", "--device", "cpu", "--quick", cwd=ledger.root)
    assert done.returncode == 3
    assert "profile cpu is named by 1 open forecasts" in done.stderr and "--force" in done.stderr
    assert not (ledger.root / "hardware").exists()

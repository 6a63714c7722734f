"""Holds the measured ceilings of the H200 against every time of it in this repository: none is above its ceiling."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.calibrate.hardware_profile import impossible_clocks
from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware, read_hardware
from ledger.roofline import TENSOR_PATH, base_units

ROOT = Path(__file__).parents[2]
# A time that beats a ceiling stands here with its reason, or a new calibration is due.
NAMED: dict[tuple[str, str], str] = {}
# Columns that are no time of a call: bounds, intervals, and what a chain adds.
NOT_TIMED = ("floor_us", "ours_low_us", "ours_high_us", "elementwise_us")


def benched() -> Iterator[tuple[str, str, dict, str, dict[str, float]]]:
    for path in [*sorted((ROOT / "benchmarks").glob("*-h200.json")), ROOT / "benchmarks" / "h200.json"]:
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            times = {key: us for key, us in row.items() if key.endswith("_us") and isinstance(us, (int, float)) and us}
            times = {key: us for key, us in times.items() if key not in NOT_TIMED}
            if "B" in row:
                yield path.name, "rmsnorm_matmul", {key: row[key] for key in "BHO"}, row["dtype"], times
            else:
                yield path.name, row.get("kernel", "matmul"), row["shape"], row["dtype"], times


def recorded() -> Iterator[tuple[str, str, dict, str, dict[str, float]]]:
    for path in sorted((ROOT / "verifications").glob("*/*.json")):
        found = json.loads(path.read_bytes())
        if found.get("timing") and found["case"]["hardware"] == "h200" and ":" not in found["case"]["kernel"]:
            case = found["case"]
            yield path.stem, case["kernel"], case["shape"], case["dtype"], {"us": found["timing"]["median_ps"] / 1e6}


def test_no_record_and_no_bench_row_beats_a_ceiling_without_being_named():
    burst = load_hardware("h200", ROOT).ceilings["burst"]
    models, beaten, seen = {}, {}, 0
    for where, name, shape, dtype, times in (*benched(), *recorded()):
        if name not in models:
            models[name] = load_kernel(name).kernel
        work, path = models[name].work(shape, dtype), models[name].path(dtype, "sm_90", "triton")
        # The library's torch.matmul does less than a fused kernel's work, and by the same path.
        path = TENSOR_PATH.get(dtype, "fp32") if path.endswith("_tensor") else "fp32"
        bound_us = 1e6 * max(work.bytes / base_units(burst.dram_bandwidth), work.flops / base_units(burst.peaks[path]))
        for column, us in times.items():
            seen += 1
            if us < bound_us:
                beaten[where, f"{name} {shape} {dtype} {column}"] = f"{us:g} us, bound {bound_us:g}"
    assert seen > 1000
    assert beaten.keys() == NAMED.keys(), beaten


@pytest.mark.parametrize("kind", ["burst", "sustained"])
def test_each_measured_peak_names_its_call_and_could_run_at_its_clock(kind):
    profile = load_hardware("h200", ROOT)
    ceilings = profile.ceilings[kind]
    assert list(impossible_clocks(profile, ceilings)) == []
    for peak in ceilings.peaks.values():
        assert peak.clock_mhz and f"SM {peak.clock_mhz:g} MHz" in peak.condition
        assert peak.condition.split()[0] in ("library", "matmul", "matmul_fp8", "matmul_int8", "torch_matmul")
    assert ceilings.dram_bandwidth.condition.startswith("read by ")


def test_the_first_calibration_had_a_clock_that_could_not_be():
    # Its clocks are in the conditions alone: read after the rounds, when the power limit had lowered them.
    before = read_hardware_of("h200-20261121T094007Z")
    peak = before.ceilings["burst"].peaks["fp16_tensor"]
    assert "SM 1319 MHz" in peak.condition
    late = peak.model_copy(update={"clock_mhz": 1319.0})
    wrong = before.ceilings["burst"].model_copy(update={"peaks": {"fp16_tensor": late}})
    assert len(list(impossible_clocks(before, wrong))) == 1


def read_hardware_of(stem: str):
    from ledger.canonical import validate
    from ledger.record_files import parse_yaml
    from ledger.records import Hardware

    path = ROOT / "hardware" / "measured" / "dated" / f"{stem}.yaml"
    return validate(Hardware, parse_yaml(path.read_bytes(), what=stem), what=stem)


def test_the_current_measured_profile_is_one_of_the_dated():
    current = ROOT / "hardware" / "measured" / "h200.yaml"
    dated = [path.read_bytes() for path in (current.parent / "dated").glob("h200-*.yaml")]
    assert current.read_bytes() in dated and read_hardware(current).name == "h200"

"""Checks the shipped hardware profiles: every number sourced, dense, and consistent with width times clock."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from ledger.canonical import canonical, decode, encode, validate
from ledger.errors import EvidenceRefused, InputError, RecordError
from ledger.kernel_files import shipped_folder
from ledger.record_files import hardware_yaml
from ledger.records import Hardware, Peak, Quantity, Record
from ledger.records import Path as PeakPath
from ledger.roofline import base_units, ridge_point, roof_of

PATHS = sorted(shipped_folder("hardware").glob("*.yaml"))
NAMES = {
    *("a10", "a100_sxm", "a100_sxm_40gb", "b200", "b300", "gh200", "h100_nvl", "h100_pcie", "h100_sxm", "h20", "h200"),
    *("h200_nvl", "l4", "l40s", "mi300x", "mi325x", "rtx_4090", "rtx_5090", "t4"),
}
MATRIX_PATHS = ("fp64_tensor", "tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor", "int8_tensor", "fp4_tensor")


def load(path: Path) -> Hardware:
    return validate(Hardware, yaml.safe_load(path.read_text(encoding="utf-8")), what=path.name)


def named(name: str) -> Hardware:
    return load(shipped_folder("hardware") / f"{name}.yaml")


def quantities(record: Record) -> Iterator[Quantity]:
    for value in vars(record).values():
        children = value.values() if isinstance(value, dict) else [value]
        for child in children:
            if isinstance(child, Quantity):
                yield child
            elif isinstance(child, Record):
                yield from quantities(child)


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], order) for key in order.sample(sorted(value), len(value))}
    return value


def test_profiles_are_the_promised_ones():
    assert {path.stem for path in PATHS} >= NAMES


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_profile_validates_and_bears_its_files_name(path: Path):
    profile = load(path)
    assert profile.name == path.stem
    assert profile.device_names


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_number_has_a_known_unit_a_condition_and_a_named_source(path: Path):
    found = list(quantities(load(path)))
    assert len(found) >= 10
    for quantity in found:
        assert base_units(quantity) > 0
        assert len(quantity.condition) >= 8, quantity
        assert len(quantity.source) >= 12, quantity
        assert "FACTS" not in quantity.source


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_peak_equals_width_times_sms_times_rated_clock(path: Path):
    profile = load(path)
    peaks = [peak for peak in profile.ceilings["datasheet"].peaks.values() if peak is not None]
    restated = [peak for peak in peaks if peak.flop_per_clk_per_sm is not None and peak.clock_mhz is not None]
    assert len(restated) >= 2 or any("No rated clock is published" in note for note in profile.notes)
    for peak in restated:
        assert rated_tflop_per_s(peak, profile) == pytest.approx(peak.value, rel=0.01), peak


def rated_tflop_per_s(peak: Peak, profile: Hardware) -> float:
    assert peak.flop_per_clk_per_sm is not None and peak.clock_mhz is not None
    return peak.flop_per_clk_per_sm * profile.limits.sms * peak.clock_mhz / 1e6


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_path_is_stated_or_explicitly_absent(path: Path):
    profile = load(path)
    peaks = profile.ceilings["datasheet"].peaks
    assert set(peaks) - {"fp4_tensor"} == set(get_args(PeakPath)) - {"fp4_tensor"}
    if any(peak is None for peak in peaks.values()):
        assert any("null above" in note for note in profile.notes), "an absent path needs its reason in the notes"


# Worked by hand: peak ÷ bandwidth, both as printed by the vendor.
RIDGES = [
    ("h100_sxm", "fp16_tensor", 295.3),  # 989.4e12 / 3.35e12
    ("h100_sxm", "fp8_tensor", 590.7),  # 1978.9e12 / 3.35e12
    ("h100_sxm", "tf32_tensor", 147.7),  # 494.7e12 / 3.35e12
    ("h100_sxm", "fp32", 19.97),  # 66.9e12 / 3.35e12
    ("h200", "fp16_tensor", 206.1),  # 989.4e12 / 4.8e12
    ("h200", "bf16_tensor", 206.1),
    ("t4", "fp16_tensor", 203.4),  # 65.1e12 / 0.320e12
    ("t4", "fp32", 25.44),  # 8.14e12 / 0.320e12: the roof of a tl.dot under a current Triton
    ("a100_sxm", "bf16_tensor", 153.0),  # 312e12 / 2.039e12
    ("l4", "fp16_tensor", 403.3),  # 121e12 / 0.300e12
    ("b200", "fp16_tensor", 292.2),  # 2250e12 / 7.7e12
    ("rtx_4090", "fp16_tensor", 163.9),  # 165.2e12 / 1.008e12
    ("h20", "fp16_tensor", 37.0),  # 148e12 / 4.0e12
    ("mi300x", "fp16_tensor", 246.7),  # 1307.4e12 / 5.3e12
]


@pytest.mark.parametrize(("name", "path", "flop_per_byte"), RIDGES, ids=lambda value: str(value))
def test_ridge_point_is_the_one_worked_by_hand(name: str, path: Any, flop_per_byte: float):
    assert ridge_point(roof_of(named(name), path)) == pytest.approx(flop_per_byte, rel=5e-4)


# The figures with 2:4 sparsity of the datasheets; none may be a peak.
SPARSE = {
    "h100_sxm": {"tf32_tensor": 989.4, "fp16_tensor": 1978.9, "bf16_tensor": 1978.9, "fp8_tensor": 3957.8},
    "h200": {"tf32_tensor": 989, "fp16_tensor": 1979, "bf16_tensor": 1979, "fp8_tensor": 3958, "int8_tensor": 3958},
    "a100_sxm": {"tf32_tensor": 312, "fp16_tensor": 624, "bf16_tensor": 624, "int8_tensor": 1248},
    "l4": {"tf32_tensor": 120, "fp16_tensor": 242, "bf16_tensor": 242, "fp8_tensor": 485, "int8_tensor": 485},
    "b200": {"tf32_tensor": 2250, "fp16_tensor": 4500, "fp8_tensor": 9000, "int8_tensor": 9000, "fp4_tensor": 18000},
    "h100_pcie": {"tf32_tensor": 756, "fp16_tensor": 1513, "fp8_tensor": 3026, "int8_tensor": 3026},
    "h100_nvl": {"tf32_tensor": 835, "fp16_tensor": 1671, "fp8_tensor": 3341, "int8_tensor": 3341},
    "h200_nvl": {"tf32_tensor": 835, "fp16_tensor": 1671, "fp8_tensor": 3341, "int8_tensor": 3341},
    "gh200": {"tf32_tensor": 989, "fp16_tensor": 1979, "fp8_tensor": 3958, "int8_tensor": 3958},
    "a10": {"tf32_tensor": 125, "fp16_tensor": 250, "bf16_tensor": 250, "int8_tensor": 500},
    "l40s": {"tf32_tensor": 366, "fp8_tensor": 1466, "int8_tensor": 1466},  # fp16 is printed as 362.05 and 733
    "rtx_4090": {"tf32_tensor": 165.2, "fp16_tensor": 330.3, "fp8_tensor": 660.6, "int8_tensor": 1321},
    "rtx_5090": {"tf32_tensor": 209.5, "fp16_tensor": 419, "fp8_tensor": 838, "int8_tensor": 1676, "fp4_tensor": 3352},
    "h20": {"fp16_tensor": 296},
    "b300": {"tf32_tensor": 2250, "fp16_tensor": 4500, "fp8_tensor": 9000, "int8_tensor": 307},  # fp4 is no half
    "mi325x": {"fp16_tensor": 2614.9, "fp8_tensor": 5229.8},
    "mi300x": {"tf32_tensor": 1307.4, "fp16_tensor": 2614.9, "fp8_tensor": 5229.8, "int8_tensor": 5229.8},
}


@pytest.mark.parametrize("name", sorted(SPARSE))
def test_no_peak_is_a_sparsity_figure(name: str):
    profile = named(name)
    peaks: Any = profile.ceilings["datasheet"].peaks
    for path, sparse in SPARSE[name].items():
        assert peaks[path].value == pytest.approx(sparse / 2, rel=0.01), path
    for path in MATRIX_PATHS:
        if peaks.get(path) is not None:
            assert peaks[path].condition.startswith("dense, ")
    assert any(note.startswith("Sparsity:") for note in profile.notes)


def test_t4_lacks_what_turing_lacks():
    with pytest.raises(InputError, match="t4 has no bf16_tensor peak"):
        roof_of(named("t4"), "bf16_tensor")
    for path in ("tf32_tensor", "fp8_tensor", "fp64_tensor"):
        with pytest.raises(InputError, match="expected one of: fp16, fp16_tensor, fp32, fp64, int8_tensor"):
            roof_of(named("t4"), path)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_canonical_bytes_do_not_depend_on_the_order_of_the_yaml(path: Path):
    value = yaml.safe_load(path.read_text(encoding="utf-8"))
    again = yaml.safe_load(yaml.safe_dump(shuffled(value, random.Random(7)), sort_keys=False))
    assert list(again) != list(value)
    assert encode(validate(Hardware, again, what=path.name)) == encode(load(path))


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda peak: peak.pop("source"), "source"),
        (lambda peak: peak.update(unit="GB/s"), "unit"),
        (lambda peak: peak.update(value=0), "value"),
        (lambda peak: peak.update(kind="guess"), "kind"),
        (lambda peak: peak.update(value="989.4"), "value"),
    ],
    ids=["no-source", "wrong-unit", "zero", "guessed", "text"],
)
def test_a_spoiled_peak_is_refused_by_its_field(spoil: Any, field: str):
    value = yaml.safe_load((shipped_folder("hardware") / "h100_sxm.yaml").read_text(encoding="utf-8"))
    spoil(value["ceilings"]["datasheet"]["peaks"]["fp16_tensor"])
    with pytest.raises(RecordError, match=rf"h100_sxm.yaml: ceilings.datasheet.peaks.fp16_tensor.{field}"):
        validate(Hardware, value, what="h100_sxm.yaml")


def test_a_sparse_peak_breaks_width_times_clock():
    profile = named("h100_sxm")
    peak = profile.ceilings["datasheet"].peaks["fp16_tensor"]
    assert peak is not None
    sparse = peak.model_copy(update={"value": 1979.0})
    assert rated_tflop_per_s(sparse, profile) != pytest.approx(sparse.value, rel=0.01)


# What sealed profiles had, and what calibrated ones have now


def sealed_profiles() -> list[Path]:
    folder = Path(__file__).parent.parent / "predictions" / "objects"
    return [path for path in sorted(folder.glob("*/*")) if b'"schema":"ledger/hardware/1"' in path.read_bytes()]


def test_profiles_sealed_before_rounds_were_kept_have_their_bytes():
    found = sealed_profiles()
    assert found
    for path in found:
        assert encode(decode(Hardware, path.read_bytes(), what=path.name)) == path.read_bytes()


def calibrated() -> dict[str, Any]:
    value = yaml.safe_load((shipped_folder("hardware") / "h200.yaml").read_text())
    bandwidth = value["ceilings"]["datasheet"]["dram_bandwidth"]
    bandwidth["rounds"] = [bandwidth["value"] / 2, bandwidth["value"]]
    return {**value, "calibration": {"duration_s": 15.0, "others_percent": [0.5, 12.0], "load_average": 1.25}}


def test_rounds_and_calibration_are_stored_and_read_back():
    record = validate(Hardware, calibrated(), what="h200")
    data = encode(record)
    assert b'"rounds":[' in data and b'"others_percent":[0.5,12]' in data
    assert decode(Hardware, data, what="h200") == record
    assert validate(Hardware, yaml.safe_load(hardware_yaml(record)), what="h200") == record


@pytest.mark.parametrize("field", ["calibration", "rounds"])
def test_an_absent_field_is_left_out_and_never_null(field: str):
    value = yaml.safe_load((shipped_folder("hardware") / "h200.yaml").read_text())
    assert f'"{field}"'.encode() not in encode(validate(Hardware, value, what="h200"))
    (value if field == "calibration" else value["ceilings"]["datasheet"]["dram_bandwidth"])[field] = None
    record = validate(Hardware, value, what="h200")
    stored = json.loads(encode(record))
    (stored if field == "calibration" else stored["ceilings"]["datasheet"]["dram_bandwidth"])[field] = None
    with pytest.raises(EvidenceRefused, match="canonical form"):
        decode(Hardware, canonical(stored), what="h200")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"others_percent": [101.0]}, "others_percent"),
        ({"others_percent": []}, "others_percent"),
        ({"load_average": -1.0}, "load_average"),
        ({"duration_s": 0.0}, "duration_s"),
        ({"seconds": 1.0}, "seconds"),
    ],
)
def test_a_spoiled_calibration_is_refused_by_its_field(changes: dict[str, Any], field: str):
    value = calibrated()
    value["calibration"].update(changes)
    with pytest.raises(RecordError, match=field):
        validate(Hardware, value, what="h200")

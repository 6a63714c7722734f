"""Tests the places of version 2 records, and that version 1 stays as strict as it was."""

from __future__ import annotations

import json
from typing import Any

import builders
import pytest
from samples import make_forecast, make_measurement, second

from ledger.analysis.hiding import PUBLIC
from ledger.canonical import canonical, cell_key, decode, decode_any, encode, record_id, validate
from ledger.errors import LedgerError
from ledger.records import (
    MAX_INTEGER,
    CaseV2,
    Forecast,
    ForecastV2,
    KernelSource,
    MeasurementV2,
    Prediction,
    PredictionV2,
    RoofV2,
)


@pytest.fixture(autouse=True)
def second_version(monkeypatch):
    monkeypatch.setattr(builders, "VERSION", 2)


def with_everything() -> PredictionV2:
    """Return a seal that uses every place of version 2."""
    plain = builders.forecast()
    arguments = (
        {"name": "x", "dtype": "fp16", "dims": ["B", "2*H"], "below": None, "value": None},
        {"name": "ids", "dtype": "i64", "dims": ["B"], "below": 32_000, "value": None},
        {"name": "eps", "dtype": "float", "dims": None, "below": None, "value": "1e-6"},
    )
    case = {
        **plain.case.model_dump(mode="json"),
        "kernel": "mypkg.ops:swiglu",
        "config": {"block_m": 64, "variant": "warp_specialized"},
        "arguments": arguments,
    }
    forecast = plain.model_dump(mode="json") | {
        "case": case,
        "cell": "mypkg.ops.swiglu-B4-H64-O32-fp16",
        "roof": {**plain.roof.model_dump(mode="json"), "peak_flop_per_s": str(2 * 10**16)},
        "sight": "near",
        "known": "the same shape in bf16",
        "pins": {"torch": "==2.11.*"},
        "draw": {"domain_seal": "ab" * 32, "challenge": "cd" * 32, "index": 3},
    }
    other = {**case, "shape": {"B": 8, "H": 64, "O": 32}}
    revision = {"commit": "1" * 40, "kernel_sha256": "ee" * 32}
    ratio = {
        "cell": "faster", "case": other, "base": revision, "head": {**revision, "commit": "2" * 40},
        "operation": plain.operation, "hardware_sha256": plain.hardware_sha256,
        "protocol": {"name": "interleaved/1", "parameters": {"fold": 1}}, "sight": None, "known": "",
        "pins": {"triton": ">=3"}, "ratio_ppm": 1_050_000, "low_ppm": 1_000_000, "high_ppm": 1_100_000,
        "why": "fewer bytes",
    }  # fmt: skip
    domain = {
        "kernel": "matmul", "kernel_sha256": "aa" * 32, "dtypes": ["fp16"], "hardware": "h200",
        "hardware_sha256": "bb" * 32, "cells": 3, "deadline": "2026-12-01T00:00:00Z", "auditor_sha256": None,
        "beacon": {"sealed_at": "2023-08-23T15:49:24Z", "delay_s": 600, "round": 1000},
        "sizes": {"M": {"low": 128, "high": 4096, "multiple_of": 8}},
    }  # fmt: skip
    value = json.loads(encode(builders.prediction(plain))) | {
        "rule": "regime/2",
        "participant": {"kind": "model", "version": "2026-11", "sha256": "aa" * 32},
        "cells": [forecast],
        "commitments": [
            {name: forecast[name] for name in PUBLIC} | {"cell": "hidden", "case": other, "sha256": "ff" * 32}
        ],
        "ratios": [ratio],
        "domain": domain,
    }
    return validate(PredictionV2, value, what="seal")


def test_every_place_of_version_2_is_stored_and_read_again():
    record = with_everything()
    data = encode(record)
    assert data == canonical(json.loads(data))
    assert decode_any(data, what="seal") == record
    forecast = record.cells[0]
    assert forecast.roof.peak_flop_per_s == 2 * 10**16
    assert b'"peak_flop_per_s":"20000000000000000"' in data
    assert cell_key(forecast.case) == "mypkg.ops.swiglu-B4-H64-O32-fp16"


def test_ids_of_version_2_are_sha256_of_domain_and_bytes():
    assert record_id(PredictionV2, b"{}") == "2b73e10755c70dd5f971300bba2c0ca7599eab10a8619004ed3ec7c096cb38ea"
    assert record_id(MeasurementV2, b"{}") == "a540b05744874c4e93365b16d94d42340d3621576c9c9a079f4ece6e522a999e"
    assert len({record_id(kind, b"{}") for kind in (Prediction, PredictionV2, MeasurementV2)}) == 3


@pytest.mark.parametrize("peak", ["9007199254740991", "0", "09007199254740992", "9e15", "-1", "1" * 42, 0, 1.5])
def test_a_large_integer_has_one_form(peak):
    roof = {"ceilings": "datasheet", "path": "fp16_tensor", "peak_flop_per_s": peak, "bandwidth_bytes_per_s": 1}
    with pytest.raises(LedgerError):
        validate(RoofV2, roof, what="roof")


def test_a_large_integer_is_a_number_up_to_the_largest_exact_one():
    for peak in (MAX_INTEGER, MAX_INTEGER + 1):
        roof = RoofV2(ceilings="burst", path="fp16", peak_flop_per_s=peak, bandwidth_bytes_per_s=1)
        stored = json.loads(roof.model_dump_json())["peak_flop_per_s"]
        assert stored == (peak if peak == MAX_INTEGER else str(peak))
        assert RoofV2.model_validate_json(roof.model_dump_json()) == roof


VERSION_1_ONLY: dict[str, dict[str, Any]] = {
    "text-in-config": {"case": {"config": {"variant": "generic"}}},
    "arguments": {"case": {"arguments": None}},
    "callable": {"case": {"kernel": "mypkg.ops:swiglu"}},
    "sight": {"sight": "blind"},
    "pins": {"pins": {}},
    "large-peak": {"roof": {"peak_flop_per_s": str(2**53)}},
}


@pytest.mark.parametrize("change", VERSION_1_ONLY.values(), ids=VERSION_1_ONLY)
def test_version_1_has_none_of_the_places_of_version_2(change):
    value = make_forecast().model_dump(mode="json")
    validate(Forecast, value, what="forecast")
    for key, part in change.items():
        value[key] = {**value[key], **part} if isinstance(part, dict) and key in value else part
    with pytest.raises(LedgerError):
        validate(Forecast, value, what="forecast")


def test_a_seal_says_something_and_each_cell_once():
    value = json.loads(encode(with_everything()))
    empty = {**value, "cells": [], "commitments": [], "ratios": [], "domain": None}
    with pytest.raises(LedgerError, match="the seal is empty"):
        validate(PredictionV2, empty, what="seal")
    assert validate(PredictionV2, {**empty, "domain": value["domain"]}, what="seal").cells == ()
    twice = {**value, "ratios": [{**value["ratios"][0], "cell": "hidden"}]}
    with pytest.raises(LedgerError, match="cell hidden is duplicated"):
        validate(PredictionV2, twice, what="seal")


def test_a_measurement_of_version_2_says_what_ran_and_where():
    forecast = builders.forecast()
    record = make_measurement(forecast)
    assert isinstance(forecast, ForecastV2) and isinstance(record, MeasurementV2)
    value = json.loads(encode(record)) | {
        "ran": [{"language": "cuda", "name": "matmul_cluster", "sha256": "ab" * 32}],
        "attempts": [{"started_at": "2026-01-02T03:04:05Z", "node": "n1", "reason": "the node was lost"}],
        "node": "n2",
    }
    value["device"] |= {"uuid": "cd" * 32, "power_limit_mw": 700_000}
    value["timing"]["sm_clock_mhz"] = [1980, *[None] * (len(value["timing"]["rounds_ps"]) - 1)]
    data = canonical(value)
    assert encode(decode(MeasurementV2, data, what="m")) == data
    for part, field, wrong in (
        ("device", "uuid", "GPU-0"),
        ("device", "power_limit_mw", 0),
        ("timing", "sm_clock_mhz", value["timing"]["sm_clock_mhz"][:-1]),
    ):
        with pytest.raises(LedgerError, match=field if part == "device" else "clocks for"):
            validate(MeasurementV2, {**value, part: {**value[part], field: wrong}}, what="m")
    for moment in ("2026-01-02", "٢٠٢٦-01-02T03:04:05Z"):
        with pytest.raises(LedgerError, match="started_at"):
            validate(MeasurementV2, {**value, "started_at": moment}, what="m")


# Manifests

FILE = {"path": "kernels/k.py", "module": "kernels.k", "sha256": "ab" * 32}
WRONG_MANIFESTS = {
    "no-files": {"files": []},
    "module-elsewhere": {"files": [FILE, {**FILE, "path": "kernels/z.py", "module": "other"}]},
    "module-of-ledger": {"files": [{**FILE}, {**FILE, "path": "ledger/kernel.py", "module": "ledger.kernel"}]},
    "python-without-module": {"files": [FILE, {**FILE, "path": "kernels/z.py", "module": None}]},
    "absent-twice": {"absent": ["a", "a"]},
    "entry-missing": {"entry": "kernels.other"},
    "unsorted": {"files": [FILE, {**FILE, "path": "a.py", "module": "a"}]},
    "path-twice": {"files": [FILE, FILE]},
    "module-twice": {"files": [FILE, {**FILE, "path": "kernels/l.py"}]},
    "absolute": {"files": [{**FILE, "path": "/etc/k.py"}]},
    "climbs": {"files": [{**FILE, "path": "kernels/../k.py"}]},
    "hidden": {"files": [{**FILE, "path": ".git/config"}]},
    "escape": {"files": [{**FILE, "path": "k\x1b.py"}]},
    "other-contract": {"contract": "kernel-contract/x"},
}


@pytest.mark.parametrize("change", WRONG_MANIFESTS.values(), ids=WRONG_MANIFESTS)
def test_a_manifest_that_cannot_be_is_refused(change):
    value = json.loads(builders.manifest_of()) | {"files": [FILE], "entry": "kernels.k"}
    validate(KernelSource, value, what="manifest")
    with pytest.raises(LedgerError):
        validate(KernelSource, value | change, what="manifest")


def test_version_2_reads_wherever_version_1_does():
    case = CaseV2(**second(CaseV2, dict(make_forecast().case)))
    assert case.cell == make_forecast().case.cell

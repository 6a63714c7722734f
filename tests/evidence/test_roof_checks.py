"""Tests what is disclosed of a sealed roof: numbers unlike the shipped profile's, and a path unlike the dtype's."""

from __future__ import annotations

import pytest
from builders import forecast
from samples import TOY

from ledger.evidence.roof_checks import unlike_path, unlike_shipped, usual_path
from ledger.record_files import load_hardware, shipped_like
from ledger.records import Work
from ledger.roofline import roof_of

H200 = load_hardware("h200")


def rated(**changes):
    """Return the shipped profile of an H200 with a changed datasheet."""
    sheet = H200.ceilings["datasheet"].model_copy(update=changes)
    return H200.model_copy(update={"ceilings": {**H200.ceilings, "datasheet": sheet}})


def messages(sealed):
    return [finding.message for finding in unlike_shipped(sealed, shipped_like(sealed))]


def product(path: str, hardware=H200, **changes):
    """Return a forecast of 1 TFLOP on 1 MB: 1 ms at 1000 TFLOP/s, 15 ms at 66.9."""
    work = Work(flops=10**12, bytes_read=900_000, bytes_written=100_000)
    return forecast(work=work, roof=roof_of(hardware, path), **changes)


def test_shipped_profiles_are_like_themselves_and_a_device_of_ones_own_is_compared_with_none():
    assert messages(H200) == [] and messages(TOY) == [] and shipped_like(TOY) == ()


def test_each_number_that_a_roof_or_a_refusal_rests_on_is_compared():
    peaks = H200.ceilings["datasheet"].peaks
    wider = peaks["fp16_tensor"].model_copy(update={"flop_per_clk_per_sm": 40_960})
    lower = peaks["fp16_tensor"].model_copy(update={"value": 494.7})
    limits = H200.limits.model_copy(update={"sms": 66, "max_clock_mhz": 990.0})
    assert messages(rated(peaks={**peaks, "fp16_tensor": wider})) == [
        "profile h200: datasheet fp16_tensor is 40960 FLOP/clk/SM; expected 4096, in the shipped profile h200"
    ]
    assert (
        "datasheet fp16_tensor peak is 495 TFLOP/s; expected 989 TFLOP/s"
        in messages(rated(peaks={**peaks, "fp16_tensor": lower}))[0]
    )
    assert "datasheet fp16_tensor peak is not given" in messages(rated(peaks={**peaks, "fp16_tensor": None}))[0]
    assert len(messages(H200.model_copy(update={"limits": limits}))) == 2
    assert len(messages(H200.model_copy(update={"target": "sm_80"}))) == 1


def test_path_that_makes_a_product_slower_is_named_with_what_it_does_to_the_percent():
    (finding,) = unlike_path(product("fp32"), H200)
    # 989.4 over 66.9 TFLOP/s.
    assert (finding.code, finding.severity) == ("path-unlike-dtype", "flag") and "14.8 times" in finding.message
    assert not list(unlike_path(product("fp16_tensor"), H200))


@pytest.mark.parametrize("path", ["fp32", "fp16_tensor"])
def test_path_of_a_memory_bound_product_changes_no_percent(path):
    work = Work(flops=10**6, bytes_read=10**9, bytes_written=1)
    assert not list(unlike_path(forecast(work=work, roof=roof_of(H200, path)), H200))


def test_where_there_is_no_usual_path():
    """Triton has no tensor cores on sm_75, softmax has no products, and the toy device no bf16 path."""
    t4 = load_hardware("t4")
    assert usual_path(product("fp32", t4), t4) is None
    softmax = product("fp32").model_copy(update={"operation": "softmax/1"})
    case = softmax.case.model_copy(update={"shape": {"M": 4, "N": 4}})
    assert usual_path(softmax.model_copy(update={"case": case}), H200) is None
    assert usual_path(forecast(dtype="bf16"), TOY) is None
    assert usual_path(product("fp16_tensor"), H200) == "fp16_tensor"

"""Plants comparisons that cannot have passed, and the ones just inside the bound."""

from __future__ import annotations

from typing import Any

import pytest
from samples import make_forecast, make_measurement

from ledger.analysis.correctness_bounds import correctness
from ledger.records import Correctness, Forecast, Samples

FORECAST = make_forecast()  # B=8, O=64: 512 outputs
CALLABLE = make_forecast(case=FORECAST.case.model_copy(update={"kernel": "mypkg.ops:norm", "dtype": "bf16"}))
UNKNOWN = make_forecast(operation="another/1")


def told(forecast: Forecast = FORECAST, position: int = 0, **changes: Any) -> list[str]:
    fields: dict[str, Any] = {
        "passed": True,
        "reference": "float64",
        "elements": 512,
        "max_abs_error": "1.000000e-03",
        "relative_error": "1e-3",
        "atol": "1e-3",
        "rtol": "1e-3",
    }
    samples = Samples(dtype="fp16", positions=(position,), bits=("3c00",))
    record = make_measurement(FORECAST, correctness=Correctness(**{**fields, **changes}), samples=samples)
    return [
        one.split(" ")[0] if "passed with" not in one else one.split(" ")[2] for one in correctness(forecast, record)
    ]


@pytest.mark.parametrize("forecast", [FORECAST, CALLABLE, UNKNOWN], ids=["kernel", "callable", "unknown"])
@pytest.mark.parametrize("name", ["max_abs_error", "relative_error", "atol", "rtol"])
def test_an_error_that_is_no_finite_number_never_passed(forecast: Forecast, name: str) -> None:
    assert told(forecast) == []
    for text in ("nan", "inf", "1e999", "-1", "0x1p3", "1_0", "small", ""):
        if text:
            assert told(forecast, **{name: text}) == [name]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"max_abs_error": "1.0"}, []),
        ({"max_abs_error": "1.1"}, ["max_abs_error"]),  # 0.001 + 0.001 x 1000 outputs' sizes
        ({"relative_error": "0.1"}, []),
        ({"relative_error": "0.11"}, ["relative_error"]),  # 0.001 + 0.001 / 0.01
        ({"atol": "1.0"}, []),
        ({"atol": "1.1"}, ["atol"]),
        ({"rtol": "1.0"}, []),
        ({"rtol": "1.1"}, ["rtol"]),
        ({"elements": 511}, ["511"]),
        ({"elements": 1}, ["1"]),
    ],
)
def test_a_kernel_of_a_known_operation_is_bounded(changes: dict[str, Any], names: list[str]) -> None:
    assert told(**changes) == names


def test_few_outputs_may_be_small_and_so_far_off_in_proportion() -> None:
    few = make_forecast(shape={"B": 1, "H": 64, "O": 63})
    assert told(few, elements=63, relative_error="5") == []


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"atol": "0.15", "rtol": "0.15"}, []),  # the widest of bf16
        ({"atol": "0.16"}, ["atol"]),
        ({"rtol": "1e9"}, ["rtol"]),
        ({"max_abs_error": "0.033"}, []),  # 0.001 + 0.001 x sqrt(1024)
        ({"max_abs_error": "0.034"}, ["max_abs_error"]),
        ({"relative_error": "0.034"}, ["relative_error"]),
        ({"elements": 1, "position": 1}, []),
        ({"elements": 1, "position": 2}, ["1"]),
    ],
)
def test_a_callable_is_bounded_by_what_its_unit_allows(changes: dict[str, Any], names: list[str]) -> None:
    assert told(CALLABLE, **changes) == names


def test_the_sealed_tolerance_of_a_callable_is_not_exceeded() -> None:
    case = CALLABLE.case.model_copy(update={"config": {"tolerance": "0.002"}})
    sealed = CALLABLE.model_copy(update={"case": case})
    assert told(sealed, atol="0.002", rtol="0.002") == []
    assert told(sealed, atol="0.0021", rtol="0.0021") == ["atol", "rtol"]


def test_what_failed_is_not_judged() -> None:
    record = make_measurement(FORECAST)
    assert record.correctness is not None
    failed = record.correctness.model_copy(update={"passed": False, "max_abs_error": "nan"})
    assert list(correctness(FORECAST, record.model_copy(update={"correctness": failed}))) == []

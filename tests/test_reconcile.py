"""Tests the verdict on a measured cell."""

from __future__ import annotations

import pytest
from samples import MS, TOY, failed, make_forecast, make_measurement, make_timing

from ledger.reconcile import gap, measured_regime, refutations, verify_cell
from ledger.records import Finding, Work

FORECAST = make_forecast()


def test_verdict_without_counters_keeps_the_percent() -> None:
    finding = Finding(code="clock-moved", severity="flag", path="p", message="m")
    verdict = verify_cell(
        forecast=FORECAST, measurement=make_measurement(FORECAST), hardware=TOY, blind=False, findings=(finding,)
    )
    assert (verdict.predicted_regime, verdict.measured_regime, verdict.grade) == ("hbm-bound", None, "C")
    assert verdict.predicted_percent == 80.0
    assert verdict.measured_percent == pytest.approx(50.0)
    assert verdict.gap is not None
    assert verdict.gap.sentence.endswith("; regime not determined (ncu is not installed).")
    assert (verdict.blind, verdict.findings) == (False, (finding,))


def test_verdict_on_a_failed_cell_measures_nothing() -> None:
    verdict = verify_cell(forecast=FORECAST, measurement=failed(FORECAST), hardware=TOY, blind=True, findings=())
    assert (verdict.measured_regime, verdict.measured_percent, verdict.grade, verdict.gap) == (None, None, None, None)


def test_verdict_on_empty_work_does_not_divide_by_nothing() -> None:
    empty = make_forecast(work=Work(flops=0, bytes_read=0, bytes_written=0))
    verdict = verify_cell(forecast=empty, measurement=make_measurement(empty), hardware=TOY, blind=True, findings=())
    assert (verdict.measured_percent, verdict.gap) == (0.0, None)


def test_reason_from_the_record_cannot_act() -> None:
    measurement = make_measurement(FORECAST, counters_missing="no\x1b[31m \u202ecounters\n" + "x" * 500)
    _, _, reason = measured_regime(FORECAST, measurement, TOY)
    assert reason.startswith("no<U+001B>[31m <U+202E>counters ")
    assert len(reason) < 200


def test_functions_agree() -> None:
    measurement = make_measurement(FORECAST, timing=make_timing(2 * MS))
    verdict = verify_cell(forecast=FORECAST, measurement=measurement, hardware=TOY, blind=True, findings=())
    assert verdict.gap == gap(FORECAST, measurement, TOY)
    assert refutations(forecast=FORECAST, measurement=measurement, hardware=TOY) == ()

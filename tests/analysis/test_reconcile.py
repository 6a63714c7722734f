"""Tests the verdict on a measured cell."""

from __future__ import annotations

import pytest
from profiled import counters
from samples import MS, TOY, failed, make_forecast, make_measurement, make_timing

from ledger.analysis.reconcile import gap, measured_regime, preview_timed_loads, refutations, verify_cell
from ledger.errors import RecordError
from ledger.records import Finding, Measurement, Work

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
    reason = measured_regime(FORECAST, measurement, TOY).reason
    assert reason.startswith("no<U+001B>[31m <U+202E>counters ")
    assert len(reason) < 200


def test_functions_agree() -> None:
    measurement = make_measurement(FORECAST, timing=make_timing(2 * MS))
    verdict = verify_cell(forecast=FORECAST, measurement=measurement, hardware=TOY, blind=True, findings=())
    assert verdict.gap == gap(FORECAST, measurement, TOY)
    assert refutations(forecast=FORECAST, measurement=measurement, hardware=TOY) == ()


def profiled(**changes: str) -> Measurement:
    return make_measurement(FORECAST, counters=counters(**changes), counters_missing=None)


def test_verdict_with_counters_has_grade_a_and_a_regime() -> None:
    verdict = verify_cell(forecast=FORECAST, measurement=profiled(), hardware=TOY, blind=True, findings=())
    assert (verdict.measured_regime, verdict.grade) == ("latency-bound", "A")
    assert verdict.gap is not None
    # 1.1 GB in 2 ms is 550 GB/s: ×1.1 of work, ×800/550 = ×1.45 of rate.
    assert verdict.gap.sentence == (
        "30.0 points below the forecast (50.0% for 80%): while moving, DRAM delivered 550 GB/s where the forecast "
        "needs 800 GB/s (×1.45, unexplained), and DRAM moved 1.10 GB where the model counts 1.00 GB (×1.10); "
        "latency-bound, not hbm-bound: "
        "nothing reaches 60% of its peak (DRAM 55%, L2 57%, SMEM 10%, arithmetic pipe 9%), with 0.97 waves and 12% of "
        "the warps active."
    )


def test_verdict_follows_the_counters() -> None:
    def regime(**changes: str) -> str | None:
        verdict = verify_cell(forecast=FORECAST, measurement=profiled(**changes), hardware=TOY, blind=True, findings=())
        return verdict.measured_regime

    assert regime(dram_percent="71.5") == "hbm-bound"
    assert regime(l2_percent="71.5") == "l2-bound"
    assert regime(smem_percent="71.5") == "smem-bound"
    assert regime(tensor_percent="71.5") == "compute-bound"


def test_counters_of_a_wrong_unit_are_an_error() -> None:
    with pytest.raises(RecordError, match="value is"):
        measured_regime(FORECAST, profiled(dram_percent="lots"), TOY)


REGIME_2 = {"l2_read_percent": "20", "l2_write_percent": "5", "l2_sector_percent": "15", "xu_percent": "3"}


def test_the_sealed_rule_decides() -> None:
    # Timed at 1.6 ms and profiled at 2 ms: DRAM 55% of the profiled launch is 69% of the timed call.
    changes = {"counters": counters(**REGIME_2), "counters_missing": None, "timing": make_timing(1_600_000_000)}
    measurement = make_measurement(FORECAST, **changes)
    assert measured_regime(FORECAST, measurement, TOY).regimes == ("latency-bound",)
    found = measured_regime(FORECAST, measurement, TOY, rule="regime/2")
    assert found.regimes == ("hbm-bound",) and found.reason.startswith("DRAM has the highest load (DRAM 69%, L2 25%")


def test_two_regimes_are_both_right() -> None:
    # 55% × 2 / 1.85 = 59.5%: within 2 points of the threshold.
    changes = {"counters": counters(**REGIME_2), "counters_missing": None, "timing": make_timing(1_850_000_000)}
    verdict = verify_cell(
        forecast=FORECAST,
        measurement=make_measurement(FORECAST, **changes),
        hardware=TOY,
        blind=True,
        findings=(),
        rule="regime/2",
    )
    assert verdict.regimes == ("latency-bound", "hbm-bound") and verdict.regime_is_right
    assert verdict.gap is not None and "latency-bound or hbm-bound, as forecast" in verdict.gap.sentence


def test_a_record_of_before_the_rule_is_not_determined_by_it() -> None:
    measurement = profiled()
    assert measured_regime(FORECAST, measurement, TOY, rule="regime/2").regimes == ()
    preview = preview_timed_loads(FORECAST, measurement, TOY)
    assert preview is not None and preview.regimes == ()  # L2's own readings are absent
    preview = preview_timed_loads(FORECAST, profiled_with_l2(), TOY)
    assert preview is not None and preview.regimes == ("latency-bound",)


def profiled_with_l2() -> Measurement:
    own = {name: value for name, value in REGIME_2.items() if name != "xu_percent"}
    return make_measurement(FORECAST, counters=counters(**own), counters_missing=None)

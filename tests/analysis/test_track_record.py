"""Tests confusion, calibration and track record on cells whose verdicts are set by hand."""

from __future__ import annotations

import pytest
from samples import make_book, make_forecast, make_measurement, make_sealed, make_view

from ledger.analysis.book import Book, CellView
from ledger.analysis.track_record import calibration, confusion, outcome_of, track_record
from ledger.records import Finding, Regime

WHEN = {"cc": 0, "dd": 5}


def cell(seal: str, number: int, said: Regime, found: Regime | None, percent: float, **changes: object) -> CellView:
    """Return a cell forecast at 80% (70-90) in one regime and measured in another; the verdict is set by hand."""
    forecast = make_forecast(
        shape={"B": number, "H": 64, "O": 64}, regime=said, percent_milli=80_000, low_milli=70_000, high_milli=90_000,
        **changes,
    )  # fmt: skip
    sealed = make_sealed(forecast, identity=seal * 32, position=WHEN[seal], campaign=f"campaign_{seal}")
    view = make_view(sealed, forecast, make_measurement(forecast))
    (run,) = view.runs
    gap = run.verification.gap
    assert gap is not None
    verdict = run.verification.model_copy(
        update={
            "measured_regime": found,
            "also_regime": None,
            "measured_percent": percent,
            "gap": gap.model_copy(update={"percent": percent - 80}),
        }
    )
    object.__setattr__(run, "verification", verdict)
    return view


def book() -> Book:
    return make_book(
        cell("dd", 1, "hbm-bound", "hbm-bound", 84.0),
        cell("cc", 2, "hbm-bound", "hbm-bound", 78.0, probabilities_ppm={"hbm-bound": 900_000, "l2-bound": 100_000}),
        cell("cc", 3, "hbm-bound", "l2-bound", 60.0, probabilities_ppm={"hbm-bound": 950_000, "l2-bound": 50_000}),
        cell("cc", 4, "compute-bound", None, 95.0),
    )


def test_confusion_counts_each_determined_regime_once() -> None:
    assert confusion(book()) == {("hbm-bound", "hbm-bound"): 2, ("hbm-bound", "l2-bound"): 1}


def test_calibration_sets_stated_probabilities_against_what_was_measured() -> None:
    bins = calibration(book())
    # Two forecasts of six regimes each: 0 (4 each) and 5% in the lowest bin, 10% in the next,
    # 90% and 95% in the highest.
    assert [found.count for found in bins] == [9, 1, 2]
    assert [found.stated for found in bins] == pytest.approx([0.05 / 9, 0.1, 0.925])
    # Of the lowest the 5% came true, the 10% did not, and of the highest one of two.
    assert [found.observed for found in bins] == pytest.approx([1 / 9, 0, 0.5])


def test_track_record_is_in_the_order_of_the_seals() -> None:
    first, second = track_record(book())
    assert (first.campaign, second.campaign) == ("campaign_cc", "campaign_dd")
    # Gaps of -2, -20 and +15; one percent of three inside 70-90; one of two determined regimes right.
    assert (first.outcome.measured, first.outcome.intervals, first.outcome.regimes) == (3, 3, 2)
    assert first.outcome.error == pytest.approx(37 / 3)
    assert first.outcome.bias == pytest.approx(-7 / 3)
    assert first.outcome.in_interval == pytest.approx(1 / 3)
    assert first.outcome.regime_right == pytest.approx(1 / 2)
    assert (second.outcome.measured, second.outcome.error) == (1, pytest.approx(4.0))


def test_nothing_is_counted_of_no_cell_and_of_a_refused_ledger() -> None:
    assert outcome_of([]).error is None and outcome_of([]).regime_right is None
    refused = make_book(*book().cells, findings=(Finding(code="edited", severity="refused", path="p", message="m"),))
    assert (confusion(refused), calibration(refused), track_record(refused)) == ({}, (), ())

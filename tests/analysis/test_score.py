"""Tests the scores on ledgers small enough to score by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import failed, make_book, make_forecast, make_sealed, make_view
from scored import view

from ledger.analysis import score
from ledger.analysis.regime_probabilities import brier_score, log_score, probabilities_of
from ledger.analysis.score import group_by, interval_scores, score_book
from ledger.errors import UnknownName
from ledger.records import REGIMES, Finding, Regime


def test_bias_is_signed_and_error_is_not() -> None:
    # Gaps −30 and +10: bias −10, error 20.
    (only,) = score_book(make_book(view(percent=80, measured=50), view(percent=30, measured=40)))
    assert (only.measured, only.sealed) == (2, 2)
    assert only.bias == pytest.approx(-10)
    assert only.error == pytest.approx(20)


def test_nothing_measured_scores_nothing() -> None:
    (only,) = score_book(make_book(view(percent=80, measured=None, low_milli=0, high_milli=90_000)))
    assert (only.sealed, only.measured, only.intervals, only.regimes) == (1, 0, 0, 0)
    scored = (only.bias, only.error, only.coverage, only.interval_score, only.regime_right, only.brier, only.log_score)
    assert scored == (None,) * 7


def test_failed_cells_score_nothing() -> None:
    made = make_forecast()
    (only,) = score_book(make_book(make_view(make_sealed(made), made, failed(made))))
    assert (only.measured, only.error) == (0, None)


def test_undetermined_regime_scores_the_percent_only() -> None:
    (only,) = score_book(make_book(view(percent=50, measured=50, regime=None)))
    assert only.error == pytest.approx(0)
    assert (only.regimes, only.regime_right, only.brier, only.log_score) == (0, None, None, None)


def test_blind_and_informed_and_forecasters_stand_apart() -> None:
    scores = score_book(
        make_book(
            view(percent=80, measured=50, forecaster="bob"),
            view(percent=80, measured=50, blind=False),
            view(percent=60, measured=50),
        )
    )
    assert [(s.forecaster, s.blind, s.error) for s in scores] == [
        ("ada", True, pytest.approx(10)),
        ("ada", False, pytest.approx(30)),
        ("bob", True, pytest.approx(30)),
    ]


def test_refused_ledger_scores_nobody() -> None:
    finding = Finding(code="edited", severity="refused", path="p", message="m")
    assert score_book(make_book(view(percent=80, measured=50), findings=(finding,))) == ()


@pytest.mark.parametrize(
    ("low", "high", "measured", "expected"),
    [
        (40, 60, 50, 20),
        (40, 60, 40, 20),
        (40, 60, 60, 20),
        (40, 60, 35, 20 + 10 * 5),
        (40, 60, 75, 20 + 10 * 15),
        (0, 100, 50, 100),
    ],
)
def test_interval_score(low: float, high: float, measured: float, expected: float) -> None:
    (score,) = interval_scores(*np.array([[low], [high], [measured]]))
    assert score == pytest.approx(expected)


def test_coverage_leaves_out_vacuous_intervals_and_their_score_counts() -> None:
    book = make_book(
        view(percent=50, measured=50, low_milli=40_000, high_milli=60_000),  # held: 20
        view(percent=50, measured=80, low_milli=40_000, high_milli=60_000),  # missed by 20: 20 + 200
        view(percent=50, measured=50, low_milli=5_000, high_milli=95_000),  # vacuous: 90
        view(percent=50, measured=50, low_milli=5_001, high_milli=95_000),  # just not: 89.999
        view(percent=50, measured=50),
    )
    (only,) = score_book(book)
    assert (only.intervals, only.vacuous) == (4, 1)
    assert only.coverage == pytest.approx(2 / 3)
    assert only.interval_score == pytest.approx((20 + 220 + 90 + 89.999) / 4)


def test_only_vacuous_intervals_cover_nothing() -> None:
    (only,) = score_book(make_book(view(percent=50, measured=50, low_milli=0, high_milli=100_000)))
    assert (only.vacuous, only.coverage) == (1, None)


def test_brier_and_log_of_stated_probabilities() -> None:
    # 0.8 and 0.2, the second happened: 0.8² + 0.8² = 1.28, −ln 0.2 = 1.609.
    ppm: dict[Regime, int] = {"hbm-bound": 800_000, "latency-bound": 200_000}
    (only,) = score_book(make_book(view(percent=50, measured=50, regime="latency-bound", probabilities_ppm=ppm)))
    assert only.brier == pytest.approx(1.28)
    assert only.log_score == pytest.approx(1.6094379)
    assert only.regime_right == 0.0


def test_bare_regime_is_certain() -> None:
    book = make_book(
        view(percent=50, measured=50, regime="hbm-bound"), view(percent=50, measured=50, regime="l2-bound")
    )
    (only,) = score_book(book)
    # Right: 0 and 0. Wrong: 1 + 1 = 2, and −ln of a millionth = 13.8155.
    assert only.regime_right == 0.5
    assert only.brier == pytest.approx(1.0)
    assert only.log_score == pytest.approx(13.815511 / 2)


shares = st.lists(st.integers(min_value=0, max_value=1000), min_size=6, max_size=6).filter(any)


@given(truth=shares, other=shares)
def test_scores_are_proper(truth: list[int], other: list[int]) -> None:
    """No forecast is expected to score better than the truth itself."""
    p = {regime: share / sum(truth) for regime, share in zip(REGIMES, truth, strict=True)}
    q = {regime: share / sum(other) for regime, share in zip(REGIMES, other, strict=True)}
    for rule in (brier_score, log_score):
        honest = math.fsum(p[regime] * rule(p, regime) for regime in REGIMES)
        dishonest = math.fsum(p[regime] * rule(q, regime) for regime in REGIMES)
        assert honest <= dishonest + 1e-4  # the floor of a millionth costs the log score a trifle


def test_probabilities_cover_every_regime() -> None:
    assert probabilities_of(make_forecast()) == {regime: float(regime == "hbm-bound") for regime in REGIMES}


@pytest.mark.parametrize(("measured", "share"), [(40.0, 1.0), (60.0, 1.0), (39.9, 0.0), (60.1, 0.0)])
def test_the_ends_of_an_interval_belong_to_it(measured: float, share: float) -> None:
    shown = view(percent=50, measured=measured, low_milli=40_000, high_milli=60_000)
    run = shown.runs[0]
    verdict = run.verification.model_copy(update={"measured_percent": measured})
    exact = dataclasses.replace(shown, runs=(dataclasses.replace(run, verification=verdict),))
    (only,) = score_book(make_book(exact))
    assert only.coverage == share


def test_document_is_plain() -> None:
    assert score.document(score_book(make_book(view(percent=60, measured=None))))[0]["error"] is None


def test_errors_of_log_time_do_not_depend_on_the_height_of_the_roof() -> None:
    # 10 against 12.5 and 40 against 50: both are a time of four fifths of the forecast.
    low = score_book(make_book(view(percent=10, measured=12.5)))[0]
    high = score_book(make_book(view(percent=40, measured=50)))[0]
    assert low.log_error == pytest.approx(math.log(1.25)) == pytest.approx(high.log_error)
    assert low.log_bias == pytest.approx(-math.log(1.25))
    assert (low.error, high.error) == (pytest.approx(2.5), pytest.approx(10))


def test_weighted_interval_score_is_that_of_bracher_et_al() -> None:
    """By hand, of ln time: (½ |y - m| + α/2 · interval score) ÷ 1.5, and |y - m| without an interval."""
    stated = view(percent=50, measured=80, low_milli=40_000, high_milli=60_000)
    fast, slow, seen = math.log(50 / 60), math.log(50 / 40), math.log(50 / 80)
    interval = (slow - fast) + 10 * (fast - seen)
    (only,) = score_book(make_book(stated))
    assert only.wis == pytest.approx((0.5 * abs(seen) + 0.1 * interval) / 1.5)
    (bare,) = score_book(make_book(view(percent=50, measured=80)))
    assert bare.wis == pytest.approx(abs(seen)) == pytest.approx(bare.log_error)


def test_an_interval_down_to_zero_has_a_finite_score() -> None:
    (only,) = score_book(make_book(view(percent=50, measured=50, low_milli=0, high_milli=60_000)))
    assert only.wis is not None and math.isfinite(only.wis)


def test_groups_stand_apart_and_an_unknown_one_is_named() -> None:
    book = make_book(
        view(percent=80, measured=50, regime="l2-bound"),
        view(percent=80, measured=60, regime="hbm-bound"),
        view(percent=80, measured=None),
    )
    assert [(s.group, s.measured, s.sealed) for s in score_book(book, "regime")] == [
        ("hbm-bound", 1, 1), ("l2-bound", 1, 1),
    ]  # fmt: skip
    assert [(s.group, s.measured, s.sealed) for s in score_book(book, "kernel")] == [("rmsnorm_matmul", 2, 3)]
    assert [s.group for s in score_book(book, "hw")] == ["toy"]
    with pytest.raises(UnknownName, match="regime"):
        group_by("regimes")


def test_interval_of_a_mean_stands_beside_it_from_five_cells_on() -> None:
    (four,) = score_book(make_book(*(view(percent=80, measured=50 + n) for n in range(4))))
    (five,) = score_book(make_book(*(view(percent=80, measured=50 + n) for n in range(5))))
    assert (four.ci95, four.resampled) == ({}, None)
    low, high = five.ci95["error"]
    assert five.error == pytest.approx(28) and low < 28 < high and five.resampled == "cell"


def test_calibration_has_the_wilson_interval() -> None:
    ppm: dict[Regime, int] = {"hbm-bound": 500_000, "l2-bound": 500_000}
    views = [view(percent=50, measured=50, regime="hbm-bound", probabilities_ppm=ppm) for _ in range(4)]
    (only,) = score_book(make_book(*views))
    middle = next(one for one in only.calibration if one.stated == 0.5)
    # Four of eight at 95%: Wilson's interval is 0.215 to 0.785.
    assert (middle.count, middle.observed) == (8, 0.5)
    assert (middle.low, middle.high) == (pytest.approx(0.2152, abs=1e-4), pytest.approx(0.7848, abs=1e-4))

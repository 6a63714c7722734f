"""Scores a forecaster: errors, intervals and probabilities, each sight apart. Pure.

Units: errors and interval scores in points of percent-of-roof. Only cells that were measured are scored, every
revision on its own, and every forecast of one case, by the first run of it that it was sealed before. What cannot be
scored is None, never zero, and every mean has its count. Undeclared forecasts stand apart: they count as blind nowhere.

    bias            mean of measured minus predicted
    error           mean of |measured minus predicted|
    coverage        share of the intervals that hold the measured percent; vacuous ones left out
    interval score  (high - low) + 2/α · (how far outside), α = 0.2: an interval is read as one of 80%
    Brier score     Σ over regimes of (probability - outcome)², from 0 (best) to 2
    log score       -ln of the probability given to the regime that was measured

A regime without probabilities counts as probability 1. A probability of zero counts as one millionth, the resolution
of the record, so that one certain mistake costs 13.8 and not infinity. An interval of 90 points or more is vacuous: it
is left out of coverage and counted apart; its interval score still counts.

Source: Gneiting, Raftery, "Strictly Proper Scoring Rules, Prediction, and Estimation", JASA 102(477), 2007 (interval
score: section 6.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from ledger.analysis.book import Book, CellView
from ledger.analysis.sight import SIGHTS
from ledger.records import REGIMES, Forecast, Regime, Sight

INTERVAL_ALPHA = 0.2
VACUOUS_POINTS = 90.0
LEAST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class Score:
    """Hold the scores of one forecaster for one sight, None where it is undeclared. blind: whether it is blind."""

    forecaster: str
    sight: Sight | None
    blind: bool
    sealed: int
    measured: int
    bias: float | None
    error: float | None
    intervals: int
    vacuous: int
    coverage: float | None
    interval_score: float | None
    regimes: int
    regime_right: float | None
    brier: float | None
    log_score: float | None


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None


def interval_score(low: float, high: float, measured: float) -> float:
    """Return the interval (Winkler) score of one interval, in points; lower is better."""
    outside = max(low - measured, 0.0, measured - high)
    return (high - low) + 2 / INTERVAL_ALPHA * outside


def probabilities_of(forecast: Forecast) -> dict[Regime, float]:
    """Return the probability of every regime; all on the forecast regime where none were given."""
    if forecast.probabilities_ppm is None:
        return {regime: float(regime == forecast.regime) for regime in REGIMES}
    return {regime: forecast.probabilities_ppm.get(regime, 0) / 1e6 for regime in REGIMES}


def brier_score(probabilities: Mapping[Regime, float], *outcomes: Regime) -> float:
    """Return the Brier score over all regimes, from 0 (certain and right) to 2 (certain and wrong).

    Where a verdict names two regimes they count as one event, with the sum of their probabilities.
    """
    right = math.fsum(probabilities.get(regime, 0.0) for regime in outcomes)
    others = (share**2 for regime, share in probabilities.items() if regime not in outcomes)
    return math.fsum([(1 - right) ** 2, *others])


def log_score(probabilities: Mapping[Regime, float], *outcomes: Regime) -> float:
    """Return -ln of the probability given to what happened, in nats."""
    right = math.fsum(probabilities.get(regime, 0.0) for regime in outcomes)
    return -math.log(max(right, LEAST_PROBABILITY))


def score_book(book: Book) -> tuple[Score, ...]:
    """Return the scores of every forecaster, blind, near, informed, undeclared; none when it is refused."""
    if book.refused:
        return ()
    order = (*SIGHTS, None)
    groups: dict[tuple[str, int], list[CellView]] = {}
    for view in book.cells:
        groups.setdefault((view.sealed.prediction.forecaster, order.index(view.sight)), []).append(view)
    return tuple(_score(name, order[place], groups[name, place]) for name, place in sorted(groups))


def _score(forecaster: str, sight: Sight | None, views: Sequence[CellView]) -> Score:
    results: list[tuple[Forecast, float, tuple[Regime, ...]]] = []
    for view in views:
        verdict = view.scored.verification if view.scored else None
        if verdict is not None and verdict.measured_percent is not None:
            results.append((view.forecast, verdict.measured_percent, verdict.regimes))
    gaps = [measured - forecast.percent_milli / 1000 for forecast, measured, _ in results]
    intervals = [
        (forecast.low_milli / 1000, forecast.high_milli / 1000, measured)
        for forecast, measured, _ in results
        if forecast.low_milli is not None and forecast.high_milli is not None
    ]
    informative = [(low, high, measured) for low, high, measured in intervals if high - low < VACUOUS_POINTS]
    regimes = [(forecast, named) for forecast, _, named in results if named]
    return Score(
        forecaster=forecaster,
        sight=sight,
        blind=sight == "blind",
        sealed=len(views),
        measured=len(results),
        bias=_mean(gaps),
        error=_mean(abs(points) for points in gaps),
        intervals=len(intervals),
        vacuous=len(intervals) - len(informative),
        coverage=_mean(float(low <= measured <= high) for low, high, measured in informative),
        interval_score=_mean(interval_score(*interval) for interval in intervals),
        regimes=len(regimes),
        regime_right=_mean(float(forecast.regime in named) for forecast, named in regimes),
        brier=_mean(brier_score(probabilities_of(forecast), *named) for forecast, named in regimes),
        log_score=_mean(log_score(probabilities_of(forecast), *named) for forecast, named in regimes),
    )


def document(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Return the scores as JSON values; what cannot be scored is null."""
    return [asdict(score) for score in scores]

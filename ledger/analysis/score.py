"""Scores a forecaster: errors, intervals and probabilities, each sight apart. Pure.

Units: errors and interval scores in points of percent-of-roof, log errors in nats. Only measured cells are scored, each
revision on its own, and every forecast of one case, by the first run of it that it was sealed before. What cannot be
scored is None, never zero, and every mean has its count. Undeclared forecasts stand apart: they count as blind nowhere.

    bias            mean of measured minus predicted
    error           mean of |measured minus predicted|
    log error       mean of |ln(measured ÷ predicted time)|; log bias: its signed mean
    WIS             weighted interval score of ln time: the interval's ends are its quantiles of 10 and 90%, the percent
                    is its median; |ln(measured ÷ predicted time)| where there is no interval. It needs the extra score
    coverage        share of the intervals that hold the measured percent; vacuous ones left out
    interval score  (high - low) + 2/α · (how far outside), α = 0.2: an interval is read as one of 80%
    Brier score     Σ over regimes of (probability - outcome)², from 0 (best) to 2
    log score       -ln of the probability given to the regime that was measured

A regime without probabilities counts as probability 1. A probability of zero counts as one millionth, the resolution
of the record, so that one certain mistake costs 13.8 and not infinity. An interval of 90 points or more is vacuous: it
is left out of coverage and counted apart; its interval score still counts.

`ci95` has the interval of each mean (resampling.py). `repeat_percent` is what repeats of the same cells differ by in
the median, `machine_percent` what chips of one kind do, `timing_percent` half the interval of a run's own median time:
an error below these shows no skill.

Source: Gneiting, Raftery, "Strictly Proper Scoring Rules, Prediction, and Estimation", JASA 102(477), 2007 (interval
score: section 6.2). WIS: Bracher, Ray, Gneiting, Reich, PLOS Computational Biology 17(2), 2021.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any, Literal

from ledger.analysis.book import Book, CellView
from ledger.analysis.machines import shared_cells
from ledger.analysis.resampling import Unit, mean_interval, resampling_of
from ledger.analysis.results import Result, result_of
from ledger.analysis.sight import SIGHTS
from ledger.analysis.track_record import Calibration, calibration_of, probabilities_of
from ledger.errors import UnknownName
from ledger.records import Regime, Sight
from ledger.suggestions import unknown

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
    group: str | None
    log_error: float | None
    log_bias: float | None
    wis: float | None
    ci95: Mapping[str, tuple[float, float]]
    resampled: Unit | None
    repeats: int
    repeat_percent: float | None
    machines: int
    machine_percent: float | None
    timing_percent: float | None
    calibration: tuple[Calibration, ...]


GroupBy = Literal["kernel", "hw", "regime"]
GROUPS: tuple[GroupBy, ...] = ("kernel", "hw", "regime")


def group_by(text: str) -> GroupBy:
    """Return what is grouped by, by its name. Raises: UnknownName."""
    for name in GROUPS:
        if text == name:
            return name
    raise UnknownName(f"--by: {unknown('group', text, GROUPS)}")


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None


def interval_score(low: float, high: float, measured: float) -> float:
    """Return the interval (Winkler) score of one interval, in points; lower is better."""
    outside = max(low - measured, 0.0, measured - high)
    return (high - low) + 2 / INTERVAL_ALPHA * outside


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


def score_book(book: Book, by: GroupBy | None = None) -> tuple[Score, ...]:
    """Return the scores of every forecaster, blind, near, informed, undeclared; none when it is refused.

    by: score each kernel, GPU or measured regime apart; cells without a measurement are then left out of `regime`.
    """
    if book.refused:
        return ()
    order = (*SIGHTS, None)
    groups: dict[tuple[str, int, str], list[tuple[CellView, Result | None]]] = {}
    for view in book.cells:
        result = result_of(view)
        name = _group_name(view, result, by)
        if name is not None:
            key = (view.sealed.prediction.forecaster, order.index(view.sight), name)
            groups.setdefault(key, []).append((view, result))
    # What was never revealed is sealed and not measured.
    for view in book.hidden:
        name = _group_name(view, None, by)
        if name is not None:
            key = (view.sealed.prediction.forecaster, order.index(view.sight), name)
            groups.setdefault(key, []).append((view, None))
    between = {name: cell.percent for cell in shared_cells(book) for name in cell.names}
    return tuple(
        _score(forecaster, order[place], name if by else None, groups[forecaster, place, name], between)
        for forecaster, place, name in sorted(groups)
    )


def _group_name(view: CellView, result: Result | None, by: GroupBy | None) -> str | None:
    """Return the name of a cell's group: of a regime it is the measured one, so None without a result."""
    case = view.forecast.case
    names = {"kernel": case.kernel, "hw": case.hardware, None: ""}
    return (result.regime if result else None) if by == "regime" else names[by]


def score_of_nothing(forecaster: str) -> Score:
    """Return the score of a forecaster of no cell."""
    return _score(forecaster, None, None, (), {})


def _score(
    forecaster: str,
    sight: Sight | None,
    group: str | None,
    pairs: Sequence[tuple[CellView, Result | None]],
    between: Mapping[str, float],
) -> Score:
    results = [(view.forecast, result) for view, result in pairs if result is not None]
    only = [result for _, result in results]
    intervals = [
        (forecast.low_milli / 1000, forecast.high_milli / 1000, result.measured, result.kernel)
        for forecast, result in results
        if forecast.low_milli is not None and forecast.high_milli is not None
    ]
    informative = [one for one in intervals if one[1] - one[0] < VACUOUS_POINTS]
    regimes = [(forecast, result) for forecast, result in results if result.regimes]
    spreads = [result.spread for result in only if result.spread is not None]
    machines = [between[view.name] for view, result in pairs if result is not None and view.name in between]
    means = _Means()
    wis = weighted_interval_scores(only)
    return Score(
        forecaster=forecaster,
        sight=sight,
        blind=sight == "blind",
        sealed=len(pairs),
        measured=len(results),
        bias=means.of("bias", [(one.measured - one.predicted, one.kernel) for one in only]),
        error=means.of("error", [(abs(one.measured - one.predicted), one.kernel) for one in only]),
        intervals=len(intervals),
        vacuous=len(intervals) - len(informative),
        coverage=means.of("coverage", [(float(low <= seen <= high), name) for low, high, seen, name in informative]),
        interval_score=means.of(
            "interval_score", [(interval_score(low, high, seen), name) for low, high, seen, name in intervals]
        ),
        regimes=len(regimes),
        regime_right=means.of(
            "regime_right", [(float(said.regime in one.regimes), one.kernel) for said, one in regimes]
        ),
        brier=means.of(
            "brier", [(brier_score(probabilities_of(said), *one.regimes), one.kernel) for said, one in regimes]
        ),
        log_score=means.of(
            "log_score", [(log_score(probabilities_of(said), *one.regimes), one.kernel) for said, one in regimes]
        ),
        group=group,
        log_error=means.of("log_error", [(abs(one.log_error), one.kernel) for one in only]),
        log_bias=means.of("log_bias", [(one.log_error, one.kernel) for one in only]),
        wis=None if wis is None else means.of("wis", [(s, one.kernel) for s, one in zip(wis, only, strict=True)]),
        ci95=means.intervals,
        resampled=resampling_of([one.kernel for one in only]).unit if "error" in means.intervals else None,
        repeats=len(spreads),
        repeat_percent=median(spreads) if spreads else None,
        machines=len(machines),
        machine_percent=median(machines) if machines else None,
        timing_percent=median(one.timing_percent for one in only) if only else None,
        calibration=calibration_of((said, one.regimes) for said, one in regimes),
    )


class _Means:
    """Compute means, and keep the interval of each by its name."""

    def __init__(self) -> None:
        self.intervals: dict[str, tuple[float, float]] = {}

    def of(self, name: str, values: Sequence[tuple[float, str]]) -> float | None:
        """Return the mean of values, each with its kernel; None without any."""
        found = mean_interval([value for value, _ in values], [kernel for _, kernel in values])
        if found is not None:
            self.intervals[name] = found
        return _mean(value for value, _ in values)


def weighted_interval_scores(results: Sequence[Result]) -> list[float] | None:
    """Return the weighted interval score of each result, of ln time; None where scoringrules is not installed.

    It is computed as the CRPS of the three quantiles, which is the same: weighted_interval_score of scoringrules 0.10
    adds the median itself where the distance to the median belongs.
    """
    try:
        import scoringrules
    except ImportError:
        return None
    if not results:
        return []
    import numpy as np

    errors = np.array([one.log_error for one in results])
    stated = np.array([one.quantiles for one in results])
    found = scoringrules.crps_quantile(errors, stated, np.array([INTERVAL_ALPHA / 2, 0.5, 1 - INTERVAL_ALPHA / 2]))
    return [float(value) for value in np.atleast_1d(found)]


def document(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Return the scores as JSON values; what cannot be scored is null."""
    return [asdict(score) for score in scores]

"""Scores a forecaster: errors, intervals and probabilities, each sight apart. Pure.

Units: errors and interval scores in points of percent-of-roof, log errors in nats. Only measured cells are scored, each
revision on its own, and every forecast of one case, by the first run of it that it was sealed before. What cannot be
scored is None, never zero, and every mean has its count. Undeclared forecasts stand apart: they count as blind nowhere.

    bias            mean of measured minus predicted
    error           mean of |measured minus predicted|
    log error       mean of |ln(measured ÷ predicted time)|; log bias: its signed mean
    WIS             weighted interval score of ln time: the interval's ends are its quantiles of 10 and 90%, the percent
                    is its median; |ln(measured ÷ predicted time)| where there is no interval
    coverage        share of the intervals that hold the measured percent; vacuous ones left out
    interval score  (high - low) + 2/α · (how far outside), α = 0.2: an interval is read as one of 80%
    Brier score     Σ over regimes of (probability - outcome)², from 0 (best) to 2
    log score       -ln of the probability given to the regime that was measured

A regime without probabilities counts as probability 1. An interval of 90 points or more is vacuous: it is left out of
coverage and counted apart; its interval score still counts.

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
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from ledger.analysis.book import Book
from ledger.analysis.machines import SharedCell, chip_times, shared_cells
from ledger.analysis.resampling import Resampling, Unit, ratio_interval, resampling_of
from ledger.analysis.results import Results, coded, groups_of, log_quantiles, results_of, scored_cells
from ledger.analysis.sight_names import SIGHTS
from ledger.analysis.track_record import Calibration, calibration_of
from ledger.errors import UnknownName
from ledger.records import Sight
from ledger.suggestions import unknown

if TYPE_CHECKING:
    from ledger.analysis.resampling import Array
    from ledger.analysis.results import Numbers

INTERVAL_ALPHA = 0.2
VACUOUS_POINTS = 90.0


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


def interval_scores(lows: Array, highs: Array, measured: Array) -> Array:
    """Return the interval (Winkler) score of each interval, in points; lower is better."""
    import numpy as np

    outside = np.maximum(np.maximum(lows - measured, 0.0), measured - highs)
    scores: Array = (highs - lows) + 2 / INTERVAL_ALPHA * outside
    return scores


def score_book(book: Book, by: GroupBy | None = None) -> tuple[Score, ...]:
    """Return the scores of every forecaster, blind, near, informed, undeclared; none when it is refused.

    by: as for score_cells.
    """
    return score_cells(results_of(scored_cells(book)), shared_cells(chip_times(book)), by)


def score_cells(cells: Results, shared: Iterable[SharedCell], by: GroupBy | None = None) -> tuple[Score, ...]:
    """Return the scores of every forecaster of some cells. shared: cases that several chips measured.

    by: score each kernel, GPU or measured regime apart; cells without a measurement are then left out of `regime`.
    """
    order: tuple[Sight | None, ...] = (*SIGHTS, None)
    (forecasters, who), (sights, seen) = cells.coded("forecaster"), cells.coded("sight")
    names, which = coded(_group_names(cells, by))
    groups = {
        (forecasters[one], order.index(sights[sight]), names[name]): members
        for (one, sight, name), members in groups_of(who, seen, which)
        # What was never revealed is sealed and not measured.
        if names[name] is not None
    }
    between = {name: one.percent for one in shared for name in one.names}
    return tuple(
        _score(forecaster, order[place], name if by else None, cells, groups[forecaster, place, name], between)
        for forecaster, place, name in sorted(groups)
    )


def _group_names(cells: Results, by: GroupBy | None) -> Sequence[str | None]:
    """Return the name of each cell's group: of a regime it is the first one measured, so None without a result."""
    if by == "regime":
        results = zip(cells["measured"], cells["regimes"], strict=True)
        return [None if measured is None else found[0] if found else "not determined" for measured, found in results]
    return [""] * len(cells["kernel"]) if by is None else cells["kernel" if by == "kernel" else "hardware"]


def score_of_nothing(forecaster: str) -> Score:
    """Return the score of a forecaster of no cell."""
    import numpy as np

    return _score(forecaster, None, None, results_of(()), np.arange(0), {})


def _score(
    forecaster: str,
    sight: Sight | None,
    group: str | None,
    cells: Results,
    members: Numbers,
    between: Mapping[str, float],
) -> Score:
    """Return the score of those cells whose numbers are given."""
    import numpy as np

    only = members[~np.isnan(cells.array("measured")[members])]
    measured, errors, kernels = cells.array("measured")[only], cells.array("log_error")[only], cells.coded("kernel")[1]
    percents, lows, highs = (cells.array(f"{name}_milli")[only] / 1000 for name in ("percent", "low", "high"))
    stated = ~np.isnan(lows + highs)
    informative = stated & (highs - lows < VACUOUS_POINTS)
    verdicts = cells.of("regimes", only)
    judged = only[np.fromiter(map(bool, verdicts), bool, len(only))]
    right = [
        float(said in found) for said, found in zip(cells.of("regime", judged), filter(None, verdicts), strict=True)
    ]
    spreads = cells.array("spread")[only]
    spreads = spreads[~np.isnan(spreads)].tolist()
    named = zip(cells.of("seal", only), cells.of("cell", only), strict=True) if between else ()
    machines = [between[name] for seal, cell in named if (name := f"{seal}#{cell}") in between]
    means = _Means()
    every, with_regime = resampling_of(kernels[only]), resampling_of(kernels[judged])
    return Score(
        forecaster=forecaster,
        sight=sight,
        blind=sight == "blind",
        sealed=len(members),
        measured=len(only),
        bias=means.of("bias", measured - percents, every),
        error=means.of("error", np.abs(measured - percents), every),
        intervals=int(stated.sum()),
        vacuous=int((stated & ~informative).sum()),
        coverage=means.of(
            "coverage",
            ((lows <= measured) & (measured <= highs))[informative].astype(float),
            resampling_of(kernels[only[informative]]),
        ),
        interval_score=means.of(
            "interval_score",
            interval_scores(lows, highs, measured)[stated],
            resampling_of(kernels[only[stated]]),
        ),
        regimes=len(judged),
        regime_right=means.of("regime_right", np.array(right), with_regime),
        brier=means.of("brier", np.nan_to_num(cells.array("brier")[judged]), with_regime),
        log_score=means.of("log_score", np.nan_to_num(cells.array("log_score")[judged]), with_regime),
        group=group,
        log_error=means.of("log_error", np.abs(errors), every),
        log_bias=means.of("log_bias", errors, every),
        wis=means.of("wis", weighted_interval_scores(errors, log_quantiles(percents, lows, highs)), every),
        ci95=means.intervals,
        resampled=every.unit if "error" in means.intervals else None,
        repeats=len(spreads),
        repeat_percent=median(spreads) if spreads else None,
        machines=len(machines),
        machine_percent=median(machines) if machines else None,
        timing_percent=median(cells.array("timing_percent")[only].tolist()) if len(only) else None,
        calibration=calibration_of(cells.of("shares", judged)),
    )


class _Means:
    """Compute means, and keep the interval of each by its name."""

    def __init__(self) -> None:
        self.intervals: dict[str, tuple[float, float]] = {}

    def of(self, name: str, values: Array, how: Resampling) -> float | None:
        """Return the mean of values, given how they are resampled; None without any."""
        found = ratio_interval(values, None, how)
        if found is not None:
            self.intervals[name] = found
        return math.fsum(values.tolist()) / len(values) if len(values) else None


def weighted_interval_scores(errors: Array, quantiles: Array) -> Array:
    """Return the weighted interval score of each result, of ln time.

    It is twice the mean pinball loss of the three quantiles. Shapes: (cells,), (cells, 3) -> (cells,).
    """
    import numpy as np

    levels = np.array([INTERVAL_ALPHA / 2, 0.5, 1 - INTERVAL_ALPHA / 2])
    above = errors[:, None] - quantiles
    scores: Array = 2 * np.maximum(levels * above, (levels - 1) * above).mean(axis=1)
    return scores


def document(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Return the scores as JSON values; what cannot be scored is null."""
    return [asdict(score) for score in scores]

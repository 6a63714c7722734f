"""Lists what scores and rankings need of each sealed cell, flat, so that it can be kept. Pure.

The error of a forecast is ln(measured ÷ predicted time). The roof is common to both, so it is the logarithm of the
predicted over the measured percent: 0.1 is 10% too slow at any height of the roof, where a point of percent-of-roof is
20% of the time at 5% and 1% at 100%.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ledger.analysis.book import Book, CellView
from ledger.analysis.machines import ChipTime, chip_times_of
from ledger.analysis.regime_probabilities import brier_score, log_score, probabilities_of, stated_shares
from ledger.analysis.repeats import spread_percent
from ledger.canonical import cell_key, object_id
from ledger.records import Prediction, PredictionV2, Regime, Sight

LEAST_PERCENT = 0.001
"""The resolution of the record, which an interval's lower end of 0 counts as."""


class ScoredCell(NamedTuple):
    """Hold what scores need of one sealed cell. Units: percent of the roof, in thousandths where it is sealed.

    program: whether the seal is a program's. case: what forecasters share; those of one case are compared. measured:
    None where nothing is scored, as are `brier` and `log_score` without a measured regime; log_error is 0 there.
    shares: as stated_shares. spread: of its own runs, in percent of the time. timing_percent: half the interval of the
    run's median time. naive_roofline to persistence: the percent that each baseline would have answered, None where it
    does not or nothing is scored. The fields after it are what persistence asks and is told of: sizes by the names of
    the shape's keys, work and roof in base units, the position of the seal's commit, those of the measured runs with
    their times in ps.
    """

    seal: str
    cell: str
    forecaster: str
    sight: Sight | None
    hidden: bool
    case: str
    kernel: str
    hardware: str
    regime: Regime
    percent_milli: int
    low_milli: int | None
    high_milli: int | None
    measured: float | None
    log_error: float
    regimes: Sequence[Regime]
    brier: float | None
    log_score: float | None
    shares: Sequence[tuple[float, bool]]
    spread: float | None
    timing_percent: float
    chips: Sequence[ChipTime]
    naive_roofline: float | None = None
    measured_roofline: float | None = None
    no_overlap: float | None = None
    rule_of_thumb: float | None = None
    persistence: float | None = None
    asked: bool = False
    dtype: str = ""
    shape: str = ""
    flops: int = 0
    bytes: int = 0
    peak_flop_per_s: int = 0
    bandwidth_bytes_per_s: int = 0
    position: int = 0
    runs: Sequence[tuple[int, int]] = ()
    program: bool = False

    @property
    def predicted(self) -> float:
        """Return the forecast in percent of the roof."""
        return self.percent_milli / 1000

    @property
    def name(self) -> str:
        """Return SEAL#CELL."""
        return f"{self.seal}#{self.cell}"


Results = Mapping[str, Sequence[Any]]
"""Cells by columns, each named as a field of ScoredCell."""


def results_of(cells: Iterable[ScoredCell]) -> Results:
    """Return cells by columns."""
    listed = list(cells)
    if not listed:
        return dict.fromkeys(ScoredCell._fields, ())
    return dict(zip(ScoredCell._fields, zip(*listed, strict=True), strict=True))


def scored_cells(book: Book) -> list[ScoredCell]:
    """Return the cells of a book, those still hidden last, without baselines; none where it is refused."""
    return [] if book.refused else [scored_cell(view) for view in (*book.cells, *book.hidden)]


def scored_cell(view: CellView) -> ScoredCell:
    """Return what scores need of a cell, without baselines."""
    forecast, case = view.forecast, view.forecast.case
    verdict = view.scored.verification if view.scored else None
    measured = verdict.measured_percent or None if verdict else None
    regimes = verdict.regimes if verdict and measured else ()
    said = probabilities_of(forecast) if regimes else {}
    return ScoredCell(
        seal=view.sealed.id,
        cell=forecast.cell,
        forecaster=view.sealed.prediction.forecaster,
        sight=view.sight,
        hidden=view.state == "hidden",
        case=case_key(view),
        kernel=case.kernel,
        hardware=case.hardware,
        regime=forecast.regime,
        percent_milli=forecast.percent_milli,
        low_milli=forecast.low_milli,
        high_milli=forecast.high_milli,
        measured=measured,
        log_error=math.log(forecast.percent_milli / 1000 / measured) if measured else 0.0,
        regimes=regimes,
        brier=brier_score(said, *regimes) if regimes else None,
        log_score=log_score(said, *regimes) if regimes else None,
        shares=stated_shares(forecast, regimes) if regimes else (),
        spread=spread_percent(view),
        timing_percent=_half_interval(view) if measured else 0.0,
        chips=tuple(chip_times_of(view)),
        program=is_program(view.sealed.prediction),
    )


def is_program(prediction: Prediction) -> bool:
    """Tell whether a seal is that of a program; none of version 1 is."""
    participant = prediction.participant if isinstance(prediction, PredictionV2) else None
    return participant is not None and participant.kind == "program"


def case_key(view: CellView) -> str:
    """Return a name of what is measured, the same in every seal of it: sources, shape, dtype, device, configuration."""
    case = view.forecast.case
    how = (case.implementation, case.threads, tuple(sorted(case.config.items())))
    what = (view.forecast.kernel_sha256, case.hardware, cell_key(case))
    return object_id(repr((what, how)).encode("utf-8", "surrogatepass"))


def _half_interval(view: CellView) -> float:
    timing = view.scored.recorded.measurement.timing if view.scored else None
    return 0.0 if timing is None else 50 * (timing.high_ps - timing.low_ps) / timing.median_ps


def log_quantiles(percent_milli: int, low_milli: int | None, high_milli: int | None) -> tuple[float, float, float]:
    """Return the quantiles of ln(measured ÷ predicted time) that a forecast states; a slow end is a low percent.

    They are those at 10, 50 and 90%, the ends of an interval read as one of 80%; all 0 without one.
    """
    if low_milli is None or high_milli is None:
        return (0.0, 0.0, 0.0)
    middle = percent_milli / 1000
    low, high = (max(end / 1000, LEAST_PERCENT) for end in (low_milli, high_milli))
    return (math.log(middle / high), 0.0, math.log(middle / low))

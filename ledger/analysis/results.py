"""Lists what came of each forecast, one flat result a measured cell, for scores and rankings. Pure.

The error of a forecast is ln(measured ÷ predicted time). The roof is common to both, so it is the logarithm of the
predicted over the measured percent: 0.1 is 10% too slow at any height of the roof, where a point of percent-of-roof is
20% of the time at 5% and 1% at 100%.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ledger.analysis.book import Book, CellView
from ledger.analysis.repeats import spread_percent
from ledger.canonical import cell_key, object_id
from ledger.records import Forecast, Regime, Sight

LEAST_PERCENT = 0.001
"""The resolution of the record, which an interval's lower end of 0 counts as."""


@dataclass(frozen=True)
class Result:
    """Hold one measured cell of one forecaster. Units: percent of the roof; spread in percent of the time.

    cell: what forecasters share; those of one cell are compared. quantiles: of ln(measured ÷ predicted time), at 10, 50
    and 90%, the ends of an interval read as one of 80%; all 0 without one. timing_percent: half the interval of the
    run's median time.
    """

    forecaster: str
    sight: Sight | None
    cell: str
    kernel: str
    hardware: str
    regimes: tuple[Regime, ...]
    predicted: float
    measured: float
    quantiles: tuple[float, float, float] = (0.0, 0.0, 0.0)
    spread: float | None = None
    timing_percent: float = 0.0

    @property
    def log_error(self) -> float:
        """Return ln(measured ÷ predicted time): above 0 where the kernel was slower than forecast."""
        return math.log(self.predicted / self.measured)

    @property
    def regime(self) -> str:
        """Return the regime that was measured, the first where the verdict names two."""
        return self.regimes[0] if self.regimes else "not determined"


def result_of(view: CellView) -> Result | None:
    """Return the result of a cell; None where nothing is scored."""
    verdict = view.scored.verification if view.scored else None
    if verdict is None or not verdict.measured_percent:
        return None
    case = view.forecast.case
    return Result(
        forecaster=view.sealed.prediction.forecaster,
        sight=view.sight,
        cell=case_key(view),
        kernel=case.kernel,
        hardware=case.hardware,
        regimes=verdict.regimes,
        predicted=view.forecast.percent_milli / 1000,
        measured=verdict.measured_percent,
        quantiles=log_quantiles(view.forecast),
        spread=spread_percent(view),
        timing_percent=_half_interval(view),
    )


def case_key(view: CellView) -> str:
    """Return a name of what is measured, the same in every seal of it: sources, shape, dtype, device, configuration."""
    case = view.forecast.case
    how = (case.implementation, case.threads, tuple(sorted(case.config.items())))
    what = (view.forecast.kernel_sha256, case.hardware, cell_key(case))
    return object_id(repr((what, how)).encode("utf-8", "surrogatepass"))


def _half_interval(view: CellView) -> float:
    timing = view.scored.recorded.measurement.timing if view.scored else None
    return 0.0 if timing is None else 50 * (timing.high_ps - timing.low_ps) / timing.median_ps


def results_of(book: Book) -> tuple[Result, ...]:
    """Return the results of a book; none where it is refused."""
    found = () if book.refused else (result_of(view) for view in book.cells)
    return tuple(result for result in found if result is not None)


def log_quantiles(forecast: Forecast) -> tuple[float, float, float]:
    """Return the quantiles of ln(measured ÷ predicted time) that a forecast states; a slow end is a low percent."""
    if forecast.low_milli is None or forecast.high_milli is None:
        return (0.0, 0.0, 0.0)
    middle = forecast.percent_milli / 1000
    low, high = (max(end / 1000, LEAST_PERCENT) for end in (forecast.low_milli, forecast.high_milli))
    return (math.log(middle / high), 0.0, math.log(middle / low))

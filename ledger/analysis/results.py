"""Lists what scores and rankings need of each sealed cell, flat, so that it can be kept. Pure.

The error of a forecast is ln(measured ÷ predicted time). The roof is common to both, so it is the logarithm of the
predicted over the measured percent: 0.1 is 10% too slow at any height of the roof, where a point of percent-of-roof is
20% of the time at 5% and 1% at 100%.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.analysis.book import Book, CellView
from ledger.analysis.machines import ChipTime, chip_times_of
from ledger.analysis.regime_probabilities import brier_score, log_score, probabilities_of, stated_shares
from ledger.analysis.repeats import spread_percent
from ledger.callables.subject import is_callable
from ledger.canonical import cell_key, object_id
from ledger.records import Prediction, PredictionV2, Regime, Sight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Numbers = NDArray[np.intp]

LEAST_PERCENT = 0.001
"""The resolution of the record, which an interval's lower end of 0 counts as."""


class ScoredCell(NamedTuple):
    """Hold what scores need of one sealed cell. Units: percent of the roof, in thousandths where it is sealed.

    program: whether the seal is a program's. case: what forecasters share; those of one case are compared. measured:
    None where nothing is scored, as are `brier` and `log_score` without a measured regime; log_error is 0 there.
    shares: as stated_shares. spread: of its own runs, in percent of the time. timing_percent: half the interval of the
    run's median time. naive_roofline to persistence: the percent that each baseline would have answered, None where it
    does not or nothing is scored. asks: what persistence asks and is told of (last_measured.Asked); empty where nobody
    is asked.
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
    asks: str = ""
    program: bool = False

    @property
    def predicted(self) -> float:
        """Return the forecast in percent of the roof."""
        return self.percent_milli / 1000

    @property
    def name(self) -> str:
        """Return SEAL#CELL."""
        return f"{self.seal}#{self.cell}"


class Results:
    """Hold cells by columns, each named as a field of ScoredCell. Cells are numbered from 0; numpy when called."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Hold columns of equal length."""
        self._columns = columns
        self._arrays: dict[str, Array] = {}
        self._codes: dict[str, tuple[Sequence[Any], Numbers]] = {}

    def __getitem__(self, name: str) -> Sequence[Any]:
        """Return a column."""
        return self._columns[name]

    def of(self, name: str, numbers: Numbers) -> list[Any]:
        """Return the values of some cells."""
        return list(map(self._columns[name].__getitem__, numbers.tolist()))

    def array(self, name: str) -> Array:
        """Return a column of numbers, NaN for None."""
        import numpy as np

        if name not in self._arrays:
            self._arrays[name] = np.array(self._columns[name], dtype=np.float64)
        return self._arrays[name]

    def coded(self, name: str) -> tuple[Sequence[Any], Numbers]:
        """Return the values of a column, each once in the order in which they come, and the place of each cell's."""
        if name not in self._codes:
            self._codes[name] = coded(self._columns[name])
        return self._codes[name]


def coded(values: Sequence[Hashable]) -> tuple[list[Any], Numbers]:
    """Return values, each once in the order in which they come, and the place of each in that list."""
    import numpy as np

    place_of = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return list(place_of), np.fromiter(map(place_of.__getitem__, values), np.intp, len(values))


def groups_of(*codes: Numbers) -> Iterator[tuple[tuple[int, ...], Numbers]]:
    """Yield every group of cells with equal codes: the codes, and the numbers of the cells in ascending order."""
    import numpy as np

    joined = np.zeros(len(codes[0]), np.intp)
    for one in codes:
        joined = joined * (one.max(initial=0) + 1) + one
    order = np.argsort(joined, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(joined[order])) + 1) if len(order) else ():
        yield tuple(int(one[members[0]]) for one in codes), members


def results_of(cells: Iterable[ScoredCell]) -> Results:
    """Return cells by columns."""
    listed = list(cells)
    if not listed:
        return Results(dict.fromkeys(ScoredCell._fields, ()))
    return Results(dict(zip(ScoredCell._fields, zip(*listed, strict=True), strict=True)))


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
    """Return a name of what is measured, the same in every seal of it: sources, shape, dtype, device, configuration.

    Of a callable its arguments too.
    """
    case = view.forecast.case
    how = (case.implementation, case.threads, tuple(sorted(case.config.items())))
    what: tuple[str, ...] = (view.forecast.kernel_sha256, case.hardware, cell_key(case))
    if is_callable(case.kernel):
        what += (case.cell[0],)
    return object_id(repr((what, how)).encode("utf-8", "surrogatepass"))


def _half_interval(view: CellView) -> float:
    timing = view.scored.recorded.measurement.timing if view.scored else None
    return 0.0 if timing is None else 50 * (timing.high_ps - timing.low_ps) / timing.median_ps


def log_quantiles(percents: Array, lows: Array, highs: Array) -> Array:
    """Return the quantiles of ln(measured ÷ predicted time) that forecasts state; a slow end is a low percent.

    They are those at 10, 50 and 90%, the ends of an interval read as one of 80%; all 0 without one.
    Shapes: (cells,) each, in percent of the roof, NaN without an interval -> (cells, 3).
    """
    import numpy as np

    found = np.zeros((len(percents), 3))
    found[:, 0] = np.log(percents / np.maximum(highs, LEAST_PERCENT))
    found[:, 2] = np.log(percents / np.maximum(lows, LEAST_PERCENT))
    found[np.isnan(found).any(axis=1)] = 0.0
    return found

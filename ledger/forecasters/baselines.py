"""Asks the built-in forecasters what they would have said of each scored cell, to compare others with them. Pure.

They are asked for the sealed case, with the sealed work, roof and profile, and with what the ledger had measured in
commits that the seal's commit comes after in the book's order. Nothing of it was sealed: they are a yardstick.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ledger.analysis.book import Book, CellView
from ledger.analysis.ranking import Loss, Ranking, rank
from ledger.analysis.resampling import ratio_interval
from ledger.analysis.results import Result, result_of
from ledger.analysis.sight import SIGHTS, sight_name
from ledger.forecasters import measured_roofline, naive_roofline, no_overlap, persistence, rule_of_thumb
from ledger.forecasters.answer import Answer, Measured, Question
from ledger.forecasters.track import measured_with_positions
from ledger.records import Case

BASELINES = {
    module.NAME: module.forecast
    for module in (naive_roofline, measured_roofline, no_overlap, rule_of_thumb, persistence)
}
_ROUNDING = 1e-9
"""Doublings by which the distances of two shapes differ at most when they are computed in another way."""
PREFIX = "baseline "
"""What the names of baselines begin with in a ranking, so that they are no forecaster's."""


@dataclass(frozen=True)
class Skill:
    """Hold how a forecaster compares with one baseline on the cells that both answer.

    error, baseline_error: mean |ln(measured ÷ predicted time)|. skill: 1 - error ÷ baseline_error, above 0 where the
    forecaster is better; low, high: its interval.
    """

    forecaster: str
    sight: str
    baseline: str
    cells: int
    error: float
    baseline_error: float
    skill: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Compared:
    """Hold the results of a book beside those of each baseline, in the same order; None where it does not answer."""

    results: tuple[Result, ...]
    baselines: Mapping[str, tuple[Result | None, ...]]


def compared(book: Book) -> Compared:
    """Return every result of a book, and what each baseline would have scored there."""
    views = [] if book.refused else [(view, result) for view in book.cells if (result := result_of(view)) is not None]
    earlier = _earlier(book)
    found: dict[str, list[Result | None]] = {name: [] for name in BASELINES}
    for view, result in views:
        question = _question(view, earlier)
        for name, forecast in BASELINES.items():
            answer = None if question is None else forecast(question)
            found[name].append(_scored(result, name, answer) if isinstance(answer, Answer) else None)
    return Compared(tuple(result for _, result in views), {name: tuple(several) for name, several in found.items()})


def _scored(result: Result, name: str, answer: Answer) -> Result:
    """Return the result of a baseline on a cell: a point forecast."""
    return replace(result, forecaster=PREFIX + name, predicted=answer.percent, quantiles=(0.0, 0.0, 0.0))


@dataclass(frozen=True)
class _Runs:
    """Hold measured runs of one kernel, dtype, profile and set of shape keys, by the positions of their commits."""

    positions: list[int]
    runs: list[Measured]

    @cached_property
    def _sizes(self) -> Any:
        import numpy as np

        return np.log2([_sizes(run.case) for run in self.runs], dtype=np.float64)

    def nearest(self, case: Case, position: int) -> tuple[Measured, ...]:
        """Return the runs before a position that are nearest to a case, to within rounding; persistence decides."""
        import numpy as np

        before = bisect_left(self.positions, position)
        if not before:
            return ()
        apart = np.abs(self._sizes[:before] - np.log2(_sizes(case), dtype=np.float64)).sum(axis=1)
        return tuple(self.runs[index] for index in np.flatnonzero(apart <= apart.min() + _ROUNDING))


def _sizes(case: Case) -> list[int]:
    return [case.shape[key] for key in sorted(case.shape)]


def _alike(case: Case) -> tuple[object, ...]:
    return case.kernel, case.dtype, case.hardware, tuple(sorted(case.shape))


def _earlier(book: Book) -> dict[tuple[object, ...], _Runs]:
    """Return the measured runs that persistence compares with each other."""
    found: dict[tuple[object, ...], _Runs] = {}
    for position, run in measured_with_positions(book):
        alike = found.setdefault(_alike(run.case), _Runs([], []))
        alike.positions.append(position)
        alike.runs.append(run)
    return found


def _question(view: CellView, earlier: Mapping[tuple[object, ...], _Runs]) -> Question | None:
    """Return the question that a seal's forecast answers; None without its profile, or for a cell without work."""
    forecast, case = view.forecast, view.forecast.case
    if view.hardware is None or not (forecast.work.flops or forecast.work.bytes):
        return None
    alike = earlier.get(_alike(case))
    known = () if alike is None else alike.nearest(case, view.sealed.commit.position)
    return Question(case, forecast.work, forecast.roof, view.hardware, known)


def skills(found: Compared) -> tuple[Skill, ...]:
    """Return how every forecaster compares with every baseline that answers, each sight apart."""
    order = (*SIGHTS, None)
    keys = sorted({(one.forecaster, order.index(one.sight)) for one in found.results})
    made = []
    for forecaster, place in keys:
        for name, others in found.baselines.items():
            pairs = [
                (abs(one.log_error), abs(other.log_error), one.kernel)
                for one, other in zip(found.results, others, strict=True)
                if other is not None and (one.forecaster, one.sight) == (forecaster, order[place])
            ]
            if pairs:
                made.append(_skill(forecaster, sight_name(order[place]), name, pairs))
    return tuple(made)


def _skill(forecaster: str, sight: str, name: str, pairs: Sequence[tuple[float, float, str]]) -> Skill:
    own, other = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    interval = ratio_interval(pairs)
    return Skill(
        forecaster=forecaster,
        sight=sight,
        baseline=name,
        cells=len(pairs),
        error=own / len(pairs),
        baseline_error=other / len(pairs),
        skill=1 - own / other if other else None,
        low=None if interval is None else 1 - interval[1],
        high=None if interval is None else 1 - interval[0],
    )


def rankings(found: Compared) -> dict[str, Ranking]:
    """Return the ranking of forecasters and baselines by sight, where anything can be ranked."""
    groups: dict[str, list[Loss]] = {}
    for number, one in enumerate(found.results):
        answers = (others[number] for others in found.baselines.values())
        for result in (one, *(answer for answer in answers if answer is not None)):
            loss = Loss(result.forecaster, result.cell, result.kernel, abs(result.log_error))
            groups.setdefault(sight_name(one.sight), []).append(loss)
    names = [sight_name(sight) for sight in (*SIGHTS, None)]
    made = {name: rank(groups[name]) for name in names if name in groups}
    return {name: ranking for name, ranking in made.items() if ranking.rows}

"""Asks the built-in forecasters what they would have said of each scored cell, to compare others with them. Pure.

They are asked for the sealed case, with the sealed work, roof and profile, and with what the ledger had measured in
commits that the seal's commit comes after in the book's order. Nothing of it was sealed: they are a yardstick.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.analysis.book import Book, CellView
from ledger.analysis.ranking import Ranking, rank_table, table_of
from ledger.analysis.resampling import ratio_interval, resampling_of
from ledger.analysis.results import ScoredCell, scored_cell
from ledger.analysis.sight_names import SIGHTS, sight_name
from ledger.forecasters import measured_roofline, naive_roofline, no_overlap, persistence, rule_of_thumb
from ledger.forecasters.answer import Answer, Question
from ledger.forecasters.last_measured import with_last_measured

if TYPE_CHECKING:
    from ledger.analysis.resampling import Array

ALONE = {module.NAME: module.forecast for module in (naive_roofline, measured_roofline, no_overlap, rule_of_thumb)}
"""Baselines that know nothing of what a ledger measured."""
NAMES = (*ALONE, persistence.NAME)
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


def compared_cells(book: Book) -> list[ScoredCell]:
    """Return the cells of a book, those still hidden last, with what each baseline would have answered."""
    return with_last_measured([] if book.refused else [asked_cell(view) for view in (*book.cells, *book.hidden)])


def asked_cell(view: CellView) -> ScoredCell:
    """Return what scores need of a cell, with all but the answer of persistence, which has yet to be asked."""
    cell, forecast, case = scored_cell(view), view.forecast, view.forecast.case
    if view.hardware is None:
        return cell
    measured = [run.recorded for run in view.runs] if view.state == "measured" else []
    timed = [(one.commit.position, one.measurement.timing) for one in measured]
    cell = cell._replace(
        dtype=case.dtype,
        shape=",".join(f"{key}={size}" for key, size in case.shape.items()),
        flops=forecast.work.flops,
        bytes=forecast.work.bytes,
        peak_flop_per_s=forecast.roof.peak_flop_per_s,
        bandwidth_bytes_per_s=forecast.roof.bandwidth_bytes_per_s,
        position=view.sealed.commit.position,
        runs=tuple((position, timing.median_ps) for position, timing in timed if timing is not None),
    )
    if cell.measured is None or not (forecast.work.flops or forecast.work.bytes):
        return cell
    question = Question(case, forecast.work, forecast.roof, view.hardware)
    answers = [ask(question) for ask in ALONE.values()]
    return cell._replace(
        baselines=tuple(one.percent if isinstance(one, Answer) else None for one in answers), asked=True
    )


@dataclass(frozen=True, eq=False)
class Compared:
    """Hold measured cells with what was lost on them, |ln(measured ÷ predicted time)|, by forecaster and baselines.

    Shapes: own (cells,), baselines (cells, NAMES), NaN where one does not answer.
    """

    cells: Sequence[ScoredCell]
    own: Array
    baselines: Array


def compared(cells: Iterable[ScoredCell]) -> Compared:
    """Return the losses of cells that baselines were asked about."""
    import numpy as np

    only = [cell for cell in cells if cell.measured is not None]
    nothing = (None,) * len(NAMES)
    answers = [(*cell.baselines, cell.persistence) if cell.baselines else nothing for cell in only]
    percents = np.array(answers, dtype=np.float64).reshape(len(only), len(NAMES))
    measured = np.array([cell.measured for cell in only], dtype=np.float64)
    own = np.array([abs(cell.log_error) for cell in only], dtype=np.float64)
    return Compared(only, own, np.abs(np.log(percents / measured[:, None])))


def skills(found: Compared) -> tuple[Skill, ...]:
    """Return how every forecaster compares with every baseline that answers, each sight apart."""
    import numpy as np

    order = (*SIGHTS, None)
    places = {sight: place for place, sight in enumerate(order)}
    groups: dict[tuple[str, int], list[int]] = {}
    for number, cell in enumerate(found.cells):
        groups.setdefault((cell.forecaster, places[cell.sight]), []).append(number)
    made = []
    for forecaster, place in sorted(groups):
        members = np.array(groups[forecaster, place])
        for column, name in enumerate(NAMES):
            both = members[~np.isnan(found.baselines[members, column])]
            if len(both):
                kernels = [found.cells[number].kernel for number in both.tolist()]
                own, other = found.own[both].tolist(), found.baselines[both, column].tolist()
                made.append(_skill(forecaster, sight_name(order[place]), name, own, other, kernels))
    return tuple(made)


def _skill(
    forecaster: str, sight: str, name: str, own: Sequence[float], other: Sequence[float], kernels: Sequence[str]
) -> Skill:
    above, below = math.fsum(own), math.fsum(other)
    interval = ratio_interval(own, other, resampling_of(kernels))
    return Skill(
        forecaster=forecaster,
        sight=sight,
        baseline=name,
        cells=len(own),
        error=above / len(own),
        baseline_error=below / len(own),
        skill=1 - above / below if below else None,
        low=None if interval is None else 1 - interval[1],
        high=None if interval is None else 1 - interval[0],
    )


def rankings(found: Compared) -> dict[str, Ranking]:
    """Return the ranking of forecasters and baselines by sight, where anything can be ranked."""
    groups: dict[str, list[int]] = {}
    for number, cell in enumerate(found.cells):
        groups.setdefault(sight_name(cell.sight), []).append(number)
    names = [sight_name(sight) for sight in (*SIGHTS, None)]
    made = {name: _ranking(found, groups[name]) for name in names if name in groups}
    return {name: ranking for name, ranking in made.items() if ranking.rows}


def _ranking(found: Compared, members: Sequence[int]) -> Ranking:
    import numpy as np

    cells = [found.cells[number] for number in members]
    kernels: dict[str, str] = {}
    for cell in cells:
        kernels.setdefault(cell.case, cell.kernel)
    numbers = {case: number for number, case in enumerate(kernels)}
    cases = np.array([numbers[cell.case] for cell in cells])
    answers = found.baselines[members]
    there = ~np.isnan(answers)
    # A built-in forecaster that sealed has one name: its baseline answers the cases for which it sealed nothing.
    sealed = {(cell.forecaster, cell.case) for cell in cells if cell.program}
    programs = {name for name, _ in sealed}
    for number, name in enumerate(NAMES):
        there[:, number] &= [(name, cell.case) not in sealed for cell in cells]
    asked = [
        (name if name in programs else PREFIX + name, number)
        for number, name in enumerate(NAMES)
        if there[:, number].any()
    ]
    names = sorted({*(name for name, _ in asked), *(cell.forecaster for cell in cells)})
    place = {name: number for number, name in enumerate(names)}
    rows, columns, losses = [cases], [np.array([place[cell.forecaster] for cell in cells])], [found.own[members]]
    for name, number in asked:
        rows.append(cases[there[:, number]])
        columns.append(np.full(len(rows[-1]), place[name]))
        losses.append(answers[there[:, number], number])
    shape = (len(kernels), len(names))
    table = table_of(np.concatenate(rows), np.concatenate(columns), np.concatenate(losses), shape)
    return rank_table(names, list(kernels.values()), table)

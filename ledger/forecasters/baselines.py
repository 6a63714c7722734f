"""Asks the built-in forecasters what they would have said of each scored cell, to compare others with them. Pure.

They are asked for the sealed case, with the sealed work, roof and profile, and with what the ledger had measured in
commits that the seal's commit comes after in the book's order. Nothing of it was sealed: they are a yardstick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.analysis.book import Book, CellView
from ledger.analysis.ranking import Ranking, rank_table, table_of
from ledger.analysis.resampling import Resampling, numbered, ratio_interval, resampling_of
from ledger.analysis.results import Results, ScoredCell, groups_of, results_of, scored_cell
from ledger.analysis.sight_names import SIGHTS, sight_name
from ledger.callables.subject import is_callable
from ledger.canonical import object_id
from ledger.forecasters import measured_roofline, naive_roofline, no_overlap, persistence, rule_of_thumb
from ledger.forecasters.answer import Answer, Question
from ledger.forecasters.last_measured import Asked, last_measured

if TYPE_CHECKING:
    from ledger.analysis.resampling import Array
    from ledger.analysis.results import Numbers

ALONE = {module.NAME: module.forecast for module in (naive_roofline, measured_roofline, no_overlap, rule_of_thumb)}
"""Baselines that know nothing of what a ledger measured."""
NAMES = (*ALONE, persistence.NAME)
FIELDS = {name: name.replace("-", "_") for name in NAMES}
"""The field of a scored cell that holds the answer of each baseline."""
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
    cells = [] if book.refused else [asked_cell(view) for view in (*book.cells, *book.hidden)]
    answers = last_measured(results_of(cells).__getitem__)
    return [cell._replace(persistence=answers.get(number)) for number, cell in enumerate(cells)]


def asked_cell(view: CellView) -> ScoredCell:
    """Return what scores need of a cell, with all but the answer of persistence, which has yet to be asked."""
    cell, forecast, case = scored_cell(view), view.forecast, view.forecast.case
    if view.hardware is None:
        return cell
    measured = [run.recorded for run in view.runs] if view.state == "measured" else []
    timed = [(one.commit.position, one.measurement.timing) for one in measured]
    asked = Asked(
        dtype=case.dtype,
        shape=",".join(f"{key}={size}" for key, size in sorted(case.shape.items())),
        flops=forecast.work.flops,
        bytes=forecast.work.bytes,
        peak_flop_per_s=forecast.roof.peak_flop_per_s,
        bandwidth_bytes_per_s=forecast.roof.bandwidth_bytes_per_s,
        position=view.sealed.commit.position,
        call=object_id(case.cell[0].encode("utf-8", "surrogatepass"))[:16] if is_callable(case.kernel) else "-",
        runs=[(position, timing.median_ps) for position, timing in timed if timing is not None],
    )
    cell = cell._replace(asks=asked.text)
    if cell.measured is None or not (forecast.work.flops or forecast.work.bytes):
        return cell
    question = Question(case, forecast.work, forecast.roof, view.hardware)
    answers = {FIELDS[name]: ask(question) for name, ask in ALONE.items()}
    said: dict[str, Any] = {field: one.percent for field, one in answers.items() if isinstance(one, Answer)}
    return cell._replace(**said)


@dataclass(frozen=True, eq=False)
class Compared:
    """Hold measured cells by number, with what was lost on them, |ln(measured ÷ predicted time)|.

    Shapes: numbers and own (measured,), baselines (measured, NAMES), NaN where one does not answer.
    """

    cells: Results
    numbers: Numbers
    own: Array
    baselines: Array

    def coded(self, name: str) -> tuple[Sequence[Any], Numbers]:
        """Return the values of a column, each once, and the place of each measured cell's."""
        values, places = self.cells.coded(name)
        return values, places[self.numbers]


def compared(cells: Results) -> Compared:
    """Return the losses of cells that baselines were asked about."""
    import numpy as np

    only = np.flatnonzero(~np.isnan(cells.array("measured")))
    percents = np.stack([cells.array(field)[only] for field in FIELDS.values()], axis=1)
    losses = np.abs(np.log(percents / cells.array("measured")[only, None]))
    return Compared(cells, only, np.abs(cells.array("log_error")[only]), losses)


def skills(found: Compared) -> tuple[Skill, ...]:
    """Return how every forecaster compares with every baseline that answers, each sight apart."""
    import numpy as np

    order = (*SIGHTS, None)
    (forecasters, who), (sights, seen), (_, kernels) = map(found.coded, ("forecaster", "sight", "kernel"))
    groups = {(forecasters[one], order.index(sights[sight])): members for (one, sight), members in groups_of(who, seen)}
    made = []
    for forecaster, place in sorted(groups):
        members = groups[forecaster, place]
        # Most baselines answer the same cells.
        hows: dict[bytes, Resampling] = {}
        for column, name in enumerate(NAMES):
            both = members[~np.isnan(found.baselines[members, column])]
            if len(both):
                if (cells := both.tobytes()) not in hows:
                    hows[cells] = resampling_of(kernels[both])
                own, other = found.own[both], found.baselines[both, column]
                made.append(_skill(forecaster, sight_name(order[place]), name, own, other, hows[cells]))
    return tuple(made)


def _skill(forecaster: str, sight: str, name: str, own: Array, other: Array, how: Resampling) -> Skill:
    above, below = math.fsum(own.tolist()), math.fsum(other.tolist())
    interval = ratio_interval(own, other, how)
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
    sights, seen = found.coded("sight")
    groups = {sights[sight]: members for (sight,), members in groups_of(seen)}
    made = {sight_name(sight): _ranking(found, groups[sight]) for sight in (*SIGHTS, None) if sight in groups}
    return {name: ranking for name, ranking in made.items() if ranking.rows}


def _ranking(found: Compared, members: Numbers) -> Ranking:
    import numpy as np

    (forecasters, who), (_, keys), (_, ran) = map(found.coded, ("forecaster", "case", "kernel"))
    who = who[members]
    # The first cell of a case names its kernel.
    cases, first = numbered(keys[members])
    kernel_of = ran[members][first]
    there = ~np.isnan(found.baselines[members])
    # A built-in forecaster that sealed has one name: its baseline answers the cases for which it sealed nothing.
    by_program = found.cells.array("program")[found.numbers][members] > 0
    programs = {forecasters[one] for one in np.unique(who[by_program])}
    for number, name in enumerate(NAMES):
        if name in programs:
            its = by_program & (who == forecasters.index(name))
            there[:, number] &= ~np.isin(cases, cases[its])
    asked = [
        (name if name in programs else PREFIX + name, number)
        for number, name in enumerate(NAMES)
        if there[:, number].any()
    ]
    names = sorted({*(name for name, _ in asked), *(forecasters[one] for one in np.unique(who))})
    place = {name: number for number, name in enumerate(names)}
    rows, columns = [cases], [np.array([place.get(name, 0) for name in forecasters])[who]]
    losses = [found.own[members]]
    for name, number in asked:
        rows.append(cases[there[:, number]])
        columns.append(np.full(len(rows[-1]), place[name]))
        losses.append(found.baselines[members[there[:, number]], number])
    shape = (len(first), len(names))
    table = table_of(np.concatenate(rows), np.concatenate(columns), np.concatenate(losses), shape)
    return rank_table(names, kernel_of, table)

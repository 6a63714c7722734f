"""Gathers all that `ledger score` prints, so that it can be kept as one JSON value and printed later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from ledger.analysis.book import Book
from ledger.analysis.claims import ClaimScore
from ledger.analysis.machines import machine_lines, shared_cells
from ledger.analysis.ranking import Ranking
from ledger.analysis.repeats import RepeatSpread, repeat_spread
from ledger.analysis.results import Results, results_of
from ledger.analysis.score import GroupBy, Score, score_cells
from ledger.errors import UnknownName
from ledger.forecasters.baselines import Skill, compared, compared_cells, rankings, skills
from ledger.render.claim_text import scores_of
from ledger.suggestions import unknown


@dataclass(frozen=True)
class ScoreSheet:
    """Hold the scores of a book, with what they are compared with."""

    scores: tuple[Score, ...]
    skills: tuple[Skill, ...]
    rankings: Mapping[str, Ranking]
    claims: tuple[ClaimScore, ...]
    repeats: RepeatSpread | None
    machines: tuple[str, ...]


def score_sheet(book: Book, group: GroupBy | None) -> ScoreSheet:
    """Return the scores of a book. group: as for score_cells."""
    return sheet_of(results_of(compared_cells(book)), scores_of(book), group)


def sheet_of(cells: Results, claims: Sequence[ClaimScore], group: GroupBy | None) -> ScoreSheet:
    """Return the scores of cells and claims. group: as for score_cells."""
    # What names a cell may be left out where no chip is known.
    told = zip(cells["seal"], cells["cell"], cells["chips"], strict=True) if any(cells["chips"]) else ()
    timed = [(f"{seal}#{cell}", one) for seal, cell, chips in told for one in chips]
    found = compared(cells)
    return ScoreSheet(
        scores=score_cells(cells, shared_cells(timed), group),
        skills=skills(found),
        rankings=rankings(found),
        claims=tuple(claims),
        repeats=repeat_spread(cells["spread"]),
        machines=tuple(machine_lines(timed)),
    )


def only(sheet: ScoreSheet, forecaster: str) -> ScoreSheet:
    """Return the scores of one forecaster; the rankings that it is in stay whole. Raises: UnknownName."""
    names = dict.fromkeys([*(one.forecaster for one in sheet.scores), *(one.forecaster for one in sheet.claims)])
    if forecaster not in names:
        raise UnknownName(unknown("forecaster", forecaster, names))
    return replace(
        sheet,
        scores=tuple(one for one in sheet.scores if one.forecaster == forecaster),
        skills=tuple(one for one in sheet.skills if one.forecaster == forecaster),
        rankings={
            sight: ranking
            for sight, ranking in sheet.rankings.items()
            if any(one.forecaster == forecaster for one in ranking.rows)
        },
        claims=tuple(one for one in sheet.claims if one.forecaster == forecaster),
    )


def as_value(sheet: ScoreSheet) -> Any:
    """Return a sheet as a JSON value."""
    return _adapter().dump_python(sheet, mode="json")


def from_value(value: Any) -> ScoreSheet:
    """Return the sheet of a JSON value."""
    return _adapter().validate_python(value)


@cache
def _adapter() -> TypeAdapter[ScoreSheet]:
    return TypeAdapter(ScoreSheet)

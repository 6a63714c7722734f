"""Gathers all that `ledger score` prints, so that it can be kept as one JSON value and printed later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from ledger.analysis.book import Book
from ledger.analysis.claims import ClaimScore
from ledger.analysis.machines import machine_lines
from ledger.analysis.ranking import Ranking
from ledger.analysis.repeats import RepeatSpread, repeat_spread
from ledger.analysis.results import Result
from ledger.analysis.score import GroupBy, Score, score_book
from ledger.errors import UnknownName
from ledger.forecasters.baselines import Compared, Skill, compared, rankings, skills
from ledger.records import Participant, PredictionV2
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
    """Return the scores of a book. group: as for score_book."""
    found = compared(book)
    return ScoreSheet(
        scores=score_book(book, group),
        skills=skills(found),
        rankings=rankings(_named_once(found, book)),
        claims=scores_of(book),
        repeats=repeat_spread(book),
        machines=tuple(machine_lines(book)),
    )


def _named_once(found: Compared, book: Book) -> Compared:
    """Return results in which a built-in forecaster has one name: its baseline answers where it sealed nothing."""
    seals = (sealed.prediction for sealed in book.seals)
    programs = {one.forecaster for one in seals if isinstance(one, PredictionV2) and _is_program(one.participant)}
    sealed = {(one.forecaster, one.sight, one.cell) for one in found.results if one.forecaster in programs}
    named = {(forecaster, sight) for forecaster, sight, _ in sealed}

    def answer(name: str, one: Result, baseline: Result | None) -> Result | None:
        if baseline is None or (name, one.sight) not in named:
            return baseline
        return None if (name, one.sight, one.cell) in sealed else replace(baseline, forecaster=name)

    return replace(
        found,
        baselines={
            name: tuple(answer(name, *pair) for pair in zip(found.results, several, strict=True))
            for name, several in found.baselines.items()
        },
    )


def _is_program(participant: Participant | None) -> bool:
    return participant is not None and participant.kind == "program"


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

"""Sums up each seal for a reader who audits its author: when, what was known, what was measured when, how it fared.

Pure. Every date is what a commit claims; none proves anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from ledger.analysis.book import Book, CellView, Run
from ledger.analysis.report_rows import counted
from ledger.analysis.track_record import Outcome, outcome_of
from ledger.records import Sight


@dataclass(frozen=True)
class SealLine:
    """Hold one seal. sights: of its cells, None for undeclared; measured: first and last date of its measurements.

    hours: from the seal's date to the first measurement's, by the commits' own dates; None where one is no date.
    """

    seal: str
    campaign: str | None
    forecaster: str
    date: str
    cells: int
    states: Mapping[str, int]
    sights: Mapping[Sight | None, int]
    measured: tuple[str, str] | None
    hours: float | None
    outcome: Outcome


def seal_lines(book: Book) -> tuple[SealLine, ...]:
    """Return a line for each seal, in the order of the history."""
    views: dict[str, list[CellView]] = {}
    for view in book.cells:
        views.setdefault(view.sealed.id, []).append(view)
    results: dict[str, list[tuple[CellView, Run]]] = {}
    for view, run in counted(book):
        results.setdefault(view.sealed.id, []).append((view, run))
    return tuple(_line(cells, results.get(seal, [])) for seal, cells in views.items())


def _line(cells: list[CellView], results: list[tuple[CellView, Run]]) -> SealLine:
    sealed = cells[0].sealed
    dates = sorted((run.recorded.commit.position, run.recorded.commit.when) for view in cells for run in view.runs)
    when = sealed.commit.when
    return SealLine(
        seal=sealed.id,
        campaign=sealed.prediction.campaign,
        forecaster=sealed.prediction.forecaster,
        date=when,
        cells=len(cells),
        states=Counter(view.state for view in cells),
        sights=Counter(view.sight for view in cells),
        measured=(dates[0][1], dates[-1][1]) if dates else None,
        hours=_hours(when, dates[0][1]) if dates else None,
        outcome=outcome_of(results),
    )


def _hours(begin: str, end: str) -> float | None:
    """Return the hours between two dates that commits claim, None where one is no date."""
    with suppress(ValueError, TypeError, OverflowError):
        return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() / 3600
    return None

"""Lists the cells of a book, with what status shows and what scores are computed from, as rows that are kept. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ledger.analysis.book import Book, CellView
from ledger.analysis.formatting import case_text
from ledger.analysis.report_rows import sight_document
from ledger.analysis.results import ScoredCell, case_key
from ledger.evidence.judge import Growth
from ledger.evidence.staleness import subject_of_seal
from ledger.forecasters.baselines import asked_cell, compared_cells
from ledger.forecasters.last_measured import last_measured
from ledger.render.claim_text import case_words, claim_rows, claimed_text, scores_of
from ledger.render.status_table import DOCUMENT, SIGHT
from ledger.workflow.kept_tables import Rows, Table, columns_of

_SHOWN = (*DOCUMENT, "text", "predicted", "run_count", "subject")


def cells_table(book: Book) -> Table:
    """Return the state of every cell and claim, and what scores are computed from, which a refused ledger lacks.

    subject: what an open cell is of, by which it may turn out to be stale.
    """
    views = (*book.cells, *book.hidden)
    scored = compared_cells(book)
    more = {
        "claims": claim_rows(book),
        "claim_lines": [
            (
                view.state,
                view.sealed.id[:10],
                case_words(view.claim.case),
                claimed_text(view.claim),
                str(len(view.runs)),
            )
            for view in book.claims
        ],
        "claim_scores": [asdict(one) for one in scores_of(book)],
        "refused": [finding.model_dump(mode="json") for finding in book.refused],
        "refusals": [finding.text for finding in book.refused],
    }
    return Table(_columns(views, scored), len(book.hidden), more)


def cell_rows(found: Growth) -> Rows:
    """Return the cells that new commits add or may have changed."""
    views = [view for view in found.book.cells if view.sealed.id in found.judged]
    columns = _columns(views, [asked_cell(view) for view in views])
    seen = found.judged - found.sighted
    return Rows(columns, key=("seal", "cell"), staying=SIGHT, seen=seen, new=found.added, fill=_answers)


def _answers(held: Callable[[str], Sequence[Any]], places: Sequence[int]) -> dict[str, list[Any]]:
    """Return what persistence says of the cells at some places, which may have changed, given all columns."""
    answers = last_measured(held, places)
    return {"persistence": [answers.get(place) for place in places]}


def _columns(views: Sequence[CellView], scored: Iterable[ScoredCell]) -> dict[str, list[Any]]:
    shown, told = columns_of(_SHOWN, map(_cell, views)), columns_of(ScoredCell._fields, scored)
    blank = [None] * len(shown["seal"])
    told["case"] = told["case"] or list(map(case_key, views))
    return {**{name: column or blank for name, column in told.items()}, **shown}


def _cell(cell: CellView) -> tuple[Any, ...]:
    forecast = cell.forecast
    said = f"{forecast.regime} {forecast.percent_milli / 1000:g}%"
    predicted, runs = ("not revealed", "–") if cell.state == "hidden" else (said, str(len(cell.runs)))
    sight = sight_document(cell)
    return (
        cell.sealed.id,
        forecast.cell,
        cell.state,
        None if cell.scored is None else cell.scored.recorded.id,
        cell.sealed.prediction.campaign,
        cell.sealed.prediction.forecaster,
        cell.blind,
        *(sight[name] for name in SIGHT[1:]),
        case_text(forecast.case),
        predicted,
        runs,
        subject_of_seal(forecast) if cell.state == "open" else None,
    )

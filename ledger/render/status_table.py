"""Renders the state of every sealed cell."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console

from ledger.analysis.book import Book, CellView
from ledger.analysis.formatting import case_text
from ledger.analysis.report_rows import sight_document
from ledger.analysis.sight import sight_name
from ledger.evidence.judge import CurrentDigest, Growth, SealedSubject, is_stale, subject_of_seal
from ledger.render.claim_text import case_words, claim_rows, claimed_text
from ledger.render.tables import print_rows


def status_of(book: Book) -> dict[str, Any]:
    """Return the state of every cell and claim as one JSON value, with the text of its line.

    subject: what an open cell is of, by which it may turn out to be stale.
    """
    return {
        "head": book.head,
        "cells": [_cell(cell) for cell in (*book.cells, *book.hidden)],
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
        "refused": [finding.model_dump(mode="json") for finding in book.refused],
    }


def status_growth(found: Growth) -> dict[str, Any]:
    """Return what new commits change in the status of a ledger."""
    cells = [_cell(cell) for cell in found.book.cells if cell.sealed.id in found.judged]
    return {"head": found.book.head, "cells": cells, "seen": sorted(found.judged - found.sighted)}


def grown_status(status: dict[str, Any], growth: dict[str, Any]) -> dict[str, Any]:
    """Return a status with what new commits changed, in its own list of cells. seen: seals whose sight stays."""
    new = {(cell["seal"], cell["cell"]): cell for cell in growth["cells"]}
    seals, seen, cells = {seal for seal, _ in new}, set(growth["seen"]), status["cells"]
    for place in [place for place, cell in enumerate(cells) if cell["seal"] in seals]:
        cell = cells[place]
        changed = new.pop((cell["seal"], cell["cell"]), cell)
        if changed is not cell and cell["seal"] in seen:
            line = [*changed["line"][:3], cell["line"][3]]
            changed = {**changed, **{key: cell[key] for key in _SIGHT}, "line": line}
        cells[place] = changed
    # What is still hidden comes last.
    end = len(cells)
    while end and cells[end - 1]["state"] == "hidden":
        end -= 1
    cells[end:end] = new.values()
    return {**status, "head": growth["head"]}


_SIGHT = ("blind", "sight", "declared", "known", "corrections")


def _cell(cell: CellView) -> dict[str, Any]:
    forecast = cell.forecast
    said = f"{forecast.regime} {forecast.percent_milli / 1000:g}%"
    predicted, runs = ("not revealed", "–") if cell.state == "hidden" else (said, str(len(cell.runs)))
    return {
        "seal": cell.sealed.id,
        "cell": forecast.cell,
        "state": cell.state,
        "blind": cell.blind,
        **sight_document(cell),
        "line": (case_text(forecast.case), predicted, runs, sight_name(cell.sight)),
        "subject": subject_of_seal(forecast) if cell.state == "open" else None,
    }


def with_stale(status: dict[str, Any], current: CurrentDigest) -> dict[str, Any]:
    """Return a status in which open cells whose kernel or profile is another one now are stale."""
    cells = [
        {**cell, "state": "stale"} if cell["subject"] and is_stale(SealedSubject(*cell["subject"]), current) else cell
        for cell in status["cells"]
    ]
    return {**status, "cells": cells}


def status_document(status: dict[str, Any]) -> dict[str, Any]:
    """Return the document of `ledger status --json`."""
    cells = [{key: value for key, value in cell.items() if key not in _TEXT} for cell in status["cells"]]
    return {"head": status["head"], "cells": cells, "claims": status["claims"], "refused": status["refused"]}


_TEXT = ("line", "subject")


def render_status(status: dict[str, Any], console: Console) -> None:
    """Print the state of every sealed cell."""
    rows = [(cell["state"], cell["seal"][:10], *cell["line"]) for cell in status["cells"]]
    print_rows(console, ("state", "seal", "cell", "predicted", "runs", "sight"), rows, folding=("cell",))
    claims = [tuple(line) for line in status["claim_lines"]]
    if claims:
        print_rows(console, ("state", "seal", "claim", "claimed", "runs"), claims, folding=("claim",))
    states = Counter([cell["state"] for cell in status["cells"]] + [line[0] for line in claims])
    shown = ("open", "stale", "measured", "void", *(("hidden",) if states["hidden"] else ()))
    console.print(", ".join(f"{states[state]} {state}" for state in shown))

"""Renders the state of every sealed cell, and of many the state of each campaign's cases.

state is what became of a forecast by its own seal: one whose case another seal's run measured stays open (it may still
be measured, for evidence of its own), and `scored_by` names the record that scores it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from rich.console import Console

from ledger.analysis.book import Book, CellView
from ledger.analysis.formatting import case_text, harmless
from ledger.analysis.report_rows import sight_document
from ledger.analysis.results import case_key
from ledger.analysis.sight import sight_name
from ledger.errors import UnknownName
from ledger.evidence.judge import Growth
from ledger.evidence.staleness import CurrentDigest, SealedSubject, is_stale, subject_of_seal
from ledger.render.claim_text import case_words, claim_rows, claimed_text
from ledger.render.fitted_table import Column, print_fitted
from ledger.render.tables import print_rows
from ledger.suggestions import unknown


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


def grown_status(status: dict[str, Any], growths: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a status with what new commits changed, in its own list of cells."""
    for growth in growths:
        status = _grown(status, growth)
    return status


def _grown(status: dict[str, Any], growth: dict[str, Any]) -> dict[str, Any]:
    """Return a status with one growth. seen: seals whose sight stays."""
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
        "scored_by": None if cell.scored is None else cell.scored.recorded.id,
        "campaign": cell.sealed.prediction.campaign,
        "forecaster": cell.sealed.prediction.forecaster,
        "blind": cell.blind,
        **sight_document(cell),
        "line": (case_text(forecast.case), predicted, runs, sight_name(cell.sight)),
        "subject": subject_of_seal(forecast) if cell.state == "open" else None,
        "case": case_key(cell),
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


_FEW = 50
"""Cells up to which each has its line."""
_TEXT = ("line", "subject", "case")
_SCORED = "scored"
_ORDER = ("measured", _SCORED, "failed", "missed", "open", "stale", "hidden", "void")
"""What a cell's standing may be; a case has the first one that a forecast of it has."""


def _standing(cell: dict[str, Any]) -> str:
    """Return the state of a cell, or that another seal's run scores it."""
    return _SCORED if cell["state"] in ("open", "stale", "failed") and cell["scored_by"] else str(cell["state"])


def of_campaigns(status: dict[str, Any], campaigns: Collection[str]) -> dict[str, Any]:
    """Return a status with the cells of some campaigns alone, and no claims. Raises: UnknownName."""
    known = dict.fromkeys(cell["campaign"] for cell in status["cells"] if cell["campaign"])
    for name in campaigns:
        if name not in known:
            raise UnknownName(unknown("campaign", name, known))
    cells = [cell for cell in status["cells"] if cell["campaign"] in campaigns]
    return {**status, "cells": cells, "claims": [], "claim_lines": []}


def render_status(status: dict[str, Any], console: Console, *, listed: bool | None = None) -> None:
    """Print the state of every sealed cell, or of many that of each campaign. listed: every cell in any case."""
    cells = status["cells"]
    if len(cells) <= _FEW if listed is None else listed:
        rows = [(_standing(cell), cell["seal"][:10], *cell["line"]) for cell in cells]
        print_rows(console, ("state", "seal", "cell", "predicted", "runs", "sight"), rows, folding=("cell",))
    else:
        _campaigns(cells, console)
    claims = [tuple(line) for line in status["claim_lines"]]
    if claims:
        print_rows(console, ("state", "seal", "claim", "claimed", "runs"), claims, folding=("claim",))
    states = Counter([_standing(cell) for cell in cells] + [line[0] for line in claims])
    others = (_SCORED, "failed", "hidden", "refused")
    shown = ("open", "stale", "measured", "void", *(one for one in others if states[one]))
    more = " by another seal's run" if states[_SCORED] else ""
    console.print(", ".join(f"{states[one]} {one}{more if one == _SCORED else ''}" for one in shown))


def _campaigns(cells: Sequence[dict[str, Any]], console: Console) -> None:
    """Print a line for each campaign: its cases by what became of them, and its forecasts."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(cell["campaign"] or "", []).append(cell)
    counts = [_case_counts(found) for found in groups.values()]
    columns = [
        Column("campaign", [harmless(name, 30) or "none" for name in groups], right=False),
        Column("cases", [str(sum(count.values())) for count in counts]),
        Column("measured", [str(count["measured"] + count[_SCORED] or "·") for count in counts]),
        *(
            Column(state, [str(count[state] or "·") for count in counts])
            for state in _ORDER[2:]
            if state in ("open", "stale") or any(count[state] for count in counts)
        ),
        Column("forecasts", [str(len(found)) for found in groups.values()], rank=1),
        Column("forecasters", [str(len({cell["forecaster"] for cell in found})) for found in groups.values()], rank=2),
    ]
    print_fitted(console, columns)
    console.print("Each forecast: ledger status --cells, or --campaign NAME", style="dim")


def _case_counts(cells: Sequence[dict[str, Any]]) -> Counter[str]:
    """Return how many cases have each standing: that of the forecast which went furthest."""
    best: dict[str, int] = {}
    for cell in cells:
        place = _ORDER.index(standing) if (standing := _standing(cell)) in _ORDER else len(_ORDER) - 1
        best[cell["case"]] = min(place, best.get(cell["case"], len(_ORDER)))
    return Counter(_ORDER[place] for place in best.values())

"""Keeps what the scores of a ledger are computed from as one JSON value, by columns, and lets it grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ledger.analysis.book import Book
from ledger.analysis.claims import ClaimScore
from ledger.analysis.machines import ChipTime
from ledger.analysis.results import ScoredCell
from ledger.analysis.score import GroupBy
from ledger.evidence.judge import Growth
from ledger.forecasters.baselines import asked_cell, compared_cells
from ledger.forecasters.last_measured import with_last_measured
from ledger.render.claim_text import scores_of
from ledger.render.kept_columns import Columns, columns_of, unpacked
from ledger.render.score_sheet import ScoreSheet, sheet_of

_FIELD = {name: number for number, name in enumerate(ScoredCell._fields)}


def scores_kept(book: Book) -> dict[str, Any]:
    """Return the cells and claims of a book as scores need them, and what it is refused for."""
    return {
        "cells": columns_of(compared_cells(book)),
        "claims": [asdict(one) for one in scores_of(book)],
        "refused": [finding.text for finding in book.refused],
    }


def scores_growth(found: Growth) -> dict[str, Any]:
    """Return what new commits change. seen: seals whose sight stays."""
    cells = [asked_cell(view) for view in found.book.cells if view.sealed.id in found.judged]
    return {"cells": columns_of(cells), "seen": sorted(found.judged - found.sighted)}


def grown_scores(kept: dict[str, Any], growths: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what is kept with what new commits changed, in its own columns."""
    columns = [list(column) for column in unpacked(kept["cells"])] or [[] for _ in ScoredCell._fields]
    seals, cells, sights, hidden = (columns[_FIELD[name]] for name in ("seal", "cell", "sight", "hidden"))
    end = len(seals) - sum(hidden)
    places = {name: place for place, name in enumerate(zip(seals[:end], cells, strict=False))}
    for growth in growths:
        seen = set(growth["seen"])
        for cell in _cells(growth["cells"]):
            place = places.setdefault((cell.seal, cell.cell), end)
            if place == end:
                # What is still hidden comes last.
                for column, value in zip(columns, cell, strict=True):
                    column.insert(end, value)
                end += 1
                continue
            changed = cell._replace(sight=sights[place]) if cell.seal in seen else cell
            for column, value in zip(columns, changed, strict=True):
                column[place] = value
    _ask_persistence(columns)
    return {**kept, "cells": columns}


def _ask_persistence(columns: Sequence[list[Any]]) -> None:
    """Let persistence answer for the cells that it is yet to be asked about."""
    asked = columns[_FIELD["asked"]]
    if True not in asked:
        return
    what = list(zip(*(columns[_FIELD[name]] for name in ("kernel", "dtype", "hardware")), strict=True))
    wanted = {one for one, now in zip(what, asked, strict=True) if now}
    numbers = [number for number, one in enumerate(what) if one in wanted]
    cells = with_last_measured([ScoredCell._make(column[number] for column in columns) for number in numbers])
    for number, cell in zip(numbers, cells, strict=True):
        if asked[number]:
            columns[_FIELD["persistence"]][number] = cell.persistence
            asked[number] = False


def kept_sheet(kept: Mapping[str, Any], group: GroupBy | None) -> ScoreSheet:
    """Return the scores of what is kept. group: as for score_cells."""
    return sheet_of(_cells(kept["cells"]), [ClaimScore(**one) for one in kept["claims"]], group)


def _cells(columns: Columns) -> list[ScoredCell]:
    found = unpacked(columns)
    chips = _FIELD["chips"]
    if found and any(found[chips]):
        found[chips] = [[ChipTime(*one) for one in several] for several in found[chips]]
    return list(map(ScoredCell._make, zip(*found, strict=True)))

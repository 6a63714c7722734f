"""Computes the scores of a ledger from the columns that are kept of its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.analysis.claims import ClaimScore
from ledger.analysis.machines import ChipTime
from ledger.analysis.results import ScoredCell
from ledger.analysis.score import GroupBy
from ledger.forecasters.last_measured import with_last_measured
from ledger.render.score_sheet import ScoreSheet, sheet_of
from ledger.workflow.kept_tables import Table

NEEDED = ScoredCell._fields


def kept_sheet(kept: Table, group: GroupBy | None) -> ScoreSheet:
    """Return the scores of cells and claims that are kept. group: as for score_cells."""
    columns = {**kept.columns, **answered(kept.columns)}
    if any(columns["chips"]):
        columns["chips"] = [[ChipTime(*one) for one in several] for several in columns["chips"]]
    cells = list(map(ScoredCell._make, zip(*(columns[name] for name in NEEDED), strict=True)))
    return sheet_of(cells, [ClaimScore(**one) for one in kept.more["claim_scores"]], group)


def answered(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the columns of persistence once it has answered for the cells that it is yet to be asked about."""
    asked, answers = list(columns["asked"]), list(columns["persistence"])
    if True in asked:
        # Few kernels are asked about where a ledger grew.
        what = list(zip(*(columns[name] for name in ("kernel", "dtype", "hardware")), strict=True))
        wanted = {one for one, now in zip(what, asked, strict=True) if now}
        numbers = [number for number, one in enumerate(what) if one in wanted]
        several = [columns[name] for name in NEEDED]
        cells = with_last_measured([ScoredCell._make(column[number] for column in several) for number in numbers])
        for number, cell in zip(numbers, cells, strict=True):
            asked[number], answers[number] = False, cell.persistence
    return {"asked": asked, "persistence": answers}

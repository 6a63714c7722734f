"""Computes the scores of a ledger from the columns that are kept of its cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ledger.analysis.claims import ClaimScore
from ledger.analysis.machines import ChipTime
from ledger.analysis.results import Results, ScoredCell
from ledger.analysis.score import GroupBy
from ledger.render.score_sheet import ScoreSheet, sheet_of
from ledger.workflow.kept_tables import Table

_NAMED = ("seal", "cell")
"""What is needed where chips are compared."""
_ALWAYS = tuple(name for name in ScoredCell._fields if name not in ("hidden", "asks", *_NAMED))


def needed(_count: int, held: Callable[[str], Sequence[Any]]) -> tuple[str, ...]:
    """Return the columns from which scores are computed."""
    return (*_ALWAYS, *_NAMED) if any(held("chips")) else _ALWAYS


def kept_sheet(kept: Table, group: GroupBy | None) -> ScoreSheet:
    """Return the scores of cells and claims that are kept. group: as for score_cells."""
    columns = dict(kept.columns)
    if any(columns["chips"]):
        columns["chips"] = [[ChipTime(*one) for one in several] for several in columns["chips"]]
    return sheet_of(Results(columns), [ClaimScore(**one) for one in kept.more["claim_scores"]], group)

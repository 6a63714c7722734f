"""Computes the scores of a ledger from the columns that are kept of its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ledger.analysis.claims import ClaimScore
from ledger.analysis.machines import ChipTime
from ledger.analysis.results import Results, ScoredCell
from ledger.analysis.score import GroupBy
from ledger.forecasters.last_measured import with_last_measured
from ledger.render.score_sheet import ScoreSheet, sheet_of
from ledger.workflow.kept_tables import Table

_NAMED = ("seal", "cell")
"""What is needed where chips are compared."""
_ASKED = (
    *("hidden", "dtype", "shape", "flops", "bytes", "peak_flop_per_s", "bandwidth_bytes_per_s", "position", "runs"),
    *_NAMED,
)
"""What is needed where persistence is asked."""
_ALWAYS = tuple(name for name in ScoredCell._fields if name not in _ASKED)


def needed(_count: int, held: Callable[[str], Sequence[Any]]) -> tuple[str, ...]:
    """Return the columns from which scores are computed."""
    if True in held("asked"):
        return ScoredCell._fields
    return (*_ALWAYS, *_NAMED) if any(held("chips")) else _ALWAYS


def kept_sheet(kept: Table, group: GroupBy | None) -> ScoreSheet:
    """Return the scores of cells and claims that are kept. group: as for score_cells."""
    columns = {**kept.columns, **answered(kept.columns)}
    if any(columns["chips"]):
        columns["chips"] = [[ChipTime(*one) for one in several] for several in columns["chips"]]
    return sheet_of(Results(columns), [ClaimScore(**one) for one in kept.more["claim_scores"]], group)


def answered(columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Return the columns of persistence once it has answered for the cells that it is yet to be asked about."""
    if True not in columns["asked"]:
        return {}
    asked, answers = list(columns["asked"]), list(columns["persistence"])
    # Few kernels are asked about where a ledger grew.
    what = list(zip(*(columns[name] for name in ("kernel", "dtype", "hardware")), strict=True))
    wanted = {one for one, now in zip(what, asked, strict=True) if now}
    numbers = [number for number, one in enumerate(what) if one in wanted]
    several = [map(columns[name].__getitem__, numbers) for name in ScoredCell._fields]
    cells = list(map(ScoredCell._make, zip(*several, strict=True)))
    for number, cell in zip(numbers, with_last_measured(cells), strict=True):
        asked[number], answers[number] = False, cell.persistence
    return {"asked": asked, "persistence": answers}

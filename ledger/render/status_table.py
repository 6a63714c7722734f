"""Renders the state of every sealed cell, and of many the state of each campaign's cases.

state is what became of a forecast by its own seal: one whose case another seal's run measured stays open (it may still
be measured, for evidence of its own), and `scored_by` names the record that scores it. Its standing is then `scored`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ledger.analysis.formatting import harmless
from ledger.analysis.sight_names import sight_name
from ledger.errors import UnknownName
from ledger.render.fitted_table import Column, print_fitted
from ledger.render.tables import print_rows
from ledger.suggestions import unknown
from ledger.workflow.kept_tables import Table

if TYPE_CHECKING:
    from ledger.evidence.staleness import CurrentDigest

SIGHT = ("blind", "sight", "declared", "known", "corrections")
"""What it holds of a cell's sight."""
DOCUMENT = ("seal", "cell", "state", "scored_by", "campaign", "forecaster", *SIGHT)
"""What the document of a cell holds, in this order."""
_SUMMARY = ("state", "scored_by", "campaign", "case", "forecaster", "subject")
_LINES = ("seal", "text", "predicted", "run_count", "sight")
_FEW = 50
"""Cells up to which each has its line."""
_SCORED = "scored"
_ALWAYS = ("open", "stale", "measured", "void")
"""Standings that are counted even where there is none."""
_ORDER = ("measured", _SCORED, "failed", "missed", "open", "stale", "hidden", "void")
"""What a cell's standing may be; a case has the first one that a forecast of it has."""

Columns = Mapping[str, Sequence[Any]]


def columns_for(count: int, *, listed: bool | None, as_json: bool) -> tuple[str, ...]:
    """Return the columns that are needed to show so many cells. listed: as for render_status."""
    if as_json:
        return (*DOCUMENT, "subject")
    return (*_SUMMARY, *_LINES) if _is_listed(count, listed) else _SUMMARY


def with_stale(status: Table, current: Callable[[], CurrentDigest]) -> Table:
    """Return a status in which open cells whose kernel or profile is another one now are stale."""
    subjects = status.columns["subject"]
    places = [place for place, subject in enumerate(subjects) if subject]
    if not places:
        return status
    from ledger.evidence.staleness import SealedSubject, is_stale

    digest, states = current(), [*status.columns["state"]]
    for place in places:
        if is_stale(SealedSubject(*subjects[place]), digest):
            states[place] = "stale"
    return status._replace(columns={**status.columns, "state": states})


def status_document(status: Table, head: str) -> dict[str, Any]:
    """Return the document of `ledger status --json`. standing: what counts count, as the text does."""
    standings, claims = _standings(status.columns), status.more["claims"]
    rows = zip(*(status.columns[key] for key in DOCUMENT), strict=True)
    cells = [
        {**dict(zip(DOCUMENT, row, strict=True)), "standing": standing}
        for row, standing in zip(rows, standings, strict=True)
    ]
    counts = {
        "forecasts": _counts(standings, always=(*_ALWAYS, _SCORED)),
        "claims": Counter(c["state"] for c in claims),
    }
    return {"head": head, "cells": cells, "claims": claims, "refused": status.more["refused"], "counts": counts}


def _counts(states: Sequence[str], *, always: Sequence[str]) -> dict[str, int]:
    """Return how many have each state. always: those that are counted where there is none, first."""
    return {**dict.fromkeys(always, 0), **Counter(states)}


def _standings(columns: Columns) -> list[str]:
    """Return the state of each cell, or that another seal's run scores it."""
    pairs = zip(columns["state"], columns["scored_by"], strict=True)
    return [_SCORED if record and state in ("open", "stale", "failed") else state for state, record in pairs]


def of_campaigns(status: Table, campaigns: Collection[str]) -> Table:
    """Return a status with the cells of some campaigns alone, and no claims. Raises: UnknownName."""
    held = status.columns["campaign"]
    known = dict.fromkeys(filter(None, held))
    for name in campaigns:
        if name not in known:
            raise UnknownName(unknown("campaign", name, known))
    kept = [name in campaigns for name in held]
    columns = {key: list(compress(column, kept)) for key, column in status.columns.items()}
    return status._replace(columns=columns, more={**status.more, "claims": [], "claim_lines": []})


def _is_listed(count: int, listed: bool | None) -> bool:
    return count <= _FEW if listed is None else listed


def render_status(status: Table, console: Console, *, listed: bool | None = None) -> None:
    """Print the state of every sealed cell, or of many that of each campaign. listed: every cell in any case."""
    columns, standings = status.columns, _standings(status.columns)
    if _is_listed(len(standings), listed):
        seals, sights = [seal[:10] for seal in columns["seal"]], map(sight_name, columns["sight"])
        told = (standings, seals, columns["text"], columns["predicted"], columns["run_count"], sights)
        rows = list(zip(*told, strict=True))
        print_rows(console, ("state", "seal", "cell", "predicted", "runs", "sight"), rows, folding=("cell",))
    else:
        _campaigns(columns, standings, console)
    claims = [tuple(line) for line in status.more["claim_lines"]]
    if claims:
        print_rows(console, ("state", "seal", "claim", "claimed", "runs"), claims, folding=("claim",))
    console.print(f"forecasts: {_counts_text(_counts(standings, always=_ALWAYS))}")
    if claims:
        console.print(f"claims: {_counts_text(Counter(line[0] for line in claims))}")


def _counts_text(counts: Mapping[str, int]) -> str:
    more = {_SCORED: " by another seal's run"}
    return ", ".join(f"{count} {state}{more.get(state, '')}" for state, count in counts.items())


def _campaigns(columns: Columns, standings: Sequence[str], console: Console) -> None:
    """Print a line for each campaign: its cases by what became of them, and its forecasts."""
    names = [name or "" for name in columns["campaign"]]
    forecasts = Counter(names)
    forecasters = Counter(name for name, _ in {*zip(names, columns["forecaster"], strict=True)})
    counts = list(_case_counts(names, columns["case"], standings).values())
    found = [
        Column("campaign", [harmless(name, 30) or "none" for name in forecasts], right=False),
        Column("cases", [str(sum(count.values())) for count in counts]),
        Column("measured", [str(count["measured"] + count[_SCORED] or "·") for count in counts]),
        *(
            Column(state, [str(count[state] or "·") for count in counts])
            for state in _ORDER[2:]
            if state in ("open", "stale") or any(count[state] for count in counts)
        ),
        Column("forecasts", [str(forecasts[name]) for name in forecasts], rank=1),
        Column("forecasters", [str(forecasters[name]) for name in forecasts], rank=2),
    ]
    print_fitted(console, found)
    told = "measured by any seal's run; a case in two campaigns counts in both"
    last = next(one.heading for one in reversed(found) if not one.rank)
    console.print(f"Columns up to {last} count cases, {told}.", style="dim")
    console.print("Each forecast: ledger status --cells, or --campaign NAME", style="dim")


def _case_counts(campaigns: Sequence[str], cases: Sequence[str], standings: Sequence[str]) -> dict[str, Counter[str]]:
    """Return how many cases of each campaign have each standing: that of the forecast which went furthest."""
    place_of = {standing: place for place, standing in enumerate(_ORDER)}
    best: dict[str, dict[str, int]] = {name: {} for name in campaigns}
    for campaign, case, standing in zip(campaigns, cases, standings, strict=True):
        found, place = best[campaign], place_of.get(standing, len(_ORDER) - 1)
        if place < found.get(case, len(_ORDER)):
            found[case] = place
    return {name: Counter(_ORDER[place] for place in found.values()) for name, found in best.items()}

"""Renders an audit on a terminal. Writes to the console given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from ledger.analysis.book import Book, CellView, ClaimView
from ledger.analysis.formatting import case_text, count_text, harmless
from ledger.analysis.sight_names import sight_name
from ledger.callables.subject import recompute_command
from ledger.evidence.audit_result import LEVELS, NOT_PROVEN, Audit
from ledger.records import Finding
from ledger.render.claim_text import HEADINGS as CLAIM_HEADINGS
from ledger.render.claim_text import table_rows as claim_rows
from ledger.render.fitted_table import Column, print_fitted
from ledger.render.history_events import timeline, timeline_table
from ledger.render.history_table import render_timeline
from ledger.render.report_text import MOST_OF_A_CODE, SCORED, seal_text, standing
from ledger.render.tables import MANY, print_rows

MANY_OF_A_CODE = 40
"""Findings of one code above which the first MOST_OF_A_CODE are listed."""
_COLOURS = {"refused": "red", "flag": "yellow", "note": "dim"}


def render_audit(result: Audit, console: Console) -> None:
    """Print an audit: the commit, the timeline, the verdict of each prediction, what is proven and what is not."""
    book = result.book
    if book is not None:
        console.print(f"audited commit {book.head} of {harmless(result.source)}", markup=False, soft_wrap=True)
        for note in _shared(result.notes):
            console.print(f"note: {harmless(note)}", markup=False, soft_wrap=True)
        console.print()
        if len(book.cells) > MANY:
            _campaigns(book, console)
        else:
            render_timeline(timeline_table(timeline(book)).columns, console)
            console.print()
            _predictions(book, console)
        _claims(book, console)
        _findings(result, console)
        console.print()
        _render_levels(book, console, result.log)
    else:
        _findings(result, console)
    colour = {"holds": "green", "refused": "red", "undetermined": "yellow"}[result.verdict]
    console.print(Text(f"verdict: {result.verdict}: {harmless(result.reason)}", style=f"bold {colour}"), soft_wrap=True)


def _shared(notes: Sequence[str]) -> Iterator[str]:
    """Yield notes; one that many seals have stands once, behind the first of them."""
    found: dict[str, list[str]] = {}
    for note in notes:
        seal, colon, words = note.partition(": ")
        named = bool(colon) and re.fullmatch("[0-9a-f]{10}", seal) is not None
        found.setdefault(words if named else note, []).append(seal if named else "")
    for words, seals in found.items():
        more = f" and {count_text(len(seals) - 1, 'more seal')}" if len(seals) > 1 else ""
        yield f"{seals[0]}{more}: {words}" if seals[0] else words


def _findings(result: Audit, console: Console) -> None:
    """Print what was found: all that refuses, and of other codes with many findings the first ones."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for finding in result.findings:
        found.setdefault((finding.severity, finding.code), []).append(finding)
    for (severity, code), members in found.items():
        shown = members if severity == "refused" or len(members) <= MANY_OF_A_CODE else members[:MOST_OF_A_CODE]
        for finding in shown:
            words = f"{severity} {code} {finding.place}: {finding.message}"
            console.print(Text(harmless(words), style=_COLOURS[severity]), soft_wrap=True)
        if len(shown) < len(members):
            words = f"{severity} {code}: {len(members) - len(shown)} more (ledger audit --json)"
            console.print(Text(words, style=_COLOURS[severity]))


def _campaigns(book: Book, console: Console) -> None:
    """Print a line for each forecaster of each campaign: when, how much, what was measured, and on what it rests."""
    groups: dict[str, dict[str, list[CellView]]] = {}
    for view in (*book.cells, *book.hidden):
        prediction = view.sealed.prediction
        groups.setdefault(prediction.campaign or "", {}).setdefault(prediction.forecaster, []).append(view)
    members = [(name, views) for found in groups.values() for name, views in found.items()]

    def column(heading: str, value: Callable[[list[CellView]], object], rank: int = 0, *, right: bool = True) -> Column:
        return Column(heading, [str(value(views) or "·") for _, views in members], rank, right)

    states = [Counter(map(standing, views)) for _, views in members]
    others = [state for state in dict.fromkeys(state for found in states for state in found) if state != "measured"]
    columns = [
        Column("forecaster", [harmless(name, 30) for name, _ in members], right=False),
        column("sealed, by its commit", lambda views: views[0].sealed.commit.when[:10], 4, right=False),
        column("seals", lambda views: len({view.sealed.id for view in views}), 5),
        column("cells", len),
        Column("measured", [str(found["measured"] or "·") for found in states]),
        *(
            Column(_SHORT.get(state, state), [str(found[state] or "·") for found in states], _RANKS.get(state, 0))
            for state in others
        ),
        column("levels", _levels_of, 3, right=False),
    ]
    named = {name: f"campaign {harmless(name, 60)}" if name else "no campaign" for name in groups}
    titles = [(named[name], len(found)) for name, found in groups.items()]
    print_fitted(console, columns, titles)
    told = "Scored: by another seal's run. Every event and forecast: ledger log, status --cells, audit --json"
    console.print(Text(told, style="dim"))
    console.print()


_SHORT = {SCORED: "scored"}
_RANKS = {"open": 1, "stale": 1, "failed": 2}


def _levels_of(views: list[CellView]) -> str:
    """Return the levels that the measured cells reach, with how many reach each."""
    reached = Counter(level for view in views for level in view.levels)
    return ", ".join(f"{level} in {reached[level]}" for level in sorted(reached))


def _predictions(book: Book, console: Console) -> None:
    """Print each seal and its cells, with what was predicted, what was measured and what that rests on."""
    headings = ("cell", "state", "levels", "sight", "predicted", "measured", "grade")
    for _, group in groupby(book.cells, key=lambda cell: cell.sealed.id):
        cells = tuple(group)
        console.print(Text(seal_text(cells[0]), style="dim"))
        print_rows(console, headings, list(map(_judged, cells)), folding=("cell", "levels", "predicted", "measured"))


def _claims(book: Book, console: Console) -> None:
    """Print each claim with what settled it."""
    if book.claims:
        pairs = zip(claim_rows(book.claims), book.claims, strict=True)
        rows = [(*row, _levels_text(view)) for row, view in pairs]
        print_rows(console, (*CLAIM_HEADINGS, "levels"), rows, folding=("claim", "levels"))


def _judged(cell: CellView) -> tuple[str, ...]:
    verification = cell.counted.verification if cell.counted else None
    percent = verification.measured_percent if verification else None
    regime = verification.regimes_text if verification else ""
    return (
        case_text(cell.forecast.case),
        cell.state,
        _levels_text(cell),
        sight_name(cell.sight),
        f"{cell.forecast.regime} {cell.forecast.percent_milli / 1000:g}%",
        "" if percent is None else f"{regime} {percent:.1f}%",
        (verification.grade if verification else None) or "",
    )


def _levels_text(cell: CellView | ClaimView) -> str:
    levels = ",".join(str(level) for level in cell.levels) or "none"
    return f"{levels} (positions only)" if cell.binding == "positions only" else levels


def _render_levels(book: Book, console: Console, log: str | None) -> None:
    for level, (proves, not_proves) in LEVELS.items():
        reached = sum(level in cell.levels for cell in book.cells) + sum(level in one.levels for one in book.claims)
        words = count_text(reached, "cell") if reached else "not provided"
        if level == 4 and log is not None:
            words = f"{words}; {harmless(log)}" if reached else harmless(log)
        console.print(Text(f"level {level} ({words}) {proves}; it does not prove {not_proves}"))
    bindings = [(cell.binding, cell.forecast.case) for cell in book.cells]
    bindings += [(view.binding, view.claim.case) for view in book.claims]
    held = [case.kernel for binding, case in bindings if binding == "positions only"]
    if held:
        told = f"positions only in {count_text(len(held), 'cell')}: no level 1, their samples are not recomputed"
        console.print(Text(f"{told} ({recompute_command(held)})"))
    for sentence in NOT_PROVEN:
        console.print(Text(sentence))

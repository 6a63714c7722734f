"""Renders an audit on a terminal. Writes to the console given."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.text import Text

from ledger.analysis.book import Book, CellView, ClaimView
from ledger.analysis.formatting import case_text, count_text, harmless
from ledger.analysis.sight import sight_name
from ledger.evidence.audit import LEVELS, NOT_PROVEN, Audit
from ledger.render.claim_text import HEADINGS as CLAIM_HEADINGS
from ledger.render.claim_text import table_rows as claim_rows
from ledger.render.history_table import render_timeline, timeline
from ledger.render.report_text import seal_text
from ledger.render.tables import MANY, print_rows

_COLOURS = {"refused": "red", "flag": "yellow", "note": "dim"}


def render_audit(result: Audit, console: Console) -> None:
    """Print an audit: the commit, the timeline, the verdict of each prediction, what is proven and what is not."""
    book = result.book
    if book is not None:
        console.print(f"audited commit {book.head} of {harmless(result.source)}", markup=False, soft_wrap=True)
        for note in result.notes:
            console.print(f"note: {harmless(note)}", markup=False, soft_wrap=True)
        console.print()
        render_timeline(timeline(book), console)
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


def _findings(result: Audit, console: Console) -> None:
    for finding in result.findings:
        words = f"{finding.severity} {finding.code} {finding.path}: {finding.message}"
        console.print(Text(harmless(words), style=_COLOURS[finding.severity]), soft_wrap=True)


def _predictions(book: Book, console: Console) -> None:
    """Print each seal and its cells, with what was predicted, what was measured and what that rests on."""
    headings = ("cell", "state", "levels", "sight", "predicted", "measured", "grade")
    if len(book.cells) > MANY:
        rows = [(c.sealed.id[:10], harmless(c.sealed.prediction.forecaster), *_judged(c)) for c in book.cells]
        print_rows(console, ("seal", "forecaster", *headings), rows, folding=())
        return
    for _, group in groupby(book.cells, key=lambda cell: cell.sealed.id):
        cells = tuple(group)
        console.print(Text(seal_text(cells[0]), style="dim"), soft_wrap=True)
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
        console.print(f"level {level} ({words}) {proves}; it does not prove {not_proves}", markup=False, soft_wrap=True)
    bindings = [cell.binding for cell in book.cells] + [view.binding for view in book.claims]
    held = bindings.count("positions only")
    if held:
        told = f"positions only in {count_text(held, 'cell')}: no level 1, their samples are not recomputed"
        console.print(f"{told} (ledger audit --recompute)", markup=False, soft_wrap=True)
    for sentence in NOT_PROVEN:
        console.print(sentence, markup=False, soft_wrap=True)

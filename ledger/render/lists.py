"""Renders the short lists: a forecast before it is sealed, the state of each cell, the timeline, an audit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ledger.analysis.book import Book, CellView
from ledger.analysis.formatting import case_words, count_words, harmless, si
from ledger.evidence.audit import LEVELS, NOT_PROVEN, Audit
from ledger.records import Forecast
from ledger.render.report_text import predicted_words, seal_words
from ledger.roofline import arithmetic_intensity, memory_side, ridge_point, time_lower_bound_s

if TYPE_CHECKING:
    from ledger.analysis.book import Commit

_NARROWEST = 14
"""A folding column's least width, which holds the longest word of a cell: a kernel's name or a regime."""
_WIDE = 100
_MANY = 500
"""Rows beyond which a list is printed as plain lines: laying out a table takes a millisecond a row."""
_COLOURS = {"refused": "red", "flag": "yellow", "note": "dim"}


def roof_sentence(forecast: Forecast) -> str:
    """Return what a person needs to know before naming a percent: work, intensity, ridge, roof and floor."""
    work, roof = forecast.work, forecast.roof
    side = "left of the ridge: memory sets the floor" if memory_side(work, roof) else "right of it: arithmetic does"
    return (
        f"{si(work.flops, 'FLOP')} over {si(work.bytes, 'B')} is {arithmetic_intensity(work):.3g} FLOP/byte; "
        f"the ridge is at {ridge_point(roof):.3g} ({roof.path}, {roof.ceilings}), so it lies {side}; "
        f"no faster than {time_lower_bound_s(work, roof) * 1e6:.3g} µs"
    )


def drafts_table(forecasts: Sequence[Forecast]) -> RenderableType:
    """Return a table of forecasts with the roof each is a percentage of."""
    table = _table(("cell", "FLOP/byte", "ridge", "roof", "floor µs", "forecast"), folding=("cell", "forecast"))
    for forecast in forecasts:
        table.add_row(
            case_words(forecast.case),
            f"{arithmetic_intensity(forecast.work):.3g}",
            f"{ridge_point(forecast.roof):.3g}",
            forecast.roof.path,
            f"{time_lower_bound_s(forecast.work, forecast.roof) * 1e6:.3g}",
            predicted_words(forecast),
        )
    return table


def _table(headings: Sequence[str], *, folding: Sequence[str]) -> Table:
    """Return an empty table in which some columns may fold to fit the width and the others never break."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        folds = heading in folding
        table.add_column(heading, overflow="fold", no_wrap=not folds, min_width=_NARROWEST if folds else None)
    return table


def _print_rows(
    console: Console, headings: Sequence[str], rows: Sequence[tuple[str, ...]], *, folding: Sequence[str]
) -> None:
    """Print rows of harmless text as a table, or as plain aligned lines where they are many."""
    if len(rows) > _MANY:
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        lines = (_aligned(row, widths) for row in (headings, *rows))
        # The console's own layout would take longer than the audit.
        console.file.write("".join(f"{line}\n" for line in lines))
        return
    table = _table(headings, folding=folding)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()


def render_status(book: Book, console: Console) -> None:
    """Print the state of every sealed cell."""
    rows = [
        (
            cell.state,
            cell.sealed.id[:10],
            case_words(cell.forecast.case),
            f"{cell.forecast.regime} {cell.forecast.percent_milli / 1000:g}%",
            str(len(cell.runs)),
            "blind" if cell.blind else "informed",
        )
        for cell in book.cells
    ]
    _print_rows(console, ("state", "seal", "cell", "predicted", "runs", "sight"), rows, folding=("cell",))
    counts = {state: sum(cell.state == state for cell in book.cells) for state in ("open", "stale", "measured", "void")}
    console.print(", ".join(f"{count} {state}" for state, count in counts.items()))


def timeline(book: Book) -> list[dict[str, Any]]:
    """Return seals, measurements and withdrawals in the order of the history; dates are self-declared."""
    events: list[tuple[Commit, str, str, str]] = []
    for sealed in book.seals:
        cells = sealed.prediction.cells
        what = sealed.prediction.campaign or (cells[0].cell if cells else "no cells")
        events.append(
            (sealed.commit, "seal", sealed.id, f"{what} ({count_words(len(sealed.prediction.cells), 'cell')})")
        )
    for recorded in book.records:
        measurement = recorded.measurement
        words = f"{case_words(measurement.case)} run {measurement.run} {measurement.status}"
        events.append((recorded.commit, "measurement", recorded.id, words))
    for voided in book.voids:
        events.append((voided.commit, "void", voided.id, f"{voided.void.seal[:10]} {voided.void.why}"))
    return [
        {"commit": commit.sha, "date_self_declared": commit.when, "kind": kind, "id": identity, "what": what}
        for commit, kind, identity, what in sorted(events, key=lambda event: (event[0].position, event[2]))
    ]


def render_timeline(book: Book, console: Console) -> None:
    """Print the timeline with each commit's own date, labelled as what it is."""
    headings = ("commit", "self-declared date", "kind", "id", "what")
    # On a narrow terminal the id gives way: the commit names the event as well.
    shown = tuple(heading for heading in headings if heading != "id" or console.width >= _WIDE)
    rows: list[tuple[str, ...]] = []
    for event in timeline(book):
        when = event["date_self_declared"][:16].replace("T", " ")
        words = (event["commit"][:10], when, event["kind"], event["id"][:10], event["what"])
        rows.append(tuple(harmless(w) for heading, w in zip(headings, words, strict=True) if heading in shown))
    _print_rows(console, shown, rows, folding=("what",))


def render_audit(result: Audit, console: Console) -> None:
    """Print an audit: the commit, the timeline, the verdict of each prediction, what is proven and what is not."""
    book = result.book
    if book is not None:
        console.print(f"audited commit {book.head} of {harmless(result.source)}", markup=False, soft_wrap=True)
        for note in result.notes:
            console.print(f"note: {harmless(note)}", markup=False, soft_wrap=True)
        console.print()
        render_timeline(book, console)
        console.print()
        _predictions(book, console)
        for finding in result.findings:
            words = f"{finding.severity} {finding.code} {finding.path}: {finding.message}"
            console.print(Text(harmless(words), style=_COLOURS[finding.severity]), soft_wrap=True)
        console.print()
        _render_levels(book, console)
    colour = {"holds": "green", "refused": "red", "undetermined": "yellow"}[result.verdict]
    console.print(Text(f"verdict: {result.verdict}: {harmless(result.reason)}", style=f"bold {colour}"), soft_wrap=True)


def _predictions(book: Book, console: Console) -> None:
    """Print each seal and its cells, with what was predicted, what was measured and what that rests on."""
    headings = ("cell", "state", "levels", "sight", "predicted", "measured", "grade")
    if len(book.cells) > _MANY:
        rows = [(c.sealed.id[:10], harmless(c.sealed.prediction.forecaster), *_judged(c)) for c in book.cells]
        _print_rows(console, ("seal", "forecaster", *headings), rows, folding=())
        return
    for _, group in groupby(book.cells, key=lambda cell: cell.sealed.id):
        cells = tuple(group)
        console.print(Text(seal_words(cells[0]), style="dim"), soft_wrap=True)
        _print_rows(console, headings, list(map(_judged, cells)), folding=("cell", "predicted", "measured"))


def _judged(cell: CellView) -> tuple[str, ...]:
    verification = cell.counted.verification if cell.counted else None
    percent = verification.measured_percent if verification else None
    regime = verification.measured_regime if verification else None
    return (
        case_words(cell.forecast.case),
        cell.state,
        ",".join(str(level) for level in cell.levels) or "none",
        "blind" if cell.blind else "informed",
        f"{cell.forecast.regime} {cell.forecast.percent_milli / 1000:g}%",
        "" if percent is None else f"{regime or 'not determined'} {percent:.1f}%",
        (verification.grade if verification else None) or "",
    )


def _render_levels(book: Book, console: Console) -> None:
    for level, (proves, not_proves) in LEVELS.items():
        reached = sum(level in cell.levels for cell in book.cells)
        words = count_words(reached, "cell") if reached else "not provided"
        console.print(f"level {level} ({words}) {proves}; it does not prove {not_proves}", markup=False, soft_wrap=True)
    for sentence in NOT_PROVEN:
        console.print(sentence, markup=False, soft_wrap=True)

"""Renders the order of seals, measurements and withdrawals."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ledger.analysis.book import Book, Commit
from ledger.analysis.formatting import case_text, count_text, harmless
from ledger.render.tables import print_rows

_WIDE = 100


def timeline(book: Book) -> list[dict[str, Any]]:
    """Return seals, measurements and withdrawals in the order of the history; dates are self-declared."""
    events: list[tuple[Commit, str, str, str]] = []
    for sealed in book.seals:
        cells = sealed.prediction.cells
        what = sealed.prediction.campaign or (cells[0].cell if cells else "no cells")
        events.append(
            (sealed.commit, "seal", sealed.id, f"{what} ({count_text(len(sealed.prediction.cells), 'cell')})")
        )
    for recorded in book.records:
        measurement = recorded.measurement
        words = f"{case_text(measurement.case)} run {measurement.run} {measurement.status}"
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
    print_rows(console, shown, rows, folding=("what",))

"""Renders the order of seals, measurements and withdrawals."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console

from ledger.analysis.book import Book, Commit
from ledger.analysis.formatting import case_text, count_text, harmless
from ledger.evidence.draw_checks import domain_of
from ledger.records import PredictionV2
from ledger.render.claim_text import measured_text
from ledger.render.tables import print_rows

_WIDE = 100


def timeline(book: Book) -> list[dict[str, Any]]:
    """Return seals, measurements and withdrawals in the order of the history; dates are self-declared."""
    events: list[tuple[Commit, str, str, str]] = []
    hidden_of = Counter(view.sealed.id for view in book.hidden)
    for sealed in book.seals:
        prediction = sealed.prediction
        claims = prediction.ratios if isinstance(prediction, PredictionV2) else ()
        hidden = hidden_of[sealed.id]
        names = [one.cell for one in prediction.cells] + [one.cell for one in claims]
        domain = domain_of(sealed)
        named = "hidden" if hidden else "no cells" if domain is None else f"domain of {domain.kernel}"
        what = prediction.campaign or (names[0] if names else named)
        counts = [count_text(len(claims), "claim")] if claims else []
        if prediction.cells or hidden or not claims:
            counts.insert(
                0, count_text(len(prediction.cells) + hidden, "cell") + (f", {hidden} hidden" if hidden else "")
            )
        events.append((sealed.commit, "seal", sealed.id, f"{what} ({', '.join(counts)})"))
    for recorded in book.records:
        measurement = recorded.measurement
        words = f"{case_text(measurement.case)} run {measurement.run} {measurement.status}"
        events.append((recorded.commit, "measurement", recorded.id, words))
    for settled in book.ratios:
        measured = settled.measurement
        words = f"{case_text(measured.case)} run {measured.run} {measured_text(measured)}"
        events.append((settled.commit, "measurement", settled.id, words))
    for revealed in book.reveals:
        told = count_text(len(revealed.reveal.openings), "forecast")
        events.append((revealed.commit, "reveal", revealed.id, f"{revealed.reveal.seal[:10]} {told}"))
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

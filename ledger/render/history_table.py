"""Renders the order of seals, measurements and withdrawals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from ledger.analysis.book import Book, Commit
from ledger.analysis.formatting import case_text, count_text, harmless
from ledger.evidence.draw_checks import domain_of
from ledger.evidence.judge import Growth
from ledger.records import Prediction, PredictionV2
from ledger.render.claim_text import measured_text
from ledger.render.fitted_table import Column, print_fitted
from ledger.render.tables import MANY, print_rows

_WIDE = 110
_LONGEST_NAME = 30


def forecaster_text(prediction: Prediction) -> str:
    """Return who forecast: a name, and of a named forecaster its version and kind."""
    participant = prediction.participant if isinstance(prediction, PredictionV2) else None
    if participant is None:
        return prediction.forecaster
    return f"{prediction.forecaster} {participant.version or ''}".rstrip() + f" ({participant.kind})"


def timeline(book: Book) -> list[dict[str, Any]]:
    """Return seals, measurements and withdrawals in the order of the history; dates are self-declared.

    author: the committer. forecaster: of the seal, or of the one that the event is about.
    """
    events: list[tuple[Commit, str, str, str, str]] = []
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
        events.append((sealed.commit, "seal", sealed.id, sealed.id, f"{what} ({', '.join(counts)})"))
    for recorded in book.records:
        measurement = recorded.measurement
        words = f"{case_text(measurement.case)} run {measurement.run} {measurement.status}"
        events.append((recorded.commit, "measurement", recorded.id, measurement.seal, words))
    for settled in book.ratios:
        measured = settled.measurement
        words = f"{case_text(measured.case)} run {measured.run} {measured_text(measured)}"
        events.append((settled.commit, "measurement", settled.id, measured.seal, words))
    for revealed in book.reveals:
        told = count_text(len(revealed.reveal.openings), "forecast")
        events.append(
            (revealed.commit, "reveal", revealed.id, revealed.reveal.seal, f"{revealed.reveal.seal[:10]} {told}")
        )
    for voided in book.voids:
        events.append(
            (voided.commit, "void", voided.id, voided.void.seal, f"{voided.void.seal[:10]} {voided.void.why}")
        )
    forecasters = {sealed.id: forecaster_text(sealed.prediction) for sealed in book.seals}
    return [
        {
            "commit": commit.sha,
            "date_self_declared": commit.when,
            "kind": kind,
            "id": identity,
            "what": what,
            "author": commit.author,
            "forecaster": forecasters.get(seal),
        }
        for commit, kind, identity, seal, what in sorted(events, key=lambda event: (event[0].position, event[2]))
    ]


def timeline_growth(found: Growth) -> list[dict[str, Any]]:
    """Return the events that new commits add; they all come after the others."""
    return [event for event in timeline(found.book) if event["id"] in found.added]


def grown_timeline(events: list[dict[str, Any]], growths: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a timeline with the events of growths."""
    return [*events, *(event for growth in growths for event in growth)]


def render_timeline(events: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the timeline with each commit's own date, labelled as what it is."""
    headings = ("commit", "self-declared date", "author", "forecaster", "kind", "id", "what")
    # On a narrow terminal the id gives way, as the commit names the event, and names that are all the same.
    hidden = set() if console.width >= _WIDE else {"id"}
    if all(event["forecaster"] in (None, event["author"]) for event in events):
        hidden.add("forecaster")
    shown = tuple(heading for heading in headings if heading not in hidden)
    rows: list[tuple[str, ...]] = []
    for event in events:
        when = event["date_self_declared"][:16].replace("T", " ")
        names = (harmless(event["author"], _LONGEST_NAME), harmless(event["forecaster"] or "", _LONGEST_NAME))
        words = (event["commit"][:10], when, *names, event["kind"], event["id"][:10], event["what"])
        rows.append(tuple(harmless(w) for heading, w in zip(headings, words, strict=True) if heading in shown))
    if len(rows) > MANY:
        ranks = {"id": 3, "author": 2, "forecaster": 1}
        values = zip(shown, zip(*rows, strict=True), strict=True)
        print_fitted(console, [Column(name, column, ranks.get(name, 0), right=False) for name, column in values])
        return
    print_rows(console, shown, rows, folding=("author", "forecaster", "what"))

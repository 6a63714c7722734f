"""Lists seals, measurements and withdrawals of a book in the order of the history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ledger.analysis.book import Book, Commit
from ledger.analysis.formatting import case_text, count_text
from ledger.evidence.draw_checks import domain_of
from ledger.evidence.judge import Growth
from ledger.records import Prediction, PredictionV2
from ledger.render.claim_text import measured_text
from ledger.render.history_table import KEYS
from ledger.workflow.kept_tables import Rows, Table, columns_of


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
        dict(
            zip(
                KEYS,
                (commit.sha, commit.when, kind, identity, what, commit.author, forecasters.get(seal)),
                strict=True,
            )
        )
        for commit, kind, identity, seal, what in sorted(events, key=lambda event: (event[0].position, event[2]))
    ]


def timeline_table(events: Iterable[dict[str, Any]]) -> Table:
    """Return a timeline as it is kept."""
    return Table(columns_of(KEYS, [[*event.values()] for event in events]))


def timeline_rows(found: Growth) -> Rows:
    """Return the events that new commits add; they all come after the others."""
    return Rows(timeline_table(event for event in timeline(found.book) if event["id"] in found.added).columns)

"""Renders the order of seals, measurements and withdrawals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from rich.console import Console

from ledger.analysis.book import Book, Commit
from ledger.analysis.formatting import case_text, count_text, harmless
from ledger.evidence.draw_checks import domain_of
from ledger.evidence.judge import Growth
from ledger.records import Prediction, PredictionV2
from ledger.render.claim_text import measured_text
from ledger.render.fitted_table import Column, print_fitted
from ledger.render.kept_columns import Columns, columns_of, unpacked
from ledger.render.tables import MANY, print_rows

_WIDE = 110
_LONGEST_NAME = 30
_KEYS = ("commit", "date_self_declared", "kind", "id", "what", "author", "forecaster")
"""What an event holds, in this order."""


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
                _KEYS,
                (commit.sha, commit.when, kind, identity, what, commit.author, forecasters.get(seal)),
                strict=True,
            )
        )
        for commit, kind, identity, seal, what in sorted(events, key=lambda event: (event[0].position, event[2]))
    ]


def timeline_growth(found: Growth) -> list[dict[str, Any]]:
    """Return the events that new commits add; they all come after the others."""
    return [event for event in timeline(found.book) if event["id"] in found.added]


def kept_timeline(events: Sequence[dict[str, Any]]) -> Columns:
    """Return a timeline as it is kept."""
    return columns_of([*event.values()] for event in events)


def grown_timeline(kept: Columns, growths: Sequence[Columns]) -> Columns:
    """Return a kept timeline with the kept events of growths."""
    parts = [unpacked(one) for one in (kept, *growths) if one]
    return [[*chain(*column)] for column in zip(*parts, strict=True)]


def events_of(kept: Columns) -> list[dict[str, Any]]:
    """Return the events of a kept timeline."""
    return [dict(zip(_KEYS, event, strict=True)) for event in zip(*unpacked(kept), strict=True)]


def render_timeline(kept: Columns, console: Console) -> None:
    """Print a kept timeline with each commit's own date, labelled as what it is."""
    columns = dict(zip(_KEYS, unpacked(kept) or [()] * len(_KEYS), strict=True))
    authors, forecasters = columns["author"], columns["forecaster"]
    # On a narrow terminal the id gives way, as the commit names the event, and names that are all the same.
    hidden = set() if console.width >= _WIDE else {"id"}
    if all(name is None or name == author for name, author in zip(forecasters, authors, strict=True)):
        hidden.add("forecaster")
    names = {name: harmless(name or "", _LONGEST_NAME) for name in {*authors, *forecasters}}
    told: dict[str, Sequence[str]] = {
        "commit": [commit[:10] for commit in columns["commit"]],
        "self-declared date": [harmless(when[:16].replace("T", " ")) for when in columns["date_self_declared"]],
        "author": [names[author] for author in authors],
        "forecaster": [names[name] for name in forecasters],
        "kind": columns["kind"],
        "id": [identity[:10] for identity in columns["id"]],
        "what": [*map(harmless, columns["what"])],
    }
    shown = {heading: column for heading, column in told.items() if heading not in hidden}
    if len(authors) > MANY:
        ranks = {"id": 3, "author": 2, "forecaster": 1}
        found = [Column(name, column, ranks.get(name, 0), right=False) for name, column in shown.items()]
        print_fitted(console, found)
        return
    rows = list(zip(*shown.values(), strict=True))
    print_rows(console, tuple(shown), rows, folding=("author", "forecaster", "what"))

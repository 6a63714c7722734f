"""Renders the state of every sealed cell."""

from __future__ import annotations

from rich.console import Console

from ledger.analysis.book import Book
from ledger.analysis.formatting import case_text
from ledger.analysis.sight import sight_name
from ledger.render.claim_text import case_words, claimed_text
from ledger.render.tables import print_rows


def render_status(book: Book, console: Console) -> None:
    """Print the state of every sealed cell."""
    rows = [
        (
            cell.state,
            cell.sealed.id[:10],
            case_text(cell.forecast.case),
            f"{cell.forecast.regime} {cell.forecast.percent_milli / 1000:g}%",
            str(len(cell.runs)),
            sight_name(cell.sight),
        )
        for cell in book.cells
    ]
    rows += [
        ("hidden", cell.sealed.id[:10], case_text(cell.forecast.case), "not revealed", "–", sight_name(cell.sight))
        for cell in book.hidden
    ]
    print_rows(console, ("state", "seal", "cell", "predicted", "runs", "sight"), rows, folding=("cell",))
    if book.claims:
        claims = [
            (
                view.state,
                view.sealed.id[:10],
                case_words(view.claim.case),
                claimed_text(view.claim),
                str(len(view.runs)),
            )
            for view in book.claims
        ]
        print_rows(console, ("state", "seal", "claim", "claimed", "runs"), claims, folding=("claim",))
    states = [cell.state for cell in book.cells] + [view.state for view in book.claims]
    counts: dict[str, int] = {state: states.count(state) for state in ("open", "stale", "measured", "void")}
    if book.hidden:
        counts["hidden"] = len(book.hidden)
    console.print(", ".join(f"{count} {state}" for state, count in counts.items()))

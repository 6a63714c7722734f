"""Renders the state of every sealed cell."""

from __future__ import annotations

from rich.console import Console

from ledger.analysis.book import Book
from ledger.analysis.formatting import case_text
from ledger.analysis.sight import sight_name
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
    print_rows(console, ("state", "seal", "cell", "predicted", "runs", "sight"), rows, folding=("cell",))
    counts = {state: sum(cell.state == state for cell in book.cells) for state in ("open", "stale", "measured", "void")}
    console.print(", ".join(f"{count} {state}" for state, count in counts.items()))

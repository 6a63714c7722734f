"""Prints tables whose long columns fold, and plain aligned lines where rows are many."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_NARROWEST = 14
"""A folding column's least width, which holds the longest word of a cell: a kernel's name or a regime."""
_GAP = 2

_WIDEST = 160
"""Columns that a plain line is padded to; one long text must not pad all the other lines."""

MANY = 500
"""Rows beyond which a list is printed as plain lines: laying out a table takes a millisecond a row."""


def empty_table(headings: Sequence[str], *, folding: Sequence[str]) -> Table:
    """Return an empty table in which some columns may fold to fit the width and the others never break."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        folds = heading in folding
        table.add_column(heading, overflow="fold", no_wrap=not folds, min_width=_NARROWEST if folds else None)
    return table


def print_rows(
    console: Console, headings: Sequence[str], rows: Sequence[tuple[str, ...]], *, folding: Sequence[str]
) -> None:
    """Print rows of harmless text as a table, or as plain aligned lines where they are many."""
    if len(rows) > MANY:
        widths = [min(max(map(len, column)), _WIDEST) for column in zip(headings, *rows, strict=True)]
        # The console's own layout would take longer than the audit.
        line = "  ".join(f"{{:<{width}}}" for width in widths)
        console.file.writelines(f"{line.format(*row).rstrip()}\n" for row in (headings, *rows))
        return
    table = empty_table(headings, folding=folding)
    needed = _GAP * (len(headings) - 1)
    for column, *words in zip(table.columns, headings, *rows, strict=True):
        if not column.no_wrap:
            column.min_width = min(_NARROWEST, max(len(part) for word in words for part in (word.split() or [""])))
        needed += column.min_width or max(map(len, words))
    for row in rows:
        table.add_row(*map(Text, row))
    # Rather lines that are too long than words that are cut off.
    table.width = needed if needed > console.width else None
    console.print(table, crop=False)

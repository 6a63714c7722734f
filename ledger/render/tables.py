"""Prints tables whose long columns fold, and plain aligned lines where rows are many."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
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
    folds = [not column.no_wrap for column in table.columns]
    widest = [max(map(cell_len, words)) for words in zip(headings, *rows, strict=True)]
    least = [
        min(_NARROWEST, max(len(part) for word in words for part in (word.split() or [""]))) if fold else width
        for words, width, fold in zip(zip(headings, *rows, strict=True), widest, folds, strict=True)
    ]
    gap = _GAP
    if sum(least) + gap * (len(least) - 1) > console.width:
        # Columns stand closer.
        gap, table.padding = 1, (0, 1, 0, 0)
    widths = _fitted(widest, least, console.width - gap * (len(least) - 1))
    for column, width in zip(table.columns, widths, strict=True):
        column.width, column.min_width = width, None
    for row in rows:
        told = zip(row, widths, folds, strict=True)
        table.add_row(*(_folded(word, width, console) if fold else Text(word) for word, width, fold in told))
    # Rather lines that are too long than words that are cut off.
    needed = sum(widths) + gap * (len(widths) - 1)
    table.width = needed if needed > console.width else None
    console.print(table, crop=False)


def _fitted(widest: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return column widths that fit into a room, the widest column giving way first, none below its least."""
    widths = list(widest)
    while sum(widths) > room:
        wide = [column for column, width in enumerate(widths) if width > least[column]]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _folded(words: str, width: int, console: Console) -> Text:
    """Return words folded to a width. Rich would begin a line with the blank behind a word that it broke."""
    lines = Text(words).wrap(console, width, overflow="fold")
    return Text("\n".join(line.plain.strip() for line in lines))

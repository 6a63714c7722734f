"""Prints tables of as many columns as a terminal holds; no value is cut off or folded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ledger.render.tables import MANY

_GAP = 2


@dataclass(frozen=True)
class Column:
    """Hold one column: its heading, whose lines are split at line breaks, and a harmless value a row.

    rank: which columns give way first where they do not all fit, those of the highest rank; of rank 0 none.
    """

    heading: str
    values: Sequence[str]
    rank: int = 0
    right: bool = True

    @cached_property
    def width(self) -> int:
        """Return the width of the widest value or line of the heading."""
        # The width of a text that is not ASCII is looked up character by character.
        return max(map(len if self.is_ascii else cell_len, (*self.heading.split("\n"), *self.values)))

    @cached_property
    def is_ascii(self) -> bool:
        """Tell whether the heading and all values are."""
        return self.heading.isascii() and all(map(str.isascii, self.values))


def print_fitted(console: Console, columns: Sequence[Column], sections: Sequence[tuple[str, int]] = ()) -> list[str]:
    """Print a table; return the headings of the columns that do not fit.

    sections: titles, each with the number of rows below it; without any, rows stand under no title.
    """
    kept = fitted(columns, console.width)
    heads = [column.heading.split("\n") for column in kept]
    for line in range(height := max(map(len, heads))):
        # Short headings stand at the bottom.
        words = [head[line - height + len(head)] if line >= height - len(head) else "" for head in heads]
        _line(console, _row(kept, words), "bold")
    first = 0
    for title, count in sections or (("", len(columns[0].values)),):
        if title:
            _line(console, title, "bold")
        rows = list(zip(*(column.values[first : first + count] for column in kept), strict=True))
        if len(rows) > MANY:
            # Past the console, whose own layout takes a millisecond a line.
            console.file.write("\n".join((*_lines(kept, rows), "")))
        else:
            for row in rows:
                _line(console, _row(kept, row), "")
        first += count
    return [column.heading.replace("\n", " ") for column in columns if column not in kept]


def fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit a width, in their order: those of lower rank first."""
    kept: list[int] = []
    for number in sorted(range(len(columns)), key=lambda number: columns[number].rank):
        needed = sum(columns[one].width + _GAP for one in (*kept, number)) - _GAP
        if not columns[number].rank or needed <= width:
            kept.append(number)
    return [columns[number] for number in sorted(kept)]


def _lines(columns: Sequence[Column], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    line = (" " * _GAP).join(f"%{'' if column.right else '-'}{column.width}s" for column in columns)
    if all(column.is_ascii for column in columns):
        return map(str.rstrip, map(line.__mod__, rows))
    return (_row(columns, row) for row in rows)


def _row(columns: Collection[Column], words: Sequence[str]) -> str:
    parts = []
    for column, word in zip(columns, words, strict=True):
        space = " " * (column.width - cell_len(word))
        parts.append(f"{space}{word}" if column.right else f"{word}{space}")
    return (" " * _GAP).join(parts).rstrip()


def _line(console: Console, words: str, style: str) -> None:
    # Rather lines that are too long than words that are cut off.
    console.print(Text(words, style=style), soft_wrap=True)

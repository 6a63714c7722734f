"""Keeps rows as columns, which a parser of JSON reads several times as fast; a column of equal values is kept once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Columns = list[Any]


def columns_of(rows: Iterable[Sequence[Any]]) -> Columns:
    """Return the columns of rows as a JSON value, none of no rows."""
    return [
        {"all": column[0], "rows": len(column)} if column.count(column[0]) == len(column) else column
        for column in zip(*rows, strict=True)
    ]


def unpacked(columns: Columns) -> list[Sequence[Any]]:
    """Return each column with a value for each row."""
    return [[column["all"]] * column["rows"] if isinstance(column, dict) else column for column in columns]

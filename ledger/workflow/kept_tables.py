"""Keeps tables in the index by columns, each with its digest, so that a command reads those alone which it shows.

A patch is what new commits change: the places of rows and their values. Rows beyond the end are new ones; they come
before those that stay last.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

MOST_PATCHES = 100
"""Patches beyond which tables are written as a whole."""
_FLOATS, _FEW = f"float64 {sys.byteorder}".encode(), b"few"


Held = Callable[[str], Sequence[Any]]
"""Return the values of a column."""
Wanted = Callable[[int, Held], Iterable[str]]
"""Return the columns that are needed, given the number of rows."""
Fill = Callable[[Held, Sequence[int]], Mapping[str, Sequence[Any]]]
"""Return columns of the rows at some places, which changed, given all rows."""


class Table(NamedTuple):
    """Hold columns of JSON values by name, how many of the rows stay last, and another JSON value."""

    columns: Mapping[str, Sequence[Any]]
    last: int = 0
    more: Any = None


class Rows(NamedTuple):
    """Hold rows that are new or may have changed, by columns.

    key: the names of the columns that tell a row; without any, all rows are new, as are those whose first key is among
    `new`. staying: columns that stay in the rows whose first key is among `seen`. fill: gives more columns of them.
    """

    columns: Mapping[str, Sequence[Any]]
    key: Sequence[str] = ()
    staying: Collection[str] = ()
    seen: Collection[str] = ()
    new: Collection[str] = ()
    fill: Fill | None = None


def columns_of(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the columns of rows."""
    listed = list(rows)
    if not listed:
        return {name: [] for name in names}
    return dict(zip(names, map(list, zip(*listed, strict=True)), strict=True))


def packed(value: Any) -> tuple[bytes, bytes]:
    """Return the digest and the bytes of a JSON value.

    A list of floats and None is kept as numbers of 8 bytes behind the places of None, and a long list of few texts or
    integers as a byte for each behind these: both are read several times as fast as JSON.
    """
    kinds = {*map(type, value), type(None)} if isinstance(value, list) else set()
    if kinds == {float, type(None)}:
        nothing = [place for place, one in enumerate(value) if one is None]
        numbers = array("d", (0.0 if one is None else one for one in value))
        data = _joined(_FLOATS, nothing, numbers.tobytes())
    elif len(kinds) == 2 and kinds <= {str, int, type(None)} and len(few := {*value}) <= min(256, len(value) // 8):
        place_of = {one: place for place, one in enumerate(few)}
        data = _joined(_FEW, [*place_of], bytes(map(place_of.__getitem__, value)))
    else:
        data = _json(value)
    return hashlib.sha256(data).digest(), data


def unpacked(digest: bytes, data: bytes) -> Any:
    """Return the JSON value of bytes. Raises: DamagedError."""
    if hashlib.sha256(data).digest() != digest:
        raise DamagedError
    kind, _, rest = data.partition(b":")
    if kind in (_FLOATS, _FEW):
        told, _, rest = rest.partition(b"\n")
        listed = json.loads(told)
        if kind == _FEW:
            return [*map(listed.__getitem__, rest)]
        numbers: list[float | None] = [*array("d", rest)]
        for place in listed:
            numbers[place] = None
        return numbers
    try:
        return json.loads(data)
    except ValueError as error:
        # Numbers of a machine that orders their bytes in another way.
        raise DamagedError from error


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _joined(kind: bytes, told: Any, rest: bytes) -> bytes:
    return b"%s:%s\n%s" % (kind, _json(told), rest)


class DamagedError(Exception):
    """Say that something was kept and cannot be read."""


class KeptTables:
    """Read and write the tables of an index, within a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Remember the index."""
        self._connection = connection

    def write(self, tables: Mapping[str, Table]) -> None:
        """Keep tables in place of all that were kept."""
        self._connection.execute("delete from patches")
        self._connection.execute("delete from columns")
        for name, table in tables.items():
            count = len(next(iter(table.columns.values())))
            values = [("", [count, [*table.columns], table.last, table.more]), *table.columns.items()]
            rows = [(name, column, *packed(_short(value) if column else value)) for column, value in values]
            self._connection.executemany("insert into columns values (?, ?, ?, ?)", rows)

    def read(self, name: str, wanted: Wanted | None = None) -> Table:
        """Return a table with the columns wanted, all by default. Raises: DamagedError."""
        count, names, last, more = self._value(name, "")
        patches = [patch[name] for patch in self._patches()]
        columns = {}

        @cache
        def held(column: str) -> list[Any]:
            return self._patched(name, column, patches)

        for column in names if wanted is None else wanted(_grown(count, patches), held):
            values = held(column)
            # Rows that are new come before those that stay last.
            columns[column] = values[: count - last] + values[count:] + values[count - last : count] if last else values
        return Table(columns, last, more)

    def patch(self, changes: Mapping[str, Rows]) -> None:
        """Keep what changes in the tables. Raises: DamagedError."""
        before = self._patches()
        patch = {}
        for name, rows in changes.items():
            earlier = [one[name] for one in before]
            patch[name] = self._placed(name, rows, earlier)
            places = [place for part, _ in patch[name] for place in part]
            if rows.fill is not None and places:

                @cache
                def held(column: str, name: str = name, patches: Sequence[Any] = (*earlier, patch[name])) -> list[Any]:
                    return self._patched(name, column, patches)

                patch[name].append([places, rows.fill(held, places)])
        self._connection.execute("insert into patches (digest, data) values (?, ?)", packed(patch))
        if len(before) >= MOST_PATCHES:
            self.write({name: self.read(name) for name in changes})

    def _placed(self, name: str, rows: Rows, before: Sequence[Any]) -> list[Any]:
        """Return the rows of a table with their places: those of which all changes, and the others."""
        keys = list(zip(*(rows.columns[column] for column in rows.key), strict=True)) if rows.key else []
        first = {key[0] for key in keys}.difference(rows.new)
        held = [self._patched(name, column, before) for column in rows.key] if first else []
        places = [place for place, one in enumerate(held[0]) if one in first] if held else []
        place_of = {tuple(column[place] for column in held): place for place in places}
        end = _grown(self._value(name, "")[0], before)
        whole: list[tuple[int, int]] = []
        parts: list[tuple[int, int]] = []
        for number in range(len(next(iter(rows.columns.values())))):
            place = place_of.setdefault(keys[number], end) if keys else end
            (parts if place < end and keys[number][0] in rows.seen else whole).append((place, number))
            end += place == end
        return [
            [
                [place for place, _ in several],
                {
                    column: [values[number] for _, number in several]
                    for column, values in rows.columns.items()
                    if several is whole or column not in rows.staying
                },
            ]
            for several in (whole, parts)
        ]

    def _patched(self, name: str, column: str, patches: Iterable[Any]) -> list[Any]:
        """Return a column with its patches, in the order in which rows came. Raises: DamagedError."""
        held = self._value(name, column)
        values: list[Any] = [held["all"]] * held["rows"] if isinstance(held, dict) else held
        for places, columns in chain.from_iterable(patches):
            for place, value in zip(places, columns.get(column, ()), strict=False):
                if place == len(values):
                    values.append(value)
                else:
                    values[place] = value
        return values

    def _patches(self) -> list[Any]:
        found = self._connection.execute("select digest, data from patches order by number")
        return [unpacked(digest, data) for digest, data in found]

    def _value(self, name: str, column: str) -> Any:
        asked = "select digest, data from columns where list = ? and name = ?"
        found = self._connection.execute(asked, (name, column)).fetchone()
        if found is None:
            raise DamagedError
        return unpacked(*found)


def _short(column: Sequence[Any]) -> Any:
    """Return a column as it is kept: one of equal values as that value."""
    if column and list(column).count(column[0]) == len(column):
        return {"all": column[0], "rows": len(column)}
    return column


def _grown(count: int, patches: Iterable[Any]) -> int:
    """Return how many rows a table has after some patches."""
    places: Iterable[int] = (place for part, _ in chain.from_iterable(patches) for place in part)
    return max((count - 1, *places)) + 1

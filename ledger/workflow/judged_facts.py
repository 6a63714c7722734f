"""Keeps, in the index, what judging the commits that follow has to know of a ledger that was judged and holds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.analysis.book import Book, Commit
from ledger.evidence.record_checks import Evidence
from ledger.git.ancestry import Ancestry, FileSet, introductions
from ledger.git.history import History

MOST_RECORDS = 4_000
"""Records, new ones and those that bear on them, beyond which all are judged."""
MOST_SET_BYTES = 64 * 1024**2
_TABLES = ("commits", "places", "numbers")


class NotPlainError(Exception):
    """Say that all must be judged."""


def keep_judged(connection: sqlite3.Connection, history: History, book: Book) -> None:
    """Keep what a later growth has to know of a judged ledger, where it holds and is no jungle of branches."""
    connection.execute("delete from about where name = 'judged'")
    for table in _TABLES:
        connection.execute(f"delete from {table}")
    introduced = introductions(history)
    seals = [sealed.path for sealed in book.seals]
    if book.refused or any(len(introduced[path]) > 1 for path in seals):
        return
    ancestry = Ancestry(history, introduced, sorted(seals), wanted=range(len(history.commits)))
    rows = [commit_row(commit, ancestry) for commit in history.commits]
    if sum(len(row[-1]) for row in rows) > MOST_SET_BYTES:
        return
    connection.executemany("insert into commits values (?, ?, ?, ?, ?, ?)", rows)
    paths = [*seals, *(one.path for one in book.records), *(one.path for one in book.ratios)]
    paths += [*(one.path for one in book.voids), *(one.path for one in book.reveals)]
    places = [(path, json.dumps(introduced[path])) for path in paths]
    connection.executemany("insert into places values (?, ?)", places)
    connection.executemany("insert into numbers values (?, ?)", ((path, ancestry.number(path)) for path in seals))
    connection.execute("insert or replace into about values ('judged', ?)", (history.head,))


def learned(history: History, book: Book) -> Iterator[tuple[str, str, Evidence]]:
    """Yield the records of a judged book as the index learns them. Seals with reveals are left to be read."""
    revealed = {one.reveal.seal for one in book.reveals}
    for sealed in book.seals:
        if sealed.id not in revealed:
            yield sealed.path, history.tree[sealed.path][1], sealed.prediction
    for one in book.records:
        yield one.path, history.tree[one.path][1], one.measurement


def commit_row(commit: Commit, ancestry: Ancestry) -> tuple[int, str, str, str, int, bytes]:
    """Return what is kept of a commit, with the seals before it."""
    first, rest = ancestry.set_before(commit.position)
    return (
        commit.position,
        commit.sha,
        commit.when,
        commit.author,
        first,
        rest.to_bytes((rest.bit_length() + 7) // 8, "big"),
    )


@dataclass(frozen=True)
class JudgedFacts:
    """Ask an index for what was kept."""

    connection: sqlite3.Connection

    def all(self, asked: str, *values: object) -> list[Any]:
        """Return the rows of a question. Raises: NotPlainError where they are many."""
        found = self.connection.execute(asked, values).fetchmany(MOST_RECORDS + 1)
        if len(found) > MOST_RECORDS:
            raise NotPlainError
        return found

    def paths(self, table: str, where: str, *values: object) -> list[str]:
        """Return the paths of records of which a table says something."""
        asked = f"select distinct held.path from {table} join held on held.blob = {table}.blob where {where}"
        return [path for (path,) in self.all(asked, *values)]

    def blob(self, path: str) -> str | None:
        """Return git's name of a file of the head, None of one that is not there."""
        held = self.connection.execute("select blob from held where path = ?", (path,)).fetchone()
        return None if held is None else str(held[0])

    def number(self, path: str) -> int | None:
        """Return the number of an earlier seal in the sets of seals."""
        held = self.connection.execute("select number from numbers where path = ?", (path,)).fetchone()
        return None if held is None else int(held[0])

    def path_of(self, number: int) -> str:
        """Return the path of an earlier seal by its number."""
        held = self.connection.execute("select path from numbers where number = ?", (number,)).fetchone()
        return str(held[0])

    def before(self, position: int) -> FileSet:
        """Return the seals before an earlier commit."""
        row = self.connection.execute("select first, rest from commits where position = ?", (position,)).fetchone()
        return FileSet(row[0], int.from_bytes(row[1], "big"))

    def added_by(self, position: int) -> list[int]:
        """Return the numbers of the seals that an earlier commit introduced."""
        asked = "select numbers.number from places join numbers on numbers.path = places.path where positions = ?"
        held = self.all(asked, json.dumps([position]))
        return [number for (number,) in held]

    def places(self, path: str) -> tuple[int, ...]:
        """Return the positions of the commits that introduced an earlier record."""
        held = self.connection.execute("select positions from places where path = ?", (path,)).fetchone()
        if held is None:
            raise NotPlainError
        return tuple(json.loads(held[0]))

    def known_commit(self, position: int) -> Commit:
        """Return an earlier commit."""
        asked = "select sha, date, author from commits where position = ?"
        sha, date, author = self.connection.execute(asked, (position,)).fetchone()
        return Commit(sha=sha, when=date, author=author, position=position)


class KnownCommits(dict[int, Commit]):
    """Hold commits by position; earlier ones are looked up."""

    def __init__(self, new: Mapping[int, Commit], known: Callable[[int], Commit]) -> None:
        """Begin with new ones. known: gives the others."""
        super().__init__(new)
        self._known = known

    def __missing__(self, position: int) -> Commit:
        """Look up an earlier one."""
        self[position] = found = self._known(position)
        return found


class KnownTree(dict[str, tuple[str, str]]):
    """Find files of the head in the index, which holds the regular ones."""

    def __init__(self, blob_of: Callable[[str], str | None]) -> None:
        """Begin with none. blob_of: gives git's name of a file."""
        super().__init__()
        self._blob_of = blob_of

    def get(self, path: str, default: Any = None) -> Any:
        """Return mode and blob of a file."""
        blob = self._blob_of(path)
        return default if blob is None else ("100644", blob)

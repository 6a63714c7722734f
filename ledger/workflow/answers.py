"""Keeps what a command found out about one commit, so that it need not judge a large ledger again.

Tables of a ledger's cells and events also follow a history that goes on: what new commits add is judged alone (growth)
and kept as a patch of the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.workflow.index_file import ask_index
from ledger.workflow.kept_tables import DamagedError, KeptTables, Rows, Table, Wanted, packed, unpacked

if TYPE_CHECKING:
    from ledger.analysis.book import Book
    from ledger.evidence.judge import Growth
    from ledger.git.history import History
    from ledger.git.reader import Reader


def remembered(git_dir: FilePath, name: str, commit: str, make: Callable[[], Any]) -> Any:
    """Return the JSON value that was kept under a name for a commit, else what `make` returns, which is kept.

    One value is kept for each name. A value whose digest is wrong counts as none.
    """
    held = ask_index(git_dir, lambda index: _read(index, name, commit))
    if held is not None:
        return held[0]
    value = make()
    row = (name, commit, *packed(value))
    ask_index(git_dir, lambda index: index.execute("insert or replace into answers values (?, ?, ?, ?)", row).rowcount)
    return value


class Growing(NamedTuple):
    """Hold how a table is made of a book, and what growth changes in it."""

    make: Callable[[Book], Table]
    rows: Callable[[Growth], Rows]


def growing(
    git_dir: FilePath,
    reader: Reader,
    head: str,
    name: str,
    *,
    kinds: Mapping[str, Growing],
    judged: Callable[[], tuple[History, Book]],
    wanted: Wanted | None = None,
) -> Table:
    """Return the table of a name at a commit: as it was kept, grown from there, or of the book that `judged` returns.

    kinds: all tables, which are kept together. wanted: the columns, all by default.
    """
    held = ask_index(git_dir, lambda index: _follow(index, reader, head, name, kinds, wanted))
    if held is not None:
        return held
    history, book = judged()
    tables = {kind: one.make(book) for kind, one in kinds.items()}
    ask_index(git_dir, lambda index: _begin(index, reader, tables, history, book))
    return tables[name]


def _begin(
    index: sqlite3.Connection, reader: Reader, tables: Mapping[str, Table], history: History, book: Book
) -> None:
    """Keep tables and what they grow from."""
    from ledger.workflow.judged_facts import keep_judged, learned
    from ledger.workflow.record_index import RecordIndex

    if book.refused:
        index.execute("begin immediate")
    else:
        RecordIndex(index, reader, history.head, learned(history, book))
    keep_judged(index, history, book)
    index.execute("insert or replace into about values ('listed', ?)", (history.head,))
    KeptTables(index).write(tables)


def _follow(
    index: sqlite3.Connection,
    reader: Reader,
    head: str,
    name: str,
    kinds: Mapping[str, Growing],
    wanted: Wanted | None,
) -> Table | None:
    """Return a table as it is kept, after it was grown to a commit; None where it has to be made."""
    about = dict(index.execute("select name, value from about where name in ('listed', 'judged')").fetchall())
    before = about.get("listed")
    if before is None or (before != head and about.get("judged") != before):
        return None
    with suppress(DamagedError):
        if before != head:
            return _grown(index, reader, before, head, name, kinds, wanted)
        # No other process changes the tables while several columns are read.
        index.execute("begin")
        return KeptTables(index).read(name, wanted)
    return None


def _grown(
    index: sqlite3.Connection,
    reader: Reader,
    before: str,
    head: str,
    name: str,
    kinds: Mapping[str, Growing],
    wanted: Wanted | None,
) -> Table | None:
    """Return a table after all were grown to a commit; None where they have to be made. Raises: DamagedError."""
    from ledger.workflow.growth import grown
    from ledger.workflow.record_index import RecordIndex

    found = grown(index, RecordIndex(index, reader, head), reader, before, head)
    if found is None:
        return None
    tables = KeptTables(index)
    tables.patch({kind: one.rows(found) for kind, one in kinds.items()})
    index.execute("insert or replace into about values ('listed', ?)", (head,))
    return tables.read(name, wanted)


def _read(index: sqlite3.Connection, name: str, commit: str) -> tuple[Any] | None:
    asked = "select digest, data from answers where name = ? and key = ?"
    found = index.execute(asked, (name, commit)).fetchone()
    with suppress(DamagedError):
        return None if found is None else (unpacked(*found),)
    return None

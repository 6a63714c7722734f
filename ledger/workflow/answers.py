"""Keeps what a command found out about one commit, so that it need not judge a large ledger again.

Lists of a ledger's cells, events and scores also follow a history that goes on: what new commits add is judged alone
(growth) and kept as a patch of the list.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ledger.analysis.book import Book
from ledger.evidence.judge import Growth
from ledger.git.history import History
from ledger.git.reader import Reader
from ledger.workflow.growth import grown
from ledger.workflow.index_file import ask_index
from ledger.workflow.judged_facts import keep_judged, learned
from ledger.workflow.record_index import RecordIndex


def remembered(git_dir: FilePath, name: str, commit: str, make: Callable[[], Any]) -> Any:
    """Return the JSON value that was kept under a name for a commit, else what `make` returns, which is kept.

    One value is kept for each name. A value whose digest is wrong counts as none.
    """
    held = ask_index(git_dir, lambda index: _read(index, name, commit))
    if held is not None:
        return json.loads(held)
    value = make()
    data, digest = _packed(value)
    row = (name, commit, digest, data)
    ask_index(git_dir, lambda index: index.execute("insert or replace into answers values (?, ?, ?, ?)", row).rowcount)
    return value


class Growing(NamedTuple):
    """Hold how a list is made of a book, what growth adds to it, and how several of these apply; all JSON values."""

    make: Callable[[Book], Any]
    patch: Callable[[Growth], Any]
    apply: Callable[[Any, Sequence[Any]], Any]


MOST_PATCHES = 100
"""Patches beyond which lists are written as a whole."""


def growing(
    git_dir: FilePath,
    reader: Reader,
    head: str,
    name: str,
    *,
    kinds: Mapping[str, Growing],
    judged: Callable[[], tuple[History, Book]],
) -> Any:
    """Return the list of a name at a commit: as it was kept, grown from there, or of the book that `judged` returns.

    kinds: all lists, which are kept together.
    """
    held = ask_index(git_dir, lambda index: _follow(index, reader, head, name, kinds))
    if held is not None:
        return held
    history, book = judged()
    values = {kind: one.make(book) for kind, one in kinds.items()}
    ask_index(git_dir, lambda index: _begin(index, reader, values, history, book))
    return values[name]


def _begin(index: sqlite3.Connection, reader: Reader, values: Mapping[str, Any], history: History, book: Book) -> None:
    """Keep lists and what they grow from."""
    if book.refused:
        index.execute("begin immediate")
    else:
        RecordIndex(index, reader, history.head, learned(history, book))
    keep_judged(index, history, book)
    index.execute("delete from patches")
    index.execute("insert or replace into about values ('listed', ?)", (history.head,))
    for name, value in values.items():
        data, digest = _packed(value)
        index.execute("insert or replace into answers values (?, 'listed', ?, ?)", (name, digest, data))


def _follow(index: sqlite3.Connection, reader: Reader, head: str, name: str, kinds: Mapping[str, Growing]) -> Any:
    """Return a list as it is kept, after it was grown to a commit; None where it has to be made."""
    about = dict(index.execute("select name, value from about where name in ('listed', 'judged')").fetchall())
    before = about.get("listed")
    if before is None or (before != head and about.get("judged") != before):
        return None
    if before != head:
        found = grown(index, RecordIndex(index, reader, head), reader, before, head)
        if found is None:
            return None
        patch = {kind: one.patch(found) for kind, one in kinds.items()}
        data, digest = _packed(patch)
        index.execute("insert into patches (digest, data) values (?, ?)", (digest, data))
        index.execute("insert or replace into about values ('listed', ?)", (head,))
        (count,) = index.execute("select count(*) from patches").fetchone()
        if count > MOST_PATCHES:
            whole = {kind: _patched(index, kind, one) for kind, one in kinds.items()}
            if None in whole.values():
                return None
            index.execute("delete from patches")
            for kind, value in whole.items():
                data, digest = _packed(value)
                index.execute("insert or replace into answers values (?, 'listed', ?, ?)", (kind, digest, data))
    return _patched(index, name, kinds[name])


def _patched(index: sqlite3.Connection, name: str, kind: Growing) -> Any:
    """Return a list with its patches; None where one of them is damaged."""
    held = _read(index, name, "listed")
    if held is None:
        return None
    patches = []
    for digest, data in index.execute("select digest, data from patches order by number"):
        if hashlib.sha256(data).digest() != digest:
            return None
        patches.append(json.loads(zlib.decompress(data))[name])
    value = json.loads(held)
    return kind.apply(value, patches) if patches else value


def _packed(value: Any) -> tuple[bytes, bytes]:
    data = zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)
    return data, hashlib.sha256(data).digest()


def _read(index: sqlite3.Connection, name: str, commit: str) -> bytes | None:
    asked = "select digest, data from answers where name = ? and key = ?"
    found = index.execute(asked, (name, commit)).fetchone()
    return zlib.decompress(found[1]) if found is not None and hashlib.sha256(found[1]).digest() == found[0] else None

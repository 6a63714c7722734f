"""Keeps a disposable SQLite file in git's own folder, from which large ledgers are answered fast.

It is a cache: deleting it loses nothing, report and audit never read it, and every answer from it is about a commit
that the caller names. A file that SQLite finds damaged, or that another version of ledger wrote, is written anew; where
it cannot be written or is locked for long, an index in memory takes its place. SQLite finds no damage within a stored
value: what is worth it carries a digest.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path as FilePath
from typing import TypeVar

from ledger import __version__

T = TypeVar("T")
NAME = "ledger.index"
_PATIENCE_S = 60.0
_TABLES = """
create table if not exists about (name text primary key, value text not null) without rowid;
create table if not exists held (path text primary key, blob text not null) without rowid;
create index if not exists held_blob on held (blob);
create table if not exists known (blob text primary key) without rowid;
create table if not exists sealed (
    blob text, seal text, cell text, operation text, hardware_sha256 text, primary key (seal, cell, blob)
) without rowid;
create index if not exists sealed_hardware on sealed (hardware_sha256, blob);
create table if not exists campaigns (blob text, campaign text, forecaster text);
create index if not exists campaigns_name on campaigns (campaign, forecaster);
create table if not exists timed (
    blob text, seal text, cell text, kernel text, sources text, shape text, keys text, dtype text, hardware text,
    size0 integer, size1 integer, size2 integer
);
create index if not exists timed_shape on timed (shape, dtype);
create index if not exists timed_sizes on timed (keys, size0, size1, size2);
create table if not exists cases (blob text, seal text, shape text, dtype text);
create index if not exists cases_shape on cases (shape, dtype);
create table if not exists runs (blob text, seal text);
create index if not exists runs_seal on runs (seal);
create table if not exists evidence (digest blob, blob text, primary key (digest, blob)) without rowid;
create table if not exists commits (
    position integer primary key, sha text not null, date text not null, author text not null, first integer, rest blob
);
create unique index if not exists commits_sha on commits (sha);
create table if not exists places (path text primary key, positions text not null) without rowid;
create index if not exists places_positions on places (positions);
create table if not exists numbers (path text primary key, number integer not null) without rowid;
create table if not exists states (name text primary key, kind text, state text, digest text) without rowid;
create table if not exists patches (number integer primary key, digest blob not null, data blob not null);
create index if not exists numbers_number on numbers (number);
create table if not exists columns (
    list text, name text, digest blob not null, data blob not null, primary key (list, name)
);
create table if not exists answers (name text primary key, key text not null, digest blob not null, data blob not null);
"""


def ask_index(git_dir: FilePath, question: Callable[[sqlite3.Connection], T]) -> T:
    """Return what a question finds in the index of a repository; it is asked again where the index has to be made anew.

    question: (connection) -> answer; it may leave a transaction open, which is committed.
    """
    path = git_dir / NAME
    for _ in range(2):
        try:
            with closing(opened_index(str(path))) as connection:
                return _answer(connection, question)
        except sqlite3.OperationalError:
            # Locked for long, or a folder that cannot be written; a damaged file says so itself.
            break
        except sqlite3.DatabaseError:
            for suffix in ("", "-journal"):
                with suppress(OSError):
                    path.with_name(NAME + suffix).unlink(missing_ok=True)
    with closing(opened_index(":memory:")) as connection:
        return _answer(connection, question)


def _answer(connection: sqlite3.Connection, question: Callable[[sqlite3.Connection], T]) -> T:
    answer = question(connection)
    if connection.in_transaction:
        connection.execute("commit")
    return answer


def opened_index(name: str) -> sqlite3.Connection:
    """Open an index, made anew where another version of ledger wrote it. Raises: sqlite3.Error."""
    connection = sqlite3.connect(name, timeout=_PATIENCE_S, isolation_level=None)
    try:
        connection.execute("pragma synchronous = normal")
        if connection.execute("pragma user_version").fetchone()[0] != _stamp():
            _make(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _make(connection: sqlite3.Connection) -> None:
    """Make the tables, without what another version wrote."""
    connection.execute("begin immediate")
    if connection.execute("pragma user_version").fetchone()[0] != _stamp():
        names = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
        for (name,) in names:
            connection.execute(f'drop table if exists "{name}"')
        for statement in filter(str.strip, _TABLES.split(";")):
            connection.execute(statement)
        connection.execute(f"pragma user_version = {_stamp()}")
    connection.execute("commit")


@cache
def _stamp() -> int:
    """Return a number for the code that fills the index: its version and the state of its files."""
    root = FilePath(__file__).parent.parent
    found = [(str(path.relative_to(root)), path.stat()) for path in sorted(root.rglob("*.py"))]
    told = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in found]
    return zlib.crc32(repr((__version__, told)).encode()) & 0x7FFFFFFF or 1

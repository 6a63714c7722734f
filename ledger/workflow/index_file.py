"""Keeps a disposable SQLite file in git's own folder, from which large ledgers are answered fast.

It is a cache: deleting it loses nothing, report and audit never read it, and every answer from it is about a commit
that the caller names. A file that SQLite finds damaged, or that another version of ledger wrote, is written anew; where
it cannot be written or is locked for long, an index in memory takes its place. SQLite finds no damage within a stored
value: what is worth it carries a digest. The repository may be a stranger's, so nothing is written through a link, and
a file that holds anything but these tables and indexes (a view, a trigger) is removed before it is asked.
"""

from __future__ import annotations

import sqlite3
import stat
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
_MOST_STEPS = 5 * 10**8
"""Steps of SQLite in one question: 500 for each of a million records, which take about a minute on a slow machine."""
_STEPS_AT_ONCE = 10**6
# The end of a journal that names another file, which SQLite removes. A journal of one file has none.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")
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
_ASK_SCHEMA = "select type, name, sql from sqlite_master order by type, name"


def ask_index(git_dir: FilePath, question: Callable[[sqlite3.Connection], T]) -> T:
    """Return what a question finds in the index of a repository; it is asked again where the index has to be made anew.

    question: (connection) -> answer; it may leave a transaction open, which is committed.
    """
    path = git_dir / NAME
    for _ in range(2):
        if not _is_own(path):
            _remove(path)
        if not _is_own(path):
            break
        try:
            with closing(opened_index(str(path))) as connection:
                _limit(connection)
                return _answer(connection, question)
        except sqlite3.DatabaseError as error:
            # Locked for long, or a folder that cannot be written; a damaged file says so itself.
            code = getattr(error, "sqlite_errorcode", None)
            if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_INTERRUPT:
                break
            _remove(path)
    with closing(opened_index(":memory:")) as connection:
        return _answer(connection, question)


def _files(path: FilePath) -> tuple[FilePath, ...]:
    return tuple(path.with_name(path.name + suffix) for suffix in ("", "-journal", "-wal", "-shm"))


def _is_own(path: FilePath) -> bool:
    """Tell whether the index and what SQLite keeps beside it are regular files of no other name, or are not there."""
    for file in _files(path):
        try:
            state = file.lstat()
            if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
                return False
            if file.name.endswith("-journal") and _names_another(file):
                return False
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _names_another(journal: FilePath) -> bool:
    with journal.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - len(_NAMES_ANOTHER)))
        return stream.read() == _NAMES_ANOTHER


def _remove(path: FilePath) -> None:
    for file in _files(path):
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _limit(connection: sqlite3.Connection) -> None:
    """Interrupt a question that takes too many steps, as over a file whose pages repeat themselves."""
    left = iter(range(_MOST_STEPS // _STEPS_AT_ONCE))
    connection.set_progress_handler(lambda: next(left, None) is None, _STEPS_AT_ONCE)


def _answer(connection: sqlite3.Connection, question: Callable[[sqlite3.Connection], T]) -> T:
    answer = question(connection)
    if connection.in_transaction:
        connection.execute("commit")
    return answer


def opened_index(name: str) -> sqlite3.Connection:
    """Open an index, made anew where another version of ledger wrote it.

    Raises: sqlite3.Error, also where the file holds anything but tables and indexes of ledger.
    """
    connection = sqlite3.connect(name, timeout=_PATIENCE_S, isolation_level=None)
    try:
        connection.execute("pragma synchronous = normal")
        if connection.execute("pragma user_version").fetchone()[0] != _stamp():
            _make(connection)
        if connection.execute(_ASK_SCHEMA).fetchall() != _schema():
            raise sqlite3.DatabaseError(f"{name}: holds other tables than ledger's")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _make(connection: sqlite3.Connection) -> None:
    """Make the tables, without what another version wrote."""
    connection.execute("begin immediate")
    if connection.execute("pragma user_version").fetchone()[0] != _stamp():
        listed = connection.execute(_ASK_SCHEMA).fetchall()
        if any(kind not in ("table", "index") or "virtual" in (sql or "").lower() for kind, _, sql in listed):
            raise sqlite3.DatabaseError("holds more than tables and indexes")
        for name in (name for kind, name, _ in listed if kind == "table"):
            quoted = name.replace('"', '""')
            connection.execute(f'drop table if exists "{quoted}"')
        for statement in filter(str.strip, _TABLES.split(";")):
            connection.execute(statement)
        connection.execute(f"pragma user_version = {_stamp()}")
    connection.execute("commit")


@cache
def _schema() -> list[tuple[str, str, str | None]]:
    """Return type, name and definition of what the index holds."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_TABLES)
        found: list[tuple[str, str, str | None]] = connection.execute(_ASK_SCHEMA).fetchall()
        return found


@cache
def _stamp() -> int:
    """Return a number for the code that fills the index: its version and the state of its files."""
    root = FilePath(__file__).parent.parent
    found = [(str(path.relative_to(root)), path.stat()) for path in sorted(root.rglob("*.py"))]
    told = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in found]
    return zlib.crc32(repr((__version__, told)).encode()) & 0x7FFFFFFF or 1

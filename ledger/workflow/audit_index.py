"""Keeps beside an auditor's checkpoint what an audit has to know of the records that it saw, in a file of its own.

The file is the auditor's, as the checkpoint is: whoever can change it can make an audit since then say anything.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path as FilePath

from ledger.analysis.book import Book
from ledger.errors import MachineError
from ledger.evidence.judge import Growth
from ledger.git.history import History
from ledger.git.reader import Reader
from ledger.workflow.growth import grown
from ledger.workflow.index_file import opened_index
from ledger.workflow.judged_facts import keep_judged, learned
from ledger.workflow.record_index import RecordIndex


def index_of(checkpoint: FilePath) -> FilePath:
    """Return the path of the index beside a checkpoint."""
    return checkpoint.with_name(f"{checkpoint.name}.index")


class AuditIndex:
    """Hold a copy of the index beside a checkpoint, or a new one, while an audit runs."""

    def __init__(self, since: FilePath | None) -> None:
        """Remember the checkpoint to go on from, if any."""
        self._folder = tempfile.TemporaryDirectory(prefix="ledger-index-")
        self._path = FilePath(self._folder.name) / "index"
        self._since = since
        self._connection: sqlite3.Connection | None = None

    def grow(self, reader: Reader, before: str, head: str) -> Growth | None:
        """Return what the commits after a checkpoint's add; None where all must be judged."""
        if self._since is None or not index_of(self._since).is_file():
            return None
        with suppress(sqlite3.Error):
            shutil.copyfile(index_of(self._since), self._path)
            index = self._opened()
            held = index.execute("select value from about where name = 'judged'").fetchone()
            if held is not None and held[0] == before == head:
                nothing = frozenset[str]()
                return Growth(Book(head, (), (), (), (), ()), nothing, nothing, nothing)
            if held is not None and held[0] == before:
                return grown(index, RecordIndex(index, reader, head), reader, before, head, all_sights=True)
        return None

    def keep(self, reader: Reader, history: History, book: Book) -> None:
        """Keep what is known of a whole ledger. Raises: MachineError where there is no room for it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._path.unlink(missing_ok=True)
        with self._needs_room():
            index = self._opened()
            RecordIndex(index, reader, history.head, learned(history, book))
            keep_judged(index, history, book)

    def set_states(self, rows: Iterable[tuple[str, str, str, str]]) -> None:
        """Keep name, kind, state, and digest of what is shown, of cells and claims. Raises: MachineError."""
        with self._needs_room():
            self._opened().executemany("insert or replace into states values (?, ?, ?, ?)", rows)

    def states(self) -> Counter[tuple[str, str]]:
        """Return how many cells and claims there are of each kind and state."""
        found = self._opened().execute("select kind, state, count(*) from states group by 1, 2")
        return Counter({(kind, state): count for kind, state, count in found})

    def digests(self) -> tuple[str, ...]:
        """Return the digests of what is shown of all cells and claims that are shown."""
        return tuple(sorted(one for (one,) in self._opened().execute("select digest from states where digest <> ''")))

    def records(self) -> int:
        """Return how many records there are."""
        return int(self._opened().execute("select count(*) from places").fetchone()[0])

    def write(self, checkpoint: FilePath) -> None:
        """Put the index beside a checkpoint. Raises: OSError; MachineError."""
        connection = self._opened()
        with self._needs_room():
            if connection.in_transaction:
                connection.execute("commit")
        connection.close()
        self._connection = None
        shutil.move(self._path, index_of(checkpoint))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = opened_index(str(self._path))
        return self._connection

    @contextmanager
    def _needs_room(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            remedy = "free some, or set TMPDIR to a folder of another disk"
            raise MachineError(f"{self._path}: {error}; expected room for the index of an audit; {remedy}") from None

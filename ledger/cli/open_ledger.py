"""Opens the ledger of the current folder and reads its book; shared by the commands."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ledger.cli.output import working
from ledger.errors import EvidenceRefused, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ledger.analysis.book import Book
    from ledger.evidence.staleness import CurrentDigest
    from ledger.git.commit import Repository
    from ledger.git.history import History
    from ledger.git.reader import Reader
    from ledger.workflow.answers import Growing
    from ledger.workflow.kept_tables import Table, Wanted

_SHOWN = 20
"""Findings that are listed of those that refuse a ledger."""


@dataclass(frozen=True)
class OpenLedger:
    """Hold the user's repository with the history of its ledger."""

    repository: Repository
    reader: Reader
    head: str

    @cached_property
    def history(self) -> History:
        """Return the history of the ledger, read on first use; git may still be walking its changes."""
        from ledger.git.history import read_history

        return read_history(self.reader, self.head, wait=False)

    @cached_property
    def book(self) -> Book:
        """Return the book of the ledger, judged on first use."""
        return self._judged(self.current)

    @cached_property
    def book_of_commit(self) -> Book:
        """Return the book as the commit alone gives it: what is stale by the work tree counts as open."""
        return self._judged(None)

    def _judged(self, current: CurrentDigest | None) -> Book:
        from ledger.evidence.judged_ledger import judged_ledger

        with working("judging the ledger"):
            book = judged_ledger(self.reader, self.history, current=current)
        freeze_records()
        return book

    def remembered(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a JSON value that follows from the commit: kept from an earlier command, or made and kept."""
        from ledger.workflow.answers import remembered

        return remembered(self.repository.git_dir, name, self.head, make)

    def growing(self, name: str, kinds: Mapping[str, Growing], wanted: Wanted) -> Table:
        """Return the table of a name: kept from an earlier command, grown from there, or made of the commit's book.

        wanted: the columns.
        """
        from ledger.workflow.answers import growing

        def judged() -> tuple[History, Book]:
            return self.history, self.book_of_commit

        asked = (self.repository.git_dir, self.reader, self.head, name)
        return growing(*asked, kinds=kinds, judged=judged, wanted=wanted)

    @cached_property
    def current(self) -> CurrentDigest:
        """Return a function that gives the digest of a kernel or a profile in the work tree."""
        from ledger.workflow.select import current_digests

        return current_digests(self.root)

    @contextmanager
    def refusing_uncommitted(self) -> Iterator[None]:
        """Let git look for uncommitted edits in a ledger folder, which takes it seconds, while something is computed.

        Raises: EvidenceRefused at the end where there are any, whatever else was found.
        """
        # Git is waited for at the end: Linux lowers the priority of this thread alone, and git inherits it.
        with ThreadPoolExecutor(max_workers=1, initializer=os.nice, initargs=(10,)) as background:
            changed = background.submit(self.repository.uncommitted_at_rest)
            try:
                yield
            finally:
                _refuse_uncommitted(changed.result())

    @property
    def root(self) -> FilePath:
        """Return the top folder of the work tree."""
        return self.repository.root


def find_root() -> FilePath | None:
    """Return the top folder of the repository around the current folder, or None; reads no git configuration."""
    current = FilePath.cwd()
    return next((folder for folder in (current, *current.parents) if (folder / ".git").exists()), None)


def open_ledger(*, uncommitted_is_refused: bool = True, recovers: bool = True) -> OpenLedger:
    """Open the ledger of the current folder's repository at HEAD. recovers: finish what a killed writer began.

    Raises: StateError without a repository or a commit; EvidenceRefused for uncommitted edits in a ledger folder.
    """
    from ledger.git.commit import Repository
    from ledger.git.reader import Reader, quiet_environment

    repository = Repository(FilePath.cwd())
    if recovers:
        repository.recover()
    head = repository.head()
    if head is None:
        raise StateError(f"{repository.root}: no commit yet; expected a sealed forecast: ledger predict")
    if uncommitted_is_refused:
        _refuse_uncommitted(repository.uncommitted_at_rest())
    reader = Reader(repository.git_dir, quiet_environment())
    return OpenLedger(repository, reader, head)


def _refuse_uncommitted(changed: Sequence[str]) -> None:
    if changed:
        raise EvidenceRefused(
            f"{changed[0]}: changed and not committed ({len(changed)} such files); ledger folders are written by "
            "ledger alone: restore with git checkout, or see ledger doctor"
        )


def freeze_records() -> None:
    """Stop the garbage collector from tracking the records: they are kept to the end and have no cycles."""
    gc.freeze()


def refuse_if_refused(book: Book) -> None:
    """Stop on evidence that the judge refuses, naming each record. Raises: EvidenceRefused."""
    if not book.refused:
        return
    refuse([finding.text for finding in book.refused])


def refuse(lines: Sequence[str]) -> None:
    """Stop on evidence that the judge refuses. Raises: EvidenceRefused."""
    more = f"and {len(lines) - _SHOWN} more; " if len(lines) > _SHOWN else ""
    count = f"{len(lines)} findings refuse" if len(lines) > 1 else "a finding refuses"
    raise EvidenceRefused(
        f"the report does not open: {count} the evidence", [*lines[:_SHOWN], f"{more}see ledger audit"]
    )

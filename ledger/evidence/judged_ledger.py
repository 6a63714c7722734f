"""Judges the history of a ledger with the notes on sight that its campaigns folder holds. Reads git objects."""

from __future__ import annotations

from functools import partial

from ledger.analysis.book import Book
from ledger.evidence.judge import judge
from ledger.evidence.record_checks import record_blobs
from ledger.evidence.sight_checks import read_notes
from ledger.evidence.staleness import CurrentDigest
from ledger.git.history import History
from ledger.git.reader import Reader
from ledger.git.tree_files import blobs_at


def judged_ledger(reader: Reader, history: History, *, current: CurrentDigest | None = None) -> Book:
    """Return the book of a ledger whose history was read. current: as for judge."""
    with reader.blobs() as blobs:
        notes = read_notes(reader, history.head, blobs.read)
        blobs.plan(record_blobs(history.tree))
        return judge(history, blobs.read, current=current, notes=notes, files_at=partial(blobs_at, reader))

"""Ingests measurements: judges the ledger as they would leave it, then commits those that hold, one a commit.

The whole ledger is judged once, and that book is its state afterwards; where another writer comes between, what is left
is judged again on the new tip. Nothing is committed that a report, or an audit that recomputes samples, would refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path as FilePath
from typing import TypeVar

from ledger.analysis.book import Book, Commit, Recorded, RecordedRatio, short_name
from ledger.canonical import encode, object_id, object_path, record_id, record_path
from ledger.errors import EvidenceRefused, InputError
from ledger.evidence.judge import judge
from ledger.evidence.judged_ledger import judged_ledger
from ledger.evidence.recompute import recompute
from ledger.evidence.record_checks import record_blobs
from ledger.evidence.sight_checks import read_notes
from ledger.evidence.staleness import CurrentDigest
from ledger.git.commit import Repository
from ledger.git.history import Change, History, commits_after, read_history
from ledger.git.reader import Reader
from ledger.git.tree_files import blobs_at
from ledger.record_files import read_bytes, results
from ledger.records import Attachment, Finding, Measurement, RatioMeasurement

MAX_ATTACHMENT_BYTES = 256 * 1024 * 1024
MAX_FOLDER_BYTES = 1024**3
"""Bytes of all attachments of a folder, in memory until they are committed: 500 of the largest reports yet, 2 MB."""

R = TypeVar("R", Recorded, RecordedRatio)

Refusals = dict[str, tuple[Finding, ...]]
"""What refuses each measurement, by the path that its record would have."""


@dataclass(frozen=True)
class Incoming:
    """Hold one measurement that is not in the ledger yet, with the files that it names, by path."""

    path: str
    record: bytes
    measurement: Measurement | RatioMeasurement
    attachments: Mapping[str, bytes]

    @property
    def files(self) -> dict[str, bytes]:
        """Return all files of its commit, by path."""
        return {self.path: self.record, **self.attachments}

    @property
    def short_name(self) -> str:
        """Return SEAL#CELL with the first ten digits of the seal's id."""
        return short_name(self.measurement.seal, self.measurement.cell)


@dataclass(frozen=True)
class Outcome:
    """Hold what became of one measurement: its commit, or what refused it."""

    cell: str
    path: str
    commit: str | None
    note: str | None
    refused: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Ingested:
    """Hold what became of the new measurements, and the book of the ledger afterwards.

    A book that is refused means that the ledger was refused before; then nothing was committed.
    """

    taken: tuple[Outcome, ...]
    book: Book


def read_folder(
    folder: FilePath,
    on_skip: Callable[[str], None] = lambda _told: None,
    committed: Container[str] | None = None,
) -> list[Incoming]:
    """Return the measurements in a folder with their attachments; other JSON files are named to `on_skip`.

    committed: the paths of the ledger's files, if known. The judge refuses a measurement whose seal is not among them,
    so its attachments are not read. Raises: InputError when an attachment is missing, or all together are too large;
    EvidenceRefused when its bytes are not its name.
    """
    incoming = []
    held: dict[str, bytes] = {}
    for file, measurement in results(folder, on_skip):
        attachments = {}
        if committed is None or record_path("predictions", measurement.seal) in committed:
            for attachment in measurement.attachments:
                data = _read(folder, file, attachment, held)
                attachments[object_path("verifications", attachment.sha256)] = data
        incoming.append(incoming_of(measurement, attachments))
    return incoming


def _read(folder: FilePath, file: FilePath, attachment: Attachment, held: dict[str, bytes]) -> bytes:
    """Return the bytes of an attachment, which are held once. Raises: as read_folder."""
    data = held.get(attachment.sha256)
    if data is None and sum(map(len, held.values())) + attachment.bytes > MAX_FOLDER_BYTES:
        raise InputError(
            f"{folder}: attachments of more than {MAX_FOLDER_BYTES} bytes; expected less at once: move some "
            "measurements into a folder of their own, beside the same objects"
        )
    if data is None:
        data = read_bytes(folder / "objects" / attachment.sha256, limit=MAX_ATTACHMENT_BYTES)
    if len(data) != attachment.bytes or object_id(data) != attachment.sha256:
        raise EvidenceRefused(f"{file}: attachment {attachment.name} has other bytes than it had when measured")
    held[attachment.sha256] = data
    return data


def incoming_of(measurement: Measurement | RatioMeasurement, attachments: Mapping[str, bytes]) -> Incoming:
    """Return a measurement ready to be ingested; `attachments` by the path that they will have."""
    data = encode(measurement)
    return Incoming(record_path("verifications", record_id(type(measurement), data)), data, measurement, attachments)


def ingest(
    repository: Repository,
    reader: Reader,
    incoming: Iterable[Incoming],
    *,
    history: History | None = None,
    current: CurrentDigest | None = None,
    sign: bool = False,
) -> Ingested:
    """Commit measurements one by one, leaving out those already there and those that the report would refuse.

    history: what was read of HEAD; read again where HEAD has moved since. current: as for judge.
    """
    if history is None or history.head != repository.head():
        history = read_history(reader, wait=False)
    fresh = list({item.path: item for item in incoming if item.path not in history.tree}.values())
    date = repository.committer()[1] if fresh else "0 +0000"
    rehearsal = _Rehearsal(reader, history, current, _iso(date))
    book, refusals, notes = _admit_recomputed(rehearsal.book, fresh)
    if book.refused:
        return Ingested((), book)
    taken = []
    # What the judged history ends with; a commit on top of anything else is judged anew.
    tip: str | None = history.head
    for item in fresh:
        placed = _Placed(item, rehearsal, tip)
        try:
            if item.path in refusals:
                raise _NotPlacedError(refusals[item.path])
            # With the date that was judged: one before its seal's is disclosed.
            written = repository.commit(placed.compose, sign=sign, date=date)
        except _NotPlacedError as error:
            if error.refused:
                taken.append(Outcome(item.short_name, item.path, None, None, error.refused))
        else:
            note = "; ".join(filter(None, (notes.get(item.path), written.index_note))) or None
            taken.append(Outcome(item.short_name, item.path, written.commit, note))
            tip = written.commit
        # What comes after another writer's commit was not judged together with it.
        tip = None if placed.moved else tip
    made = [item.commit for item in taken if item.commit is not None]
    return Ingested(tuple(taken), rehearsal.settled(book, made))


class _NotPlacedError(Exception):
    """Tell that a measurement cannot go on top of a new tip: what refuses it, or nothing when it is there already."""

    def __init__(self, refused: tuple[Finding, ...]) -> None:
        super().__init__()
        self.refused = refused


class _Placed:
    """Compose the commit of one measurement, judged again when its parent is not the tip that was judged."""

    def __init__(self, item: Incoming, rehearsal: _Rehearsal, tip: str | None) -> None:
        self._item, self._rehearsal, self._tip = item, rehearsal, tip
        self.moved = False

    def compose(self, parent: str | None) -> tuple[Mapping[str, bytes], str]:
        """Return the files and the message of the commit. Raises: _NotPlacedError."""
        item = self._item
        if parent != self._tip:
            self.moved = True
            rehearsal = self._rehearsal.on(parent)
            if rehearsal.holds(item.path):
                raise _NotPlacedError(())
            book, refusals = _admit(rehearsal.book, [item])
            if refused := refusals.get(item.path) or book.refused:
                raise _NotPlacedError(refused)
            self._tip = parent
        message = f"Measure {item.measurement.cell}: {item.measurement.status}\n\nSeal-Id: {item.measurement.seal}\n"
        return item.files, f"{message}Record-Id: {FilePath(item.path).stem}\n"


def _admit_recomputed(
    judged: Callable[[Sequence[Incoming]], Book], fresh: Sequence[Incoming]
) -> tuple[Book, Refusals, dict[str, str]]:
    """Return what `_admit` does, samples that disagree with their seal refused, and notes on those not recomputed."""
    book, refusals = _admit(judged, fresh)
    if book.refused:
        return book, refusals, {}
    result = recompute(book, only=[item.path for item in fresh if item.path not in refusals])
    if result.findings:
        refusals.update({finding.path: (finding,) for finding in result.findings})
        book, more = _admit(judged, [item for item in fresh if item.path not in refusals])
        refusals.update(more)
    notes = {item.path: f"no level 1, positions only: {item.reason}" for item in result.skipped}
    return book, refusals, notes


def _iso(date: str) -> str:
    """Return git's own `SECONDS ZONE` as ISO 8601."""
    seconds, zone = date.split(" ")
    offset = timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[3:]))
    return datetime.fromtimestamp(int(seconds), timezone(offset)).isoformat()


def _admit(judged: Callable[[Sequence[Incoming]], Book], fresh: Sequence[Incoming]) -> tuple[Book, Refusals]:
    """Return the book with all measurements that may be committed, and what refuses each of the others.

    Leaving one out may refuse another (a later run of its cell), so the rest is judged again until it holds.
    """
    kept, refusals = list(fresh), Refusals()
    while (book := judged(kept)).refused and kept:
        blamed = {item.path: found for item in kept if (found := _about(item, book))} or _culprit(judged, kept)
        if not blamed:
            return judged(()), refusals
        refusals.update(blamed)
        kept = [item for item in kept if item.path not in blamed]
    return book, refusals


def _about(item: Incoming, book: Book) -> tuple[Finding, ...]:
    return tuple(finding for finding in book.refused if finding.path == item.path)


def _culprit(judged: Callable[[Sequence[Incoming]], Book], kept: Sequence[Incoming]) -> Refusals:
    """Return the first measurement that makes the judge refuse another file; none where it refuses the ledger alone."""
    if judged(()).refused:
        return {}
    for count, item in enumerate(kept, start=1):
        if refused := judged(kept[:count]).refused:
            return {item.path: refused}
    return {}


class _Rehearsal:
    """Judge a history with measurements on top of it that are not committed yet."""

    def __init__(self, reader: Reader, history: History, current: CurrentDigest | None, when: str) -> None:
        self._reader, self._history, self._current, self._when = reader, history, current, when

    def on(self, parent: str | None) -> _Rehearsal:
        """Return a rehearsal on top of another commit."""
        history = read_history(self._reader, parent or "HEAD")
        return _Rehearsal(self._reader, history, self._current, self._when)

    def holds(self, path: str) -> bool:
        """Tell whether the history holds a file already."""
        return path in self._history.tree

    def book(self, incoming: Sequence[Incoming]) -> Book:
        """Return the book of the ledger if each measurement were committed after the one before it."""
        history = self._history
        overlay: dict[str, bytes] = {}
        commits, parents = list(history.commits), list(history.parents)
        added: list[Change] = []
        tree = dict(history.tree)
        # A history ends with its head.
        for position, item in enumerate(incoming, start=len(commits)):
            commits.append(Commit(sha=f"rehearsal-{position}", when=self._when, author="", position=position))
            parents.append((position - 1,))
            for path, data in item.files.items():
                if path not in tree:
                    blob = f"rehearsal {path}"
                    overlay[blob] = data
                    added.append(Change(position, "A", "100644", blob, path))
                    tree[path] = ("100644", blob)
        rehearsed = replace(
            history,
            commits=tuple(commits),
            parents=tuple(parents),
            find_changes=lambda: (*history.changes, *added),
            tree=tree,
        )
        with self._reader.blobs() as blobs:
            blobs.plan(record_blobs(history.tree))
            return judge(
                rehearsed,
                lambda blob, limit: overlay[blob] if blob in overlay else blobs.read(blob, limit),
                current=self._current,
                notes=read_notes(self._reader, history.head, blobs.read),
                files_at=partial(blobs_at, self._reader),
            )

    def settled(self, book: Book, made: Sequence[str]) -> Book:
        """Return a rehearsed book with the commits that were made; judged again where another writer came between."""
        commits = commits_after(self._reader, self._history)
        if commits is None or [commit.sha for commit in commits] != list(made):
            return judged_ledger(self._reader, read_history(self._reader), current=self._current)
        by_position = {commit.position: commit for commit in commits}

        def dated(recorded: R) -> R:
            commit = by_position.get(recorded.commit.position)
            return recorded if commit is None else replace(recorded, commit=commit)

        cells = tuple(
            replace(cell, runs=tuple(replace(run, recorded=dated(run.recorded)) for run in cell.runs))
            for cell in book.cells
        )
        head = commits[-1].sha if commits else book.head
        claims = tuple(replace(claim, runs=tuple(map(dated, claim.runs))) for claim in book.claims)
        ratios, records = tuple(map(dated, book.ratios)), tuple(map(dated, book.records))
        return replace(book, head=head, cells=cells, records=records, claims=claims, ratios=ratios)

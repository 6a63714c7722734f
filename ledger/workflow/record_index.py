"""Finds in the index what one more seal has to know of a ledger: what it timed, and the names of its campaigns.

Facts of a record are kept by git's name of its bytes; which files the ledger holds follows git's trees, from the commit
that was asked about last to the one that is asked about now. So a pull, a merge, another branch or a rewritten history
needs no special case. What a seal says of its sight is checked again, without the index, by report and audit.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ledger.analysis.sight import Devices, Shape, is_neighbour, sizes_of
from ledger.budgets import MAX_PROFILE_BYTES, MAX_RECORD_BYTES
from ledger.canonical import MEASUREMENTS, SEALS, decode, kind_of, object_path
from ledger.errors import LedgerError, StateError
from ledger.evidence.known_cases import MOST_COMPARED, KnownCases, Timed, timed_by
from ledger.evidence.record_checks import RECORD_PATH, SEAL_PATH, Evidence
from ledger.evidence.seal_checks import evidence_digests
from ledger.git.ancestry import FileSet
from ledger.git.reader import FOLDERS, Blobs, Reader
from ledger.records import Forecast, Hardware, Measurement, Prediction, RatioMeasurement, Reveal, Void

_KINDS: tuple[type[Evidence], ...] = (*SEALS, *MEASUREMENTS, RatioMeasurement, Void, Reveal)
_TOGETHER = 1000
_TIMED = "select held.path, timed.* from timed join held on held.blob = timed.blob where "


class RecordIndex:
    """Answer for the records of one commit."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        reader: Reader,
        commit: str,
        known: Iterable[tuple[str, str, Evidence]] = (),
    ) -> None:
        """Bring the index to a commit. Raises: StateError where git cannot read it.

        known: records that were read and checked already: path, git's name of the bytes, and record.
        """
        self._connection = connection
        self._reader = reader
        self.followed: tuple[str, bytes] | None = None
        """The commit that the index came from, and what git told of the changes since."""
        # What is asked next reads in the same transaction: no other process moves the index in between.
        connection.execute("begin")
        if self._commit() != commit:
            connection.execute("rollback")
            connection.execute("begin immediate")
            for path, blob, record in known:
                if connection.execute("insert or ignore into known values (?)", (blob,)).rowcount:
                    self._keep(path, blob, record)
            self._follow(commit)

    def _commit(self) -> str | None:
        held = self._connection.execute("select value from about where name = 'commit'").fetchone()
        return None if held is None else str(held[0])

    def campaign(self, name: str, forecaster: str) -> str | None:
        """Return the path of a seal that carries a campaign's name, by one forecaster; None where there is none."""
        found = self._connection.execute(
            "select min(held.path) from campaigns join held on held.blob = campaigns.blob "
            "where campaign = ? and forecaster = ?",
            (name, forecaster),
        ).fetchone()
        path: str | None = found[0]
        return path

    def known_to(self, forecasts: Sequence[Forecast], profiles: Iterable[Hardware]) -> KnownCases:
        """Return what the ledger timed of some cases, of other versions of them and of their neighbours.

        profiles: those of the forecasts.
        """
        devices = Devices([*self.profiles().values(), *profiles])
        known = KnownCases(devices, lambda _positions: FileSet(0, 0), lambda _seal: 0)
        seen: set[tuple[str, Shape, str]] = set()
        for forecast in forecasts:
            for timed, operation in [*self._of_shape(forecast), *self._near(forecast, devices)]:
                if (timed.path, timed.shape, timed.sources) not in seen:
                    seen.add((timed.path, timed.shape, timed.sources))
                    known.put(timed, operation, FileSet(0, 0))
        return known

    def _of_shape(self, forecast: Forecast) -> list[tuple[Timed, str | None]]:
        asked = (shape_text(sizes_of(forecast.case)), forecast.case.dtype)
        rows = self._connection.execute(f"{_TIMED} shape = ? and dtype = ? order by held.path", asked).fetchall()
        return [self._timed(row) for row in rows]

    def _near(self, forecast: Forecast, devices: Devices) -> list[tuple[Timed, str | None]]:
        """Return records of the operation on the device at neighbouring shapes, as many as are compared."""
        shape, device = sizes_of(forecast.case), devices.of(forecast.case.hardware)
        bounds = "".join(f" and size{index} between ? and ?" for index in range(min(len(shape), 3)))
        sizes = [bound for _, size in shape[:3] for bound in ((size + 1) // 2, 2 * size)]
        rows = self._connection.execute(f"{_TIMED} keys = ?{bounds} order by held.path", (shape_keys(shape), *sizes))
        near = (row for row in rows if devices.of(row[9]) == device and is_neighbour(read_shape(row[6]), shape))
        alike = (found for found in map(self._timed, near) if found[1] == forecast.operation)
        return list(islice(alike, MOST_COMPARED))

    def _timed(self, row: Sequence[Any]) -> tuple[Timed, str | None]:
        path, _, seal, cell, kernel, sources, shape, _, dtype, hardware, *_ = row
        return Timed(path, kernel, sources, read_shape(shape), dtype, hardware), self.operation_of(seal, cell)

    def operation_of(self, seal: str, cell: str) -> str | None:
        """Return the operation of a cell of a seal, None where the commit does not hold it."""
        found = self._connection.execute(
            "select operation from sealed join held on held.blob = sealed.blob where seal = ? and cell = ? limit 1",
            (seal, cell),
        ).fetchone()
        return None if found is None else str(found[0])

    def profile_digests(self) -> list[str]:
        """Return the digests of the profiles that the seals of the commit name."""
        digests = self._connection.execute("select distinct hardware_sha256 from sealed order by 1").fetchall()
        named = "select 1 from sealed join held on held.blob = sealed.blob where hardware_sha256 = ? limit 1"
        return [digest for (digest,) in digests if self._connection.execute(named, (digest,)).fetchone() is not None]

    def profiles(self) -> dict[str, Hardware]:
        """Return the profiles that the seals of the commit name by their digests, of those that can be read."""
        found: dict[str, Hardware] = {}
        with self._reader.blobs() as blobs:
            for digest in self.profile_digests():
                path = object_path("predictions", digest)
                held = self._connection.execute("select blob from held where path = ?", (path,)).fetchone()
                if held is None:
                    continue
                try:
                    data = blobs.read(held[0], MAX_PROFILE_BYTES)
                    if data is not None:
                        found[digest] = decode(Hardware, data, what=path)
                except LedgerError:
                    # The report refuses what is no profile.
                    continue
        return found

    def _follow(self, commit: str) -> None:
        """Hold the files of a commit, and the facts of its records."""
        before = self._commit()
        changes = None if before is None else self._changes(before, commit)
        if changes is None:
            self._connection.execute("delete from held")
            changes = _files(self._reader, commit)
        self._connection.executemany("delete from held where path = ?", ((path,) for path in changes))
        added = [(path, blob) for path, blob in changes.items() if blob is not None]
        self._connection.executemany("insert into held values (?, ?)", added)
        records = [(path, blob) for path, blob in sorted(added) if _record(path)]
        known = "select 1 from known where blob = ?"
        new = [one for one in records if self._connection.execute(known, (one[1],)).fetchone() is None]
        with self._reader.blobs() as blobs:
            blobs.plan(blob for _, blob in new)
            for path, blob in new:
                self._learn(path, blob, blobs)
        self._connection.execute("insert or replace into about values ('commit', ?)", (commit,))

    def _changes(self, before: str, after: str) -> dict[str, str | None] | None:
        """Return what blob each changed path has after a commit, None without one; None without the commit before."""
        try:
            self.followed = (before, changed_files(self._reader, before, after))
        except StateError:
            # The commit before is gone from the repository.
            return None
        return dict(_paths(self.followed[1]))

    def _learn(self, path: str, blob: str, blobs: Blobs) -> None:
        """Keep the facts of a record; none of one that cannot be read, which the report refuses."""
        if self._connection.execute("insert or ignore into known values (?)", (blob,)).rowcount == 0:
            return
        record = _decoded(path, blob, blobs)
        if record is not None:
            self._keep(path, blob, record)

    def _keep(self, path: str, blob: str, record: Evidence) -> None:
        if isinstance(record, Prediction):
            identity = _name(path)
            self._seal(blob, identity, record.cells)
            if record.campaign is not None:
                named = (blob, record.campaign, record.forecaster)
                self._connection.execute("insert into campaigns values (?, ?, ?)", named)
            claims = [(blob, identity, one.cell, one.operation, one.hardware_sha256) for one in _ratios(record)]
            self._connection.executemany("insert or ignore into sealed values (?, ?, ?, ?, ?)", claims)
        elif isinstance(record, Reveal):
            self._seal(blob, record.seal, [opening.forecast for opening in record.openings])
        if not isinstance(record, Prediction):
            self._connection.execute("insert into runs values (?, ?)", (blob, record.seal))
        if isinstance(record, Measurement):
            digests = [(digest, blob) for digest in evidence_digests(record)]
            self._connection.executemany("insert or ignore into evidence values (?, ?)", digests)
        if isinstance(record, Measurement | RatioMeasurement) and record.status == "measured":
            for one in timed_by(path, record):
                sizes = [size for _, size in one.shape[:3]]
                sizes += [0] * (3 - len(sizes))
                text, keys = shape_text(one.shape), shape_keys(one.shape)
                row = (blob, record.seal, record.cell, one.kernel, one.sources, text, keys, one.dtype, one.hardware)
                self._connection.execute(
                    "insert into timed values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, *sizes)
                )

    def _seal(self, blob: str, seal: str, forecasts: Sequence[Forecast]) -> None:
        rows = [(blob, seal, one.cell, one.operation, one.hardware_sha256) for one in forecasts]
        self._connection.executemany("insert or ignore into sealed values (?, ?, ?, ?, ?)", rows)
        cases = [(blob, seal, shape_text(sizes_of(one.case)), one.case.dtype) for one in forecasts]
        self._connection.executemany("insert into cases values (?, ?, ?, ?)", cases)


def _ratios(record: Prediction) -> Sequence[Any]:
    return getattr(record, "ratios", ())


def _record(path: str) -> bool:
    return (SEAL_PATH.fullmatch(path) or RECORD_PATH.fullmatch(path)) is not None


def _name(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")


def _decoded(path: str, blob: str, blobs: Blobs) -> Evidence | None:
    try:
        data = blobs.read(blob, MAX_RECORD_BYTES)
        kind = None if data is None else kind_of(_name(path), data, _KINDS)
        return None if data is None or kind is None else decode(kind, data, what=path)
    except LedgerError:
        return None


def shape_text(shape: Shape) -> str:
    """Return a shape as the index holds it."""
    return json.dumps(shape)


def read_shape(text: str) -> Shape:
    """Return the shape that the index holds as a text."""
    return tuple((key, size) for key, size in json.loads(text))


def shape_keys(shape: Shape) -> str:
    """Return the keys of a shape as the index holds them."""
    return ",".join(key for key, _ in shape)


def changed_files(reader: Reader, before: str, after: str) -> bytes:
    """Return git's list of the ledger files that differ between two commits. Raises: StateError."""
    options = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-relative", "--ignore-submodules=none")
    return reader.run("diff-tree", *options, before, after, "--", *FOLDERS)


def _paths(answer: bytes) -> Iterator[tuple[str, str | None]]:
    tokens = iter(answer.split(b"\0"))
    for token in filter(None, tokens):
        fields = token.decode().split(" ")
        path = next(tokens).decode("utf-8", "surrogateescape")
        yield path, fields[3] if fields[1] == "100644" else None


def _files(reader: Reader, commit: str) -> dict[str, str | None]:
    listed = reader.run("ls-tree", "-r", "-z", "--full-tree", commit, *FOLDERS).split(b"\0")
    found: dict[str, str | None] = {}
    for line in filter(None, listed):
        meta, name = line.split(b"\t", 1)
        mode, _, blob = meta.decode().split(" ")
        if mode == "100644":
            found[name.decode("utf-8", "surrogateescape")] = blob
    return found

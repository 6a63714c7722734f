"""Judges what new commits add to a ledger that was judged before and holds, from what the index kept of it.

Only a history that plainly goes on is judged so: the commit judged before is on the line of first parents, the new
commits add records and change nothing, and all that they add, and all that it bears on, can be told from the index.
Elsewhere nothing is returned, and all is judged again: so it is where anything is refused, where a new seal reveals,
hides, claims, draws or names a forecaster's answers, and where notes on sight or a new profile may change old cells.
Report and audit do not use this.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ledger.analysis.book import Book, Commit
from ledger.analysis.sight import Devices, declared, is_neighbour, sizes_of
from ledger.analysis.sight_notes import NOTES_PATH
from ledger.canonical import record_path
from ledger.errors import LedgerError
from ledger.evidence.findings import Findings
from ledger.evidence.judge import Growth, judge_part
from ledger.evidence.record_checks import (
    RECORD_PATH,
    SEAL_PATH,
    Evidence,
    GatheredRecords,
    belongs,
    read_records,
    record_blobs,
)
from ledger.evidence.seal_checks import evidence_digests
from ledger.evidence.sight_checks import read_notes
from ledger.git.ancestry import Ancestry, GrownAncestry, introductions
from ledger.git.history import Change, History, changes_of, commits_between, lookalikes
from ledger.git.reader import Blobs, Reader
from ledger.records import FORECASTER, Forecast, Measurement, Prediction, PredictionV2, Void
from ledger.roofline import DTYPE_BYTES
from ledger.workflow.judged_facts import MOST_RECORDS, JudgedFacts, KnownCommits, KnownTree, NotPlainError, commit_row
from ledger.workflow.record_index import RecordIndex, changed_files, read_shape, shape_keys, shape_text

MOST_COMMITS = 2_000


def grown(
    connection: sqlite3.Connection,
    index: RecordIndex,
    reader: Reader,
    before: str,
    head: str,
    *,
    all_sights: bool = False,
) -> Growth | None:
    """Return what the commits after one that was judged add; None where all must be judged again.

    all_sights: judge the sight of all cells that may have changed, not only of those whose sight may have. What is kept
    for a later growth is then that of the new head.
    """
    try:
        with reader.blobs() as blobs:
            return _Growing(JudgedFacts(connection), index, reader, blobs, before, head, all_sights).growth()
    except (NotPlainError, LedgerError):
        return None


@dataclass
class _Growing:
    """Find, read and judge what is new."""

    facts: JudgedFacts
    index: RecordIndex
    reader: Reader
    blobs: Blobs
    before: str
    head: str
    all_sights: bool
    parents: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def growth(self) -> Growth:
        """Judge what is new. Raises: NotPlainError."""
        commits, parents = self._commits()
        self.parents = parents
        changes = self._changes(commits)
        introduced = introductions(History(self.head, (), (), lambda: changes, {}))
        new = [path for path in introduced if _is_record(path)]
        self._check_notes()
        read = dict(self._read(new))
        self._check_ordinary(read.values())
        self._check_profiles(read.values())
        seals = [path for path in new if isinstance(read[path], Prediction)]
        (numbered,) = self.facts.connection.execute("select count(*) from numbers").fetchone()
        ancestry = GrownAncestry(
            parents,
            introduced,
            seals,
            number_of=self.facts.number,
            before=self.facts.before,
            added_by=self.facts.added_by,
            numbered=numbered,
        )
        asked, sighted = self._asked(read, introduced, ancestry, numbered)
        records = {**read, **self._bearing(asked, sighted, read)}
        book = self._judged(records, introduced, commits, ancestry, set(new))
        if book.refused:
            raise NotPlainError
        if any(len(introduced[path]) > 1 for path in seals):
            raise NotPlainError
        self._keep(commits, introduced, new, seals, ancestry)
        names = frozenset(_name(path) for path in new)
        return Growth(book, names, frozenset(map(_name, asked)), frozenset(map(_name, sighted)))

    # What git says

    def _commits(self) -> tuple[dict[int, Commit], dict[int, tuple[int, ...]]]:
        """Return the new commits and their parents by position; the others keep theirs."""
        entries = commits_between(self.reader, self.before, self.head)
        if entries is None or len(entries) > MOST_COMMITS or list(lookalikes(self.reader, self.head)):
            raise NotPlainError
        (first,) = self.facts.connection.execute("select count(*) from commits").fetchone()
        position_of: dict[str, int] = {}
        commits: dict[int, Commit] = {}
        parents: dict[int, tuple[int, ...]] = {}
        for number, (sha, above, when, author) in enumerate(entries, start=first):
            position_of[sha] = number
            commits[number] = Commit(sha=sha, when=when, author=author, position=number)
            parents[number] = tuple(self._position(parent, position_of) for parent in above.split())
            if not parents[number]:
                raise NotPlainError
        return commits, parents

    def _position(self, sha: str, new: Mapping[str, int]) -> int:
        found = new.get(sha)
        if found is None:
            held = self.facts.connection.execute("select position from commits where sha = ?", (sha,)).fetchone()
            if held is None:
                raise NotPlainError
            found = int(held[0])
        return found

    def _changes(self, commits: Mapping[int, Commit]) -> tuple[Change, ...]:
        """Return what the new commits add, having made sure that they do nothing else."""
        listed = [*commits.values()]
        changes = changes_of(self.reader, listed)
        added: dict[str, str] = {}
        for change in changes:
            plain = not change.status.strip("A") and change.mode == "100644" and belongs(change.path)
            if not plain or added.setdefault(change.path, change.blob) != change.blob:
                raise NotPlainError
        before, told = self.index.followed or ("", b"")
        if before != self.before:
            told = changed_files(self.reader, self.before, self.head)
        tokens = told.split(b"\0")
        found: dict[str, str] = {}
        for line, name in zip(tokens[::2], tokens[1::2], strict=False):
            _, mode, _, blob, status = line.decode().split(" ")
            path = name.decode("utf-8", "surrogateescape")
            if status != "A" or mode != "100644" or path in found:
                raise NotPlainError
            found[path] = blob
        for path, blob in added.items():
            # An object may have come on two branches; a record comes once.
            if found.pop(path, None) != blob and (_is_record(path) or self.facts.blob(path) != blob):
                raise NotPlainError
        if found:
            raise NotPlainError
        return changes

    def _check_notes(self) -> None:
        """Refuse to go on where the file of notes is another one."""
        asked = ("ls-tree", "-z", "--full-tree")
        then, now = (self.reader.run(*asked, commit, "--", NOTES_PATH) for commit in (self.before, self.head))
        if then != now:
            raise NotPlainError

    # What bears on what

    def _asked(
        self,
        read: Mapping[str, Evidence],
        introduced: Mapping[str, tuple[int, ...]],
        ancestry: Ancestry,
        numbered: int,
    ) -> tuple[set[str], set[str]]:
        """Return the seals whose cells may have changed, and those of them whose sight may have."""
        asked: set[str] = set()
        sighted = {path for path, record in read.items() if isinstance(record, Prediction)}
        for path, record in read.items():
            if isinstance(record, Prediction):
                continue
            asked.add(record_path("predictions", record.seal))
            if not isinstance(record, Measurement):
                continue
            # A cell without a run of its own is answered by one of its case.
            shape = shape_text(sizes_of(record.case))
            asked.update(self.facts.paths("cases", "shape = ? and dtype = ?", shape, record.case.dtype))
            earlier = ancestry.before_all(introduced[path])
            missed = (1 << numbered) - 1 & ~earlier.bits
            if missed.bit_count() > MOST_RECORDS:
                raise NotPlainError
            while missed:
                number = missed.bit_length() - 1
                missed ^= 1 << number
                (other,) = self.facts.connection.execute(
                    "select path from numbers where number = ?", (number,)
                ).fetchone()
                sighted.add(other)
        asked |= sighted
        return asked, asked if self.all_sights else sighted

    def _bearing(
        self, asked: Iterable[str], sighted: Iterable[str], read: Mapping[str, Evidence]
    ) -> dict[str, Evidence]:
        """Return the earlier records that bear on the cells of some seals."""
        found: dict[str, Evidence] = {}

        def take(paths: Iterable[str]) -> None:
            found.update(self._read([path for path in dict.fromkeys(paths) if path not in found and path not in read]))
            if len(found) > MOST_RECORDS:
                raise NotPlainError

        def held(path: str) -> Evidence:
            return read[path] if path in read else found[path]

        take(asked)
        for one in read.values():
            for digest in evidence_digests(one) if isinstance(one, Measurement) else ():
                take(self.facts.paths("evidence", "digest = ?", digest))
        cases = {(shape_text(sizes_of(cell.case)), cell.case.dtype) for path in asked for cell in _cells(held(path))}
        with_notes = bool(self.reader.run("ls-tree", "-z", "--full-tree", self.head, "--", NOTES_PATH))
        for path in sighted:
            seal = held(path)
            assert isinstance(seal, Prediction)
            take(record_path("predictions", previous) for previous in seal.previous)
            for cell in seal.cells:
                sight = declared(cell)[0]
                if sight == "blind" or (sight is None and with_notes):
                    take(self._near(cell, new=path in read))
        for shape, dtype in sorted(cases):
            for table in ("cases", "timed"):
                take(self.facts.paths(table, "shape = ? and dtype = ?", shape, dtype))
        seals = {path for path in (*found, *asked) if isinstance(held(path), Prediction)}
        for path in sorted(seals):
            take(self.facts.paths("runs", "seal = ?", _name(path)))
        take(record_path("predictions", one.seal) for one in [*found.values()] if not isinstance(one, Prediction))
        self._check_ordinary(found.values())
        return found

    def _near(self, cell: Forecast, *, new: bool) -> list[str]:
        """Return earlier measurements of neighbouring shapes; of a new seal, which all precede, the first may do."""
        shape = sizes_of(cell.case)
        sizes = [bound for _, size in shape[:3] for bound in ((size + 1) // 2, 2 * size)]
        bounds = "".join(f" and size{number} between ? and ?" for number in range(min(len(shape), 3)))
        asked = (
            "select held.path, timed.shape, timed.dtype, timed.hardware, timed.seal, timed.cell, places.positions "
            "from timed join held on held.blob = timed.blob join places on places.path = held.path "
            f"where keys = ?{bounds}"
        )
        found = self.facts.connection.execute(asked, (shape_keys(shape), *sizes)).fetchall()
        rows = [row for row in found if is_neighbour(read_shape(row[1]), shape)]
        if len(rows) <= MOST_RECORDS // 8:
            return [row[0] for row in rows]
        if not new:
            raise NotPlainError
        devices = Devices(self.index.profiles().values())
        rows.sort(key=lambda row: (min(json.loads(row[6])), row[0]))
        for path, _, dtype, hardware, seal, name, _ in rows:
            alike = DTYPE_BYTES[dtype] == DTYPE_BYTES[cell.case.dtype]
            alike = alike and devices.of(hardware) == devices.of(cell.case.hardware)
            if alike and self.index.operation_of(seal, name) == cell.operation:
                return [path]
        return []

    def _check_ordinary(self, records: Iterable[Evidence]) -> None:
        """Refuse to go on with records whose checks look at more than what is gathered here."""
        for record in records:
            if not isinstance(record, Prediction | Measurement | Void):
                raise NotPlainError
            if isinstance(record, Measurement | Void):
                continue
            if FORECASTER in record.extensions:
                raise NotPlainError
            if isinstance(record, PredictionV2):
                drawn = any(cell.draw is not None for cell in record.cells)
                if drawn or record.domain is not None or record.commitments or record.ratios:
                    raise NotPlainError

    def _check_profiles(self, records: Iterable[Evidence]) -> None:
        """Refuse to go on where new profiles make one device of several: the sight of earlier cells may change."""
        named = {cell.hardware_sha256 for record in records for cell in _cells(record)}
        new = {digest for digest in named if not self._knows_profile(digest)}
        if not new:
            return
        profiles = self.index.profiles()
        devices = Devices(profile for digest, profile in profiles.items() if digest not in new)
        for digest in new:
            if digest not in profiles or devices.joined_by(profiles[digest]):
                raise NotPlainError
            devices.add(profiles[digest])

    def _knows_profile(self, digest: str) -> bool:
        found = self.facts.connection.execute(
            "select 1 from sealed join held on held.blob = sealed.blob join places on places.path = held.path "
            "where hardware_sha256 = ? limit 1",
            (digest,),
        ).fetchone()
        return found is not None

    def _read(self, paths: Iterable[str]) -> Iterator[tuple[str, Evidence]]:
        blobs = [(path, self.facts.blob(path)) for path in paths]
        if len(blobs) > MOST_RECORDS or any(blob is None for _, blob in blobs):
            raise NotPlainError
        tree = {path: ("100644", str(blob)) for path, blob in blobs}
        self.blobs.plan(record_blobs(tree))
        for path, record in read_records(tree, self.blobs.read):
            if not isinstance(record, Evidence):
                raise NotPlainError
            yield path, record

    # The judgement

    def _judged(
        self,
        records: Mapping[str, Evidence],
        introduced: Mapping[str, tuple[int, ...]],
        commits: Mapping[int, Commit],
        ancestry: Ancestry,
        new: set[str],
    ) -> Book:
        places = {path: introduced[path] if path in new else self.facts.places(path) for path in records}
        known = KnownCommits(commits, self.facts.known_commit)
        history = History(self.head, known, (), lambda: (), KnownTree(self.facts.blob))  # type: ignore[arg-type]
        gathered = GatheredRecords(history, places, Findings())
        for path in sorted(records):
            gathered.add(path, _name(path), records[path])
        seals = {path for path, record in records.items() if isinstance(record, Prediction)}
        return judge_part(
            gathered,
            ancestry,
            sound_before=seals - new,
            profiles=dict.fromkeys(self.index.profile_digests(), "predictions"),
            precedes=lambda pairs: [self._precedes(places[path], position) for path, position in pairs],
            read=self.blobs.read,
            notes=read_notes(self.reader, self.head, self.blobs.read),
        )

    def _precedes(self, places: Iterable[int], position: int) -> bool:
        """Tell whether one of some commits is a proper ancestor of another; of earlier ones that was told."""
        if position not in self.parents:
            return True
        above: set[int] = set()
        left = [position]
        while left:
            more = [one for one in self.parents.get(left.pop(), ()) if one not in above]
            above.update(more)
            left += more
        earlier = [self.facts.known_commit(one).sha for one in above if one not in self.parents]
        for place in places:
            if place in above:
                return True
            if place in self.parents:
                continue
            if self.before in earlier:
                return True
            sha = self.facts.known_commit(place).sha
            if any(not self.reader.run("rev-list", "--max-count=1", sha, f"^{other}").strip() for other in earlier):
                return True
        return False

    def _keep(
        self,
        commits: Mapping[int, Commit],
        introduced: Mapping[str, tuple[int, ...]],
        new: Iterable[str],
        seals: Iterable[str],
        ancestry: Ancestry,
    ) -> None:
        rows = [commit_row(commit, ancestry) for commit in commits.values()]
        self.facts.connection.executemany("insert into commits values (?, ?, ?, ?, ?, ?)", rows)
        places = [(path, json.dumps(introduced[path])) for path in new]
        self.facts.connection.executemany("insert into places values (?, ?)", places)
        self.facts.connection.executemany("insert into numbers values (?, ?)", [(p, ancestry.number(p)) for p in seals])
        self.facts.connection.execute("insert or replace into about values ('judged', ?)", (self.head,))


def _cells(record: Evidence) -> Sequence[Forecast]:
    return record.cells if isinstance(record, Prediction) else ()


def _is_record(path: str) -> bool:
    return (SEAL_PATH.fullmatch(path) or RECORD_PATH.fullmatch(path)) is not None


def _name(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")

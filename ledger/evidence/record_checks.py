"""Checks the files and records of a ledger and gathers them: checks 1 to 4 and 6 of judge. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ledger.analysis.book import Commit, Sealed
from ledger.budgets import (
    MAX_RECORD_BYTES,
    MAX_RECORD_SAMPLES,
    MAX_RECORDS,
    MAX_WEIGHT_BYTES,
    weight_bytes,
)
from ledger.canonical import MEASUREMENTS, SEALS, decode, kind_of
from ledger.errors import BudgetExceeded, LedgerError
from ledger.evidence.findings import Findings
from ledger.evidence.shared_parts import SharedParts
from ledger.git.ancestry import introductions
from ledger.git.history import History
from ledger.records import (
    Measurement,
    Prediction,
    RatioMeasurement,
    Reveal,
    TimedSide,
    Void,
)

Evidence = Prediction | Measurement | RatioMeasurement | Void | Reveal
"""A record that a ledger keeps."""
ReadBlob = Callable[[str, int], bytes | None]
"""Return the bytes of a blob by git's name for it, or None when it is larger than the limit."""

SEAL_PATH = re.compile(r"predictions/([0-9a-f]{2})/(\1[0-9a-f]{62})\.json")
RECORD_PATH = re.compile(r"verifications/([0-9a-f]{2})/(\1[0-9a-f]{62})\.json")
OBJECT_PATH = re.compile(r"(?:predictions|verifications)/objects/([0-9a-f]{2})/(\1[0-9a-f]{62})")
SIGNATURE_PATH = re.compile(r"(?:predictions|verifications)/([0-9a-f]{2})/\1[0-9a-f]{62}\.[a-z0-9-]{1,40}\.sig")
BUNDLE_PATH = re.compile(r"(?:predictions|verifications)/([0-9a-f]{2})/(\1[0-9a-f]{62})\.[a-z0-9-]{1,40}\.bundle")
BUNDLE_TOKEN_PATH = re.compile(BUNDLE_PATH.pattern + r"\.[a-z0-9-]{1,40}\.tsr")
TOKEN_PATH = re.compile(r"(?:predictions|verifications)/([0-9a-f]{2})/(\1[0-9a-f]{62})\.[a-z0-9-]{1,40}\.tsr")
PLAIN_PATH = re.compile(r"(?:predictions|verifications)/(?:README\.md|\.gitkeep)")
_UNDO = "ledger files are append-only: undo that commit; ledger void withdraws a forecast"
_ONE_A_COMMIT = "expected one a commit: undo a squash, and merge branches with a merge commit"


@dataclass
class GatheredRecords:
    """Hold every record that could be read, by path, with the commits that introduced it."""

    history: History
    introduced: Mapping[str, tuple[int, ...]]
    findings: Findings
    seals: dict[str, Sealed] = field(default_factory=dict)
    measurements: dict[str, tuple[str, Measurement]] = field(default_factory=dict)
    voids: dict[str, tuple[str, Void]] = field(default_factory=dict)
    reveals: dict[str, tuple[str, Reveal]] = field(default_factory=dict)
    ratios: dict[str, tuple[str, RatioMeasurement]] = field(default_factory=dict)

    @property
    def records(self) -> tuple[str, ...]:
        """Return the paths of all records."""
        return (*self.seals, *self.measurements, *self.ratios, *self.voids, *self.reveals)

    def first_commit(self, path: str) -> Commit:
        """Return the earliest commit that introduced a file; the head when the history does not tell."""
        positions = self.introduced.get(path)
        return self.history.commits[min(positions) if positions else -1]

    def add(self, path: str, name: str, record: Evidence | Unread) -> None:
        """Add a record, or the finding that says why there is none."""
        if isinstance(record, Prediction):
            self.seals[path] = Sealed(name, path, self.first_commit(path), record)
        elif isinstance(record, Measurement):
            self.measurements[path] = (name, record)
        elif isinstance(record, RatioMeasurement):
            self.ratios[path] = (name, record)
        elif isinstance(record, Void):
            self.voids[path] = (name, record)
        elif isinstance(record, Reveal):
            self.reveals[path] = (name, record)
        elif record.code:
            self.findings.refuse(record.code, path, record.message)


def gather(history: History, read: ReadBlob) -> GatheredRecords:
    """Return all evidence of a ledger, having made checks 1 to 4 and 6."""
    # Read first: meanwhile git may still be walking the changes.
    reading = _Reading(read)
    listed = [(path, name, reading.record(path, blob, name)) for path, blob, name in _records(history.tree)]
    gathered = GatheredRecords(history, introductions(history), Findings())
    check_files(history, gathered.findings)
    check_append_only(history, gathered.findings)
    for path, name, record in listed:
        gathered.add(path, name, record)
    if reading.exceeded is not None:
        raise BudgetExceeded(reading.exceeded, gathered.findings.all())
    check_alone(gathered)
    return gathered


# 1 files


def check_files(history: History, findings: Findings) -> None:
    """Check that every ledger file of the history is a regular file at a path that the format knows."""
    ever = {(change.path, change.mode) for change in history.changes if "D" not in change.status}
    for path, mode in sorted(ever | {(path, mode) for path, (mode, _) in history.tree.items()}):
        if mode != "100644":
            findings.refuse("odd-mode", path, f"mode is {mode}; expected a regular file (100644)")
        elif belongs(path):
            continue
        elif SIGNATURE_PATH.fullmatch(path):
            message = "nothing reads a signature beside a record; expected a signed commit (ledger predict --sign)"
            findings.refuse("signature-unread", path, message)
        elif path.lower().endswith((".json", ".yaml", ".yml")):
            findings.refuse("odd-file", path, "no record belongs at this path; expected FOLDER/ab/ab12….json")
        elif belongs(unicodedata.normalize("NFKC", path).lower()):
            findings.refuse("odd-name", path, "looks like a ledger file and is none; expected lower-case ASCII")
        else:
            findings.flag("odd-file", path, "not a file of the ledger; it is ignored")
    for name in history.lookalikes:
        findings.refuse("odd-name", name, "looks like a ledger folder and is none; expected one of them, once")
    for path in history.doubled:
        findings.refuse("odd-name", path, "duplicate name in one tree; expected each name once")
    if history.roots > 1:
        message = f"the history has {history.roots} roots: unrelated histories were joined by a merge"
        findings.flag("multi-root", "", message)


def belongs(path: str) -> bool:
    """Tell whether the format knows a path."""
    patterns = (SEAL_PATH, RECORD_PATH, OBJECT_PATH, TOKEN_PATH, BUNDLE_PATH, BUNDLE_TOKEN_PATH, PLAIN_PATH)
    return any(pattern.fullmatch(path) for pattern in patterns)


# 2 append


def check_append_only(history: History, findings: Findings) -> None:
    """Check that no commit changes or removes a ledger file and that each one ever added is there at the head."""
    added: dict[str, set[str]] = {}
    for change in history.changes:
        if PLAIN_PATH.fullmatch(change.path):
            continue
        where = history.commits[change.position].sha[:12]
        if not change.status.strip("A"):
            added.setdefault(change.path, set()).add(change.blob)
        elif "D" in change.status:
            findings.refuse("deleted", change.path, f"removed in commit {where}; {_UNDO}")
        else:
            findings.refuse("edited", change.path, f"changed in commit {where}; {_UNDO}")
    for path, blobs in added.items():
        held = history.tree.get(path)
        if held is None:
            findings.refuse("dropped", path, "was added in the history and is missing at the head")
        elif blobs != {held[1]}:
            findings.refuse("edited", path, "differs from the bytes with which it was added")
    for path in history.tree:
        if path not in added and not PLAIN_PATH.fullmatch(path):
            findings.refuse("unexplained", path, "is in the head's tree, and no commit of the history added it")


# 3 digest, 4 canonical


Tree = Mapping[str, tuple[str, str]]
"""Mode and blob of files by path."""


def record_blobs(tree: Tree) -> list[str]:
    """Return git's names of all records, in the order in which they are read."""
    return [blob for _, blob, _ in _records(tree)]


def read_records(tree: Tree, read: ReadBlob) -> Iterator[tuple[str, Evidence | Unread]]:
    """Yield the path of every record, and the record or why it could not be read."""
    reading = _Reading(read)
    for path, blob, name in _records(tree):
        yield path, reading.record(path, blob, name)


def _records(tree: Tree) -> Iterator[tuple[str, str, str]]:
    """Yield path, blob and id of every record of a tree."""
    for path, (mode, blob) in sorted(tree.items()):
        match = SEAL_PATH.fullmatch(path) or RECORD_PATH.fullmatch(path)
        if match is not None and mode == "100644":
            yield path, blob, match.group(2)


class Unread(NamedTuple):
    """Say why a record could not be read: the code of the finding and its message; no code where it was not tried."""

    code: str
    message: str


class _Reading:
    """Read records within the budgets of an audit; beyond them their names are still checked, and nothing else."""

    def __init__(self, read: ReadBlob) -> None:
        self._read = read
        self._parts = SharedParts()
        self._weight = 0
        self._count = 0
        self.exceeded: str | None = None

    def record(self, path: str, blob: str, name: str) -> Evidence | Unread:
        """Return a record, or why it could not be read."""
        if self.exceeded is not None and self._count > MAX_RECORDS:
            return Unread("", "")
        try:
            data = self._read(blob, MAX_RECORD_BYTES)
            if data is None:
                return Unread("too-large", f"larger than {MAX_RECORD_BYTES} bytes")
            return self._decoded(path, name, data)
        except BudgetExceeded as error:
            self.exceeded, self._count = str(error), MAX_RECORDS + 1
            return Unread("", "")
        except LedgerError as error:
            return Unread("bad-record", str(error))

    def _decoded(self, path: str, name: str, data: bytes) -> Evidence | Unread:
        # The raw bytes are hashed before anything parses them; the folder says which kinds it may hold.
        seal = path.startswith("predictions/")
        kinds: tuple[type[Evidence], ...] = SEALS if seal else (*MEASUREMENTS, RatioMeasurement, Void, Reveal)
        kind = kind_of(name, data, kinds)
        if kind is None:
            prefix = "ledger/seal/v1" if seal else "ledger/measurement/v1"
            told = f"an id is the SHA-256 of a prefix such as {prefix}, a NUL byte and the bytes (docs/format.md)"
            return Unread("id-mismatch", f"its name is no id of its bytes: {told}, not of the file alone")
        self._count += 1
        self._weight += weight_bytes(data)
        if self._count > MAX_RECORDS:
            self.exceeded = f"more than {MAX_RECORDS} records; expected fewer"
        elif self._weight - self._parts.spared > MAX_WEIGHT_BYTES:
            self.exceeded = f"the records need more than {MAX_WEIGHT_BYTES} bytes of memory; expected less"
        if self.exceeded is not None:
            return Unread("", "")
        record = decode(kind, data, what=path)
        sides = (record.base, record.head) if isinstance(record, RatioMeasurement) else (record,)
        for side in sides:
            samples = side.samples if isinstance(side, Measurement | TimedSide) else None
            if samples is not None and len(samples.positions) > MAX_RECORD_SAMPLES:
                return Unread("too-large", f"{len(samples.positions)} samples; expected at most {MAX_RECORD_SAMPLES}")
        self._parts.share(record)
        return record


# 6 alone


def check_alone(gathered: GatheredRecords) -> None:
    """Check that no commit introduces two records; a seal together with a measurement has a code of its own."""
    by_commit: dict[int, list[str]] = {}
    for path in gathered.records:
        for position in gathered.introduced.get(path, ()):
            by_commit.setdefault(position, []).append(path)
    for position, paths in by_commit.items():
        if len(paths) < 2:
            continue
        where = gathered.history.commits[position].sha[:12]
        mixed = len({path.split("/", 1)[0] for path in paths}) > 1
        for path in sorted(paths):
            message = f"commit {where} introduces {len(paths)} records; {_ONE_A_COMMIT}"
            gathered.findings.refuse("same-commit" if mixed else "joined", path, message)

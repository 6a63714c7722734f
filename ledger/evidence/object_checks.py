"""Checks the files, bytes and objects of a ledger: checks 1 to 6 of judge. Pure.

Each check adds findings and goes on, so that one defect never hides another. Findings of severity `refused` refuse
the evidence; `flag` and `note` disclose.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from ledger.analysis.book import Commit, Sealed
from ledger.budgets import (
    MAX_FINDINGS,
    MAX_FINDINGS_OF_A_KIND,
    MAX_OBJECT_BYTES,
    MAX_PASSING_BYTES,
    MAX_PROFILE_BYTES,
    MAX_PROFILES_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORD_SAMPLES,
    MAX_RECORDS,
    MAX_WEIGHT_BYTES,
    weight_bytes,
)
from ledger.canonical import MEASUREMENTS, SEALS, decode, kind_of, object_id, object_path
from ledger.errors import BudgetExceeded, LedgerError
from ledger.evidence.shared_parts import SharedParts
from ledger.git.ancestry import introductions
from ledger.git.history import History
from ledger.records import (
    Finding,
    Hardware,
    KernelSource,
    Measurement,
    Prediction,
    RatioMeasurement,
    Record,
    Reveal,
    TimedSide,
    Void,
)
from ledger.sources.closure import MAX_SOURCE_BYTES

Evidence = Prediction | Measurement | RatioMeasurement | Void | Reveal
"""A record that a ledger keeps."""
R = TypeVar("R", bound=Record)
ReadBlob = Callable[[str, int], bytes | None]
"""Return the bytes of a blob by git's name for it, or None when it is larger than the limit."""

NOT_JUDGED = "not-judged"
"""The finding about a valid record whose numbers no analysis expected."""

SEAL_PATH = re.compile(r"predictions/([0-9a-f]{2})/(\1[0-9a-f]{62})\.json")
RECORD_PATH = re.compile(r"verifications/([0-9a-f]{2})/(\1[0-9a-f]{62})\.json")
OBJECT_PATH = re.compile(r"(?:predictions|verifications)/objects/([0-9a-f]{2})/(\1[0-9a-f]{62})")
SIGNATURE_PATH = re.compile(r"(?:predictions|verifications)/([0-9a-f]{2})/\1[0-9a-f]{62}\.[a-z0-9-]{1,40}\.sig")
BUNDLE_PATH = re.compile(r"(?:predictions|verifications)/([0-9a-f]{2})/(\1[0-9a-f]{62})\.[a-z0-9-]{1,40}\.bundle")
BUNDLE_TOKEN_PATH = re.compile(BUNDLE_PATH.pattern + r"\.[a-z0-9-]{1,40}\.tsr")
TOKEN_PATH = re.compile(r"(?:predictions|verifications)/([0-9a-f]{2})/(\1[0-9a-f]{62})\.[a-z0-9-]{1,40}\.tsr")
PLAIN_PATH = re.compile(r"(?:predictions|verifications)/(?:README\.md|\.gitkeep)")


@dataclass
class Findings:
    """Collect findings as the checks go on; what refuses is counted apart, so that nothing can crowd it out."""

    found: list[Finding] = field(default_factory=list)
    _by_path: dict[str, list[Finding]] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _kept: Counter[str] = field(default_factory=Counter)
    _left_out: Counter[str] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        """Add a finding, or count it where there are very many."""
        known = self._by_path.setdefault(finding.path, [])
        refuses = finding.severity == "refused"
        if refuses:
            self._refused.add(finding.path)
        sort = "refused" if refuses else "shown"
        alike = sum(1 for one in known if one.code == finding.code)
        if self._kept[sort] >= MAX_FINDINGS or alike >= MAX_FINDINGS_OF_A_KIND:
            self._left_out[sort] += 1
            return
        self._kept[sort] += 1
        self.found.append(finding)
        known.append(finding)

    def all(self) -> tuple[Finding, ...]:
        """Return the findings, with one that counts those that were left out."""
        text = {"refused": "that refuse the evidence", "shown": "that disclose something"}
        severity: dict[str, Literal["refused", "flag"]] = {"refused": "refused", "shown": "flag"}
        more = (
            Finding(code="more-findings", severity=severity[sort], path="", message=f"{count} more {text[sort]}")
            for sort, count in self._left_out.items()
        )
        return (*self.found, *more)

    def about_one(self, path: str) -> AbstractContextManager[None]:
        """Make a failure to judge one file a finding about it, so that it hides none about others."""
        return _about_one(self, path)

    def refuse(self, code: str, path: str, message: str) -> None:
        """Add a finding that refuses the evidence."""
        self.add(Finding(code=code, severity="refused", path=path, message=message))

    def flag(self, code: str, path: str, message: str) -> None:
        """Add a finding that discloses something."""
        self.add(Finding(code=code, severity="flag", path=path, message=message))

    def note(self, code: str, path: str, message: str) -> None:
        """Add a finding that a reader should know and that is no objection."""
        self.add(Finding(code=code, severity="note", path=path, message=message))

    def about(self, path: str) -> tuple[Finding, ...]:
        """Return the findings about one file."""
        return tuple(self._by_path.get(path, ()))

    def refused(self, path: str) -> bool:
        """Tell whether a finding about one file refuses it."""
        return path in self._refused


@contextmanager
def _about_one(findings: Findings, path: str) -> Iterator[None]:
    try:
        yield
    except (BudgetExceeded, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - any failure to judge a valid record is the record's
        findings.refuse(NOT_JUDGED, path, f"cannot be judged: {type(error).__name__}: {str(error)[:200]}")


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
            findings.refuse("deleted", change.path, f"removed in commit {where}; ledger files are append-only")
        else:
            findings.refuse("edited", change.path, f"changed in commit {where}; ledger files are append-only")
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
            return Unread("id-mismatch", "the SHA-256 of its bytes is not its name")
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


# 5 objects


class Objects:
    """Return content-addressed objects, each read and checked once."""

    def __init__(self, gathered: GatheredRecords, read: ReadBlob) -> None:
        """Remember the records whose objects are wanted."""
        self._tree = gathered.history.tree
        self._findings = gathered.findings
        self._read = read
        self._hardware: dict[str, Hardware | None] = {}
        self._sources: dict[str, KernelSource | None] = {}
        self._sound: dict[str, bool] = {}
        self._weight = {True: 0, False: 0}

    def sound(self, folder: str, digest: str, named_by: str, *, limit: int | None = None) -> bool:
        """Tell whether an object is there and its bytes give its name; a finding says what is wrong."""
        path = object_path(folder, digest)
        if path not in self._sound:
            self._sound[path] = self._bytes(path, digest, named_by, limit=limit) is not None
        return self._sound[path]

    def hardware(self, digest: str, named_by: str) -> Hardware | None:
        """Return a sealed hardware profile, or None with a finding."""
        if digest not in self._hardware:
            self._hardware[digest] = self.decoded(Hardware, digest, named_by, kept=True)
        return self._hardware[digest]

    def kernel_source(self, digest: str, named_by: str) -> KernelSource | None:
        """Return the sealed manifest of a kernel's sources, each file checked, or None with a finding."""
        if digest not in self._sources:
            self._sources[digest] = manifest = self.decoded(KernelSource, digest, named_by, kept=True)
            for listed in manifest.files if manifest is not None else ():
                named_by = object_path("predictions", digest)
                self.sound("predictions", listed.sha256, named_by, limit=MAX_SOURCE_BYTES)
        return self._sources[digest]

    def decoded(
        self, kind: type[R], digest: str, named_by: str, *, limit: int = MAX_PROFILE_BYTES, kept: bool = False
    ) -> R | None:
        """Return an object of a seal as a record, or None with a finding. kept: it stays in memory.

        Raises: BudgetExceeded.
        """
        path = object_path("predictions", digest)
        data = self._bytes(path, digest, named_by, limit=limit)
        self._sound[path] = data is not None
        self._weight[kept] += weight_bytes(data or b"")
        most, what = (MAX_PROFILES_BYTES, "profiles and manifests") if kept else (MAX_PASSING_BYTES, "answers")
        if self._weight[kept] > most:
            raise BudgetExceeded(f"{what} need more than {most} bytes of memory, all together; expected less")
        try:
            return None if data is None else decode(kind, data, what=path)
        except LedgerError as error:
            self._findings.refuse("bad-record", path, str(error))
            return None

    def _bytes(self, path: str, digest: str, named_by: str, *, limit: int | None = None) -> bytes | None:
        held = self._tree.get(path)
        if held is None:
            self._findings.refuse("object-missing", path, f"named by {named_by} and not there at the head")
            return None
        limit = limit or MAX_OBJECT_BYTES
        data = self._read(held[1], limit)
        if data is None:
            self._findings.refuse("object-too-large", path, f"larger than {limit} bytes; named by {named_by}")
            return None
        if object_id(data) != digest:
            self._findings.refuse("object-altered", path, "the SHA-256 of its bytes is not its name")
            return None
        return data


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
            message = f"commit {where} introduces {len(paths)} records; expected one a commit"
            gathered.findings.refuse("same-commit" if mixed else "joined", path, message)

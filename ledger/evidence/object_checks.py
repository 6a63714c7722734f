"""Checks the files, bytes and objects of a ledger: checks 1 to 6 of judge. Pure.

Each check adds findings and goes on, so that one defect never hides another. Findings of severity `refused` refuse
the evidence; `flag` and `note` disclose.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ledger.analysis.book import Commit, Sealed
from ledger.canonical import MAX_RECORD_BYTES, MEASUREMENTS, SEALS, decode, kind_of, object_id, object_path
from ledger.errors import LedgerError
from ledger.git.ancestry import introductions
from ledger.git.history import History
from ledger.records import Finding, Hardware, KernelSource, Measurement, Prediction, Record, Void
from ledger.sources.closure import MAX_SOURCE_BYTES

R = TypeVar("R", bound=Record)
ReadBlob = Callable[[str, int], bytes | None]
"""Return the bytes of a blob by git's name for it, or None when it is larger than the limit."""

MAX_OBJECT_BYTES = 256 * 1024 * 1024

SEAL_PATH = re.compile(r"predictions/([0-9a-f]{2})/(\1[0-9a-f]{62})\.json")
RECORD_PATH = re.compile(r"verifications/([0-9a-f]{2})/(\1[0-9a-f]{62})\.json")
OBJECT_PATH = re.compile(r"(?:predictions|verifications)/objects/([0-9a-f]{2})/(\1[0-9a-f]{62})")
WITNESS_PATH = re.compile(r"(?:predictions|verifications)/([0-9a-f]{2})/\1[0-9a-f]{62}\.[a-z0-9-]{1,40}\.(?:tsr|sig)")
BUNDLE_PATH = re.compile(r"(?:predictions|verifications)/([0-9a-f]{2})/(\1[0-9a-f]{62})\.[a-z0-9-]{1,40}\.bundle")
BUNDLE_TOKEN_PATH = re.compile(BUNDLE_PATH.pattern + r"\.[a-z0-9-]{1,40}\.tsr")
TOKEN_PATH = re.compile(r"(?:predictions|verifications)/([0-9a-f]{2})/(\1[0-9a-f]{62})\.[a-z0-9-]{1,40}\.tsr")
PLAIN_PATH = re.compile(r"(?:predictions|verifications)/(?:README\.md|\.gitkeep)")


@dataclass
class Findings:
    """Collect findings as the checks go on."""

    found: list[Finding] = field(default_factory=list)
    _by_path: dict[str, list[Finding]] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self.found.append(finding)
        self._by_path.setdefault(finding.path, []).append(finding)
        if finding.severity == "refused":
            self._refused.add(finding.path)

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


@dataclass
class GatheredRecords:
    """Hold every record that could be read, by path, with the commits that introduced it."""

    history: History
    introduced: Mapping[str, tuple[int, ...]]
    findings: Findings
    seals: dict[str, Sealed] = field(default_factory=dict)
    measurements: dict[str, tuple[str, Measurement]] = field(default_factory=dict)
    voids: dict[str, tuple[str, Void]] = field(default_factory=dict)

    def first_commit(self, path: str) -> Commit:
        """Return the earliest commit that introduced a file; the head when the history does not tell."""
        positions = self.introduced.get(path)
        return self.history.commits[min(positions) if positions else -1]

    def add(self, path: str, name: str, record: Prediction | Measurement | Void | Unread) -> None:
        """Add a record, or the finding that says why there is none."""
        if isinstance(record, Prediction):
            self.seals[path] = Sealed(name, path, self.first_commit(path), record)
        elif isinstance(record, Measurement):
            self.measurements[path] = (name, record)
        elif isinstance(record, Void):
            self.voids[path] = (name, record)
        else:
            self.findings.refuse(record.code, path, record.message)


def gather(history: History, read: ReadBlob) -> GatheredRecords:
    """Return all evidence of a ledger, having made checks 1 to 4 and 6."""
    # Read first: meanwhile git may still be walking the changes.
    read_records = [(path, name, _read_record(path, blob, name, read)) for path, blob, name in _records(history)]
    gathered = GatheredRecords(history, introductions(history), Findings())
    check_files(history, gathered.findings)
    check_append_only(history, gathered.findings)
    for path, name, record in read_records:
        gathered.add(path, name, record)
    check_alone(gathered)
    return gathered


# 1 files


def check_files(history: History, findings: Findings) -> None:
    """Check that every ledger file of the history is a regular file at a path that the format knows."""
    ever = {(change.path, change.mode) for change in history.changes if "D" not in change.status}
    for path, mode in sorted(ever | {(path, mode) for path, (mode, _) in history.tree.items()}):
        if mode != "100644":
            findings.refuse("odd-mode", path, f"mode is {mode}; expected a regular file (100644)")
        elif _belongs(path):
            continue
        elif path.lower().endswith((".json", ".yaml", ".yml")):
            findings.refuse("odd-file", path, "no record belongs at this path; expected FOLDER/ab/ab12….json")
        elif _belongs(unicodedata.normalize("NFKC", path).lower()):
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


def _belongs(path: str) -> bool:
    patterns = (SEAL_PATH, RECORD_PATH, OBJECT_PATH, WITNESS_PATH, BUNDLE_PATH, BUNDLE_TOKEN_PATH, PLAIN_PATH)
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


def record_blobs(history: History) -> list[str]:
    """Return git's names of all records, in the order in which `gather` reads them."""
    return [blob for _, blob, _ in _records(history)]


def _records(history: History) -> Iterator[tuple[str, str, str]]:
    """Yield path, blob and id of every record at the head."""
    for path, (mode, blob) in sorted(history.tree.items()):
        match = SEAL_PATH.fullmatch(path) or RECORD_PATH.fullmatch(path)
        if match is not None and mode == "100644":
            yield path, blob, match.group(2)


class Unread(NamedTuple):
    """Say why a record could not be read: the code of the finding and its message."""

    code: str
    message: str


def _read_record(path: str, blob: str, name: str, read: ReadBlob) -> Prediction | Measurement | Void | Unread:
    try:
        data = read(blob, MAX_RECORD_BYTES)
        if data is None:
            return Unread("too-large", f"larger than {MAX_RECORD_BYTES} bytes")
        # The raw bytes are hashed before anything parses them; the folder says which kinds it may hold.
        seal = path.startswith("predictions/")
        kinds: tuple[type[Prediction | Measurement | Void], ...] = SEALS if seal else (*MEASUREMENTS, Void)
        kind = kind_of(name, data, kinds)
        if kind is not None:
            return decode(kind, data, what=path)
    except LedgerError as error:
        return Unread("bad-record", str(error))
    return Unread("id-mismatch", "the SHA-256 of its bytes is not its name")


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

    def sound(self, folder: str, digest: str, named_by: str, *, limit: int | None = None) -> bool:
        """Tell whether an object is there and its bytes give its name; a finding says what is wrong."""
        path = object_path(folder, digest)
        if path not in self._sound:
            self._sound[path] = self._bytes(path, digest, named_by, limit=limit) is not None
        return self._sound[path]

    def hardware(self, digest: str, named_by: str) -> Hardware | None:
        """Return a sealed hardware profile, or None with a finding."""
        if digest not in self._hardware:
            self._hardware[digest] = self._decoded(Hardware, digest, named_by)
        return self._hardware[digest]

    def kernel_source(self, digest: str, named_by: str) -> KernelSource | None:
        """Return the sealed manifest of a kernel's sources, each file checked, or None with a finding."""
        if digest not in self._sources:
            self._sources[digest] = manifest = self._decoded(KernelSource, digest, named_by)
            for listed in manifest.files if manifest is not None else ():
                named_by = object_path("predictions", digest)
                self.sound("predictions", listed.sha256, named_by, limit=MAX_SOURCE_BYTES)
        return self._sources[digest]

    def _decoded(self, kind: type[R], digest: str, named_by: str) -> R | None:
        path = object_path("predictions", digest)
        data = self._bytes(path, digest, named_by)
        self._sound[path] = data is not None
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
    for path in (*gathered.seals, *gathered.measurements, *gathered.voids):
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

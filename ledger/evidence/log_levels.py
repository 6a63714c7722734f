"""Adds level 4 (public log) to a book, by the roots and the identity that the auditor gives alone.

A cell reaches it when its seal and its counted measurement each have a verified entry that is dated, and some entry of
the seal precedes every entry of the measurement. An entry is dated by the log's own signed time, or by a time token
over the bundle, which holds the proof of inclusion. The time stamp within a bundle covers only the signature: that can
be made long before the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Literal, TypeVar

from ledger.analysis.book import Book, CellView, ClaimView, Recorded, RecordedRatio
from ledger.errors import EvidenceRefused, InputError
from ledger.evidence.record_checks import BUNDLE_PATH, BUNDLE_TOKEN_PATH, ReadBlob
from ledger.records import Finding

if TYPE_CHECKING:
    from ledger.evidence.log_bundle import LogEntry, LogVerifier

View = TypeVar("View", CellView, ClaimView)
MAX_NAMED = 20
MAX_BUNDLES = 8
"""For one record, and tokens for one bundle: a repository must not choose how long its audit takes."""


@dataclass(frozen=True)
class LogTrust:
    """Hold what the auditor trusts and knows of a public log.

    roots: a trusted root of sigstore. entries: all entries of the identity, as the auditor collected them.
    """

    roots: FilePath | None = None
    identity: str | None = None
    issuer: str | None = None
    entries: FilePath | None = None
    tsa_roots: FilePath | None = None

    def __post_init__(self) -> None:
        """Check that roots and identity are given together. Raises: InputError."""
        if (self.roots is None) != (self.identity is None):
            raise InputError("--log-roots: expected together with --log-identity, whose entries they are to prove")
        if self.roots is None and (self.issuer is not None or self.entries is not None):
            raise InputError("--log-issuer, --log-entries: expected together with --log-roots and --log-identity")


@dataclass(frozen=True)
class Logged:
    """Hold a book with level 4 where it is reached, notes about it, and in a few words what was checked of the log."""

    book: Book
    notes: tuple[str, ...]
    status: str | None


@dataclass(frozen=True)
class Dated:
    """Hold an entry and the earliest time at which it was surely in the log, None when nothing dates it."""

    entry: LogEntry
    when: datetime | None

    def precedes(self, other: Dated) -> bool:
        """Tell whether this entry is dated and comes before another: by index in one log, by time in two.

        A token tells by when an entry was there, which does not show that it came after one in another log.
        """
        if self.when is None or other.when is None:
            return False
        if self.entry.log == other.entry.log:
            return self.entry.index < other.entry.index and self.when <= other.when
        return other.entry.integrated is not None and self.when < other.entry.integrated


def apply_log(book: Book, tree: Mapping[str, tuple[str, str]], read: ReadBlob, trust: LogTrust) -> Logged:
    """Return the book with level 4 where its bundles reach it. Raises: InputError, MachineError."""
    bundles = {path: blob for path, (_, blob) in tree.items() if BUNDLE_PATH.fullmatch(path)}
    if trust.roots is None or trust.identity is None:
        return Logged(book, *_unchecked(len(bundles)))
    from ledger.evidence.log_bundle import LogVerifier

    verifier = LogVerifier(trust.roots, identity=trust.identity, issuer=trust.issuer, tsa_roots=trust.tsa_roots)
    records = {item.id for item in book.seals} | {item.id for item in book.records}
    records |= {item.id for item in book.ratios}
    reading = _Reading(verifier, read, {path: blob for path, (_, blob) in tree.items()}, _tokens(tree))
    for identity, paths in _by_record(bundles):
        if identity in records:
            reading.add(identity, paths)
    refused = {finding.path.split(".", 1)[0] for finding in reading.findings if finding.severity == "refused"}
    cells = tuple(_with_level(cell, [run.recorded for run in cell.runs], reading, refused) for cell in book.cells)
    claims = tuple(_with_level(claim, claim.runs, reading, refused) for claim in book.claims)
    notes, status = _coverage(records, reading, trust)
    if trust.issuer is None:
        notes = (f"log: any issuer may have confirmed {trust.identity}; name one with --log-issuer", *notes)
    return Logged(
        replace(book, cells=cells, claims=claims, findings=(*book.findings, *reading.findings)), notes, status
    )


def _by_record(bundles: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    grouped: dict[str, list[str]] = {}
    for path in sorted(bundles):
        match = BUNDLE_PATH.fullmatch(path)
        assert match is not None
        grouped.setdefault(match.group(2), []).append(path)
    yield from grouped.items()


def _tokens(tree: Iterable[str]) -> dict[str, list[str]]:
    """Return the paths of the tokens over each bundle, by its path."""
    found: dict[str, list[str]] = {}
    for path in tree:
        if BUNDLE_TOKEN_PATH.fullmatch(path):
            found.setdefault(path.rsplit(".", 2)[0], []).append(path)
    return found


def _unchecked(count: int) -> tuple[tuple[str, ...], str | None]:
    if not count:
        return (), None
    if find_spec("sigstore") is None:
        status = "not checked: sigstore is not installed (the extra [log])"
    else:
        status = "not checked: name --log-roots and --log-identity"
    return (f"{count} bundles of a public log are {status}",), status


@dataclass
class _Reading:
    """Verify bundles and collect, for each record, its entries with their times."""

    verifier: LogVerifier
    read: ReadBlob
    blobs: Mapping[str, str]
    tokens: Mapping[str, list[str]]
    entries: dict[str, list[Dated]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    unordered: set[tuple[str, str]] = field(default_factory=set)

    def add(self, identity: str, paths: Sequence[str]) -> None:
        """Verify the bundles of one record and their tokens."""
        self.seen.add(identity)
        tokens = max(len(self.tokens.get(path, ())) for path in paths)
        if max(len(paths), tokens) > MAX_BUNDLES:
            message = f"one of {len(paths)} bundles with up to {tokens} tokens; expected at most {MAX_BUNDLES} of each"
            self.find("bundle-broken", "refused", paths[0], message)
            return
        for path in paths:
            self._verify(identity, path)

    def _verify(self, identity: str, path: str) -> None:
        from ledger.evidence.log_bundle import MAX_BUNDLE_BYTES, UntrustedBundle

        try:
            data = self.read(self.blobs[path], MAX_BUNDLE_BYTES)
            if data is None:
                raise EvidenceRefused(f"larger than {MAX_BUNDLE_BYTES} bytes")
            entry = self.verifier.verify(data, identity)
        except UntrustedBundle as error:
            self.find("bundle-untrusted", "flag", path, str(error))
        except EvidenceRefused as error:
            self.find("bundle-broken", "refused", path, str(error))
        else:
            times = [*self._token_times(path, data), *([] if entry.integrated is None else [entry.integrated])]
            self.entries.setdefault(identity, []).append(Dated(entry, min(times, default=None)))

    def _token_times(self, path: str, bundle: bytes) -> list[datetime]:
        from ledger.evidence.timestamps import MAX_TOKEN_BYTES, UntrustedToken

        times = []
        for token in sorted(self.tokens.get(path, ())):
            try:
                data = self.read(self.blobs[token], MAX_TOKEN_BYTES)
                if data is None:
                    raise EvidenceRefused(f"larger than {MAX_TOKEN_BYTES} bytes")
                times.append(self.verifier.token_time(data, bundle))
            except UntrustedToken as error:
                self.find("token-untrusted", "flag", token, str(error))
            except EvidenceRefused as error:
                self.find("token-broken", "refused", token, str(error))
        return times

    def find(self, code: str, severity: Literal["refused", "flag"], path: str, message: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(code=code, severity=severity, path=path, message=message))


def _with_level(view: View, runs: Sequence[Recorded | RecordedRatio], reading: _Reading, refused: set[str]) -> View:
    """Return a cell or a claim with level 4, by one rule. runs: its measurements."""
    paths = {view.sealed.path, *(run.path for run in runs)}
    if refused & {path.removesuffix(".json") for path in paths}:
        return replace(view, state="refused", levels=())
    run = next((run for run in runs if run.measurement.status == "measured"), None)
    if run is None or view.counted is None or not view.levels or not {view.sealed.id, run.id} & reading.seen:
        return view
    reason = _missing(reading.entries.get(view.sealed.id, []), reading.entries.get(run.id, []))
    if reason is None:
        return replace(view, levels=tuple(sorted({*view.levels, 4})))
    if (run.path, reason) not in reading.unordered:
        reading.unordered.add((run.path, reason))
        reading.find("log-order", "flag", run.path, f"no level 4: {reason}")
    return view


def _missing(seal: list[Dated], record: list[Dated]) -> str | None:
    """Return why the entries of a seal and of its measurement do not reach level 4, None when they do."""
    for whose, entries in (("seal", seal), ("measurement", record)):
        if not entries:
            return f"its {whose} has no verified entry in the log"
        if all(one.when is None for one in entries):
            return f"nothing dates the log entry of its {whose}: no trusted time token over the bundle"
    if any(all(one.precedes(other) for other in record) for one in seal):
        return None
    return f"the log entry of its seal ({_told(seal)}) does not precede that of its measurement ({_told(record)})"


def _told(entries: list[Dated]) -> str:
    return ", ".join(
        f"{one.entry.log[:80]} #{one.entry.index}, {'undated' if one.when is None else one.when.isoformat()}"
        for one in entries
    )


def _coverage(records: Set[str], reading: _Reading, trust: LogTrust) -> tuple[tuple[str, ...], str]:
    """Return notes on what the log holds besides, and in a few words what that means."""
    entries = [one.entry for dated in reading.entries.values() for one in dated]
    if trust.entries is None:
        status = "inclusion only: other entries of the identity are not shown; give them with --log-entries"
        return (f"log: {len(entries)} entries verified, {status}",), status
    from ledger.evidence.log_entries import cover, read_entries

    coverage = cover(read_entries(trust.entries), entries, reading.verifier.is_by_identity)
    if coverage.unlisted:
        status = f"inclusion only: {trust.entries} lacks {len(coverage.unlisted)} entries of this ledger"
        return (f"log: {status}; expected all entries of {trust.identity}",), status
    if not coverage.withheld:
        status = f"all {coverage.entries} entries of the identity are shown"
        return (f"log: {status}, as far as {trust.entries} is complete",), status
    for one in coverage.withheld[:MAX_NAMED]:
        assert one.said is not None
        what = "another entry of a record here" if one.said.digest in records else "no record here"
        message = f"log entry {one.number} over {one.said.digest} is withheld: {what}"
        reading.find("log-withheld", "flag", "", message)
    status = f"{len(coverage.withheld)} of {coverage.entries} entries of the identity are withheld"
    return (f"log: {status}",), status

"""Adds levels 2 (signed) and 3 (trusted time) to a book, by the keys and roots that the auditor gives alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path as FilePath
from typing import TypeVar

from ledger.analysis.book import Book, CellView, ClaimView, Recorded, RecordedRatio, Sealed
from ledger.errors import EvidenceRefused
from ledger.evidence.record_checks import TOKEN_PATH, ReadBlob
from ledger.evidence.signatures import check_allowed_signers, signer
from ledger.git.reader import Reader
from ledger.records import Finding

View = TypeVar("View", CellView, ClaimView)


@dataclass(frozen=True)
class Trust:
    """Hold what the auditor trusts: a file of allowed signers, a file of time-stamping roots."""

    allowed_signers: FilePath | None = None
    tsa_roots: FilePath | None = None


@dataclass(frozen=True)
class Trusted:
    """Hold a book with its levels, notes about them, and the trusted times of records by id."""

    book: Book
    notes: tuple[str, ...]
    times: Mapping[str, datetime]


def apply_trust(
    book: Book, tree: Mapping[str, tuple[str, str]], reader: Reader, read: ReadBlob, trust: Trust
) -> Trusted:
    """Return the book with levels 2 and 3 where signatures and tokens reach them."""
    findings: list[Finding] = []
    notes: list[str] = []
    tokens = {path: blob for path, (_, blob) in tree.items() if TOKEN_PATH.fullmatch(path)}
    times: dict[str, datetime] = {}
    if trust.tsa_roots is not None:
        times = _times(tokens, read, trust.tsa_roots, findings)
        notes += [f"trusted time: {identity[:12]} existed at {when.isoformat()}" for identity, when in times.items()]
    elif tokens:
        notes.append(f"{len(tokens)} time tokens are not verified: name the roots you trust with --tsa-roots")
    signed: dict[str, str] = {}
    if trust.allowed_signers is not None:
        check_allowed_signers(trust.allowed_signers)
        signed = _signed(book, reader, trust.allowed_signers, findings)
        notes += [f"signed by {name}: {identity[:12]}" for identity, name in signed.items()]
    refused = {finding.path for finding in findings if finding.severity == "refused"}
    cells = tuple(
        _with_levels(cell, _recorded(cell), signed=signed, times=times, refused=refused, findings=findings)
        for cell in book.cells
    )
    claims = tuple(
        _with_levels(claim, claim.runs, signed=signed, times=times, refused=refused, findings=findings)
        for claim in book.claims
    )
    return Trusted(
        replace(book, cells=cells, claims=claims, findings=(*book.findings, *dict.fromkeys(findings))),
        tuple(notes),
        times,
    )


def _recorded(cell: CellView) -> tuple[Recorded, ...]:
    return tuple(run.recorded for run in cell.runs)


def _with_levels(
    view: View,
    runs: Sequence[Recorded | RecordedRatio],
    *,
    signed: Mapping[str, str],
    times: Mapping[str, datetime],
    refused: Set[str],
    findings: list[Finding],
) -> View:
    """Return a cell or a claim with levels 2 and 3, by one rule. runs: its measurements."""
    if view.sealed.path in refused or any(run.path in refused for run in runs):
        return replace(view, state="refused", levels=())
    run = next((run for run in runs if run.measurement.status == "measured"), None)
    if run is None or view.counted is None or not view.levels:
        return view
    levels = set(view.levels)
    if view.sealed.id in signed and run.id in signed:
        levels.add(2)
    sealed_at = times.get(view.sealed.id)
    if sealed_at is not None:
        found = _order(view.sealed, run, sealed_at, times.get(run.id))
        if found is None:
            levels.add(3)
        else:
            findings.append(found)
    return view if levels == set(view.levels) else replace(view, levels=tuple(sorted(levels)))


def _order(
    sealed: Sealed, recorded: Recorded | RecordedRatio, sealed_at: datetime, recorded_at: datetime | None
) -> Finding | None:
    """Return what contradicts that a seal was stamped before its measurement began and was stamped, or None.

    The measurement's own start is self-declared; it counts against the order and never for it.
    """
    began = _moment(recorded.measurement.started_at)
    if recorded_at is None:
        message = "has no token that the auditor trusts and its seal has one: level 3 needs both, the seal's first"
        return Finding(code="witness-missing", severity="flag", path=recorded.path, message=message)
    if sealed_at >= recorded_at:
        after = f"not before its measurement, stamped at {recorded_at.isoformat()}"
    elif began is None or sealed_at > began:
        after = f"after its measurement began, by its own account at {recorded.measurement.started_at}"
    else:
        return None
    message = f"was stamped at {sealed_at.isoformat()}, {after}: the tokens prove no order"
    return Finding(code="witness-late", severity="flag", path=sealed.path, message=message)


def _moment(text: str) -> datetime | None:
    """Return a self-declared time, or None for one that no calendar has."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _times(
    tokens: Mapping[str, str], read: ReadBlob, roots_file: FilePath, findings: list[Finding]
) -> dict[str, datetime]:
    """Return the earliest trusted time of each record that has one."""
    from ledger.evidence.timestamps import MAX_TOKEN_BYTES, UntrustedToken, load_roots, token_time

    roots = load_roots(roots_file)
    times: dict[str, datetime] = {}
    for path, blob in sorted(tokens.items()):
        match = TOKEN_PATH.fullmatch(path)
        assert match is not None
        try:
            data = read(blob, MAX_TOKEN_BYTES)
            if data is None:
                raise EvidenceRefused(f"larger than {MAX_TOKEN_BYTES} bytes")
            when = token_time(data, match.group(2), roots)
        except UntrustedToken as error:
            findings.append(Finding(code="token-untrusted", severity="flag", path=path, message=str(error)))
        except EvidenceRefused as error:
            findings.append(Finding(code="token-broken", severity="refused", path=path, message=str(error)))
        else:
            times[match.group(2)] = min(when, times.get(match.group(2), when))
    return times


def _signed(book: Book, reader: Reader, allowed: FilePath, findings: list[Finding]) -> dict[str, str]:
    """Return who signed each record that an allowed signer signed.

    A token is over a record and not over the signature, which may be younger: keys must be valid now.
    """
    signed: dict[str, str] = {}
    items: tuple[Sealed | Recorded | RecordedRatio, ...] = (*book.seals, *book.records, *book.ratios)
    for item in items:
        data = reader.run("cat-file", "commit", item.commit.sha)
        try:
            name = signer(data, item.id, allowed)
        except EvidenceRefused as error:
            findings.append(Finding(code="signature-broken", severity="refused", path=item.path, message=str(error)))
            continue
        if name is not None:
            signed[item.id] = name
    return signed

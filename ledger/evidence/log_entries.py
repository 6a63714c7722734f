"""Reads the entries of a public log that an auditor gives, and tells which of them a ledger does not show. Pure but for
the reading of the file.

The file is JSON, or one JSON object a line: the answers of a Rekor v1 log (`{UUID: {"body": …, "logIndex": …}}`), or
entries as bundles hold them (`{"canonicalizedBody": …, "logIndex": …}`). That they are all is the auditor's word.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ledger.canonical import parse_json
from ledger.errors import EvidenceRefused, ParseError, RecordError
from ledger.evidence.log_bundle import LogEntry
from ledger.evidence.log_proof import LoggedBody, parse_body
from ledger.record_files import read_bytes

MAX_ENTRIES_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class ShownEntry:
    """Hold an entry that the auditor gives: its number in the log, SHA-256 of its body, and what that says.

    said: None for an entry of another kind.
    """

    number: int
    body: str
    said: LoggedBody | None


@dataclass(frozen=True)
class Coverage:
    """Hold how the entries of one identity and the bundles of a ledger cover each other.

    withheld: entries that no bundle of the ledger shows. unlisted: entries of the ledger that the auditor's file
    lacks, so that it cannot be all.
    """

    entries: int
    withheld: tuple[ShownEntry, ...]
    unlisted: tuple[LogEntry, ...]


def read_entries(path: FilePath) -> list[ShownEntry]:
    """Return the entries in a file. Raises: InputError, ParseError, RecordError."""
    data = read_bytes(path, limit=MAX_ENTRIES_BYTES)
    return [_entry(one, path) for value in _documents(data, path) for one in _objects(value, path)]


def _documents(data: bytes, path: FilePath) -> list[Any]:
    lines = data.splitlines()
    if len(lines) > 1 and _is_json(lines[0]):
        return [parse_json(line, what=f"{path}: line {n}") for n, line in enumerate(lines, 1) if line.strip()]
    return [parse_json(data, what=str(path))]


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _objects(value: Any, path: FilePath) -> Iterator[dict[str, Any]]:
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, dict):
            raise RecordError(f"{path}: holds {str(one)[:40]!r}; expected objects that are log entries")
        if "canonicalizedBody" in one or "body" in one:
            yield one
        else:
            yield from _objects(list(one.values()), path)


def _entry(one: dict[str, Any], path: FilePath) -> ShownEntry:
    try:
        body = base64.b64decode(one["canonicalizedBody" if "canonicalizedBody" in one else "body"], validate=True)
        number = int(one["logIndex"])
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path}: an entry lacks a base64 body or a logIndex ({error}); expected both") from error
    try:
        said: LoggedBody | None = parse_body(body)
    except (EvidenceRefused, ParseError):
        said = None
    return ShownEntry(number, hashlib.sha256(body).hexdigest(), said)


def cover(
    shown: Collection[ShownEntry], entries: Collection[LogEntry], is_by_identity: Callable[[bytes], bool]
) -> Coverage:
    """Return how the entries of an identity and those of a ledger's bundles cover each other."""
    mine = [one for one in shown if one.said is not None and is_by_identity(one.said.certificate)]
    held = {(entry.number, entry.body) for entry in entries}
    listed = {(one.number, one.body) for one in mine}
    return Coverage(
        entries=len(mine),
        withheld=tuple(one for one in mine if (one.number, one.body) not in held),
        unlisted=tuple(entry for entry in entries if (entry.number, entry.body) not in listed),
    )

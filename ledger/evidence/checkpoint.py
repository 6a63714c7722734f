"""Remembers what a full audit saw, so that the next one recomputes and shows only what is new.

A checkpoint is the auditor's own file: whoever can change it can make it say anything. With it, `audit --since`

1  refuses a history that no longer contains the commit, or whose ledger files there are others than those audited
2  judges the new records with those that bear on them, from the index beside the checkpoint, where the new commits
   only add ordinary records to the line of first parents; else, and with keys, roots, a challenge or --run-code, all
   records again, old and new together. What a new record does to old ones is found as in a full audit
3  recomputes the output samples of new measurements alone, where the checkpoint says that the old ones agreed
4  shows records and findings that are new, and old cells of which anything changed

Trusted are the checkpoint, its index, and git's SHA-1 names of the old files, whose digest is the checkpoint's. It does
not prove that the older audit was sound: its version of ledger, its keys and its roots were those of its time.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from ledger import __version__
from ledger.analysis.book import Book
from ledger.canonical import parse_json, validate
from ledger.git.history import History, ledger_tree
from ledger.git.reader import Reader
from ledger.record_files import read_bytes, write_atomically
from ledger.records import Finding
from ledger.records.base import Count, Digest, Line, Record

MAX_BYTES = 64 * 1024**2
CODE = "checkpoint-broken"
_Short = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


class Checkpoint(Record):
    """Hold what an audit that holds saw at one commit.

    digest: over path and git's name of every ledger file; a record's path names it by SHA-256. recomputed: whether the
    samples of all measurements that can be were recomputed and agreed. cells, findings: digests of what was shown.
    """

    schema_: Literal["ledger/checkpoint/1"] = Field(alias="schema")
    version: Line
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
    digest: Digest
    records: Count
    states: dict[Line, Count]
    recomputed: bool
    cells: tuple[_Short, ...]
    findings: tuple[_Short, ...]


def read_checkpoint(path: FilePath) -> Checkpoint:
    """Return the checkpoint of a file. Raises: InputError, RecordError."""
    data = read_bytes(path, limit=MAX_BYTES)
    return validate(Checkpoint, parse_json(data, what=str(path)), what=str(path))


def write_checkpoint(path: FilePath, checkpoint: Checkpoint) -> None:
    """Write a checkpoint. Raises: OSError."""
    value = checkpoint.model_dump(mode="json", by_alias=True)
    write_atomically(path, json.dumps(value, separators=(",", ":")).encode() + b"\n")


def checkpoint_of(
    book: Book, tree: Mapping[str, tuple[str, str]], cells: Mapping[str, Any], *, recomputed: bool
) -> Checkpoint:
    """Return the checkpoint of a book that holds. cells: what is shown of each cell or claim, by SEAL#CELL."""
    return Checkpoint(
        schema="ledger/checkpoint/1",
        version=__version__,
        commit=book.head,
        digest=_digest(tree),
        records=records_of(book),
        states=dict(Counter([view.state for view in (*book.cells, *book.hidden)] + [one.state for one in book.claims])),
        recomputed=recomputed,
        cells=tuple(sorted(digest_of(name, shown) for name, shown in cells.items())),
        findings=tuple(sorted(_finding(finding) for finding in book.findings)),
    )


def contradictions(checkpoint: Checkpoint, history: History, reader: Reader) -> Iterator[Finding]:
    """Yield why a history is not one that goes on from a checkpoint."""
    commit = checkpoint.commit
    if all(one.sha != commit for one in history.commits):
        yield _broken(f"the history does not contain commit {commit[:12]} of the checkpoint: it was rewritten")
    elif _digest(ledger_tree(reader, commit)) != checkpoint.digest:
        yield _broken(f"the ledger files of commit {commit[:12]} are not those of the checkpoint")


def old_paths(checkpoint: Checkpoint, reader: Reader) -> frozenset[str]:
    """Return the ledger files of a checkpoint's commit."""
    return frozenset(ledger_tree(reader, checkpoint.commit))


def only_new(checkpoint: Checkpoint, book: Book, old: frozenset[str], cells: Mapping[str, Any]) -> Book:
    """Return a book with what is new since a checkpoint, and with old cells of which anything changed."""
    known, told = set(checkpoint.cells), set(checkpoint.findings)
    new = {name for name, shown in cells.items() if digest_of(name, shown) not in known}
    return replace(
        book,
        cells=tuple(view for view in book.cells if view.name in new),
        claims=tuple(view for view in book.claims if view.name in new),
        hidden=tuple(view for view in book.hidden if view.sealed.path not in old),
        seals=tuple(one for one in book.seals if one.path not in old),
        records=tuple(one for one in book.records if one.path not in old),
        ratios=tuple(one for one in book.ratios if one.path not in old),
        voids=tuple(one for one in book.voids if one.path not in old),
        reveals=tuple(one for one in book.reveals if one.path not in old),
        findings=tuple(one for one in book.findings if _finding(one) not in told),
    )


def states_of(counts: Counter[tuple[str, str]]) -> dict[str, int]:
    """Return how many cells and claims have each state, given how many of each kind have."""
    found: Counter[str] = Counter()
    for (_, state), count in counts.items():
        found[state] += count
    return dict(found)


def holds_tree(checkpoint: Checkpoint, tree: Mapping[str, tuple[str, str]]) -> bool:
    """Tell whether the ledger files of a commit are those of a checkpoint."""
    return _digest(tree) == checkpoint.digest


def since_note(checkpoint: Checkpoint, count: int, *, recomputed: bool, judged: bool) -> str:
    """Return what of an audit rests on a checkpoint, in a sentence. count: of all records. judged: all were, again."""
    new = count - checkpoint.records
    note = f"since {checkpoint.commit[:12]}: {new} records are new, {checkpoint.records} were audited before"
    if not judged:
        note += f" by version {checkpoint.version}, are the same by digest, and are not judged again"
    if recomputed and not checkpoint.recomputed:
        note += "; their samples were not all recomputed then, and all are now"
    elif recomputed:
        note += f"; the samples of these were recomputed then, by version {checkpoint.version}, and are not now"
    return note


def records_of(book: Book) -> int:
    """Return how many records a book has."""
    return sum(map(len, (book.seals, book.records, book.ratios, book.voids, book.reveals)))


def _broken(message: str) -> Finding:
    return Finding(code=CODE, severity="refused", path="", message=message)


def _digest(tree: Mapping[str, tuple[str, str]]) -> str:
    lines = (f"{path}\0{mode} {blob}\n" for path, (mode, blob) in sorted(tree.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _finding(finding: Finding) -> str:
    return digest_of(finding.path, finding.model_dump(mode="json"))


def digest_of(name: str, shown: Any) -> str:
    """Return a short digest of what is shown under a name."""
    text = json.dumps([name, shown], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]

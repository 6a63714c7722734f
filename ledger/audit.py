"""Audits a ledger that nobody vouches for: a sanitised clone, one pinned commit, every verdict derived anew.

Nothing of the audited repository runs, is imported or is checked out; its configuration has no say. The checks are
those of ledger.judge. What each level proves, and what nobody can prove, is printed with the verdict.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

from ledger.book import Book, CellView
from ledger.errors import InputError, StateError
from ledger.history import FOLDERS, read_history
from ledger.judge import judge
from ledger.reader import Reader, quiet_environment

Verdict = Literal["holds", "refused", "undetermined"]

MAX_REPOSITORY_BYTES = 8 * 1024**3
CLONE_TIMEOUT_S = 600
_SCHEMES = ("https://", "http://", "ssh://", "git://", "file://")

LEVELS: dict[int, tuple[str, str]] = {
    0: (
        "git order: the seal is an ancestor of the measurement in this history",
        "anything about time: a history can be made in a second",
    ),
    1: (
        "chained and bound: the measurement was made for this seal, which names its inputs",
        "that the timings came from that run; that nobody measured before",
    ),
    2: ("signed: a key that the auditor trusts made it", "time"),
    3: ("trusted time: the seal existed at the time an authority stamped", "that no secret measurement came first"),
    4: ("public log: nothing logged was rewritten", "that nothing was left out"),
    5: ("challenge: the shape was drawn after the forecaster was sealed", "immunity to a dense secret sweep"),
}

NOT_PROVEN = (
    "Nobody can prove that no measurement was made in secret first, or that no second ledger was kept.",
    "A rewrite of history that keeps every record and their order cannot be seen below level 3.",
    "Commit dates are self-declared and decide nothing.",
)


@dataclass(frozen=True)
class Audit:
    """Hold the outcome of an audit; `notes` are what a reader must know besides the findings."""

    source: str
    verdict: Verdict
    reason: str
    book: Book | None
    notes: tuple[str, ...]


def audit(source: str, *, revision: str = "HEAD") -> Audit:
    """Return the audit of a repository given by path or URL, at one commit.

    Raises: InputError when `source` names no repository that can be cloned.
    """
    with _sanitised_clone(source) as (git_dir, environment):
        reader = Reader(git_dir, environment)
        try:
            history = read_history(reader, revision)
        except StateError as error:
            return Audit(source, "undetermined", str(error), None, ())
        with reader.blobs() as blobs:
            book = judge(history, blobs.read)
        notes = (*_other_refs(reader, history.head), *_uncommitted(source, history.tree), *_roots(history.roots))
    return _conclude(source, book, notes)


def _conclude(source: str, book: Book, notes: tuple[str, ...]) -> Audit:
    if book.refused:
        return Audit(source, "refused", f"{len(book.refused)} findings refuse the evidence", book, notes)
    if not book.seals:
        return Audit(source, "undetermined", "no ledger here: no seal in predictions/ at this commit", book, notes)
    measured = sum(1 for cell in book.cells if cell.counted is not None)
    return Audit(source, "holds", f"{measured} of {len(book.cells)} sealed cells are measured", book, notes)


@contextlib.contextmanager
def _sanitised_clone(source: str) -> Iterator[tuple[FilePath, Mapping[str, str]]]:
    """Clone into a bare repository of our own, with no configuration but ours and no program run for the source."""
    origin, local = _origin(source)
    with tempfile.TemporaryDirectory(prefix="ledger-audit-") as name:
        folder = FilePath(name)
        config = folder / "gitconfig"
        trusted = (
            f'[safe]\n\tdirectory = "{_quoted(origin)}"\n\tdirectory = "{_quoted(origin)}/.git"\n' if local else ""
        )
        config.write_text(trusted, encoding="utf-8")
        environment = {**quiet_environment(config), "GIT_ALLOW_PROTOCOL": "file" if local else "https:http:ssh:git"}
        command = ["git", "--no-replace-objects", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]
        command += ["-c", "core.commitGraph=false", "-c", "transfer.fsckObjects=true", "-c", "protocol.ext.allow=never"]
        command += ["clone", "--quiet", "--bare", "--no-local", "--reject-shallow", "--template=", "--", origin]
        target = folder / "clone.git"
        _run_clone([*command, str(target)], environment, source)
        yield target, environment


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _run_clone(command: list[str], environment: Mapping[str, str], source: str) -> None:
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CLONE_TIMEOUT_S,
            preexec_fn=_limit_file_size,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"{source}: cloning took more than {CLONE_TIMEOUT_S} s; expected a smaller repository"
        ) from error
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = words[-1] if words else f"git exit {done.returncode}"
        raise InputError(f"{source}: cannot be cloned ({reason}); expected a sound, complete git repository")


def _limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_REPOSITORY_BYTES, MAX_REPOSITORY_BYTES))


def _origin(source: str) -> tuple[str, bool]:
    """Return what to clone, and whether it is on this machine; a folder inside a repository stands for the whole."""
    if source.startswith("-") or "::" in source:
        raise InputError(f"{source!r}: not a path or URL of a repository; expected a folder or an https:// address")
    if source.startswith(_SCHEMES):
        return source, source.startswith("file://")
    start = FilePath(source)
    if not start.exists():
        raise InputError(f"{source}: not there; expected a folder or an https:// address")
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir()):
            return str(folder), True
    raise InputError(f"{source}: not in a git repository; expected one that holds a ledger")


def _other_refs(reader: Reader, head: str) -> Iterator[str]:
    """Say which other refs hold seals that the audited commit does not."""
    refs = reader.run("for-each-ref", "--format=%(objectname) %(refname)").decode("utf-8", "surrogateescape")
    for line in refs.splitlines():
        sha, _, name = line.partition(" ")
        if sha == head:
            continue
        with contextlib.suppress(StateError):
            beyond = reader.run("log", "-1", "--format=%H", sha, f"^{head}", "--", FOLDERS[0])
            if beyond.strip():
                yield f"{name} holds predictions that the audited commit does not; they are not judged"


def _uncommitted(source: str, tree: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Say where a local work tree differs from the commit, by reading files alone: git would obey its configuration."""
    start = FilePath(source)
    if source.startswith(_SCHEMES) or not start.is_dir():
        return
    folder = start.resolve()
    root = next((f for f in (folder, *folder.parents) if (f / ".git").exists()), None)
    if root is None:
        return
    held: dict[str, str] = {}
    for ledger_folder in FOLDERS:
        for place, _, files in os.walk(root / ledger_folder):
            for file in files:
                path = FilePath(place) / file
                held[path.relative_to(root).as_posix()] = _blob_name(path)
    for name in sorted({*held, *tree}):
        if held.get(name) != (tree[name][1] if name in tree else None):
            yield f"{name}: differs in the work tree; uncommitted work is not judged"


def _blob_name(path: FilePath) -> str:
    """Return git's name for a plain file's bytes, or a word for what is none."""
    if path.is_symlink() or not path.is_file():
        return "not a plain file"
    try:
        data = path.read_bytes()
    except OSError:
        return "unreadable"
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _roots(roots: int) -> Iterator[str]:
    if roots > 1:
        yield f"the history has {roots} roots; the parts were joined by a merge of unrelated histories"


def document(result: Audit) -> dict[str, Any]:
    """Return the audit as one JSON document."""
    book = result.book
    findings = [] if book is None else [finding.model_dump(mode="json") for finding in book.findings]
    reached = dict.fromkeys(LEVELS, 0)
    for cell in () if book is None else book.cells:
        for level in cell.levels:
            reached[level] += 1
    return {
        "verdict": result.verdict,
        "reason": result.reason,
        "commit": None if book is None else book.head,
        "findings": findings,
        "levels": {
            str(level): {
                "proves": proves,
                "does_not_prove": not_proves,
                "cells": reached[level],
                "provided": reached[level] > 0,
            }
            for level, (proves, not_proves) in LEVELS.items()
        },
        "predictions": [] if book is None else [_cell_document(cell) for cell in book.cells],
        "notes": list(result.notes),
        "not_proven": list(NOT_PROVEN),
    }


def _cell_document(cell: CellView) -> dict[str, Any]:
    run = cell.counted
    return {
        "seal": cell.sealed.id,
        "cell": cell.forecast.cell,
        "state": cell.state,
        "levels": list(cell.levels),
        "blind": cell.blind,
        "revises": list(cell.revises),
        "sealed": {"commit": cell.sealed.commit.sha, "date_self_declared": cell.sealed.commit.when},
        "measured": [
            {
                "id": item.recorded.id,
                "run": item.recorded.measurement.run,
                "status": item.recorded.measurement.status,
                "commit": item.recorded.commit.sha,
                "date_self_declared": item.recorded.commit.when,
            }
            for item in cell.runs
        ],
        "predicted_regime": cell.forecast.regime,
        "predicted_percent": cell.forecast.percent_milli / 1000,
        "measured_regime": None if run is None else run.verification.measured_regime,
        "measured_percent": None if run is None else run.verification.measured_percent,
        "grade": None if run is None else run.verification.grade,
    }

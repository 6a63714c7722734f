"""Examines this machine and this ledger in plain words, and repairs only what is the ledger's own."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Literal

from ledger.errors import LedgerError
from ledger.repository.repo import Repository


@dataclass(frozen=True)
class Condition:
    """Hold one thing that was looked at; `remedy` is what the user can do, if anything."""

    what: str
    state: Literal["good", "missing", "broken", "repaired"]
    remedy: str | None = None


def examine(start: FilePath, *, repair: bool) -> list[Condition]:
    """Return the condition of the machine and of the ledger around `start`, repairing the latter if asked."""
    conditions = list(_machine())
    try:
        repository = Repository(start)
    except LedgerError as error:
        return [*conditions, Condition(str(error), "missing")]
    try:
        repository.check_can_commit()
        conditions.append(Condition(f"ledger commits can be made in {repository.root}", "good"))
    except LedgerError as error:
        conditions.append(Condition(str(error), "broken"))
    return [*conditions, *_locks(repository), *_work_tree(repository, repair=repair)]


def _machine() -> Iterator[Condition]:
    for module, use in (("torch", "measure"), ("triton", "compile kernels"), ("matplotlib", "draw PNG and SVG")):
        there = importlib.util.find_spec(module) is not None
        remedy = None if there else f"needed to {use}: pip install {module}"
        yield Condition(f"python module {module}", "good" if there else "missing", remedy)
    for program, use in (("git", "anything"), ("nvidia-smi", "read clocks and power"), ("ncu", "read counters")):
        there = shutil.which(program) is not None
        yield Condition(f"program {program}", "good" if there else "missing", None if there else f"needed to {use}")


def _locks(repository: Repository) -> Iterator[Condition]:
    """Name locks that stand in the way; they are git's, so removing them is the user's decision."""
    folder = repository.git_dir
    heads = repository.common_dir / "refs" / "heads"
    for lock in (folder / "index.lock", folder / "HEAD.lock", *sorted(heads.rglob("*.lock"))):
        if lock.exists():
            remedy = "if no git command is running, remove that file"
            yield Condition(f"{lock} is held or was left behind by a killed git", "broken", remedy)


def _work_tree(repository: Repository, *, repair: bool) -> Iterator[Condition]:
    """Find committed records that the work tree or the index lacks, as a killed writer leaves them; restore them."""
    if repository.head() is None:
        yield Condition("no commit yet", "good")
        return
    if repair:
        for path in repository.finish_pending():
            yield Condition(f"{path}: committed by a writer that was killed; brought back here", "repaired")
    lost = repository.lost_records()
    if not lost:
        yield Condition("every committed record is in the work tree and the index", "good")
    for path in lost:
        if repair:
            repository.restore(path)
        state: Literal["repaired", "broken"] = "repaired" if repair else "broken"
        yield Condition(f"{path}: committed, but missing here", state, None if repair else "ledger doctor --repair")
    for path in sorted(set(repository.uncommitted()) - set(lost)):
        yield Condition(f"{path}: differs from what is committed", "broken", f"git checkout -- {path}, or remove it")

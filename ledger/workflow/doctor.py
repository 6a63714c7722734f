"""Examines this machine and this ledger, and repairs only files of the ledger."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Literal

from ledger.analysis.cpu_noise import BUSY_PERCENT
from ledger.device.cpu_load import cpu_times, load_average, others_percent
from ledger.device.facts import facts_for
from ledger.device.gpu_selection import parse_device, select_device
from ledger.device.local_profile import profile_of_this_machine
from ledger.errors import LedgerError, MachineError
from ledger.git.commit import Repository
from ledger.git.version import check_git
from ledger.releases import TORCH, TRITON, Supported

_SAMPLE_S = 0.5


@dataclass(frozen=True)
class Condition:
    """Hold the result of one check; `remedy` is what the user can do, if anything."""

    what: str
    state: Literal["good", "missing", "busy", "broken", "repaired"]
    remedy: str | None = None


def examine(start: FilePath, *, repair: bool, device: str | None = None) -> list[Condition]:
    """Return the condition of the machine and of the ledger around `start`, repairing the latter if asked.

    device: one to check as well, such as cuda:1. Raises: InputError for a name that is none.
    """
    conditions = [*_machine(), *_processors(), *(() if device is None else _device(start, device))]
    try:
        repository = Repository(start)
    except LedgerError as error:
        return [*conditions, Condition(str(error), "missing")]
    try:
        repository.check_can_commit()
        repository.check_writable()
        conditions.append(Condition(f"ledger commits can be made in {repository.root}", "good"))
    except LedgerError as error:
        conditions.append(Condition(str(error), "broken"))
    return [*conditions, *_locks(repository), *_work_tree(repository, repair=repair)]


def _machine() -> Iterator[Condition]:
    yield _module("torch", "measure", TORCH)
    yield _module("triton", "compile kernels", TRITON)
    yield _module("resvg_py", "draw PNG", None)
    for program, use in (("git", "anything"), ("nvidia-smi", "read clocks and power"), ("ncu", "read counters")):
        there = shutil.which(program) is not None
        if program == "git" and there:
            yield _git()
            continue
        yield Condition(f"program {program}", "good" if there else "missing", None if there else f"needed to {use}")


def _git() -> Condition:
    try:
        return Condition(f"program git {check_git()}", "good")
    except LedgerError as error:
        return Condition("program git", "broken", str(error))


def _processors() -> Iterator[Condition]:
    """Name a busy machine: what is measured on its CPU now would be too slow."""
    before = cpu_times()
    time.sleep(_SAMPLE_S)
    share = others_percent(before, cpu_times())
    if share is None:
        return
    what = f"other processes use {share:.0f}% of the processors (load average {load_average() or 0:g})"
    if share < BUSY_PERCENT:
        yield Condition(what, "good")
    else:
        yield Condition(what, "busy", "measure and calibrate a CPU on an idle machine")


def _device(start: FilePath, text: str) -> Iterator[Condition]:
    """Check that a device can be used and that a profile describes it."""
    parse_device(text)
    try:
        select_device(text)
        root = Repository(start).root
    except MachineError as error:
        yield Condition(str(error), "missing")
        return
    except LedgerError:
        root = None
    try:
        profile = profile_of_this_machine(root)
        yield Condition(f"device {text}: {facts_for(profile).name}, profile {profile.name}", "good")
    except LedgerError as error:
        yield Condition(f"device {text}: {error}", "missing")


def _module(name: str, use: str, supported: Supported | None) -> Condition:
    """Return whether a module is there and a supported release. Imports nothing: its metadata says the version."""
    if importlib.util.find_spec(name) is None:
        wanted = name if supported is None else f"'{supported.requirement}'"
        return Condition(f"python module {name}", "missing", f"needed to {use}: pip install {wanted}")
    if supported is None:
        return Condition(f"python module {name}", "good")
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        remedy = f"expected {supported}: pip install '{supported.requirement}'"
        return Condition(f"python module {name} does not say its version", "broken", remedy)
    if supported.holds(version):
        return Condition(f"python module {name} {version}", "good")
    remedy = f"pip install '{supported.requirement}'"
    return Condition(f"python module {name} {version} is not supported; expected {supported}", "broken", remedy)


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
            yield Condition(f"{path}: committed by a writer that was killed; restored", "repaired")
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

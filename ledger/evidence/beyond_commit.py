"""Says what lies beside the audited commit and is not judged: a work tree that differs, references that hold seals.

A work tree is a stranger's too. Every name is looked at with lstat, no link is followed, nothing but a regular file is
opened, and time and bytes are bounded. What is said here changes no verdict.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path as FilePath

from ledger.budgets import MAX_NOTES, MAX_OBJECT_BYTES, MAX_REFS, MAX_WORK_TREE_BYTES, MAX_WORK_TREE_FILES
from ledger.errors import EvidenceRefused, StateError
from ledger.git.clone import SCHEMES, Clone, fetch_other_refs
from ledger.git.reader import FOLDERS, Reader

_CHUNK_BYTES = 1 << 20
# Windows knows none of these.
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def other_refs(clone: Clone, reader: Reader, head: str) -> Iterator[str]:
    """Say which other references hold seals that the audited commit does not: branches, tags, a stash, notes, any."""
    try:
        fetch_other_refs(clone)
    except (StateError, EvidenceRefused) as error:
        yield f"references outside of branches and tags were not looked at: {error}"
    try:
        names = _holding_seals(reader, head)
        for name in islice(names, MAX_NOTES):
            yield f"{name} holds predictions that the audited commit does not; they are not judged"
        if rest := sum(1 for _ in names):
            yield f"and {rest} more references hold such predictions"
    except StateError as error:
        yield f"other references were not looked at: {error}"


def _holding_seals(reader: Reader, head: str) -> Iterator[str]:
    """Yield the references from which a commit that changes predictions is reached, beyond those of the head.

    A few questions to git, however many references there are. Raises: StateError.
    """
    shown = reader.run("for-each-ref", f"--count={MAX_REFS + 1}", "--format=%(objectname) %(*objectname) %(refname)")
    refs = [line.split(b" ", 2) for line in shown.splitlines()]
    if len(refs) > MAX_REFS:
        raise StateError(f"there are more than {MAX_REFS}")
    beyond = ("rev-list", "--all", "--full-history", "--topo-order", "--reverse")
    touching = set(reader.run(*beyond, f"^{head}", "--", FOLDERS[0]).split())
    if not touching:
        return
    holding: set[bytes] = set()
    for line in reader.run(*beyond, "--parents", f"^{head}").splitlines():
        commit, *parents = line.split(b" ")
        if commit in touching or not holding.isdisjoint(parents):
            holding.add(commit)
    for name, peeled, ref in refs:
        if (peeled or name) in holding:
            yield ref.decode("utf-8", "surrogateescape")


def uncommitted(source: str, tree: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Say where a local work tree differs from the commit, by reading files alone: git would obey its configuration."""
    start = FilePath(source)
    if source.startswith(SCHEMES) or not start.is_dir():
        return
    folder = start.resolve()
    root = next((f for f in (folder, *folder.parents) if (f / ".git").exists()), None)
    if root is None:
        return
    comparison = _Comparison(root)
    differing = comparison.differing(tree)
    for name in islice(differing, MAX_NOTES):
        yield f"{name}: differs in the work tree; uncommitted work is not judged"
    if rest := sum(1 for _ in differing):
        yield f"and {rest} more files differ in the work tree"
    if comparison.unread:
        yield f"{comparison.unread} files of the work tree were not compared: there are too many, or too many bytes"


class _Comparison:
    """Compare the ledger folders of a work tree with those of a commit, within budgets of files and bytes.

    unread: how many files were left out.
    """

    def __init__(self, root: FilePath) -> None:
        self._root = root
        self._bytes_left = MAX_WORK_TREE_BYTES
        self.unread = 0

    def differing(self, tree: Mapping[str, tuple[str, str]]) -> Iterator[str]:
        """Yield the names that only one of the two has, or that have other bytes."""
        here = self._files()
        for name in sorted({*here, *tree}):
            if name not in here or name not in tree or self._is_changed(name, here[name], tree[name][1]):
                yield name

    def _is_changed(self, name: str, found: os.stat_result, blob: str) -> bool:
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_OBJECT_BYTES:
            return True
        if found.st_size > self._bytes_left:
            self.unread += 1
            return False
        self._bytes_left -= found.st_size
        return _blob_name(self._root / name, found.st_size, len(blob)) != blob

    def _files(self) -> dict[str, os.stat_result]:
        """Return what lies in the ledger folders, without following a link anywhere."""
        held: dict[str, os.stat_result] = {}
        waiting = list(FOLDERS)
        left = MAX_WORK_TREE_FILES
        while waiting:
            name = waiting.pop()
            with suppress(OSError, ValueError):
                found = os.lstat(self._root / name)
                if not stat.S_ISDIR(found.st_mode):
                    held[name] = found
                    continue
                with os.scandir(self._root / name) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            self.unread += 1
                            break
                        waiting.append(f"{name}/{entry.name}")
        return held


def _blob_name(path: FilePath, size: int, digits: int) -> str:
    """Return git's name for a regular file's first `size` bytes; for anything else text that is no name."""
    try:
        # A file may have become a link or a pipe since: neither is followed or waited for.
        handle = os.open(path, os.O_RDONLY | _SAFELY)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return "not a regular file"
            name = hashlib.new("sha256" if digits == 64 else "sha1", b"blob %d\0" % size, usedforsecurity=False)
            left = size
            while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
                name.update(chunk)
                left -= len(chunk)
    except OSError:
        return "unreadable"
    return name.hexdigest()

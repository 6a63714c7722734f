"""Commits ledger files to the user's repository, and nothing else of theirs.

A ledger commit touches nothing of the user's: its tree is HEAD's tree plus the new files, made from tree objects
without any index; the branch moves by compare-and-swap; then the new files, and only they, are written to the work
tree and added to the index under git's own lock. The next writer finishes what a killed writer left half done.

GitPython reads the trees and computes the bytes and names of new objects; git writes them (work_tree says why).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ledger.errors import StateError
from ledger.git.work_tree import WorkTree, linked_part

if TYPE_CHECKING:
    from ledger.git.objects import Entry

ZERO = "0" * 40
_DURABLE = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "i18n.commitEncoding=UTF-8")
_PATIENCE_S = 15.0
_FILE_MODE, _FOLDER_MODE = 0o100644, 0o040000


@dataclass(frozen=True)
class Written:
    """Hold what a ledger commit did; `index_note` says what could not be done in the index, if anything."""

    commit: str
    index_note: str | None


class Repository(WorkTree):
    """Add to the user's own repository the one way in which ledger commits."""

    def commit(
        self,
        compose: Callable[[str | None], tuple[Mapping[str, bytes], str]],
        *,
        sign: bool = False,
        replace: bool = False,
        date: str | None = None,
    ) -> Written:
        """Commit files on the current branch and return the commit once it is on disk.

        compose: (parent commit) -> (files by path, message). It is called again with the new parent whenever another
        writer was faster, so that a seal can re-chain. replace: files may replace committed ones; otherwise a file
        that is committed with other bytes is an error. date: the committer's, as git takes it (default: now).
        Raises: StateError.
        """
        from ledger.record_files import write_atomically

        branch = self.check_can_commit()
        deadline = time.monotonic() + _PATIENCE_S
        with self._queue():
            self.finish_pending()
            while True:
                # Git's own reading, which it compares again when it moves the branch.
                parent = self._commit_of(branch)
                files, message = compose(parent)
                blobs = {path: self._blob(data) for path, data in files.items()}
                base = self.tree(parent).hexsha if parent else None
                tree = self._tree(base, {tuple(path.split("/")): blob for path, blob in blobs.items()}, replace)
                commit = self._commit_object(tree, parent, message, sign=sign, date=date)
                write_atomically(self._pending, "\0".join((commit, *files)).encode())
                refusal = self._advance(branch, commit, parent)
                if refusal is None:
                    note = self._check_out(files, blobs, replace)
                    if note is None:
                        # The commit stands; the next writer removes what cannot be removed now.
                        with suppress(OSError):
                            self._pending.unlink(missing_ok=True)
                    return Written(commit, note)
                if time.monotonic() > deadline:
                    raise StateError(f"{branch}: {refusal}; waited {_PATIENCE_S:g} s: run ledger doctor")
                time.sleep(0.02)

    @property
    def _pending(self) -> FilePath:
        return self.git_dir / "ledger.pending"

    def finish_pending(self) -> tuple[str, ...]:
        """Finish what a killed writer left between its commit and its work tree; return the files brought back.

        Only files that its commit brought, that HEAD still holds and that the index lacks are touched.
        """
        try:
            commit, *paths = self._pending.read_bytes().decode("utf-8", "surrogateescape").split("\0")
            self.git("merge-base", "--is-ancestor", commit, "HEAD")
        except (OSError, ValueError, StateError):
            # No such file, or its commit never became part of the branch.
            self._pending.unlink(missing_ok=True)
            return ()
        from ledger.record_files import PARTIAL

        for folder in {(self.root / path).parent for path in paths}:
            for rest in folder.glob(f"{PARTIAL}*"):
                rest.unlink(missing_ok=True)
        lost = [path for path in paths if self.is_committed(path) and not self.git("ls-files", "-z", "--", path)]
        for path in lost:
            self.restore(path)
        self._pending.unlink(missing_ok=True)
        return tuple(lost)

    def recover(self) -> None:
        """Finish what a killed writer left, if it left anything, waiting for writers that are alive."""
        if self._pending.exists():
            with self._queue():
                self.finish_pending()

    @contextmanager
    def _queue(self) -> Iterator[None]:
        """Hold the lock of ledger writers."""
        with self.locked("queue"):
            yield

    @contextmanager
    def locked(self, name: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[bool]:
        """Hold a lock of this repository, all its work trees included; yield whether another process held it.

        on_wait: called before waiting. The operating system releases the lock of a process that is killed.
        """
        lock = FileLock(self.common_dir / f"ledger.{name}")
        waited = False
        try:
            lock.acquire(blocking=False)
        except Timeout:
            waited = True
            on_wait()
            lock.acquire()
        try:
            yield waited
        finally:
            lock.release()

    def uncommitted_at_rest(self) -> tuple[str, ...]:
        """Return the files in the ledger folders that differ from HEAD while no ledger writer is between two steps."""
        # Mostly there are none, and then nobody has to wait.
        if not self.uncommitted():
            return ()
        with self._queue():
            self.finish_pending()
            return self.uncommitted()

    def _blob(self, data: bytes) -> str:
        stored = self.git(*_DURABLE, "hash-object", "-w", "--no-filters", "-t", "blob", "--stdin", data=data)
        return _check_stored(stored, "blob", data)

    def _tree(self, base: str | None, files: Mapping[tuple[str, ...], str], replace: bool) -> str:
        """Return the tree `base` with files added, writing only the folders on their paths."""
        from ledger.git.objects import Entry, tree_bytes, tree_entries

        entries = {} if base is None else tree_entries(self.read("tree", base))
        folders: dict[str, dict[tuple[str, ...], str]] = {}
        for (name, *rest), blob in files.items():
            if rest:
                folders.setdefault(name, {})[tuple(rest)] = blob
                continue
            held = entries.get(name)
            if held is not None and held.hexsha != blob and not replace:
                raise StateError(f"{name}: already committed with other bytes; ledger files are append-only")
            entries[name] = Entry(_FILE_MODE, blob)
        for name, inside in folders.items():
            held = entries.get(name)
            if held is not None and held.kind != "tree":
                raise StateError(f"{name}: is a {held.kind} in git; expected a folder")
            entries[name] = Entry(_FOLDER_MODE, self._tree(held.hexsha if held else None, inside, replace))
        stored = self.git(*_DURABLE, "mktree", "-z", data=_listing(entries))
        return _check_stored(stored, "tree", tree_bytes(entries))

    def _commit_object(self, tree: str, parent: str | None, message: str, *, sign: bool, date: str | None) -> str:
        wants = sign or self._flag("commit.gpgsign")
        options = (*(("-p", parent) if parent else ()), *(("-S",) if wants else ()))
        dated = {} if date is None else {"GIT_COMMITTER_DATE": date}
        return self.git(*_DURABLE, "commit-tree", tree, *options, "-F", "-", data=message.encode(), environment=dated)

    def _flag(self, name: str) -> bool:
        return self.git("config", "--type=bool", "--default=false", "--get", name) == "true"

    def _advance(self, branch: str, commit: str, parent: str | None) -> str | None:
        """Move the branch from `parent` to `commit`; return git's message when another writer holds or moved it."""
        try:
            self.git(*_DURABLE, "update-ref", "-m", "ledger", branch, commit, parent or ZERO)
        except StateError as error:
            message = str(error)
            if "but expected" in message or "File exists" in message or "already exists" in message:
                return message
            raise
        return None

    def _check_out(self, files: Mapping[str, bytes], blobs: Mapping[str, str], replace: bool) -> str | None:
        """Write the committed files to the work tree and add them, alone, to the index.

        The commit is made already: return a message about what could not be done, or None.
        """
        from ledger.record_files import write_atomically

        try:
            for path, data in files.items():
                if linked := linked_part(self.root, path):
                    return f"the commit is made, but {linked} is a link: nothing is written through it; remove it"
                if replace or not (self.root / path).exists():
                    write_atomically(self.root / path, data)
        except OSError as error:
            return f"the commit is made, but the work tree could not be written ({error}); then run: ledger doctor"
        lines = "".join(f"100644 {blobs[path]} 0\t{path}\0" for path in files).encode()
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self.git("update-index", "--add", "-z", "--index-info", data=lines)
            except StateError as error:
                if "index.lock" not in str(error) or time.monotonic() > deadline:
                    return f"the commit is made, but the index could not be written ({error}); then run: ledger doctor"
                time.sleep(0.02)
            else:
                return self._missing_from_index(tuple(files))

    def _missing_from_index(self, paths: tuple[str, ...]) -> str | None:
        held = set(self.git("ls-files", "-z", "--", *paths).split("\0"))
        missing = [path for path in paths if path not in held]
        return f"the commit is made, but {missing[0]} is not in the index; then run: ledger doctor" if missing else None


def _listing(entries: Mapping[str, Entry]) -> bytes:
    """Return the entries of a tree as `git mktree -z` reads them."""
    return b"".join(
        f"{entry.mode:06o} {entry.kind} {entry.hexsha}\t".encode() + os.fsencode(name) + b"\0"
        for name, entry in entries.items()
    )


def _check_stored(stored: str, kind: str, data: bytes) -> str:
    """Return git's name of an object that it stored, having checked that it stored these bytes.

    A git whose reading of its input fails part of the way takes that for the end of it. Raises: StateError.
    """
    from ledger.git.objects import object_name

    expected = object_name(kind, data)
    if stored != expected:
        raise StateError(f"git stored {kind} {stored[:12]}; expected {expected[:12]}: it did not get all of its input")
    return stored

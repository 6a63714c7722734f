"""Does everything that writes to the user's git repository: finds it, checks its state, commits ledger files.

A ledger commit touches nothing of the user's: its tree is HEAD's tree plus the new files, made from tree objects
without any index; the branch moves by compare-and-swap; then the new files, and only they, are written to the work
tree and added to the index under git's own lock. GitPython serves here and only here, on the user's own repository;
whatever reads evidence is in ledger.history.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ledger.errors import InputError, StateError
from ledger.history import FOLDERS
from ledger.store import PARTIAL, write_atomically

if TYPE_CHECKING:
    from git import Repo

ZERO = "0" * 40
_DURABLE = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "i18n.commitEncoding=UTF-8")
# Set by git for its hooks; a ledger commit goes to the repository and the index that the work tree itself names.
_NOT_OURS = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE"}
    | {"GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH"}
)
_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or am",
}
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Written:
    """Hold what a ledger commit did; `index_note` says what was left undone in the index, if anything."""

    commit: str
    index_note: str | None


class Repository:
    """Wrap the user's own repository: root, state, and the one way in which ledger commits."""

    def __init__(self, start: FilePath) -> None:
        """Open the repository that holds `start`. Raises: StateError when there is none, or it has no work tree."""
        from git import InvalidGitRepositoryError, NoSuchPathError, Repo

        try:
            self._repo: Repo = Repo(start, search_parent_directories=True, expand_vars=False)
        except (InvalidGitRepositoryError, NoSuchPathError) as error:
            raise StateError(
                f"{start}: not in a git repository; expected one: run git init, then ledger init"
            ) from error
        if self._repo.working_tree_dir is None:
            raise StateError(f"{start}: a bare repository; expected one with a work tree: clone it first")
        self.root = FilePath(self._repo.working_tree_dir)
        self.git_dir = FilePath(self._repo.git_dir)
        self.common_dir = FilePath(self._repo.common_dir)

    def git(self, *arguments: str, data: bytes | None = None, environment: Mapping[str, str] | None = None) -> str:
        """Return what a git command prints, stripped. Raises: StateError with git's own message."""
        try:
            done = subprocess.run(
                ["git", *arguments],
                cwd=self.root,
                input=data,
                stdin=None if data is not None else subprocess.DEVNULL,
                capture_output=True,
                env={**_environment(), **(environment or {})},
                check=False,
            )
        except OSError as error:
            raise StateError(f"git cannot be run ({error.strerror}); expected git 2.36 or newer on the PATH") from error
        if done.returncode != 0:
            message = done.stderr.decode("utf-8", "replace").strip() or f"exit {done.returncode}"
            raise StateError(f"git {_verb(arguments)}: {message}")
        return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")

    def head(self) -> str | None:
        """Return the commit HEAD names, or None on an unborn branch."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        except StateError:
            return None

    def check_can_commit(self) -> str:
        """Return the full name of the current branch, having checked that a ledger commit can go on top of it.

        Raises: StateError for a detached HEAD, an operation under way, or no identity.
        """
        for marker, name in _UNDER_WAY.items():
            if (self.git_dir / marker).exists():
                raise StateError(f"{self.root}: {name} is under way; expected none: finish or abort it first")
        try:
            branch = self.git("symbolic-ref", "--quiet", "HEAD")
        except StateError as error:
            raise StateError(f"{self.root}: HEAD is detached; expected a branch: git switch NAME") from error
        if self.git("rev-parse", "--show-object-format") != "sha1":
            raise StateError(f"{self.root}: a SHA-256 repository; expected SHA-1 (seals do not rely on git's hash)")
        self.identity()
        return branch

    def identity(self) -> str:
        """Return the committer's name. Raises: StateError when git has none."""
        try:
            line = self.git("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
        except StateError as error:
            raise StateError(
                "git knows no identity; expected one: git config user.name NAME; git config user.email ADDRESS"
            ) from error
        return line.split(" <", 1)[0]

    def commit(
        self,
        compose: Callable[[str | None], tuple[Mapping[str, bytes], str]],
        *,
        sign: bool = False,
        replace: bool = False,
    ) -> Written:
        """Commit files on the current branch and return the commit once it is on disk.

        compose: (parent commit) -> (files by path, message). It is called again with the new parent whenever another
        writer was faster, so that a seal can re-chain. replace: files may replace committed ones (views); otherwise
        a file that is committed with other bytes is an error. Raises: StateError.
        """
        branch = self.check_can_commit()
        deadline = time.monotonic() + _PATIENCE_S
        with self._queue():
            self.finish_pending()
            while True:
                parent = self._tip(branch)
                files, message = compose(parent)
                blobs = {path: self._blob(data) for path, data in files.items()}
                base = f"{parent}^{{tree}}" if parent else None
                tree = self._tree(base, {tuple(path.split("/")): blob for path, blob in blobs.items()}, replace)
                commit = self._commit_object(tree, parent, message, sign=sign)
                write_atomically(self._pending, "\0".join((commit, *files)).encode())
                refusal = self._advance(branch, commit, parent)
                if refusal is None:
                    note = self._check_out(files, blobs, replace)
                    if note is None:
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
        """Take turns with other ledger writers; the kernel releases the turn of a writer that is killed."""
        path = self.common_dir / "ledger.queue"
        with path.open("a") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _tip(self, branch: str) -> str | None:
        try:
            return self.git("rev-parse", "--verify", "--quiet", f"{branch}^{{commit}}")
        except StateError:
            return None

    def _blob(self, data: bytes) -> str:
        return self.git(*_DURABLE, "hash-object", "-w", "--no-filters", "-t", "blob", "--stdin", data=data)

    def _tree(self, base: str | None, files: Mapping[tuple[str, ...], str], replace: bool) -> str:
        """Return the tree `base` with files added, writing only the folders on their paths."""
        entries: dict[str, tuple[str, str, str]] = {}
        if base is not None:
            for line in filter(None, self.git("ls-tree", "-z", base).split("\0")):
                meta, name = line.split("\t", 1)
                mode, kind, sha = meta.split(" ")
                entries[name] = (mode, kind, sha)
        folders: dict[str, dict[tuple[str, ...], str]] = {}
        for parts, sha in files.items():
            if len(parts) > 1:
                folders.setdefault(parts[0], {})[parts[1:]] = sha
                continue
            held = entries.get(parts[0])
            if held is not None and held[2] != sha and not replace:
                raise StateError(f"{parts[0]}: already committed with other bytes; ledger files are append-only")
            entries[parts[0]] = ("100644", "blob", sha)
        for name, inside in folders.items():
            held = entries.get(name)
            if held is not None and held[1] != "tree":
                raise StateError(f"{name}: is a {held[1]} in git; expected a folder")
            entries[name] = ("040000", "tree", self._tree(held[2] if held else None, inside, replace))
        listing = "".join(f"{mode} {kind} {sha}\t{name}\0" for name, (mode, kind, sha) in entries.items())
        return self.git(*_DURABLE, "mktree", "-z", data=listing.encode("utf-8", "surrogateescape"))

    def _commit_object(self, tree: str, parent: str | None, message: str, *, sign: bool) -> str:
        wants = sign or self._flag("commit.gpgsign")
        options = (*(("-p", parent) if parent else ()), *(("-S",) if wants else ()))
        return self.git(*_DURABLE, "commit-tree", tree, *options, "-F", "-", data=message.encode())

    def _flag(self, name: str) -> bool:
        try:
            return self.git("config", "--type=bool", "--get", name) == "true"
        except StateError:
            return False

    def _advance(self, branch: str, commit: str, parent: str | None) -> str | None:
        """Move the branch from `parent` to `commit`; return git's words when another writer holds or moved it."""
        try:
            self.git(*_DURABLE, "update-ref", "-m", "ledger", branch, commit, parent or ZERO)
        except StateError as error:
            words = str(error)
            if "but expected" in words or "File exists" in words or "already exists" in words:
                return words
            raise
        return None

    def _check_out(self, files: Mapping[str, bytes], blobs: Mapping[str, str], replace: bool) -> str | None:
        """Write the committed files to the work tree and add them, alone, to the index.

        The commit stands whatever happens here; what could not be done is returned in words.
        """
        try:
            for path, data in files.items():
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
                return None

    def newest_seals(self, parent: str | None) -> tuple[str, ...]:
        """Return the paths of the seals that may be tips of the chain at `parent`: the newest, and any beside it."""
        if parent is None:
            return ()
        added = ("--format=%x01%H", "--name-only", "--no-renames", "--diff-filter=A", "-z", "--full-history", "-m")
        newest = _added_seals(self.git("log", "-1", *added, parent, "--", "predictions"))
        if not newest:
            return ()
        # The newest commit that touched a seal may stand on one of several branches that were merged later.
        beside = _added_seals(self.git("log", *added, parent, f"^{newest[0][0]}", "--", "predictions"))
        return tuple(dict.fromkeys(path for _, paths in [*newest, *beside] for path in paths))

    def show(self, commit: str, path: str) -> bytes:
        """Return the bytes of a file as committed. Raises: InputError when it is not there."""
        done = subprocess.run(
            ["git", "cat-file", "blob", f"{commit}:{path}"],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_environment(),
            check=False,
        )
        if done.returncode != 0:
            raise InputError(f"{path}: not in commit {commit[:12]}; expected a committed ledger file")
        return done.stdout

    def is_committed(self, path: str) -> bool:
        """Tell whether HEAD holds a file at `path`."""
        return self.head() is not None and bool(self.git("ls-tree", "-z", "--name-only", "HEAD", "--", path))

    def lost_records(self) -> tuple[str, ...]:
        """Return the committed ledger files that the index or the work tree lacks, as a killed writer leaves them."""
        shown = self.git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", *FOLDERS)
        return tuple(dict.fromkeys(entry[3:] for entry in shown.split("\0") if "D" in entry[:2]))

    def restore(self, path: str) -> None:
        """Bring a committed ledger file back into the index and, where it is missing, into the work tree."""
        line = self.git("ls-tree", "-z", "HEAD", "--", path).rstrip("\0")
        meta, _ = line.split("\t", 1)
        blob = meta.split(" ")[2]
        if not (self.root / path).exists():
            write_atomically(self.root / path, self.show("HEAD", path))
        self.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")

    def uncommitted(self, *paths: str) -> tuple[str, ...]:
        """Return those of some paths (the ledger folders when none is given) that differ from HEAD."""
        wanted = paths or FOLDERS
        text = self.git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", *wanted)
        return tuple(entry[3:] for entry in text.split("\0") if len(entry) > 3 and entry[2] == " ")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    return {**kept, "GIT_LITERAL_PATHSPECS": "1", "LC_ALL": "C"}


def _verb(arguments: tuple[str, ...]) -> str:
    rest = list(arguments)
    while rest and rest[0] == "-c":
        del rest[:2]
    return rest[0] if rest else ""


def _added_seals(log: str) -> list[tuple[str, list[str]]]:
    found = []
    for chunk in filter(None, log.split("\x01")):
        commit, _, names = chunk.partition("\0")
        paths = [name.strip("\n") for name in names.split("\0")]
        found.append((commit.strip(), [p for p in paths if p.endswith(".json") and p.startswith("predictions/")]))
    return found

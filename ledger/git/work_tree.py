"""Reads and mends the user's own repository: its state, its committed ledger files, its index and work tree.

GitPython serves here and only here, to find the repository; whatever judges evidence reads through reader.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ledger.errors import InputError, StateError
from ledger.git.history import FOLDERS
from ledger.record_files import write_atomically

if TYPE_CHECKING:
    from git import Repo

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


class WorkTree:
    """Wrap the user's own repository: root, state, and what git says of its ledger files."""

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
        answer = self._answer(arguments, data, environment)
        return answer.decode("utf-8", "surrogateescape").rstrip("\n")

    def _answer(self, arguments: tuple[str, ...], data: bytes | None, environment: Mapping[str, str] | None) -> bytes:
        """Return all that a git command prints. Raises: StateError with git's own message."""
        try:
            # A file and no pipe: git overlooks a failed write to a pipe, and its answer would be short.
            with tempfile.TemporaryFile() as printed:
                done = subprocess.run(
                    ["git", *arguments],
                    cwd=self.root,
                    input=data,
                    stdin=None if data is not None else subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.PIPE,
                    env={**_environment(), **(environment or {})},
                    check=False,
                )
                printed.seek(0)
                answer = printed.read()
        except OSError as error:
            words = f"git cannot be run, or its answer not be kept ({error.strerror})"
            raise StateError(f"{words}; expected git 2.36 or newer on the PATH, and room in TMPDIR") from error
        if done.returncode != 0:
            message = done.stderr.decode("utf-8", "replace").strip() or f"exit {done.returncode}"
            raise StateError(f"git {_verb(arguments)}: {message}")
        return answer

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
        return self.committer()[0]

    def committer(self) -> tuple[str, str]:
        """Return the committer's name, and the date of a commit made now, as `SECONDS ZONE`.

        Raises: StateError when git knows no identity.
        """
        try:
            line = self.git("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
        except StateError as error:
            raise StateError(
                "git knows no identity; expected one: git config user.name NAME; git config user.email ADDRESS"
            ) from error
        name, _, rest = line.partition(" <")
        return name, rest.rpartition("> ")[2]

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
        try:
            return self._answer(("cat-file", "blob", f"{commit}:{path}"), None, None)
        except StateError as error:
            raise InputError(
                f"{path}: not in commit {commit[:12]} ({error}); expected a committed ledger file"
            ) from error

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

    def uncommitted(self) -> tuple[str, ...]:
        """Return the files in the ledger folders that differ from HEAD."""
        text = self.git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", *FOLDERS)
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

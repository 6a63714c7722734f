"""Reads and repairs the user's own repository: its state, its committed ledger files, its index and work tree.

GitPython finds the repository, follows its references and reads its objects. Git itself is asked for what GitPython
does not give: the identity and the settings (GIT_CONFIG_COUNT, config.worktree, no guessed name), references that are
not files in UTF-8 (reftable, symbolic links), the state of an index of any format (sparse, split), the history of a
folder, durable writes (core.fsync=all), signing, and the compare-and-swap of a reference. A repository of somebody
else is read by git alone, in reader and clone.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ledger.errors import EvidenceRefused, InputError, StateError
from ledger.git.identity import committer
from ledger.git.reader import FOLDERS
from ledger.git.special_files import check_regular
from ledger.git.version import check_git

if TYPE_CHECKING:
    from git.objects import IndexObject, Tree

# Set by git for its hooks. A ledger commit goes to the repository and the index that the work tree itself names.
_SET_FOR_HOOKS = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE"}
    | {"GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH"}
)
# The configuration of a partial clone names a program that brings missing objects.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
# Git before 2.39.4 does not know that variable. It fetches by no protocol where none is allowed.
_NO_PROTOCOL = {**_NO_FETCH, "GIT_ALLOW_PROTOCOL": ""}
_IN_PROGRESS = {
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
        # Without git, GitPython cannot be imported.
        check_git()
        from git import InvalidGitRepositoryError, NoSuchPathError, Repo

        from ledger.git.objects import CheckedObjects, end_process

        check_regular(start.resolve())
        try:
            with _without_variables_of_hooks():
                self._repo = Repo(start, odbt=CheckedObjects, search_parent_directories=True, expand_vars=False)
        except (InvalidGitRepositoryError, NoSuchPathError) as error:
            raise StateError(
                f"{start}: not in a git repository; expected one: run git init, then ledger init"
            ) from error
        if self._repo.working_tree_dir is None:
            raise StateError(f"{start}: a bare repository; expected one with a work tree: clone it first")
        self.root = FilePath(self._repo.working_tree_dir)
        self.git_dir = FilePath(self._repo.git_dir)
        self.common_dir = FilePath(self._repo.common_dir)
        # GitPython starts git with the variables of a hook, so each gets the value of this repository.
        self._repo.git.update_environment(
            GIT_DIR=str(self.git_dir),
            GIT_COMMON_DIR=str(self.common_dir),
            GIT_OBJECT_DIRECTORY=str(self.common_dir / "objects"),
            GIT_ALTERNATE_OBJECT_DIRECTORIES="",
            GIT_NO_REPLACE_OBJECTS="1",
            **_NO_PROTOCOL,
        )
        # GitPython keeps a git process to read objects, and a cycle keeps the Repo: end it with this object.
        weakref.finalize(self, end_process, self._repo.git)

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
                    env={**git_environment(), **(environment or {})},
                    check=False,
                )
                printed.seek(0)
                answer = printed.read()
        except OSError as error:
            got = f"git cannot be run, or its answer not be kept ({error.strerror})"
            raise StateError(f"{got}; expected git on the PATH, and room in TMPDIR") from error
        if done.returncode != 0:
            message = done.stderr.decode("utf-8", "replace").strip() or f"exit {done.returncode}"
            raise StateError(f"git {_verb(arguments)}: {message}")
        return answer

    def head(self) -> str | None:
        """Return the commit HEAD names, or None on an unborn branch."""
        from git import SymbolicReference

        with suppress(TypeError, ValueError, OSError):
            return str(SymbolicReference.dereference_recursive(self._repo, "HEAD"))
        # Unborn, or a reference that GitPython cannot read.
        return self._commit_of("HEAD")

    def branch(self) -> str | None:
        """Return the full name of the current branch, or None when HEAD is detached."""
        with suppress(TypeError, ValueError, OSError):
            return str(self._repo.active_branch.path)
        # Detached, or a reference that GitPython cannot read.
        with suppress(StateError):
            return self.git("symbolic-ref", "--quiet", "HEAD")
        return None

    def _commit_of(self, reference: str) -> str | None:
        with suppress(StateError):
            asked = f"{reference}^{{commit}}"
            return self.git("rev-parse", "--verify", "--quiet", asked, environment=_NO_PROTOCOL)
        return None

    def check_can_commit(self) -> str:
        """Return the full name of the current branch, having checked that a ledger commit can go on top of it.

        Raises: StateError for a detached HEAD, an operation in progress, or no identity.
        """
        for marker, name in _IN_PROGRESS.items():
            if (self.git_dir / marker).exists():
                raise StateError(f"{self.root}: {name} is in progress; expected none: finish or abort it first")
        branch = self.branch()
        if branch is None:
            raise StateError(f"{self.root}: HEAD is detached; expected a branch: git switch NAME")
        if self.git("rev-parse", "--show-object-format") != "sha1":
            raise StateError(f"{self.root}: a SHA-256 repository; expected SHA-1 (seals do not rely on git's hash)")
        self.identity()
        return branch

    def check_writable(self) -> None:
        """Check that git's folder and the work tree can be written. Raises: StateError for a read-only one."""
        for folder in (self.common_dir, self.root):
            try:
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                raise StateError(
                    f"{folder}: cannot be written ({error.strerror}); expected a writable folder"
                ) from error

    def identity(self) -> str:
        """Return the committer's name. Raises: StateError when git has none."""
        return self.committer()[0]

    def committer(self) -> tuple[str, str]:
        """Return the committer's name, and the date of a commit made now, as `SECONDS ZONE`. Raises: StateError."""
        return committer(self.root, git_environment())

    def newest_seals(self, parent: str | None) -> tuple[str, ...]:
        """Return the paths of the seals that may be tips of the chain at `parent`: the newest, and any beside it.

        Raises: EvidenceRefused where a commit adds several, or one is gone: no seal that follows could be measured.
        """
        if parent is None:
            return ()
        added = ("--format=%x01%H %P", "--name-only", "--no-renames", "--diff-filter=A", "-z", "--full-history", "-m")
        newest = _added_seals(self.git("log", "-1", *added, parent, "--", "predictions"))
        if not newest:
            return ()
        # The newest commit that touched a seal may stand on one of several branches that were merged later.
        found = [*newest, *_added_seals(self.git("log", *added, parent, f"^{newest[0][0]}", "--", "predictions"))]
        for commit, parents, seals in found:
            if len(parents) == 1 and len(seals) > 1:
                raise EvidenceRefused(
                    f"commit {commit[:12]}: adds {len(seals)} seals, as a squash does; expected one a commit: undo it, "
                    "and merge branches with a merge commit"
                )
        paths = tuple(dict.fromkeys(path for _, _, seals in found for path in seals))
        if gone := [path for path in paths if self.find(parent, path) is None]:
            raise EvidenceRefused(
                f"{gone[0]}: was sealed and is not in commit {parent[:12]}; expected every seal of the history: undo "
                "what removed it, and withdraw a forecast with ledger void"
            )
        return paths

    def tree(self, commit: str) -> Tree:
        """Return the root tree of a commit, as GitPython's object. Raises: StateError."""
        from git.objects import Tree

        # The first line of a commit. GitPython's Commit would decode all others and know fewer encodings than git.
        header = self.read("commit", commit).split(b"\n", 1)[0]
        return Tree(self._repo, bytes.fromhex(header.removeprefix(b"tree ").decode("ascii")), path="")

    def read(self, kind: str, name: str) -> bytes:
        """Return the bytes of an object of a type, by git's name of it. Raises: StateError."""
        held = self._repo.odb.stream(bytes.fromhex(name))
        if held.type.decode() != kind:
            raise StateError(f"object {name[:12]}: is a {held.type.decode()}; expected a {kind}")
        data: bytes = held.read()
        return data

    def find(self, commit: str, path: str) -> IndexObject | None:
        """Return the entry of a commit's tree at a path, or None when there is none. Raises: StateError."""
        try:
            return self.tree(commit).join(path)
        except KeyError:
            return None
        except ValueError as error:
            raise StateError(f"{path}: commit {commit[:12]} cannot be read ({error}); run: git fsck") from error

    def show(self, commit: str, path: str) -> bytes:
        """Return the bytes of a file as committed. Raises: InputError when it is not there."""
        entry = self.find(commit, path)
        if entry is None or entry.type != "blob":
            raise InputError(f"{path}: not in commit {commit[:12]}; expected a committed ledger file")
        return self.read("blob", entry.hexsha)

    def is_committed(self, path: str) -> bool:
        """Tell whether HEAD holds a file at `path`."""
        head = self.head()
        return head is not None and self.find(head, path) is not None

    def lost_records(self) -> tuple[str, ...]:
        """Return the committed ledger files that the index or the work tree lacks, as a killed writer leaves them."""
        shown = self.git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", *FOLDERS)
        return tuple(dict.fromkeys(entry[3:] for entry in shown.split("\0") if "D" in entry[:2]))

    def restore(self, path: str) -> None:
        """Bring a committed ledger file back into the index and, where it is missing, into the work tree."""
        head = self.head()
        entry = None if head is None else self.find(head, path)
        if entry is None:
            raise StateError(f"{path}: not in HEAD; expected a committed ledger file")
        if linked := linked_part(self.root, path):
            raise StateError(f"{linked}: is a link; expected a folder of the ledger: nothing is written through it")
        if not (self.root / path).exists():
            from ledger.record_files import write_atomically

            write_atomically(self.root / path, self.read("blob", entry.hexsha))
        self.git("update-index", "--add", "--cacheinfo", f"100644,{entry.hexsha},{path}")

    def uncommitted(self) -> tuple[str, ...]:
        """Return the files in the ledger folders that differ from HEAD."""
        text = self.git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", *FOLDERS)
        return tuple(entry[3:] for entry in text.split("\0") if len(entry) > 3 and entry[2] == " ")


def linked_part(root: FilePath, path: str) -> FilePath | None:
    """Return the first folder on the way to a ledger file that is a symbolic link, None where there is none."""
    parts = FilePath(path).parts[:-1]
    folders = (root.joinpath(*parts[: depth + 1]) for depth in range(len(parts)))
    return next((folder for folder in folders if folder.is_symlink()), None)


@contextmanager
def _without_variables_of_hooks() -> Iterator[None]:
    held = {name: os.environ.pop(name) for name in _SET_FOR_HOOKS & os.environ.keys()}
    try:
        yield
    finally:
        os.environ.update(held)


def git_environment() -> dict[str, str]:
    """Return the environment in which git answers for the repository of a folder, not for that of a hook."""
    kept = {name: value for name, value in os.environ.items() if name not in _SET_FOR_HOOKS}
    return {**kept, "GIT_LITERAL_PATHSPECS": "1", "LC_ALL": "C", **_NO_FETCH}


def _verb(arguments: tuple[str, ...]) -> str:
    rest = list(arguments)
    while rest and rest[0] == "-c":
        del rest[:2]
    return rest[0] if rest else ""


def _added_seals(log: str) -> list[tuple[str, list[str], list[str]]]:
    """Return commits, their parents and the seals that they add; a merge is listed for each parent."""
    found = []
    for chunk in filter(None, log.split("\x01")):
        commits, _, names = chunk.partition("\0")
        commit, *parents = commits.split()
        paths = [name.strip("\n") for name in names.split("\0")]
        seals = [path for path in paths if path.endswith(".json") and path.startswith("predictions/")]
        found.append((commit, parents, seals))
    return found

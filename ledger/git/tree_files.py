"""Writes the source files of a commit into a folder, without its history, filters, hooks or configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from pathlib import PurePosixPath

from ledger.errors import InputError, StateError
from ledger.git.reader import FOLDERS, Reader

MAX_FILE_BYTES = 2_000_000
"""Larger files are left out: no source that a seal can hold is larger."""
MAX_TREE_BYTES = 2 * 1024**3
_ASKED_TOGETHER = 200
"""Paths in one question: a command line has a limit."""
_REGULAR = frozenset({"100644", "100755"})


def commit_of(reader: Reader, revision: str) -> str:
    """Return the full name of the commit that a revision names. Raises: InputError."""
    try:
        found = reader.run("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    except StateError as error:
        raise InputError(
            f"revision {revision!r}: names no commit here ({' '.join(str(error).split())[:300]}); expected a branch, "
            "tag or commit: in a shallow clone, git fetch --unshallow"
        ) from error
    return found.decode().strip()


def write_files(reader: Reader, commit: str, folder: FilePath) -> tuple[str, ...]:
    """Write the regular files of a commit but for those of the ledger; links are left out.

    Return the paths of files that this clone lacks: they are left out too, since what is wanted may not need them.

    Raises: InputError for a path that leaves the folder, or more than MAX_TREE_BYTES in all.
    """
    listed = [
        _entry(line) for line in reader.run("ls-tree", "-r", "-l", "-z", "--full-tree", commit).split(b"\0") if line
    ]
    sources = [
        (path, blob, size)
        for mode, blob, size, path in listed
        if mode in _REGULAR and (size or 0) <= MAX_FILE_BYTES and path.split("/")[0] not in FOLDERS
    ]
    wanted = [(path, blob) for path, blob, size in sources if size is not None]
    if sum(size for _, _, size in sources if size is not None) > MAX_TREE_BYTES:
        raise InputError(f"commit {commit[:12]}: more than {MAX_TREE_BYTES} bytes of files; expected less")
    with reader.blobs() as blobs:
        blobs.plan(blob for _, blob in wanted)
        for path, blob in wanted:
            data = blobs.read(blob, MAX_FILE_BYTES)
            assert data is not None
            file = folder / _checked(path, commit)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    return tuple(path for path, _, size in sources if size is None)


def blobs_at(reader: Reader, commit: str, paths: Sequence[str]) -> dict[str, str]:
    """Return git's names of a commit's regular files at some paths, of those that are there. Raises: StateError."""
    found: dict[str, str] = {}
    for first in range(0, len(paths), _ASKED_TOGETHER):
        some = paths[first : first + _ASKED_TOGETHER]
        listed = reader.run("ls-tree", "-l", "-z", "--full-tree", commit, "--", *some).split(b"\0")
        entries = (_entry(line) for line in listed if line)
        found.update({path: blob for mode, blob, _, path in entries if mode in _REGULAR})
    return found


def _entry(line: bytes) -> tuple[str, str, int | None, str]:
    """Return mode, blob, size and path of a line of git ls-tree -l; no size of an object that is not there."""
    facts, _, path = line.partition(b"\t")
    mode, _, blob, size = facts.decode("ascii").split()
    return mode, blob, int(size) if size.isdigit() else None, path.decode("utf-8", "surrogateescape")


def _checked(path: str, commit: str) -> str:
    parts = PurePosixPath(path).parts
    if path.startswith("/") or not parts or {"..", ".git"} & set(parts):
        raise InputError(f"commit {commit[:12]}: has the path {path[:200]!r}; expected one inside the repository")
    return path

"""Finds a repository, and refuses pipes and devices in its git folder: whoever reads one may wait for ever.

Nothing of the repository's configuration is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path as FilePath

from ledger.budgets import MAX_GIT_FILES
from ledger.errors import StateError

# Folders of a git folder that git reads, besides the files at its top. A socket cannot be opened, so nobody waits.
_READ_FOLDERS = frozenset({"refs", "reftable", "info", "objects"})


def repository_around(start: FilePath) -> FilePath | None:
    """Return the top folder of the repository that holds a folder, or the bare repository; None where there is none."""
    for folder in (start, *start.parents):
        if (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir()):
            return folder
    return None


def check_regular(start: FilePath) -> None:
    """Check that git can read the repository around a folder without waiting. Raises: StateError naming the file."""
    top = repository_around(start)
    for git_folder in () if top is None else _git_folders(top):
        for count, entry in enumerate(_entries(git_folder)):
            if count >= MAX_GIT_FILES:
                raise StateError(f"{git_folder}: more than {MAX_GIT_FILES} files; expected fewer: run git gc")
            if what := _kind(entry):
                raise StateError(f"{entry.path}: is {what}; expected a regular file: remove it, then run git fsck")


def _git_folders(top: FilePath) -> Iterator[FilePath]:
    """Yield the git folder of a repository and, for a linked work tree, the one that it shares."""
    folder = top / ".git" if (top / ".git").exists() else top
    if folder.is_file():
        folder = top / _path_in(folder).removeprefix("gitdir:").strip()
    yield folder
    if (folder / "commondir").is_file():
        yield folder / _path_in(folder / "commondir")


def _path_in(file: FilePath) -> str:
    from ledger.record_files import read_bytes

    return os.fsdecode(read_bytes(file)).strip()


def _entries(git_folder: FilePath) -> Iterator[os.DirEntry[str]]:
    """Yield what is no folder among the files that git reads; a folder that is linked twice is read once."""
    waiting, seen = [str(git_folder)], set()
    while waiting:
        folder = waiting.pop()
        # What cannot be listed, git cannot read either, and says so.
        with suppress(OSError), os.scandir(folder) as listed:
            known = FilePath(folder).stat()
            if (known.st_dev, known.st_ino) in seen:
                continue
            seen.add((known.st_dev, known.st_ino))
            for entry in listed:
                if not entry.is_dir():
                    yield entry
                elif len(seen) > 1 or entry.name in _READ_FOLDERS:
                    waiting.append(entry.path)


def _kind(entry: os.DirEntry[str]) -> str | None:
    """Return what a file is that may be waited for; None for any other, and for a link that leads nowhere."""
    with suppress(OSError):
        if not entry.is_file():
            mode = entry.stat().st_mode
            if stat.S_ISFIFO(mode):
                return "a named pipe"
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                return "a device"
    return None

"""Finds a repository, and refuses pipes and devices that git would read for it: whoever reads one may wait for ever.

Of the repository's configuration only the files that it names are asked, of git, one file at a time.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path as FilePath

from ledger.budgets import MAX_GIT_FILES
from ledger.errors import StateError

# Folders of a git folder that git reads, besides the files at its top. A socket cannot be opened, so nobody waits.
_READ_FOLDERS = frozenset({"refs", "reftable", "info", "objects"})
_NAMES_FILE = r"^(include\.path|includeif\..*\.path|core\.(excludesfile|attributesfile))$"
_MAY_NAME_FILE = re.compile(rb"include|excludesfile|attributesfile", re.IGNORECASE)
# Folders of objects and files of settings that are followed from one to the next: each spelling may name more of them.
_MOST_FOLLOWED = 100


def repository_around(start: FilePath) -> FilePath | None:
    """Return the top folder of the repository that holds a folder, or the bare repository; None where there is none."""
    for folder in (start, *start.parents):
        if (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir()):
            return folder
    return None


def check_regular(start: FilePath) -> None:
    """Check that git can read the repository around a folder without waiting. Raises: StateError naming the file."""
    top = repository_around(start)
    if top is None:
        return
    for git_folder in _git_folders(top):
        _check_entries(git_folder, _READ_FOLDERS)
        for objects in _alternates(git_folder / "objects"):
            _check_entries(objects, None)
        for config in ("config", "config.worktree"):
            _check_named(git_folder / config, top)


def _check_entries(folder: FilePath, read: frozenset[str] | None) -> None:
    for count, entry in enumerate(_entries(folder, read)):
        if count >= MAX_GIT_FILES:
            raise StateError(f"{folder}: more than {MAX_GIT_FILES} files; expected fewer: run git gc")
        if what := _kind(entry):
            raise StateError(f"{entry.path}: is {what}; expected a regular file: remove it, then run git fsck")


def _alternates(objects: FilePath) -> list[FilePath]:
    """Return the folders of objects that a folder of objects names, and those that they name."""

    def named(folder: FilePath) -> Iterator[FilePath]:
        # What is a pipe was refused before.
        lines = _path_in(file).splitlines() if (file := folder / "info/alternates").is_file() else []
        return (folder / line for line in lines if line[:1] not in ("", "#") and "\0" not in line)

    return list(_followed(objects, named))[1:]


def _followed(start: FilePath, named: Callable[[FilePath], Iterable[FilePath]]) -> Iterator[FilePath]:
    """Yield a path and those that it names, and so on, each once however it is spelled. Raises: StateError."""
    waiting, seen = [start], {os.path.realpath(start)}
    while waiting:
        at = waiting.pop()
        yield at
        for path in named(at):
            if (real := os.path.realpath(path)) not in seen:
                seen.add(real)
                waiting.append(path)
            if len(seen) > _MOST_FOLLOWED:
                raise StateError(f"{at}: names more than {_MOST_FOLLOWED} others; expected fewer: remove some")


def _check_named(config: FilePath, top: FilePath) -> None:
    """Check the files that a file of settings names, and those that they name."""

    def included(at: FilePath) -> Iterator[FilePath]:
        for key, path in _named(at, top):
            if path != FilePath(os.devnull) and (what := _kind(path)):
                raise StateError(f"{at}: {key} names {path}, {what}; expected a regular file: remove the setting")
            if key.startswith("include"):
                yield path

    for _ in _followed(config, included):
        pass


def _named(config: FilePath, top: FilePath) -> list[tuple[str, FilePath]]:
    """Return the settings of a file that name a file which git reads, and that file."""
    from ledger.git.reader import quiet_environment
    from ledger.record_files import read_bytes

    if not config.is_file() or not _MAY_NAME_FILE.search(read_bytes(config)):
        return []
    # Outside of the repository, whose settings git would read first.
    asked = ["git", "config", "--file", str(config.absolute()), "--no-includes", "--null", "--get-regexp", _NAMES_FILE]
    done = subprocess.run(
        asked, cwd="/", env=quiet_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    found = []
    for key, _, value in (os.fsdecode(one).partition("\n") for one in done.stdout.split(b"\0") if one):
        named = FilePath(os.path.expanduser(value))  # noqa: PTH111 - a user that does not exist is no error
        found.append((key, (config.parent if key.startswith("include") else top) / named))
    return found


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


def _entries(top: FilePath, read: frozenset[str] | None) -> Iterator[os.DirEntry[str]]:
    """Yield what is no folder in a folder; a folder that is linked twice is read once.

    read: the folders at its top to read, all if None.
    """
    waiting, seen = [str(top)], set()
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
                elif len(seen) > 1 or read is None or entry.name in read:
                    waiting.append(entry.path)


def _kind(file: os.DirEntry[str] | FilePath) -> str | None:
    """Return what a file is that may be waited for; None for any other, and for a link that leads nowhere."""
    with suppress(OSError):
        if not file.is_file():
            mode = file.stat().st_mode
            if stat.S_ISFIFO(mode):
                return "a named pipe"
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                return "a device"
    return None

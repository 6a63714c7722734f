"""Reads git objects of the user's own repository through GitPython, and computes the bytes and names of new ones.

Every object is compared with its name when it is read, so that an answer of git that ends early is noticed. This
module imports GitPython, which takes long to load: import it in functions only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from stat import S_ISDIR
from typing import NamedTuple

from git.cmd import Git
from git.db import GitCmdObjectDB
from git.exc import GitError
from git.objects.fun import tree_entries_from_data, tree_to_stream
from gitdb.base import OStream
from gitdb.fun import write_object
from gitdb.stream import Sha1Writer

from ledger.errors import StateError


class Entry(NamedTuple):
    """Hold one entry of a tree: its mode, and git's name of the object."""

    mode: int
    hexsha: str

    @property
    def kind(self) -> str:
        """Return the type of the object: tree, commit (a submodule) or blob."""
        return {0o04: "tree", 0o16: "commit"}.get(self.mode >> 12, "blob")


class CheckedObjects(GitCmdObjectDB):  # type: ignore[misc]
    """Read objects through one `git cat-file` of GitPython, and compare each with its name."""

    def stream(self, binsha: bytes) -> OStream:
        """Return an object whose bytes have this name. Raises: StateError."""
        name = binsha.hex()
        try:
            _, kind, _, data = self._git.get_object_data(name)
        except (GitError, OSError, ValueError) as error:
            end_process(self._git)
            raise StateError(f"object {name[:12]}: cannot be read ({error}); run: git fsck") from error
        if object_name(kind.decode(), data) != name:
            end_process(self._git)
            raise StateError(f"object {name[:12]}: git returned other bytes than its name says; run: git fsck")
        return OStream(binsha, kind, len(data), BytesIO(data))


def end_process(git: Git) -> None:
    """End the git process that reads objects. The next read starts another one."""
    with suppress(OSError):
        git.clear_cache()


def object_name(kind: str, data: bytes) -> str:
    """Return git's SHA-1 name of an object of a type (blob, tree, commit) with these bytes."""
    writer = Sha1Writer()
    write_object(kind.encode(), len(data), BytesIO(data).read, writer.write)
    name: str = writer.sha(as_hex=True)
    return name


def tree_entries(data: bytes) -> dict[str, Entry]:
    """Return the entries of a tree by file name. Raises: StateError for a tree that GitPython does not accept."""
    try:
        return {name: Entry(mode, binsha.hex()) for binsha, mode, name in tree_entries_from_data(data)}
    except ValueError as error:
        raise StateError(f"a tree of HEAD cannot be read ({error}); run: git fsck") from error


def tree_bytes(entries: Mapping[str, Entry]) -> bytes:
    """Return the bytes of a tree with these entries, by file name."""
    # Names as bytes: GitPython cannot encode a name that is not UTF-8.
    listed = [(bytes.fromhex(entry.hexsha), entry.mode, os.fsencode(name)) for name, entry in entries.items()]
    # Git sorts a folder as if its name ended in a slash.
    listed.sort(key=lambda item: item[2] + b"/" if S_ISDIR(item[1]) else item[2])
    stream = BytesIO()
    tree_to_stream(listed, stream.write)
    return stream.getvalue()

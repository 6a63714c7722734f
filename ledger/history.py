"""Reads the evidence out of git: every commit, every change to a ledger file, the final tree, and blobs. Read-only.

One walk serves report and audit. It asks git for objects only, with replace refs, grafts, the commit graph, lazy
fetching, hooks, filters and all configuration that could run a program switched off; nothing is checked out.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import IO

from ledger.book import Commit
from ledger.errors import InputError, StateError

FOLDERS = ("predictions", "verifications")
_QUIET = (
    "--no-replace-objects",
    "--literal-pathspecs",
    "-c",
    "core.commitGraph=false",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.quotePath=false",
    "-c",
    "log.showSignature=false",
    "-c",
    "log.showRoot=true",
    "-c",
    "log.mailmap=false",
    "-c",
    "i18n.logOutputEncoding=UTF-8",
    "-c",
    "core.pager=cat",
)


@dataclass(frozen=True)
class Change:
    """Hold one change to a ledger file: git's status letter, the mode and blob after it, and where it happened."""

    position: int
    status: str
    mode: str
    blob: str
    path: str


@dataclass(frozen=True)
class History:
    """Hold all that git says about the ledger at one commit.

    commits are in topological order, oldest first; parents gives positions into commits; roots counts parentless
    commits; tree maps each ledger path at the head to (mode, blob).
    """

    head: str
    commits: tuple[Commit, ...]
    parents: tuple[tuple[int, ...], ...]
    changes: tuple[Change, ...]
    tree: Mapping[str, tuple[str, str]]

    @property
    def roots(self) -> int:
        """Return how many commits have no parent."""
        return sum(1 for parents in self.parents if not parents)


def quiet_environment(config: FilePath | None = None) -> dict[str, str]:
    """Return an environment in which git reads no configuration but the repository's own and `config`."""
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {
        **keep,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(config) if config else os.devnull,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": os.devnull,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_PAGER": "cat",
    }


class Reader:
    """Read objects of one repository through a single long-lived `git cat-file`."""

    def __init__(self, git_dir: FilePath, environment: Mapping[str, str]) -> None:
        """Remember the repository; no process is started yet."""
        self._git_dir = git_dir
        self._environment = dict(environment)

    def run(self, *arguments: str) -> bytes:
        """Return what a read-only git command prints. Raises: StateError with git's own message."""
        command = ["git", *_QUIET, f"--git-dir={self._git_dir}", *arguments]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=self._environment, check=False
        )
        if done.returncode != 0:
            message = done.stderr.decode("utf-8", "replace").strip()
            raise StateError(f"git {arguments[0]}: {message or f'exit {done.returncode}'}")
        return done.stdout

    @contextmanager
    def blobs(self) -> Iterator[Blobs]:
        """Open a reader of blobs for the length of a `with` block."""
        command = ["git", *_QUIET, f"--git-dir={self._git_dir}", "cat-file", "--batch"]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                yield Blobs(process.stdin, process.stdout)
            finally:
                process.stdin.close()
                process.stdout.close()
                process.terminate()


class Blobs:
    """Answer for the bytes of blobs, by git's name of them."""

    def __init__(self, request: IO[bytes], answer: IO[bytes]) -> None:
        """Take the two ends of a running `git cat-file --batch`."""
        self._request = request
        self._answer = answer

    def read(self, blob: str, limit: int) -> bytes | None:
        """Return a blob's bytes, or None when it is larger than `limit` bytes. Raises: InputError when missing."""
        try:
            self._request.write(blob.encode() + b"\n")
            self._request.flush()
            header = self._answer.readline().split()
        except (BrokenPipeError, ValueError) as error:
            raise InputError(f"object {blob[:12]}: git stopped answering; expected a sound object store") from error
        if len(header) != 3 or header[1] != b"blob":
            raise InputError(f"object {blob[:12]}: missing or not a blob; expected it in the repository")
        size = int(header[2])
        if size > limit:
            self._skip(size)
            return None
        data = self._answer.read(size)
        self._answer.read(1)
        return data

    def _skip(self, size: int) -> None:
        left = size + 1
        while left > 0:
            chunk = self._answer.read(min(left, 1 << 20))
            if not chunk:
                return
            left -= len(chunk)


def read_history(reader: Reader, revision: str = "HEAD") -> History:
    """Return the history of the ledger folders at a revision.

    Raises: StateError when git cannot read it (no commit, a shallow or damaged repository).
    """
    head = reader.run("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    if reader.run("rev-parse", "--is-shallow-repository").strip() == b"true":
        raise StateError("repository is a shallow clone; expected the whole history: git fetch --unshallow")
    commits, parents, places = _commits(reader, head)
    return History(head, commits, parents, tuple(_changes(reader, head, places)), _tree(reader, head))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _commits(reader: Reader, head: str) -> tuple[tuple[Commit, ...], tuple[tuple[int, ...], ...], dict[str, int]]:
    text = _text(reader.run("log", "--topo-order", "--reverse", "-z", "--format=%H%x01%P%x01%cI%x01%cn", head))
    commits: list[Commit] = []
    parents: list[tuple[int, ...]] = []
    places: dict[str, int] = {}
    for entry in filter(None, text.split("\0")):
        sha, above, when, author = [*entry.split("\x01", 3), "", "", ""][:4]
        places[sha] = len(commits)
        commits.append(Commit(sha=sha, when=when, author=author, position=len(commits)))
        parents.append(tuple(places[parent] for parent in above.split() if parent in places))
    return tuple(commits), tuple(parents), places


def _changes(reader: Reader, head: str, places: Mapping[str, int]) -> Iterator[Change]:
    shown = ("--raw", "--no-abbrev", "--no-renames", "-z", "-c", "--format=%x01%H", "--full-history", "--topo-order")
    # Two NULs or one part a commit's header from its changes, depending on the kind of commit: drop the empty ones.
    tokens = iter([token for token in reader.run("log", *shown, head, "--", *FOLDERS).split(b"\0") if token.strip()])
    position = 0
    for token in tokens:
        token = token.lstrip(b"\n")
        if token.startswith(b"\x01"):
            position = places[token[1:].decode()]
            continue
        sides = len(token) - len(token.lstrip(b":"))
        fields = token[sides:].decode().split(" ")
        yield Change(
            position=position,
            status=fields[-1],
            mode=fields[sides],
            blob=fields[2 * sides + 1],
            path=_text(next(tokens)),
        )


def _tree(reader: Reader, head: str) -> dict[str, tuple[str, str]]:
    tree: dict[str, tuple[str, str]] = {}
    for line in filter(None, reader.run("ls-tree", "-r", "-z", "--full-tree", head, *FOLDERS).split(b"\0")):
        meta, path = line.split(b"\t", 1)
        mode, _, blob = meta.decode().split(" ")
        tree[_text(path)] = (mode, blob)
    return tree

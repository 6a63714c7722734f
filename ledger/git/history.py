"""Reads the history of a ledger out of git: every commit, every change to a ledger file, the final tree. Read-only.

One walk serves report and audit; reader is how it asks git.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from sys import intern
from typing import NamedTuple

from ledger.analysis.book import Commit
from ledger.errors import StateError
from ledger.git.reader import FOLDERS, Reader

_LONGEST_NAME = 255
"""Bytes of a file's name; no file system takes a longer one, so that it looks like none."""
_LOG = ("log", "--topo-order", "--reverse", "-z", "--format=%H%x01%P%x01%cI%x01%cn")


class Change(NamedTuple):
    """Hold one change to a ledger file: git's status letter, the mode and blob after it, and where it happened."""

    position: int
    status: str
    mode: str
    blob: str
    path: str


@dataclass(frozen=True)
class History:
    """Hold all that git says about the ledger at one commit.

    commits are in topological order, oldest first; parents gives positions into commits; tree maps each ledger path
    at the head to (mode, blob). lookalikes are top-level names at the head that differ from a ledger folder's only by
    case or Unicode form; doubled are paths that the head's tree has twice.
    """

    head: str
    commits: tuple[Commit, ...]
    parents: tuple[tuple[int, ...], ...]
    find_changes: Callable[[], tuple[Change, ...]]
    tree: Mapping[str, tuple[str, str]]
    lookalikes: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Return every change to a ledger file, waiting for git where it still looks. Raises: StateError."""
        return self.find_changes()

    @property
    def roots(self) -> int:
        """Return how many commits have no parent."""
        return sum(1 for parents in self.parents if not parents)


def read_history(reader: Reader, revision: str = "HEAD", *, wait: bool = True) -> History:
    """Return the history of the ledger folders at a revision; without `wait`, git may still be walking its changes.

    Raises: StateError when git cannot read it (no commit, a shallow or damaged repository).
    """
    head = _head(reader, revision)
    if reader.run("rev-parse", "--is-shallow-repository").strip() == b"true":
        raise StateError("repository is a shallow clone; expected the whole history: git fetch --unshallow")
    log = _ask_commits(reader, head)
    tree, doubled = _tree(reader, head)
    alike = tuple(lookalikes(reader, head))
    commits, parents, position_of = _commits(log())
    diff = _ask_changes(reader, commits)
    history = History(head, commits, parents, lambda: tuple(_changes(diff(), position_of)), tree, alike, doubled)
    if wait:
        _ = history.changes
    return history


def commits_after(reader: Reader, history: History) -> tuple[Commit, ...] | None:
    """Return the commits of HEAD that are not in a history, oldest first; None unless they follow it one by one."""
    entries = _entries(reader.run(*_LOG, f"{history.head}..HEAD"))
    commits: list[Commit] = []
    below = history.head
    for sha, above, when, author in entries:
        if above != below:
            return None
        commits.append(Commit(sha=sha, when=when, author=author, position=len(history.commits) + len(commits)))
        below = sha
    return tuple(commits) if below == _head(reader, "HEAD") else None


def commits_between(reader: Reader, before: str, after: str) -> list[tuple[str, str, str, str]] | None:
    """Return name, parents, date and committer of the commits after one, oldest first, in the order of the history.

    None unless the earlier commit is on the line of first parents of the later one: only then they all come last in it.
    """
    line = reader.run("rev-list", "--first-parent", "--parents", after, f"^{before}").split(b"\n")
    oldest = next((entry.decode().split() for entry in reversed(line) if entry), [])
    if oldest[1:2] != [before]:
        return None
    return list(_entries(reader.run(*_LOG, after, f"^{before}")))


def changes_of(reader: Reader, commits: Sequence[Commit]) -> tuple[Change, ...]:
    """Return what some commits change in ledger files, the newest commit first."""
    position_of = {commit.sha: commit.position for commit in commits}
    return tuple(_changes(_ask_changes(reader, commits)(), position_of))


def _head(reader: Reader, revision: str) -> str:
    try:
        return reader.run("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    except StateError as error:
        raise StateError(
            f"revision {revision!r}: names no commit here ({error}); expected one with a ledger"
        ) from error


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _ask_commits(reader: Reader, head: str) -> Callable[[], bytes]:
    return reader.begin(*_LOG, head)


def _entries(answer: bytes) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, parents, date and committer of each commit that git printed in the format of _LOG."""
    # Decoded one by one: a single character beyond Latin would make a whole answer four times as large.
    for entry in filter(None, answer.split(b"\0")):
        sha, above, when, author = [*_text(entry).split("\x01", 3), "", "", ""][:4]
        yield sha, above, when, author


def _commits(answer: bytes) -> tuple[tuple[Commit, ...], tuple[tuple[int, ...], ...], dict[str, int]]:
    commits: list[Commit] = []
    parents: list[tuple[int, ...]] = []
    position_of: dict[str, int] = {}
    for sha, above, when, author in _entries(answer):
        position_of[sha] = len(commits)
        commits.append(Commit(sha=sha, when=when, author=intern(author), position=len(commits)))
        parents.append(tuple(position_of[parent] for parent in above.split() if parent in position_of))
    return tuple(commits), tuple(parents), position_of


def _ask_changes(reader: Reader, commits: Sequence[Commit]) -> Callable[[], bytes]:
    """Ask what each commit changes against its parents, a merge what it changes against all of them; newest first."""
    shown = ["--stdin", "--root", "-r", "-c", "--raw", "--no-abbrev", "--no-renames", "--no-relative", "-O/dev/null"]
    shown += ["-z", "--ignore-submodules=none"]
    asked = "".join(f"{commit.sha}\n" for commit in reversed(commits)).encode()
    return reader.begin("diff-tree", *shown, "--", *FOLDERS, given=asked)


def _changes(answer: bytes, position_of: Mapping[str, int]) -> Iterator[Change]:
    tokens = iter(answer.split(b"\0"))
    position = 0
    for token in filter(None, tokens):
        if not token.startswith(b":"):
            position = position_of[token.decode()]
            continue
        sides = len(token) - len(token.lstrip(b":"))
        fields = token[sides:].decode().split(" ")
        status, mode, path = (intern(text) for text in (fields[-1], fields[sides], _text(next(tokens))))
        yield Change(position, status, mode, fields[2 * sides + 1], path)


def ledger_tree(reader: Reader, commit: str) -> dict[str, tuple[str, str]]:
    """Return mode and blob of each ledger file of a commit. Raises: StateError."""
    return _tree(reader, commit)[0]


def _tree(reader: Reader, head: str) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
    tree: dict[str, tuple[str, str]] = {}
    doubled: list[str] = []
    for line in filter(None, reader.run("ls-tree", "-r", "-z", "--full-tree", head, *FOLDERS).split(b"\0")):
        meta, name = line.split(b"\t", 1)
        mode, _, blob = meta.decode().split(" ")
        path = intern(_text(name))
        if path in tree:
            doubled.append(path)
        tree[path] = (intern(mode), blob)
    return tree, tuple(doubled)


def lookalikes(reader: Reader, head: str) -> Iterator[str]:
    """Yield the top-level names that a file system or a reader's eye may take for a ledger folder."""
    seen: set[str] = set()
    for raw in filter(None, reader.run("ls-tree", "-z", "--name-only", head).split(b"\0")):
        if len(raw) > _LONGEST_NAME:
            continue
        name = _text(raw)
        folded = unicodedata.normalize("NFKC", name).casefold().rstrip(". ")
        if folded in FOLDERS and (name not in FOLDERS or name in seen):
            yield name
        seen.add(name)

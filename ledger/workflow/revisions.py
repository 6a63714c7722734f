"""Opens two commits of a repository side by side, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory

from ledger.analysis.formatting import count_text, harmless
from ledger.git.reader import Reader, quiet_environment
from ledger.git.tree_files import commit_of, write_files
from ledger.git.work_tree import WorkTree


@dataclass(frozen=True)
class Side:
    """Hold one of two commits: as the user named it, its full name, and the folder that holds its files.

    missing: paths of files that this clone lacks.
    """

    name: str
    commit: str
    root: FilePath
    missing: tuple[str, ...] = ()

    @property
    def missing_text(self) -> str:
        """Return which files are left out and how to get them; empty where none is."""
        if not self.missing:
            return ""
        return (
            f"commit {self.name}: {count_text(len(self.missing), 'file')} not in this clone, left out, such as "
            f"{harmless(self.missing[0], 200)}: git fetch --refetch --no-filter origin"
        )


def check_named(start: FilePath, *revisions: str) -> None:
    """Check that revisions name commits of the repository around a folder. Raises: as two_sides."""
    _named(start, revisions)


def _named(start: FilePath, revisions: Sequence[str]) -> tuple[Reader, list[str]]:
    reader = Reader(WorkTree(start).git_dir, quiet_environment())
    return reader, [commit_of(reader, name) for name in revisions]


@contextmanager
def two_sides(start: FilePath, base: str, head: str) -> Iterator[tuple[Side, Side]]:
    """Yield two commits of the repository around a folder, written to temporary folders that end with the block.

    Raises: StateError without a repository; InputError for a revision that names no commit.
    """
    reader, commits = _named(start, (base, head))
    with TemporaryDirectory(prefix="ledger-compare-") as name:
        sides = []
        for label, given, commit in zip(("base", "head"), (base, head), commits, strict=True):
            folder = FilePath(name).resolve() / label
            folder.mkdir()
            sides.append(Side(given, commit, folder, write_files(reader, commit, folder)))
        yield sides[0], sides[1]

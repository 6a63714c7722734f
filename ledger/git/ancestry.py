"""Answers which files were introduced before a commit, from the graph alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ledger.git.history import History


def introductions(history: History) -> dict[str, tuple[int, ...]]:
    """Return where each ledger file was added: positions of commits, usually one."""
    found: dict[str, list[int]] = {}
    for change in history.changes:
        if not change.status.strip("A"):
            found.setdefault(change.path, []).append(change.position)
    return {path: tuple(positions) for path, positions in found.items()}


@dataclass(slots=True)
class _Stretch:
    """Hold a run of commits without a fork or a merge, and the files that they introduced, oldest first.

    base: bit set of the files introduced before the first commit. cursor, reached: how many of the files were added
    to the base, and the sum, for the next question, which is most often about the next commit.
    """

    base: int
    positions: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    cursor: int = 0
    reached: int = 0

    def before(self, position: int) -> int:
        """Return the files introduced before the commit of this stretch at `position`."""
        if not self.cursor or self.positions[self.cursor - 1] >= position:
            self.cursor, self.reached = 0, self.base
        while self.cursor < len(self.positions) and self.positions[self.cursor] < position:
            self.reached |= 1 << self.numbers[self.cursor]
            self.cursor += 1
        return self.reached


class Ancestry:
    """Tell which of some files were introduced in proper ancestors of a commit.

    Sets of files are integers used as bit sets, so that a merge is one `or`. One is held for each stretch of the
    graph between forks and merges, so that memory follows those and not the length of the history.
    """

    def __init__(self, history: History, introduced: Mapping[str, tuple[int, ...]], paths: Iterable[str]) -> None:
        """Walk the graph once, for the commits that introduced any file."""
        self._numbers = {path: number for number, path in enumerate(paths)}
        self._positions = {path: introduced.get(path, ()) for path in self._numbers}
        self._wanted = {position for positions in introduced.values() for position in positions}
        added: dict[int, list[int]] = {}
        for path, number in self._numbers.items():
            for position in self._positions[path]:
                added.setdefault(position, []).append(number)
        self._stretch = _stretches(history.parents, added)

    def bit(self, path: str) -> int:
        """Return the bit that stands for a file."""
        return 1 << self._numbers[path]

    def before(self, position: int) -> int:
        """Return the bit set of files introduced in proper ancestors of the commit at `position`."""
        return self._stretch[position].before(position) if position in self._wanted else 0

    def line(self, position: int) -> object:
        """Return what stands for the run of commits without a fork or a merge that a commit is on."""
        return id(self._stretch[position])

    def precedes(self, path: str, positions: Iterable[int]) -> bool:
        """Tell whether `path` was introduced in a proper ancestor of every one of the commits, at least one."""
        wanted = tuple(positions)
        return path in self._numbers and bool(wanted) and all(self._is_before(path, position) for position in wanted)

    def _is_before(self, path: str, position: int) -> bool:
        if position not in self._wanted:
            return False
        stretch = self._stretch[position]
        within = any(own < position and self._stretch[own] is stretch for own in self._positions[path])
        return within or bool(stretch.base >> self._numbers[path] & 1)


def _stretches(parents: tuple[tuple[int, ...], ...], added: Mapping[int, list[int]]) -> list[_Stretch]:
    """Return the stretch of each commit."""
    children = [0] * len(parents)
    for above in parents:
        for parent in above:
            children[parent] += 1
    left = list(children)
    reach: dict[int, int] = {}
    found: list[_Stretch] = []
    for position, above in enumerate(parents):
        if len(above) == 1 and children[above[0]] == 1:
            stretch = found[above[0]]
        else:
            base = 0
            for parent in above:
                if parent not in reach:
                    reach[parent] = found[parent].before(parent + 1)
                base |= reach[parent]
                # A commit's set is dropped with its last child.
                left[parent] -= 1
                if left[parent] == 0:
                    del reach[parent]
            stretch = _Stretch(base)
        for number in added.get(position, ()):
            stretch.positions.append(position)
            stretch.numbers.append(number)
        found.append(stretch)
    return found

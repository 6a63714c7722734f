"""Answers which files were introduced before a commit, from the graph alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledger.repository.history import History


def introductions(history: History) -> dict[str, tuple[int, ...]]:
    """Return where each ledger file was added: positions of commits, usually one."""
    places: dict[str, list[int]] = {}
    for change in history.changes:
        if set(change.status) <= {"A"}:
            places.setdefault(change.path, []).append(change.position)
    return {path: tuple(positions) for path, positions in places.items()}


class Ancestry:
    """Tell which of some files were introduced in proper ancestors of a commit.

    Sets of files are integers used as bit sets, so that a merge is one `or`.
    """

    def __init__(self, history: History, introduced: Mapping[str, tuple[int, ...]], paths: Iterable[str]) -> None:
        """Walk the graph once, for the commits that introduced any file."""
        self.bit = {path: 1 << number for number, path in enumerate(paths)}
        marks: dict[int, int] = {}
        for path, bit in self.bit.items():
            for position in introduced.get(path, ()):
                marks[position] = marks.get(position, 0) | bit
        wanted = {position for positions in introduced.values() for position in positions}
        self._before = _propagate(history.parents, marks, wanted)

    def before(self, position: int) -> int:
        """Return the bit set of files introduced in proper ancestors of the commit at `position`."""
        return self._before.get(position, 0)

    def precedes(self, path: str, positions: Iterable[int]) -> bool:
        """Tell whether `path` was introduced in a proper ancestor of every one of the commits, at least one."""
        bit, places = self.bit.get(path, 0), tuple(positions)
        return bool(bit and places) and all(self.before(position) & bit for position in places)


def _propagate(parents: tuple[tuple[int, ...], ...], marks: Mapping[int, int], wanted: set[int]) -> dict[int, int]:
    """Return for each wanted commit the union of the marks of its proper ancestors."""
    children = [0] * len(parents)
    for above in parents:
        for parent in above:
            children[parent] += 1
    reach: dict[int, int] = {}
    before: dict[int, int] = {}
    for position, above in enumerate(parents):
        seen = 0
        for parent in above:
            seen |= reach[parent]
            # A commit's set is dropped with its last child, so that memory follows the graph's width, not its length.
            children[parent] -= 1
            if children[parent] == 0:
                del reach[parent]
        if position in wanted:
            before[position] = seen
        if children[position]:
            reach[position] = seen | marks.get(position, 0)
    return before

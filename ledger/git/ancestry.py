"""Answers which files were introduced before a commit, from the graph alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from ledger.budgets import MAX_SET_BYTES
from ledger.errors import BudgetExceeded
from ledger.git.history import History


def introductions(history: History) -> dict[str, tuple[int, ...]]:
    """Return where each ledger file was added: positions of commits, usually one."""
    found: dict[str, list[int]] = {}
    for change in history.changes:
        if not change.status.strip("A"):
            found.setdefault(change.path, []).append(change.position)
    return {path: tuple(positions) for path, positions in found.items()}


class FileSet(NamedTuple):
    """Hold a set of files in few bytes where it is nearly all files up to some one, as in most histories.

    first: the files numbered below it are all in the set. rest: the other files, as a bit set that begins at `first`.
    """

    first: int
    rest: int

    @property
    def bits(self) -> int:
        """Return the set as one integer, a bit for each file."""
        return (1 << self.first) - 1 | self.rest << self.first

    def both(self, other: FileSet) -> FileSet:
        """Return the files that are in both sets."""
        return self if self == other else _file_set(self.bits & other.bits)

    def holds(self, number: int) -> bool:
        """Tell whether the file of a number is in the set."""
        return number < self.first or bool(self.rest >> (number - self.first) & 1)


_NONE = FileSet(0, 0)


def _file_set(bits: int) -> FileSet:
    first = (~bits & (bits + 1)).bit_length() - 1
    return FileSet(first, bits >> first)


class Meter:
    """Count the memory of bit sets that are held at once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._held = 0

    def hold(self, bits: int) -> None:
        """Count a set. Raises: BudgetExceeded when all of them together are too large."""
        self._held += bits.bit_length() // 8
        if self._held > MAX_SET_BYTES:
            raise BudgetExceeded(f"forks, merges and chains need more than {MAX_SET_BYTES} bytes of sets of seals")

    def drop(self, bits: int) -> None:
        """Count a set no more."""
        self._held -= bits.bit_length() // 8


class Ancestry:
    """Tell which of some files were introduced in proper ancestors of a commit.

    Sets of files are integers used as bit sets, so that a merge is one `or`. The graph is walked once; what is kept
    is the set before each commit that is asked about. Files are numbered in the order of the history, so that in a
    history with few branches at a time a set is a number and little more.
    """

    def __init__(
        self,
        history: History,
        introduced: Mapping[str, tuple[int, ...]],
        paths: Iterable[str],
        *,
        wanted: Collection[int] | None = None,
    ) -> None:
        """Walk the graph once. wanted: the commits that are asked about (default: those that introduced any file).

        Raises: BudgetExceeded for a graph whose sets need too much memory.
        """
        ordered = sorted(paths, key=lambda path: min(introduced.get(path, (-1,))))
        self._numbers: dict[str, int] = {path: number for number, path in enumerate(ordered)}
        asked = {position for positions in introduced.values() for position in positions} if wanted is None else wanted
        added: dict[int, list[int]] = {}
        for path, number in self._numbers.items():
            for position in introduced.get(path, ()):
                added.setdefault(position, []).append(number)
        self._before = _Sets(lambda _position: _NONE, _walk(history.parents, added, set(asked)))

    def set_before(self, position: int) -> FileSet:
        """Return the files introduced in proper ancestors of the commit at `position`."""
        return self._before[position]

    def number(self, path: str) -> int:
        """Return the number of a file in the sets."""
        return self._numbers[path]

    def bit(self, path: str) -> int:
        """Return the bit that stands for a file."""
        return 1 << self._numbers[path]

    def before(self, position: int) -> int:
        """Return the bit set of files introduced in proper ancestors of the commit at `position`."""
        return self._before[position].bits

    def before_all(self, positions: Iterable[int]) -> FileSet:
        """Return the files introduced in proper ancestors of each of the commits; no file where there is none."""
        sets = [self._before[position] for position in positions]
        return reduce(FileSet.both, sets) if sets else _NONE

    def precedes(self, path: str, positions: Iterable[int]) -> bool:
        """Tell whether `path` was introduced in a proper ancestor of every one of the commits, at least one."""
        wanted = tuple(positions)
        return path in self._numbers and bool(wanted) and all(self._is_before(path, position) for position in wanted)

    def _is_before(self, path: str, position: int) -> bool:
        return self._before[position].holds(self._numbers[path])


class GrownAncestry(Ancestry):
    """Tell the same of a history that goes on from an earlier one, from what was known of that."""

    def __init__(
        self,
        parents: Mapping[int, Sequence[int]],
        introduced: Mapping[str, tuple[int, ...]],
        paths: Iterable[str],
        *,
        number_of: Callable[[str], int | None],
        before: Callable[[int], FileSet],
        added_by: Callable[[int], Iterable[int]],
        numbered: int,
    ) -> None:
        """Walk the new commits once.

        parents: of each new commit, in the order of the history. paths: new files. number_of, before, added_by: what is
        known of the earlier history: the number of a file, the files before a commit, and those that it introduced.
        numbered: how many files that has.
        """
        ordered = sorted(paths, key=lambda path: min(introduced.get(path, (-1,))))
        self._numbers = _Numbers(number_of, {path: numbered + index for index, path in enumerate(ordered)})
        added: dict[int, list[int]] = {}
        for path in ordered:
            for position in introduced.get(path, ()):
                added.setdefault(position, []).append(self._numbers[path])
        reach: dict[int, int] = {}
        self._before = _Sets(before, {})
        for position, above in parents.items():
            reached = 0
            for parent in above:
                if parent not in reach:
                    reach[parent] = before(parent).bits
                    for number in added_by(parent):
                        reach[parent] |= 1 << number
                reached |= reach[parent]
            self._before[position] = _file_set(reached)
            for number in added.get(position, ()):
                reached |= 1 << number
            reach[position] = reached


class _Numbers(dict[str, int]):
    """Hold numbers of files; those of an earlier history are looked up."""

    def __init__(self, number_of: Callable[[str], int | None], new: Mapping[str, int]) -> None:
        super().__init__(new)
        self._number_of = number_of

    def __missing__(self, path: str) -> int:
        found = self._number_of(path)
        if found is None:
            raise KeyError(path)
        self[path] = found
        return found

    def __contains__(self, path: object) -> bool:
        return dict.__contains__(self, path) or (isinstance(path, str) and self._number_of(path) is not None)


class _Sets(dict[int, FileSet]):
    """Hold the files before commits; those of the others are looked up."""

    def __init__(self, known: Callable[[int], FileSet], held: Mapping[int, FileSet]) -> None:
        super().__init__(held)
        self._known = known

    def __missing__(self, position: int) -> FileSet:
        self[position] = found = self._known(position)
        return found


def _walk(parents: tuple[tuple[int, ...], ...], added: Mapping[int, list[int]], asked: set[int]) -> dict[int, FileSet]:
    """Return the set of files before each of the commits that are asked about."""
    left = [0] * len(parents)
    for above in parents:
        for parent in above:
            left[parent] += 1
    meter = Meter()
    # The set of each commit, its own files included, until its last child has been reached.
    reach: dict[int, int] = {}
    before: dict[int, FileSet] = {}
    for position, above in enumerate(parents):
        reached = 0
        for parent in above:
            held = reach[parent]
            if held is not reached:
                reached = reached | held if reached else held
            left[parent] -= 1
            if left[parent] == 0:
                meter.drop(reach.pop(parent))
        if position in asked:
            before[position] = kept = _file_set(reached)
            meter.hold(kept.rest)
        for number in added.get(position, ()):
            reached |= 1 << number
        if left[position]:
            reach[position] = reached
            meter.hold(reached)
    return before

"""Answers for persistence, of many cells at once, from what was measured before each was sealed. Pure.

What is asked of a cell and told of it is kept as a line of words: dtype, shape, operations, bytes, FLOP/s and bytes/s
of the roof, the position of the seal's commit, then position:time of each measured run, in ps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ledger.forecasters.persistence import nearest_of
from ledger.roofline import lower_bound_s

_ROUNDING = 1e-9
"""Doublings by which the distances of two shapes differ at most when they are computed in another way."""


class Asked(NamedTuple):
    """Hold what is asked of a cell and told of it. shape: sizes by name, as in B=1,H=64. runs: position, time in ps."""

    dtype: str
    shape: str
    flops: int
    bytes: int
    peak_flop_per_s: int
    bandwidth_bytes_per_s: int
    position: int
    runs: Sequence[tuple[int, int]] = ()

    @property
    def text(self) -> str:
        """Return it as a line."""
        return " ".join([*map(str, self[:-1]), *(f"{position}:{time_ps}" for position, time_ps in self.runs)])

    @classmethod
    def read(cls, text: str) -> Asked:
        """Return what a line says."""
        dtype, shape, flops, size, peak, bandwidth, place, *words = text.split(" ")
        runs = [(int(position), int(time_ps)) for position, time_ps in (word.split(":") for word in words)]
        return cls(dtype, shape, int(flops), int(size), int(peak), int(bandwidth), int(place), runs)


@dataclass
class _Runs:
    """Hold measured runs of one kernel, dtype, profile and set of shape keys: position, time in ps, cell."""

    found: list[tuple[int, int, Asked]] = field(default_factory=list)

    @cached_property
    def _in_order(self) -> tuple[list[tuple[int, int, Asked]], list[int], Any]:
        """Return the runs in the order of their commits, their positions, and the logarithms of their sizes."""
        import numpy as np

        runs = sorted(self.found, key=lambda run: run[0])
        sizes = [_sizes(cell.shape) for _, _, cell in runs]
        return runs, [position for position, _, _ in runs], np.log2(sizes, dtype=np.float64)

    def last_nearest(self, shape: str, position: int) -> tuple[int, Asked] | None:
        """Return the last run before a position of those that are nearest to a shape: its time in ps, and its cell."""
        import numpy as np

        runs, positions, sizes = self._in_order
        before = bisect_left(positions, position)
        if not before:
            return None
        apart = np.abs(sizes[:before] - np.log2(_sizes(shape), dtype=np.float64)).sum(axis=1)
        near = [runs[number] for number in np.flatnonzero(apart <= apart.min() + _ROUNDING)]
        _, places = nearest_of(_shape(shape), [_shape(cell.shape) for *_, cell in near])
        _, time_ps, cell = near[places[-1]]
        return time_ps, cell


def last_measured(held: Callable[[str], Sequence[Any]], among: Sequence[int] | None = None) -> dict[int, float | None]:
    """Return what persistence would have said, in percent, of all measured cells of a ledger or of some, by number.

    held: gives a column of all cells, named as a field of ScoredCell. among: numbers of cells; all by default.
    """
    measured, asks = held("measured"), held("asks")
    numbers = range(len(asks)) if among is None else among
    asked = [number for number in numbers if measured[number] is not None and asks[number]]
    if not asked:
        return {}
    what = list(zip(held("kernel"), held("hardware"), strict=True))
    wanted = {what[number] for number in asked}
    read = {number: Asked.read(asks[number]) for number, one in enumerate(what) if asks[number] and one in wanted}
    earlier: dict[Any, _Runs] = {}
    for number, cell in read.items():
        earlier.setdefault(_question(what[number], cell), _Runs()).found.extend((*run, cell) for run in cell.runs)
    return {number: _answered(read[number], earlier[_question(what[number], read[number])]) for number in asked}


def _answered(cell: Asked, earlier: _Runs) -> float | None:
    if not (earlier.found and (cell.flops or cell.bytes)):
        return None
    found = earlier.last_nearest(cell.shape, cell.position)
    if found is None:
        return None
    time_ps, other = found
    bound_s = lower_bound_s(other.flops, other.bytes, cell.peak_flop_per_s, cell.bandwidth_bytes_per_s)
    return 100.0 * bound_s / (time_ps / 1e12)


def _question(what: tuple[str, str], cell: Asked) -> tuple[tuple[str, str], str, tuple[str, ...]]:
    """Return what runs have in common that persistence compares. what: kernel and profile."""
    return what, cell.dtype, tuple(sorted(_shape(cell.shape)))


@lru_cache(maxsize=1 << 17)
def _shape(text: str) -> Mapping[str, int]:
    return {key: int(size) for key, _, size in (part.partition("=") for part in text.split(","))}


def _sizes(text: str) -> list[int]:
    shape = _shape(text)
    return [shape[key] for key in sorted(shape)]

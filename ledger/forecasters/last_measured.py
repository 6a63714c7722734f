"""Answers for persistence, of many cells at once, from what was measured before each was sealed. Pure.

What is asked of a cell and told of it is kept as a line of words: dtype, shape, operations, bytes, FLOP/s and bytes/s
of the roof, the position of the seal's commit, what stands for a callable's arguments and pass, then position:time of
each measured run, in ps.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ledger.forecasters.persistence import nearest_of
from ledger.roofline import lower_bound_s

_ROUNDING = 1e-9
"""Doublings by which the distances of two shapes differ at most when they are computed in another way."""
_NAMES, _SIZES = re.compile("[^,=]+="), re.compile("=[0-9]+")


class Asked(NamedTuple):
    """Hold what is asked of a cell and told of it.

    shape: sizes by name in order, as B=1,H=64. call: a digest of a callable's arguments and pass. runs: position, ps.
    """

    dtype: str
    shape: str
    flops: int
    bytes: int
    peak_flop_per_s: int
    bandwidth_bytes_per_s: int
    position: int
    call: str = "-"
    runs: Sequence[tuple[int, int]] = ()

    @property
    def text(self) -> str:
        """Return it as a line."""
        return " ".join([*map(str, self[:-1]), *(f"{position}:{time_ps}" for position, time_ps in self.runs)])


_RUNS = len(Asked._fields) - 1
"""Words of a line before those on runs."""


class _Runs:
    """Gather measured runs of one kernel, dtype, profile and set of shape keys: position, time in ps, words."""

    def __init__(self) -> None:
        """Begin without any."""
        self.found: list[tuple[int, int, list[str]]] = []

    @cached_property
    def _in_order(self) -> tuple[list[tuple[int, int, list[str]]], list[int], Any]:
        """Return the runs in the order of their commits, their positions, and the logarithms of their sizes."""
        import numpy as np

        runs = sorted(self.found, key=lambda run: run[0])
        sizes = _NAMES.sub("", ",".join(words[1] for *_, words in runs)).split(",")
        doublings = np.log2(np.array(sizes, dtype=np.float64)).reshape(len(runs), -1)
        return runs, [position for position, *_ in runs], doublings

    def last_nearest(self, shape: str, position: int) -> tuple[int, list[str]] | None:
        """Return the last run before a position of those that are nearest to a shape: its time in ps, and its line."""
        import numpy as np

        runs, positions, doublings = self._in_order
        before = bisect_left(positions, position)
        if not before:
            return None
        own = np.log2(np.array(_NAMES.sub("", shape).split(","), dtype=np.float64))
        apart = np.abs(doublings[:before] - own).sum(axis=1)
        near = [runs[number] for number in np.flatnonzero(apart <= apart.min() + _ROUNDING)]
        _, places = nearest_of(_shape(shape), [_shape(words[1]) for *_, words in near])
        _, time_ps, words = near[places[-1]]
        return time_ps, words


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
    lines = {number: asks[number].split(" ") for number, one in enumerate(what) if asks[number] and one in wanted}
    earlier: dict[Any, _Runs] = {_question(what[number], lines[number]): _Runs() for number in asked}
    for number, words in lines.items():
        runs = earlier.get(_question(what[number], words)) if len(words) > _RUNS else None
        if runs is not None:
            runs.found += [(*map(int, word.split(":")), words) for word in words[_RUNS:]]
    return {number: _answered(lines[number], earlier[_question(what[number], lines[number])]) for number in asked}


def _answered(words: list[str], earlier: _Runs) -> float | None:
    _, shape, flops, size, peak, bandwidth, position, *_ = words
    if not (earlier.found and (int(flops) or int(size))):
        return None
    found = earlier.last_nearest(shape, int(position))
    if found is None:
        return None
    time_ps, (_, _, flops, size, *_) = found
    return 100.0 * lower_bound_s(int(flops), int(size), int(peak), int(bandwidth)) / (time_ps / 1e12)


def _question(what: tuple[str, str], words: list[str]) -> tuple[tuple[str, str], str, str, str]:
    """Return what runs have in common that persistence compares. what: kernel and profile."""
    return what, words[0], _SIZES.sub("", words[1]), words[_RUNS - 1]


def _shape(text: str) -> Mapping[str, int]:
    return {key: int(size) for key, _, size in (part.partition("=") for part in text.split(","))}

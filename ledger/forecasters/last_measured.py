"""Answers for persistence, of many cells at once, from what was measured before each was sealed. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from ledger.analysis.results import ScoredCell
from ledger.forecasters.persistence import nearest_of
from ledger.roofline import lower_bound_s

_ROUNDING = 1e-9
"""Doublings by which the distances of two shapes differ at most when they are computed in another way."""


@dataclass
class _Runs:
    """Hold measured runs of one kernel, dtype, profile and set of shape keys: position, time in ps, cell."""

    found: list[tuple[int, int, ScoredCell]] = field(default_factory=list)

    @cached_property
    def _in_order(self) -> tuple[list[tuple[int, int, ScoredCell]], list[int], Any]:
        """Return the runs in the order of their commits, their positions, and the logarithms of their sizes."""
        import numpy as np

        runs = sorted(self.found, key=lambda run: run[0])
        sizes = [_sizes(cell.shape) for _, _, cell in runs]
        return runs, [position for position, _, _ in runs], np.log2(sizes, dtype=np.float64)

    def last_nearest(self, shape: str, position: int) -> tuple[int, ScoredCell] | None:
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


def with_last_measured(cells: Sequence[ScoredCell]) -> list[ScoredCell]:
    """Return all cells of a ledger, in their order; those that persistence is yet to be asked about have its answer."""
    earlier = {_question(cell): _Runs() for cell in cells if cell.asked}
    alike = {what for what, _ in earlier}
    for cell in cells if earlier else ():
        # Few kernels are asked about where a ledger grew.
        if cell.runs and (cell.kernel, cell.dtype, cell.hardware) in alike:
            runs = earlier.get(_question(cell))
            if runs is not None:
                runs.found += [(position, time_ps, cell) for position, time_ps in cell.runs]
    return [_answered(cell, earlier[_question(cell)]) if cell.asked else cell for cell in cells]


def _answered(cell: ScoredCell, earlier: _Runs) -> ScoredCell:
    found = earlier.last_nearest(cell.shape, cell.position) if earlier.found else None
    if found is None:
        return cell._replace(asked=False)
    time_ps, other = found
    bound_s = lower_bound_s(other.flops, other.bytes, cell.peak_flop_per_s, cell.bandwidth_bytes_per_s)
    return cell._replace(asked=False, persistence=100.0 * bound_s / (time_ps / 1e12))


def _question(cell: ScoredCell) -> tuple[tuple[str, str, str], tuple[str, ...]]:
    """Return what runs have in common that persistence compares."""
    return (cell.kernel, cell.dtype, cell.hardware), tuple(sorted(_shape(cell.shape)))


@lru_cache(maxsize=1 << 17)
def _shape(text: str) -> Mapping[str, int]:
    return {key: int(size) for key, _, size in (part.partition("=") for part in text.split(","))}


def _sizes(text: str) -> list[int]:
    shape = _shape(text)
    return [shape[key] for key in sorted(shape)]

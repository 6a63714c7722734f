"""Decides from batches of timed rounds whether the time and the clock have settled. Pure.

A GPU that was idle starts at its boost clock and, where a kernel draws much power, lowers the clock within tens of
milliseconds. The first batch is that boost state; the steady state is the tail of batches that no longer change.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.records import Timing, TimingV2

STEADY = "steady/1"
"""The extension of a measurement that says how a timing by cold-graph/2 settled."""


def rounds_clock_mhz(timing: Timing) -> float | None:
    """Return the median SM clock inside the timed rounds, None where it was not recorded."""
    inside = [one for one in timing.sm_clock_mhz if one] if isinstance(timing, TimingV2) else []
    return statistics.median(inside) if inside else None


@dataclass(frozen=True)
class Batch:
    """Hold consecutive rounds and the SM clock counted across them. Units: picoseconds a call, MHz.

    clock_mhz: None where the device has no cycle counter that can be read.
    """

    rounds_ps: tuple[int, ...]
    clock_mhz: int | None

    @property
    def median_ps(self) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.rounds_ps)


def steady_tail(batches: Sequence[Batch], *, tolerance_ppm: int) -> tuple[Batch, ...]:
    """Return the longest run of last batches whose medians, and clocks where known, lie within a tolerance.

    Within: (highest - lowest) ≤ tolerance × lowest, in millionths. One batch is always within.
    """
    tail: list[Batch] = []
    for batch in reversed(batches):
        if not _within([*tail, batch], tolerance_ppm):
            break
        tail.append(batch)
    return tuple(reversed(tail))


def _within(batches: Sequence[Batch], tolerance_ppm: int) -> bool:
    medians = [batch.median_ps for batch in batches]
    clocks = [batch.clock_mhz for batch in batches if batch.clock_mhz is not None]
    return all(
        1e6 * (max(values) - min(values)) <= tolerance_ppm * min(values) for values in (medians, clocks) if values
    )

"""Times calls until their time and the clock have settled, by the protocol cold-graph/2. Imports no torch itself.

Rounds come in batches. Timing goes on until the last batches agree in time and in clock and the interval of their
median is narrow, or until the budget ends; the result says which. All batches are kept: the first one is the boost
state of a device that had been idle, the tail is the steady state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ledger.analysis.steady_timing import Batch, steady_tail
from ledger.measure.timer import Interval, SteadyParameters, median_interval


class Batches(Protocol):
    """Take batches of rounds from a device that stays busy in between."""

    def batch(self, duration_ms: int) -> Batch:
        """Run rounds for about `duration_ms` and return their times with the clock counted across them."""
        ...


@dataclass(frozen=True)
class SteadyTiming:
    """Hold all batches of a timing, and the tail that the result is of. settled: whether it met both conditions."""

    batches: tuple[Batch, ...]
    tail: tuple[Batch, ...]
    interval: Interval
    settled: bool

    @property
    def rounds_ps(self) -> tuple[int, ...]:
        """Return the rounds of the tail, in order."""
        return _rounds(self.tail)

    @property
    def clocks_mhz(self) -> tuple[int | None, ...]:
        """Return the clock of each round of the tail: that of its batch."""
        return tuple(batch.clock_mhz for batch in self.tail for _ in batch.rounds_ps)

    def document(self) -> dict[str, int | bool | None]:
        """Return what a record keeps of how the timing settled; the first batch is the boost state."""
        first = self.batches[0]
        return {
            "batches": len(self.batches),
            "boost_clock_mhz": first.clock_mhz,
            "boost_ps": round(first.median_ps),
            "settled": self.settled,
            "tail_batches": len(self.tail),
        }


def _rounds(batches: Sequence[Batch]) -> tuple[int, ...]:
    return tuple(one for batch in batches for one in batch.rounds_ps)


def time_until_steady(
    rounds: Batches, parameters: SteadyParameters, *, now: Callable[[], float] = time.monotonic
) -> SteadyTiming:
    """Take batches until the tail is long enough and its interval narrow enough, or the budget ends."""
    started = now()
    batches: list[Batch] = []
    while True:
        batches.append(rounds.batch(parameters.batch_ms))
        tail = steady_tail(batches, tolerance_ppm=parameters.settle_ppm)
        over = 1e3 * (now() - started) >= parameters.budget_ms
        if len(tail) < parameters.settle_batches and not over:
            continue
        interval = median_interval(_rounds(tail))
        narrow = interval.half_width_ppm <= parameters.ci_target_ppm
        if narrow or over:
            settled = narrow and len(tail) >= parameters.settle_batches
            return SteadyTiming(tuple(batches), tail, interval, settled)

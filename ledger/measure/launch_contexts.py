"""Times calls in three contexts: back to back, in a chain with another kernel between, and one call after idle.

A kernel with programmatic dependent launch overlaps the call before it when both ask for it. Between other kernels it
cannot. Back to back is `cuda_graphs.GraphRounds`; this module holds the other two. Imports torch, only when called.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ledger.kernel import Launch
from ledger.measure.cuda_graphs import capture, replay_ps, warm_up

FILLER_ELEMENTS = 1 << 16
"""Elements of fp32 that the kernel between two calls adds one to: 256 KiB, which leaves the L2 nearly as it was."""
_ROUND_MS = 1.0
_MAX_NODES = 20_000
_IDLE_CALLS = 20
_IDLE_S = 2e-4


def filler_launch() -> Launch:
    """Return the launch of the kernel between: an elementwise addition without programmatic dependent launch."""
    import torch

    buffer = torch.zeros(FILLER_ELEMENTS, device="cuda")
    return lambda: torch.add(buffer, 1.0, out=buffer)


@dataclass
class ChainRounds:
    """Time calls that alternate with another kernel in a CUDA graph: the graph's time less that of the other kernel.

    A round replays the chain, and the same number of the other kernels alone.
    """

    launches: Sequence[Launch]
    between: Launch
    calls: int = 0

    def __post_init__(self) -> None:
        """Warm up, time one rotation and capture as many as make a round of a millisecond."""
        warm_up([*self.launches, self.between])
        count = len(self.launches)
        chain = [launch for one in self.launches for launch in (self.between, one)]
        rotation_ms = min(replay_ps(capture(chain), 3, calls=1)) / 1e9
        repeats = max(1, min(int(_ROUND_MS / rotation_ms) + 1, _MAX_NODES // len(chain)))
        self.calls = count * repeats
        self._with: Any = capture(chain * repeats)
        self._without: Any = capture([self.between] * self.calls)

    def take(self, count: int) -> list[int]:
        """Run `count` rounds and return picoseconds per call of each."""
        chains = replay_ps(self._with, count, calls=self.calls)
        others = statistics.median(replay_ps(self._without, count, calls=self.calls))
        return [max(1, round(chain - others)) for chain in chains]


@dataclass
class IdleRounds:
    """Time single calls from an idle stream by events, launch included; a round is the median of some calls."""

    launches: Sequence[Launch]
    calls: int = 1
    _next: int = 0

    def __post_init__(self) -> None:
        """Warm up every launch."""
        warm_up(self.launches)

    def take(self, count: int) -> list[int]:
        """Run `count` rounds and return picoseconds per call of each."""
        return [round(statistics.median(self._call() for _ in range(_IDLE_CALLS))) for _ in range(count)]

    def _call(self) -> float:
        import torch

        launch = self.launches[self._next]
        self._next = (self._next + 1) % len(self.launches)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        time.sleep(_IDLE_S)
        start.record()
        launch()
        end.record()
        end.synchronize()
        return float(1e9 * start.elapsed_time(end))

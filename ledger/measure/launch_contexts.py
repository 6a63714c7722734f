"""Times calls between other kernels and after idle. Back to back is `cuda_graphs.GraphRounds`.

A kernel with programmatic dependent launch overlaps the call before it when both ask for it. Between other kernels it
cannot, and a call on an idle stream waits for its launch by the host. Imports torch, only when called.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.errors import MachineError
from ledger.kernel import Launch
from ledger.measure.cuda_graphs import capture, repeats_in_round, replay_ps, state_under, warm_up
from ledger.records import DeviceState

BETWEEN_ELEMENTS = 1 << 16
"""Elements of fp32 that the kernel between two calls adds one to: 256 KiB, which leaves the L2 nearly as it was."""
_IDLE_CALLS = 5
_IDLE_S = 2e-4


def between_launch() -> Launch:
    """Return the launch of the kernel between calls: an elementwise addition, without programmatic dependent launch."""
    import torch

    buffer = torch.zeros(BETWEEN_ELEMENTS, device="cuda")
    return lambda: torch.add(buffer, 1.0, out=buffer)


@dataclass
class ChainRounds:
    """Time calls that alternate with another kernel in a CUDA graph: the graph's time less that of the other kernel.

    A round replays the chain, and as many of the other kernel alone.
    """

    launches: Sequence[Launch]
    between: Launch
    calls: int = 0
    watch: bool = True  # read clocks, power and temperature after each batch
    states: list[DeviceState] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Warm up, time one rotation and capture as many as fill a round."""
        chain = [launch for one in self.launches for launch in (self.between, one)]
        repeats = repeats_in_round(chain)
        self.calls = len(self.launches) * repeats
        self._chain: Any = capture(chain * repeats)
        self._between: Any = capture([self.between] * self.calls)

    def take(self, count: int) -> list[int]:
        """Run `count` rounds and return picoseconds per call of each, without the other kernel.

        Raises: MachineError where a chain is no slower than the other kernel alone.
        """
        chains = replay_ps(self._chain, count, calls=self.calls)
        between = statistics.median(replay_ps(self._between, count, calls=self.calls))
        if self.watch:
            self.states.append(self.state())
        calls = [round(chain - between) for chain in chains]
        if statistics.median(calls) <= 0:
            raise MachineError(
                f"a chain took {statistics.median(chains) / 1e6:.3f} us a call, its other kernel alone "
                f"{between / 1e6:.3f}; expected more: the call is too short, or another process uses the device"
            )
        return [max(1, call) for call in calls]

    def state(self) -> DeviceState:
        """Return the device's state under the load of the chain."""
        return state_under(self._chain)


@dataclass
class IdleRounds:
    """Time single calls on an idle stream by events, launch by the host included; a round is the median of some."""

    launches: Sequence[Launch]
    calls: int = 1
    _next: int = 0

    def __post_init__(self) -> None:
        """Warm up every launch."""
        warm_up(self.launches)

    def take(self, count: int) -> list[int]:
        """Run `count` rounds and return picoseconds per call of each."""
        return [round(statistics.median(self._call_ps() for _ in range(_IDLE_CALLS))) for _ in range(count)]

    def _call_ps(self) -> int:
        launch = self.launches[self._next]
        self._next = (self._next + 1) % len(self.launches)
        return idle_call_ps(launch)


def idle_call_ps(launch: Launch) -> int:
    """Return the time of one call on an idle stream, in picoseconds: from an event before it to one after."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    time.sleep(_IDLE_S)
    start.record()
    launch()
    end.record()
    end.synchronize()
    elapsed_ms: float = start.elapsed_time(end)
    return max(1, round(1e9 * elapsed_ms))


def idle_launch_ps(calls: int = 50) -> int:
    """Return the time of one empty launch on an idle stream, in picoseconds."""
    from ledger.device.probe_kernels import empty_launch

    launch = empty_launch()
    warm_up([launch])
    return int(statistics.median(idle_call_ps(launch) for _ in range(calls)))

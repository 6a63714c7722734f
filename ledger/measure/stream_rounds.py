"""Times calls that no CUDA graph can capture on a stream, with the same cold rotation. Imports torch, only when called.

The time includes what the host does between kernels: launches, and waits for results. What the device does on another
stream after the timed one has ended is refused.
"""

from __future__ import annotations

import gc
import itertools
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.analysis.steady_timing import Batch
from ledger.device.facts import cuda_state
from ledger.errors import SubjectRefused, explained
from ledger.kernel import Launch
from ledger.measure.cuda_graphs import ROUND_MS, capture, warm_up
from ledger.measure.timer import median_interval
from ledger.records import DeviceState

_LATE_SHARE = 0.05
_LATE_MS = 0.2


def capture_problem(launches: Sequence[Launch]) -> str | None:
    """Return why a CUDA graph cannot capture some calls, None where it can.

    Raises: whatever a call raises outside of a capture.
    """
    import torch

    warm_up(launches)
    # A failed capture leaves allocator and generators in its state: what torch itself sees is found without one.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
            launches[0]()
    except RuntimeError as error:
        if "synchronizing CUDA operation" not in str(error):
            raise
        return "the host waits for the device: called a synchronizing CUDA operation"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    stream = torch.cuda.current_stream()
    try:
        capture(launches[:1])
    except RuntimeError as error:
        torch.cuda.set_stream(stream)
        return explained(_first(error), 300)
    return None


def _first(error: BaseException) -> BaseException:
    """Return the error that came first: ending a capture that failed raises another one."""
    while error.__context__ is not None:
        error = error.__context__
    return error


@dataclass
class StreamRounds:
    """Time calls on the current stream by events; each round continues the rotation of the last."""

    launches: Sequence[Launch]
    calls: int = 1
    stretch: int = 1  # rounds this many times as long
    states: list[DeviceState] = field(default_factory=list)
    _next: int = 0

    def __post_init__(self) -> None:
        """Warm up, then time one rotation to size rounds of a millisecond."""
        warm_up(self.launches)
        count = len(self.launches)
        self.calls = count
        rotation_ms = count * self._timed(1)[0] / 1e9
        self.calls = self.stretch * max(1, int(ROUND_MS * count / rotation_ms))

    def take(self, count: int) -> list[int]:
        """Run `count` rounds and return picoseconds per call of each."""
        return self._timed(count)

    def state(self) -> DeviceState:
        """Return the device's state right after some rounds."""
        self._timed(3)
        return cuda_state()

    def batch(self, duration_ms: int) -> Batch:
        """Run rounds for about `duration_ms` and return their times with the SM clock counted across them."""
        from ledger.device.probe_kernels import clock_mhz, stamp_launch, stamps

        first, second = stamps(), stamps()
        stamp_launch(first)()
        samples = self._timed(max(1, round(duration_ms / ROUND_MS)))
        stamp_launch(second)()
        return Batch(tuple(samples), clock_mhz(first, second))

    def _timed(self, count: int) -> list[int]:
        import torch

        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._call()
            events[0].record()
            for event in events[1:]:
                for _ in range(self.calls):
                    self._call()
                event.record()
        finally:
            if collecting:
                gc.enable()
        self._require_ended(events)
        return [
            max(1, round(1e9 * first.elapsed_time(second) / self.calls)) for first, second in itertools.pairwise(events)
        ]

    def _call(self) -> None:
        self.launches[self._next]()
        self._next = (self._next + 1) % len(self.launches)

    def _require_ended(self, events: Sequence[Any]) -> None:
        """Check that all work has ended with the timed stream. Raises: SubjectRefused."""
        import torch

        events[-1].synchronize()
        ended = time.perf_counter()
        torch.cuda.synchronize()
        late_ms = 1e3 * (time.perf_counter() - ended)
        if late_ms > _LATE_MS + _LATE_SHARE * events[0].elapsed_time(events[-1]):
            raise SubjectRefused(
                f"other streams worked {late_ms:.2f} ms longer than the timed one; expected a call that ends with the "
                "current stream"
            )


def empty_stream_ps(calls: int = 200) -> int:
    """Return the time of one empty launch among many on a stream, in picoseconds."""
    from ledger.device.probe_kernels import empty_launch

    rounds = StreamRounds([empty_launch()] * calls)
    return median_interval(rounds.take(25)).median

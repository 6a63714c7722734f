"""Computes the causes of a gap that have a number of their own: work, clock, waves, launch. Pure.

Each is what was counted ÷ what the seal assumes: the sealed work, the rated clock of the sealed peak, whole waves, no
launch. docs/regimes.md is the same table for people. analysis.achieved_share takes what these leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ledger.analysis.counters import CounterTotals
from ledger.analysis.formatting import si
from ledger.analysis.regime_v2 import MOST_MILLI, THRESHOLD_MILLI, TIE_MILLI, Resource
from ledger.records import Cause, Forecast, Hardware
from ledger.roofline import time_lower_bound_s

# A reading outside these limits is ignored.
_CLOCKS = (1e7, 1e10)  # Hz
_WAVES = (1e-3, 1e7)
_WORK = (1e-6, 1e6)  # counted ÷ modelled
_SM_CLOCKED: tuple[Resource, ...] = ("smem", "arithmetic")


@dataclass(frozen=True)
class Call:
    """Hold one measured call with its forecast, in base units; None where unknown.

    loads: of each resource in the timed call, in thousandths of a percent, as rule regime/2 counts them.
    written_bytes: what a call of the timed rotation writes to DRAM at least. rounds_clock_hz, after_clock_hz: the SM
    clock inside the timed rounds, and after them.
    """

    forecast: Forecast
    hardware: Hardware
    totals: CounterTotals | None
    time_s: float
    launch_s: float | None
    after_clock_hz: float | None
    rounds_clock_hz: float | None
    on_memory_side: bool
    written_bytes: int = 0
    loads: Mapping[Resource, int | None] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Return measured ÷ predicted time."""
        bound_s = time_lower_bound_s(self.forecast.work, self.forecast.roof)
        return self.time_s * self.forecast.percent_milli / (100_000 * bound_s)

    @property
    def moving_s(self) -> float:
        """Return the call without its launch; the whole call where an empty launch is unknown or takes as long."""
        return self.time_s - self.launch_s if self.launch_s and 0 < self.launch_s < self.time_s else self.time_s

    @property
    def clock_hz(self) -> float | None:
        """Return the SM clock inside the timed rounds, else the one under the profiler, else the one read after."""
        return self.rounds_clock_hz or (self.totals.sm_clock_hz if self.totals else None) or self.after_clock_hz

    @property
    def own(self) -> Resource:
        """Return the resource that the sealed roof counts."""
        return "dram" if self.on_memory_side else "arithmetic"

    @property
    def modelled(self) -> int:
        """Return the sealed bytes (memory-bound side) or operations."""
        return self.forecast.work.bytes if self.on_memory_side else self.forecast.work.flops

    @property
    def left_in_l2(self) -> int:
        """Return the written bytes that the profiled launch left in L2 and the timed rotation writes back."""
        written = self.totals.dram_bytes_written if self.totals else None
        return 0 if written is None or not self.on_memory_side else max(0, self.written_bytes - max(0, written))

    @property
    def done(self) -> int | None:
        """Return the bytes or operations that the counters saw; None where they are implausible."""
        seen: int | None = None
        if self.totals is not None and self.on_memory_side:
            seen = self.totals.dram_bytes
        elif self.totals is not None and self.forecast.roof.path.endswith("_tensor"):
            seen = self.totals.tensor_ops
        if seen is None or seen <= 0:
            return None
        counted = seen + self.left_in_l2
        return counted if _WORK[0] * self.modelled <= counted <= _WORK[1] * self.modelled else None

    @property
    def percents(self) -> dict[Resource, float]:
        """Return the loads in percent; none where one is unknown or negative, or above 105% and so of another call."""
        known = {name: milli for name, milli in self.loads.items() if milli is not None}
        if not known or len(known) < len(self.loads) or not all(0 <= milli <= MOST_MILLI for milli in known.values()):
            return {}
        return {name: milli / 1000 for name, milli in known.items()}

    @property
    def busiest(self) -> Resource | None:
        """Return the resource of the highest load where it reaches 60%.

        Of those within 5 points the roof's own, else the outermost.
        """
        loads = self.percents
        highest = max(loads.values(), default=0.0)
        if highest < THRESHOLD_MILLI / 1000:
            return None
        tied = [name for name, load in loads.items() if load >= highest - TIE_MILLI / 1000]
        return self.own if self.own in tied else tied[0]


def named_causes(call: Call) -> Iterator[Cause]:
    """Yield work, clock, waves and launch, each where its readings exist and are plausible."""
    at_sm_clock = not call.on_memory_side or call.busiest in _SM_CLOCKED
    causes = (
        _work(call),
        _clock(call) if at_sm_clock else None,
        None if call.on_memory_side else _waves(call),
        _launch(call),
    )
    yield from (cause for cause in causes if cause is not None)


def _work(call: Call) -> Cause | None:
    if not call.done:
        return None
    if not call.on_memory_side:
        note = f"the tensor pipe did {si(call.done, 'FLOP')} where the model counts {si(call.modelled, 'FLOP')}"
        return Cause(name="work", factor=call.done / call.modelled, note=note, counter="tensor_ops")
    left = f", {si(call.left_in_l2, 'B')} of it written back from L2 later," if call.left_in_l2 else ""
    note = f"DRAM moved {si(call.done, 'B')}{left} where the model counts {si(call.modelled, 'B')}"
    return Cause(name="work", factor=call.done / call.modelled, note=note, counter="dram_bytes")


def _clock(call: Call) -> Cause | None:
    ceilings = call.hardware.ceilings.get(call.forecast.roof.ceilings)
    peak = ceilings.peaks.get(call.forecast.roof.path) if ceilings else None
    if peak is None or peak.clock_mhz is None or call.clock_hz is None:
        return None
    rated_hz, clock_hz = peak.clock_mhz * 1e6, call.clock_hz
    if not all(_CLOCKS[0] <= hz <= _CLOCKS[1] for hz in (rated_hz, clock_hz)):
        return None
    note = f"the SM clock was {si(clock_hz, 'Hz')} and the peak is rated at {si(rated_hz, 'Hz')}"
    return Cause(name="clock", factor=rated_hz / clock_hz, note=note, counter="sm_clock_hz")


def _waves(call: Call) -> Cause | None:
    waves = call.totals.waves if call.totals else None
    if waves is None or not _WAVES[0] <= waves <= _WAVES[1]:
        return None
    note = f"{waves:.2f} waves leave SMs empty at the end"
    return Cause(name="waves", factor=math.ceil(waves) / waves, note=note, counter="waves")


def _launch(call: Call) -> Cause | None:
    if call.moving_s >= call.time_s:
        return None
    note = f"an empty launch is {100 * (1 - call.moving_s / call.time_s):.0f}% of the call"
    return Cause(name="launch", factor=call.time_s / call.moving_s, note=note)

"""Names the measured regime by rule regime/2: counts from the counters, time from the timer. Pure.

A load is the share of a resource's peak that the counted work of a call needs in the time of the timed call. Counts of
a profiled launch hardly depend on how it was replayed; its duration does, so only the time of the timer is used.
docs/regimes.md is the same table for people. A seal names its rule, so this one never changes.

Source: the 60% threshold is that of NVIDIA Nsight Compute's speed-of-light rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ledger.errors import RecordError
from ledger.records import Grade, Path, Regime

THRESHOLD_MILLI = 60_000
NEAR_MILLI = 2_000
"""Within this much of the threshold the verdict names latency as well."""
TIE_MILLI = 5_000
MOST_MILLI = 105_000
"""A load above this contradicts the timing: the counters are not of the timed call."""

Resource = Literal["dram", "l2", "smem", "arithmetic"]
REGIME_OF: Mapping[Resource, Regime] = {
    "dram": "hbm-bound",
    "l2": "l2-bound",
    "smem": "smem-bound",
    "arithmetic": "compute-bound",
}
NAMES: Mapping[Resource, str] = {"dram": "DRAM", "l2": "L2", "smem": "SMEM", "arithmetic": "arithmetic pipe"}
_MEMORY_SIDE: tuple[Resource, ...] = ("dram", "l2", "smem", "arithmetic")
_COMPUTE_SIDE: tuple[Resource, ...] = ("arithmetic", "dram", "l2", "smem")
# Each reading is a percentage of peak over the profiled launch. DRAM and L2 run at clocks of their own, which do not
# follow the SM clock; the others are counted in SM cycles.
_FIXED_CLOCK: Mapping[Resource, tuple[str, ...]] = {
    "dram": ("dram_percent",),
    "l2": ("l2_read_percent", "l2_write_percent", "l2_sector_percent"),
}
_PIPES = ("tensor_percent", "fma_percent", "alu_percent", "fp64_percent", "xu_percent")


@dataclass(frozen=True)
class Profile:
    """Hold what rule regime/2 reads of a profile, summed over the kernels of a call.

    values: readings by our metric names, in percent of peak. duration_ps, clock_hz: of the profiled launch.
    stall: the most frequent stall reason, where it was sampled.
    """

    values: Mapping[str, float]
    duration_ps: int
    clock_hz: float | None
    stall: str | None = None


@dataclass(frozen=True)
class TimedCall:
    """Hold the timed call. Units: picoseconds, hertz; None where it was not measured.

    launch_ps: an empty node of a CUDA graph. idle_launch_ps: an empty launch on an idle stream. written_bytes: what a
    call writes to DRAM at least, where its input sets exceed the L2 so that every output leaves it; else 0.
    """

    call_ps: int
    clock_hz: float | None
    launch_ps: int | None
    idle_launch_ps: int | None = None
    written_bytes: int = 0


@dataclass(frozen=True)
class Verdict:
    """Hold the regimes that the rule names, none where it does not determine one, with the grade and the reason.

    A forecast of any of the regimes is right. The first is the one that a single name stands for.
    """

    regimes: tuple[Regime, ...]
    grade: Grade
    reason: str


def timed_loads(profile: Profile, call: TimedCall, path: Path, *, special: bool = True) -> dict[Resource, int | None]:
    """Return the load of each resource in the timed call, in thousandths of a percent; None where a reading is absent.

    The arithmetic pipe is the busiest one, absent while that of the sealed instruction path or the special-function
    unit is absent. special: whether the special-function unit must have been read; records of before the rule lack it,
    and what they show without it is no verdict. Raises: RecordError for readings that give no finite number.
    """
    longer = profile.duration_ps / call.call_ps
    cycles = None if not profile.clock_hz or not call.clock_hz else longer * profile.clock_hz / call.clock_hz
    values = profile.values
    own = "tensor_percent" if path.endswith("_tensor") else "fp64_percent" if path == "fp64" else "fma_percent"
    needed = {own, "xu_percent"} if special else {own}
    pipes = [values[name] for name in _PIPES if name in values] if needed <= set(values) else []
    fixed = {
        resource: max(values[name] for name in names) if set(names) <= set(values) else None
        for resource, names in _FIXED_CLOCK.items()
    }
    return {
        "dram": _milli(fixed["dram"], longer * _written_back(values, call)),
        "l2": _milli(fixed["l2"], longer),
        "smem": _milli(values.get("smem_percent"), cycles),
        "arithmetic": _milli(max(pipes) if pipes else None, cycles),
    }


def _written_back(values: Mapping[str, float], call: TimedCall) -> float:
    """Return all DRAM traffic of a timed call ÷ the traffic counted.

    A single profiled launch leaves output in the L2, which in the timed rotation is written back during later calls.
    """
    written, counted = values.get("dram_write_bytes"), values.get("dram_read_bytes", 0.0)
    if written is None or written + counted <= 0:
        return 1.0
    return 1 + max(0.0, call.written_bytes - written) / (written + counted)


def _milli(percent: float | None, factor: float | None) -> int | None:
    """Return a load in thousandths of a percent. Raises: RecordError for readings that give no finite number."""
    if percent is None or factor is None:
        return None
    load = 1000 * percent * factor
    if not math.isfinite(load):
        raise RecordError(f"counters give a load of {load} thousandths of a percent; expected a finite number")
    return round(load)


def loads_text(loads: Mapping[Resource, int | None]) -> str:
    """Return loads as text: DRAM 66%, L2 41%, SMEM 20%, arithmetic pipe 8%."""
    return ", ".join(
        f"{NAMES[resource]} {'unknown' if milli is None else f'{milli / 1000:.0f}%'}"
        for resource, milli in loads.items()
    )


def decide(
    loads: Mapping[Resource, int | None], call: TimedCall, *, on_memory_side: bool, stall: str | None = None
) -> Verdict:
    """Apply rule regime/2 to the loads of a call. on_memory_side: of the ridge point, by the sealed work and roof."""
    if call.launch_ps is not None and 2 * call.launch_ps >= call.call_ps:
        share = 100 * call.launch_ps / call.call_ps
        return Verdict(("launch-bound",), "A", f"an empty launch takes {share:.0f}% of the call")
    absent = [NAMES[resource] for resource, milli in loads.items() if milli is None]
    if absent:
        return Verdict((), "C", f"no reading of {' or '.join(absent)}")
    known = {resource: milli for resource, milli in loads.items() if milli is not None}
    highest = max(known.values())
    text = loads_text(loads)
    if highest > MOST_MILLI:
        return Verdict((), "C", f"a load is above 105% of peak: the counters are of another call ({text})")
    if highest < THRESHOLD_MILLI - NEAR_MILLI:
        return Verdict(("latency-bound",), "A", f"no load reaches 60% ({text}){_stall_text(stall)}{_idle_text(call)}")
    order = _MEMORY_SIDE if on_memory_side else _COMPUTE_SIDE
    tied = [resource for resource in order if known[resource] >= highest - TIE_MILLI]
    first = tied[0]
    if highest < THRESHOLD_MILLI + NEAR_MILLI:
        reason = f"{NAMES[first]} is within 2 points of 60% ({text}){_stall_text(stall)}{_idle_text(call)}"
        named: tuple[Regime, ...] = (REGIME_OF[first], "latency-bound")
        return Verdict(named if known[first] >= THRESHOLD_MILLI else named[::-1], "A", reason)
    if len(tied) > 1:
        reason = f"{NAMES[first]} and {NAMES[tied[1]]} are within 5 points ({text})"
        return Verdict((REGIME_OF[first], REGIME_OF[tied[1]]), "A", reason + _idle_text(call))
    return Verdict((REGIME_OF[first],), "A", f"{NAMES[first]} has the highest load ({text}){_idle_text(call)}")


def _stall_text(stall: str | None) -> str:
    return "" if stall is None else f"; warps stall most on {stall.replace('_', ' ')}"


def _idle_text(call: TimedCall) -> str:
    """Return that one call on an idle stream would be mostly launch, where it would."""
    if call.idle_launch_ps is None or 2 * call.idle_launch_ps < call.call_ps + call.idle_launch_ps:
        return ""
    share = 100 * call.idle_launch_ps / (call.call_ps + call.idle_launch_ps)
    return f"; launch-bound from an idle stream, where the launch is {math.floor(share)}%"

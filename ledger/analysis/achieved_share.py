"""Says by counters why the achieved share of a roof differs from the forecast, and how much of it they explain. Pure.

A reason needs something that the seal states and a counter contradicts, or a ceiling that the sealed profile measured
before. Each has a size from its own formula; what it does not account for stays unexplained. With F measured ÷
predicted time, load(R) the load of resource R in the timed call and so load(R) × F its load in the forecast's time:

    slower  another resource  load(R) ÷ forecast percent, where R is no forecast bound, has the highest load and 60%
            too much work     load(R) × F ÷ 100: the counted work of R does not fit into the forecast's time
            idle SMs          SMs ÷ blocks, where no load reaches 60% (Little's law: requests in flight ÷ latency)
    faster  not latency       60 ÷ highest load, where latency was forecast, and wrongly, to keep all below 60%
            less work         load(R) × F ÷ what a wrong forecast of bound R implies: 60, or a binding one's less 5
    both    calibrated        rate needed ÷ rate that the profile measured, where the roof's own resource binds at 80%

Left out, because no seal states a value to compare with: stall reasons, L2 hit rate, occupancy in warps. One of them is
always the largest, in hits as in misses.

Source: 80% is the utilisation from which Nsight Compute's speed-of-light rule takes a resource as the limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ledger.analysis.causes import Call
from ledger.analysis.formatting import si
from ledger.analysis.regime_v2 import NAMES, REGIME_OF, THRESHOLD_MILLI, TIE_MILLI, Resource
from ledger.records import Cause, CeilingKind, Regime
from ledger.roofline import base_units

_THRESHOLD = THRESHOLD_MILLI / 1000
_TIE = TIE_MILLI / 1000
_FULL = 100.0
_SATURATED = 80.0
# A rate this close to the measured ceiling, and closer than to the forecast, is explained by it.
_NEAR = math.log(1.1)
_NAMED_FROM = 1.03
_MOST_RATE = 10**24
# A reason that explains less than this is none.
_LEAST = math.log(1.01)


@dataclass(frozen=True)
class _Reason:
    """Hold one reason: the factor that it can account for, its sentence and its counter."""

    size: float
    note: str
    counter: str


def achieved_share(call: Call, rest: float, *, lowered: float, regimes: tuple[Regime, ...]) -> Cause | None:
    """Return what counters explain of a rest of measured ÷ predicted time, by the reason that explains most.

    rest: what the causes with a number leave. lowered: clock × waves, by which the peak itself is lower. regimes: the
    verdict by the sealed rule; a forecast that it confirms is contradicted by no regime. None where the rest goes
    another way than the gap, or no reason accounts for 1% of it.
    """
    slower = rest > 1
    if slower != (call.ratio > 1):
        return None
    wrong = bool(regimes) and call.forecast.regime not in regimes
    reasons = [*(_slower(call) if slower else _faster(call) if wrong else ()), *_calibrated(call, slower, lowered)]
    right_way = [reason for reason in reasons if reason.size > 0 and (reason.size > 1) == slower]
    if not right_way:
        return None
    best = max(right_way, key=lambda reason: abs(math.log(reason.size)))
    factor = min(best.size, rest) if slower else max(best.size, rest)
    if abs(math.log(factor)) < _LEAST:
        return None
    return Cause(name="achieved_share", factor=factor, note=best.note, counter=best.counter)


def _slower(call: Call) -> Iterator[_Reason]:
    loads, percent = call.percents, call.forecast.percent_milli / 1000
    busiest = call.busiest
    if busiest not in (None, call.own) and REGIME_OF[busiest] != call.forecast.regime:
        yield _Reason(
            loads[busiest] / percent,
            f"{_name(busiest)} was at {loads[busiest]:.0f}% of its peak{_conflicts(call, busiest)}, "
            f"{_name(call.own)} at {loads[call.own]:.0f}% where the forecast needs {percent:g}%",
            f"load of {NAMES[busiest]}",
        )
    for name, load in loads.items():
        if name != call.own:
            yield _Reason(
                load * call.ratio / _FULL,
                f"the work of {_name(name)} fills {load * call.ratio:.0f}% of the forecast's time",
                f"load of {NAMES[name]}",
            )
    blocks, sms = call.totals.grid_blocks if call.totals else None, call.hardware.limits.sms
    # On the compute-bound side an empty SM is counted by the waves.
    if call.on_memory_side and loads and max(loads.values()) < _THRESHOLD and blocks and 1 <= blocks < sms:
        yield _Reason(
            sms / blocks,
            f"{blocks:.0f} blocks leave {sms - blocks:.0f} of {sms} SMs without requests in flight",
            "grid_blocks",
        )


def _name(resource: Resource) -> str:
    return "the arithmetic pipe" if resource == "arithmetic" else NAMES[resource]


def _conflicts(call: Call, resource: Resource) -> str:
    share = call.totals.bank_conflict_share if call.totals else None
    if resource != "smem" or share is None or not 0 < share <= 1:
        return ""
    return f" ({100 * share:.0f}% of its wavefronts bank conflicts)"


def _faster(call: Call) -> Iterator[_Reason]:
    loads, forecast = call.percents, call.forecast.regime
    if not loads:
        return
    highest = max(loads, key=lambda name: loads[name])
    if forecast == "latency-bound" and loads[highest] > _THRESHOLD > loads[highest] * call.ratio:
        yield _Reason(
            _THRESHOLD / loads[highest],
            f"latency was to keep every load below 60% and {_name(highest)} reached {loads[highest]:.0f}%",
            f"load of {NAMES[highest]}",
        )
    bound = next((name for name in loads if REGIME_OF[name] == forecast), None)
    if bound is not None and bound != call.own and call.busiest not in (None, bound):
        implied = max(_THRESHOLD, loads[highest] * call.ratio - _TIE)
        filled = call.ratio * max(loads[bound], _l2_with_fills(call) if bound == "l2" else 0.0)
        yield _Reason(
            filled / implied,
            f"the work of {_name(bound)} fills {filled:.0f}% of the forecast's time and a forecast that it binds "
            f"implies {implied:.0f}%",
            f"load of {NAMES[bound]}",
        )


def _l2_with_fills(call: Call) -> float:
    """Return the load of L2 as rule regime/1 counts it, fills from DRAM included; 0 where it is unknown."""
    totals = call.totals
    if totals is None or totals.l2_pct is None or not totals.duration_ps:
        return 0.0
    load = totals.l2_pct * totals.duration_ps * 1e-12 / call.time_s
    return load if 0 <= load <= 2 * _FULL else 0.0


def _calibrated(call: Call, slower: bool, lowered: float) -> Iterator[_Reason]:
    """Yield that the roof's own resource ran at what the profile measured, where that is nearer than the forecast."""
    ceiling = measured_ceiling(call)
    if ceiling is None or call.done is None or call.busiest != call.own or call.percents[call.own] < _SATURATED:
        return
    rate, needed = call.done / call.moving_s, needed_rate(call)
    error = abs(math.log(ceiling / rate))
    if (needed > rate) != slower or error > _NEAR or error >= abs(math.log(needed / rate)):
        return
    unit = "B/s" if call.on_memory_side else "FLOP/s"
    lower = f" of a peak that clock and waves lower by ×{lowered:.2f}" if lowered >= _NAMED_FROM else ""
    yield _Reason(
        needed / lowered / ceiling,
        f"{_name(call.own)} binds ({call.percents[call.own]:.0f}%) and ran at {si(rate, unit)}, near the "
        f"{si(ceiling, unit)} that the profile measured, where the forecast needs {si(needed, unit)}{lower}",
        f"load of {NAMES[call.own]}",
    )


def needed_rate(call: Call) -> float:
    """Return the rate of the roof's own resource that the forecast needs, in B/s or FLOP/s."""
    roof = call.forecast.roof
    peak = roof.bandwidth_bytes_per_s if call.on_memory_side else roof.peak_flop_per_s
    return peak * call.forecast.percent_milli / 100_000


def measured_ceiling(call: Call) -> float | None:
    """Return the measured rate of the roof's own resource in the sealed profile, in B/s or FLOP/s; burst if there."""
    kinds: tuple[CeilingKind, ...] = ("burst", "sustained")
    ceilings = next((call.hardware.ceilings[kind] for kind in kinds if kind in call.hardware.ceilings), None)
    if ceilings is None:
        return None
    quantity = ceilings.dram_bandwidth if call.on_memory_side else ceilings.peaks.get(call.forecast.roof.path)
    rate = 0 if quantity is None else base_units(quantity)
    return float(rate) if 0 < rate < _MOST_RATE else None

"""Splits the gap between a forecast and its measurement into causes, and explains it in one sentence. Pure.

Measured over predicted time is the product of the causes. The forecast, P percent of a roof, is read as: the binding
ceiling is used at P percent during the whole call, moving the modelled bytes (memory-bound side) or doing the
modelled operations (compute-bound side). With L the time of an empty launch and T the measured call:

    work            bytes (operations) that the counters saw ÷ those modelled
    clock           rated clock of the peak ÷ SM clock of the timed rounds, where what binds runs at the SM clock
    waves           whole waves ÷ waves, compute-bound side only: the last wave leaves SMs empty
    launch          T ÷ (T - L)
    achieved_share  the part of the rest that a counter explains, with its reason (analysis.achieved_share)
    unexplained     what is left: the rate that the forecast needs against the rate reached in T - L

A factor above one makes the call slower than forecast. On the memory-bound side a low SM clock or a last wave half
empty does not by itself slow DRAM down, so neither is a cause there. Times are those of the timer; the profiler gives
counts, and the clock where a record has none of its rounds, because a profiled launch is often slower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ledger.analysis.achieved_share import achieved_share, measured_ceiling, needed_rate
from ledger.analysis.causes import Call, named_causes
from ledger.analysis.counters import CounterTotals
from ledger.analysis.formatting import si
from ledger.analysis.regime_v2 import Resource
from ledger.analysis.steady_timing import rounds_clock_mhz
from ledger.records import Cause, Forecast, Gap, Hardware, Measurement, Regime
from ledger.roofline import memory_side, percent_of_roof

HIT_POINTS = 5.0
_NAMED_FROM = math.log(1.03)
_MOST_NAMED = 2
# A profiled launch whose time differs by this much is reported.
_DIFFERENT_LAUNCH = math.log(1.05)


def gap(
    forecast: Forecast,
    measurement: Measurement,
    hardware: Hardware,
    *,
    totals: CounterTotals | None,
    regimes: tuple[Regime, ...],
    reason: str,
    loads: Mapping[Resource, int | None] | None = None,
    written_bytes: int = 0,
) -> Gap:
    """Return the signed gap in points, its causes, and one sentence that explains it.

    regimes, reason: what the regime rule said, none where it did not determine one; it closes the sentence.
    loads: of the timed call, in thousandths of a percent, None where unknown. written_bytes: what a call of the timed
    rotation writes to DRAM at least.
    """
    timing = measurement.timing
    assert timing is not None, "a gap needs a measured time"
    assert forecast.work.flops or forecast.work.bytes, "a gap needs work"
    after = measurement.after.sm_clock_mhz if measurement.after else None
    inside = rounds_clock_mhz(timing)
    call = Call(
        forecast=forecast,
        hardware=hardware,
        totals=totals,
        time_s=timing.median_ps * 1e-12,
        launch_s=None if timing.launch_ps is None else timing.launch_ps * 1e-12,
        after_clock_hz=None if after is None else after * 1e6,
        rounds_clock_hz=None if inside is None else inside * 1e6,
        on_memory_side=memory_side(forecast.work, forecast.roof),
        written_bytes=written_bytes,
        loads=loads or {},
    )
    points = percent_of_roof(forecast.work, forecast.roof, call.time_s) - forecast.percent_milli / 1000
    causes = _causes(call, regimes)
    verdict = verdict_text(forecast.regime, regimes, reason)
    if regimes and totals is not None:
        verdict += _profile_text(call, totals, regimes)
    return Gap(percent=points, causes=causes, sentence=_sentence(call, points, causes, verdict))


def _causes(call: Call, regimes: tuple[Regime, ...]) -> tuple[Cause, ...]:
    """Return all causes; the last one is what the others leave, so that they multiply to measured ÷ predicted."""
    causes = list(named_causes(call))
    factors = {cause.name: cause.factor for cause in causes}
    # The clock and the waves that there were lower the arithmetic's own ceiling.
    lowered = 1.0 if call.on_memory_side else factors.get("clock", 1.0) * factors.get("waves", 1.0)
    rest = call.ratio / math.prod(factors.values())
    explained = achieved_share(call, rest, lowered=lowered, regimes=regimes)
    if explained is not None:
        causes.append(explained)
    rest = call.ratio / math.prod(cause.factor for cause in causes)
    return (*causes, Cause(name="unexplained", factor=rest, note=_rate_note(call, lowered)))


def _rate_note(call: Call, lowered: float) -> str:
    unit = "B" if call.on_memory_side else "FLOP"
    reached = (call.done or call.modelled) / call.moving_s
    needed = needed_rate(call) / lowered
    subject = f"the modelled {si(call.modelled, unit)} went at"
    if call.done or (call.totals is not None and not call.on_memory_side):
        subject = "while moving, DRAM delivered" if call.on_memory_side else "the arithmetic ran at"
    note = f"{subject} {si(reached, f'{unit}/s')} where the forecast needs {si(needed, f'{unit}/s')}"
    if abs(math.log(lowered)) >= _NAMED_FROM:
        note += " of what that clock and those waves leave"
    best = measured_ceiling(call) if call.on_memory_side else None
    return note if best is None or needed <= best else f"{note} and the best measured here is {si(best, 'B/s')}"


def _sentence(call: Call, points: float, causes: tuple[Cause, ...], verdict: str) -> str:
    forecast = call.forecast
    measured, predicted = points + forecast.percent_milli / 1000, forecast.percent_milli / 1000
    if abs(points) <= HIT_POINTS:
        lead = f"As forecast to {abs(points):.1f} points ({measured:.1f}% for {predicted:g}%)"
    else:
        side = "above" if points > 0 else "below"
        lead = f"{abs(points):.1f} points {side} the forecast ({measured:.1f}% for {predicted:g}%)"
    hit = abs(points) <= HIT_POINTS
    explanations = [
        f"{cause.note} (×{cause.factor:.2f}{', unexplained' if cause.name == 'unexplained' else ''})"
        for cause in _largest(causes, slower=points < 0, hit=hit)
    ]
    explained = f": {', and '.join(explanations)}" if explanations else ""
    return f"{lead}{explained}; {verdict}." if verdict else f"{lead}{explained}."


def main_cause(found: Gap) -> Cause | None:
    """Return the largest cause that pushes the way of a gap, None where none is large enough to name."""
    causes = _largest(found.causes, slower=found.percent < 0, hit=abs(found.percent) <= HIT_POINTS)
    return causes[0] if causes else None


def _largest(causes: tuple[Cause, ...], *, slower: bool, hit: bool) -> list[Cause]:
    """Return the one or two causes that explain most; for a miss only those that push its way."""
    weighed = [
        cause
        for cause in causes
        if abs(math.log(cause.factor)) >= _NAMED_FROM and (hit or (cause.factor > 1) == slower)
    ]
    return sorted(weighed, key=lambda cause: -abs(math.log(cause.factor)))[:_MOST_NAMED]


def verdict_text(predicted: Regime, measured: tuple[Regime, ...], reason: str) -> str:
    """Return the regimes as text: what was measured, whether that was forecast, and the rule's reason."""
    if not measured:
        return f"regime not determined ({reason})"
    said = "as forecast" if predicted in measured else f"not {predicted}"
    return f"{' or '.join(measured)}, {said}: {reason}"


def _profile_text(call: Call, totals: CounterTotals, regimes: tuple[Regime, ...]) -> str:
    """Return what else the profile shows: of a latency-bound call what was in flight, and a launch unlike the timed."""
    parts: list[str] = []
    if "latency-bound" in regimes:
        parts += [f"{totals.waves:.2f} waves"] if totals.waves is not None else []
        parts += [f"{totals.occupancy_pct:.0f}% of the warps active"] if totals.occupancy_pct is not None else []
    longer = (totals.duration_ps or 0) * 1e-12 / call.time_s
    if longer > 0 and abs(math.log(longer)) >= _DIFFERENT_LAUNCH:
        parts.append(f"the profiled launch {longer:.2f} times as long as the timed")
    return f", with {' and '.join(parts)}" if parts else ""

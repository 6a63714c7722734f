"""Splits the gap between a forecast and its measurement into causes, and explains it in one sentence. Pure.

Measured over predicted time is the product of the causes. The forecast, P percent of a roof, is read as: the binding
ceiling is used at P percent during the whole call, moving the modelled bytes (memory-bound side) or doing the
modelled operations (compute-bound side). With L the time of an empty launch and T the measured call:

    work         bytes (operations) that the counters saw ÷ those modelled
    clock        rated clock of the peak ÷ SM clock of the timed rounds, compute-bound side only
    waves        whole waves ÷ waves, compute-bound side only: the last wave leaves SMs empty
    launch       T ÷ (T - L)
    ceiling      the rate that the forecast needs ÷ the rate reached in T - L
    unexplained  the same rest under another name, where it is not a ceiling that held the rate down: the measured
                 regime is none of the roofline's own, or there are no counters, and nothing tells work from rate

A factor above one makes the call slower than forecast. On the memory-bound side a low SM clock or a last wave half
empty does not by itself slow DRAM down, so neither is a cause there. Times are those of the timer; the profiler gives
counts, and the clock where a record has none of its rounds, because a profiled launch is often slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ledger.analysis.counters import CounterTotals
from ledger.analysis.formatting import si
from ledger.analysis.steady_timing import rounds_clock_mhz
from ledger.records import Cause, CeilingKind, Forecast, Gap, Hardware, Measurement, Regime
from ledger.roofline import base_units, ceilings_of, memory_side, percent_of_roof, time_lower_bound_s

HIT_POINTS = 5.0
_NAMED_FROM = math.log(1.03)
_MOST_NAMED = 2
# A profiled launch whose time differs by this much is reported.
_DIFFERENT_LAUNCH = math.log(1.05)
# A reading outside these limits is ignored.
_CLOCKS = (1e7, 1e10)  # Hz
_WAVES = (1e-3, 1e7)


@dataclass(frozen=True)
class _Call:
    """Hold one measured call with its forecast, in base units; None where unknown."""

    forecast: Forecast
    hardware: Hardware
    totals: CounterTotals | None
    time_s: float
    launch_s: float | None
    timer_clock_hz: float | None
    rounds_clock_hz: float | None
    left_of_ridge: bool

    @property
    def predicted_s(self) -> float:
        percent = self.forecast.percent_milli / 1000
        return 100 * time_lower_bound_s(self.forecast.work, self.forecast.roof) / percent

    @property
    def moving_s(self) -> float:
        """Return the call without its launch; the whole call where an empty launch is unknown or takes as long."""
        return self.time_s - self.launch_s if self.launch_s and self.launch_s < self.time_s else self.time_s

    @property
    def clock_hz(self) -> float | None:
        """Return the SM clock inside the timed rounds, else the one under the profiler, else the one read after."""
        return self.rounds_clock_hz or (self.totals.sm_clock_hz if self.totals else None) or self.timer_clock_hz

    @property
    def modelled(self) -> int:
        return self.forecast.work.bytes if self.left_of_ridge else self.forecast.work.flops

    @property
    def done(self) -> int | None:
        """Return the bytes or operations that the counters saw."""
        if self.totals is None:
            return None
        if self.left_of_ridge:
            return self.totals.dram_bytes
        return self.totals.tensor_ops if self.forecast.roof.path.endswith("_tensor") else None


def gap(
    forecast: Forecast,
    measurement: Measurement,
    hardware: Hardware,
    *,
    totals: CounterTotals | None,
    regimes: tuple[Regime, ...],
    reason: str,
) -> Gap:
    """Return the signed gap in points, its causes, and one sentence that explains it.

    regimes, reason: what the regime rule said, none where it did not determine one; it closes the sentence.
    """
    timing = measurement.timing
    assert timing is not None, "a gap needs a measured time"
    assert forecast.work.flops or forecast.work.bytes, "a gap needs work"
    after = measurement.after.sm_clock_mhz if measurement.after else None
    inside = rounds_clock_mhz(timing)
    call = _Call(
        forecast=forecast,
        hardware=hardware,
        totals=totals,
        time_s=timing.median_ps * 1e-12,
        launch_s=None if timing.launch_ps is None else timing.launch_ps * 1e-12,
        timer_clock_hz=None if after is None else after * 1e6,
        rounds_clock_hz=None if inside is None else inside * 1e6,
        left_of_ridge=memory_side(forecast.work, forecast.roof),
    )
    points = percent_of_roof(forecast.work, forecast.roof, call.time_s) - forecast.percent_milli / 1000
    named = list(_causes(call))
    causes = (*named, _rest(call, named, regimes))
    verdict = verdict_text(forecast.regime, regimes, reason)
    if regimes and totals is not None:
        verdict += _profile_text(call, totals, regimes)
    return Gap(percent=points, causes=causes, sentence=_sentence(call, points, causes, verdict))


def _causes(call: _Call) -> Iterator[Cause]:
    """Yield the causes that have a number of their own."""
    for cause in (_work(call), *(() if call.left_of_ridge else (_clock(call), _waves(call)))):
        if cause is not None:
            yield cause
    if call.moving_s < call.time_s:
        share = 100 * (1 - call.moving_s / call.time_s)
        yield Cause(
            name="launch",
            factor=call.time_s / call.moving_s,
            note=f"an empty launch is {share:.0f}% of the call",
        )


def _work(call: _Call) -> Cause | None:
    if not call.done:
        return None
    if call.left_of_ridge:
        note = f"DRAM moved {si(call.done, 'B')} where the model counts {si(call.modelled, 'B')}"
    else:
        note = f"the tensor pipe did {si(call.done, 'FLOP')} where the model counts {si(call.modelled, 'FLOP')}"
    return Cause(name="work", factor=call.done / call.modelled, note=note)


def _clock(call: _Call) -> Cause | None:
    ceilings = call.hardware.ceilings.get(call.forecast.roof.ceilings)
    peak = ceilings.peaks.get(call.forecast.roof.path) if ceilings else None
    if peak is None or peak.clock_mhz is None or call.clock_hz is None or not _CLOCKS[0] <= call.clock_hz <= _CLOCKS[1]:
        return None
    note = f"the SM clock was {si(call.clock_hz, 'Hz')} and the peak is rated at {si(peak.clock_mhz * 1e6, 'Hz')}"
    return Cause(name="clock", factor=peak.clock_mhz * 1e6 / call.clock_hz, note=note)


def _waves(call: _Call) -> Cause | None:
    waves = call.totals.waves if call.totals else None
    if waves is None or not _WAVES[0] <= waves <= _WAVES[1]:
        return None
    return Cause(name="waves", factor=math.ceil(waves) / waves, note=f"{waves:.2f} waves leave SMs empty at the end")


def _rest(call: _Call, named: list[Cause], regimes: tuple[Regime, ...]) -> Cause:
    """Return what the named causes leave: the rate that the forecast needs against the rate reached."""
    factors = {cause.name: cause.factor for cause in named}
    # The clock and the waves that there were lower the ceiling itself.
    lowered = factors.get("clock", 1.0) * factors.get("waves", 1.0)
    reached = (call.done if "work" in factors and call.done else call.modelled) / call.moving_s
    note = _rate_note(call, reached, lowered, counted="work" in factors)
    own: Regime = "hbm-bound" if call.left_of_ridge else "compute-bound"
    factor = call.time_s / call.predicted_s / math.prod(factors.values())
    held = own in regimes and call.totals is not None
    return Cause(name="ceiling" if held else "unexplained", factor=factor, note=note)


def _rate_note(call: _Call, reached: float, lowered: float, *, counted: bool) -> str:
    roof, share = call.forecast.roof, call.forecast.percent_milli / 100_000
    unit = "B" if call.left_of_ridge else "FLOP"
    needed = share * (roof.bandwidth_bytes_per_s if call.left_of_ridge else roof.peak_flop_per_s / lowered)
    subject = f"the modelled {si(call.modelled, unit)} went at"
    if counted or (call.totals is not None and not call.left_of_ridge):
        subject = "while moving, DRAM delivered" if call.left_of_ridge else "the arithmetic ran at"
    note = f"{subject} {si(reached, f'{unit}/s')} where the forecast needs {si(needed, f'{unit}/s')}"
    if abs(math.log(lowered)) >= _NAMED_FROM:
        note += " of what that clock and those waves leave"
    best = _best_bandwidth(call.hardware) if call.left_of_ridge else None
    return note if best is None or needed <= best else f"{note} and the best measured here is {si(best, 'B/s')}"


def _best_bandwidth(hardware: Hardware) -> float | None:
    kind: CeilingKind | None = next((kind for kind in ("burst", "sustained") if kind in hardware.ceilings), None)
    return None if kind is None else float(base_units(ceilings_of(hardware, kind)[1].dram_bandwidth))


def _sentence(call: _Call, points: float, causes: tuple[Cause, ...], verdict: str) -> str:
    forecast = call.forecast
    measured, predicted = points + forecast.percent_milli / 1000, forecast.percent_milli / 1000
    if abs(points) <= HIT_POINTS:
        lead = f"As forecast to {abs(points):.1f} points ({measured:.1f}% for {predicted:g}%)"
    else:
        side = "above" if points > 0 else "below"
        lead = f"{abs(points):.1f} points {side} the forecast ({measured:.1f}% for {predicted:g}%)"
    hit = abs(points) <= HIT_POINTS
    explanations = [f"{cause.note} (×{cause.factor:.2f})" for cause in _largest(causes, slower=points < 0, hit=hit)]
    explained = f": {', and '.join(explanations)}" if explanations else ""
    return f"{lead}{explained}; {verdict}." if verdict else f"{lead}{explained}."


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


def _profile_text(call: _Call, totals: CounterTotals, regimes: tuple[Regime, ...]) -> str:
    """Return what else the profile shows: of a latency-bound call what was in flight, and a launch unlike the timed."""
    parts: list[str] = []
    if "latency-bound" in regimes:
        parts += [f"{totals.waves:.2f} waves"] if totals.waves is not None else []
        parts += [f"{totals.occupancy_pct:.0f}% of the warps active"] if totals.occupancy_pct is not None else []
    if totals.duration_ps and abs(math.log(totals.duration_ps * 1e-12 / call.time_s)) >= _DIFFERENT_LAUNCH:
        parts.append(f"the profiled launch {totals.duration_ps * 1e-12 / call.time_s:.2f} times as long as the timed")
    return f", with {' and '.join(parts)}" if parts else ""

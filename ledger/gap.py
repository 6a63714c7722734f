"""Splits the gap between a forecast and its measurement into causes and says it in one sentence. Pure.

Measured over predicted time is the product of the causes. The forecast, P percent of a roof, is read as: the binding
ceiling is used at P percent during the whole call, moving the modelled bytes (left of the ridge) or doing the
modelled operations (right of it). With L the time of an empty launch, T the measured call and D the profiler's
duration of it:

    work         bytes (operations) that the counters saw ÷ those modelled
    clock        rated clock of the peak ÷ SM clock seen, right of the ridge only
    waves        whole waves ÷ waves, right of the ridge only: the last wave leaves SMs empty
    launch       T ÷ (T - L)
    ceiling      the rate that the forecast needed ÷ the rate reached while moving, in D - L
    unexplained  what is left: with counters the disagreement of timer and profiler, (T - L) ÷ (D - L)

A factor above one makes the call slower than forecast. Without counters nothing tells work from ceiling, so both stay
in `unexplained`. Left of the ridge a low SM clock or a last wave half empty does not by itself slow DRAM down, so
neither is given as a cause there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ledger.counters import CounterTotals
from ledger.records import Cause, CeilingKind, Forecast, Gap, Hardware, Measurement, Regime
from ledger.roofline import base_units, ceilings_of, memory_side, percent_of_roof, time_lower_bound_s
from ledger.wording import si

HIT_POINTS = 5.0
_WORTH_SAYING = math.log(1.03)
_AT_MOST = 2
# Outside these a reading is no reading; it would only drown the other causes.
_CLOCKS = (1e7, 1e10)  # Hz
_WAVES = (1e-3, 1e7)


@dataclass(frozen=True)
class _Call:
    """Hold one measured call beside its forecast, in base units; None where nothing tells."""

    forecast: Forecast
    hardware: Hardware
    totals: CounterTotals | None
    time_s: float
    launch_s: float | None
    timer_clock_hz: float | None

    @property
    def left_of_ridge(self) -> bool:
        return memory_side(self.forecast.work, self.forecast.roof)

    @property
    def predicted_s(self) -> float:
        percent = self.forecast.percent_milli / 1000
        return 100 * time_lower_bound_s(self.forecast.work, self.forecast.roof) / percent

    @property
    def moving_s(self) -> float:
        """Return the call without its launch; the whole call where an empty launch is unknown or takes as long."""
        return self.time_s - self.launch_s if self.launch_s and self.launch_s < self.time_s else self.time_s

    @property
    def profiled_s(self) -> float:
        """Return the profiler's duration without a launch, or the timer's where there is none."""
        seen = self.totals.duration_ps if self.totals else None
        overhead = self.time_s - self.moving_s
        return seen * 1e-12 - overhead if seen is not None and seen * 1e-12 > overhead else self.moving_s

    @property
    def clock_hz(self) -> float | None:
        """Return the SM clock under the profiler, else the one read after timing."""
        return (self.totals.sm_clock_hz if self.totals else None) or self.timer_clock_hz

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
    forecast: Forecast, measurement: Measurement, hardware: Hardware, *, totals: CounterTotals | None, verdict: str
) -> Gap:
    """Return the signed gap in points, its causes, and one sentence that explains it.

    verdict: what the regime rule said, in words; it closes the sentence.
    """
    timing = measurement.timing
    assert timing is not None, "a gap needs a measured time"
    assert forecast.work.flops or forecast.work.bytes, "a gap needs work"
    after = measurement.after.sm_clock_mhz if measurement.after else None
    call = _Call(
        forecast=forecast,
        hardware=hardware,
        totals=totals,
        time_s=timing.median_ps * 1e-12,
        launch_s=None if timing.launch_ps is None else timing.launch_ps * 1e-12,
        timer_clock_hz=None if after is None else after * 1e6,
    )
    points = percent_of_roof(forecast.work, forecast.roof, call.time_s) - forecast.percent_milli / 1000
    causes = _with_rest(call, list(_causes(call)))
    return Gap(percent=points, causes=causes, sentence=_sentence(call, points, causes, verdict))


def _causes(call: _Call) -> Iterator[Cause]:
    named = 1.0
    for cause in (_work(call), *(() if call.left_of_ridge else (_clock(call), _waves(call)))):
        if cause is not None:
            named *= cause.factor
            yield cause
    if call.moving_s < call.time_s:
        share = 100 * (1 - call.moving_s / call.time_s)
        yield Cause(
            name="launch",
            factor=call.time_s / call.moving_s,
            note=f"an empty launch is {share:.0f}% of the call",
        )
    if call.totals is not None and (call.done is not None or not call.left_of_ridge):
        yield _ceiling(call, named)


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


def _ceiling(call: _Call, named: float) -> Cause:
    """Return the cause that compares the rate forecast with the rate reached; `named` is what others explain."""
    done = call.done or call.modelled
    reached = done / call.profiled_s
    # The clock and the waves that there were lower the ceiling itself.
    lowered = named / (done / call.modelled)
    roof, share = call.forecast.roof, call.forecast.percent_milli / 100_000
    if call.left_of_ridge:
        limit, best = float(roof.bandwidth_bytes_per_s), _best_bandwidth(call.hardware)
        note = f"DRAM delivered {si(reached, 'B/s')} while moving, where the forecast needs {si(share * limit, 'B/s')}"
        if best is not None and share * limit > best:
            note += f" and the best measured on this device is {si(best, 'B/s')}"
    else:
        limit = roof.peak_flop_per_s / lowered
        note = f"the arithmetic ran at {si(reached, 'FLOP/s')}, where the forecast needs {si(share * limit, 'FLOP/s')}"
        if abs(math.log(lowered)) >= _WORTH_SAYING:
            note += " of what that clock and those waves leave"
    return Cause(name="ceiling", factor=call.profiled_s / call.predicted_s / named, note=note)


def _best_bandwidth(hardware: Hardware) -> float | None:
    kind: CeilingKind | None = next((kind for kind in ("burst", "sustained") if kind in hardware.ceilings), None)
    return None if kind is None else float(base_units(ceilings_of(hardware, kind)[1].dram_bandwidth))


def _with_rest(call: _Call, causes: list[Cause]) -> tuple[Cause, ...]:
    named = math.prod(cause.factor for cause in causes)
    rest = call.time_s / call.predicted_s / named
    if call.totals is None:
        unit, limit = ("B", call.forecast.roof.bandwidth_bytes_per_s)
        if not call.left_of_ridge:
            unit, limit = ("FLOP", call.forecast.roof.peak_flop_per_s)
        needed = limit * call.forecast.percent_milli / 100_000
        note = f"the modelled {si(call.modelled, unit)} went at {si(call.modelled / call.moving_s, f'{unit}/s')}, "
        note += f"where the forecast needs {si(needed, f'{unit}/s')}"
    elif any(cause.name == "ceiling" for cause in causes):
        note = "the timer and the profiler differ by this much"
    else:
        note = "the counters do not tell what was moved"
    return (*causes, Cause(name="unexplained", factor=rest, note=note))


def _sentence(call: _Call, points: float, causes: tuple[Cause, ...], verdict: str) -> str:
    forecast = call.forecast
    measured, predicted = points + forecast.percent_milli / 1000, forecast.percent_milli / 1000
    if abs(points) <= HIT_POINTS:
        lead = f"As forecast to {abs(points):.1f} points ({measured:.1f}% for {predicted:g}%)"
    else:
        side = "above" if points > 0 else "below"
        lead = f"{abs(points):.1f} points {side} the forecast ({measured:.1f}% for {predicted:g}%)"
    hit = abs(points) <= HIT_POINTS
    told = [f"{cause.note} (×{cause.factor:.2f})" for cause in _telling(causes, slower=points < 0, hit=hit)]
    explained = f": {', and '.join(told)}" if told else ""
    return f"{lead}{explained}; {verdict}." if verdict else f"{lead}{explained}."


def _telling(causes: tuple[Cause, ...], *, slower: bool, hit: bool) -> list[Cause]:
    """Return the one or two causes that explain most; for a miss only those that push its way."""
    weighed = [
        cause
        for cause in causes
        if abs(math.log(cause.factor)) >= _WORTH_SAYING and (hit or (cause.factor > 1) == slower)
    ]
    return sorted(weighed, key=lambda cause: -abs(math.log(cause.factor)))[:_AT_MOST]


def verdict_words(predicted: Regime, measured: Regime | None, reason: str, totals: CounterTotals | None = None) -> str:
    """Return the regimes in words: what was measured, whether that was forecast, and the rule's reason.

    Of a latency-bound call also how much was in flight, as far as the counters tell.
    """
    if measured is None:
        return f"regime not determined ({reason})"
    said = "as forecast" if measured == predicted else f"not {predicted}"
    flight = _in_flight(totals) if measured == "latency-bound" and totals is not None else ""
    return f"{measured}, {said}: {reason}{flight}"


def _in_flight(totals: CounterTotals) -> str:
    parts = [f"{totals.waves:.2f} waves"] if totals.waves is not None else []
    parts += [f"{totals.occupancy_pct:.0f}% of the warps active"] if totals.occupancy_pct is not None else []
    return f", with {' and '.join(parts)}" if parts else ""

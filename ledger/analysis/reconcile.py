"""Compares a measurement with its forecast: regime, percent, gap, grade and findings. Pure.

regime names the resource that binds, interventions does so without counters, gap explains the difference, and
consistency finds contradictions. Nothing is stored: a verdict is computed from the evidence and the sealed rule.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledger.analysis import gap as gaps
from ledger.analysis import regime as regimes
from ledger.analysis.consistency import check_all
from ledger.analysis.counters import CounterTotals
from ledger.analysis.formatting import harmless
from ledger.analysis.interventions import regime_by_interventions
from ledger.analysis.metric_readings import MetricReadings, readings, totals_read
from ledger.analysis.regime_v2 import MOST_MILLI, Profile, Resource, TimedCall, Verdict, decide, timed_loads
from ledger.analysis.steady_timing import rounds_clock_mhz
from ledger.errors import RecordError
from ledger.records import (
    Finding,
    Forecast,
    Gap,
    Grade,
    Hardware,
    Measurement,
    Regime,
    RegimeRule,
    Verification,
)
from ledger.roofline import memory_side, percent_of_roof

IDLE_LAUNCH = "idle_launch_ps/1"
"""The extension of a measurement that holds the time of an empty launch on an idle stream, in picoseconds."""
_REASON_LENGTH = 160


def readings_of(measurement: Measurement, hardware: Hardware) -> MetricReadings | None:
    """Return a measurement's counters as numbers, None when it has none. Raises: as readings."""
    return None if measurement.counters is None else readings(measurement.counters, hardware.target)


def totals_of(measurement: Measurement, hardware: Hardware) -> CounterTotals | None:
    """Return the typed totals of a measurement's counters, None when it has none. Raises: as readings."""
    return _totals(readings_of(measurement, hardware), hardware)


def _totals(seen: MetricReadings | None, hardware: Hardware) -> CounterTotals | None:
    return None if seen is None else totals_read(seen, hardware.target)


def measured_regime(
    forecast: Forecast, measurement: Measurement, hardware: Hardware, *, rule: RegimeRule = "regime/1"
) -> Verdict:
    """Return the regimes that a rule names (none: not determined), the grade of the evidence, and the reason."""
    return _regime(forecast, measurement, hardware, readings_of(measurement, hardware), rule)


def _regime(
    forecast: Forecast, measurement: Measurement, hardware: Hardware, seen: MetricReadings | None, rule: RegimeRule
) -> Verdict:
    timing = measurement.timing
    assert timing is not None, "a regime needs a measured time"
    if seen is None and measurement.interventions:
        return _verdict(*regime_by_interventions(forecast, measurement))
    if seen is None and measurement.counters_missing:
        return Verdict((), "C", harmless(measurement.counters_missing, _REASON_LENGTH))
    if rule == "regime/1":
        counted = _totals(seen, hardware)
        return _verdict(*regimes.regime_of(forecast, counted, call_ps=timing.median_ps, launch_ps=timing.launch_ps))
    assert seen is not None, "a record has counters, or the reason why there are none"
    return _timed(forecast, measurement, seen, special=True).verdict


def _verdict(regime: Regime | None, grade: Grade, reason: str) -> Verdict:
    return Verdict(() if regime is None else (regime,), grade, reason)


def preview_timed_loads(forecast: Forecast, measurement: Measurement, hardware: Hardware) -> Verdict | None:
    """Return what rule regime/2 would say of a record made before it, without the special-function unit's reading.

    It is no verdict: the seal names the rule that judges. None where there are no counters or no time.
    """
    seen = readings_of(measurement, hardware)
    if seen is None or measurement.timing is None:
        return None
    return _timed(forecast, measurement, seen).verdict


def call_loads(forecast: Forecast, measurement: Measurement, hardware: Hardware) -> dict[Resource, int] | None:
    """Return the loads of a timed call by rule regime/2, in thousandths of a percent; None unless all are known."""
    seen = readings_of(measurement, hardware)
    if seen is None or measurement.timing is None:
        return None
    found = _timed(forecast, measurement, seen).loads
    known = {name: milli for name, milli in found.items() if milli is not None}
    return known if len(known) == len(found) and max(known.values()) <= MOST_MILLI else None


@dataclass(frozen=True)
class _Timed:
    """Hold the loads of a timed call and what rule regime/2 decides by."""

    forecast: Forecast
    profile: Profile
    call: TimedCall
    loads: dict[Resource, int | None]

    @property
    def verdict(self) -> Verdict:
        side = memory_side(self.forecast.work, self.forecast.roof)
        return decide(self.loads, self.call, on_memory_side=side, stall=self.profile.stall)


def _timed(forecast: Forecast, measurement: Measurement, seen: MetricReadings, *, special: bool = False) -> _Timed:
    """Return the loads of a timed call. special: as for timed_loads, which says what is raised."""
    profile, call = profile_of(seen), timed_call_of(forecast, measurement)
    return _Timed(forecast, profile, call, timed_loads(profile, call, forecast.roof.path, special=special))


def profile_of(seen: MetricReadings) -> Profile:
    """Return what rule regime/2 reads of the counters of a call."""
    return Profile(
        values=seen.values,
        duration_ps=round(1000 * seen.values["duration"]),
        clock_hz=seen.get("sm_clock_hz"),
        stall=seen.top_stall[0] if seen.top_stall else None,
    )


def timed_call_of(forecast: Forecast, measurement: Measurement) -> TimedCall:
    """Return the timed call of a measurement, at the clock inside its rounds or else the one read after them."""
    timing, after = measurement.timing, measurement.after
    assert timing is not None, "a regime needs a measured time"
    clock_mhz = rounds_clock_mhz(timing) or (after.sm_clock_mhz if after else None)
    idle = measurement.extensions.get(IDLE_LAUNCH)
    exceeds = timing.input_sets * timing.bytes_per_set >= 2 * (measurement.device.l2_bytes or 0)
    return TimedCall(
        call_ps=timing.median_ps,
        clock_hz=None if clock_mhz is None else 1e6 * clock_mhz,
        launch_ps=timing.launch_ps,
        idle_launch_ps=idle if isinstance(idle, int) and idle > 0 else None,
        written_bytes=forecast.work.bytes_written if exceeds else 0,
    )


def gap(forecast: Forecast, measurement: Measurement, hardware: Hardware, *, rule: RegimeRule = "regime/1") -> Gap:
    """Return measured minus predicted percent with its causes and the sentence that explains it."""
    seen = readings_of(measurement, hardware)
    return _gap(forecast, measurement, hardware, seen, _regime(forecast, measurement, hardware, seen, rule))


def _gap(
    forecast: Forecast, measurement: Measurement, hardware: Hardware, seen: MetricReadings | None, verdict: Verdict
) -> Gap:
    return gaps.gap(
        forecast,
        measurement,
        hardware,
        totals=_totals(seen, hardware),
        regimes=verdict.regimes,
        reason=verdict.reason,
        loads=_loads(forecast, measurement, seen),
        written_bytes=timed_call_of(forecast, measurement).written_bytes,
    )


def _loads(
    forecast: Forecast, measurement: Measurement, seen: MetricReadings | None
) -> dict[Resource, int | None] | None:
    """Return the loads of the timed call, None without counters or where they give no finite number."""
    try:
        return None if seen is None else _timed(forecast, measurement, seen).loads
    except RecordError:
        return None


def refutations(*, forecast: Forecast, measurement: Measurement, hardware: Hardware) -> tuple[Finding, ...]:
    """Return what contradicts the seal, the hardware, the dtype or the measurement itself; the caller adds the path."""
    return check_all(
        forecast=forecast,
        measurement=measurement,
        hardware=hardware,
        totals=totals_of(measurement, hardware),
    )


def verify_cell(
    *,
    forecast: Forecast,
    measurement: Measurement,
    hardware: Hardware,
    blind: bool,
    findings: tuple[Finding, ...],
    rule: RegimeRule = "regime/1",
) -> Verification:
    """Return the verdict on one measured cell; one that failed has no percent, no regime and no gap."""
    verdict: Verdict | None = None
    percent: float | None = None
    explained: Gap | None = None
    if measurement.timing is not None:
        seen = readings_of(measurement, hardware)
        verdict = _regime(forecast, measurement, hardware, seen, rule)
        percent = percent_of_roof(forecast.work, forecast.roof, measurement.timing.median_ps * 1e-12)
        worked = forecast.work.flops or forecast.work.bytes
        if worked:
            explained = _gap(forecast, measurement, hardware, seen, verdict)
    named = (*(verdict.regimes if verdict else ()), None, None)
    return Verification(
        seal=measurement.seal,
        cell=measurement.cell,
        run=measurement.run,
        predicted_regime=forecast.regime,
        measured_regime=named[0],
        also_regime=named[1],
        predicted_percent=forecast.percent_milli / 1000,
        measured_percent=percent,
        grade=verdict.grade if verdict else None,
        gap=explained,
        blind=blind,
        findings=findings,
    )

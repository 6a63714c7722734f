"""Compares a measurement with its forecast: regime, percent, gap, grade and findings. Pure.

regime names the resource that binds, interventions does so without counters, gap explains the difference, and
consistency finds contradictions. Nothing is stored: a verdict is computed from the evidence and the sealed rule.
"""

from __future__ import annotations

from ledger.analysis import gap as gaps
from ledger.analysis import regime as regimes
from ledger.analysis.consistency import check_all
from ledger.analysis.counters import CounterTotals
from ledger.analysis.formatting import harmless
from ledger.analysis.interventions import regime_by_interventions
from ledger.analysis.metric_readings import totals
from ledger.records import Finding, Forecast, Gap, Grade, Hardware, Measurement, Regime, Verification
from ledger.roofline import percent_of_roof

_REASON_LENGTH = 160


def totals_of(measurement: Measurement, hardware: Hardware) -> CounterTotals | None:
    """Return the typed totals of a measurement's counters, None when it has none.

    Raises: as metrics.totals, for counters that cannot be what they say.
    """
    if measurement.counters is None:
        return None
    return totals(measurement.counters, hardware.target)


def measured_regime(
    forecast: Forecast, measurement: Measurement, hardware: Hardware
) -> tuple[Regime | None, Grade, str]:
    """Return the regime by rule regime/1 (None: not determined), the grade of the evidence, and the reason."""
    return _regime(forecast, measurement, totals_of(measurement, hardware))


def _regime(
    forecast: Forecast, measurement: Measurement, seen: CounterTotals | None
) -> tuple[Regime | None, Grade, str]:
    timing = measurement.timing
    assert timing is not None, "a regime needs a measured time"
    if seen is None and measurement.interventions:
        return regime_by_interventions(forecast, measurement)
    if seen is None and measurement.counters_missing:
        return None, "C", harmless(measurement.counters_missing, _REASON_LENGTH)
    return regimes.regime_of(forecast, seen, call_ps=timing.median_ps, launch_ps=timing.launch_ps)


def gap(forecast: Forecast, measurement: Measurement, hardware: Hardware) -> Gap:
    """Return measured minus predicted percent with its causes and the sentence that explains it."""
    seen = totals_of(measurement, hardware)
    regime, _, reason = _regime(forecast, measurement, seen)
    return gaps.gap(forecast, measurement, hardware, totals=seen, regime=regime, reason=reason)


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
) -> Verification:
    """Return the verdict on one measured cell; one that failed has no percent, no regime and no gap."""
    regime: Regime | None = None
    grade: Grade | None = None
    percent: float | None = None
    explained: Gap | None = None
    if measurement.timing is not None:
        seen = totals_of(measurement, hardware)
        regime, grade, reason = _regime(forecast, measurement, seen)
        percent = percent_of_roof(forecast.work, forecast.roof, measurement.timing.median_ps * 1e-12)
        worked = forecast.work.flops or forecast.work.bytes
        if worked:
            explained = gaps.gap(forecast, measurement, hardware, totals=seen, regime=regime, reason=reason)
    return Verification(
        seal=measurement.seal,
        cell=measurement.cell,
        run=measurement.run,
        predicted_regime=forecast.regime,
        measured_regime=regime,
        predicted_percent=forecast.percent_milli / 1000,
        measured_percent=percent,
        grade=grade,
        gap=explained,
        blind=blind,
        findings=findings,
    )

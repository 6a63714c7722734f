"""Checks a measurement against its seal, the hardware, the dtype and itself. Pure.

A contradiction refuses the evidence. What is unusual but possible (a clock that moved, a result above a *measured*
ceiling, inputs that may have stayed in the cache) is flagged and never refused. Each check has one function, one code
and a planted wrong input in tests/analysis/test_consistency.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_high, median_low

from ledger.analysis.correctness_bounds import correctness
from ledger.analysis.counters import CounterTotals
from ledger.analysis.formatting import si
from ledger.analysis.interventions import contradictions, readings_of
from ledger.analysis.protocols import COLD_CPU, COLD_GRAPH, STEADY_GRAPH, rotation_bytes
from ledger.analysis.stream_timing import STREAM
from ledger.callables.subject import is_callable, work_of
from ledger.records import (
    CeilingKind,
    Finding,
    Forecast,
    ForecastV2,
    Hardware,
    Measurement,
    MeasurementV2,
    RatioMeasurement,
    Roof,
    Timing,
    TimingV2,
)
from ledger.roofline import base_units, ceilings_of, lower_bound_s, make_roof, percent_of_roof
from ledger.sources.platform import contradicted_pins

ROOF_MARGIN = 1.05
# Operations outside the tensor pipe (a norm, an epilogue) are part of the work model, so the pipe may count fewer.
TENSOR_OPS_SHARE = 0.75
# An empty kernel takes no longer than another, but is timed once a session, at another clock. On a stream the host
# launches, and Triton's launch may cost several of torch's.
LAUNCH_FACTOR, STREAM_LAUNCH_FACTOR = 4, 20
EXAMPLE_PROFILE = "4405c83363b237efad1c8033b11f6dc2186780b3ecec760c977e5b81b342435d"
"""The profile of the golden ledgers: no device has it, and their made-up records hold fewer rounds than a timer's."""


def _refuse(code: str, message: str) -> Finding:
    return Finding(code=code, severity="refused", path="", message=message)


def _flag(code: str, message: str) -> Finding:
    return Finding(code=code, severity="flag", path="", message=message)


def check_all(
    *, forecast: Forecast, measurement: Measurement, hardware: Hardware, totals: CounterTotals | None
) -> tuple[Finding, ...]:
    """Return every finding about one measurement, refusals and flags, in the order of the checks."""
    found = [*work(forecast), *subject(forecast, measurement), *device(hardware, measurement)]
    if measurement.timing is not None:
        found += [
            *timing(measurement.timing),
            *rounds(forecast, measurement.timing),
            *launch(measurement, measurement.timing),
            *warm(forecast, measurement.timing),
            *above_roof(forecast, hardware, measurement.timing),
            *above_ceiling(forecast, hardware, measurement.timing),
            *interventions(forecast, hardware, measurement, measurement.timing),
        ]
    example = forecast.hardware_sha256 == EXAMPLE_PROFILE
    found += [
        _refuse("correctness-inconsistent", why) for why in correctness(forecast, measurement, counted=not example)
    ]
    found += [*settled(forecast, measurement), *clock(forecast, measurement)]
    if totals is not None:
        found += tensor_operations(forecast, totals)
    return tuple(found)


def work(forecast: Forecast) -> Iterator[Finding]:
    """Check that the sealed work is not empty: a percentage of a bound of zero is undefined."""
    if not (forecast.work.flops or forecast.work.bytes):
        yield _refuse("work-empty", "the sealed work is no operation and no byte; expected some")


def subject(forecast: Forecast, measurement: Measurement) -> Iterator[Finding]:
    """Check that what ran is what was sealed: cell, case, kernel and profile."""
    if measurement.cell != forecast.cell:
        yield _refuse("case-changed", f"measured cell {measurement.cell}; sealed is {forecast.cell}")
    if isinstance(measurement, MeasurementV2) != isinstance(forecast, ForecastV2):
        yield _refuse("version-changed", f"the measurement is {measurement.schema_}; expected the version of its seal")
        return
    for name in type(forecast.case).model_fields:
        got, sealed = getattr(measurement.case, name), getattr(forecast.case, name)
        if got != sealed:
            yield _refuse("case-changed", f"{name} is {got!r}; sealed is {sealed!r}")
    if isinstance(forecast, ForecastV2):
        for words in contradicted_pins(forecast.pins, measurement.device.versions):
            yield _refuse("pin-changed", words)
    pairs = (
        ("kernel-changed", "kernel source", measurement.kernel_sha256, forecast.kernel_sha256),
        ("profile-changed", "hardware profile", measurement.hardware_sha256, forecast.hardware_sha256),
    )
    for code, what, got, sealed in pairs:
        if got != sealed:
            yield _refuse(code, f"{what} was {got[:12]} when measured; sealed is {sealed[:12]}")


def device(hardware: Hardware, measurement: Measurement | RatioMeasurement) -> Iterator[Finding]:
    """Check that the device is the one that the sealed profile describes, by name, target and size."""
    seen = measurement.device
    if seen.name in hardware.device_names and (seen.target, seen.sms) == (hardware.target, hardware.limits.sms):
        return
    pairs: tuple[tuple[str, object, object, bool], ...] = (
        ("name", seen.name, " or ".join(hardware.device_names), seen.name in hardware.device_names),
        ("target", seen.target, hardware.target, seen.target == hardware.target),
        ("count of SMs or cores", seen.sms, hardware.limits.sms, seen.sms == hardware.limits.sms),
    )
    for what, got, expected, same in pairs:
        if not same:
            yield _refuse("device-mismatch", f"the device's {what} is {got}; {hardware.name} has {expected}")


def timing(seen: Timing) -> Iterator[Finding]:
    """Check that the median is that of the rounds, to the picosecond, and that its interval holds it."""
    shortest, longest = min(seen.rounds_ps), max(seen.rounds_ps)
    # Twice the median is a whole number.
    doubled = median_low(seen.rounds_ps) + median_high(seen.rounds_ps)
    if abs(2 * seen.median_ps - doubled) > 1:
        yield _refuse("timing-inconsistent", f"median is {seen.median_ps} ps; its rounds give {doubled / 2:g} ps")
    if not shortest <= seen.low_ps <= seen.median_ps <= seen.high_ps <= longest:
        yield _refuse(
            "timing-inconsistent",
            f"interval {seen.low_ps} to {seen.high_ps} ps around {seen.median_ps} ps; expected it to hold the "
            f"median and to be within the rounds, {shortest} to {longest} ps",
        )


def rounds(forecast: Forecast, seen: Timing) -> Iterator[Finding]:
    """Check that there are as many rounds as the sealed protocol takes whatever ends it: budget, interval or number."""
    if forecast.hardware_sha256 == EXAMPLE_PROFILE:
        return
    name, sealed, count = forecast.protocol.name, forecast.protocol.parameters, len(seen.rounds_ps)
    if name == STEADY_GRAPH.name:
        # The tail is one batch at least, of rounds of a millisecond.
        least, most = sealed.get("batch_ms", 1), count
    elif name in (COLD_GRAPH.name, COLD_CPU.name):
        least = sealed.get("min_rounds", 1)
        most = max(least, sealed.get("max_rounds", count))
    else:
        return
    if not least <= count <= most:
        expected = f"{least} to {most}" if count > most else f"{least} or more"
        yield _refuse("timing-inconsistent", f"{count} rounds; {name} as sealed takes {expected}")


def launch(measurement: Measurement, seen: Timing) -> Iterator[Finding]:
    """Check that an empty launch takes no longer than the call."""
    factor = STREAM_LAUNCH_FACTOR if STREAM in measurement.extensions else LAUNCH_FACTOR
    if seen.launch_ps is not None and seen.launch_ps > factor * seen.median_ps:
        yield _refuse("timing-inconsistent", f"an empty launch takes {seen.launch_ps} ps, a call {seen.median_ps} ps")


def interventions(forecast: Forecast, hardware: Hardware, measurement: Measurement, timed: Timing) -> Iterator[Finding]:
    """Check the interventions against the timed rounds, the sealed shape and work, and what the chip can do."""
    seen = readings_of(measurement.interventions) if measurement.interventions else None
    if seen is None:
        return
    yield from (_refuse("interventions-inconsistent", why) for why in contradictions(forecast, timed, seen))
    roof = physical_roof(forecast, hardware)
    if roof is None:
        return
    work = forecast.work
    # Warm data come from a cache.
    variants = [("cold", seen.cold_ps, work.flops, work.bytes), ("double", seen.double_ps, work.flops, work.bytes)]
    variants.append(("warm", seen.warm_ps, work.flops, 0))
    if work_of(forecast.case) != "given":
        variants += [(f"half_{one.axis}", one.ps, one.flops, one.bytes) for one in seen.halves]
    for name, call_ps, flops, moved in variants:
        least_s = lower_bound_s(flops, moved, roof.peak_flop_per_s, roof.bandwidth_bytes_per_s)
        if call_ps is not None and least_s > ROOF_MARGIN * call_ps * 1e-12:
            least = f"the datasheet of {hardware.name} allows {least_s * 1e12:.0f} or more at any clock"
            yield _refuse("interventions-inconsistent", f"{name}_ps is {call_ps}; {least}")


def warm(forecast: Forecast, seen: Timing) -> Iterator[Finding]:
    """Flag input sets that together are smaller than the sealed footprint: they may have stayed in the cache."""
    footprint = rotation_bytes(forecast, seen)
    least = forecast.protocol.parameters.get("footprint_min_bytes", 0)
    if footprint < least:
        yield _flag("maybe-warm", f"the input sets hold {si(footprint, 'B')}; the protocol asks for {si(least, 'B')}")


def physical_roof(forecast: Forecast, hardware: Hardware) -> Roof | None:
    """Return the datasheet's roof of the sealed path, the peak at the highest clock the chip has; None without one.

    A peak is rated at some clock, and a short run may boost past it (H100 fp16: 989.4 TFLOP/s at 1830 MHz, 1070 at
    1980). Only a result that the chip cannot reach at any clock is refused.
    """
    ceilings = hardware.ceilings.get("datasheet")
    peak = ceilings.peaks.get(forecast.roof.path) if ceilings else None
    if ceilings is None or peak is None:
        return None
    rated = base_units(peak)
    width = peak.flop_per_clk_per_sm or 0
    clock = hardware.limits.max_clock_mhz or 0
    boosted = int(width * hardware.limits.sms * clock * 1e6)
    return make_roof("datasheet", forecast.roof.path, max(rated, boosted), base_units(ceilings.dram_bandwidth))


def above_roof(forecast: Forecast, hardware: Hardware, seen: Timing) -> Iterator[Finding]:
    """Refuse a result that is faster than the chip can be."""
    roof = physical_roof(forecast, hardware)
    if roof is None:
        return
    percent = percent_of_roof(forecast.work, roof, seen.median_ps * 1e-12)
    if percent > 100 * ROOF_MARGIN:
        yield _refuse(
            "above-roof",
            f"{percent:.1f}% of what the datasheet of {hardware.name} allows at any clock; expected at most "
            f"{100 * ROOF_MARGIN:.0f}% (the work was not all done, or its data came from a cache)",
        )


def above_ceiling(forecast: Forecast, hardware: Hardware, seen: Timing) -> Iterator[Finding]:
    """Flag a result above a measured ceiling: the sealed one, or the profile's burst."""
    kinds: set[CeilingKind] = {forecast.roof.ceilings, "burst"} - {"datasheet"}
    for kind in sorted(kinds & set(hardware.ceilings)):
        ceilings = ceilings_of(hardware, kind)[1]
        peak = ceilings.peaks.get(forecast.roof.path)
        if peak is None:
            continue
        roof = make_roof(kind, forecast.roof.path, base_units(peak), base_units(ceilings.dram_bandwidth))
        percent = percent_of_roof(forecast.work, roof, seen.median_ps * 1e-12)
        if percent > 100:
            yield _flag("above-ceiling", f"{percent:.1f}% of the {kind} ceiling measured on {hardware.name}")


def _clocks(measurement: Measurement) -> tuple[int | None, int | None]:
    """Return the SM clock at the beginning and at the end of the timed rounds, in MHz."""
    if measurement.protocol.name == STEADY_GRAPH.name and isinstance(measurement.timing, TimingV2):
        inside = measurement.timing.sm_clock_mhz or (None,)
        return inside[0], inside[-1]
    before, after = measurement.before, measurement.after
    return before.sm_clock_mhz if before else None, after.sm_clock_mhz if after else None


def settled(forecast: Forecast, measurement: Measurement) -> Iterator[Finding]:
    """Flag a timing by cold-graph/2 that ended before its time and clock had settled."""
    timing, sealed = measurement.timing, forecast.protocol.parameters
    if forecast.protocol.name != STEADY_GRAPH.name or timing is None:
        return
    least = sealed.get("settle_batches", 0) * sealed.get("batch_ms", 0)
    if len(timing.rounds_ps) < least:
        yield _flag("not-settled", f"{len(timing.rounds_ps)} rounds agree in time and SM clock; expected {least}")
    wide = 1e6 * (timing.high_ps - timing.low_ps) / (2 * timing.median_ps)
    target = sealed.get("ci_target_ppm", 0)
    if wide > target:
        yield _flag("not-settled", f"the interval of the median is ± {wide / 1e4:.2f}%; sealed: {target / 1e4:g}%")


def clock(forecast: Forecast, measurement: Measurement) -> Iterator[Finding]:
    """Flag an SM clock that moved during timing by more than the sealed tolerance."""
    tolerance = forecast.protocol.parameters.get("clock_tolerance_ppm")
    before, after = _clocks(measurement)
    if tolerance is None or not before or not after:
        return
    if abs(after - before) * 1_000_000 > tolerance * before:
        moved = 100 * (after - before) / before
        allowed = tolerance / 10_000
        yield _flag(
            "clock-moved", f"the SM clock went from {before} to {after} MHz ({moved:+.1f}%; sealed: {allowed:g}%)"
        )


def tensor_operations(forecast: Forecast, totals: CounterTotals) -> Iterator[Finding]:
    """Check the tensor-operation counts against the sealed path and work; silent where the path was not counted."""
    path, flops = forecast.roof.path, forecast.work.flops
    if not path.endswith("_tensor"):
        if totals.tensor_ops:
            yield _refuse(
                "dtype-contradicted", f"{si(totals.tensor_ops, 'FLOP')} ran on tensor cores; sealed is {path}"
            )
        return
    counted = totals.tensor_ops_by_path.get(path)
    if counted == 0 and not totals.tensor_ops and is_callable(forecast.case.kernel) and totals.fma_pct:
        # A library chooses CUDA cores for some shapes, which are slower and no less precise.
        yield _flag("tensor-cores-idle", f"the CUDA cores did what was sealed as {si(flops, 'FLOP')} of {path}")
        return
    if counted is not None and counted < TENSOR_OPS_SHARE * flops:
        others = [f"{si(n, 'FLOP')} of {name}" for name, n in totals.tensor_ops_by_path.items() if n and name != path]
        yield _refuse(
            "dtype-contradicted",
            f"the tensor cores counted {si(counted, 'FLOP')} of {path}{' and ' if others else ''}{', '.join(others)}; "
            f"the sealed work is {si(flops, 'FLOP')} of {path}",
        )

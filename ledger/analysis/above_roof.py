"""Explains a percent of the roof above 100 from recorded facts. Pure.

A roof is a datasheet's or a measured one. A call may exceed a measured roof that was taken on a busy machine, and any
roof where its data stayed in a cache. What no recorded fact explains is called unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.analysis.cpu_noise import BUSY_PERCENT, busy_text, others_percent, spread_percent
from ledger.analysis.formatting import si
from ledger.analysis.protocols import rotation_bytes
from ledger.analysis.steady_timing import rounds_clock_mhz
from ledger.records import Ceilings, Forecast, Hardware, Measurement, Peak, Quantity, Timing, is_gpu
from ledger.roofline import base_units, ceilings_of, make_roof, memory_side, percent_of_roof

# Inputs that exceed the last cache by less than this are partly in it from one call to the next.
_CACHE_MULTIPLE = 2


def above_roof_reason(forecast: Forecast, measurement: Measurement, hardware: Hardware) -> str | None:
    """Return why the percent of a measurement is above 100; None where it is not above.

    hardware: the sealed profile. What recorded facts do not explain is unknown, with the remedy.
    """
    timing = measurement.timing
    if timing is None or not (forecast.work.flops or forecast.work.bytes):
        return None
    percent = percent_of_roof(forecast.work, forecast.roof, timing.median_ps * 1e-12)
    if percent <= 100:
        return None
    reasons = list(_cache(forecast, measurement, timing))
    if forecast.roof.ceilings in hardware.ceilings:
        reasons += _roof(forecast, measurement, hardware, percent)
    return "; ".join(reasons) or _unknown(hardware)


def _unknown(hardware: Hardware) -> str:
    device = "cuda" if is_gpu(hardware.target) else "cpu"
    return f"unknown: no recorded fact explains it; recalibrate on an idle machine: ledger calibrate --device {device}"


def _cache(forecast: Forecast, measurement: Measurement, timing: Timing) -> Iterator[str]:
    cache, footprint = measurement.device.l2_bytes, rotation_bytes(forecast, timing)
    if cache and footprint < _CACHE_MULTIPLE * cache:
        yield f"data may have stayed in the last cache, {si(cache, 'B')}: the input sets hold {si(footprint, 'B')}"


def _roof(forecast: Forecast, measurement: Measurement, hardware: Hardware, percent: float) -> Iterator[str]:
    kind, ceilings = ceilings_of(hardware, forecast.roof.ceilings)
    name, quantity = _binding(forecast, ceilings)
    if quantity is None:
        return
    if kind == "datasheet":
        yield from _clock(measurement, quantity)
        return
    yield from _spread(name, quantity, percent)
    if busy := busy_text(hardware.calibration):
        share = others_percent(measurement)
        quieter = share is not None and share < BUSY_PERCENT
        yield f"{busy}, and {share:.0f}% during this timing" if quieter else busy
    if name == "dram_bandwidth":
        yield from _other_bandwidth(quantity, ceilings)
    if "datasheet" in hardware.ceilings:
        yield from _datasheet(forecast, measurement, hardware)


def _binding(forecast: Forecast, ceilings: Ceilings) -> tuple[str, Quantity | None]:
    """Return the ceiling that sets the time lower bound of a forecast, with its name."""
    if memory_side(forecast.work, forecast.roof):
        return "dram_bandwidth", ceilings.dram_bandwidth
    return f"{forecast.roof.path} peak", ceilings.peaks.get(forecast.roof.path)


def _spread(name: str, quantity: Quantity, percent: float) -> Iterator[str]:
    spread = spread_percent(quantity)
    if not quantity.rounds or spread is None:
        return
    excess = percent - 100
    range_text = f"{min(quantity.rounds):g} to {max(quantity.rounds):g} {quantity.unit}"
    if 100 * max(quantity.rounds) >= percent * min(quantity.rounds):
        yield (
            f"{name} varied from {range_text} between the rounds of its calibration, by more than the "
            f"{excess:.1f} points above 100"
        )


def _other_bandwidth(quantity: Quantity, ceilings: Ceilings) -> Iterator[str]:
    others = {"write": ceilings.dram_write_bandwidth, "copy": ceilings.dram_copy_bandwidth}
    for what, other in others.items():
        if other is not None and base_units(other) > base_units(quantity):
            yield (
                f"the profile's own {what} bandwidth, {other.value:g} {other.unit}, is above the "
                f"{quantity.value:g} {quantity.unit} of the roof"
            )


def _clock(measurement: Measurement, quantity: Quantity) -> Iterator[str]:
    rated = quantity.clock_mhz if isinstance(quantity, Peak) else None
    inside = rounds_clock_mhz(measurement.timing) if measurement.timing else None
    clock = inside or (measurement.after.sm_clock_mhz if measurement.after else None)
    if rated is not None and clock is not None and clock > rated:
        yield f"the SM clock was {clock:.0f} MHz and the datasheet rates the peak at {rated:g} MHz"


def _datasheet(forecast: Forecast, measurement: Measurement, hardware: Hardware) -> Iterator[str]:
    sheet = hardware.ceilings["datasheet"]
    peak = sheet.peaks.get(forecast.roof.path)
    if peak is None or measurement.timing is None:
        return
    roof = make_roof("datasheet", forecast.roof.path, base_units(peak), base_units(sheet.dram_bandwidth))
    percent = percent_of_roof(forecast.work, roof, measurement.timing.median_ps * 1e-12)
    kind = forecast.roof.ceilings
    yield f"the roof is the {kind} rate that other code reached; of the datasheet's roof it is {percent:.1f}%"

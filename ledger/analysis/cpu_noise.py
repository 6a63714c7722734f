"""Explains how noisy a CPU was while its ceilings or a cell were measured. Pure.

Other work on a machine can only lower a rate. So a ceiling is the best of rounds that are spread over time, and the
spread of the rounds tells how far a shorter calibration could have been off.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from ledger.analysis.formatting import harmless
from ledger.records import Calibration, Hardware, Measurement, Quantity
from ledger.roofline import base_units

CPU_LOAD = "cpu_load/1"
"""The extension of a measurement on a CPU: `others_ppm` of the processors' time in `window_ms` used by others."""
BUSY_PERCENT = 10.0
"""The share of the processors' time that others may use before a machine is called busy."""
WIDE_PERCENT = 10.0
"""The spread of rounds from which on it is reported."""
_LOWER = 0.9


def spread_percent(quantity: Quantity) -> float | None:
    """Return (largest - smallest) ÷ largest of a quantity's rounds in percent, None where it has no rounds."""
    if not quantity.rounds:
        return None
    return 100 * (max(quantity.rounds) - min(quantity.rounds)) / max(quantity.rounds)


def named_quantities(hardware: Hardware) -> dict[str, Quantity]:
    """Return the burst ceilings of a profile by name: peaks by their path, then the bandwidths."""
    burst = hardware.ceilings.get("burst")
    if burst is None:
        return {}
    named: dict[str, Quantity | None] = {
        **{f"{path} peak": peak for path, peak in burst.peaks.items()},
        "dram_bandwidth": burst.dram_bandwidth,
        "dram_read_bandwidth": burst.dram_read_bandwidth,
        "dram_write_bandwidth": burst.dram_write_bandwidth,
        "dram_copy_bandwidth": burst.dram_copy_bandwidth,
    }
    return {name: quantity for name, quantity in named.items() if quantity is not None}


def busy_text(calibration: Calibration | None) -> str | None:
    """Return by how much a machine was busy during its calibration, None where it was not or nothing is known."""
    shares = calibration.others_percent if calibration else None
    if calibration is None or not shares or fmean(shares) < BUSY_PERCENT:
        return None
    load = calibration.load_average
    before = "" if load is None else f" (load average {load:g} before)"
    return (
        f"other processes used {fmean(shares):.0f}% of the processors while the ceilings were measured, "
        f"{min(shares):.0f}% in the quietest round{before}"
    )


def calibration_notes(hardware: Hardware) -> Iterator[str]:
    """Yield what the rounds of a calibration tell, at most 400 characters each: wide spreads, and a busy machine."""
    wide = [
        f"{name} {min(quantity.rounds):g} to {max(quantity.rounds):g} {harmless(quantity.unit)}"
        for name, quantity in named_quantities(hardware).items()
        if quantity.rounds and (spread_percent(quantity) or 0) >= WIDE_PERCENT
    ]
    if wide:
        yield f"noisy: a ceiling is the best of its rounds, which differed: {', '.join(wide)}"[:400]
    if (busy := busy_text(hardware.calibration)) is not None:
        yield f"busy: {busy}; the ceilings may be too low: calibrate again on an idle machine"


def lower_than_before(earlier: Hardware, now: Hardware) -> Iterator[str]:
    """Yield the ceilings that an earlier calibration of the same device reached and this one missed by over 10%."""
    if (earlier.device_names, earlier.limits.sms) != (now.device_names, now.limits.sms):
        return
    old = named_quantities(earlier)
    lower = [
        f"{name} {quantity.value:g} where it was {old[name].value:g} {harmless(old[name].unit)}"
        for name, quantity in named_quantities(now).items()
        if name in old and base_units(quantity) < _LOWER * base_units(old[name])
    ]
    if lower:
        yield f"low: below the calibration before, so calibrate again on an idle machine: {', '.join(lower)}"[:400]


def others_percent(measurement: Measurement) -> float | None:
    """Return the share of the processors that others used while a cell was timed on a CPU, None where unknown."""
    found = measurement.extensions.get(CPU_LOAD)
    share = found.get("others_ppm") if isinstance(found, dict) else None
    if not isinstance(share, int) or isinstance(share, bool):
        return None
    return share / 10_000 if 0 <= share <= 1_000_000 else None

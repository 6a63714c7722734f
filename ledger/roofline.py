"""Computes intensities, ridge points, roofs and time bounds. Pure: records in, numbers out, SI base units.

Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009. The time lower bound assumes that arithmetic and
memory traffic overlap perfectly and that each reaches its ceiling; it leaves out latency, launch and cache effects.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from ledger.errors import InputError
from ledger.records import (
    MAX_INTEGER,
    CeilingKind,
    Ceilings,
    Dtype,
    Hardware,
    Path,
    Quantity,
    Roof,
    RoofV2,
    Work,
)

MAX_PEAK_FLOP_PER_S = 10**40
"""The largest peak that a record of version 2 holds."""

_SCALE: dict[str, Fraction] = {
    "TFLOP/s": Fraction(10**12),
    "TOP/s": Fraction(10**12),
    "GFLOP/s": Fraction(10**9),
    "TB/s": Fraction(10**12),
    "GB/s": Fraction(10**9),
    "GB": Fraction(10**9),
    "MB": Fraction(10**6),
    "KiB": Fraction(2**10),
    "MiB": Fraction(2**20),
    "GiB": Fraction(2**30),
    "us": Fraction(1, 10**6),
    "B/clk/SM": Fraction(1),
    "registers": Fraction(1),
}

TENSOR_PATH: dict[Dtype, Path] = {
    "fp64": "fp64_tensor",
    "tf32": "tf32_tensor",
    "fp16": "fp16_tensor",
    "bf16": "bf16_tensor",
    "fp8_e4m3": "fp8_tensor",
    "int8": "int8_tensor",
}

DTYPE_BYTES: dict[Dtype, int] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8_e4m3": 1,
    "int8": 1,
}

ELEMENT_BYTES: dict[str, int] = {
    **dict(DTYPE_BYTES.items()),
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of an element of a callable's argument, by the name of its dtype."""


_MOST = 10**300


def base_units(quantity: Quantity) -> int:
    """Return a quantity in base units (FLOP/s, B/s, B), rounded to an integer.

    Raises: InputError for a unit that is not in the table.
    """
    if quantity.unit not in _SCALE:
        raise InputError(f"unit {quantity.unit!r} is not known; expected one of {', '.join(_SCALE)}")
    return _scaled(quantity.value, quantity.unit)


def base_float(quantity: Quantity) -> float:
    """Return a quantity in base units as a float to draw, at most 1e300: a profile may say more than a float holds.

    Raises: as base_units.
    """
    return float(min(base_units(quantity), _MOST))


@lru_cache(maxsize=1024)
def _scaled(value: float, unit: str) -> int:
    return round(Fraction(str(value)) * _SCALE[unit])


def seconds(quantity: Quantity) -> float:
    """Return a time quantity in seconds."""
    return float(Fraction(str(quantity.value)) * _SCALE[quantity.unit])


def arithmetic_intensity(work: Work) -> float:
    """Return FLOP per byte of compulsory DRAM traffic."""
    return work.flops / work.bytes


def ridge_point(roof: Roof) -> float:
    """Return the intensity in FLOP/byte at which the two ceilings meet."""
    return roof.peak_flop_per_s / roof.bandwidth_bytes_per_s


def time_lower_bound_s(work: Work, roof: Roof) -> float:
    """Return max(flops ÷ peak, bytes ÷ bandwidth) in seconds."""
    return lower_bound_s(work.flops, work.bytes, roof.peak_flop_per_s, roof.bandwidth_bytes_per_s)


def lower_bound_s(flops: int, bytes_moved: int, peak_flop_per_s: int, bandwidth_bytes_per_s: int) -> float:
    """Return the same for numbers."""
    return max(flops / peak_flop_per_s, bytes_moved / bandwidth_bytes_per_s)


def percent_of_roof(work: Work, roof: Roof, duration_s: float) -> float:
    """Return 100 × time lower bound ÷ measured time."""
    return 100.0 * time_lower_bound_s(work, roof) / duration_s


def memory_side(work: Work, roof: Roof) -> bool:
    """Tell whether the case is on the memory-bound side of the ridge, where memory sets its time lower bound."""
    return work.flops * roof.bandwidth_bytes_per_s <= work.bytes * roof.peak_flop_per_s


def ceilings_of(hardware: Hardware, kind: CeilingKind | None) -> tuple[CeilingKind, Ceilings]:
    """Return the named set of ceilings, or the default: the datasheet's where there is one, else the burst's.

    Raises: InputError when the profile has no such set.
    """
    chosen: CeilingKind = kind or ("datasheet" if "datasheet" in hardware.ceilings else "burst")
    if chosen not in hardware.ceilings:
        have = ", ".join(hardware.ceilings)
        raise InputError(f"profile {hardware.name} has no {chosen} ceilings; expected one of: {have}")
    return chosen, hardware.ceilings[chosen]


def _rate_text(rate: int) -> str:
    # An integer beyond 1e308 is no float.
    return f"{rate:.3g}" if rate < 10**300 else "above 1e300"


def make_roof(ceilings: CeilingKind, path: Path, peak_flop_per_s: int, bandwidth_bytes_per_s: int) -> Roof:
    """Return a roof; one whose peak is 2**53 FLOP/s or more needs version 2 of the format.

    Raises: InputError for a rate that no record holds: none at all, or more than any chip's.
    """
    for what, rate, most in (
        ("peak", peak_flop_per_s, MAX_PEAK_FLOP_PER_S),
        ("bandwidth", bandwidth_bytes_per_s, MAX_INTEGER),
    ):
        if not 1 <= rate <= most:
            raise InputError(f"{ceilings} {what} of {path} is {_rate_text(rate)} a second; expected 1 to {most:.3g}")
    kind = Roof if peak_flop_per_s <= MAX_INTEGER else RoofV2
    return kind(
        ceilings=ceilings,
        path=path,
        peak_flop_per_s=peak_flop_per_s,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
    )


def roof_of(hardware: Hardware, path: Path, kind: CeilingKind | None = None) -> Roof:
    """Return the roof of an instruction path on a device.

    Raises: InputError when the chip has no such path, naming those it has.
    """
    chosen, ceilings = ceilings_of(hardware, kind)
    peak = ceilings.peaks.get(path)
    if peak is None:
        have = ", ".join(sorted(name for name, value in ceilings.peaks.items() if value is not None))
        raise InputError(f"{hardware.name} has no {path} peak among its {chosen} ceilings; expected one of: {have}")
    return make_roof(chosen, path, base_units(peak), base_units(ceilings.dram_bandwidth))

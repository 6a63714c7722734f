"""Checks that a sealed roof is the usual one: the profile's numbers, and the path of the dtype (check 13). Pure.

A lower roof makes every percent higher. Another number or path is possible (a corrected datasheet, a kernel without
tensor cores), so each difference is shown by name and refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ledger.analysis.formatting import si
from ledger.operations import OPERATIONS
from ledger.records import CeilingKind, Finding, Forecast, Hardware, Path, is_gpu
from ledger.roofline import TENSOR_PATH, base_units, ceilings_of, roof_of, time_lower_bound_s

# Measured ceilings vary from chip to chip: a tenth below the shipped ones, or half of the datasheet's, is no variation.
MEASURED_SHARE, DATASHEET_SHARE = 0.9, 0.5
_WITHOUT_TENSOR_PATH = ("sm_70", "sm_75")
"""Targets for which Triton compiles products to fp32 multiply-adds (docs/campaigns.md)."""


def unlike_shipped(sealed: Hardware, shipped: Iterable[Hardware]) -> Iterator[Finding]:
    """Yield what in a sealed profile is unlike the shipped profile of its name or device; the caller adds the path."""
    for known in shipped:
        if sealed.name != known.name and not set(sealed.device_names) & set(known.device_names):
            continue
        for what in _differences(sealed, known):
            yield _flag("profile-unlike-shipped", f"profile {sealed.name}: {what}, in the shipped profile {known.name}")


def _differences(sealed: Hardware, known: Hardware) -> Iterator[str]:
    """Yield each difference as: WHAT is GOT; expected EXPECTED."""
    pairs: tuple[tuple[str, object, object], ...] = (
        ("target", sealed.target, known.target),
        ("count of SMs", sealed.limits.sms, known.limits.sms),
        ("highest clock", _clock(sealed), _clock(known)),
    )
    yield from (f"{what} is {got}; expected {expected}" for what, got, expected in pairs if got != expected)
    rated = _numbers(known, "datasheet")
    own = _numbers(sealed, "datasheet")
    for what, expected in rated.items():
        if own.get(what) != expected:
            got = f"is {si(own[what], _unit(what))}" if what in own else "is not given"
            yield f"datasheet {what} {got}; expected {si(expected, _unit(what))}"
    widths = _widths(known)
    for path, width in _widths(sealed).items():
        if width != widths.get(path):
            yield f"datasheet {path} is {width} FLOP/clk/SM; expected {widths.get(path)}"
    kinds: tuple[CeilingKind, ...] = ("burst", "sustained")
    for kind in kinds:
        measured = _numbers(known, kind)
        for what, value in _numbers(sealed, kind).items():
            least = MEASURED_SHARE * measured[what] if what in measured else DATASHEET_SHARE * rated.get(what, 0)
            if value < least:
                yield f"{kind} {what} is {si(value, _unit(what))}; expected {si(least, _unit(what))} or more"


def _clock(hardware: Hardware) -> str:
    clock = hardware.limits.max_clock_mhz
    return "not given" if clock is None else f"{clock:g} MHz"


def _numbers(hardware: Hardware, kind: CeilingKind) -> dict[str, int]:
    """Return the numbers of a set of ceilings that a roof is made of, in base units; none where the set is absent."""
    if kind not in hardware.ceilings:
        return {}
    ceilings = hardware.ceilings[kind]
    peaks = {f"{path} peak": base_units(peak) for path, peak in ceilings.peaks.items() if peak is not None}
    return {"DRAM bandwidth": base_units(ceilings.dram_bandwidth), **peaks}


def _widths(hardware: Hardware) -> dict[str, int | None]:
    """Return FLOP/clk/SM by path of the datasheet's peaks: with the clock they bound what a result may be."""
    ceilings = hardware.ceilings.get("datasheet")
    peaks = ceilings.peaks.items() if ceilings is not None else ()
    return {path: peak.flop_per_clk_per_sm for path, peak in peaks if peak is not None}


def _unit(what: str) -> str:
    return "B/s" if what == "DRAM bandwidth" else "FLOP/s"


def unlike_path(forecast: Forecast, hardware: Hardware) -> Iterator[Finding]:
    """Yield that a forecast is sealed on a slower path than its dtype's, where that makes its percent higher.

    The caller adds the path of the seal.
    """
    usual, roof = usual_path(forecast, hardware), forecast.roof
    if usual is None or usual == roof.path or not (forecast.work.flops or forecast.work.bytes):
        return
    expected = roof_of(hardware, usual, roof.ceilings)
    factor = time_lower_bound_s(forecast.work, roof) / time_lower_bound_s(forecast.work, expected)
    if expected.peak_flop_per_s > roof.peak_flop_per_s and factor > 1.001:
        yield _flag(
            "path-unlike-dtype",
            f"{forecast.cell}: sealed on path {roof.path}; {forecast.case.dtype} products usually run on {usual}, "
            f"whose roof makes the percents {factor:.1f} times smaller",
        )


def usual_path(forecast: Forecast, hardware: Hardware) -> Path | None:
    """Return the path on which products of a case's dtype usually run on a GPU; None where there is no such rule."""
    operation, case = OPERATIONS.get(forecast.operation), forecast.case
    if not is_gpu(hardware.target) or (operation is not None and not operation.products(case.shape)):
        return None
    usual: Path = TENSOR_PATH.get(case.dtype, "fp32")
    if forecast.roof.path == "fp32" and hardware.target in _WITHOUT_TENSOR_PATH:
        return None
    return usual if ceilings_of(hardware, forecast.roof.ceilings)[1].peaks.get(usual) is not None else None


def _flag(code: str, message: str) -> Finding:
    return Finding(code=code, severity="flag", path="", message=message)

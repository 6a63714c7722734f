"""Tells what differs between two forecasts of a cell: sources, profile, launch configuration, protocol, roof. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.analysis.formatting import PATH_NAMES, si
from ledger.records import Forecast, ForecastV2

_DIGITS = 8
"""Digits of a digest that name a version of sources or of a profile."""


@dataclass(frozen=True)
class Change:
    """Hold one thing that differs, and both of its values; None where a forecast does not have it."""

    what: str
    before: str | None
    after: str | None

    @property
    def text(self) -> str:
        """Return the change in words: num_warps 4 → 8."""
        return f"{self.what} {self.before or 'none'} → {self.after or 'none'}"


def changes(before: Forecast, after: Forecast) -> tuple[Change, ...]:
    """Return what differs between two forecasts in how the cell runs and in its roof, not in what was expected."""
    earlier, later = dict(_described(before)), dict(_described(after))
    keys = [*earlier, *(key for key in later if key not in earlier)]
    return tuple(Change(key, earlier.get(key), later.get(key)) for key in keys if earlier.get(key) != later.get(key))


def version_of(forecast: Forecast) -> str:
    """Return what names the version of a kernel's sources: the first digits of their digest."""
    return forecast.kernel_sha256[:_DIGITS]


def _described(forecast: Forecast) -> Iterator[tuple[str, str]]:
    """Yield what a forecast fixes of its run, by name."""
    case, roof = forecast.case, forecast.roof
    yield "kernel sources", version_of(forecast)
    yield "implementation", case.implementation
    for key, value in sorted(case.config.items()):
        yield key, str(value)
    if case.threads is not None:
        yield "threads", str(case.threads)
    yield "profile", forecast.hardware_sha256[:_DIGITS]
    yield "ceilings", roof.ceilings
    yield "path", PATH_NAMES[roof.path]
    yield "peak", si(roof.peak_flop_per_s, "FLOP/s")
    yield "DRAM", si(roof.bandwidth_bytes_per_s, "B/s")
    yield "modelled bytes", str(forecast.work.bytes)
    yield "modelled FLOP", str(forecast.work.flops)
    yield "protocol", forecast.protocol.name
    if isinstance(forecast, ForecastV2):
        for name, version in sorted(forecast.pins.items()):
            yield f"pin of {name}", version

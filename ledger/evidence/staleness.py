"""Tells whether an open forecast is stale: its kernel or its profile is another one now. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from ledger.callables.subject import sources_name
from ledger.records import Forecast

CurrentDigest = Callable[[Literal["kernel", "hardware"], str], str | None]
"""Return the digest of a kernel or profile as it is now, by its name; None when there is none of that name."""


class SealedSubject(NamedTuple):
    """Hold what a forecast is of: the names of its kernel's sources and its profile, and their sealed digests."""

    sources: str
    hardware: str
    kernel_sha256: str
    hardware_sha256: str


def subject_of_seal(forecast: Forecast) -> SealedSubject:
    """Return what a forecast is of."""
    case = forecast.case
    return SealedSubject(sources_name(case), case.hardware, forecast.kernel_sha256, forecast.hardware_sha256)


def is_stale(subject: SealedSubject, current: CurrentDigest) -> bool:
    """Tell whether the kernel or the profile of an open forecast is another one now."""
    now = (current("kernel", subject.sources), current("hardware", subject.hardware))
    return now != (subject.kernel_sha256, subject.hardware_sha256)

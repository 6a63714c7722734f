"""Says what had been timed before a forecast: blind, near or informed, as declared and as records show. Pure.

The rules are here alone. Two profiles are one device when they share a name, a device name or all of their figures
(Devices). A shape is a neighbour of another when every size is within a factor of two of the other's (is_neighbour).
A record of the same sources, shape and dtype shows that a forecast is informed; a record of another version, of another
kernel of the operation, or of a neighbouring shape in a dtype of the same width shows that it is at best near.
Sizes that stand as numbers in a callable's arguments are sizes as those of its shape are (sizes_of).
Interventions time a call at half of a size: those shapes were measured as well (measured_shapes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ledger.analysis.interventions import readings_of
from ledger.analysis.sight_names import SIGHTS
from ledger.records import Case, Forecast, ForecastV2, Hardware, Measurement, Sight

NEIGHBOUR_FACTOR = 2

Shape = tuple[tuple[str, int], ...]
"""Sizes by key, sorted by key."""


def worst(sights: Iterable[Sight | None]) -> Sight | None:
    """Return the sight that knew most; None where none is given."""
    return max((sight for sight in sights if sight is not None), key=SIGHTS.index, default=None)


def counts_as_blind(sight: Sight | None) -> bool:
    """Tell what the older key `blind` says of a cell: neither its author nor a record says that more was known."""
    return sight in (None, "blind")


def declared(forecast: Forecast) -> tuple[Sight | None, str]:
    """Return what a forecast declares, and what was known, in words; version 1 declares nothing."""
    return (forecast.sight, forecast.known) if isinstance(forecast, ForecastV2) else (None, "")


def shape_of(sizes: Mapping[str, int]) -> Shape:
    """Return sizes as a shape."""
    return tuple(sorted(sizes.items()))


def sizes_of(case: Case) -> Shape:
    """Return the sizes of a case: its shape, and the numbers in a callable's arguments."""
    return shape_of({**case.shape, **case.literal_sizes})


def is_neighbour(shape: Shape, other: Shape) -> bool:
    """Tell whether two shapes have the same keys and every size within a factor of two."""
    if [key for key, _ in shape] != [key for key, _ in other]:
        return False
    pairs = zip(shape, other, strict=True)
    return all(max(size, against) <= NEIGHBOUR_FACTOR * min(size, against) for (_, size), (_, against) in pairs)


def measured_shapes(measurement: Measurement) -> tuple[Shape, ...]:
    """Return the shapes that a finished measurement holds times of: its own, then those of its interventions."""
    if measurement.status != "measured":
        return ()
    sizes, literal = measurement.case.shape, measurement.case.literal_sizes
    readings = readings_of(measurement.interventions) if measurement.interventions else None
    halves = readings.halves if readings else ()
    halved = [{**sizes, half.axis: sizes[half.axis] // 2} for half in halves if sizes.get(half.axis, 0) > 1]
    return tuple(shape_of({**found, **literal}) for found in (sizes, *halved))


class Devices:
    """Tell which profiles describe one device, whatever they are called."""

    def __init__(self, profiles: Iterable[Hardware]) -> None:
        """Join profiles that share a name, a device name or all figures."""
        self._above: dict[object, object] = {}
        for profile in profiles:
            self.add(profile)

    def add(self, profile: Hardware) -> None:
        """Join one more profile."""
        name = ("name", profile.name)
        for other in _tokens(profile):
            self._above[self._top(other)] = self._top(name)

    def joined_by(self, profile: Hardware) -> bool:
        """Tell whether a profile would make one device of several."""
        known = {self._top(token) for token in [*self._above]}
        return len(known & {self._top(token) for token in (("name", profile.name), *_tokens(profile))}) > 1

    def of(self, name: str) -> object:
        """Return what stands for the device of the profiles of a name."""
        return self._top(("name", name))

    def _top(self, token: object) -> object:
        while (above := self._above.get(token, token)) != token:
            # Halving the path keeps a long chain of names short.
            self._above[token] = self._above.get(above, above)
            token = above
        return token


def _tokens(profile: Hardware) -> Iterable[object]:
    for device in profile.device_names:
        yield ("device", profile.target, " ".join(device.casefold().split()))
    figures = [
        (
            kind,
            ceilings.dram_bandwidth.value,
            ceilings.dram_bandwidth.unit,
            *sorted((path, peak.value) for path, peak in ceilings.peaks.items() if peak),
        )
        for kind, ceilings in sorted(profile.ceilings.items())
    ]
    yield ("figures", profile.target, profile.limits.sms, tuple(figures))


@dataclass(frozen=True)
class Shown:
    """Hold what a record shows of an earlier forecast: the sight that it leaves, the record's path, and why."""

    sight: Sight
    path: str
    words: str

"""Finds which records show that the author of a forecast may have known more than was declared. Pure.

What a record shows is the rule of analysis.sight; here it is looked up among many. A record that does not come after
the seal may have been known, one on a parallel branch too. Work stays small for a hostile history: of equal records
only those are held that show more than the ones before, they are searched by halving, and shapes are compared at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from ledger.analysis.book import Recorded, RecordedRatio
from ledger.analysis.formatting import harmless
from ledger.analysis.sight import NEIGHBOUR_FACTOR, Devices, Shape, Shown, measured_shapes, sizes_of
from ledger.callables.subject import is_callable
from ledger.git.ancestry import Ancestry, FileSet, Meter
from ledger.records import Case, Dtype, Forecast, Measurement, RatioMeasurement, Sight
from ledger.roofline import DTYPE_BYTES

MOST_COMPARED = 256
"""Records that follow no seal by their order alone, of which the graph is asked for one forecast."""

Before = Callable[[Iterable[int]], FileSet]
"""Return the seals that come before each of some commits."""


class Timed(NamedTuple):
    """Hold a shape that a record timed. sources: what stands for the code that ran."""

    path: str
    kernel: str
    sources: str
    shape: Shape
    dtype: Dtype
    hardware: str


def timed_by(path: str, measurement: Measurement | RatioMeasurement) -> Iterator[Timed]:
    """Yield what a finished measurement timed: its shape and those of its interventions, or both sides of a ratio."""
    case = measurement.case
    if isinstance(measurement, Measurement):
        digests: tuple[str, ...] = (measurement.kernel_sha256,)
        shapes = measured_shapes(measurement)
    else:
        digests = (measurement.base.kernel_sha256, measurement.head.kernel_sha256)
        shapes = (sizes_of(case),)
    for shape in shapes:
        for digest in digests:
            yield Timed(path, case.kernel, code_of(case, digest), shape, case.dtype, case.hardware)


@dataclass(frozen=True)
class _Entry:
    """Hold a record that timed a shape: its path, the kernel that ran, and the seals that come before it."""

    path: str
    kernel: str
    shape: Shape
    dtype: Dtype
    before: FileSet

    @property
    def words(self) -> str:
        sizes = ",".join(f"{key}={size}" for key, size in self.shape)
        return harmless(f"{self.path} holds a time of {self.kernel} {sizes} {self.dtype}", 300)


@dataclass
class _Entries:
    """Hold records of one thing, oldest first, each with the seals that come before it and before all earlier ones."""

    entries: list[_Entry] = field(default_factory=list)
    before_all: list[FileSet] = field(default_factory=list)

    def add(self, entry: _Entry) -> bool:
        """Add a record unless every seal that comes before the earlier ones comes before it as well."""
        before = self.before_all[-1].both(entry.before) if self.before_all else entry.before
        if self.before_all and before == self.before_all[-1]:
            return False
        self.entries.append(entry)
        self.before_all.append(before)
        return True

    def first_known(self, number: int) -> _Entry | None:
        """Return the oldest record that a seal does not come before."""
        place = bisect_left(self.before_all, True, key=lambda before: not before.holds(number))
        return self.entries[place] if place < len(self.entries) else None


@dataclass
class _Group:
    """Hold the entries of one operation, device, width of dtype and set of shape keys, in the order of the history."""

    entries: list[_Entry] = field(default_factory=list)
    sizes: Any = None

    def near(self, shape: Shape) -> Iterator[_Entry]:
        """Yield the entries whose every size is within the factor of a neighbour's, oldest first."""
        import numpy as np

        if self.sizes is None or len(self.sizes) != len(self.entries):
            self.sizes = np.array([[size for _, size in entry.shape] for entry in self.entries], dtype=np.int64)
        wanted = np.array([size for _, size in shape], dtype=np.int64)
        larger, smaller = np.maximum(self.sizes, wanted), np.minimum(self.sizes, wanted)
        for index in np.flatnonzero((larger <= NEIGHBOUR_FACTOR * smaller).all(axis=1)):
            yield self.entries[int(index)]


class KnownCases:
    """Look up what was measured of a forecast's case, of other versions of it, and of its neighbours."""

    def __init__(self, devices: Devices, before: Before, number: Callable[[str], int]) -> None:
        """Begin with nothing measured. number: that of a seal, by its path, in the sets that `before` gives."""
        self._devices = devices
        self._before = before
        self._number = number
        self._cells: dict[object, _Entries] = {}
        self._groups: dict[object, _Group] = {}
        self._shapes: dict[object, FileSet] = {}
        self._meter = Meter()
        self._kernels: dict[object, dict[str, None]] = {}

    def add(self, recorded: Recorded | RecordedRatio, operation: str | None, positions: tuple[int, ...]) -> None:
        """Add a finished measurement, in the order of the history. operation: that of its seal, where it has one."""
        before = self._before(positions)
        for timed in timed_by(recorded.path, recorded.measurement):
            self.put(timed, operation, before)

    def put(self, timed: Timed, operation: str | None, before: FileSet) -> None:
        """Add one shape that a record timed. before: the seals that come before the record."""
        device = self._devices.of(timed.hardware)
        cell = (device, timed.dtype, timed.shape)
        entry = _Entry(timed.path, timed.kernel, timed.shape, timed.dtype, before)
        self._hold((cell, "sources", timed.sources), entry)
        self._hold((cell, "kernel", timed.kernel), entry)
        if operation is not None:
            self._hold((cell, "operation", operation, timed.kernel), entry)
            self._kernels.setdefault((cell, operation), {})[timed.kernel] = None
            self._near(entry, operation, device)

    def _hold(self, key: object, entry: _Entry) -> None:
        if self._cells.setdefault(key, _Entries()).add(entry):
            self._meter.hold(entry.before.rest)

    def _near(self, entry: _Entry, operation: str, device: object) -> None:
        key = _group(operation, device, entry.dtype, entry.shape)
        known = self._shapes.get((key, entry.shape))
        both = entry.before if known is None else known.both(entry.before)
        if both != known:
            self._shapes[key, entry.shape] = both
            self._meter.hold(entry.before.rest)
            self._groups.setdefault(key, _Group()).entries.append(entry)

    def same_sources(self, forecast: Forecast, seal: str) -> Shown | None:
        """Return a record of the forecast's own case: same sources, shape, dtype and device."""
        return self._first(forecast, seal, "informed", "sources", code_of(forecast.case, forecast.kernel_sha256))

    def same_kernel(self, forecast: Forecast, seal: str) -> Shown | None:
        """Return a record of another version of the kernel at the forecast's shape, dtype and device."""
        return self._first(forecast, seal, "near", "kernel", forecast.case.kernel)

    def other_kernels(self, forecast: Forecast, seal: str) -> list[Shown]:
        """Return records of other kernels of the operation at the forecast's shape, dtype and device."""
        kernels = self._kernels.get((self._cell(forecast), forecast.operation), {})
        others = islice((name for name in kernels if name != forecast.case.kernel), MOST_COMPARED)
        found = (self._first(forecast, seal, "near", "operation", forecast.operation, name) for name in others)
        return [shown for shown in found if shown is not None]

    def neighbour(self, forecast: Forecast, seal: str) -> Shown | None:
        """Return a record of the operation at a neighbouring shape, in a dtype of the same width."""
        shape, dtype = sizes_of(forecast.case), forecast.case.dtype
        device = self._devices.of(forecast.case.hardware)
        group = self._groups.get(_group(forecast.operation, device, dtype, shape))
        if group is None:
            return None
        number = self._number(seal)
        known = (entry for entry in islice(group.near(shape), MOST_COMPARED) if not entry.before.holds(number))
        return next((Shown("near", entry.path, entry.words) for entry in known), None)

    def _first(self, forecast: Forecast, seal: str, sight: Sight, *what: str) -> Shown | None:
        entries = self._cells.get((self._cell(forecast), *what))
        entry = None if entries is None else entries.first_known(self._number(seal))
        return None if entry is None else Shown(sight, entry.path, entry.words)

    def _cell(self, forecast: Forecast) -> object:
        case = forecast.case
        return (self._devices.of(case.hardware), case.dtype, sizes_of(case))

    def disproof(self, forecast: Forecast, seal: str, claim: Sight | None) -> Shown | None:
        """Return what records show of a forecast: informed, near, or None.

        claim: what its author says. Of an undeclared forecast only records of its own cell are asked: it counts as
        blind nowhere. A claim of near or informed is disproved by its own case alone.
        """
        shown = self.same_sources(forecast, seal)
        if shown is None and claim in (None, "blind"):
            shown = self.same_kernel(forecast, seal)
        if shown is None and claim == "blind":
            others = self.other_kernels(forecast, seal)
            shown = others[0] if others else self.neighbour(forecast, seal)
        return shown


def code_of(case: Case, digest: str) -> str:
    """Return what stands for the code of a case: its sources, and which callable of them with which arguments."""
    return f"{digest} {case.cell[0]}" if is_callable(case.kernel) else digest


def _group(operation: str, device: object, dtype: Dtype, shape: Shape) -> object:
    return (operation, device, DTYPE_BYTES[dtype], tuple(key for key, _ in shape))


def known_cases(
    devices: Devices,
    recorded: Iterable[Recorded | RecordedRatio],
    operation_of: Callable[[Recorded | RecordedRatio], str | None],
    ancestry: Ancestry,
    introduced: Callable[[str], tuple[int, ...]],
) -> KnownCases:
    """Return what a judged history has measured; a record that comes after a seal is not known to it."""
    known = KnownCases(devices, ancestry.before_all, ancestry.number)
    for item in recorded:
        if item.measurement.status == "measured":
            known.add(item, operation_of(item), introduced(item.path))
    return known


def in_order(recorded: Sequence[Recorded], ratios: Sequence[RecordedRatio]) -> list[Recorded | RecordedRatio]:
    """Return measurements of cells and of claims in the order of the history."""
    return sorted((*recorded, *ratios), key=lambda item: (item.commit.position, item.path)) if ratios else [*recorded]

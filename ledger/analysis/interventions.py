"""Names the regime without counters, by what changed the time of a call. Pure.

This is grade B of docs/regimes.md. It reads only a measurement without counters that carries interventions; one
that has counters is judged by them, and one that has neither stays undetermined. docs/measurement.md explains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.callables.subject import is_callable, work_of
from ledger.records import Forecast, Grade, Measurement, Regime, Roof, Timing, Work
from ledger.roofline import memory_side

# Parts per million. 60% is the threshold of regime/1: a resource used that much, or a time that follows it that far.
_LONG_PS = 500_000_000_000
"""Time beyond which measure.intervene leaves a variant out on a GPU: four rotations of the input sets and six calls."""
_THRESHOLD_PPM = 600_000
_WARM_GAIN_PPM = 1_250_000
_STEADY_PPM = 200_000
_APART_PPM = 100_000
_MILLION = 1_000_000
_COLD_FACTOR = 10
"""The cold call is the timed one, run again: on a busy machine it still is not this far outside the timed rounds."""
_CACHE_GAIN = 1000
"""No cache is this many times as fast as main memory."""
_CALLABLE_WORK = 4
"""A callable may choose another algorithm at half a shape; a kernel's work grows with every axis."""

_TIMES = ("cold_ps", "warm_ps", "double_ps")
_HALF = re.compile(r"half_([A-Za-z][A-Za-z0-9]{0,15})_(ps|flops|bytes)")
_MOST = 2**53
Named = tuple[Regime | None, Grade, str]


@dataclass(frozen=True)
class Half:
    """Hold a call at half of one axis of the shape. Units: picoseconds, operations, bytes."""

    axis: str
    ps: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class InterventionReadings:
    """Hold what the interventions gave, picoseconds a call; None where one could not be made.

    cold: as timed. warm: one input set again and again. double: a round of twice the calls. halves: by axis.
    """

    cold_ps: int
    warm_ps: int | None = None
    double_ps: int | None = None
    halves: tuple[Half, ...] = ()


def readings_of(stored: Mapping[str, Any]) -> InterventionReadings | None:
    """Return a record's readings, None where they are not positive integers under the names of docs/measurement.md.

    A callable without products has 0 operations, also at half of an axis.
    """
    halves: dict[str, dict[str, int]] = {}
    for name, value in stored.items():
        match = _HALF.fullmatch(name)
        least = 0 if match and match[2] == "flops" else 1
        if type(value) is not int or not least <= value <= _MOST:
            return None
        if match:
            halves.setdefault(match[1], {})[match[2]] = value
        elif name not in _TIMES:
            return None
    if "cold_ps" not in stored or any(len(fields) != 3 for fields in halves.values()):
        return None
    return InterventionReadings(
        **{name: stored[name] for name in _TIMES if name in stored},
        halves=tuple(Half(axis, **halves[axis]) for axis in sorted(halves)),
    )


def stored_of(readings: InterventionReadings) -> dict[str, int]:
    """Return readings as a record stores them: integers by name."""
    stored = {name: value for name in _TIMES if (value := getattr(readings, name)) is not None}
    for half in readings.halves:
        stored |= {f"half_{half.axis}_{name}": getattr(half, name) for name in ("ps", "flops", "bytes")}
    return stored


def contradictions(forecast: Forecast, timing: Timing, seen: InterventionReadings) -> Iterator[str]:
    """Yield how readings contradict the timed rounds, the sealed shape or the sealed work."""
    least, most = min(timing.rounds_ps), max(timing.rounds_ps)
    if seen.cold_ps * _COLD_FACTOR < least or seen.cold_ps > most * _COLD_FACTOR:
        yield f"cold_ps is {seen.cold_ps}; the same call took {least} to {most} ps in the timed rounds"
    if seen.warm_ps is not None and seen.warm_ps * _CACHE_GAIN < seen.cold_ps:
        yield f"warm_ps is {seen.warm_ps} and cold_ps {seen.cold_ps}; expected at most {_CACHE_GAIN} times as much"
    for half in seen.halves:
        # An axis is halved where it is even.
        if forecast.case.shape.get(half.axis, 1) % 2:
            yield f"half_{half.axis}_ps: the sealed shape has no axis {half.axis} of even size"
            continue
        yield from _more_work(forecast, half)


def _more_work(forecast: Forecast, half: Half) -> Iterator[str]:
    # Work that an author gave is not counted as that at half of an axis is.
    if work_of(forecast.case) == "given":
        return
    factor = _CALLABLE_WORK if is_callable(forecast.case.kernel) else 1
    for name in ("flops", "bytes"):
        got, whole = getattr(half, name), getattr(forecast.work, name)
        if got > factor * whole:
            yield f"half_{half.axis}_{name} is {got}; the whole shape has {whole}"


def used_ppm(work: Work, roof: Roof, call_ps: int) -> tuple[int, int]:
    """Return the least share of DRAM's and of the arithmetic's roof that a cold call used: the work it cannot avoid."""
    dram = _MILLION * work.bytes * 10**12 // (call_ps * roof.bandwidth_bytes_per_s)
    pipe = _MILLION * work.flops * 10**12 // (call_ps * roof.peak_flop_per_s)
    return dram, pipe


@dataclass(frozen=True)
class _Cell:
    """Hold a cell's work, roof and readings while the rule reads them."""

    work: Work
    roof: Roof
    seen: InterventionReadings
    launch_ps: int
    fits: bool

    def fell_ppm(self, half: Half) -> int:
        """Return by how much the time without its launch fell."""
        return _MILLION * (self.seen.cold_ps - half.ps) // max(self.seen.cold_ps - self.launch_ps, 1)

    def flops_ppm(self, half: Half) -> int:
        return _MILLION * (self.work.flops - half.flops) // max(self.work.flops, 1)

    def bytes_ppm(self, half: Half) -> int:
        return _MILLION * (self.work.bytes - half.bytes) // max(self.work.bytes, 1)

    @property
    def followed_ppm(self) -> int:
        """Return how much of the work taken away the time followed, on the axis that takes most away."""
        on_left = memory_side(self.work, self.roof)
        share = self.bytes_ppm if on_left else self.flops_ppm
        widest = max(self.seen.halves, key=share)
        return _MILLION * self.fell_ppm(widest) // max(share(widest), 1)

    @property
    def operations_only(self) -> Half | None:
        """Return the axis that takes operations away and leaves bytes, where one does."""
        apart = {half: self.flops_ppm(half) - self.bytes_ppm(half) for half in self.seen.halves}
        best = max(apart, key=lambda half: apart[half])
        return best if apart[best] >= _APART_PPM else None


def decide(
    readings: InterventionReadings,
    *,
    work: Work,
    roof: Roof,
    launch_ps: int | None,
    set_bytes: int,
    cache_bytes: int | None,
    input_sets: int = 1,
) -> Named:
    """Apply the table of grade B: return the regime (None: not determined), the grade, and the reason.

    Units: `launch_ps` an empty graph node (None: not measured), `set_bytes` one input set with its output,
    `cache_bytes` the last cache (None: unknown). input_sets: how many the timed rotation has.
    """
    seen = readings
    if seen.warm_ps is None or not seen.halves:
        what = "the interventions lack the warm run or a halved shape"
        if (4 * input_sets + 6) * seen.cold_ps < _LONG_PS:
            return None, "C", what
        call = f"a call of {seen.cold_ps / 1e9:.0f} ms" + (f" on {input_sets} input sets" if input_sets > 1 else "")
        return None, "C", f"{what}: {call} exceeds the time that they may take"
    if seen.double_ps is not None and abs(seen.double_ps - seen.cold_ps) * _MILLION > _STEADY_PPM * seen.cold_ps:
        return None, "C", "the time of a call changed with the number of calls in a round"
    if launch_ps is not None and 2 * launch_ps >= seen.cold_ps:
        return "launch-bound", "B", f"an empty launch takes {100 * launch_ps / seen.cold_ps:.0f}% of the call"
    fits = cache_bytes is not None and 2 * set_bytes <= cache_bytes
    return _shared(_Cell(work, roof, seen, launch_ps or 0, fits))


def _shared(cell: _Cell) -> Named:
    """Name the resource of a call that is not mostly launch."""
    seen, warm_ps = cell.seen, cell.seen.warm_ps
    assert warm_ps is not None
    dram, pipe = used_ppm(cell.work, cell.roof, seen.cold_ps)
    warms = seen.cold_ps * _MILLION >= _WARM_GAIN_PPM * warm_ps
    if pipe >= max(_THRESHOLD_PPM, dram):
        return "compute-bound", "B", f"the operations alone take {pipe // 10_000}% of the arithmetic's peak"
    # Data that fit the cache and are no slower cold may not have come from DRAM at all.
    if dram >= _THRESHOLD_PPM and (warms or not cell.fits):
        return "hbm-bound", "B", f"cold data alone take {dram // 10_000}% of DRAM's peak"
    followed = cell.followed_ppm
    if max(dram, pipe) < _THRESHOLD_PPM and followed < _THRESHOLD_PPM:
        return "latency-bound", "B", f"with half the work the time followed by {max(followed, 0) // 10_000}% only"
    if warms:
        return "hbm-bound", "B", f"with its data in the cache a call takes {100 * warm_ps // seen.cold_ps}% of the time"
    memory: Regime = "l2-bound" if cell.fits else "hbm-bound"
    where = "as long in the cache" if cell.fits else "and its data do not fit the cache"
    half = cell.operations_only
    if half is None:
        if memory_side(cell.work, cell.roof):
            return memory, "B", f"on the memory-bound side, {where}"
        return "compute-bound", "B", "on the compute-bound side, and no slower with cold data"
    fell = cell.fell_ppm(half)
    words = f"at half {half.axis} the time fell by {max(fell, 0) // 10_000}%"
    if 2 * fell >= cell.flops_ppm(half) + cell.bytes_ppm(half):
        return "compute-bound", "B", f"{words}, as the operations do"
    return memory, "B", f"{words}, as the bytes do, {where}"


def regime_by_interventions(forecast: Forecast, measurement: Measurement) -> Named:
    """Name the regime of a measurement that has interventions and no counters."""
    timing, readings = measurement.timing, readings_of(measurement.interventions)
    assert timing is not None, "a regime needs a measured time"
    if readings is None:
        return None, "C", "the interventions are not what docs/measurement.md describes"
    for contradiction in contradictions(forecast, timing, readings):
        return None, "C", contradiction
    return decide(
        readings,
        work=forecast.work,
        roof=forecast.roof,
        launch_ps=timing.launch_ps,
        set_bytes=timing.bytes_per_set,
        cache_bytes=measurement.device.l2_bytes,
        input_sets=timing.input_sets,
    )

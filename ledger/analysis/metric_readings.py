"""Reads profiler metrics as numbers and combines them over the kernels of one call, by the table in metrics. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from ledger.analysis.amdgcn import is_amd
from ledger.analysis.counters import CounterTotals
from ledger.analysis.metrics import ROWS, TABLE, TENSOR_ROWS, Capability, Combine, MetricRow, capability_of
from ledger.analysis.rocprof_counters import combined as rocprof_values
from ledger.errors import InputError, RecordError
from ledger.records import Counters, Metric, ProfiledKernel

_NUMBER = re.compile(r"^-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?$")


def number_of(metric: Metric, row: MetricRow, name: str) -> float:
    """Return a reading as a number. Raises: RecordError for another unit or for what is no number."""
    if metric.unit not in row.units:
        expected = " or ".join(repr(unit) for unit in row.units)
        raise RecordError(f"metric {name}: unit is {metric.unit!r}; expected {expected}")
    if not _NUMBER.match(metric.value):
        raise RecordError(f"metric {name}: value is {metric.value[:40]!r}; expected a number")
    number = float(metric.value.replace(",", ""))
    if not math.isfinite(number):
        raise RecordError(f"metric {name}: value is {metric.value[:40]!r}; expected a finite number")
    return number


@dataclass(frozen=True)
class MetricReadings:
    """Hold the counters of one call, combined over its kernels, by our names; a name is absent where ncu gave none.

    Units: nanoseconds, bytes, percent of peak, hertz; stalls in warps waiting per issue.
    """

    values: Mapping[str, float]
    kernels: int

    def get(self, name: str) -> float | None:
        """Return a reading by our name. Raises: InputError for a name that is not in the table."""
        if name not in ROWS:
            raise InputError(f"counter {name!r} is not in the metric table; expected one of: {', '.join(ROWS)}")
        return self.values.get(name)

    @property
    def bank_conflict_share(self) -> float | None:
        """Return the share of shared-memory wavefronts that bank conflicts cost, from 0 to 1."""
        pairs = [pair for pair in (self._conflicts("load"), self._conflicts("store")) if pair is not None]
        total = sum(wavefronts for _, wavefronts in pairs)
        return sum(conflicts for conflicts, _ in pairs) / total if total else None

    def bank_conflict_share_of(self, way: Literal["load", "store"]) -> float | None:
        """Return the share of the wavefronts of loads or of stores alone, as NVIDIA's own rule counts it."""
        found = self._conflicts(way)
        return found[0] / found[1] if found is not None and found[1] else None

    def _conflicts(self, way: str) -> tuple[float, float] | None:
        conflicts, wavefronts = self.get(f"smem_{way}_conflicts"), self.get(f"smem_{way}_wavefronts")
        return None if conflicts is None or wavefronts is None else (conflicts, wavefronts)

    @property
    def occupancy_limiters(self) -> tuple[str, ...]:
        """Return what limits the resident blocks of the longest kernel, of blocks, registers, smem and warps; all of
        them that allow the fewest."""
        limits = {name: self.get(f"limit_{name}") for name in ("blocks", "registers", "smem", "warps")}
        known = {name: value for name, value in limits.items() if value is not None}
        return tuple(name for name, value in known.items() if value == min(known.values()))

    @property
    def stalls(self) -> tuple[tuple[str, float], ...]:
        """Return the stall reasons with the warps that wait for each per issue, the most frequent first."""
        found = [(name.removeprefix("stall_"), v) for name, v in self.values.items() if name.startswith("stall_")]
        return tuple(sorted(found, key=lambda pair: -pair[1]))

    @property
    def top_stall(self) -> tuple[str, float] | None:
        """Return the most frequent stall reason and its warps per issue."""
        return self.stalls[0] if self.stalls else None


def _reading(kernel: ProfiledKernel, row: MetricRow, capability: Capability) -> float | None:
    name = row.metrics.get(capability)
    metric = None if name is None else kernel.metrics.get(name)
    return None if metric is None or name is None else number_of(metric, row, name)


def readings(counters: Counters, target: str) -> MetricReadings:
    """Return the counters of one call as numbers.

    Raises: RecordError when a kernel has no duration or a reading has another unit; InputError for an unknown target.
    """
    if is_amd(target):
        return MetricReadings(rocprof_values(counters.kernels), len(counters.kernels))
    capability = capability_of(target)
    durations: list[float] = []
    for kernel in counters.kernels:
        duration = _reading(kernel, ROWS["duration"], capability)
        if duration is None or duration <= 0:
            raise RecordError(
                f"kernel {kernel.name[:80]}: no duration; expected {ROWS['duration'].metrics[capability]}"
            )
        durations.append(duration)
    values: dict[str, float] = {}
    for row in TABLE:
        given = [_reading(kernel, row, capability) for kernel in counters.kernels]
        known = [reading for reading in given if reading is not None]
        if len(known) == len(given):
            values[row.name] = combined = _combined(known, durations, row.combine)
            if not math.isfinite(combined):
                raise RecordError(f"metric {row.name}: its kernels together give {combined}; expected a finite number")
    return MetricReadings(values, len(counters.kernels))


def _combined(given: list[float], durations: list[float], combine: Combine) -> float:
    if combine == "sum":
        return math.fsum(given)
    if combine == "mean":
        return fmean(given, weights=durations)
    return given[durations.index(max(durations))]


def _tensor_ops_by_path(values: Mapping[str, float], target: str) -> dict[str, int]:
    """Return the operations of each path of which every row that the chip lists was read."""
    if is_amd(target):
        return {path: round(values[first]) for path, (first, *_) in TENSOR_ROWS.items() if first in values}
    capability = capability_of(target)
    listed = {path: [name for name in names if capability in ROWS[name].metrics] for path, names in TENSOR_ROWS.items()}
    return {
        path: round(sum(values[name] for name in names))
        for path, names in listed.items()
        if names and all(name in values for name in names)
    }


def totals(counters: Counters, target: str) -> CounterTotals:
    """Return the counters of one call as the report needs them. Raises: as `readings`."""
    return totals_read(readings(counters, target), target)


def totals_read(seen: MetricReadings, target: str) -> CounterTotals:
    """Return counters that were read as the report needs them."""
    values = seen.values

    def whole(name: str) -> int | None:
        return None if name not in values else round(values[name])

    counted = [value for name, value in values.items() if name.startswith("tensor_ops_")]
    return CounterTotals(
        duration_ps=round(1000 * values["duration"]),
        dram_bytes_read=whole("dram_read_bytes"),
        dram_bytes_written=whole("dram_write_bytes"),
        dram_pct=values.get("dram_percent"),
        l2_pct=values.get("l2_percent"),
        smem_pct=values.get("smem_percent"),
        tensor_pct=values.get("tensor_percent"),
        fma_pct=values.get("fma_percent"),
        alu_pct=values.get("alu_percent"),
        fp64_pct=values.get("fp64_percent"),
        sm_clock_hz=values.get("sm_clock_hz"),
        waves=values.get("waves"),
        grid_blocks=values.get("grid_blocks"),
        occupancy_pct=values.get("warps_active_percent"),
        bank_conflict_share=seen.bank_conflict_share,
        occupancy_limiters=seen.occupancy_limiters,
        top_stall=seen.top_stall[0] if seen.top_stall else None,
        threads_per_instruction=values.get("threads_per_instruction"),
        tensor_ops=round(sum(counted)) if counted else None,
        tensor_ops_by_path=_tensor_ops_by_path(values, target),
    )

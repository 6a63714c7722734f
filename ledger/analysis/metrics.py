"""Holds the one table of profiler metrics, and adds them up over the kernels of one call. Pure.

Each row: our name, the metric of Nsight Compute on each compute capability, the unit it must come in, how the kernels
of one call are combined, and what the number leaves out. A capability that is absent has no such metric.
Source: `ncu --query-metrics --chip CHIP` of Nsight Compute 2025.3.1 (tests/assets/ncu/query-metrics.json).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ledger.analysis.counters import CounterTotals
from ledger.errors import InputError, RecordError
from ledger.records import Counters, Metric, Path, ProfiledKernel

Capability = Literal["7.5", "8.0", "8.6", "8.9", "9.0", "10.0"]
Combine = Literal["sum", "mean", "longest"]

CAPABILITIES: tuple[Capability, ...] = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0")

_TIME = ("ns", "nsecond")
_BYTES = ("byte",)
_PERCENT = ("%",)
_RATE = ("hz", "cycle/second")
_NUMBER = re.compile(r"^-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?$")


@dataclass(frozen=True)
class MetricRow:
    """Hold one row of the table.

    units: spellings accepted, all of one size; `--print-units base` is always given.
    combine: over the kernels of one call: sum; mean, weighted by duration; or the longest kernel's.
    """

    name: str
    metrics: Mapping[Capability, str]
    units: tuple[str, ...]
    combine: Combine
    leaves_out: str


def _row(name: str, metric: str, units: tuple[str, ...], combine: Combine, leaves_out: str) -> MetricRow:
    return MetricRow(name, dict.fromkeys(CAPABILITIES, metric), units, combine, leaves_out)


def _share(name: str, unit: str, leaves_out: str) -> MetricRow:
    return _row(name, f"{unit}.avg.pct_of_peak_sustained_elapsed", _PERCENT, "mean", leaves_out)


def _stall(reason: str, leaves_out: str = "why a warp that was not sampled at issue waited") -> MetricRow:
    metric = f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    return _row(f"stall_{reason}", metric, ("", "inst"), "mean", leaves_out)


def _tensor_ops() -> tuple[MetricRow, ...]:
    """Return the counts of tensor-core operations by source dtype; the rows of one chip do not overlap."""
    both = "sm__ops_path_tensor_src_{}.sum"
    ampere: tuple[Capability, ...] = ("8.0", "8.6", "8.9")
    split: dict[Capability, str] = dict.fromkeys((*ampere, "10.0"), both.format("fp16_dst_fp32"))
    half: dict[Capability, str] = dict.fromkeys(("7.5", *ampere, "10.0"), both.format("fp16_dst_fp16"))
    newer: tuple[Capability, ...] = (*ampere, "9.0", "10.0")
    rows: dict[str, dict[Capability, str]] = {
        "fp16": {**split, "7.5": both.format("fp16_bf16_tf32_dst_fp32"), "9.0": both.format("fp16")},
        "fp16_dst_fp16": half,
        "bf16": dict.fromkeys(newer, both.format("bf16_dst_fp32")),
        "tf32": dict.fromkeys(newer, both.format("tf32_dst_fp32")),
        "fp64": dict.fromkeys(newer, both.format("fp64")),
        "fp8": {"8.9": both.format("fp8"), "9.0": both.format("fp8"), "10.0": both.format("fp4_fp6_fp8_dst_fp32")},
        "int8": dict.fromkeys(CAPABILITIES, both.format("int8")),
    }
    leaves_out = "products of padding are counted as well; sparse operations count as dense"
    return tuple(
        MetricRow(f"tensor_ops_{name}", metrics, ("", "op"), "sum", leaves_out) for name, metrics in rows.items()
    )


TABLE: tuple[MetricRow, ...] = (
    _row("duration", "gpu__time_duration.sum", _TIME, "sum", "launch and the gaps between kernels"),
    _row("dram_bytes", "dram__bytes.sum", _BYTES, "sum", "traffic over PCIe or NVLink"),
    _row("dram_read_bytes", "dram__bytes_read.sum", _BYTES, "sum", "traffic over PCIe or NVLink"),
    _row("dram_write_bytes", "dram__bytes_write.sum", _BYTES, "sum", "what is still dirty in L2 at the end"),
    _share("dram_percent", "gpu__dram_throughput", "whether the traffic was needed"),
    _row("l2_bytes", "lts__t_bytes.sum", _BYTES, "sum", "nothing; it counts fills from DRAM too"),
    _share(
        "l2_percent", "lts__throughput", "nothing, and it counts fills from DRAM, so it is never far below DRAM's own"
    ),
    _share("l2_read_percent", "lts__lts2xbar_cycles_active", "writes, and fills from DRAM"),
    _share("l2_write_percent", "lts__xbar2lts_cycles_active", "reads other than their requests"),
    _share("l2_sector_percent", "lts__t_sectors", "the crossbar between SM and L2"),
    _row("l2_hit_percent", "lts__t_sector_hit_rate.pct", _PERCENT, "mean", "sectors that another slice held"),
    _row("l1_bytes", "l1tex__t_bytes.sum", _BYTES, "sum", "TMA, which bypasses the L1 tags; shared memory"),
    _share("l1_percent", "l1tex__throughput", "TMA"),
    _share("smem_percent", "l1tex__data_pipe_lsu_wavefronts_mem_shared", "TMA's own writes; wgmma's reads are counted"),
    _row("smem_load_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", ("",), "sum", "TMA and wgmma"),
    _row(
        "smem_store_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", ("",), "sum", "TMA and wgmma"
    ),
    _row("smem_load_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", ("",), "sum", "TMA"),
    _row("smem_store_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", ("",), "sum", "TMA"),
    _share("sm_percent", "sm__throughput", "memory outside the SM"),
    _share("compute_memory_percent", "gpu__compute_memory_throughput", "arithmetic"),
    _share("tensor_percent", "sm__pipe_tensor_cycles_active", "how full an instruction's tile is"),
    _share("fma_percent", "sm__pipe_fma_cycles_active", "tensor cores"),
    _share("alu_percent", "sm__pipe_alu_cycles_active", "tensor cores"),
    _share("fp64_percent", "sm__pipe_fp64_cycles_active", "fp64 tensor cores"),
    _share("issue_percent", "sm__inst_issued", "what an instruction does"),
    _row(
        "warps_active_percent",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        _PERCENT,
        "mean",
        "SMs that had no work",
    ),
    _row(
        "threads_per_instruction",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        ("", "thread", "thread/inst"),
        "mean",
        "predicated-off threads",
    ),
    _row("waves", "launch__waves_per_multiprocessor", ("",), "longest", "an uneven last wave's length"),
    _row("grid_blocks", "launch__grid_size", ("", "block"), "longest", "persistent programs' work per block"),
    _row("registers_per_thread", "launch__registers_per_thread", ("register/thread",), "longest", "spills"),
    _row("limit_blocks", "launch__occupancy_limit_blocks", ("block",), "longest", "all other limits"),
    _row("limit_registers", "launch__occupancy_limit_registers", ("block",), "longest", "all other limits"),
    _row("limit_smem", "launch__occupancy_limit_shared_mem", ("block",), "longest", "all other limits"),
    _row("limit_warps", "launch__occupancy_limit_warps", ("block",), "longest", "all other limits"),
    _row("sm_clock_hz", "sm__cycles_elapsed.avg.per_second", _RATE, "mean", "its course within the kernel"),
    _row("dram_clock_hz", "dram__cycles_elapsed.avg.per_second", _RATE, "mean", "its course within the kernel"),
    *_tensor_ops(),
    _stall("long_scoreboard"),
    _stall("short_scoreboard"),
    _stall("barrier"),
    _stall("wait"),
    _stall("math_pipe_throttle"),
    _stall("mio_throttle"),
    _stall("lg_throttle"),
    _stall("no_instruction"),
    _stall("not_selected"),
    _stall("membar"),
)

ROWS: Mapping[str, MetricRow] = {row.name: row for row in TABLE}

# The rows that together count a path's operations; a chip lists some or none of them. The row fp16 counts bf16 and tf32
# as well on 7.5, which has neither, and fp8 counts fp6 and fp4 on 10.0.
TENSOR_ROWS: Mapping[Path, tuple[str, ...]] = {
    "fp16_tensor": ("tensor_ops_fp16", "tensor_ops_fp16_dst_fp16"),
    "bf16_tensor": ("tensor_ops_bf16",),
    "tf32_tensor": ("tensor_ops_tf32",),
    "fp64_tensor": ("tensor_ops_fp64",),
    "fp8_tensor": ("tensor_ops_fp8",),
    "int8_tensor": ("tensor_ops_int8",),
}


def capability_of(target: str) -> Capability:
    """Return the compute capability of a compiler target. Raises: InputError for one that the table lacks."""
    for capability in CAPABILITIES:
        if target == f"sm_{capability.replace('.', '')}":
            return capability
    raise InputError(f"target {target} has no row in the metric table; expected one of: {', '.join(CAPABILITIES)}")


def metric_names(capability: Capability) -> tuple[str, ...]:
    """Return the metrics to ask the profiler for."""
    return tuple(row.metrics[capability] for row in TABLE if capability in row.metrics)


def number_of(metric: Metric, row: MetricRow, name: str) -> float:
    """Return a reading as a number. Raises: RecordError for another unit or for what is no number."""
    if metric.unit not in row.units:
        expected = " or ".join(repr(unit) for unit in row.units)
        raise RecordError(f"metric {name}: unit is {metric.unit!r}; expected {expected}")
    if not _NUMBER.match(metric.value):
        raise RecordError(f"metric {name}: value is {metric.value[:40]!r}; expected a number")
    return float(metric.value.replace(",", ""))


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
            values[row.name] = _combined(known, durations, row.combine)
    return MetricReadings(values, len(counters.kernels))


def _combined(given: list[float], durations: list[float], combine: Combine) -> float:
    if combine == "sum":
        return sum(given)
    if combine == "mean":
        return sum(r * d for r, d in zip(given, durations, strict=True)) / sum(durations)
    return given[durations.index(max(durations))]


def _tensor_ops_by_path(values: Mapping[str, float], capability: Capability) -> dict[str, int]:
    """Return the operations of each path of which every row that the chip lists was read."""
    listed = {path: [name for name in names if capability in ROWS[name].metrics] for path, names in TENSOR_ROWS.items()}
    return {
        path: round(sum(values[name] for name in names))
        for path, names in listed.items()
        if names and all(name in values for name in names)
    }


def totals(counters: Counters, target: str) -> CounterTotals:
    """Return the counters of one call as the report needs them.

    Raises: as `readings`.
    """
    seen = readings(counters, target)
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
        occupancy_pct=values.get("warps_active_percent"),
        bank_conflict_share=seen.bank_conflict_share,
        occupancy_limiters=seen.occupancy_limiters,
        top_stall=seen.top_stall[0] if seen.top_stall else None,
        threads_per_instruction=values.get("threads_per_instruction"),
        tensor_ops=round(sum(counted)) if counted else None,
        tensor_ops_by_path=_tensor_ops_by_path(values, capability_of(target)),
    )

"""Holds the one table of profiler metrics. Pure data; metric_readings combines them over the kernels of one call.

Each row: our name, the metric of Nsight Compute on each compute capability, the unit it must come in, how the kernels
of one call are combined, and what the number leaves out. A capability that is absent has no such metric.
Source: `ncu --query-metrics --chip CHIP` of Nsight Compute 2025.3.1 (tests/assets/ncu/query-metrics.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ledger.errors import InputError
from ledger.records import Path

Capability = Literal["7.5", "8.0", "8.6", "8.9", "9.0", "10.0"]
Combine = Literal["sum", "mean", "longest"]

CAPABILITIES: tuple[Capability, ...] = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0")

_TIME = ("ns", "nsecond")
_BYTES = ("byte",)
_PERCENT = ("%",)
_RATE = ("hz", "cycle/second")


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
    _share("xu_percent", "sm__inst_executed_pipe_xu", "which of its instructions are exponentials: conversions count"),
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
    _row("sm_clock_hz", "sm__cycles_elapsed.avg.per_second", _RATE, "mean", "changes within the kernel"),
    _row("dram_clock_hz", "dram__cycles_elapsed.avg.per_second", _RATE, "mean", "changes within the kernel"),
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

"""Counters as Nsight Compute prints them for the toy device of samples."""

from __future__ import annotations

from ledger.analysis.metrics import ROWS
from ledger.records import Counters, Metric, ProfiledKernel


def counters(**changes: str) -> Counters:
    """Return what ncu prints for the toy memory case: 2 ms, 1.1 GB of DRAM traffic, DRAM 55% and L2 57% of peak."""
    values = {
        "duration": ("2000000", "ns"),
        "dram_read_bytes": ("1,000,000,000", "byte"),
        "dram_write_bytes": ("100000000", "byte"),
        "dram_percent": ("55.0", "%"),
        "l2_percent": ("57.0", "%"),
        "smem_percent": ("10.0", "%"),
        "tensor_percent": ("9.0", "%"),
        "fma_percent": ("5.0", "%"),
        "alu_percent": ("5.0", "%"),
        "fp64_percent": ("0", "%"),
        "sm_clock_hz": ("1000000000", "hz"),
        "waves": ("0.97", ""),
        "warps_active_percent": ("12.4", "%"),
    }
    values |= {name: (value, "%") for name, value in changes.items() if name not in values}
    metrics = {
        ROWS[name].metrics["9.0"]: Metric(value=changes.get(name, value), unit=unit)
        for name, (value, unit) in values.items()
    }
    return Counters(
        tool="ncu",
        command="ncu",
        cache_control="none",
        clock_control="none",
        kernels=(ProfiledKernel(name="toy", metrics=metrics),),
    )

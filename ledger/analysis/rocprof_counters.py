"""Reads counters of rocprofv3 as the numbers of the metric table, for AMD's gfx942. Pure.

Source: AMD ROCm documentation, MI300 and MI200 performance counters, and the definitions of derived counters that ship
with rocprofiler-sdk (counter_defs.yaml: FETCH_SIZE, WRITE_SIZE). Never compared with a card.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ledger.errors import RecordError
from ledger.records import ProfiledKernel

DURATION = "Duration"
"""End_Timestamp - Start_Timestamp of a dispatch, in ns: the reader adds it to the counters."""
LAUNCH = ("Grid_Size", "Workgroup_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count", "LDS_Block_Size")
"""Columns about the launch, which the reader keeps beside the counters."""

Values = Mapping[str, float]
Combine = Literal["sum", "mean", "longest"]
_MOPS = 512  # operations that one count of a MFMA_MOPS counter stands for
_KIB = 1024


@dataclass(frozen=True)
class Formula:
    """Hold how counters give one of the table's numbers. combine: over the kernels of one call, as MetricRow has it."""

    name: str
    needs: tuple[str, ...]
    value: Callable[[Values], float]
    combine: Combine
    leaves_out: str


def _mops(name: str, counter: str) -> Formula:
    needs = f"SQ_INSTS_VALU_MFMA_MOPS_{counter}"
    return Formula(f"tensor_ops_{name}", (needs,), lambda v: _MOPS * v[needs], "sum", "which products are of padding")


def _same(name: str, counter: str, combine: Combine, leaves_out: str) -> Formula:
    return Formula(name, (counter,), lambda v: v[counter], combine, leaves_out)


_CACHE = "whether the Infinity Cache or HBM served it"
_READS = ("TCC_EA0_RDREQ_sum", "TCC_EA0_RDREQ_32B_sum", "TCC_BUBBLE_sum")
_WRITES = ("TCC_EA0_WRREQ_sum", "TCC_EA0_WRREQ_64B_sum")


def _read_bytes(v: Values) -> float:
    every, short, long = (v[name] for name in _READS)
    return 32 * short + 128 * long + 64 * (every - short - long)


def _written_bytes(v: Values) -> float:
    every, long = (v[name] for name in _WRITES)
    return 64 * long + 32 * (every - long)


# Of two formulas of one number the first whose counters were collected is taken.
FORMULAS: tuple[Formula, ...] = (
    _same("duration", DURATION, "sum", "launch and the gaps between kernels"),
    Formula("dram_read_bytes", _READS, _read_bytes, "sum", _CACHE),
    Formula("dram_read_bytes", ("FETCH_SIZE",), lambda v: _KIB * v["FETCH_SIZE"], "sum", _CACHE),
    Formula("dram_write_bytes", _WRITES, _written_bytes, "sum", _CACHE),
    Formula("dram_write_bytes", ("WRITE_SIZE",), lambda v: _KIB * v["WRITE_SIZE"], "sum", _CACHE),
    Formula(
        "l2_hit_percent",
        ("TCC_HIT_sum", "TCC_MISS_sum"),
        lambda v: 100 * v["TCC_HIT_sum"] / (v["TCC_HIT_sum"] + v["TCC_MISS_sum"]),
        "mean",
        "which die's L2",
    ),
    _same("tensor_percent", "MfmaUtil", "mean", "how full an instruction's tile is"),
    _same("warps_active_percent", "OccupancyPercent", "mean", "compute units without work"),
    _same("smem_load_conflicts", "SQ_LDS_BANK_CONFLICT", "sum", "loads and stores apart"),
    _same("smem_load_wavefronts", "SQ_LDS_IDX_ACTIVE", "sum", "loads and stores apart"),
    Formula(
        "grid_blocks",
        ("Grid_Size", "Workgroup_Size"),
        lambda v: v["Grid_Size"] / v["Workgroup_Size"],
        "longest",
        "persistent programs' work per block",
    ),
    Formula(
        "registers_per_thread",
        ("VGPR_Count", "Accum_VGPR_Count"),
        lambda v: v["VGPR_Count"] + v["Accum_VGPR_Count"],
        "longest",
        "spills",
    ),
    _mops("fp16", "F16"),
    _mops("bf16", "BF16"),
    _mops("tf32", "XF32"),
    _mops("fp64", "F64"),
    _mops("fp8", "F8"),
    _mops("int8", "I8"),
)
COUNTERS: frozenset[str] = frozenset(name for one in FORMULAS for name in one.needs)


def values_of(kernel: ProfiledKernel) -> dict[str, tuple[float, str]]:
    """Return one kernel's numbers by the table's names, each with how it combines.

    Raises: RecordError for a reading that is no number, or a kernel without a duration.
    """
    read = {name: _number(metric.value, name) for name, metric in kernel.metrics.items() if name in COUNTERS}
    if read.get(DURATION, 0) <= 0:
        raise RecordError(f"kernel {kernel.name[:80]}: no duration; expected {DURATION} in ns, above 0")
    found: dict[str, tuple[float, str]] = {}
    for one in FORMULAS:
        if one.name in found or any(name not in read for name in one.needs):
            continue
        try:
            found[one.name] = one.value(read), one.combine
        except ZeroDivisionError:
            continue
    return found


def combined(kernels: Sequence[ProfiledKernel]) -> dict[str, float]:
    """Return the numbers of one call over its kernels, without those that a kernel lacks. Raises: RecordError."""
    each = [values_of(kernel) for kernel in kernels]
    durations = [one["duration"][0] for one in each]
    values = {}
    for name, (_, combine) in each[0].items():
        given = [one[name][0] for one in each if name in one]
        if len(given) != len(each):
            continue
        if combine == "sum":
            values[name] = math.fsum(given)
        elif combine == "mean":
            values[name] = math.fsum(map(math.prod, zip(given, durations, strict=True))) / math.fsum(durations)
        else:
            values[name] = given[durations.index(max(durations))]
        if not math.isfinite(values[name]):
            raise RecordError(f"counter {name}: its kernels together give {values[name]}; expected a finite number")
    return values


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise RecordError(f"counter {name}: value is {text[:40]!r}; expected a number") from error
    if not math.isfinite(number) or number < 0:
        raise RecordError(f"counter {name}: value is {text[:40]!r}; expected a finite number, not below 0")
    return number

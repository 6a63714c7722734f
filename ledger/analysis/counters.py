"""Defines the typed totals of one profiled call, all in base units. Pure; imports nothing of ledger.

None means that the profiler gave no value; it never means zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CounterTotals:
    """Hold what the counters say of one call, summed or weighted by time over the kernels that it launched.

    Units: picoseconds, bytes, hertz, operations; `_pct` in percent of the sustained peak over the elapsed time.
    bank_conflict_share is from 0 to 1; threads_per_instruction, of 32, shows divergence.
    tensor_ops_by_path: operations of the tensor cores by the instruction path that their source dtype makes; a path of
    which the profiler did not print every row is absent.
    """

    duration_ps: int | None = None
    dram_bytes_read: int | None = None
    dram_bytes_written: int | None = None
    dram_pct: float | None = None
    l2_pct: float | None = None
    smem_pct: float | None = None
    tensor_pct: float | None = None
    fma_pct: float | None = None
    alu_pct: float | None = None
    fp64_pct: float | None = None
    sm_clock_hz: float | None = None
    waves: float | None = None
    grid_blocks: float | None = None
    occupancy_pct: float | None = None
    bank_conflict_share: float | None = None
    occupancy_limiters: tuple[str, ...] = ()
    top_stall: str | None = None
    threads_per_instruction: float | None = None
    tensor_ops: int | None = None
    tensor_ops_by_path: Mapping[str, int] = field(default_factory=dict)

    @property
    def dram_bytes(self) -> int | None:
        """Return DRAM traffic in both directions, None when either direction is unknown."""
        if self.dram_bytes_read is None or self.dram_bytes_written is None:
            return None
        return self.dram_bytes_read + self.dram_bytes_written

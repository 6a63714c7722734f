"""Describes the variant "cuda_cluster" of row kernels: a row lies in the shared memory of a cluster (row_cluster.cu).

sm_90 alone. Rows are whole vectors of 16 bytes; others take another variant or the Triton function.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ledger.errors import InputError
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .cuda import CudaSource, cuda_source
from .row_tiles import Cell
from .row_variant import BARRIER_BYTES, MAX_CLUSTER, PARTIAL_BYTES, RowVariant
from .targets import ceil_div, power_of_two
from .triton_launch import VECTOR_BYTES

# Vectors of a chunk that a thread reduces, as in row_cluster.cu.
_AT_ONCE = 4
# Columns from which `ledger tune` tries clusters.
_WORTH_TRYING = 8192


@dataclass(frozen=True)
class RowCluster(RowVariant):
    """Hold the variant of one row kernel.

    long_bytes, most_bytes: of a row, from which and up to which any number of rows takes a cluster, which is faster
    than the Triton function or at most 2% slower. many_bytes: long_bytes of more than _MANY_ROWS rows, None where it is
    the same. few_rows: most rows that count as few.
    """

    long_bytes: int
    most_bytes: int
    many_bytes: int | None = None
    few_rows: int = 128
    name: ClassVar[str] = "cuda_cluster"

    def config(self, cell: Cell) -> dict[str, int | str] | None:
        """Return the launch configuration of a cell, None where the Triton function is faster."""
        row_bytes = cell.n * cell.element
        if not cell.aligned or row_bytes > self.most_bytes:
            return None
        for over, most_rows, least, below, cluster, warps in _FEW_ROWS:
            if over < cell.m <= min(most_rows, self.few_rows) and least <= row_bytes < below:
                return self.chosen(cluster, warps)
        least = self.long_bytes if self.many_bytes is None or cell.m <= _MANY_ROWS else self.many_bytes
        if row_bytes < least:
            return None
        cluster = min(power_of_two(ceil_div(row_bytes, _PART_BYTES)), MAX_CLUSTER)
        return self.chosen(cluster, 8 if row_bytes <= 1 << 20 else 16)

    def check_rows(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> None:
        """Check that rows are whole vectors. Raises: InputError."""
        row_bytes = shape["N"] * DTYPE_BYTES[dtype]
        if row_bytes % VECTOR_BYTES:
            raise InputError(
                f"{self.operation}: variant is {self.name} with rows of {row_bytes} bytes; expected a multiple of "
                f"{VECTOR_BYTES}"
            )

    def shared_bytes(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
        """Return the shared memory of a CTA, in bytes: its part of a row, partial results, mbarriers."""
        warps = config["num_warps"]
        vectors = ceil_div(shape["N"] * DTYPE_BYTES[dtype], VECTOR_BYTES * config["cluster"])
        barriers = ceil_div(vectors, _AT_ONCE * 32 * warps) + self.reductions
        partials = self.reductions * config["cluster"] * warps
        return int(VECTOR_BYTES * vectors + PARTIAL_BYTES * partials + BARRIER_BYTES * barriers)

    def worth_trying(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> bool:
        """Tell whether a configuration may be worth timing."""
        return shape["N"] >= _WORTH_TRYING and shape["N"] * DTYPE_BYTES[dtype] % VECTOR_BYTES == 0

    def registers(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
        """Return about how many registers a thread needs."""
        return 48

    def source(self, defines: tuple[tuple[str, int], ...]) -> CudaSource:
        """Return the CUDA C++ with some macros, by name."""
        return _source(defines)


@functools.cache
def _source(defines: tuple[tuple[str, int], ...]) -> CudaSource:
    return cuda_source(__name__, "row_cluster.cu", entry="row_cluster_kernel", defines=dict(defines))


# The launch rule, measured on an H200: benchmarks/rows-h200.json.
# Few rows, which the Triton function gives too few SMs: rows over and up to, least bytes of a row and below, cluster,
# warps. Most bytes of a CTA's part of a long row; more rows than count as many.
_FEW_ROWS = (
    (0, 8, 1 << 15, 1 << 16, 16, 4), (32, 64, 1 << 15, 1 << 16, 8, 4),
    (0, 32, 1 << 16, 1 << 18, 16, 4), (0, 32, 1 << 18, 1 << 20, 16, 8),
    (32, 64, 1 << 16, 1 << 18, 8, 8), (64, 128, 1 << 16, 1 << 17, 8, 4),
)  # fmt: skip
_PART_BYTES, _MANY_ROWS = 3 << 14, 400

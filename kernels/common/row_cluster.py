"""Describes the variant "cuda_cluster" of row kernels: a row lies in the shared memory of a cluster (row_cluster.cu).

sm_90 alone. Rows are whole vectors of 16 bytes; others take the Triton function. Imports torch, only when called.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ledger.errors import InputError
from ledger.kernel import Candidate
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .configs import check_keys, check_pdl, check_powers, check_shared, check_target
from .cuda import CudaSource, cuda_source
from .plans import CudaPlan
from .row_tiles import Cell
from .targets import SHARED_BYTES, ceil_div, power_of_two
from .triton_launch import VECTOR_BYTES

if TYPE_CHECKING:
    from torch import Tensor

VARIANT = "cuda_cluster"
KEYS = ("variant", "cluster", "num_warps", "pdl")
TARGET = "sm_90"
MAX_CLUSTER = 16

RowOperation = Literal["rmsnorm", "softmax", "layernorm"]
OPERATIONS: tuple[RowOperation, ...] = ("rmsnorm", "softmax", "layernorm")
"""By their number in the CUDA C++."""

# Vectors of a chunk that a thread reduces, and bytes of a partial result, as in row_cluster.cu.
_AT_ONCE, _PARTIAL_BYTES = 4, 8
# Columns from which `ledger tune` tries clusters.
WORTH_TRYING = 8192


@dataclass(frozen=True)
class RowCluster:
    """Hold the variant of one row kernel.

    scales: names of the inputs beside x. long_bytes, most_bytes: of a row, from which and up to which a cluster is
    faster than the Triton function for any number of rows. few_rows: most rows that count as few.
    """

    operation: RowOperation
    scales: tuple[str, ...]
    long_bytes: int
    most_bytes: int
    few_rows: int = 128
    name: ClassVar[str] = VARIANT

    def config(self, cell: Cell) -> dict[str, int | str] | None:
        """Return the launch configuration of a cell, None where the Triton function is faster."""
        row_bytes = cell.n * cell.element
        if not cell.aligned or row_bytes > self.most_bytes:
            return None
        for over, most_rows, least, below, cluster, warps in _FEW_ROWS:
            if over < cell.m <= min(most_rows, self.few_rows) and least <= row_bytes < below:
                return _config(cluster, warps)
        if row_bytes < self.long_bytes:
            return None
        cluster = min(power_of_two(ceil_div(row_bytes, _PART_BYTES)), MAX_CLUSTER)
        return _config(cluster, 8 if row_bytes <= 1 << 20 else 16)

    def check_config(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        name = self.operation
        check_keys(name, config, KEYS)
        check_target(name, target, (TARGET,), lacks="row clusters")
        check_powers(name, config, (("cluster", 2, MAX_CLUSTER), ("num_warps", 1, 32)))
        check_pdl(name, config, target)
        row_bytes = shape["N"] * DTYPE_BYTES[dtype]
        if row_bytes % VECTOR_BYTES:
            raise InputError(
                f"{name}: variant is {VARIANT} with rows of {row_bytes} bytes; expected a multiple of {VECTOR_BYTES}"
            )
        check_shared(name, self.shared_bytes(config, shape, dtype), target, smaller="part of a row: a larger cluster")

    def shared_bytes(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
        """Return the shared memory of a CTA, in bytes: its part of a row, partial results, mbarriers."""
        warps, reductions = config["num_warps"], 2 if self.operation == "layernorm" else 1
        vectors = ceil_div(shape["N"] * DTYPE_BYTES[dtype], VECTOR_BYTES * config["cluster"])
        chunks = ceil_div(vectors, _AT_ONCE * 32 * warps)
        partials = reductions * config["cluster"] * warps
        return int(VECTOR_BYTES * vectors + _PARTIAL_BYTES * partials + 8 * (chunks + reductions))

    def candidates(self, shape: Shape, dtype: Dtype) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing on sm_90."""
        element = DTYPE_BYTES[dtype]
        if shape["N"] < WORTH_TRYING or shape["N"] * element % VECTOR_BYTES:
            return
        for cluster, warps in itertools.product((2, 4, 8, 16), (4, 8, 16)):
            config = _config(cluster, warps)
            shared = self.shared_bytes(config, shape, dtype)
            if shared <= SHARED_BYTES[TARGET]:
                part = ceil_div(shape["N"], cluster)
                yield Candidate(
                    config=config, tiles=shape["M"] * cluster, tile_flops=5 * part, tile_bytes=element * part,
                    warps=warps, registers=48, shared_bytes=shared,
                )  # fmt: skip

    def plan(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, *, eps: float | None = None) -> CudaPlan:
        """Return the launch of a configuration. eps: None only where the operation has none."""

        def arguments(tensors: Mapping[str, Tensor]) -> list[Any]:
            return [*(tensors[name] for name in ("x", *self.scales, "y")), float(eps or 0.0)]

        return CudaPlan(
            source=_source(self.operation, shape["N"], dtype, config["cluster"], config["num_warps"]),
            ctas=shape["M"] * config["cluster"],
            threads=32 * config["num_warps"],
            shared_bytes=self.shared_bytes(config, shape, dtype),
            arguments=arguments,
            overlap=bool(config["pdl"]),
        )


@functools.cache
def _source(operation: RowOperation, n_cols: int, dtype: Dtype, cluster: int, warps: int) -> CudaSource:
    defines = {
        "OP": OPERATIONS.index(operation),
        "N_COLS": n_cols,
        "ELEMENT": DTYPE_BYTES[dtype],
        "BF16": int(dtype == "bf16"),
        "CLUSTER": cluster,
        "THREADS": 32 * warps,
    }
    return cuda_source(__name__, "row_cluster.cu", entry="row_cluster_kernel", defines=defines)


def _config(cluster: int, warps: int) -> dict[str, int | str]:
    return {"variant": VARIANT, "cluster": cluster, "num_warps": warps, "pdl": 1}


# The launch rule, measured on an H200: benchmarks/rows-h200.json.
# Few rows, which the Triton function gives too few SMs: rows over and up to, least bytes of a row and below, cluster,
# warps. Bytes of a CTA's part of a long row.
_FEW_ROWS = (
    (0, 8, 1 << 15, 1 << 16, 16, 4), (32, 64, 1 << 15, 1 << 16, 8, 4),
    (0, 32, 1 << 16, 1 << 18, 16, 4), (0, 32, 1 << 18, 1 << 20, 16, 8),
    (32, 64, 1 << 16, 1 << 18, 8, 8), (64, 128, 1 << 16, 1 << 17, 8, 4),
)  # fmt: skip
_PART_BYTES = 1 << 15

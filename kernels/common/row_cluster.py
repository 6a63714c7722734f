"""Describes the variant "cuda_cluster" of row kernels: a row lies in the shared memory of a cluster (row_cluster.cu).

sm_90 alone. Rows are whole vectors of 16 bytes; others take the Triton function. Imports torch, only when called.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ledger.errors import InputError
from ledger.kernel import Candidate
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .configs import check_keys, check_pdl, check_powers, check_shared, check_target
from .cuda import CudaSource, cuda_source
from .plans import CudaPlan
from .row_tiles import Cell
from .targets import SHARED_BYTES, ceil_div
from .triton_launch import VECTOR_BYTES

if TYPE_CHECKING:
    from torch import Tensor

VARIANT = "cuda_cluster"
KEYS = ("variant", "cluster", "block_m", "num_warps", "pdl")
TARGET = "sm_90"
MAX_CLUSTER = 16

Operation = Literal["rmsnorm", "softmax", "layernorm"]
_OPERATIONS: tuple[Operation, ...] = ("rmsnorm", "softmax", "layernorm")
# Vectors of a chunk that a thread reduces, and bytes of a partial result, as in row_cluster.cu.
_AT_ONCE, _PARTIAL_BYTES = 4, 8
# Columns from which `ledger tune` tries clusters.
_WORTH_TRYING = 8192


@dataclass(frozen=True)
class RowCluster:
    """Hold the variant of one row kernel.

    scales: names of the inputs beside x. rule: the launch rule, (cell) -> CTAs of a cluster, rows that it takes,
    warps of a CTA; None where the Triton function is faster.
    """

    operation: Operation
    scales: tuple[str, ...]
    rule: Callable[[Cell], tuple[int, int, int] | None]

    def config(self, cell: Cell) -> dict[str, int | str] | None:
        """Return the launch configuration of a cell, None where the Triton function is faster."""
        chosen = self.rule(cell) if cell.aligned else None
        return None if chosen is None else _config(*chosen)

    def check_config(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        name = self.operation
        check_keys(name, config, KEYS)
        if config["variant"] != VARIANT:
            raise InputError(f"{name}: variant is {config['variant']}; expected {VARIANT}, or none")
        check_target(name, target, (TARGET,), lacks="row clusters")
        check_powers(name, config, (("cluster", 1, MAX_CLUSTER), ("block_m", 1, 4), ("num_warps", 1, 32)))
        check_pdl(name, config, target)
        row_bytes = shape["N"] * DTYPE_BYTES[dtype]
        if row_bytes % VECTOR_BYTES:
            raise InputError(
                f"{name}: variant is {VARIANT} with rows of {row_bytes} bytes; expected a multiple of {VECTOR_BYTES}"
            )
        check_shared(name, self.shared_bytes(config, shape, dtype), target, smaller="part of a row: a larger cluster")

    def shared_bytes(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
        """Return the shared memory of a CTA, in bytes: its parts of rows, partial results, mbarriers."""
        warps, rows, reductions = config["num_warps"], config["block_m"], 2 if self.operation == "layernorm" else 1
        vectors = ceil_div(shape["N"] * DTYPE_BYTES[dtype], VECTOR_BYTES * config["cluster"])
        chunks = ceil_div(vectors, _AT_ONCE * 32 * warps)
        partials = reductions * config["cluster"] * warps
        return int(rows * (VECTOR_BYTES * vectors + _PARTIAL_BYTES * partials + 8 * chunks) + 8 * reductions)

    def candidates(self, shape: Shape, dtype: Dtype) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing on sm_90."""
        element = DTYPE_BYTES[dtype]
        if shape["N"] < _WORTH_TRYING or shape["N"] * element % VECTOR_BYTES:
            return
        for cluster, rows, warps in itertools.product((1, 2, 4, 8, 16), (1, 2, 4), (4, 8, 16)):
            config = _config(cluster, rows, warps)
            shared = self.shared_bytes(config, shape, dtype)
            if shared <= SHARED_BYTES[TARGET]:
                part = rows * ceil_div(shape["N"], cluster)
                yield Candidate(
                    config=config, tiles=ceil_div(shape["M"], rows) * cluster, tile_flops=5 * part,
                    tile_bytes=element * part, warps=warps, registers=48, shared_bytes=shared,
                )  # fmt: skip

    def plan(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, *, eps: float | None = None) -> CudaPlan:
        """Return the launch of a configuration. eps: None only where the operation has none."""

        def arguments(tensors: Mapping[str, Tensor]) -> list[Any]:
            return [*(tensors[name] for name in ("x", *self.scales, "y")), shape["M"], float(eps or 0.0)]

        return CudaPlan(
            source=self._source(config, shape, dtype),
            ctas=ceil_div(shape["M"], config["block_m"]) * config["cluster"],
            threads=32 * config["num_warps"],
            shared_bytes=self.shared_bytes(config, shape, dtype),
            arguments=arguments,
            overlap=bool(config["pdl"]),
        )

    def _source(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> CudaSource:
        defines = {
            "OP": _OPERATIONS.index(self.operation),
            "N_COLS": shape["N"],
            "ELEMENT": DTYPE_BYTES[dtype],
            "BF16": int(dtype == "bf16"),
            "CLUSTER": config["cluster"],
            "ROWS": config["block_m"],
            "THREADS": 32 * config["num_warps"],
        }
        return cuda_source(__name__, "row_cluster.cu", entry="row_cluster_kernel", defines=defines)


def _config(cluster: int, rows: int, warps: int) -> dict[str, int | str]:
    return {"variant": VARIANT, "cluster": cluster, "block_m": rows, "num_warps": warps, "pdl": 1}

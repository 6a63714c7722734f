"""Describes the variant "cuda_ragged" of row kernels: long rows that start anywhere, in a cluster (row_ragged.cu).

sm_90 alone. Rows are no whole vectors of 16 bytes, nor need they be any multiple of elements. Imports torch, only when
called.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ledger.errors import InputError
from ledger.kernel import Candidate
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .configs import check_keys, check_pdl, check_powers, check_shared, check_target
from .cuda import CudaSource, cuda_source
from .plans import CudaPlan
from .row_cluster import KEYS, MAX_CLUSTER, OPERATIONS, TARGET, WORTH_TRYING, RowOperation
from .row_tiles import Cell
from .targets import ceil_div
from .triton_launch import VECTOR_BYTES

if TYPE_CHECKING:
    from torch import Tensor

VARIANT = "cuda_ragged"
MOST_HELD = 8
"""Vectors of 16 bytes that a thread can hold, at most."""

_PARTIAL_BYTES = 8


def part(n_cols: int, element: int, cluster: int) -> int:
    """Return the aligned vectors that a CTA has of a row, at most: rows start at multiples of some elements."""
    vector = VECTOR_BYTES // element
    step = next(power for power in (4, 2, 1) if power < vector and n_cols % power == 0)
    return ceil_div((n_cols + 2 * vector - step - 1) // vector, cluster)


@dataclass(frozen=True)
class RowRagged:
    """Hold the variant of one row kernel, and where it is faster than the Triton function.

    scales: names of the inputs beside x. columns: of several rows, from which on it is. few_vectors: of x, up to which
    it is with more than 50 rows. many_vectors: of a row, from which on it is for any number of rows.
    """

    operation: RowOperation
    scales: tuple[str, ...]
    columns: int
    few_vectors: int
    many_vectors: int
    name: ClassVar[str] = VARIANT

    def config(self, cell: Cell) -> dict[str, int | str] | None:
        """Return the launch configuration of a cell, None where the Triton function is faster."""
        vectors = ceil_div(cell.n * cell.element, VECTOR_BYTES)
        if cell.aligned or not self._pays(cell, vectors):
            return None
        held = next(held for rows, most, held in _HELD if cell.m <= rows and vectors <= most)
        threads = vectors / held
        found = (layout for most, rows, *layout in _LAYOUTS if threads <= most and cell.m <= rows)
        cluster, warps = next(found, (MAX_CLUSTER, 16))
        if ceil_div(part(cell.n, cell.element, cluster), 32 * warps) > MOST_HELD:
            return None
        return _config(cluster, warps)

    def _pays(self, cell: Cell, vectors: int) -> bool:
        if cell.m <= _FEWEST:
            return cell.n > _LEAST_COLUMNS
        if cell.m <= _FEW:
            return cell.n > self.columns and (cell.m <= _SEVERAL or cell.m * vectors <= self.few_vectors)
        return cell.n > self.columns and vectors > self.many_vectors

    def check_config(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        name, row_bytes = self.operation, shape["N"] * DTYPE_BYTES[dtype]
        check_keys(name, config, KEYS)
        check_target(name, target, (TARGET,), lacks="row clusters")
        check_powers(name, config, (("cluster", 2, MAX_CLUSTER), ("num_warps", 1, 32)))
        check_pdl(name, config, target)
        if row_bytes % VECTOR_BYTES == 0:
            raise InputError(
                f"{name}: variant is {VARIANT} with rows of {row_bytes} bytes; expected no multiple of {VECTOR_BYTES}"
            )
        held = ceil_div(part(shape["N"], DTYPE_BYTES[dtype], config["cluster"]), 32 * config["num_warps"])
        if held > MOST_HELD:
            raise InputError(
                f"{name}: {config['cluster']} CTAs of {config['num_warps']} warps leave {held} vectors of "
                f"{VECTOR_BYTES} bytes to a thread; expected at most {MOST_HELD}"
            )
        check_shared(name, self.shared_bytes(config, shape, dtype), target, smaller="part of a row: a larger cluster")

    def shared_bytes(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
        """Return the shared memory of a CTA, in bytes: partial results, mbarriers, scales of its part."""
        reductions = 2 if self.operation == "layernorm" else 1
        combined = reductions * (_PARTIAL_BYTES * config["cluster"] * config["num_warps"] + 8)
        scales = len(self.scales) * (part(shape["N"], DTYPE_BYTES[dtype], config["cluster"]) + 1)
        return int(VECTOR_BYTES * (ceil_div(combined, VECTOR_BYTES) + scales))

    def candidates(self, shape: Shape, dtype: Dtype) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing on sm_90."""
        n, element = shape["N"], DTYPE_BYTES[dtype]
        if n < WORTH_TRYING or n * element % VECTOR_BYTES == 0:
            return
        for cluster, warps in itertools.product((2, 4, 8, 16), (4, 8, 16)):
            config, vectors = _config(cluster, warps), part(n, element, cluster)
            held = ceil_div(vectors, 32 * warps)
            if held <= MOST_HELD:
                yield Candidate(
                    config=config, tiles=shape["M"] * cluster, tile_flops=5 * vectors * VECTOR_BYTES // element,
                    tile_bytes=VECTOR_BYTES * vectors, warps=warps, registers=4 * held + 40,
                    shared_bytes=self.shared_bytes(config, shape, dtype),
                )  # fmt: skip

    def plan(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, *, eps: float | None = None) -> CudaPlan:
        """Return the launch of a configuration. eps: None only where the operation has none."""

        def arguments(tensors: Mapping[str, Tensor]) -> list[Any]:
            return [*(tensors[name] for name in ("x", *self.scales, "y")), shape["M"], float(eps or 0.0)]

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
    return cuda_source(__name__, "row_ragged.cu", entry="row_ragged_kernel", defines=defines)


def _config(cluster: int, warps: int) -> dict[str, Any]:
    return {"variant": VARIANT, "cluster": cluster, "num_warps": warps, "pdl": 1}


# The launch rule, measured on an H200: benchmarks/rows-ragged-h200.json.
# Most rows that count as fewest, as several and as few; columns from which fewest rows take a cluster.
_FEWEST, _SEVERAL, _FEW, _LEAST_COLUMNS = 32, 50, 128, 4096
_ANY = 1 << 31
# Most rows, most vectors of one, vectors that a thread should hold.
_HELD = (
    (4, 3000, 1.1), (4, _ANY, 2.1), (32, 800, 1.1), (32, 5000, 2.1), (32, _ANY, 4.1), (128, 3000, 2.4),
    (128, _ANY, 4.1), (_ANY, _ANY, 4.5),
)  # fmt: skip
# Threads of a row, most rows, CTAs of a cluster, warps of a CTA.
_LAYOUTS = (
    (256, _ANY, 2, 4), (512, 32, 4, 4), (512, _ANY, 2, 8), (1024, 128, 8, 4), (1024, _ANY, 4, 8), (2048, 16, 16, 4),
    (2048, _ANY, 8, 8), (4096, 64, 16, 8), (4096, _ANY, 8, 16),
)  # fmt: skip

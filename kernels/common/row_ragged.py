"""Describes the variant "cuda_ragged" of row kernels: a row lies in the registers of a cluster (row_ragged.cu).

sm_90 alone. Rows are no whole vectors of 16 bytes, so they start anywhere.
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
from .targets import ceil_div
from .triton_launch import VECTOR_BYTES

MOST_HELD = 8
"""Vectors of 16 bytes that a thread can hold, at most."""


def part(n_cols: int, element: int, cluster: int) -> int:
    """Return the aligned vectors that a CTA has of a row, at most: rows start at multiples of some elements."""
    vector = VECTOR_BYTES // element
    step = next(power for power in (4, 2, 1) if power < vector and n_cols % power == 0)
    return ceil_div((n_cols + 2 * vector - step - 1) // vector, cluster)


def held(config: Mapping[str, Any], n_cols: int, element: int) -> int:
    """Return the vectors that a thread holds, at most."""
    return ceil_div(part(n_cols, element, config["cluster"]), 32 * config["num_warps"])


@dataclass(frozen=True)
class RowRagged(RowVariant):
    """Hold the variant of one row kernel, and where it is faster than the Triton function.

    columns: that rows have more of, but for the fewest rows. few_vectors: of x, at most, with more rows than several
    and no more than few. many_vectors: that a row has more of, with more rows than few.
    """

    columns: int
    few_vectors: int
    many_vectors: int
    name: ClassVar[str] = "cuda_ragged"

    def config(self, cell: Cell) -> dict[str, int | str] | None:
        """Return the launch configuration of a cell, None where the Triton function is faster."""
        vectors = ceil_div(cell.n * cell.element, VECTOR_BYTES)
        if cell.aligned or not self._pays(cell, vectors):
            return None
        threads = vectors / next(held for rows, most, held in _HELD if cell.m <= rows and vectors <= most)
        found = (layout for most, rows, *layout in _LAYOUTS if threads <= most and cell.m <= rows)
        cluster, warps = next(found, (MAX_CLUSTER, 16))
        chosen = self.chosen(cluster, warps)
        return chosen if held(chosen, cell.n, cell.element) <= MOST_HELD else None

    def _pays(self, cell: Cell, vectors: int) -> bool:
        if cell.m <= _FEWEST:
            return cell.n > _LEAST_COLUMNS
        if cell.m <= _FEW:
            return cell.n > self.columns and (cell.m <= _SEVERAL or cell.m * vectors <= self.few_vectors)
        return cell.n > self.columns and vectors > self.many_vectors

    def check_rows(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> None:
        """Check that rows are no whole vectors and that the registers hold them. Raises: InputError."""
        row_bytes = shape["N"] * DTYPE_BYTES[dtype]
        if row_bytes % VECTOR_BYTES == 0:
            raise InputError(
                f"{self.operation}: variant is {self.name} with rows of {row_bytes} bytes; expected no multiple of "
                f"{VECTOR_BYTES}"
            )
        vectors = held(config, shape["N"], DTYPE_BYTES[dtype])
        if vectors > MOST_HELD:
            raise InputError(
                f"{self.operation}: {config['cluster']} CTAs of {config['num_warps']} warps leave {vectors} vectors of "
                f"{VECTOR_BYTES} bytes to a thread; expected at most {MOST_HELD}"
            )

    def shared_bytes(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
        """Return the shared memory of a CTA, in bytes: partial results, mbarriers, scales of its part."""
        combined = self.reductions * (PARTIAL_BYTES * config["cluster"] * config["num_warps"] + BARRIER_BYTES)
        scales = len(self.scales) * (part(shape["N"], DTYPE_BYTES[dtype], config["cluster"]) + 1)
        return int(VECTOR_BYTES * (ceil_div(combined, VECTOR_BYTES) + scales))

    def worth_trying(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> bool:
        """Tell whether a configuration may be worth timing."""
        n, element = shape["N"], DTYPE_BYTES[dtype]
        return n > _LEAST_COLUMNS and n * element % VECTOR_BYTES != 0 and held(config, n, element) <= MOST_HELD

    def registers(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
        """Return about how many registers a thread needs."""
        return 4 * held(config, shape["N"], DTYPE_BYTES[dtype]) + 40

    def sizes(self, shape: Shape) -> tuple[int, ...]:
        """Return the integers that the kernel takes behind the tensors: the rows."""
        return (shape["M"],)

    def source(self, defines: tuple[tuple[str, int], ...]) -> CudaSource:
        """Return the CUDA C++ with some macros, by name."""
        return _source(defines)


@functools.cache
def _source(defines: tuple[tuple[str, int], ...]) -> CudaSource:
    return cuda_source(__name__, "row_ragged.cu", entry="row_ragged_kernel", defines=dict(defines))


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

"""Defines what each operation computes: its inputs, its output and one element of it in float64. Pure.

An operation's name carries a version and is sealed into every kernel that implements it; its definition never
changes afterwards. Measuring fills the inputs from it, and an auditor recomputes single output elements from it
without running anybody's code. NumPy is imported only where an element is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.binding import Generated
from ledger.records import Dtype

Shape = Mapping[str, int]
Read = Callable[[str, Any], Any]
"""Return elements of a named input as float64: (tensor name, int64 flat positions) -> float64 array."""

RMSNORM_EPS = 1e-6


@dataclass(frozen=True)
class TensorSpec:
    """Describe one input: its name, its row-major dimensions and how it is filled."""

    name: str
    dims: tuple[int, ...]
    generated: Generated


@dataclass(frozen=True)
class Operation:
    """Define an operation.

    inputs: shape -> the input tensors, in the order that numbers them for the generator.
    output_dims: shape -> dimensions of the single output, row-major.
    element: (shape, flat output position, read) -> that element in float64.
    """

    name: str
    shape_keys: tuple[str, ...]
    inputs: Callable[[Shape], tuple[TensorSpec, ...]]
    output_dims: Callable[[Shape], tuple[int, ...]]
    element: Callable[[Shape, int, Read], float]


def weight_exponent(inner: int) -> int:
    """Return e such that odd integers in [-255, 255] times 2**e have a standard deviation of 0.20 to 0.41 ÷ √inner."""
    # 147.8 · 2**-15 · √4096 = 0.289; a factor of four in `inner` moves the exponent by one.
    return -9 - max(inner, 1).bit_length() // 2


def _symmetric(exponent: int) -> Generated:
    return Generated("symmetric", exponent)


def _rmsnorm_matmul_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    b, h, o = shape["B"], shape["H"], shape["O"]
    return (
        TensorSpec("x", (b, h), _symmetric(-7)),
        TensorSpec("gain", (h,), Generated("positive", -7)),
        TensorSpec("weight", (h, o), _symmetric(weight_exponent(h))),
    )


def _rmsnorm_matmul_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    h, o = shape["H"], shape["O"]
    row, column = divmod(position, o)
    k = np.arange(h, dtype=np.int64)
    x = read("x", row * h + k)
    scale = 1.0 / np.sqrt(np.mean(x * x) + RMSNORM_EPS)
    return float(np.sum(x * scale * read("gain", k) * read("weight", k * o + column)))


def _matmul_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    m, n, k = shape["M"], shape["N"], shape["K"]
    return (
        TensorSpec("a", (m, k), _symmetric(-7)),
        TensorSpec("b", (k, n), _symmetric(weight_exponent(k))),
    )


def _matmul_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    n, inner = shape["N"], shape["K"]
    row, column = divmod(position, n)
    k = np.arange(inner, dtype=np.int64)
    return float(np.sum(read("a", row * inner + k) * read("b", k * n + column)))


RMSNORM_MATMUL = Operation(
    name="rmsnorm_matmul/1",
    shape_keys=("B", "H", "O"),
    inputs=_rmsnorm_matmul_inputs,
    output_dims=lambda shape: (shape["B"], shape["O"]),
    element=_rmsnorm_matmul_element,
)

MATMUL = Operation(
    name="matmul/1",
    shape_keys=("M", "N", "K"),
    inputs=_matmul_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_matmul_element,
)

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in (RMSNORM_MATMUL, MATMUL)}

# |recorded - recomputed| <= atol + rtol · |recomputed|. Outputs of the operations have a standard deviation between
# 0.1 and 0.6. rtol is a few units in the last place of the stored dtype; atol covers fp32 accumulation in any order
# (tf32 rounds each product's inputs to 11 bits), some hundred times below the spread of the outputs.
SAMPLE_TOLERANCES: dict[Dtype, tuple[float, float]] = {
    "fp64": (1e-9, 1e-9),
    "fp32": (2e-4, 1e-4),
    "tf32": (4e-3, 4e-3),
    "fp16": (1e-3, 2e-3),
    "bf16": (4e-3, 1.6e-2),
}

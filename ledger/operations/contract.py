"""Defines what an operation is: its inputs, its output and one element of that output in float64.

An operation's name carries a version and is sealed into every kernel that implements it; its definition never changes
afterwards. Measuring fills the inputs from it, and an auditor recomputes single output elements from it without running
the author's code. Imports the generator of inputs and the records only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.philox_inputs import Generated
from ledger.records import Dtype

Shape = Mapping[str, int]
Read = Callable[[str, Any], Any]
"""Return elements of a named input as float64: (tensor name, int64 flat positions) -> float64 array."""


@dataclass(frozen=True)
class TensorSpec:
    """Describe one input: its name, its row-major dimensions, how it is filled, and its dtype if not the case's."""

    name: str
    dims: tuple[int, ...]
    generated: Generated
    dtype: str | None = None


@dataclass(frozen=True)
class Operation:
    """Define an operation.

    inputs: shape -> the input tensors, in the order that numbers them for the generator.
    output_dims: shape -> dimensions of the single output, row-major.
    element: (shape, flat output position, read) -> that element in float64.
    products: shape -> multiply-adds in the sums of products of the definition (docs/format.md); 0 where it has none.
    spread: shape -> typical output size relative to the outputs that SAMPLE_TOLERANCES assumes.
    output_dtype: dtype of the inputs -> dtype of the output and of its samples.
    reads: shape -> input elements that one output element is computed from, and how many of them at once. An operation
    of the registry has it: an auditor bounds recomputation by it.
    result_bytes: shape -> bytes of the results of a callable that makes them itself: it is given no output to write.
    """

    name: str
    shape_keys: tuple[str, ...]
    inputs: Callable[[Shape], tuple[TensorSpec, ...]]
    output_dims: Callable[[Shape], tuple[int, ...]]
    element: Callable[[Shape, int, Read], float]
    products: Callable[[Shape], int]
    spread: Callable[[Shape], float] = lambda _shape: 1.0
    output_dtype: Callable[[Dtype], Dtype] = lambda dtype: dtype
    reads: Callable[[Shape], tuple[int, int]] | None = None
    result_bytes: Callable[[Shape], int] | None = None


def no_products(_shape: Shape) -> int:
    """Return 0: the definition has no sum of products."""
    return 0


def weight_exponent(inner: int) -> int:
    """Return e such that odd integers in [-255, 255] times 2**e have a standard deviation of 0.20 to 0.41 ÷ √inner."""
    # 147.8 · 2**-15 · √4096 = 0.289; a factor of four in `inner` moves the exponent by one.
    return -9 - max(inner, 1).bit_length() // 2


def symmetric(exponent: int) -> Generated:
    """Return how to fill an input with odd integers in [-255, 255] times 2**exponent."""
    return Generated("symmetric", exponent)

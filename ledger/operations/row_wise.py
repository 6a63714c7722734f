"""Defines the row-wise and elementwise operations: vector_add, rmsnorm, layernorm and softmax.

NumPy is imported only where an element is computed.
"""

from __future__ import annotations

from typing import Any

from ledger.operations.contract import Operation, Read, Shape, TensorSpec, no_products, symmetric
from ledger.philox_inputs import Generated

RMSNORM_EPS = 1e-6
LAYERNORM_EPS = 1e-5


def _vector_add_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    return TensorSpec("a", (shape["N"],), symmetric(-7)), TensorSpec("b", (shape["N"],), symmetric(-7))


def _vector_add_element(_shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    index = np.array([position], dtype=np.int64)
    return float(read("a", index)[0] + read("b", index)[0])


def _row_of(shape: Shape, position: int) -> tuple[Any, Any, int]:
    """Return the column numbers of a row, their flat positions, and the column of an output position."""
    import numpy as np

    row, column = divmod(position, shape["N"])
    k = np.arange(shape["N"], dtype=np.int64)
    return k, row * shape["N"] + k, column


def _rmsnorm_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    m, n = shape["M"], shape["N"]
    return TensorSpec("x", (m, n), symmetric(-7)), TensorSpec("gain", (n,), Generated("positive", -7))


def _rmsnorm_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    k, flat, column = _row_of(shape, position)
    x = read("x", flat)
    return float(x[column] / np.sqrt(np.mean(x * x) + RMSNORM_EPS) * read("gain", k)[column])


def _layernorm_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    m, n = shape["M"], shape["N"]
    # The mean is three standard deviations: a kernel that keeps it, or loses digits to it, is then wrong.
    return (
        TensorSpec("x", (m, n), Generated("positive", -6)),
        TensorSpec("gain", (n,), Generated("positive", -7)),
        TensorSpec("bias", (n,), symmetric(-7)),
    )


def _layernorm_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    k, flat, column = _row_of(shape, position)
    x = read("x", flat)
    scaled = (x[column] - np.mean(x)) / np.sqrt(np.var(x) + LAYERNORM_EPS) * read("gain", k)[column]
    return float(scaled + read("bias", k)[column])


def _softmax_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    return (TensorSpec("x", (shape["M"], shape["N"]), symmetric(-6)),)


def _softmax_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    _, flat, column = _row_of(shape, position)
    x = read("x", flat)
    exponentials = np.exp(x - np.max(x))
    return float(exponentials[column] / np.sum(exponentials))


VECTOR_ADD = Operation(
    name="vector_add/1",
    shape_keys=("N",),
    inputs=_vector_add_inputs,
    output_dims=lambda shape: (shape["N"],),
    element=_vector_add_element,
    reads=lambda _shape: (2, 1),
    products=no_products,
)

RMSNORM = Operation(
    name="rmsnorm/1",
    shape_keys=("M", "N"),
    inputs=_rmsnorm_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_rmsnorm_element,
    reads=lambda shape: (2 * shape["N"], shape["N"]),
    products=no_products,
)

LAYERNORM = Operation(
    name="layernorm/1",
    shape_keys=("M", "N"),
    inputs=_layernorm_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_layernorm_element,
    reads=lambda shape: (3 * shape["N"], shape["N"]),
    products=no_products,
)

SOFTMAX = Operation(
    name="softmax/1",
    shape_keys=("M", "N"),
    inputs=_softmax_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_softmax_element,
    reads=lambda shape: (shape["N"], shape["N"]),
    products=no_products,
    # Rows sum to 1; the floor leaves room for the rounding of subnormal fp16.
    spread=lambda shape: max(1.0 / shape["N"], 2.0**-14),
)

"""Defines the matrix products: matmul with its epilogue and its eight-bit forms, gemv and rmsnorm_matmul.

NumPy is imported only where an element is computed.
"""

from __future__ import annotations

from ledger.operations.contract import Operation, Read, Shape, TensorSpec, symmetric, weight_exponent
from ledger.operations.row_wise import RMSNORM_EPS
from ledger.philox_inputs import Distribution, Generated


def _rmsnorm_matmul_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    b, h, o = shape["B"], shape["H"], shape["O"]
    return (
        TensorSpec("x", (b, h), symmetric(-7)),
        TensorSpec("gain", (h,), Generated("positive", -7)),
        TensorSpec("weight", (h, o), symmetric(weight_exponent(h))),
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
        TensorSpec("a", (m, k), symmetric(-7)),
        TensorSpec("b", (k, n), symmetric(weight_exponent(k))),
    )


def _matmul_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    n, inner = shape["N"], shape["K"]
    row, column = divmod(position, n)
    k = np.arange(inner, dtype=np.int64)
    return float(np.sum(read("a", row * inner + k) * read("b", k * n + column)))


def _matmul_products(shape: Shape) -> int:
    return shape["M"] * shape["N"] * shape["K"]


def _matmul_reads(shape: Shape) -> tuple[int, int]:
    # A bias is one element more.
    return 2 * shape["K"] + 1, shape["K"]


def _matmul_bias_relu_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    return (*_matmul_inputs(shape), TensorSpec("bias", (shape["N"],), symmetric(-9)))


def _matmul_bias_relu_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    index = np.array([position % shape["N"]], dtype=np.int64)
    return max(0.0, _matmul_element(shape, position, read) + float(read("bias", index)[0]))


def fp8_scale(inner: int) -> float:
    """Return the power of two that takes Σ a·b over `inner` short integers to a standard deviation of 0.23 to 0.47."""
    # 9.22² · 2**-14 · √4096 = 0.332.
    return float(2.0 ** (weight_exponent(inner) + 1))


def int8_scale(inner: int) -> float:
    """Return the power of two that takes Σ a·b over `inner` bytes to a standard deviation of 0.23 to 0.47."""
    # 73.9² · 2**-20 · √4096 = 0.333.
    return float(2.0 ** (weight_exponent(inner) - 5))


def _eight_bit_inputs(shape: Shape, how: Distribution) -> tuple[TensorSpec, ...]:
    m, n, k = shape["M"], shape["N"], shape["K"]
    return TensorSpec("a", (m, k), Generated(how, 0)), TensorSpec("b", (n, k), Generated(how, 0))


def _eight_bit_element(shape: Shape, position: int, read: Read, *, scale: float) -> float:
    import numpy as np

    inner = shape["K"]
    row, column = divmod(position, shape["N"])
    k = np.arange(inner, dtype=np.int64)
    return float(scale * np.sum(read("a", row * inner + k) * read("b", column * inner + k)))


FP8_BLOCK = 128
"""Elements along K, and along N, that share a scale in matmul_fp8_blocks."""


def _blocks(length: int) -> int:
    return -(-length // FP8_BLOCK)


def _fp8_blocks_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    m, n, k = shape["M"], shape["N"], shape["K"]
    # 9.22² · 111.5² · 2**(e - 13) · √4096 = 0.246 with e = weight_exponent(4096).
    return (
        *_eight_bit_inputs(shape, "short"),
        TensorSpec("a_scale", (_blocks(k), m), Generated("positive", -7), "fp32"),
        TensorSpec("b_scale", (_blocks(n), _blocks(k)), Generated("positive", weight_exponent(k) - 6), "fp32"),
    )


def _fp8_blocks_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    m, inner = shape["M"], shape["K"]
    row, column = divmod(position, shape["N"])
    k = np.arange(inner, dtype=np.int64)
    block = k // FP8_BLOCK
    scales = read("a_scale", block * m + row) * read("b_scale", column // FP8_BLOCK * _blocks(inner) + block)
    return float(np.sum(scales * read("a", row * inner + k) * read("b", column * inner + k)))


def _gemv_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    n, k = shape["N"], shape["K"]
    return TensorSpec("x", (k,), symmetric(-7)), TensorSpec("weight", (n, k), symmetric(weight_exponent(k)))


def _gemv_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    k = np.arange(shape["K"], dtype=np.int64)
    return float(np.sum(read("x", k) * read("weight", position * shape["K"] + k)))


RMSNORM_MATMUL = Operation(
    name="rmsnorm_matmul/1",
    shape_keys=("B", "H", "O"),
    inputs=_rmsnorm_matmul_inputs,
    output_dims=lambda shape: (shape["B"], shape["O"]),
    element=_rmsnorm_matmul_element,
    reads=lambda shape: (3 * shape["H"], shape["H"]),
    products=lambda shape: shape["B"] * shape["H"] * shape["O"],
)

MATMUL = Operation(
    name="matmul/1",
    shape_keys=("M", "N", "K"),
    inputs=_matmul_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_matmul_element,
    reads=_matmul_reads,
    products=_matmul_products,
)

MATMUL_BIAS_RELU = Operation(
    name="matmul_bias_relu/1",
    shape_keys=("M", "N", "K"),
    inputs=_matmul_bias_relu_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_matmul_bias_relu_element,
    reads=_matmul_reads,
    products=_matmul_products,
)

MATMUL_FP8 = Operation(
    name="matmul_fp8/1",
    shape_keys=("M", "N", "K"),
    inputs=lambda shape: _eight_bit_inputs(shape, "short"),
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=lambda shape, position, read: _eight_bit_element(shape, position, read, scale=fp8_scale(shape["K"])),
    reads=_matmul_reads,
    products=_matmul_products,
    output_dtype=lambda _dtype: "fp16",
)

MATMUL_FP8_BLOCKS = Operation(
    name="matmul_fp8_blocks/1",
    shape_keys=("M", "N", "K"),
    inputs=_fp8_blocks_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_fp8_blocks_element,
    reads=lambda shape: (4 * shape["K"], shape["K"]),
    products=_matmul_products,
    output_dtype=lambda _dtype: "bf16",
)

MATMUL_INT8 = Operation(
    name="matmul_int8/1",
    shape_keys=("M", "N", "K"),
    inputs=lambda shape: _eight_bit_inputs(shape, "byte"),
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=lambda shape, position, read: _eight_bit_element(shape, position, read, scale=int8_scale(shape["K"])),
    reads=_matmul_reads,
    products=_matmul_products,
    output_dtype=lambda _dtype: "fp32",
)

GEMV = Operation(
    name="gemv/1",
    shape_keys=("N", "K"),
    inputs=_gemv_inputs,
    output_dims=lambda shape: (shape["N"],),
    element=_gemv_element,
    reads=_matmul_reads,
    products=lambda shape: shape["N"] * shape["K"],
)

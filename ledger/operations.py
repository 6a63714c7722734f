"""Defines what each operation computes: its inputs, its output and one element of it in float64. Pure.

An operation's name carries a version and is sealed into every kernel that implements it; its definition never
changes afterwards. Measuring fills the inputs from it, and an auditor recomputes single output elements from it
without running anybody's code. NumPy is imported only where an element is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.philox_inputs import Distribution, Generated
from ledger.records import Dtype

Shape = Mapping[str, int]
Read = Callable[[str, Any], Any]
"""Return elements of a named input as float64: (tensor name, int64 flat positions) -> float64 array."""

RMSNORM_EPS = 1e-6
LAYERNORM_EPS = 1e-5
MLA_LATENT, MLA_ROPE = 512, 64
MLA_SCALE = 192**-0.5
"""The softmax scale of DeepSeek-V2's attention, 1 / sqrt(128 + 64): its heads are 128 wide before they are absorbed."""


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
    products: shape -> multiply-adds of the sums of products in the definition (docs/format.md); 0 where it has none.
    spread: shape -> the size of outputs relative to those that SAMPLE_TOLERANCES is made for.
    output_dtype: dtype of the inputs -> dtype of the output, which is also that of its samples.
    """

    name: str
    shape_keys: tuple[str, ...]
    inputs: Callable[[Shape], tuple[TensorSpec, ...]]
    output_dims: Callable[[Shape], tuple[int, ...]]
    element: Callable[[Shape, int, Read], float]
    products: Callable[[Shape], int]
    spread: Callable[[Shape], float] = lambda _shape: 1.0
    output_dtype: Callable[[Dtype], Dtype] = lambda dtype: dtype


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


def _matmul_products(shape: Shape) -> int:
    return shape["M"] * shape["N"] * shape["K"]


def _no_products(_shape: Shape) -> int:
    return 0


def _matmul_bias_relu_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    return (*_matmul_inputs(shape), TensorSpec("bias", (shape["N"],), _symmetric(-9)))


def _matmul_bias_relu_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    at = np.array([position % shape["N"]], dtype=np.int64)
    return max(0.0, _matmul_element(shape, position, read) + float(read("bias", at)[0]))


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


def _vector_add_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    return TensorSpec("a", (shape["N"],), _symmetric(-7)), TensorSpec("b", (shape["N"],), _symmetric(-7))


def _vector_add_element(_shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    at = np.array([position], dtype=np.int64)
    return float(read("a", at)[0] + read("b", at)[0])


def _row_of(shape: Shape, position: int) -> tuple[Any, Any, int]:
    """Return a row's columns, their flat positions, and the column that an output position lies in."""
    import numpy as np

    row, column = divmod(position, shape["N"])
    k = np.arange(shape["N"], dtype=np.int64)
    return k, row * shape["N"] + k, column


def _rmsnorm_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    m, n = shape["M"], shape["N"]
    return TensorSpec("x", (m, n), _symmetric(-7)), TensorSpec("gain", (n,), Generated("positive", -7))


def _rmsnorm_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    k, flat, column = _row_of(shape, position)
    x = read("x", flat)
    return float(x[column] / np.sqrt(np.mean(x * x) + RMSNORM_EPS) * read("gain", k)[column])


def _layernorm_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    m, n = shape["M"], shape["N"]
    # A mean of three deviations, so that leaving it in, or losing digits to it, shows.
    return (
        TensorSpec("x", (m, n), Generated("positive", -6)),
        TensorSpec("gain", (n,), Generated("positive", -7)),
        TensorSpec("bias", (n,), _symmetric(-7)),
    )


def _layernorm_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    k, flat, column = _row_of(shape, position)
    x = read("x", flat)
    scaled = (x[column] - np.mean(x)) / np.sqrt(np.var(x) + LAYERNORM_EPS) * read("gain", k)[column]
    return float(scaled + read("bias", k)[column])


def _softmax_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    return (TensorSpec("x", (shape["M"], shape["N"]), _symmetric(-6)),)


def _softmax_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    _, flat, column = _row_of(shape, position)
    x = read("x", flat)
    powers = np.exp(x - np.max(x))
    return float(powers[column] / np.sum(powers))


def _gemv_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    n, k = shape["N"], shape["K"]
    return TensorSpec("x", (k,), _symmetric(-7)), TensorSpec("weight", (n, k), _symmetric(weight_exponent(k)))


def _gemv_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    k = np.arange(shape["K"], dtype=np.int64)
    return float(np.sum(read("x", k) * read("weight", position * shape["K"] + k)))


_KEYS_AT_ONCE = 4096


def _attend(query: Any, *, keys: int, scale: float, key_rows: Any, value_column: Any) -> float:
    """Return softmax(scale · query · keyᵀ) · value for one query and one column of the values.

    key_rows, value_column: (first, last) -> float64 arrays (last - first, width) and (last - first,), so that long
    sequences need little memory.
    """
    import numpy as np

    highest, total, weighted = -np.inf, 0.0, 0.0
    for first in range(0, keys, _KEYS_AT_ONCE):
        last = min(first + _KEYS_AT_ONCE, keys)
        scores = scale * (key_rows(first, last) @ query)
        risen = max(highest, float(np.max(scores)))
        powers = np.exp(scores - risen)
        kept = np.exp(highest - risen)
        total = total * kept + float(np.sum(powers))
        weighted = weighted * kept + float(np.sum(powers * value_column(first, last)))
        highest = risen
    return float(weighted / total)


def _span(first: int, last: int, *, stride: int, width: int = 1, start: int = 0) -> Any:
    """Return flat positions start + stride·row + column, of shape (last - first, width)."""
    import numpy as np

    rows = np.arange(first, last, dtype=np.int64)[:, None] * stride
    return start + rows + np.arange(width, dtype=np.int64)[None, :]


def _heads_element(shape: Shape, position: int, read: Read, *, queries: int, causal: bool) -> float:
    """Return an output element of attention with HQ query and HKV key heads over (B, heads, sequence, D) tensors."""
    import numpy as np

    d, s = shape["D"], shape["S"]
    rest, column = divmod(position, d)
    head, query_row = divmod(rest, queries)
    batch, query_head = divmod(head, shape["HQ"])
    kv = (batch * shape["HKV"] + query_head * shape["HKV"] // shape["HQ"]) * s * d
    return _attend(
        read("q", rest * d + np.arange(d, dtype=np.int64)),
        keys=query_row + 1 if causal else s,
        scale=d**-0.5,
        key_rows=lambda first, last: read("k", _span(first, last, stride=d, width=d, start=kv)),
        value_column=lambda first, last: read("v", _span(first, last, stride=d, start=kv + column)[:, 0]),
    )


def _decode_attention_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    b, hq, hkv, s, d = (shape[key] for key in ("B", "HQ", "HKV", "S", "D"))
    return (
        TensorSpec("q", (b, hq, d), _symmetric(-6)),
        TensorSpec("k", (b, hkv, s, d), _symmetric(-7)),
        TensorSpec("v", (b, hkv, s, d), _symmetric(-7)),
    )


def _flash_attention_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    b, hq, hkv, s, d = (shape[key] for key in ("B", "HQ", "HKV", "S", "D"))
    return (
        TensorSpec("q", (b, hq, s, d), _symmetric(-6)),
        TensorSpec("k", (b, hkv, s, d), _symmetric(-7)),
        TensorSpec("v", (b, hkv, s, d), _symmetric(-7)),
    )


def _mla_decode_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    b, h, s = shape["B"], shape["H"], shape["S"]
    width = MLA_LATENT + MLA_ROPE
    return TensorSpec("q", (b, h, width), _symmetric(-7)), TensorSpec("cache", (b, s, width), _symmetric(-7))


def _mla_decode_element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    width = MLA_LATENT + MLA_ROPE
    rest, column = divmod(position, MLA_LATENT)
    start = rest // shape["H"] * shape["S"] * width
    return _attend(
        read("q", rest * width + np.arange(width, dtype=np.int64)),
        keys=shape["S"],
        scale=MLA_SCALE,
        key_rows=lambda first, last: read("cache", _span(first, last, stride=width, width=width, start=start)),
        value_column=lambda first, last: read("cache", _span(first, last, stride=width, start=start + column)[:, 0]),
    )


RMSNORM_MATMUL = Operation(
    name="rmsnorm_matmul/1",
    shape_keys=("B", "H", "O"),
    inputs=_rmsnorm_matmul_inputs,
    output_dims=lambda shape: (shape["B"], shape["O"]),
    element=_rmsnorm_matmul_element,
    products=lambda shape: shape["B"] * shape["H"] * shape["O"],
)

MATMUL = Operation(
    name="matmul/1",
    shape_keys=("M", "N", "K"),
    inputs=_matmul_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_matmul_element,
    products=_matmul_products,
)

MATMUL_BIAS_RELU = Operation(
    name="matmul_bias_relu/1",
    shape_keys=("M", "N", "K"),
    inputs=_matmul_bias_relu_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_matmul_bias_relu_element,
    products=_matmul_products,
)

MATMUL_FP8 = Operation(
    name="matmul_fp8/1",
    shape_keys=("M", "N", "K"),
    inputs=lambda shape: _eight_bit_inputs(shape, "short"),
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=lambda shape, position, read: _eight_bit_element(shape, position, read, scale=fp8_scale(shape["K"])),
    products=_matmul_products,
    output_dtype=lambda _dtype: "fp16",
)

MATMUL_INT8 = Operation(
    name="matmul_int8/1",
    shape_keys=("M", "N", "K"),
    inputs=lambda shape: _eight_bit_inputs(shape, "byte"),
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=lambda shape, position, read: _eight_bit_element(shape, position, read, scale=int8_scale(shape["K"])),
    products=_matmul_products,
    output_dtype=lambda _dtype: "fp32",
)

VECTOR_ADD = Operation(
    name="vector_add/1",
    shape_keys=("N",),
    inputs=_vector_add_inputs,
    output_dims=lambda shape: (shape["N"],),
    element=_vector_add_element,
    products=_no_products,
)

RMSNORM = Operation(
    name="rmsnorm/1",
    shape_keys=("M", "N"),
    inputs=_rmsnorm_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_rmsnorm_element,
    products=_no_products,
)

LAYERNORM = Operation(
    name="layernorm/1",
    shape_keys=("M", "N"),
    inputs=_layernorm_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_layernorm_element,
    products=_no_products,
)

SOFTMAX = Operation(
    name="softmax/1",
    shape_keys=("M", "N"),
    inputs=_softmax_inputs,
    output_dims=lambda shape: (shape["M"], shape["N"]),
    element=_softmax_element,
    products=_no_products,
    # Rows sum to 1; the floor leaves room for the rounding of subnormal fp16.
    spread=lambda shape: max(1.0 / shape["N"], 2.0**-14),
)

GEMV = Operation(
    name="gemv/1",
    shape_keys=("N", "K"),
    inputs=_gemv_inputs,
    output_dims=lambda shape: (shape["N"],),
    element=_gemv_element,
    products=lambda shape: shape["N"] * shape["K"],
)

DECODE_ATTENTION = Operation(
    name="decode_attention/1",
    shape_keys=("B", "HQ", "HKV", "S", "D"),
    inputs=_decode_attention_inputs,
    output_dims=lambda shape: (shape["B"], shape["HQ"], shape["D"]),
    element=lambda shape, position, read: _heads_element(shape, position, read, queries=1, causal=False),
    products=lambda shape: 2 * shape["B"] * shape["HQ"] * shape["S"] * shape["D"],
)

FLASH_ATTENTION = Operation(
    name="flash_attention/1",
    shape_keys=("B", "HQ", "HKV", "S", "D"),
    inputs=_flash_attention_inputs,
    output_dims=lambda shape: (shape["B"], shape["HQ"], shape["S"], shape["D"]),
    element=lambda shape, position, read: _heads_element(shape, position, read, queries=shape["S"], causal=False),
    products=lambda shape: 2 * shape["B"] * shape["HQ"] * shape["S"] ** 2 * shape["D"],
)

FLASH_ATTENTION_CAUSAL = Operation(
    name="flash_attention_causal/1",
    shape_keys=("B", "HQ", "HKV", "S", "D"),
    inputs=_flash_attention_inputs,
    output_dims=lambda shape: (shape["B"], shape["HQ"], shape["S"], shape["D"]),
    element=lambda shape, position, read: _heads_element(shape, position, read, queries=shape["S"], causal=True),
    products=lambda shape: shape["B"] * shape["HQ"] * shape["S"] * (shape["S"] + 1) * shape["D"],
)

MLA_DECODE = Operation(
    name="mla_decode/1",
    shape_keys=("B", "H", "S"),
    inputs=_mla_decode_inputs,
    output_dims=lambda shape: (shape["B"], shape["H"], MLA_LATENT),
    element=_mla_decode_element,
    products=lambda shape: shape["B"] * shape["H"] * shape["S"] * (2 * MLA_LATENT + MLA_ROPE),
)

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        RMSNORM_MATMUL, MATMUL, VECTOR_ADD, RMSNORM, LAYERNORM, SOFTMAX, GEMV,
        DECODE_ATTENTION, FLASH_ATTENTION, FLASH_ATTENTION_CAUSAL, MLA_DECODE,
        MATMUL_BIAS_RELU, MATMUL_FP8, MATMUL_INT8,
    )
}  # fmt: skip

# By the dtype of the output: |recorded - recomputed| <= atol + rtol · |recomputed|. Outputs of the operations have a
# standard deviation between 0.1 and 0.6. rtol is a few units in the last place of the stored dtype; atol covers fp32
# accumulation in any order (tf32 rounds each product's inputs to 11 bits), some hundred times below the spread of the
# outputs.
SAMPLE_TOLERANCES: dict[Dtype, tuple[float, float]] = {
    "fp64": (1e-9, 1e-9),
    "fp32": (2e-4, 1e-4),
    "tf32": (4e-3, 4e-3),
    "fp16": (1e-3, 2e-3),
    "bf16": (4e-3, 1.6e-2),
}

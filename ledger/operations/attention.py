"""Defines the attention operations: decode attention, flash attention with and without a causal mask, and MLA decode.

NumPy is imported only where an element is computed.
"""

from __future__ import annotations

from typing import Any

from ledger.operations.contract import Operation, Read, Shape, TensorSpec, symmetric

MLA_LATENT, MLA_ROPE = 512, 64
MLA_SCALE = 192**-0.5
"""The softmax scale of DeepSeek-V2's attention, 1 / sqrt(128 + 64): its heads are 128 wide before they are absorbed."""

_KEYS_PER_CHUNK = 4096
_ELEMENTS_PER_CHUNK = 1 << 22
"""Elements of keys that are made at once, where a row is so long that fewer keys hold them."""


def _keys_per_chunk(width: int) -> int:
    return max(1, min(_KEYS_PER_CHUNK, _ELEMENTS_PER_CHUNK // width))


def _attention_reads(keys: int, width: int) -> tuple[int, int]:
    """Return how many elements one query, its keys and one column of the values are, and how many keys' at once."""
    return width + keys * (width + 1), min(keys, _keys_per_chunk(width)) * width


def _attend(query: Any, *, keys: int, scale: float, key_rows: Any, value_column: Any) -> float:
    """Return softmax(scale · query · keyᵀ) · value for one query and one column of the values.

    key_rows, value_column: (first, last) -> float64 arrays (last - first, width) and (last - first,), so that long
    sequences need little memory.
    """
    import numpy as np

    running_max, total, weighted = -np.inf, 0.0, 0.0
    chunk = _keys_per_chunk(len(query))
    for first in range(0, keys, chunk):
        last = min(first + chunk, keys)
        scores = scale * (key_rows(first, last) @ query)
        maximum = max(running_max, float(np.max(scores)))
        exponentials = np.exp(scores - maximum)
        rescale = np.exp(running_max - maximum)
        total = total * rescale + float(np.sum(exponentials))
        weighted = weighted * rescale + float(np.sum(exponentials * value_column(first, last)))
        running_max = maximum
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
        TensorSpec("q", (b, hq, d), symmetric(-6)),
        TensorSpec("k", (b, hkv, s, d), symmetric(-7)),
        TensorSpec("v", (b, hkv, s, d), symmetric(-7)),
    )


def _flash_attention_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    b, hq, hkv, s, d = (shape[key] for key in ("B", "HQ", "HKV", "S", "D"))
    return (
        TensorSpec("q", (b, hq, s, d), symmetric(-6)),
        TensorSpec("k", (b, hkv, s, d), symmetric(-7)),
        TensorSpec("v", (b, hkv, s, d), symmetric(-7)),
    )


def _mla_decode_inputs(shape: Shape) -> tuple[TensorSpec, ...]:
    b, h, s = shape["B"], shape["H"], shape["S"]
    width = MLA_LATENT + MLA_ROPE
    return TensorSpec("q", (b, h, width), symmetric(-7)), TensorSpec("cache", (b, s, width), symmetric(-7))


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


DECODE_ATTENTION = Operation(
    name="decode_attention/1",
    shape_keys=("B", "HQ", "HKV", "S", "D"),
    inputs=_decode_attention_inputs,
    output_dims=lambda shape: (shape["B"], shape["HQ"], shape["D"]),
    element=lambda shape, position, read: _heads_element(shape, position, read, queries=1, causal=False),
    reads=lambda shape: _attention_reads(shape["S"], shape["D"]),
    products=lambda shape: 2 * shape["B"] * shape["HQ"] * shape["S"] * shape["D"],
)

FLASH_ATTENTION = Operation(
    name="flash_attention/1",
    shape_keys=("B", "HQ", "HKV", "S", "D"),
    inputs=_flash_attention_inputs,
    output_dims=lambda shape: (shape["B"], shape["HQ"], shape["S"], shape["D"]),
    element=lambda shape, position, read: _heads_element(shape, position, read, queries=shape["S"], causal=False),
    reads=lambda shape: _attention_reads(shape["S"], shape["D"]),
    products=lambda shape: 2 * shape["B"] * shape["HQ"] * shape["S"] ** 2 * shape["D"],
)

FLASH_ATTENTION_CAUSAL = Operation(
    name="flash_attention_causal/1",
    shape_keys=("B", "HQ", "HKV", "S", "D"),
    inputs=_flash_attention_inputs,
    output_dims=lambda shape: (shape["B"], shape["HQ"], shape["S"], shape["D"]),
    element=lambda shape, position, read: _heads_element(shape, position, read, queries=shape["S"], causal=True),
    reads=lambda shape: _attention_reads(shape["S"], shape["D"]),
    products=lambda shape: shape["B"] * shape["HQ"] * shape["S"] * (shape["S"] + 1) * shape["D"],
)

MLA_DECODE = Operation(
    name="mla_decode/1",
    shape_keys=("B", "H", "S"),
    inputs=_mla_decode_inputs,
    output_dims=lambda shape: (shape["B"], shape["H"], MLA_LATENT),
    element=_mla_decode_element,
    reads=lambda shape: _attention_reads(shape["S"], MLA_LATENT + MLA_ROPE),
    products=lambda shape: shape["B"] * shape["H"] * shape["S"] * (2 * MLA_LATENT + MLA_ROPE),
)

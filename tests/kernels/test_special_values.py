"""Tests NaN, infinity, zero rows and far scales on a GPU: what they reach is what they reach in float64."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_suite import gpu_target, shape_id
from loaded_kernels import load_kernel
from mutants.checker import Trial, fill_inputs

pytestmark = pytest.mark.gpu

ROWS = ("rmsnorm", "layernorm", "softmax")
# Whole rows in registers, blocks, ragged rows of both, a cluster's shared memory, and its registers.
COLUMNS = (1, 33, 200, 768, 1001, 2051, 4001, 4096, 5001, 9001, 65_536, 131_072, 131_073)
INFINITY = float("inf")
NAN = float("nan")


def _run(name: str, shape: dict[str, int], dtype: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """Return a kernel's result under its own configuration, and the reference."""
    import torch

    from ledger.measure.inputs import torch_dtype

    kernel = load_kernel(name, launch=True).kernel
    config = kernel.config(shape, dtype, gpu_target())
    written = torch_dtype(kernel.operation.output_dtype(dtype))
    out = torch.full(kernel.operation.output_dims(shape), 12.0, dtype=written, device="cuda")
    kernel.implementations["triton"](inputs, out, config)()
    return out, kernel.reference(inputs)


def _inputs(name: str, shape: dict[str, int], dtype: str) -> dict[str, Any]:
    gpu_target()
    return fill_inputs(load_kernel(name).kernel, Trial(shape, dtype, {}), "cuda")


def _same(name: str, dtype: Any, out: Any, expected: Any) -> bool:
    """Tell whether NaN and infinities stand where they do in the reference, and the rest is within the tolerance."""
    import torch

    bound = load_kernel(name).kernel.tolerances[dtype]
    rounded = expected.to(out.dtype).double()
    finite = rounded.isfinite()
    error = torch.where(finite, out.double() - expected, 0.0).abs()
    allowed = torch.where(finite, bound.atol + bound.rtol * expected.abs(), 0.0)
    placed = torch.equal(out.double().nan_to_num(2.0, 3.0, 4.0)[~finite], rounded.nan_to_num(2.0, 3.0, 4.0)[~finite])
    return placed and bool(out[finite].isfinite().all()) and bool((error <= allowed).all())


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize(("m", "n"), [*((19, n) for n in COLUMNS), (200, 9001)])
@pytest.mark.parametrize("name", ROWS)
def test_special_values_of_a_row_stay_in_it(name: str, m: int, n: int, dtype: str) -> None:
    shape = {"M": m, "N": n}
    inputs = _inputs(name, shape, dtype)
    x = inputs["x"]
    for row, column, value in ((1, 0, NAN), (4, n - 1, NAN), (6, n // 2, INFINITY), (9, n // 3, -INFINITY)):
        x[row, column] = value
    x[11], x[13], x[15] = 0.0, -INFINITY, INFINITY
    out, expected = _run(name, shape, dtype, inputs)
    assert out[1].isnan().all() and out[4].isnan().all()
    assert out[[0, 2, 3, 5, 7, 8, 10, 12, 14, *range(16, m)]].isfinite().all()
    assert _same(name, dtype, out, expected)


@pytest.mark.parametrize(("dtype", "power"), [("fp16", 11), ("bf16", 40), ("fp32", 40), ("bf16", -40), ("fp32", -40)])
@pytest.mark.parametrize("n", COLUMNS)
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_a_far_scale_are_right(name: str, n: int, dtype: str, power: int) -> None:
    shape = {"M": 5, "N": n}
    inputs = _inputs(name, shape, dtype)
    inputs["x"][1:4] *= 2.0**power
    assert _same(name, dtype, *_run(name, shape, dtype, inputs))


@pytest.mark.parametrize("value", [NAN, INFINITY])
@pytest.mark.parametrize(
    ("name", "shape", "tensor", "index", "reached"),
    [
        ("gemv", {"N": 131, "K": 1031}, "weight", (7, 5), (7,)),
        # Elements that share 16 bytes with the row before or after.
        ("gemv", {"N": 131, "K": 1031}, "weight", (7, 0), (7,)),
        ("gemv", {"N": 131, "K": 1031}, "weight", (130, 1030), (130,)),
        ("gemv", {"N": 4099, "K": 2178}, "weight", (77, 2177), (77,)),
        ("gemv", {"N": 4096, "K": 4096}, "weight", (4095, 4095), (4095,)),
        ("vector_add", {"N": 100_003}, "b", (100_002,), (100_002,)),
        *(
            (name, shape, tensor, index, reached)
            for name in ("matmul", "matmul_bias_relu")
            for shape in (
                {"M": 384, "N": 512, "K": 256},
                {"M": 130, "N": 121, "K": 75},
                {"M": 16, "N": 4096, "K": 4096},
            )
            for tensor, index, reached in (("a", (9, 70), (9,)), ("b", (70, 100), (slice(None), 100)))
        ),
        ("rmsnorm_matmul", {"B": 8, "H": 1024, "O": 512}, "x", (3, 1000), (3,)),
        ("rmsnorm_matmul", {"B": 128, "H": 2048, "O": 2048}, "weight", (1000, 77), (slice(None), 77)),
        ("flash_attention", {"B": 1, "HQ": 2, "HKV": 1, "S": 257, "D": 64}, "q", (0, 1, 130, 3), (0, 1, 130)),
        ("flash_attention_causal", {"B": 1, "HQ": 2, "HKV": 2, "S": 300, "D": 128}, "q", (0, 1, 299, 3), (0, 1, 299)),
        ("decode_attention", {"B": 2, "HQ": 8, "HKV": 2, "S": 515, "D": 128}, "q", (1, 5, 3), (1, 5)),
        ("mla_decode", {"B": 2, "H": 128, "S": 321}, "q", (1, 77, 3), (1, 77)),
        # 64 columns, in tiles of 192 queries and 128 keys: edges of heads, keys that a causal row does not see.
        ("flash_attention", {"B": 2, "HQ": 6, "HKV": 2, "S": 1031, "D": 64}, "q", (1, 2, 1030, 63), (1, 2, 1030)),
        ("flash_attention", {"B": 2, "HQ": 6, "HKV": 2, "S": 1031, "D": 64}, "k", (0, 1, 130, 3), (0, slice(3, 6))),
        (
            "flash_attention",
            {"B": 2, "HQ": 6, "HKV": 2, "S": 384, "D": 40},
            "v",
            (0, 1, 383, 3),
            (0, slice(3, 6), slice(None), 3),
        ),
        ("flash_attention_causal", {"B": 2, "HQ": 6, "HKV": 2, "S": 1031, "D": 64}, "q", (0, 5, 191, 0), (0, 5, 191)),
        (
            "flash_attention_causal",
            {"B": 2, "HQ": 6, "HKV": 2, "S": 1031, "D": 64},
            "k",
            (1, 0, 700, 3),
            (1, slice(0, 3), slice(700, None)),
        ),
        ("mla_decode", {"B": 1, "H": 128, "S": 8192}, "q", (0, 64, 575), (0, 64)),
        ("mla_decode", {"B": 2, "H": 128, "S": 2049}, "cache", (1, 2048, 575), (1,)),
        ("mla_decode", {"B": 4, "H": 128, "S": 4133}, "cache", (2, 0, 5), (2,)),
    ],
    ids=lambda value: shape_id(value) if isinstance(value, dict) else None,
)
def test_special_values_of_an_operand_reach_its_rows_and_columns_alone(
    name: str, shape: dict[str, int], tensor: str, index: tuple[int, ...], reached: tuple[Any, ...], value: float
) -> None:
    import torch

    inputs = _inputs(name, shape, "bf16")
    clean, _ = _run(name, shape, "bf16", inputs)
    inputs[tensor][index] = value
    out, _ = _run(name, shape, "bf16", inputs)
    assert not out[reached].isfinite().all()
    out[reached] = clean[reached]
    assert torch.equal(out, clean)

"""Compute y = x / max(|x|), one scale a row: an example of a row kernel over ledger.kernels.common.

Formula: y[m, n] = x[m, n] / max(max_n |x[m, n]|, eps), eps = 1e-12
Shapes: x, y (M, N), row-major and of one dtype (fp16, bf16 or fp32).
Traffic: e · M·N bytes read and e · M·N written, e bytes an element.
The work model excludes: the second read of rows of several blocks but for their last (L1, L2), and the M divisions.

For a row kernel of your own, write the functions before the kernel, its operation and tolerances.
`default_tile` gives any row kernel a tile that fits; a launch rule of its own takes what `ledger tune` finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.kernel import Tolerance, import_triton
from ledger.kernels.common.baselines import library
from ledger.kernels.common.row_reductions import lanes, load_block, reduce_rows, unchanged
from ledger.kernels.common.row_tiles import default_tile
from ledger.kernels.common.rows import RowKernel
from ledger.operations import Operation, Read, Shape, TensorSpec
from ledger.philox_inputs import Generated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

triton, tl = import_triton()
EPS = 1e-12


@triton.jit
def _whole(values, masks, edge, edge_mask, eps, N_COLS: tl.constexpr, RAGGED: tl.constexpr):
    highs = tl.abs(values[0])
    for i in tl.static_range(1, len(values)):
        highs = tl.maximum(highs, tl.abs(values[i]))
    highest = tl.max(highs, axis=1)
    if RAGGED:
        highest = tl.maximum(highest, tl.max(tl.abs(edge), axis=1))
    return values, edge, (1.0 / tl.maximum(highest, eps))[:, None]


@triton.jit
def _first(x_tile, FULL: tl.constexpr, BLOCK_N: tl.constexpr, LANE: tl.constexpr):
    highs = tl.zeros((1, BLOCK_N // LANE), dtype=tl.float32)
    for block in tl.range(0, FULL):
        highs = tl.maximum(highs, tl.max(lanes(tl.abs(load_block(x_tile, block, BLOCK_N, 0.0)), LANE), axis=2))
    return (highs,)


@triton.jit
def _combine(state, last, FULL: tl.constexpr, LANE: tl.constexpr):
    highest = tl.max(tl.abs(last), axis=1)
    if FULL > 0:
        highest = tl.maximum(highest, tl.max(state[0], axis=1))
    return highest


@triton.jit
def _finish(
    highest, state, last, last_mask, edge, edge_mask, eps, N_COLS: tl.constexpr, FULL: tl.constexpr,
    LANE: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    if RAGGED:
        highest = tl.maximum(highest, tl.max(tl.abs(edge)))
    return last, edge, 0.0, (1.0 / tl.maximum(highest, eps))[:, None]


@triton.jit
def _epilogue(values, factor, scales):
    return values * factor


@triton.jit
def absmax_norm_kernel(
    x_ptr, y_ptr, n_rows, eps, N_COLS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, SCALE_STEP: tl.constexpr, BYPASS_L1: tl.constexpr,
    PIPELINED: tl.constexpr, WARPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    reduce_rows(
        x_ptr, (), y_ptr, n_rows, eps, _whole, _first, _combine, _finish, unchanged, _epilogue, 0.0,
        N_COLS, BLOCK_M, BLOCK_N, VECTOR, RAGGED, SCALE_STEP, BYPASS_L1, PIPELINED, WARPS, PDL,
    )  # fmt: skip


# An element takes an absolute value, a comparison and a product.
ROWS = RowKernel(name="absmax_norm", function=absmax_norm_kernel, flops=3, tile=default_tile, eps=EPS)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64."""
    x = inputs["x"].double()
    return x / x.abs().amax(dim=1, keepdim=True).clamp_min(EPS)


def _element(shape: Shape, position: int, read: Read) -> float:
    import numpy as np

    row, column = divmod(position, shape["N"])
    x = read("x", row * shape["N"] + np.arange(shape["N"], dtype=np.int64))
    return float(x[column] / max(np.max(np.abs(x)), EPS))


KERNEL = ROWS.kernel(
    operation=Operation(
        name="absmax_norm/1",
        shape_keys=("M", "N"),
        inputs=lambda shape: (TensorSpec("x", (shape["M"], shape["N"]), Generated("symmetric", -7)),),
        output_dims=lambda shape: (shape["M"], shape["N"]),
        element=_element,
        products=lambda shape: 0,
    ),
    summary="rows divided by their largest magnitude",
    formula="y = x / max(max(|x|), 1e-12)",
    excludes="the second read of long rows (L1, L2), divisions",
    tolerances={
        "fp16": Tolerance(0.0, 5e-4, "one rounding to 11 bits"),
        "bf16": Tolerance(0.0, 4e-3, "one rounding to 8 bits"),
        "fp32": Tolerance(0.0, 3e-7, "a division and a product, each rounded to 24 bits"),
    },
    reference=reference,
    torch_cpu=library(lambda torch, out, x: out.copy_(reference({"x": x})), "x"),
    baselines={},
)

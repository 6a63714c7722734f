"""Compute y = softmax(x), one distribution a row.

Formula: y[m, n] = exp(x[m, n] - max_n x[m]) / Σ_n exp(x[m, n] - max_n x[m])
Shapes: x, y (M, N), row-major and of one dtype (fp16, bf16 or fp32).
Traffic: e · M·N bytes read and e · M·N written, e bytes an element.
Source: the running maximum of long rows is Milakov and Gimelshein, "Online normalizer calculation for softmax",
arXiv 1805.02867, algorithm 3.
The work model excludes: the second read of rows of several blocks but for their last (L1, L2), and the
correction of the running sum where the maximum rises. An exponential counts as one operation. The variants
cuda_cluster and cuda_ragged (sm_90: long rows, and few rows; the latter where they start anywhere) keep a row in the
shared memory or the registers of a cluster and read it once.

Precision: all arithmetic is fp32; one rounding to the dtype. Determinism: each row is the work of one program or one
cluster in a fixed order, so the same inputs give the same bits. A row of minus infinities gives NaN, as torch's does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.kernel import Tolerance, import_triton
from ledger.kernels.common.baselines import compiled, library
from ledger.kernels.common.row_cluster import RowCluster
from ledger.kernels.common.row_ragged import RowRagged
from ledger.kernels.common.row_reductions import lanes, load_block, reduce_rows, sum_lanes
from ledger.kernels.common.row_tiles import (
    FEW_BYTES,
    NARROW,
    SMALL_BYTES,
    TILE_BYTES,
    Cell,
    Tile,
    between,
    up_to,
    whole_rows,
)
from ledger.kernels.common.rows import RowKernel
from ledger.operations import SOFTMAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def _exp(values):
    # In base 2 the compiler flushes subnormal results and needs half the instructions.
    return tl.exp2(values * 1.4426950408889634)


@triton.jit
def _whole(values, masks, edge, edge_mask, eps, N_COLS: tl.constexpr, RAGGED: tl.constexpr):
    NONE: tl.constexpr = -float("inf")
    highs = tl.full(values[0].shape, NONE, dtype=tl.float32)
    for i in tl.static_range(len(values)):
        highs = tl.maximum(highs, values[i])
    highest = tl.max(highs, axis=1)
    if RAGGED:
        highest = tl.maximum(highest, tl.max(edge, axis=1))
    # A row beyond the last has only minus infinity; 0 keeps inf - inf out.
    highest = tl.where(highest == NONE, 0.0, highest)
    totals = tl.zeros(values[0].shape, dtype=tl.float32)
    powers = ()
    for i in tl.static_range(len(values)):
        power = _exp(values[i] - highest[:, None])
        powers = powers + (power,)  # type: ignore[assignment]  # noqa: RUF005
        totals += power
    total = tl.sum(totals, axis=1)
    if RAGGED:
        edge = _exp(edge - highest[:, None])
        total += tl.sum(edge, axis=1)
    inverse = 1.0 / total
    return powers, edge, inverse[:, None]


@triton.jit
def _first(x_tile, FULL: tl.constexpr, BLOCK_N: tl.constexpr, LANE: tl.constexpr):
    # Each lane keeps a maximum and a sum of its own; they meet after the loop.
    NONE: tl.constexpr = -float("inf")
    lane_highest = tl.full((1, BLOCK_N // LANE), NONE, dtype=tl.float32)
    lane_total = tl.zeros((1, BLOCK_N // LANE), dtype=tl.float32)
    for block in tl.range(0, FULL, loop_unroll_factor=2):
        x = lanes(load_block(x_tile, block, BLOCK_N, NONE), LANE)
        risen = tl.maximum(lane_highest, tl.max(x, axis=2))
        # A lane that has seen nothing but minus infinity would compute inf - inf.
        safe = tl.where(risen == NONE, 0.0, risen)
        lane_total = lane_total * _exp(lane_highest - safe) + tl.sum(_exp(x - safe[:, :, None]), axis=2)
        lane_highest = risen
    return lane_highest, lane_total


@triton.jit
def _combine(state, last, FULL: tl.constexpr, LANE: tl.constexpr):
    if FULL > 0:
        highest = tl.max(tl.maximum(state[0], tl.max(lanes(last, LANE), axis=2)), axis=1)
    else:
        highest = tl.max(last, axis=1)
    return highest


@triton.jit
def _finish(
    highest, state, last, last_mask, edge, edge_mask, eps, N_COLS: tl.constexpr, FULL: tl.constexpr,
    LANE: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    if RAGGED:
        highest = tl.maximum(highest, tl.max(edge))
    highest = highest[:, None]
    powers = _exp(last - highest)
    if FULL > 0:
        lane_highest, lane_total = state
        total = tl.sum(lane_total * _exp(lane_highest - highest) + sum_lanes(powers, LANE), axis=1)
    else:
        total = tl.sum(powers, axis=1)
    if RAGGED:
        edge = _exp(edge - tl.sum(highest))
        total += tl.sum(edge)
    return powers, edge, highest, (1.0 / total)[:, None]


@triton.jit
def _again(x, highest):
    return _exp(x - highest)


@triton.jit
def _epilogue(powers, inverse, scales):
    return powers * inverse


@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, N_COLS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, SCALE_STEP: tl.constexpr, BYPASS_L1: tl.constexpr,
    PIPELINED: tl.constexpr, WARPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    reduce_rows(
        x_ptr, (), y_ptr, n_rows, 0.0, _whole, _first, _combine, _finish, _again, _epilogue, -float("inf"),
        N_COLS, BLOCK_M, BLOCK_N, VECTOR, RAGGED, SCALE_STEP, BYPASS_L1, PIPELINED, WARPS, PDL,
    )  # fmt: skip


def _tile(cell: Cell) -> Tile:
    n, aligned, two_bytes = cell.n, cell.aligned, cell.element == 2
    block_n, num_warps, pipelined = up_to(_BLOCKS[cell.element], n)
    tile = Tile(block_n, num_warps, pipelined_loads=pipelined)
    if two_bytes and not aligned and NARROW // 2 < n <= NARROW:
        # Two rows that start anywhere: one program a row could not be started fast enough.
        tile = tile._replace(block_m=2, block_n=NARROW, num_warps=2)
    elif n <= NARROW:
        tile_bytes, warps = TILE_BYTES << (two_bytes and n > NARROW // 2 and cell.x_bytes < SMALL_BYTES), 4
        if n % 2:
            # Neighbours in threads of their own: the warps and rows that ran best.
            tile_bytes, warps = up_to(_ODD, n)
        elif two_bytes and aligned and NARROW // 8 < n <= NARROW // 4:
            tile_bytes, warps = 2 * TILE_BYTES, 8
        elif two_bytes and not aligned and NARROW // 32 < n <= NARROW // 16:
            tile_bytes, warps = TILE_BYTES // 2, 8
        tile = whole_rows(tile, cell, tile_bytes=tile_bytes, num_warps=warps)
    elif aligned and two_bytes:
        # As many columns at once as a program can hold where all of x is soon read, or where two blocks make a row.
        block_n, num_warps = between(_FEW if cell.x_bytes <= FEW_BYTES else _EVEN, n, (block_n, num_warps))
        tile = tile._replace(block_n=block_n, num_warps=num_warps)
    elif two_bytes and n > _LONG:
        block_n, num_warps, pipelined = up_to(_LONG_RAGGED, n)
        tile = Tile(block_n, num_warps, pipelined_loads=pipelined)
    return tile


# Most columns, an odd number of them -> bytes of a tile, num_warps; measured at N 1, 3, 33, 201, 263, 427 and 1001.
_ODD = ((16, 4096, 4), (64, 2048, 1), (256, 4096, 2), (512, 2048, 1), (1024, 8192, 4))
# Columns over and up to, BLOCK_N, num_warps; 2 bytes an element, rows of whole vectors: x up to FEW_BYTES, any x.
_FEW = ((1536, 4096, 2048, 4), (4096, 8192, 4096, 8))
_EVEN = ((1536, 2048, 2048, 4),)
# Bytes an element -> (most columns, BLOCK_N, num_warps, pipelined_loads), the best of a sweep on
# an H200 at N 1000 to 64001.
_BLOCKS = {
    2: (
        (2048, 512, 2, 0), (4096, 1024, 4, 0), (12_288, 2048, 8, 0), (24_576, 4096, 16, 0), (49_152, 16_384, 32, 0),
        (2**31, 8192, 32, 0),
    ),
    4: (
        (4096, 1024, 8, 0), (12_288, 2048, 16, 0), (20_480, 4096, 16, 0), (40_960, 8192, 32, 0),
        (2**31, 16_384, 32, 1),
    ),
}  # fmt: skip
# Rows of more columns than _LONG that start anywhere, with 2 bytes an element.
_LONG, _LONG_RAGGED = 24_576, ((49_152, 8192, 32, 0), (2**31, 16_384, 16, 1))

ROWS = RowKernel(
    name="softmax",
    function=softmax_kernel,
    # An element takes a comparison, a difference, an exponential, an addition and a division.
    flops=5,
    tile=_tile,
    flags=("pipelined_loads",),
    variants=(
        RowCluster("softmax", (), long_bytes=7 << 14, most_bytes=1 << 21, many_bytes=7 << 13),
        RowRagged("softmax", (), columns=8192, few_vectors=1 << 31, many_vectors=0),
    ),
)


def softmax(x: Tensor) -> Tensor:
    """Return the softmax of the last dimension.

    Shapes: x (…, N) on a GPU; the result as x.
    """
    return ROWS(x)


def _of_rows(torch: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.softmax(x, dim=1)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64."""
    import torch

    return torch.softmax(inputs["x"].double(), dim=1)


KERNEL = ROWS.kernel(
    operation=SOFTMAX,
    summary="softmax of rows",
    formula="y = exp(x - max(x)) / Σ exp(x - max(x))",
    excludes="the second read of long rows (L1, L2), corrections where a running maximum rises",
    tolerances={
        "fp16": Tolerance(3.1e-8, 5e-4, "one rounding to 11 bits, or to a multiple of 2**-24 below 2**-14"),
        "bf16": Tolerance(1e-12, 4e-3, "one rounding to 8 bits; arithmetic is fp32"),
        "fp32": Tolerance(1e-12, 5e-6, "the exponent's argument is rounded to 24 bits at a size of up to 12"),
    },
    reference=reference,
    torch_cpu=library(lambda torch, out, x: out.copy_(torch.softmax(x, dim=1, dtype=torch.float32)), "x"),
    baselines={
        "torch-eager": library(lambda torch, out, x: torch.softmax(x, dim=1, out=out), "x"),
        "torch-compile": compiled(_of_rows, "x"),
    },
)

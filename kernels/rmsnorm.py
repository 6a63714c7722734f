"""Compute y = rmsnorm(x; g, eps), one norm a row.

Formula: y[m, n] = x[m, n] · g[n] / sqrt(mean_n(x[m, n]²) + eps)
Shapes: x (M, N), g (N,), y (M, N), row-major and of one dtype (fp16, bf16 or fp32).
Traffic: e · (M·N + N) bytes read and e · M·N written, e bytes an element.
Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv 1910.07467, equation 4.
The work model excludes: re-reads of g by each program (L1, L2), the second read of rows of several blocks but for their
last (L1, L2), the shifted copies of g for ragged rows (8 or 4 · e · N bytes written and read, L2), and the M divisions
and roots. The variants cuda_cluster and cuda_ragged (sm_90: long rows, and few rows; the latter where they start
anywhere) keep a row in the shared memory or the registers of a cluster and read it once.

Precision: squares, their sum and the scaling are fp32; one rounding to the dtype. Determinism: each row is the sum of
one program or one cluster in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.kernel import Tolerance, import_triton
from ledger.kernels.common.baselines import compiled, library
from ledger.kernels.common.row_cluster import RowCluster
from ledger.kernels.common.row_ragged import RowRagged
from ledger.kernels.common.row_reductions import load_block, reduce_rows, sum_lanes, unchanged
from ledger.kernels.common.row_tiles import FEW_BYTES, NARROW, SMALL_BYTES, Cell, Tile, between, up_to, whole_rows
from ledger.kernels.common.rows import RowKernel
from ledger.operations import RMSNORM, RMSNORM_EPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def _whole(values, masks, edge, edge_mask, eps, N_COLS: tl.constexpr, RAGGED: tl.constexpr):
    squares = tl.zeros(values[0].shape, dtype=tl.float32)
    for i in tl.static_range(len(values)):
        squares += values[i] * values[i]
    total = tl.sum(squares, axis=1)
    if RAGGED:
        total += tl.sum(edge * edge, axis=1)
    return values, edge, tl.rsqrt(total / N_COLS + eps)[:, None]


@triton.jit
def _first(x_tile, FULL: tl.constexpr, BLOCK_N: tl.constexpr, LANE: tl.constexpr):
    squares = tl.zeros((1, BLOCK_N // LANE), dtype=tl.float32)
    for block in tl.range(0, FULL, loop_unroll_factor=2):
        x = load_block(x_tile, block, BLOCK_N, 0.0)
        squares += sum_lanes(x * x, LANE)
    return (squares,)


@triton.jit
def _combine(state, last, FULL: tl.constexpr, LANE: tl.constexpr):
    return tl.sum(state[0] + sum_lanes(last * last, LANE) if FULL > 0 else last * last, axis=1)


@triton.jit
def _finish(
    total, state, last, last_mask, edge, edge_mask, eps, N_COLS: tl.constexpr, FULL: tl.constexpr, LANE: tl.constexpr,
    RAGGED: tl.constexpr,
):  # fmt: skip
    if RAGGED:
        total += tl.sum(edge * edge)
    return last, edge, 0.0, tl.rsqrt(total / N_COLS + eps)[:, None]


@triton.jit
def _epilogue(values, rstd, scales):
    return values * rstd * scales[0]


@triton.jit
def rmsnorm_kernel(
    x_ptr, gain_ptr, y_ptr, n_rows, eps, N_COLS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, SCALE_STEP: tl.constexpr, BYPASS_L1: tl.constexpr,
    PIPELINED: tl.constexpr, WARPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    reduce_rows(
        x_ptr, (gain_ptr,), y_ptr, n_rows, eps, _whole, _first, _combine, _finish, unchanged, _epilogue, 0.0,
        N_COLS, BLOCK_M, BLOCK_N, VECTOR, RAGGED, SCALE_STEP, BYPASS_L1, PIPELINED, WARPS, PDL,
    )  # fmt: skip


def _tile(cell: Cell) -> Tile:
    n, two_bytes = cell.n, cell.element == 2
    tile = Tile(*up_to(_BLOCKS[cell.element], n))
    if not cell.aligned and two_bytes and 32_768 < n <= 49_152:
        tile = Tile(*_LONG_RAGGED)
    elif cell.aligned and two_bytes and n > NARROW:
        # As many columns at once as a program can hold where all of x is soon read, or where two blocks make a row.
        blocks = _FEW if cell.x_bytes <= FEW_BYTES else _EVEN
        block_n, num_warps = between(blocks, n, tile[:2])
        tile = tile._replace(block_n=block_n, num_warps=num_warps)
    if n <= NARROW and (cell.aligned or two_bytes or n <= NARROW // 2):
        tiles: tuple[tuple[int, int, int, int], ...] = _SMALL_TILES if cell.x_bytes < SMALL_BYTES else _TILES
        if not cell.aligned:
            tiles = _RAGGED_TILES if cell.copied else _SMALL_RAGGED_TILES
        tile = whole_rows(tile, cell, tiles=tiles)
    return tile


# Columns over and up to, rows and warps of a tile with 2 bytes an element: any x, x below SMALL_BYTES, rows that start
# anywhere with copies of the gain and without. Elsewhere TILE_BYTES make a tile, and four warps.
_TILES = ((128, 240, 16, 8), (240, 256, 8, 8))
_SMALL_TILES = ((128, 256, 16, 8), (512, 1024, 8, 8))
_RAGGED_TILES = ((128, 256, 8, 8), (256, 512, 4, 4), (512, 1024, 2, 2))
_SMALL_RAGGED_TILES = ((512, 1024, 2, 2),)
# Blocks of rows of 32769 to 49152 columns that start anywhere, with 2 bytes an element.
_LONG_RAGGED = (8192, 32, 1)
# Columns over and up to, BLOCK_N, num_warps; 2 bytes an element, rows of whole vectors: x up to FEW_BYTES, any x.
_FEW = ((1536, 2048, 2048, 4), (2048, 4096, 4096, 8))
_EVEN = ((1536, 2048, 2048, 4), (6144, 12_288, 2048, 16))
# Bytes an element -> (most columns, BLOCK_N, num_warps, bypass_l1), the best of a sweep on an H200 at N 1000 to 64001.
_BLOCKS = {
    2: (
        (1024, 1024, 2, 0), (2048, 512, 4, 0), (4096, 1024, 8, 0), (12_288, 2048, 8, 0), (20_480, 4096, 16, 0),
        (32_768, 8192, 32, 0), (49_152, 16_384, 32, 0), (2**31, 32_768, 32, 0),
    ),
    4: (
        (1024, 1024, 4, 0), (4096, 1024, 8, 0), (12_288, 2048, 16, 0), (20_480, 4096, 16, 0), (49_152, 16_384, 32, 0),
        (2**31, 16_384, 32, 1),
    ),
}  # fmt: skip

ROWS = RowKernel(
    name="rmsnorm",
    function=rmsnorm_kernel,
    # An element takes the square, its sum and two products.
    flops=4,
    tile=_tile,
    scales=("gain",),
    eps=RMSNORM_EPS,
    flags=("shifted_copies", "bypass_l1"),
    variants=(
        RowCluster("rmsnorm", ("gain",), long_bytes=1 << 17, most_bytes=1 << 21),
        RowRagged("rmsnorm", ("gain",), columns=8192, few_vectors=1 << 31, many_vectors=2100),
    ),
)


def rmsnorm(x: Tensor, gain: Tensor, *, eps: float = RMSNORM_EPS) -> Tensor:
    """Return rmsnorm(x; gain, eps) over the last dimension.

    Shapes: x (…, N), gain (N,) of one dtype on one GPU; the result as x.
    """
    return ROWS(x, gain, eps=eps)


def _plain(torch: Any, out: Tensor, x: Tensor, gain: Tensor) -> Tensor:
    """Compute the same result with torch's elementwise calls, one after the other."""
    x32 = x.float()
    rstd = torch.rsqrt(x32.square().mean(dim=1, keepdim=True) + RMSNORM_EPS)
    return out.copy_(x32 * rstd * gain.float())


def _norm(torch: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, gain: torch.nn.functional.rms_norm(x, list(gain.shape), gain, RMSNORM_EPS)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64."""
    import torch

    x = inputs["x"].double()
    return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + RMSNORM_EPS) * inputs["gain"].double()


KERNEL = ROWS.kernel(
    operation=RMSNORM,
    summary="root-mean-square norm of rows",
    formula="y = x · g / sqrt(mean(x²) + 1e-6)",
    excludes="re-reads of g, the second read of long rows, shifted copies of g for ragged ones, divisions and roots",
    tolerances={
        "fp16": Tolerance(1e-7, 5e-4, "one rounding to 11 bits, outputs from 2**-9; arithmetic is fp32"),
        "bf16": Tolerance(1e-7, 4e-3, "one rounding to 8 bits; arithmetic is fp32"),
        "fp32": Tolerance(1e-7, 4e-6, "up to 65536 squares are summed in 24 bits, in a tree"),
    },
    reference=reference,
    torch_cpu=library(_plain, "x", "gain"),
    baselines={
        "torch-eager": library(lambda torch, out, x, gain: _norm(torch)(x, gain), "x", "gain"),
        "torch-compile": compiled(_norm, "x", "gain"),
    },
)

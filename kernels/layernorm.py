"""Compute y = layernorm(x; g, c, eps), one norm a row.

Formula: y[m, n] = (x[m, n] - mean(x[m])) / sqrt(var(x[m]) + eps) · g[n] + c[n], var dividing by N
Shapes: x (M, N), g and c (N,), y (M, N), row-major and of one dtype (fp16, bf16 or fp32).
Traffic: e · (M·N + 2·N) bytes read and e · M·N written, e bytes an element.
Source: Ba, Kiros and Hinton, "Layer Normalization", arXiv 1607.06450, equation 4; the shift of
long rows is Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983, section 3.
The work model excludes: re-reads of g and c by each program (L1, L2), the second read of rows of several blocks but for
their last (L1, L2), the shifted copies of g and c for ragged rows (16 or 8 · e · N bytes written and read, L2), the
shift of long rows, and the M divisions and roots. The variants cuda_cluster and cuda_ragged (sm_90: the longest rows,
and few rows; the latter where they start anywhere) keep a row in the shared memory or the registers of a cluster and
read it once.

Precision: deviations from the mean, or in long rows of the Triton function from the mean of a lane's first elements,
are squared in fp32, so a large mean costs no digits; one rounding to the dtype. Determinism: each row is the work of
one program or one cluster in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.kernel import Config, Tolerance, import_triton
from ledger.kernels.common.baselines import compiled, library
from ledger.kernels.common.row_cluster import RowCluster
from ledger.kernels.common.row_ragged import RowRagged
from ledger.kernels.common.row_reductions import lanes, load_block, reduce_rows, sum_lanes
from ledger.kernels.common.row_tiles import FEW_BYTES, NARROW, SMALL_BYTES, TILE_BYTES, Cell, Tile, up_to, whole_rows
from ledger.kernels.common.rows import RowKernel
from ledger.kernels.common.targets import power_of_two
from ledger.operations import LAYERNORM, LAYERNORM_EPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def _whole(values, masks, edge, edge_mask, eps, N_COLS: tl.constexpr, RAGGED: tl.constexpr):
    sums = tl.zeros(values[0].shape, dtype=tl.float32)
    for i in tl.static_range(len(values)):
        sums += values[i]
    total = tl.sum(sums, axis=1)
    if RAGGED:
        total += tl.sum(edge, axis=1)
    mean = (total / N_COLS)[:, None]
    centred = ()
    squares = tl.zeros(values[0].shape, dtype=tl.float32)
    for i in tl.static_range(len(values)):
        centred = centred + (values[i] - mean,)  # type: ignore[assignment]  # noqa: RUF005
        apart = tl.where(masks[i], centred[i], 0.0)
        squares += apart * apart
    total = tl.sum(squares, axis=1)
    if RAGGED:
        edge = tl.where(edge_mask, edge - mean, 0.0)
        total += tl.sum(edge * edge, axis=1)
    return centred, edge, tl.rsqrt(total / N_COLS + eps)[:, None]


@triton.jit
def _first(x_tile, FULL: tl.constexpr, BLOCK_N: tl.constexpr, LANE: tl.constexpr):
    # Deviations are taken from the mean of a lane's first neighbours. It lies within sqrt(FULL) standard deviations of
    # the lane's own mean, so taking the difference out of the sum of squares costs few digits.
    x = load_block(x_tile, 0, BLOCK_N, 0.0)
    near = sum_lanes(x, LANE) / LANE
    apart = lanes(x, LANE) - near[:, :, None]
    deviations = tl.zeros((1, BLOCK_N // LANE), dtype=tl.float32)
    squares = tl.sum(apart * apart, axis=2)
    for block in tl.range(1, FULL, loop_unroll_factor=2):
        apart = lanes(load_block(x_tile, block, BLOCK_N, 0.0), LANE) - near[:, :, None]
        deviations += tl.sum(apart, axis=2)
        squares += tl.sum(apart * apart, axis=2)
    return near, deviations, squares


@triton.jit
def _combine(state, last, FULL: tl.constexpr, LANE: tl.constexpr):
    if FULL > 0:
        near, deviations, _squares = state
        total = tl.sum(near * (FULL * LANE) + deviations + sum_lanes(last, LANE), axis=1)
    else:
        total = tl.sum(last, axis=1)
    return total


@triton.jit
def _finish(
    total, state, last, last_mask, edge, edge_mask, eps, N_COLS: tl.constexpr, FULL: tl.constexpr, LANE: tl.constexpr,
    RAGGED: tl.constexpr,
):  # fmt: skip
    if RAGGED:
        total += tl.sum(edge)
    mean = (total / N_COLS)[:, None]
    last = tl.where(last_mask, last - mean, 0.0)
    if FULL > 0:
        near, deviations, squares = state
        shift = mean - near
        squares += FULL * LANE * shift * shift - 2 * shift * deviations
        total = tl.sum(squares + sum_lanes(last * last, LANE), axis=1)
    else:
        total = tl.sum(last * last, axis=1)
    if RAGGED:
        edge = tl.where(edge_mask, edge - tl.sum(mean), 0.0)
        total += tl.sum(edge * edge)
    return last, edge, mean, tl.rsqrt(total / N_COLS + eps)[:, None]


@triton.jit
def _again(x, mean):
    return x - mean


@triton.jit
def _epilogue(values, rstd, scales):
    return values * rstd * scales[0] + scales[1]


@triton.jit
def layernorm_kernel(
    x_ptr, gain_ptr, bias_ptr, y_ptr, n_rows, eps, N_COLS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, SCALE_STEP: tl.constexpr, BYPASS_L1: tl.constexpr,
    PIPELINED: tl.constexpr, WARPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    reduce_rows(
        x_ptr, (gain_ptr, bias_ptr), y_ptr, n_rows, eps, _whole, _first, _combine, _finish, _again, _epilogue, 0.0,
        N_COLS, BLOCK_M, BLOCK_N, VECTOR, RAGGED, SCALE_STEP, BYPASS_L1, PIPELINED, WARPS, PDL,
    )  # fmt: skip


def _tile(cell: Cell) -> Tile:
    n, aligned, two_bytes, copied = cell.n, cell.aligned, cell.element == 2, cell.copied
    tile = Tile(*up_to(_BLOCKS[cell.element] if aligned or not two_bytes else _RAGGED_BLOCKS, n))
    if aligned and two_bytes and 2 * NARROW < n <= _FEW_COLUMNS and cell.x_bytes <= FEW_BYTES:
        # Fewer and larger reads where all of x is soon read.
        tile = tile._replace(block_n=2048, num_warps=4)
    if n <= NARROW and (aligned or n <= NARROW // 2 or (two_bytes and copied)):
        halved = (n % 2 and n <= 64) or (not aligned and NARROW // 8 < n <= NARROW // 4)
        tiles: tuple[tuple[int, int, int, int], ...] = _SMALL_TILES if cell.x_bytes < SMALL_BYTES else _TILES
        if not aligned:
            tiles = _RAGGED_TILES if copied else ()
        warps = 2 if power_of_two(n) * cell.element == 2048 else 4
        tile = whole_rows(tile, cell, tiles=tiles, tile_bytes=TILE_BYTES >> bool(halved), num_warps=warps)
    elif n <= NARROW and not copied:
        # Without copies gain and bias come 2 bytes at a time, and two warps would spill.
        tile = tile._replace(num_warps=4)
    elif aligned and two_bytes and 3 * NARROW // 2 < n <= 2 * NARROW and cell.m >= _FOUR_FROM:
        # A row is still what one warp can hold.
        tile = tile._replace(block_m=4, block_n=2 * NARROW, num_warps=4)
    return tile


# Columns over and up to, rows and warps of a tile with 2 bytes an element: any x, x below SMALL_BYTES, rows that start
# anywhere with copies of gain and bias. Elsewhere TILE_BYTES make a tile, and two or four warps.
_TILES = ((64, 256, 16, 8), (512, 1024, 2, 1))
_SMALL_TILES = ((64, 256, 16, 8), (512, 1024, 8, 8))
_RAGGED_TILES = ((128, 256, 4, 4), (256, 1024, 2, 2))
# Most columns that count as few; rows from which four of up to 2048 columns share a program.
_FEW_COLUMNS, _FOUR_FROM = 12_288, 1024
# Bytes an element -> (most columns, BLOCK_N, num_warps, bypass_l1, pipelined_loads), the best of a sweep on
# an H200 at N 1000 to 64001.
_BLOCKS = {
    2: (
        (1024, 1024, 2, 0, 0), (2048, 512, 2, 0, 0), (4096, 1024, 8, 0, 0), (12_288, 2048, 8, 0, 0),
        (20_480, 4096, 16, 0, 0), (32_768, 8192, 16, 0, 0), (45_056, 8192, 32, 0, 0), (53_248, 8192, 32, 1, 0),
        (2**31, 16_384, 32, 1, 1),
    ),
    4: (
        (1024, 1024, 4, 0, 0), (6144, 1024, 8, 0, 0), (12_288, 2048, 8, 0, 0), (20_480, 4096, 16, 0, 0),
        (40_960, 8192, 32, 1, 1), (49_152, 8192, 32, 1, 0), (2**31, 8192, 32, 1, 1),
    ),
}  # fmt: skip
# Edges, gain and bias of ragged rows take registers, so with 2 bytes an element fewer columns a program run best.
_RAGGED_BLOCKS = (
    (1024, 1024, 2, 0, 0), (2048, 512, 2, 0, 0), (6144, 1024, 4, 0, 0), (12_288, 2048, 8, 0, 0),
    (24_576, 4096, 8, 0, 1), (49_152, 4096, 16, 1, 1), (2**31, 8192, 32, 1, 0),
)  # fmt: skip


def _options(config: Config, n_cols: int) -> dict[str, Any]:
    """Return the launch options that change the code.

    Where a thread holds one element, as many as a lane has neighbours hold its sum, and all of them store it. Fused
    with the first addition, a square is rounded in one thread and not in the next: they would store different sums.
    """
    block_m, block_n, threads = int(config["block_m"]), int(config["block_n"]), 32 * int(config["num_warps"])
    return {"enable_fp_fusion": False} if n_cols > block_n and block_m * block_n <= threads else {}


ROWS = RowKernel(
    name="layernorm",
    function=layernorm_kernel,
    # An element takes the mean, the deviation, its square and sum, and three operations of scaling.
    flops=7,
    tile=_tile,
    scales=("gain", "bias"),
    eps=LAYERNORM_EPS,
    flags=("shifted_copies", "bypass_l1", "pipelined_loads"),
    options=_options,
    variants=(
        RowCluster("layernorm", ("gain", "bias"), long_bytes=3 << 17, most_bytes=1 << 20, few_rows=64),
        RowRagged("layernorm", ("gain", "bias"), columns=4096, few_vectors=260_000, many_vectors=1 << 31),
    ),
)


def layernorm(x: Tensor, gain: Tensor, bias: Tensor, *, eps: float = LAYERNORM_EPS) -> Tensor:
    """Return layernorm(x; gain, bias, eps) over the last dimension.

    Shapes: x (…, N), gain and bias (N,) of one dtype on one GPU; the result as x.
    """
    return ROWS(x, gain, bias, eps=eps)


def _norm(torch: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda x, gain, bias: torch.nn.functional.layer_norm(x, list(gain.shape), gain, bias, LAYERNORM_EPS)


def _norm_fp32(torch: Any, out: Tensor, *inputs: Tensor) -> Tensor:
    return out.copy_(_norm(torch)(*(tensor.float() for tensor in inputs)))


_INPUTS = ("x", "gain", "bias")


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64."""
    import torch

    return _norm(torch)(*(inputs[name].double() for name in _INPUTS))


KERNEL = ROWS.kernel(
    operation=LAYERNORM,
    summary="layer norm of rows",
    formula="y = (x - mean(x)) / sqrt(var(x) + 1e-5) · g + c",
    excludes="re-reads of g and c, the second read of long rows, shifted copies for ragged ones, divisions and roots",
    tolerances={
        "fp16": Tolerance(4e-6, 5e-4, "one rounding to 11 bits; the mean, of up to 2.7, has 24"),
        "bf16": Tolerance(4e-6, 4e-3, "one rounding to 8 bits; the mean, of up to 2.7, has 24"),
        "fp32": Tolerance(4e-6, 4e-6, "up to 65536 terms are summed in 24 bits, in a tree; the mean is up to 2.7"),
    },
    reference=reference,
    torch_cpu=library(_norm_fp32, *_INPUTS),
    baselines={
        "torch-eager": library(lambda torch, out, *inputs: _norm(torch)(*inputs), *_INPUTS),
        "torch-compile": compiled(_norm, *_INPUTS),
    },
)

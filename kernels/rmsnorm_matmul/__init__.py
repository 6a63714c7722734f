"""Compute y = rmsnorm(x; g, eps) · W in one kernel, for skinny batches.

Formula: y[b, o] = Σ_k x[b, k] · g[k] · W[k, o] / sqrt(mean_k(x[b, k]²) + eps)
Shapes: x (B, H), g (H,), W (H, O), y (B, O), all row-major and of one dtype (fp16 or bf16).
Traffic: e · (B·H + H + H·O) bytes read and e · B·O written, e bytes an element: each operand once.
Source: deferring rstd to the epilogue is FlashNorm, arXiv 2407.09577, section 2; the swapped operands
(weights as the M side of the tensor-core tile, the batch as its N side) let any batch reach wgmma.
The work model excludes: re-reads of x by each column tile (L2), the split-K partial sums (write and
read of SPLIT_K · 4 · B·O bytes, L2) and the padding of B, H and O to whole tiles.

Precision: x·g is rounded once to the dtype before the product, or g·W where groups of warps take turns
(pipeline 3); squares, products and the split-K sum are fp32; one rounding to the dtype at the end. Assumes
|x·g|, or |g·W|, is within the dtype's range (fp16: 65504).
Determinism: partial sums are added in the order of the parts, whichever program adds them, so the same
inputs give the same bits.
Overlap: with pdl 1 a launch begins while the launch before it ends. It waits for x; the weights, and in
pipeline 3 the gain, it reads at once: they must not be what a launch before that allows this overlap writes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import (
    Ahead,
    AheadCuda,
    Candidate,
    Config,
    Kernel,
    Launch,
    Tolerance,
    import_triton,
    variations,
)
from ledger.kernels.common import configs
from ledger.kernels.common.baselines import compiled, dtype_name, library
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_cuda, tensor_map
from ledger.kernels.common.gluon import import_gluon
from ledger.kernels.common.launches import ahead_of
from ledger.kernels.common.targets import (
    SHARED_BYTES,
    SM_REGISTERS,
    SMS,
    TMA_ALIGNMENT,
    TMA_TARGETS,
    ceil_div,
    device_target,
    is_tma_aligned,
    matmul_path,
)
from ledger.kernels.common.tensor_maps import gluon_descriptors, gluon_types_of, triton_descriptor, triton_type
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.operations import RMSNORM_EPS, RMSNORM_MATMUL, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper, grid = _gluon.gluon, _gluon.language, _gluon.hopper, _gluon.grid
async_load, async_store, reinterpret = _gluon.async_load, _gluon.async_store, _gluon.reinterpret


@triton.jit(do_not_specialize=["n_rows"])
def rmsnorm_matmul_kernel(
    x_ptr,
    gain_ptr,
    weight,
    y_ptr,
    partial_ptr,
    squares_ptr,
    arrivals_ptr,
    n_rows,
    n_inner,
    n_cols,
    eps,
    BLOCK_B: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    TMA: tl.constexpr,
):
    pid_o = tl.program_id(0)
    pid_k = tl.program_id(1)
    pid_b = tl.program_id(2)
    range_b = tl.arange(0, BLOCK_B)
    range_o = tl.arange(0, BLOCK_O)
    range_k = tl.arange(0, BLOCK_K)
    rows = pid_b * BLOCK_B + range_b
    cols = pid_o * BLOCK_O + range_o
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    x_rows = x_ptr + rows.to(tl.int64)[:, None] * n_inner

    tiles = tl.cdiv(n_inner, BLOCK_K)
    tiles_a_split = tl.cdiv(tiles, SPLIT_K)
    first = pid_k * tiles_a_split
    last = tl.minimum(first + tiles_a_split, tiles)

    acc = tl.zeros((BLOCK_O, BLOCK_B), dtype=tl.float32)
    squares = tl.zeros((BLOCK_B, BLOCK_K), dtype=tl.float32)
    for tile in tl.range(first, last):
        inner = tile * BLOCK_K + range_k
        inner_mask = inner < n_inner
        x = tl.load(x_rows + inner[None, :], mask=row_mask[:, None] & inner_mask[None, :], other=0.0)
        gain = tl.load(gain_ptr + inner, mask=inner_mask, other=0.0)
        if TMA:
            w = weight.load([tile * BLOCK_K, pid_o * BLOCK_O])
        else:
            w = tl.load(
                weight + inner.to(tl.int64)[:, None] * n_cols + cols[None, :],
                mask=inner_mask[:, None] & col_mask[None, :],
                other=0.0,
            )
        x32 = x.to(tl.float32)
        squares += x32 * x32
        scaled = (x32 * gain.to(tl.float32)[None, :]).to(x.dtype)
        acc = tl.dot(tl.trans(w), tl.trans(scaled), acc, input_precision="ieee")
    row_squares = tl.sum(squares, axis=1)

    y_ptrs = y_ptr + rows.to(tl.int64)[None, :] * n_cols + cols[:, None]
    y_mask = row_mask[None, :] & col_mask[:, None]
    if SPLIT_K == 1:
        rstd = tl.rsqrt(row_squares / n_inner + eps)
        tl.store(y_ptrs, (acc * rstd[None, :]).to(y_ptr.dtype.element_ty), mask=y_mask)
    else:
        tile_id = pid_b * tl.num_programs(0) + pid_o
        slot = tile_id.to(tl.int64) * SPLIT_K
        in_tile = range_o[:, None] * BLOCK_B + range_b[None, :]
        tl.store(partial_ptr + (slot + pid_k) * (BLOCK_O * BLOCK_B) + in_tile, acc)
        tl.store(squares_ptr + (slot + pid_k) * BLOCK_B + range_b, row_squares)
        # The atomic is one thread's: every thread's partial must be written before it is published.
        tl.debug_barrier()
        arrived = tl.atomic_add(arrivals_ptr + tile_id, 1, sem="acq_rel")
        if arrived == SPLIT_K - 1:
            total = tl.zeros((BLOCK_O, BLOCK_B), dtype=tl.float32)
            total_squares = tl.zeros((BLOCK_B,), dtype=tl.float32)
            for part in tl.static_range(SPLIT_K):
                total += tl.load(partial_ptr + (slot + part) * (BLOCK_O * BLOCK_B) + in_tile, cache_modifier=".cg")
                total_squares += tl.load(squares_ptr + (slot + part) * BLOCK_B + range_b, cache_modifier=".cg")
            rstd = tl.rsqrt(total_squares / n_inner + eps)
            tl.store(y_ptrs, (total * rstd[None, :]).to(y_ptr.dtype.element_ty), mask=y_mask)
            # Ready for the next launch, which starts after this one ends.
            tl.store(arrivals_ptr + tile_id, 0)


@gluon.jit
def _load_weight(weight, w_ring, w_full, w_empty, first, steps, turn, col):
    STAGES: gl.constexpr = w_ring.shape[0]
    BLOCK_K: gl.constexpr = weight.block_shape[0]
    for i in range(steps):
        stage = i % STAGES
        inner = (first + (i + turn) % steps) * BLOCK_K
        hopper.mbarrier.wait(w_empty.index(stage), (i // STAGES & 1) ^ 1)
        hopper.mbarrier.expect(w_full.index(stage), weight.block_type.nbytes)
        async_load(weight, [inner, col], w_full.index(stage), w_ring.index(stage))


@gluon.jit
def _load_x(x, gain, x_ring, gain_ring, x_full, x_empty, first, steps, turn, row):
    STAGES: gl.constexpr = x_ring.shape[0]
    BLOCK_K: gl.constexpr = x.block_shape[1]
    # The launch before this one may have written x and the gain; the weights above were not waited for.
    grid.gdc_wait()
    for i in range(steps):
        stage = i % STAGES
        inner = (first + (i + turn) % steps) * BLOCK_K
        hopper.mbarrier.wait(x_empty.index(stage), (i // STAGES & 1) ^ 1)
        hopper.mbarrier.expect(x_full.index(stage), x.block_type.nbytes + gain.block_type.nbytes)
        async_load(x, [row, inner], x_full.index(stage), x_ring.index(stage))
        async_load(gain, [0, inner], x_full.index(stage), gain_ring.index(stage))


@gluon.jit
def _scale_x(x_ring, gain_ring, squares, x_full, x_ready, steps, PART: gl.constexpr, PARTS: gl.constexpr):
    STAGES: gl.constexpr = x_ring.shape[0]
    BLOCK_B: gl.constexpr = x_ring.shape[1]
    BLOCK_K: gl.constexpr = x_ring.shape[2]
    LANES: gl.constexpr = min(BLOCK_K // 8, 32)
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 // LANES, LANES], [gl.num_warps(), 1], [1, 0])
    eights: gl.constexpr = gl.BlockedLayout([1, 1, 8], [32 // LANES, LANES, 1], [gl.num_warps(), 1, 1], [2, 1, 0])
    # One sum for eight neighbours of a thread: their sum needs no other thread.
    sums = gl.zeros([BLOCK_B, BLOCK_K // 8], gl.float32, gl.SliceLayout(2, eights))
    for i in range(PART, steps, PARTS):
        stage = i % STAGES
        hopper.mbarrier.wait(x_full.index(stage), i // STAGES & 1)
        x = x_ring.index(stage).load(layout)
        x_ring.index(stage).store(x * gain_ring.index(stage).load(layout))
        hopper.fence_async_shared()
        hopper.mbarrier.arrive(x_ready.index(stage), count=1)
        grouped = gl.reshape(x, [BLOCK_B, BLOCK_K // 8, 8])
        x32 = gl.convert_layout(grouped, eights, assert_trivial=True).to(gl.float32)
        sums += gl.sum(x32 * x32, axis=2)
    squares.index(PART).store(gl.sum(sums, axis=1))


@gluon.jit
def _multiply(w_ring, x_ring, w_full, w_empty, x_ready, x_empty, steps):
    W_STAGES: gl.constexpr = w_ring.shape[0]
    X_STAGES: gl.constexpr = x_ring.shape[0]
    BLOCK_O: gl.constexpr = w_ring.shape[2]
    BLOCK_B: gl.constexpr = x_ring.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_B, 16])
    acc = gl.zeros([BLOCK_O, BLOCK_B], gl.float32, layout)
    for i in range(steps):
        w, x = i % W_STAGES, i % X_STAGES
        hopper.mbarrier.wait(x_ready.index(x), i // X_STAGES & 1)
        hopper.mbarrier.wait(w_full.index(w), i // W_STAGES & 1)
        weight_t = w_ring.index(w).permute((1, 0))
        acc = hopper.warpgroup_mma(weight_t, x_ring.index(x).permute((1, 0)), acc, is_async=True)
        # The product of the step before is done; this one runs on.
        acc = hopper.warpgroup_mma_wait(1, deps=(acc,))
        hopper.mbarrier.arrive(w_empty.index((i + W_STAGES - 1) % W_STAGES), count=1, pred=i > 0)
        hopper.mbarrier.arrive(x_empty.index((i + X_STAGES - 1) % X_STAGES), count=1, pred=i > 0)
    return (hopper.warpgroup_mma_wait(0, deps=(acc,)),)


@gluon.jit
def _finish(
    acc, y, y_ptr, partial_ptr, squares_ptr, w_ring, squares, pid_o, pid_k, pid_b, n_rows, n_inner, n_cols, eps,
    BLOCK_B: gl.constexpr, SPLIT_K: gl.constexpr,
):  # fmt: skip
    BLOCK_O: gl.constexpr = w_ring.shape[2]
    SCALERS: gl.constexpr = squares.shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_B, 16])
    b_layout: gl.constexpr = gl.SliceLayout(0, layout)
    row_squares = squares.index(0).load(b_layout)
    for part in gl.static_range(1, SCALERS):
        row_squares += squares.index(part).load(b_layout)
    grid.gdc_wait()
    if SPLIT_K == 1:
        rstd = gl.rsqrt(row_squares / n_inner + eps)
        # All weights are used up: their buffer carries the result out, seen as tiles of y (3.8 wants the whole buffer).
        TILES: gl.constexpr = w_ring.shape[0] * w_ring.shape[1] // BLOCK_B
        y_tile = reinterpret(w_ring, y.dtype, [TILES, BLOCK_B, BLOCK_O], y.layout).index(0)
        y_tile.permute((1, 0)).store((acc * rstd[None, :]).to(y.dtype))
        hopper.fence_async_shared()
        tl.debug_barrier()
        async_store(y, [pid_b * BLOCK_B, pid_o * BLOCK_O], y_tile)
        hopper.tma.store_wait(0)
    else:
        # Partial sums lie as [tile][part that reads][part that wrote][row][column of the reader's share].
        COLS: gl.constexpr = BLOCK_O // SPLIT_K
        range_o = gl.arange(0, BLOCK_O, gl.SliceLayout(1, layout))
        range_b = gl.arange(0, BLOCK_B, b_layout)
        live = pid_b * BLOCK_B + range_b < n_rows
        tile = (pid_b * gl.cdiv(n_cols, BLOCK_O) + pid_o).to(gl.int64)
        partial = partial_ptr + tile * (SPLIT_K * BLOCK_O * BLOCK_B)
        sums = squares_ptr + tile * (SPLIT_K * SPLIT_K * BLOCK_B)
        share = (range_o // COLS) * (SPLIT_K * BLOCK_B * COLS) + range_o % COLS
        offsets = share[:, None] + (range_b * COLS)[None, :]
        gl.store(partial + pid_k * (BLOCK_B * COLS) + offsets, acc, mask=live[None, :] & (offsets >= 0))
        for reader in gl.static_range(SPLIT_K):
            gl.store(sums + (reader * SPLIT_K + pid_k) * BLOCK_B + range_b, row_squares, mask=live)
        _add_parts(
            y_ptr, partial + pid_k * (BLOCK_O * BLOCK_B), sums + pid_k * (SPLIT_K * BLOCK_B), pid_b * BLOCK_B,
            pid_o * BLOCK_O + pid_k * COLS, n_rows, n_inner, n_cols, eps, SPLIT_K, BLOCK_B, COLS,
        )  # fmt: skip


@gluon.jit
def _add_parts(
    y_ptr, partial, squares, row, col, n_rows, n_inner, n_cols, eps,
    SPLIT_K: gl.constexpr, BLOCK_B: gl.constexpr, COLS: gl.constexpr,
):  # fmt: skip
    EMPTY: gl.constexpr = 0x7FFFDEAD  # _EMPTY, which a kernel cannot read
    VECTOR: gl.constexpr = min(4, COLS)
    LANES: gl.constexpr = min(COLS // VECTOR, 32)
    layout: gl.constexpr = gl.BlockedLayout(
        [SPLIT_K, 1, VECTOR], [1, 32 // LANES, LANES], [1, gl.num_warps(), 1], [2, 1, 0]
    )
    pairs: gl.constexpr = gl.SliceLayout(2, layout)
    flat: gl.constexpr = gl.SliceLayout(0, layout)
    part = gl.arange(0, SPLIT_K, gl.SliceLayout(1, pairs))[:, None]
    b = gl.arange(0, BLOCK_B, gl.SliceLayout(0, pairs))[None, :]
    o = gl.arange(0, COLS, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    squares_ptrs = squares + part * BLOCK_B + b
    squares_live = (row + b < n_rows) & (part >= 0)
    partial_ptrs = partial + (part * (BLOCK_B * COLS) + b * COLS)[:, :, None] + o
    partial_live = squares_live[:, :, None] & (o >= 0)
    values = gl.full([SPLIT_K, BLOCK_B, COLS], 0.0, gl.float32, layout)
    sums = gl.full([SPLIT_K, BLOCK_B], 0.0, gl.float32, pairs)
    # Every element is its own flag, so no fence and no counter stands between its writer and its reader.
    waiting = 1
    while waiting != 0:
        values = gl.load(partial_ptrs, mask=partial_live, other=0.0, volatile=True)
        sums = gl.load(squares_ptrs, mask=squares_live, other=0.0, volatile=True)
        missing = gl.max((values.to(gl.int32, bitcast=True) == EMPTY).to(gl.int32), axis=2)
        missing = gl.maximum(missing, (sums.to(gl.int32, bitcast=True) == EMPTY).to(gl.int32))
        waiting = gl.max(gl.max(missing, axis=0), axis=0)
    # Two warps may hold the same elements: neither may empty them before the other has seen them.
    tl.debug_barrier()
    empty = gl.full([SPLIT_K, BLOCK_B, COLS], EMPTY, gl.int32, layout).to(gl.float32, bitcast=True)
    gl.store(partial_ptrs, empty, mask=partial_live)
    empty = gl.full([SPLIT_K, BLOCK_B], EMPTY, gl.int32, pairs).to(gl.float32, bitcast=True)
    gl.store(squares_ptrs, empty, mask=squares_live)
    total = gl.sum(values, axis=0)
    rstd = gl.rsqrt(gl.sum(sums, axis=0) / n_inner + eps)
    rstd = gl.convert_layout(rstd, gl.SliceLayout(1, flat), assert_trivial=True)
    rows = row + gl.arange(0, BLOCK_B, gl.SliceLayout(1, flat))
    cols = col + gl.arange(0, COLS, gl.SliceLayout(0, flat))
    y_ptrs = y_ptr + rows.to(gl.int64)[:, None] * n_cols + cols[None, :]
    y_live = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    gl.store(y_ptrs, (total * rstd[:, None]).to(y_ptr.dtype.element_ty), mask=y_live)


@gluon.jit(do_not_specialize=["n_rows"])
def rmsnorm_matmul_pipelined(
    x,
    gain,
    weight,
    y,
    y_ptr,
    partial_ptr,
    squares_ptr,
    n_rows,
    n_inner,
    n_cols,
    eps,
    SPLIT_K: gl.constexpr,
    W_STAGES: gl.constexpr,
    X_STAGES: gl.constexpr,
    SCALERS: gl.constexpr,
):
    BLOCK_K: gl.constexpr = weight.block_shape[0]
    BLOCK_O: gl.constexpr = weight.block_shape[1]
    BLOCK_B: gl.constexpr = x.block_shape[0]
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    grid.gdc_launch_dependents()
    barrier: gl.constexpr = hopper.mbarrier.MBarrierLayout()
    w_ring = gl.allocate_shared_memory(weight.dtype, [W_STAGES, BLOCK_K, BLOCK_O], weight.layout)
    x_ring = gl.allocate_shared_memory(x.dtype, [X_STAGES, BLOCK_B, BLOCK_K], x.layout)
    gain_ring = gl.allocate_shared_memory(x.dtype, [X_STAGES, 1, BLOCK_K], gain.layout)
    squares = gl.allocate_shared_memory(gl.float32, [SCALERS, BLOCK_B], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    w_full = gl.allocate_shared_memory(gl.int64, [W_STAGES, 1], barrier)
    w_empty = gl.allocate_shared_memory(gl.int64, [W_STAGES, 1], barrier)
    x_full = gl.allocate_shared_memory(gl.int64, [X_STAGES, 1], barrier)
    x_ready = gl.allocate_shared_memory(gl.int64, [X_STAGES, 1], barrier)
    x_empty = gl.allocate_shared_memory(gl.int64, [X_STAGES, 1], barrier)
    for i in gl.static_range(W_STAGES):
        hopper.mbarrier.init(w_full.index(i), count=1)
        hopper.mbarrier.init(w_empty.index(i), count=1)
    for i in gl.static_range(X_STAGES):
        hopper.mbarrier.init(x_full.index(i), count=1)
        hopper.mbarrier.init(x_ready.index(i), count=1)
        hopper.mbarrier.init(x_empty.index(i), count=1)

    # The parts of a tile are neighbours, so that when one runs and waits, the others run or come next.
    pid_o = gl.program_id(0) // SPLIT_K
    pid_k = gl.program_id(0) % SPLIT_K
    pid_b = gl.program_id(1)
    tiles = gl.cdiv(n_inner, BLOCK_K)
    first = tiles * pid_k // SPLIT_K
    steps = tiles * (pid_k + 1) // SPLIT_K - first
    # Each column of tiles starts elsewhere in x: all reading one tile of it at once would queue at a few L2 slices.
    turn = pid_o
    # What a thread that scales needs; with 8 multiplying warps fewer are left.
    REGISTERS: gl.constexpr = 88 if gl.num_warps() == 4 else 72
    # fmt: off
    if SCALERS == 1:
        (acc,) = gl.warp_specialize([
            (_multiply, (w_ring, x_ring, w_full, w_empty, x_ready, x_empty, steps)),
            (_load_weight, (weight, w_ring, w_full, w_empty, first, steps, turn, pid_o * BLOCK_O)),
            (_load_x, (x, gain, x_ring, gain_ring, x_full, x_empty, first, steps, turn, pid_b * BLOCK_B)),
            (_scale_x, (x_ring, gain_ring, squares, x_full, x_ready, steps, FIRST, SCALERS)),
        ], [1, 1, 4], [24, 24, REGISTERS])
    else:
        (acc,) = gl.warp_specialize([
            (_multiply, (w_ring, x_ring, w_full, w_empty, x_ready, x_empty, steps)),
            (_load_weight, (weight, w_ring, w_full, w_empty, first, steps, turn, pid_o * BLOCK_O)),
            (_load_x, (x, gain, x_ring, gain_ring, x_full, x_empty, first, steps, turn, pid_b * BLOCK_B)),
            (_scale_x, (x_ring, gain_ring, squares, x_full, x_ready, steps, FIRST, SCALERS)),
            (_scale_x, (x_ring, gain_ring, squares, x_full, x_ready, steps, SECOND, SCALERS)),
        ], [1, 1, 4, 4], [24, 24, REGISTERS, REGISTERS])
    # Every thread has come here through one barrier, so the sums of squares need none of their own.
    _finish(
        acc, y, y_ptr, partial_ptr, squares_ptr, w_ring, squares, pid_o, pid_k, pid_b, n_rows, n_inner, n_cols, eps,
        BLOCK_B, SPLIT_K,
    )
    # fmt: on


def _cluster_source(config: Config, dtype: Dtype) -> CudaSource:
    defines = {
        "BLOCK_B": config["block_b"], "BLOCK_O": config["block_o"], "SPLIT": config["split_k"],
        "STAGES": config["num_stages"], "BF16": int(dtype == "bf16"),
    }  # fmt: skip
    # x in registers, the MN-major weights in shared memory.
    kind = "bf16" if dtype == "bf16" else "f16"
    products = Wgmma(n=_cluster_columns(config), kind=kind, a="registers", b_transposed=True, zeroing=False)
    return cuda_source(
        __name__, "cluster.cu", entry="rmsnorm_matmul_cluster", defines=defines, generated=wgmma_header(products)
    )


def _turns_source(config: Config, n_rows: int, dtype: Dtype) -> CudaSource:
    defines = {
        "ROWS": config["block_b"], "COLS": config["block_o"], "GROUPS": _turns_groups(config),
        "AHEAD": int(_turns_ahead(config)),
        "SHARE": _turns_share(config, n_rows), "PARTS": config["split_k"], "W_STAGES": config["num_stages"],
        "X_STAGES": config["x_stages"], "OWN_SQUARES": int(_turns_own_squarers(config) > 0),
        "BF16": int(dtype == "bf16"),
    }  # fmt: skip
    # The weights in registers, the K-major x in shared memory.
    products = Wgmma(n=config["block_b"], kind="bf16" if dtype == "bf16" else "f16", a="registers", zeroing=False)
    return cuda_source(
        __name__, "turns.cu", entry="rmsnorm_matmul_turns", defines=defines, generated=wgmma_header(products)
    )


def _turns_groups(config: Config) -> int:
    """Return how many steps are under way at once: 64 columns of a step take a group of four warps."""
    return int(config["num_warps"]) * 16 // int(config["block_o"])


def _turns_ahead(config: Config) -> bool:
    """Return whether a group scales its next weights beside its products: there must be registers for them.

    With barriers together a group's steps are not evenly apart, and two groups would wait for each other.
    """
    evenly = config["x_stages"] > 0 and config["block_b"] <= 192
    return config["num_warps"] == 8 and (_turns_groups(config) == 1 or evenly)


def _turns_share(config: Config, n_rows: int) -> int:
    """Return how many programs, one row tile each, load the weights together."""
    return 1 if config["split_k"] > 1 else 2 - ceil_div(n_rows, config["block_b"]) % 2


def _turns_programs(config: Config, n_rows: int, n_cols: int) -> int:
    return ceil_div(n_rows, config["block_b"]) * ceil_div(n_cols, config["block_o"]) * config["split_k"]


def _turns_own_squarers(config: Config) -> int:
    """Return the warps that square all of a program's rows: with more rows they would be slower than its products."""
    return 4 if config["block_b"] <= _TURNS_OWN_ROWS else 0


def _turns_threads(config: Config) -> int:
    """Return the threads of a program: those that multiply, two warps that load, and those that square.

    The two that square rows for all programs make twelve warps, with 168 registers a thread, or twenty, with 96.
    """
    return 32 * (config["num_warps"] + 2 + (_turns_own_squarers(config) or 2))


def _cluster_columns(config: Config) -> int:
    """Return how many columns a group of four warps multiplies: with 64 rows the two groups share the columns."""
    return config["block_o"] if config["block_b"] == 128 else config["block_o"] // 2


def _cluster_threads(config: Config) -> int:
    # With 256 columns a whole group of warps goes with the loader, to give its registers to those that multiply.
    return 384 if _cluster_columns(config) == 256 else 288


def _cluster_programs(config: Config, n_rows: int, n_cols: int) -> int:
    tiles = ceil_div(n_rows, config["block_b"]) * ceil_div(n_cols, config["block_o"])
    # Without parts a program takes tile after tile.
    return tiles * config["split_k"] if config["split_k"] > 1 else min(tiles, SMS["sm_90"])


def _row_sums(config: Config, n_rows: int, n_cols: int) -> int:
    """Return how many words the sums of squares take: row tile, team of column tiles, reader, writer, row."""
    if config["split_k"] == 1:
        return 1
    writers = _TEAM * config["split_k"]
    readers = writers * (2 if config["block_b"] == 64 else 1)
    teams = ceil_div(ceil_div(n_cols, config["block_o"]), _TEAM)
    return ceil_div(n_rows, config["block_b"]) * teams * readers * writers * int(config["block_b"])


def _prepare_cluster(inputs: Mapping[str, Tensor], out: Tensor, config: Config, eps: float) -> Launch:
    import torch

    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]
    n_rows, n_inner = x.shape
    n_cols = weight.shape[1]
    dtype = dtype_name(x, "rmsnorm_matmul")
    maps = [
        tensor_map(x, (config["block_b"], config["block_k"])),
        tensor_map(gain.view(1, n_inner), (1, _GAIN_STEPS * config["block_k"])),
        tensor_map(weight, (config["block_k"], 64)),
    ]
    row_sums = torch.full((_row_sums(config, n_rows, n_cols),), _EMPTY, dtype=torch.int32, device=x.device)
    return prepare_cuda(
        _cluster_source(config, dtype),
        programs=_cluster_programs(config, n_rows, n_cols),
        threads=_cluster_threads(config),
        shared_bytes=shared_bytes(config, dtype, n_inner),
        arguments=[*maps, out, row_sums, n_rows, n_inner, n_cols, float(eps)],
        overlap=bool(config["pdl"]),
    )


def _prepare_turns(inputs: Mapping[str, Tensor], out: Tensor, config: Config, eps: float) -> Launch:
    import torch

    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]
    n_rows, n_inner = x.shape
    n_cols = weight.shape[1]
    block_k = config["block_k"]
    maps = [
        tensor_map(x, (config["block_b"], block_k)),
        tensor_map(weight, (block_k // _turns_share(config, n_rows), 64)),
    ]
    # One copy for each column tile of the sums that the first programs hand on.
    words = 0 if _turns_own_squarers(config) else ceil_div(n_cols, config["block_o"]) * n_rows
    row_sums = torch.full((words,), _EMPTY, dtype=torch.int32, device=x.device)
    programs = _turns_programs(config, n_rows, n_cols)
    # All programs wait for those that square rows: the first, and no more than surely run at once.
    squaring = min(programs, int(torch.cuda.get_device_properties(x.device).multi_processor_count) // 2)
    return prepare_cuda(
        _turns_source(config, n_rows, dtype_name(x, "rmsnorm_matmul")),
        programs=programs,
        threads=_turns_threads(config),
        shared_bytes=shared_bytes(config, dtype_name(x, "rmsnorm_matmul"), n_inner),
        arguments=[*maps, x, gain, out, row_sums, squaring, n_rows, n_inner, n_cols, float(eps)],
        overlap=bool(config["pdl"]),
    )


def rmsnorm_matmul(x: Tensor, gain: Tensor, weight: Tensor, *, eps: float = RMSNORM_EPS) -> Tensor:
    """Return rmsnorm(x; gain, eps) · weight.

    Shapes: x (B, H), gain (H,), weight (H, O) of one dtype on one GPU; the result (B, O).
    """
    import torch

    inputs = {"x": x.contiguous(), "gain": gain.contiguous(), "weight": weight.contiguous()}
    out = torch.empty((x.shape[0], weight.shape[1]), dtype=x.dtype, device=x.device)
    shape = {"B": x.shape[0], "H": x.shape[1], "O": weight.shape[1]}
    dtype, target = dtype_name(x, "rmsnorm_matmul"), device_target(x)
    config = config_for(shape, dtype, target)
    if not is_tma_aligned(*inputs.values()):
        config = {**_portable_config(shape, dtype, target), "tma": 0}
    _prepare(inputs, out, config, eps)()
    return out


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Allocate the workspace and return the launch of the fused kernel."""
    return _prepare(inputs, out, config, RMSNORM_EPS)


def _prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config, eps: float) -> Launch:
    prepare = (_prepare_portable, _prepare_pipelined, _prepare_cluster, _prepare_turns)[config["pipeline"]]
    return prepare(inputs, out, config, eps)


def _prepare_portable(inputs: Mapping[str, Tensor], out: Tensor, config: Config, eps: float) -> Launch:
    import torch

    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]
    n_rows, n_inner = x.shape
    n_cols = weight.shape[1]
    block_b, block_o, split_k = config["block_b"], config["block_o"], config["split_k"]
    tiles = ceil_div(n_cols, block_o) * ceil_div(n_rows, block_b)
    slots = tiles * split_k if split_k > 1 else 1
    partial = torch.empty(slots * block_o * block_b, dtype=torch.float32, device=x.device)
    squares = torch.empty(slots * block_b, dtype=torch.float32, device=x.device)
    arrivals = torch.zeros(tiles, dtype=torch.int32, device=x.device)
    operand = triton_descriptor(weight, [config["block_k"], block_o]) if config["tma"] else weight
    programs = (ceil_div(n_cols, block_o), split_k, ceil_div(n_rows, block_b))

    def launch() -> None:
        rmsnorm_matmul_kernel[programs](
            x, gain, operand, out, partial, squares, arrivals, n_rows, n_inner, n_cols, eps,
            **_constants(config), num_warps=config["num_warps"], num_stages=config["num_stages"],
        )  # fmt: skip

    return launch


def _prepare_pipelined(inputs: Mapping[str, Tensor], out: Tensor, config: Config, eps: float) -> Launch:
    import torch

    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]
    n_rows, n_inner = x.shape
    n_cols = weight.shape[1]
    split_k = config["split_k"]
    tiles = ceil_div(n_cols, config["block_o"]) * ceil_div(n_rows, config["block_b"])
    slots = tiles * split_k if split_k > 1 else 0
    partial = torch.full(
        (slots * config["block_o"] * config["block_b"] + 1,), _EMPTY, dtype=torch.int32, device=x.device
    )
    squares = torch.full((slots * split_k * config["block_b"] + 1,), _EMPTY, dtype=torch.int32, device=x.device)
    tensors = {"x": x, "gain": gain.view(1, n_inner), "weight": weight, "y": out}
    operands = gluon_descriptors(tensors, _blocks(config))
    programs = (ceil_div(n_cols, config["block_o"]) * split_k, ceil_div(n_rows, config["block_b"]))

    def launch() -> None:
        rmsnorm_matmul_pipelined[programs](
            *operands, out, partial.view(torch.float32), squares.view(torch.float32), n_rows, n_inner, n_cols, eps,
            **_pipelined_constants(config), **_pipelined_options(config),
        )  # fmt: skip

    return launch


def _blocks(config: Config) -> dict[str, list[int]]:
    block_b, block_o, block_k = config["block_b"], config["block_o"], config["block_k"]
    return {"x": [block_b, block_k], "gain": [1, block_k], "weight": [block_k, block_o], "y": [block_b, block_o]}


def _pipelined_constants(config: Config) -> dict[str, int]:
    return {
        "SPLIT_K": config["split_k"], "W_STAGES": config["num_stages"], "X_STAGES": config["x_stages"],
        "SCALERS": config["scalers"],
    }  # fmt: skip


def _pipelined_options(config: Config) -> dict[str, int]:
    # Beside the multiplying warps: a group of 4 with the two loading warps in it, and 4 a scaler.
    warps = config["num_warps"] + 4 + 4 * config["scalers"]
    registers = min(168, SM_REGISTERS // (32 * warps) // 8 * 8)
    return {"num_warps": config["num_warps"], "maxnreg": registers, "launch_pdl": bool(config["pdl"])}


def _constants(config: Config) -> dict[str, int]:
    return {name.upper(): config[name] for name in ("block_b", "block_o", "block_k", "split_k", "tma")}


def prepare_torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return the same result by plain torch calls, one after the other: nothing is fused."""
    import torch

    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]

    def launch() -> None:
        x32 = x.float()
        rstd = torch.rsqrt(x32.square().mean(dim=1, keepdim=True) + RMSNORM_EPS)
        torch.matmul((x32 * rstd * gain.float()).to(x.dtype), weight, out=out)

    return launch


def _two_calls(torch: Any, out: Tensor, x: Tensor, gain: Tensor, weight: Tensor) -> None:
    torch.matmul(torch.nn.functional.rms_norm(x, list(gain.shape), gain, RMSNORM_EPS), weight, out=out)


def _unfused(torch: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def unfused(x: Tensor, gain: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(x, list(gain.shape), gain, RMSNORM_EPS) @ weight

    return unfused


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64."""
    import torch

    x = inputs["x"].double()
    rstd = torch.rsqrt(x.square().mean(dim=1, keepdim=True) + RMSNORM_EPS)
    return (x * rstd * inputs["gain"].double()) @ inputs["weight"].double()


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count the product, the squares and the scaling by gain and rstd; each operand moves once."""
    b, h, o = shape["B"], shape["H"], shape["O"]
    element = DTYPE_BYTES[dtype]
    # 2BHO product, 2BH squares, BH gain, BO rstd; the B divisions and roots are left out.
    return Work(
        flops=2 * b * h * o + 3 * b * h + b * o,
        bytes_read=element * (b * h + h + h * o),
        bytes_written=element * b * o,
    )


_MAX_SPLITS = 8
# Of the cluster kernel: steps of the inner dimension whose gain comes in one load, and column tiles that share squares.
_GAIN_STEPS = 4
_TEAM = 4
# The bits of a partial sum that was not written yet: a NaN that no arithmetic gives.
_EMPTY = 0x7FFF_DEAD

# (target, BLOCK_B) -> (largest BLOCK_O, BLOCK_K, num_stages) for two-byte dtypes. On sm_90 measured on an H200 with
# cold weights at B 2, 24, 48, 96 and H = O 1920, 3840, 7680; elsewhere chosen to fit in shared memory.
_TILES = {
    ("sm_75", 16): (64, 32, 2),
    ("sm_75", 32): (64, 32, 2),
    ("sm_80", 16): (64, 64, 4),
    ("sm_80", 32): (64, 64, 4),
    ("sm_80", 64): (128, 64, 4),
    ("sm_80", 128): (128, 32, 4),
    ("sm_89", 16): (64, 64, 4),
    ("sm_89", 32): (64, 64, 4),
    ("sm_89", 64): (128, 32, 4),
    ("sm_89", 128): (128, 32, 3),
    ("sm_90", 16): (64, 256, 5),
    ("sm_90", 32): (64, 256, 4),
    ("sm_90", 64): (128, 128, 4),
    ("sm_90", 128): (256, 64, 4),
    ("sm_100", 16): (128, 128, 5),
    ("sm_100", 32): (128, 128, 5),
    ("sm_100", 64): (128, 128, 4),
    ("sm_100", 128): (128, 32, 8),
}


# BLOCK_B -> (largest BLOCK_O, BLOCK_K, stages of x, groups of warps that scale x, most programs), pipelined kernel.
# Measured on an H200, cold weights, B 1 to 64. Up to B = 32 half of the chip keeps the DRAM busy, and the next
# launch loads its weights on the other half; beyond, L2 feeds the tiles of x, which takes every multiprocessor.
_PIPELINED = {
    8: (64, 256, 4, 1, 66),
    16: (64, 128, 8, 2, 66),
    32: (64, 128, 8, 2, 66),
    64: (64, 128, 4, 2, 132),
}
_LEAST_INNER = 512


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    element = DTYPE_BYTES[dtype]
    aligned = all(shape[key] * element % TMA_ALIGNMENT == 0 for key in ("H", "O"))
    if target != "sm_90" or element != 2 or not aligned:
        return _portable_config(shape, dtype, target)
    turns = _turns_config(shape, dtype)
    if turns is not None:
        return turns
    cluster = _cluster_config(shape, dtype) if shape["B"] > 32 else None
    return cluster or (_pipelined_config(shape, dtype) if shape["B"] <= 64 else _portable_config(shape, dtype, target))


# Measured on an H200, cold weights, B 1 to 512, H 2048 to 14336 and O 512 to 28672.
_TURNS_OWN_ROWS = 32
# Rows of a tile of 64 and of 128 columns.
_TURNS_MOST_ROWS = {64: 224, 128: 256}


def _turns_config(shape: Shape, dtype: Dtype) -> dict[str, int] | None:
    """Return the configuration of groups in turn, or None where another kernel is faster."""
    b, h, o = shape["B"], shape["H"], shape["O"]
    programs = SMS["sm_90"]
    tiles, wide = ceil_div(o, 64), ceil_div(o, 128)
    row_tiles, columns, parts = 1, 64, 1
    if 2 * tiles <= programs:
        if b > 112:
            # Pairs of row tiles share the weights, if nothing else is shared; each takes in half of x.
            row_tiles = 2
            while 2 * row_tiles * tiles <= programs and b > 80 * row_tiles:
                row_tiles *= 2
        parts = 2 if 2 * row_tiles * tiles <= programs else 1
        # More parts only while the next launch keeps half of the chip to load its first weights.
        while 4 * parts * row_tiles * tiles <= programs and parts < _MAX_SPLITS:
            parts *= 2
    elif tiles <= programs:
        if b <= 8:
            return None
        # Weights of 8192 columns and x once for every 128 of them, but where the sums of two parts are large.
        if not 128 < b <= 192:
            columns, parts = 128, 2
    elif b <= 32 and (wide <= programs or b > 8 or h < 8192):
        # Two parts of long rows, where whole tiles leave a quarter of the chip idle or are more than one wave.
        fills = 3 * programs <= 4 * wide <= 4 * programs
        columns, parts = 128, 2 if not fills and h >= (4096 if wide <= programs else 8192) else 1
    elif wide <= programs and 64 < b <= 192:
        columns = 128
    else:
        return None
    while parts > 1 and h < parts * _LEAST_INNER:
        parts //= 2
    rows = 8 * ceil_div(ceil_div(b, row_tiles), 8)
    if rows > _TURNS_MOST_ROWS[columns]:
        return None
    # Sixteen warps, or eight where that was faster and where more would not have the registers for their sums.
    half = row_tiles * tiles * parts <= programs // 2
    eight_win = columns == 64 and parts > 1 and rows >= 24
    eight_win = eight_win and (((half or row_tiles > 1) and rows <= 64) or 2048 * parts <= h < 4096 * parts)
    config = {
        "block_b": rows, "block_o": columns, "block_k": 64, "split_k": parts,
        "num_warps": 8 if rows > (96 if columns == 64 else 128) or eight_win else 16, "num_stages": 0,
        "tma": 1, "pipeline": 3, "x_stages": 0, "scalers": 0, "pdl": 1,
    }  # fmt: skip
    # Many short steps, over most of the chip, are faster with half of the barriers.
    together = columns == 64 and parts > 1 and rows >= 24 and h >= 1536 * parts and not half
    return _turns_filled(config, shape, dtype, together=together)


def _turns_own_rows(config: Config) -> int:
    """Return how many rows of a tile one of its parts ends, at most: whole eights."""
    return 8 * ceil_div(config["block_b"], 8 * config["split_k"])


def _turns_each(config: Config) -> int:
    """Return what two rings' stages must be a multiple of: a stage is always the same group's and squarer's."""
    return math.lcm(_turns_groups(config), _turns_own_squarers(config) or 1)


def _turns_filled(config: Config, shape: Shape, dtype: Dtype, *, together: bool) -> dict[str, int] | None:
    """Return a configuration with as many stages as fit and are of use; None where the sums do not fit into them."""
    h, groups, each = shape["H"], _turns_groups(config), _turns_each(config)
    steps = ceil_div(ceil_div(h, config["block_k"]), config["split_k"])
    # Measured: more stages of x cost stages of the weights, most where these come for two programs and so later.
    most = 8 if _turns_share(config, shape["B"]) > 1 else 12
    if together:
        most = steps
    elif _turns_own_squarers(config):
        most = 16

    def with_stages(weights: int, x: int) -> dict[str, int]:
        return {**config, "num_stages": weights, "x_stages": 0 if together else x}

    def fits(weights: int, x: int) -> bool:
        return shared_bytes(with_stages(weights, x), dtype, h) <= SHARED_BYTES["sm_90"]

    def too_few(weights: int, x: int) -> bool:
        filled = with_stages(weights, x)
        return _turns_ring(filled) < _turns_sums(filled) or x < least

    weights = x = each
    more = 1 if together else each
    least = 2 * groups if _turns_ahead(with_stages(weights, x)) else each
    wanted = max(least, min(most, steps))
    while (x < wanted or (together and too_few(weights, x))) and fits(weights + more, x + more):
        weights, x = weights + more, x + more
    while not together and (weights < steps or too_few(weights, x)) and fits(weights + groups, x):
        weights += groups
    return with_stages(weights, x) if fits(weights, x) and not too_few(weights, x) else None


# (block_b, BLOCK_O, parts) -> time of a tile, its whole inner dimension, in units of the rule's own. Fitted to runs on
# an H200: B 40 to 128 and H = O 2048, 4096 and 8192, O 13824 and 14336, and for 256 columns B 640 to 3072; that of
# 64 x 256 is a guess; parts of 256 columns were fitted later, at B 128 to 512 and O 4096 to 14336, in a single wave.
_CLUSTER_TILES = {
    (64, 64, 2): 0.17, (64, 128, 2): 0.20, (64, 128, 1): 0.38, (64, 256, 1): 0.62,
    (128, 64, 2): 0.205, (128, 128, 2): 0.28, (128, 64, 1): 0.48, (128, 128, 1): 0.55, (128, 256, 1): 0.76,
    (128, 256, 2): 0.45,
}  # fmt: skip
# Programs on more than half of the chip leave no room for the next launch to load its first weights.
_CLUSTER_CROWDED = 1.3
_CLUSTER_STAGES = 13


def _cluster_config(shape: Shape, dtype: Dtype) -> dict[str, int] | None:
    """Return a CUDA C++ kernel's configuration, or None where all of the gain does not fit into shared memory."""
    b, h, o = shape["B"], shape["H"], shape["O"]

    def programs(tile: tuple[int, int, int]) -> int:
        return ceil_div(b, tile[0]) * ceil_div(o, tile[1]) * tile[2]

    def cost(tile: tuple[int, int, int]) -> float:
        waves = math.ceil(programs(tile) / SMS["sm_90"])
        return waves * _CLUSTER_TILES[tile] * (_CLUSTER_CROWDED if 2 * programs(tile) > SMS["sm_90"] else 1.0)

    def fits(tile: tuple[int, int, int]) -> bool:
        if tile == (128, 256, 2) and programs(tile) > SMS["sm_90"]:
            return False
        # Tiles of 64 rows read the weights once for each of them.
        return (tile[0] == 64 if b <= 64 else tile[0] == 128 or b <= 128) and (tile[2] == 1 or h >= 2 * _LEAST_INNER)

    best = min(filter(fits, _CLUSTER_TILES), key=cost)
    block_b, block_o, split_k = best
    config = {
        "block_b": block_b, "block_o": block_o, "block_k": 64, "split_k": split_k, "num_warps": 8,
        "num_stages": _CLUSTER_STAGES, "tma": 1, "pipeline": 2, "x_stages": 0, "scalers": 0, "pdl": 1,
    }  # fmt: skip
    while shared_bytes(config, dtype, h) > SHARED_BYTES["sm_90"]:
        config["num_stages"] -= 1
        if config["num_stages"] < 2:
            return None
    return config


def _pipelined_config(shape: Shape, dtype: Dtype) -> dict[str, int]:
    b, h, o = shape["B"], shape["H"], shape["O"]
    block_b = next(size for size in _PIPELINED if size >= b)
    largest_o, block_k, x_stages, scalers, programs = _PIPELINED[block_b]
    block_o = 64
    while block_o < largest_o and 4 * ceil_div(o, block_o) > SMS["sm_90"]:
        block_o *= 2
    split_k = 1
    while split_k < _MAX_SPLITS and 2 * split_k * ceil_div(o, block_o) <= programs and h >= 2 * split_k * _LEAST_INNER:
        split_k *= 2
    config = {
        "block_b": block_b, "block_o": block_o, "block_k": block_k, "split_k": split_k, "num_warps": block_o // 16,
        "num_stages": 2, "tma": 1, "pipeline": 1, "x_stages": x_stages, "scalers": scalers, "pdl": 1,
    }  # fmt: skip
    steps = ceil_div(ceil_div(h, block_k), split_k)
    while config["num_stages"] < max(steps, 2):
        config["num_stages"] += 1
        if shared_bytes(config, dtype, h) > SHARED_BYTES["sm_90"]:
            config["num_stages"] -= 1
            break
    return config


def _portable_config(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    block_bs = sorted(block_b for name, block_b in _TILES if name == target)
    if not block_bs:
        raise InputError(f"rmsnorm_matmul: no launch configuration for {target}; expected one of: {', '.join(SMS)}")
    b, h, o = shape["B"], shape["H"], shape["O"]
    block_b = next((size for size in block_bs if size >= b), block_bs[-1])
    largest_o, block_k, num_stages = _TILES[target, block_b]
    if dtype == "fp32":
        block_k, largest_o = block_k // 2, min(largest_o, 128)
    tiles_b = ceil_div(b, block_b)
    slots = SMS[target]
    # A narrow tile leaves little to add up at the end; a wide one reads x less often. Take the narrowest whose grid,
    # split in four, is still one wave.
    block_o = 64 if target != "sm_100" else 128
    while block_o < largest_o and 4 * tiles_b * ceil_div(o, block_o) > slots:
        block_o *= 2
    config = {
        "block_b": block_b,
        "block_o": block_o,
        "block_k": block_k,
        "split_k": _splits(b, h, tiles_b * ceil_div(o, block_o), ceil_div(h, block_k), slots),
        "num_warps": 8 if block_b * block_o >= 8192 else 4,
        "num_stages": num_stages,
        "tma": int(target in TMA_TARGETS and o * DTYPE_BYTES[dtype] % TMA_ALIGNMENT == 0),
        **_NOT_PIPELINED,
    }
    while shared_bytes(config, dtype, h) > SHARED_BYTES[target] and config["num_stages"] > 1:
        config["num_stages"] -= 1
    return config


_NOT_PIPELINED = {"pipeline": 0, "x_stages": 0, "scalers": 0, "pdl": 0}


def _splits(b: int, h: int, tiles: int, steps: int, slots: int) -> int:
    """Return how many programs share a tile's inner dimension, by a cost relative to one full wave."""

    def cost(splits: int) -> float:
        waves = tiles * splits / slots
        # Partial sums move 8·B·O bytes a split through L2, the weights 2·H·O through DRAM at under half that rate.
        partial_sums = 2 * b / h * splits if splits > 1 else 0.0
        return math.ceil(waves) / waves + partial_sums + 0.02 * splits

    return min(range(1, min(_MAX_SPLITS, steps) + 1), key=cost)


def shared_bytes(config: Config, dtype: Dtype, n_inner: int) -> int:
    """Return an upper bound of the shared memory of one program, in bytes; those in CUDA C++ hold all of the gain."""
    element = DTYPE_BYTES[dtype]
    block_b, block_o, block_k = config["block_b"], config["block_o"], config["block_k"]
    x_tile, weight_tile = element * block_b * block_k, element * block_k * block_o
    stages = config["num_stages"]
    if config["pipeline"] == 2:
        gain_boxes = ceil_div(ceil_div(ceil_div(n_inner, block_k), config["split_k"]), _GAIN_STEPS)
        ring = stages * (weight_tile + x_tile + 16) + 16
        return ceil_div(ring, 128) * 128 + gain_boxes * element * block_k * _GAIN_STEPS
    if config["pipeline"] == 3:
        parts = config["split_k"]
        own = _turns_own_rows(config)
        sent = 4 * 64 * (parts - 1) * own if block_o == 64 else 0
        squares = 4 * (parts * own + block_b * _turns_own_squarers(config))
        ring = stages * (weight_tile + 16) + _x_ring(config) * x_tile + config["x_stages"] * 16 + sent + 48 + squares
        return ceil_div(ring, 128) * 128 + ceil_div(ceil_div(n_inner, block_k), parts) * 128
    if config["pipeline"]:
        x_stage = x_tile + element * block_k + 24
        # The last term covers alignment and what reductions across warps use.
        return stages * (weight_tile + 16) + config["x_stages"] * x_stage + 4 * config["scalers"] * block_b + 2304
    # Barriers, one of 8 bytes a stage, and their alignment are within the last term.
    loop = stages * weight_tile + max(stages - 1, 1) * (x_tile + element * block_k) + x_tile + 1024
    return max(loop, 4 * block_o * (block_b + 8))


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    configs.check_keys("rmsnorm_matmul", config, _CONFIG_KEYS)
    configs.check_target("rmsnorm_matmul", target)
    configs.check_bf16("rmsnorm_matmul", dtype, target)
    if config["pipeline"] >= 2:
        _check_cuda(config, shape, dtype, target)
    elif config["pipeline"]:
        _check_pipeline(config, shape, dtype, target)
    elif any(config[key] != value for key, value in _NOT_PIPELINED.items()):
        raise InputError("rmsnorm_matmul: x_stages, scalers and pdl belong to pipeline 1; expected 0 without it")
    elif config["block_b"] < 16:
        raise InputError(f"rmsnorm_matmul: block_b is {config['block_b']} without pipeline; expected at least 16")
    for key, least, most in _CONFIG_RANGES:
        value = config[key]
        if key == "block_b" and config["pipeline"] == 3:
            continue
        if not least <= value <= most or value & (value - 1):
            raise InputError(f"rmsnorm_matmul: {key} is {value}; expected a power of two from {least} to {most}")
    configs.check_wgmma("rmsnorm_matmul", config, target, rows="block_o")
    if not 1 <= config["split_k"] <= ceil_div(shape["H"], config["block_k"]):
        raise InputError(
            f"rmsnorm_matmul: split_k is {config['split_k']}; expected 1 to the "
            f"{ceil_div(shape['H'], config['block_k'])} steps of block_k in H"
        )
    configs.check_ranges("rmsnorm_matmul", config, (("num_stages", 1, 32),))
    configs.check_tma(
        "rmsnorm_matmul", config, target, rows={"O": shape["O"]}, size=DTYPE_BYTES[dtype], of=dtype
    )  # fmt: skip
    configs.check_shared("rmsnorm_matmul", shared_bytes(config, dtype, shape["H"]), target, smaller="block_k")


def _check_pipeline(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    if config["pipeline"] != 1 or config["pdl"] not in (0, 1):
        raise InputError("rmsnorm_matmul: pipeline is 0, 1, 2 or 3 and pdl 0 or 1")
    if target != "sm_90" or DTYPE_BYTES[dtype] != 2:
        raise InputError(f"rmsnorm_matmul: pipeline is 1 on {target} in {dtype}; expected sm_90 and fp16 or bf16")
    if config["tma"] != 1:
        raise InputError(f"rmsnorm_matmul: tma is {config['tma']} with pipeline 1; expected 1")
    if shape["H"] * DTYPE_BYTES[dtype] % TMA_ALIGNMENT:
        raise InputError(f"rmsnorm_matmul: pipeline is 1 with H={shape['H']}; expected a multiple of 8")
    if config["scalers"] not in (1, 2) or config["x_stages"] < 2 or config["x_stages"] % config["scalers"]:
        # Two scalers take turns by step; were x_stages odd, they would also take turns at a stage and miss its phase.
        raise InputError(
            f"rmsnorm_matmul: x_stages is {config['x_stages']} with {config['scalers']} scalers; expected 1 or 2 "
            "scalers and a multiple of them, at least 2"
        )
    if config["split_k"] & (config["split_k"] - 1) or config["split_k"] > _MAX_SPLITS or config["block_k"] < 64:
        raise InputError(
            f"rmsnorm_matmul: split_k is {config['split_k']} and block_k {config['block_k']} with pipeline 1; expected "
            f"a power of two up to {_MAX_SPLITS} and at least 64"
        )
    if config["num_stages"] < 2 or config["num_stages"] * config["block_k"] < config["block_b"]:
        raise InputError("rmsnorm_matmul: pipeline is 1; expected at least 2 stages that hold the result's tile")


def _check_cuda(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    pipeline = config["pipeline"]
    if pipeline > 3:
        raise InputError(f"rmsnorm_matmul: pipeline is {pipeline}; expected 0, 1, 2 or 3")
    if target != "sm_90" or DTYPE_BYTES[dtype] != 2:
        raise InputError(
            f"rmsnorm_matmul: pipeline is {pipeline} on {target} in {dtype}; expected sm_90 and fp16 or bf16"
        )
    if shape["H"] * DTYPE_BYTES[dtype] % TMA_ALIGNMENT:
        raise InputError(f"rmsnorm_matmul: pipeline is {pipeline} with H={shape['H']}; expected a multiple of 8")
    fixed = {"block_k": 64, "tma": 1, "scalers": 0} | ({"num_warps": 8, "x_stages": 0} if pipeline == 2 else {})
    if any(config[key] != value for key, value in fixed.items()) or config["pdl"] not in (0, 1):
        raise InputError(
            f"rmsnorm_matmul: pipeline is {pipeline}; expected {', '.join(f'{k} {v}' for k, v in fixed.items())} and "
            "pdl 0 or 1"
        )
    if config["num_stages"] < 2:
        raise InputError(f"rmsnorm_matmul: pipeline is {pipeline}; expected at least 2 stages")
    if pipeline == 2:
        _check_cluster(config)
    else:
        _check_turns(config)


def _check_cluster(config: Config) -> None:
    if config["block_b"] not in (64, 128) or not 64 <= config["block_o"] <= 256:
        raise InputError("rmsnorm_matmul: pipeline is 2; expected block_b 64 or 128 and block_o 64 to 256")
    if config["split_k"] not in (1, 2):
        raise InputError(f"rmsnorm_matmul: split_k is {config['split_k']} with pipeline 2; expected 1 or 2")


def _check_turns(config: Config) -> None:
    rows, columns, parts, warps = (config[key] for key in ("block_b", "block_o", "split_k", "num_warps"))
    if columns not in _TURNS_MOST_ROWS or rows % 8 or not 8 <= rows <= _TURNS_MOST_ROWS[columns]:
        most = ", ".join(f"{rows} with {columns} columns" for columns, rows in _TURNS_MOST_ROWS.items())
        raise InputError(
            f"rmsnorm_matmul: tiles are {rows} x {columns} with pipeline 3; expected a multiple of 8 rows, up to {most}"
        )
    if parts not in (1, 2, 4, 8) or rows % parts:
        raise InputError(
            f"rmsnorm_matmul: split_k is {parts} with pipeline 3 and block_b {rows}; expected 1, 2, 4 or 8, a divisor"
        )
    if warps not in (8, 16) or (warps == 16 and rows > 128):
        raise InputError(
            f"rmsnorm_matmul: num_warps is {warps} with pipeline 3 and block_b {rows}; expected 8, or 16 up to 128 rows"
        )
    groups, each = _turns_groups(config), _turns_each(config)
    weights, x = config["num_stages"], config["x_stages"]
    if (weights < each) if x == 0 else (weights % groups or x % each):
        # A stage that another group or squarer took the next time would be waited for by the wrong phase.
        raise InputError(
            f"rmsnorm_matmul: num_stages is {weights} and x_stages {x} with pipeline 3; expected multiples of {groups} "
            f"and {each}, or at least {each} and 0"
        )
    if _turns_ahead(config) and _x_ring(config) < 2 * groups:
        # A stage of x is given back once the next step's products are under way, which need their own.
        raise InputError(
            f"rmsnorm_matmul: num_stages is {weights} and x_stages {x} with pipeline 3, 8 warps and {groups} groups; "
            f"expected at least {2 * groups} stages of x"
        )
    if _turns_ring(config) < _turns_sums(config):
        raise InputError(
            f"rmsnorm_matmul: num_stages is {config['num_stages']} and x_stages {config['x_stages']} with pipeline 3, "
            f"{_turns_ring(config)} bytes; expected room for all sums, {_turns_sums(config)} bytes"
        )


def _x_ring(config: Config) -> int:
    """Return the stages of x: their own number, or those of the weights where both come together."""
    return int(config["x_stages"] or config["num_stages"])


def _turns_ring(config: Config) -> int:
    """Return the bytes of all stages."""
    return 128 * (config["num_stages"] * config["block_o"] + _x_ring(config) * config["block_b"])


def _turns_sums(config: Config) -> int:
    """Return the bytes that the stages hold at the end: the groups' sums, other parts' of 128 columns, the result."""
    rows, columns, parts = config["block_b"], config["block_o"], config["split_k"]
    received = (parts - 1) * 4 * columns * _turns_own_rows(config) if columns == 128 else 0
    return 4 * (_turns_groups(config) - 1) * rows * columns + received + 512 * config["num_warps"]


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
    """Return what the compiler needs to compile the kernel without a GPU."""
    pointer = f"*{dtype}"
    if config["pipeline"] == 2:
        return AheadCuda(
            _cluster_source(config, dtype),
            programs=_cluster_programs(config, shape["B"], shape["O"]),
            threads=_cluster_threads(config),
            shared_bytes=shared_bytes(config, dtype, shape["H"]),
        )
    if config["pipeline"] == 3:
        return AheadCuda(
            _turns_source(config, shape["B"], dtype),
            programs=_turns_programs(config, shape["B"], shape["O"]),
            threads=_turns_threads(config),
            shared_bytes=shared_bytes(config, dtype, shape["H"]),
        )
    if config["pipeline"]:
        return _ahead_pipelined(config, dtype)
    weight = triton_type(dtype, [config["block_k"], config["block_o"]]) if config["tma"] else pointer
    signature = {
        "x_ptr": pointer, "gain_ptr": pointer, "weight": weight, "y_ptr": pointer,
        "partial_ptr": "*fp32", "squares_ptr": "*fp32", "arrivals_ptr": "*i32",
        "n_rows": "i32", "n_inner": "i32", "n_cols": "i32", "eps": "fp32",
    }  # fmt: skip
    constants = _constants(config)
    return ahead_of(
        rmsnorm_matmul_kernel,
        signature,
        constants=constants,
        options={"num_warps": config["num_warps"], "num_stages": config["num_stages"]},
    )


def _ahead_pipelined(config: Config, dtype: Dtype) -> Ahead:
    signature = gluon_types_of(dtype, _blocks(config))
    signature |= {
        "y_ptr": f"*{dtype}", "partial_ptr": "*fp32", "squares_ptr": "*fp32",
        "n_rows": "i32", "n_inner": "i32", "n_cols": "i32", "eps": "fp32",
    }  # fmt: skip
    constants = _pipelined_constants(config)
    return ahead_of(
        rmsnorm_matmul_pipelined,
        signature,
        constants=constants,
        options=_pipelined_options(config),
    )


_CONFIG_KEYS = (
    "block_b", "block_o", "block_k", "split_k", "num_warps", "num_stages", "tma",
    "pipeline", "x_stages", "scalers", "pdl",
)  # fmt: skip
_CONFIG_RANGES = (("block_b", 8, 256), ("block_o", 16, 256), ("block_k", 16, 256), ("num_warps", 1, 16))

CASES: tuple[dict[str, int], ...] = (
    *({"B": b, "H": h, "O": h} for b in (1, 8, 32, 128) for h in (2048, 4096, 8192)),
    {"B": 1, "H": 1, "O": 1},
    {"B": 3, "H": 97, "O": 131},
    {"B": 17, "H": 5120, "O": 13824},
    {"B": 129, "H": 1000, "O": 1003},
)


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing: variations of the rule's own."""
    own = config_for(shape, dtype, target)
    yield _candidate(own, shape, dtype)
    if own["pipeline"]:
        yield from (_candidate(config, shape, dtype) for config in _turns_variations(own, shape, dtype))
    if own["pipeline"] >= 2:
        cluster = {**own, "pipeline": 2, "num_warps": 8, "x_stages": 0}
        tried = variations(cluster, {"block_b": (64, 128), "block_o": (64, 128, 256), "split_k": (1, 2)})
    else:
        choices: dict[str, tuple[int, ...]] = {
            "block_o": (64, 128, 256), "block_k": (64, 128, 256), "split_k": (1, 2, 4, 8),
        }  # fmt: skip
        if own["pipeline"] == 1:
            choices |= {"x_stages": (4, 8), "scalers": (1, 2)}
        tried = variations(own, choices)
    for config in tried:
        if own["pipeline"] == 1:
            config["num_warps"] = config["block_o"] // 16
        # As many stages as fit, or one less.
        limit, h = SHARED_BYTES[target], shape["H"]
        fitting = [n for n in range(2, 25) if shared_bytes({**config, "num_stages": n}, dtype, h) <= limit]
        yield from (_candidate({**config, "num_stages": stages}, shape, dtype) for stages in fitting[-2:])


def _turns_variations(own: Config, shape: Shape, dtype: Dtype) -> Iterator[Config]:
    turns = {**own, "block_k": 64, "pipeline": 3, "scalers": 0}
    rows = tuple(8 * ceil_div(shape["B"], 8 * tiles) for tiles in (1, 2, 4))
    choices = {"block_b": rows, "block_o": (64, 128), "split_k": (1, 2, 4), "num_warps": (8, 16)}
    for config in variations(turns, choices):
        filled = (_turns_filled(config, shape, dtype, together=together) for together in (False, True))
        yield from (config for config in filled if config is not None)


def _candidate(config: Config, shape: Shape, dtype: Dtype) -> Candidate:
    block_b, block_o, block_k = config["block_b"], config["block_o"], config["block_k"]
    steps = ceil_div(ceil_div(shape["H"], block_k), config["split_k"])
    # Of weights that two programs share each reads half.
    share = _turns_share(config, shape["B"]) if config["pipeline"] == 3 else 1
    # The sums, and some for addresses and operands on their way.
    warps, registers = config["num_warps"], block_b * block_o // (32 * config["num_warps"]) + 48
    if config["pipeline"]:
        # The groups of warps of these kernels share out all registers of an SM.
        warps += 4 * config["scalers"] + 4
        registers = SM_REGISTERS // (32 * warps) // 8 * 8
    return Candidate(
        config=config,
        tiles=ceil_div(shape["O"], block_o) * ceil_div(shape["B"], block_b) * config["split_k"],
        tile_flops=2 * block_b * block_o * block_k * steps,
        tile_bytes=DTYPE_BYTES[dtype] * (block_b + block_o // share) * block_k * steps,
        warps=warps,
        registers=registers,
        shared_bytes=shared_bytes(config, dtype, shape["H"]),
        bytes_under_way=DTYPE_BYTES[dtype] * block_k * block_o * config["num_stages"],
    )


KERNEL = Kernel(
    name="rmsnorm_matmul",
    operation=RMSNORM_MATMUL,
    summary="rmsnorm fused into the matrix product that follows it, for skinny batches",
    formula="y = (x · g / sqrt(mean(x²) + 1e-6)) · W",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="re-reads of x by each column tile, split-K partial sums (both in L2), padding to whole tiles",
    path=matmul_path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(5e-4, 3.5e-4, "x·g and y are rounded to 11 bits each; outputs have a deviation near 0.25"),
        "bf16": Tolerance(4e-3, 2.8e-3, "as fp16, with 8 bits: eight times as wide"),
        "fp32": Tolerance(2e-5, 1e-5, "up to 8192 terms are summed in 24 bits, in blocks"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu},
    reference=reference,
    launched="^rmsnorm_matmul_(kernel|pipelined|cluster|turns)$",
    baselines={
        "torch_eager": library(_two_calls, "x", "gain", "weight"),
        "torch_compile_default": compiled(_unfused, "x", "gain", "weight", mode="default"),
        "torch_compile_max_autotune": compiled(_unfused, "x", "gain", "weight", mode="max-autotune-no-cudagraphs"),
        "torch_matmul": library(lambda torch, out, x, weight: torch.matmul(x, weight, out=out), "x", "weight"),
    },
    ahead=ahead,
    candidates=candidates,
)

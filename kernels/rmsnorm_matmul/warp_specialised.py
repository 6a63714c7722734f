"""Warp-specialised variant in Gluon for sm_90: fp16 and bf16, rows of 16-byte multiples, small batches.

One warp loads the weights, one loads x and the gain, scaling_warpgroups warpgroups multiply x by the gain in shared
memory and sum its squares, and the consumer warps multiply the transposed tile (swap-AB) by wgmma. With split_k above
1 each CTA of a tile reduces and stores its share of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ledger.kernel import Ahead, Launch, import_triton
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.gluon import import_gluon
from ledger.kernels.common.launches import MATRIX_SIZES, ahead_of
from ledger.kernels.common.targets import SM_REGISTERS, ceil_div
from ledger.kernels.common.tensor_maps import gluon_descriptors, gluon_types_of
from ledger.kernels.common.workspace import unwritten
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from torch import Tensor

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper, grid = _gluon.gluon, _gluon.language, _gluon.hopper, _gluon.grid
async_load, async_store, reinterpret = _gluon.async_load, _gluon.async_store, _gluon.reinterpret

MAX_SPLITS = 8
"""The most CTAs that divide a tile's inner dimension."""


@gluon.jit
def _load_weight(weight, w_buffers, w_full, w_empty, first, steps, rotation, col):
    STAGES: gl.constexpr = w_buffers.shape[0]
    BLOCK_K: gl.constexpr = weight.block_shape[0]
    for i in range(steps):
        stage = i % STAGES
        inner = (first + (i + rotation) % steps) * BLOCK_K
        hopper.mbarrier.wait(w_empty.index(stage), (i // STAGES & 1) ^ 1)
        hopper.mbarrier.expect(w_full.index(stage), weight.block_type.nbytes)
        async_load(weight, [inner, col], w_full.index(stage), w_buffers.index(stage))


@gluon.jit
def _load_x(x, gain, x_buffers, gain_buffers, x_full, x_empty, first, steps, rotation, row):
    STAGES: gl.constexpr = x_buffers.shape[0]
    BLOCK_K: gl.constexpr = x.block_shape[1]
    # The previous kernel may have written x and the gain; loads of the weights do not wait for it.
    grid.gdc_wait()
    for i in range(steps):
        stage = i % STAGES
        inner = (first + (i + rotation) % steps) * BLOCK_K
        hopper.mbarrier.wait(x_empty.index(stage), (i // STAGES & 1) ^ 1)
        hopper.mbarrier.expect(x_full.index(stage), x.block_type.nbytes + gain.block_type.nbytes)
        async_load(x, [row, inner], x_full.index(stage), x_buffers.index(stage))
        async_load(gain, [0, inner], x_full.index(stage), gain_buffers.index(stage))


@gluon.jit
def _scale_x(x_buffers, gain_buffers, squares, x_full, x_ready, steps, FIRST: gl.constexpr, STRIDE: gl.constexpr):
    STAGES: gl.constexpr = x_buffers.shape[0]
    BLOCK_B: gl.constexpr = x_buffers.shape[1]
    BLOCK_K: gl.constexpr = x_buffers.shape[2]
    LANES: gl.constexpr = min(BLOCK_K // 8, 32)
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 // LANES, LANES], [gl.num_warps(), 1], [1, 0])
    grouped_layout: gl.constexpr = gl.BlockedLayout(
        [1, 1, 8], [32 // LANES, LANES, 1], [gl.num_warps(), 1, 1], [2, 1, 0]
    )
    # One accumulator for each 8 neighbouring elements, which one thread holds.
    sums = gl.zeros([BLOCK_B, BLOCK_K // 8], gl.float32, gl.SliceLayout(2, grouped_layout))
    for i in range(FIRST, steps, STRIDE):
        stage = i % STAGES
        hopper.mbarrier.wait(x_full.index(stage), i // STAGES & 1)
        x = x_buffers.index(stage).load(layout)
        x_buffers.index(stage).store(x * gain_buffers.index(stage).load(layout))
        hopper.fence_async_shared()
        hopper.mbarrier.arrive(x_ready.index(stage), count=1)
        grouped = gl.reshape(x, [BLOCK_B, BLOCK_K // 8, 8])
        x32 = gl.convert_layout(grouped, grouped_layout, assert_trivial=True).to(gl.float32)
        sums += gl.sum(x32 * x32, axis=2)
    squares.index(FIRST).store(gl.sum(sums, axis=1))


@gluon.jit
def _multiply(w_buffers, x_buffers, w_full, w_empty, x_ready, x_empty, steps):
    W_STAGES: gl.constexpr = w_buffers.shape[0]
    X_STAGES: gl.constexpr = x_buffers.shape[0]
    BLOCK_O: gl.constexpr = w_buffers.shape[2]
    BLOCK_B: gl.constexpr = x_buffers.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_B, 16])
    acc = gl.zeros([BLOCK_O, BLOCK_B], gl.float32, layout)
    for i in range(steps):
        w, x = i % W_STAGES, i % X_STAGES
        hopper.mbarrier.wait(x_ready.index(x), i // X_STAGES & 1)
        hopper.mbarrier.wait(w_full.index(w), i // W_STAGES & 1)
        weight_t = w_buffers.index(w).permute((1, 0))
        acc = hopper.warpgroup_mma(weight_t, x_buffers.index(x).permute((1, 0)), acc, is_async=True)
        # The previous step's wgmma is complete; this step's stays in flight.
        acc = hopper.warpgroup_mma_wait(1, deps=(acc,))
        hopper.mbarrier.arrive(w_empty.index((i + W_STAGES - 1) % W_STAGES), count=1, pred=i > 0)
        hopper.mbarrier.arrive(x_empty.index((i + X_STAGES - 1) % X_STAGES), count=1, pred=i > 0)
    return (hopper.warpgroup_mma_wait(0, deps=(acc,)),)


@gluon.jit
def _epilogue(
    acc, y, y_ptr, partial_ptr, squares_ptr, w_buffers, squares, pid_o, pid_k, pid_b, n_rows, n_inner, n_cols, eps,
    BLOCK_B: gl.constexpr, SPLIT_K: gl.constexpr,
):  # fmt: skip
    BLOCK_O: gl.constexpr = w_buffers.shape[2]
    SCALING_WARPGROUPS: gl.constexpr = squares.shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_B, 16])
    b_layout: gl.constexpr = gl.SliceLayout(0, layout)
    row_squares = squares.index(0).load(b_layout)
    for warpgroup in gl.static_range(1, SCALING_WARPGROUPS):
        row_squares += squares.index(warpgroup).load(b_layout)
    grid.gdc_wait()
    if SPLIT_K == 1:
        rstd = gl.rsqrt(row_squares / n_inner + eps)
        # The weight stages are free: the result is staged there, seen as tiles of y (3.8 wants the whole buffer).
        TILES: gl.constexpr = w_buffers.shape[0] * w_buffers.shape[1] // BLOCK_B
        y_tile = reinterpret(w_buffers, y.dtype, [TILES, BLOCK_B, BLOCK_O], y.layout).index(0)
        y_tile.permute((1, 0)).store((acc * rstd[None, :]).to(y.dtype))
        hopper.fence_async_shared()
        tl.debug_barrier()
        async_store(y, [pid_b * BLOCK_B, pid_o * BLOCK_O], y_tile)
        hopper.tma.store_wait(0)
    else:
        # Layout of the partial sums: [tile][reading CTA][writing CTA][row][column of the reader's share].
        COLS: gl.constexpr = BLOCK_O // SPLIT_K
        offs_o = gl.arange(0, BLOCK_O, gl.SliceLayout(1, layout))
        offs_b = gl.arange(0, BLOCK_B, b_layout)
        live = pid_b * BLOCK_B + offs_b < n_rows
        tile = (pid_b * gl.cdiv(n_cols, BLOCK_O) + pid_o).to(gl.int64)
        partial = partial_ptr + tile * (SPLIT_K * BLOCK_O * BLOCK_B)
        sums = squares_ptr + tile * (SPLIT_K * SPLIT_K * BLOCK_B)
        share = (offs_o // COLS) * (SPLIT_K * BLOCK_B * COLS) + offs_o % COLS
        offsets = share[:, None] + (offs_b * COLS)[None, :]
        gl.store(partial + pid_k * (BLOCK_B * COLS) + offsets, acc, mask=live[None, :] & (offsets >= 0))
        for reader in gl.static_range(SPLIT_K):
            gl.store(sums + (reader * SPLIT_K + pid_k) * BLOCK_B + offs_b, row_squares, mask=live)
        _reduce_partials(
            y_ptr, partial + pid_k * (BLOCK_O * BLOCK_B), sums + pid_k * (SPLIT_K * BLOCK_B), pid_b * BLOCK_B,
            pid_o * BLOCK_O + pid_k * COLS, n_rows, n_inner, n_cols, eps, SPLIT_K, BLOCK_B, COLS,
        )  # fmt: skip


@gluon.jit
def _reduce_partials(
    y_ptr, partial, squares, row, col, n_rows, n_inner, n_cols, eps,
    SPLIT_K: gl.constexpr, BLOCK_B: gl.constexpr, COLS: gl.constexpr,
):  # fmt: skip
    UNWRITTEN: gl.constexpr = 0x7FFFDEAD  # workspace.UNWRITTEN, a global that Gluon cannot read
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
    # Every element is its own flag: no fence and no counter orders its writer and its reader.
    waiting = 1
    while waiting != 0:
        values = gl.load(partial_ptrs, mask=partial_live, other=0.0, volatile=True)
        sums = gl.load(squares_ptrs, mask=squares_live, other=0.0, volatile=True)
        missing = gl.max((values.to(gl.int32, bitcast=True) == UNWRITTEN).to(gl.int32), axis=2)
        missing = gl.maximum(missing, (sums.to(gl.int32, bitcast=True) == UNWRITTEN).to(gl.int32))
        waiting = gl.max(gl.max(missing, axis=0), axis=0)
    # Two warps may hold the same elements: neither may reset them before the other has read them.
    tl.debug_barrier()
    empty = gl.full([SPLIT_K, BLOCK_B, COLS], UNWRITTEN, gl.int32, layout).to(gl.float32, bitcast=True)
    gl.store(partial_ptrs, empty, mask=partial_live)
    empty = gl.full([SPLIT_K, BLOCK_B], UNWRITTEN, gl.int32, pairs).to(gl.float32, bitcast=True)
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
def rmsnorm_matmul_warp_specialised(
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
    SCALING_WARPGROUPS: gl.constexpr,
):
    BLOCK_K: gl.constexpr = weight.block_shape[0]
    BLOCK_O: gl.constexpr = weight.block_shape[1]
    BLOCK_B: gl.constexpr = x.block_shape[0]
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    grid.gdc_launch_dependents()
    barrier: gl.constexpr = hopper.mbarrier.MBarrierLayout()
    w_buffers = gl.allocate_shared_memory(weight.dtype, [W_STAGES, BLOCK_K, BLOCK_O], weight.layout)
    x_buffers = gl.allocate_shared_memory(x.dtype, [X_STAGES, BLOCK_B, BLOCK_K], x.layout)
    gain_buffers = gl.allocate_shared_memory(x.dtype, [X_STAGES, 1, BLOCK_K], gain.layout)
    squares = gl.allocate_shared_memory(
        gl.float32, [SCALING_WARPGROUPS, BLOCK_B], gl.SwizzledSharedLayout(1, 1, 1, [0])
    )
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

    # The CTAs of a tile have consecutive indices, so that those that one waits for run or are scheduled next.
    pid_o = gl.program_id(0) // SPLIT_K
    pid_k = gl.program_id(0) % SPLIT_K
    pid_b = gl.program_id(1)
    tiles = gl.cdiv(n_inner, BLOCK_K)
    first = tiles * pid_k // SPLIT_K
    steps = tiles * (pid_k + 1) // SPLIT_K - first
    # Each column tile starts at another K step: all CTAs reading one tile of x at once would queue at few L2 slices.
    rotation = pid_o
    # Registers a thread of the scaling warpgroups; fewer are left with 8 consumer warps.
    REGISTERS: gl.constexpr = 88 if gl.num_warps() == 4 else 72
    # fmt: off
    if SCALING_WARPGROUPS == 1:
        (acc,) = gl.warp_specialize([
            (_multiply, (w_buffers, x_buffers, w_full, w_empty, x_ready, x_empty, steps)),
            (_load_weight, (weight, w_buffers, w_full, w_empty, first, steps, rotation, pid_o * BLOCK_O)),
            (_load_x, (x, gain, x_buffers, gain_buffers, x_full, x_empty, first, steps, rotation, pid_b * BLOCK_B)),
            (_scale_x, (x_buffers, gain_buffers, squares, x_full, x_ready, steps, FIRST, SCALING_WARPGROUPS)),
        ], [1, 1, 4], [24, 24, REGISTERS])
    else:
        (acc,) = gl.warp_specialize([
            (_multiply, (w_buffers, x_buffers, w_full, w_empty, x_ready, x_empty, steps)),
            (_load_weight, (weight, w_buffers, w_full, w_empty, first, steps, rotation, pid_o * BLOCK_O)),
            (_load_x, (x, gain, x_buffers, gain_buffers, x_full, x_empty, first, steps, rotation, pid_b * BLOCK_B)),
            (_scale_x, (x_buffers, gain_buffers, squares, x_full, x_ready, steps, FIRST, SCALING_WARPGROUPS)),
            (_scale_x, (x_buffers, gain_buffers, squares, x_full, x_ready, steps, SECOND, SCALING_WARPGROUPS)),
        ], [1, 1, 4, 4], [24, 24, REGISTERS, REGISTERS])
    # The end of the dispatch is a barrier of all threads, so the sums of squares need none of their own.
    _epilogue(
        acc, y, y_ptr, partial_ptr, squares_ptr, w_buffers, squares, pid_o, pid_k, pid_b, n_rows, n_inner, n_cols, eps,
        BLOCK_B, SPLIT_K,
    )
    # fmt: on


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Allocate the partial sums and return the launch."""
    import torch

    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]
    n_rows, n_inner = x.shape
    n_cols = weight.shape[1]
    block_b, block_o, split_k = config["block_b"], config["block_o"], config["split_k"]
    tiles_b, tiles_o = ceil_div(n_rows, block_b), ceil_div(n_cols, block_o)
    slots = tiles_b * tiles_o * split_k if split_k > 1 else 0
    partial_sums = unwritten(slots * block_o * block_b + 1, x).view(torch.float32)
    squares = unwritten(slots * split_k * block_b + 1, x).view(torch.float32)
    tensors = {"x": x, "gain": gain.view(1, n_inner), "weight": weight, "y": out}
    return partial(
        rmsnorm_matmul_warp_specialised[tiles_o * split_k, tiles_b],
        *gluon_descriptors(tensors, _tile_shapes(config)), out, partial_sums, squares, n_rows, n_inner, n_cols, eps,
        **_constants(config), **_options(config),
    )  # fmt: skip


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return how to compile the kernel ahead of time."""
    workspace = {"y_ptr": f"*{dtype}", "partial_ptr": "*fp32", "squares_ptr": "*fp32"}
    sizes = {name: MATRIX_SIZES[name] for name in ("n_rows", "n_inner", "n_cols")}
    return ahead_of(
        rmsnorm_matmul_warp_specialised,
        gluon_types_of(dtype, _tile_shapes(config)) | workspace | sizes | {"eps": "fp32"},
        constants=_constants(config),
        options=_options(config),
    )


def _tile_shapes(config: Settings) -> dict[str, list[int]]:
    block_b, block_o, block_k = config["block_b"], config["block_o"], config["block_k"]
    return {"x": [block_b, block_k], "gain": [1, block_k], "weight": [block_k, block_o], "y": [block_b, block_o]}


def _constants(config: Settings) -> dict[str, int]:
    keys = {"SPLIT_K": "split_k", "W_STAGES": "num_stages", "X_STAGES": "x_stages"}
    keys |= {"SCALING_WARPGROUPS": "scaling_warpgroups"}
    return {name: config[key] for name, key in keys.items()}


def _options(config: Settings) -> dict[str, int]:
    # Beside the consumers: a warpgroup that holds the two producer warps, and the scaling warpgroups.
    warps = config["num_warps"] + 4 + 4 * config["scaling_warpgroups"]
    registers = min(168, SM_REGISTERS // (32 * warps) // 8 * 8)
    return {"num_warps": config["num_warps"], "maxnreg": registers, "launch_pdl": bool(config["pdl"])}


def shared_bytes(config: Settings, shape: Shape, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of a CTA, in bytes."""
    element, block_b, block_k = DTYPE_BYTES[dtype], config["block_b"], config["block_k"]
    x_stage = element * block_k * (block_b + 1) + 24
    weight_stage = element * block_k * config["block_o"] + 16
    # The last term covers alignment and what reductions across warps use.
    squares = 4 * config["scaling_warpgroups"] * block_b + 2304
    return int(config["num_stages"] * weight_stage + config["x_stages"] * x_stage + squares)


def problems(config: Settings, shape: Shape, target: str) -> Iterator[str]:
    """Yield what is wrong with a configuration."""
    x_stages, warpgroups, split_k = config["x_stages"], config["scaling_warpgroups"], config["split_k"]
    if warpgroups not in (1, 2) or x_stages < 2 or x_stages % warpgroups:
        # Two warpgroups alternate on the steps; with odd x_stages they would alternate on a stage and miss its phase.
        yield (
            f"x_stages is {x_stages} with {warpgroups} scaling_warpgroups; expected 1 or 2 warpgroups and a multiple "
            "of them, at least 2"
        )
    if split_k & (split_k - 1) or split_k > MAX_SPLITS or config["block_k"] < 64:
        yield (
            f"split_k is {split_k} and block_k {config['block_k']} with variant warp_specialised; expected a power of "
            f"two up to {MAX_SPLITS} and at least 64"
        )
    if config["num_stages"] < 2 or config["num_stages"] * config["block_k"] < config["block_b"]:
        yield (
            f"num_stages is {config['num_stages']} with variant warp_specialised; expected at least 2 stages that hold "
            "the tile of the result"
        )

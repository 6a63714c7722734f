"""Holds the warp-specialized main loop of matrix products in Gluon, for sm_90, with an epilogue of the kernel's own.

A CTA is persistent: one warp loads tiles of A and B by TMA into a ring of stages, two warpgroups multiply and store
half of a tile's rows each. A kernel's own function calls `gemm` with two functions, which become constexpr:
`prepare(extra, col, n_cols, BLOCK_N, layout)` loads what the epilogue adds, so that the products hide its latency, and
`finish(acc, prepared, extra)` returns the tile's result in the layout of the accumulators.

Shapes: a (M, K); b (K, N), or (N, K) where B_ROWS is set; c (M, N). PROMOTE adds the product of each step to the
accumulators outside of wgmma. WIDEST: the most columns of one wgmma. ACC: the type of the accumulators.
"""

# mypy: ignore-errors

from __future__ import annotations

from ledger.kernel import import_triton

from .gluon import import_gluon

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper = _gluon.gluon, _gluon.language, _gluon.hopper
async_load, async_store = _gluon.async_load, _gluon.async_store


@gluon.jit
def tile_origin(tile, n_rows, n_cols, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    # GROUP_M rows of tiles share the columns of B that they read while these are in L2.
    tiles_m = gl.cdiv(n_rows, BLOCK_M)
    tiles_n = gl.cdiv(n_cols, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    group_rows = gl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    in_group = tile % (GROUP_M * tiles_n)
    return (group * GROUP_M + in_group % group_rows) * BLOCK_M, (in_group // group_rows) * BLOCK_N


@gluon.jit
def _load_tiles(
    a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M: gl.constexpr, B_ROWS: gl.constexpr
):
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a.block_shape[0]
    BLOCK_K: gl.constexpr = a.block_shape[1]
    BLOCK_N: gl.constexpr = b.block_shape[0 if B_ROWS else 1]
    tiles = gl.cdiv(n_rows, BLOCK_M) * gl.cdiv(n_cols, BLOCK_N)
    steps = gl.cdiv(n_inner, BLOCK_K)
    done = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_origin(tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP_M)
        for step in range(steps):
            stage = done % STAGES
            hopper.mbarrier.wait(empty.index(stage), (done // STAGES & 1) ^ 1)
            hopper.mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes)
            async_load(a, [row, step * BLOCK_K], full.index(stage), a_ring.index(stage))
            if B_ROWS:
                async_load(b, [col, step * BLOCK_K], full.index(stage), b_ring.index(stage))
            else:
                async_load(b, [step * BLOCK_K, col], full.index(stage), b_ring.index(stage))
            done += 1


@gluon.jit
def _halves(whole):
    ROWS: gl.constexpr = whole.shape[0]
    COLS: gl.constexpr = whole.shape[1] // 2
    return gl.split(gl.permute(gl.reshape(whole, [ROWS, 2, COLS]), (0, 2, 1)))


@gluon.jit
def _store_part(c, buffer, part, row, col):
    # The store before may still read the buffer; the loads of the next tile are in flight.
    hopper.tma.store_wait(0)
    tl.debug_barrier()
    buffer.store(part)
    hopper.fence_async_shared()
    tl.debug_barrier()
    async_store(c, [row, col], buffer)


@gluon.jit
def _multiply_tiles(
    c, extra, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner,
    GROUP_M: gl.constexpr, B_ROWS: gl.constexpr, PROMOTE: gl.constexpr, WIDEST: gl.constexpr, ACC: gl.constexpr,
    prepare: gl.constexpr, finish: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[1 if B_ROWS else 2]
    ROWS: gl.constexpr = c.block_shape[0]
    COLS: gl.constexpr = c.block_shape[1]
    COLUMNS: gl.constexpr = WIDEST if BLOCK_N > WIDEST else BLOCK_N
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [gl.num_warps(), 1], [16, COLUMNS, 256 // a_ring.dtype.primitive_bitwidth]
    )
    tiles = gl.cdiv(n_rows, BLOCK_M) * gl.cdiv(n_cols, BLOCK_N)
    steps = gl.cdiv(n_inner, BLOCK_K)
    TOP: gl.constexpr = PART * ROWS
    done = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_origin(tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP_M)
        prepared = prepare(extra, col, n_cols, BLOCK_N, layout)
        acc = gl.zeros([ROWS, BLOCK_N], ACC, layout)
        if PROMOTE:
            part = acc
        for step in range(steps):
            stage = done % STAGES
            hopper.mbarrier.wait(full.index(stage), done // STAGES & 1)
            a_tile = a_ring.index(stage).slice(TOP, ROWS)
            b_tile = b_ring.index(stage).permute((1, 0)) if B_ROWS else b_ring.index(stage)
            if PROMOTE:
                part = hopper.warpgroup_mma(a_tile, b_tile, part, use_acc=False, is_async=True)
                part = hopper.warpgroup_mma_wait(0, deps=(part,))
                hopper.mbarrier.arrive(empty.index(stage), count=1)
                acc += part
            else:
                acc = hopper.warpgroup_mma(a_tile, b_tile, acc, is_async=True)
                acc = hopper.warpgroup_mma_wait(1, deps=(acc,))
                hopper.mbarrier.arrive(empty.index((done + STAGES - 1) % STAGES), count=1, pred=step > 0)
            done += 1
        if not PROMOTE:
            acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
            hopper.mbarrier.arrive(empty.index((done + STAGES - 1) % STAGES), count=1)
        buffer = c_smem.index(PART)
        out = finish(acc, prepared, extra).to(c.dtype)
        if COLS == BLOCK_N:
            _store_part(c, buffer, out, row + TOP, col)
        else:
            left, right = _halves(out)
            if COLS == BLOCK_N // 2:
                _store_part(c, buffer, left, row + TOP, col)
                _store_part(c, buffer, right, row + TOP, col + COLS)
            else:
                first, second = _halves(left)
                third, fourth = _halves(right)
                _store_part(c, buffer, first, row + TOP, col)
                _store_part(c, buffer, second, row + TOP, col + COLS)
                _store_part(c, buffer, third, row + TOP, col + 2 * COLS)
                _store_part(c, buffer, fourth, row + TOP, col + 3 * COLS)
    hopper.tma.store_wait(0)


@gluon.jit
def gemm(
    a, b, c, extra, n_rows, n_cols, n_inner, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
    prepare: gl.constexpr, finish: gl.constexpr, B_ROWS: gl.constexpr = False, PROMOTE: gl.constexpr = False,
    WIDEST: gl.constexpr = 256, ACC: gl.constexpr = gl.float32,
):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES, a.block_shape[0], a.block_shape[1]], a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES, b.block_shape[0], b.block_shape[1]], b.layout)
    c_smem = gl.allocate_shared_memory(c.dtype, [2, c.block_shape[0], c.block_shape[1]], c.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        hopper.mbarrier.init(full.index(i), count=1)
        hopper.mbarrier.init(empty.index(i), count=2)
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    # fmt: off
    gl.warp_specialize([
        (_multiply_tiles, (
            c, extra, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner,
            GROUP_M, B_ROWS, PROMOTE, WIDEST, ACC, prepare, finish, FIRST,
        )),
        (_multiply_tiles, (
            c, extra, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner,
            GROUP_M, B_ROWS, PROMOTE, WIDEST, ACC, prepare, finish, SECOND,
        )),
        (_load_tiles, (a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M, B_ROWS)),
    ], [4, 1], [232, 40])
    # fmt: on


@gluon.jit
def prepare_nothing(extra, col, n_cols, BLOCK_N: gl.constexpr, layout: gl.constexpr):
    return 0


@gluon.jit
def finish_plain(acc, prepared, extra):
    return acc


@gluon.jit
def finish_scaled(acc, prepared, extra):
    return acc.to(gl.float32) * extra

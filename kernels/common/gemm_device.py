"""Holds the main loops of matrix products, in Triton for any target and in Gluon for sm_90, with an epilogue hook.

Shapes: a (M, K); b (K, N), or (N, K) where B_ROWS is set; c (M, N). The grid is persistent: a CTA takes one tile after
the other. A launch passes as constexpr `EPILOGUE(acc, bias, scale)`, a function in Triton that returns the result of a
tile of accumulators; both languages call it. bias: the N-vector's part of the tile as fp32 (1, BLOCK_N); scale: a
number. A kernel without them passes None, and the launch has no such argument. DIRECT: c is a pointer and no
descriptor, since TMA cannot store its rows.

int8 operands are summed in int32, others in fp32. PROMOTE adds the product of each step to the accumulators outside of
the tensor cores.
"""

# mypy: ignore-errors

from __future__ import annotations

from ledger.kernel import import_triton

from .gluon import import_gluon

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper = _gluon.gluon, _gluon.language, _gluon.hopper
async_load, async_store = _gluon.async_load, _gluon.async_store


@triton.jit
def identity(acc, bias, scale):
    return acc


@triton.jit
def scaled(acc, bias, scale):
    return acc.to(tl.float32) * scale


@triton.jit
def tile_origin(tile, tiles_m, tiles_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    # GROUP_M rows of tiles share the columns of B that they read while these are in L2.
    group = tile // (GROUP_M * tiles_n)
    group_rows = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    in_group = tile % (GROUP_M * tiles_n)
    return (group * GROUP_M + in_group % group_rows) * BLOCK_M, (in_group // group_rows) * BLOCK_N


@triton.jit
def _load_rows(operand, rows, inner, n_rows, n_inner, ZERO: tl.constexpr):
    return tl.load(
        operand + rows.to(tl.int64)[:, None] * n_inner + inner[None, :],
        mask=(rows < n_rows)[:, None] & (inner < n_inner)[None, :],
        other=ZERO,
    )


@triton.jit
def gemm_kernel(
    a, b, c, bias, scale, n_rows, n_cols, n_inner, EPILOGUE: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SUBTILES: tl.constexpr, TMA: tl.constexpr,
    B_ROWS: tl.constexpr, PROMOTE: tl.constexpr, DIRECT: tl.constexpr,
):  # fmt: skip
    INTEGER: tl.constexpr = (a.dtype if TMA else a.dtype.element_ty) == tl.int8
    ACC: tl.constexpr = tl.int32 if INTEGER else tl.float32
    ZERO: tl.constexpr = 0 if INTEGER else 0.0
    tiles_m = tl.cdiv(n_rows, BLOCK_M)
    tiles_n = tl.cdiv(n_cols, BLOCK_N)
    tiles_k = tl.cdiv(n_inner, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=TMA and not B_ROWS):
        row, col = tile_origin(tile, tiles_m, tiles_n, BLOCK_M, BLOCK_N, GROUP_M)
        rows = row + tl.arange(0, BLOCK_M)
        cols = col + tl.arange(0, BLOCK_N)

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
        for step in tl.range(tiles_k):
            inner = step * BLOCK_K + tl.arange(0, BLOCK_K)
            a_tile = a.load([row, step * BLOCK_K]) if TMA else _load_rows(a, rows, inner, n_rows, n_inner, ZERO)
            if B_ROWS:
                b_rows = b.load([col, step * BLOCK_K]) if TMA else _load_rows(b, cols, inner, n_cols, n_inner, ZERO)
                b_tile = b_rows.T
            else:
                b_tile = b.load([step * BLOCK_K, col]) if TMA else _load_rows(b, inner, cols, n_inner, n_cols, ZERO)
            if PROMOTE:
                acc += tl.dot(a_tile, b_tile, input_precision="ieee", out_dtype=ACC)
            else:
                acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee", out_dtype=ACC)

        # The epilogue stands where it was measured: before the addresses of C only where it adds a bias.
        if bias is not None:
            added = tl.load(bias + cols, mask=cols < n_cols, other=0.0)
            out = EPILOGUE(acc, added.to(tl.float32)[None, :], scale)
        if DIRECT:
            live = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
            c_tile = c + rows.to(tl.int64)[:, None] * n_cols + cols[None, :]
        if bias is None:
            out = EPILOGUE(acc, None, scale)
        if DIRECT:
            tl.store(c_tile, out.to(c.dtype.element_ty), mask=live)
        elif SUBTILES == 2:
            # The store goes through shared memory: in parts it leaves room for one more load stage.
            halves = tl.permute(tl.reshape(out, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            left, right = tl.split(halves)
            c.store([row, col], left.to(c.dtype))
            c.store([row, col + BLOCK_N // 2], right.to(c.dtype))
        else:
            c.store([row, col], out.to(c.dtype))


# In Gluon: one warp loads tiles of A and B by TMA into a ring of stages, two warpgroups multiply and store half of a
# tile's rows each.


@gluon.jit
def _load_tiles(
    a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M: gl.constexpr, B_ROWS: gl.constexpr
):
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a.block_shape[0]
    BLOCK_K: gl.constexpr = a.block_shape[1]
    BLOCK_N: gl.constexpr = b.block_shape[0 if B_ROWS else 1]
    tiles_m = gl.cdiv(n_rows, BLOCK_M)
    tiles_n = gl.cdiv(n_cols, BLOCK_N)
    tiles = tiles_m * tiles_n
    steps = gl.cdiv(n_inner, BLOCK_K)
    done = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_origin(tile, tiles_m, tiles_n, BLOCK_M, BLOCK_N, GROUP_M)
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
def _store_rows(c, out, row, col, n_rows, n_cols):
    layout: gl.constexpr = out.type.layout
    rows = gl.arange(0, out.shape[0], layout=gl.SliceLayout(1, layout)) + row
    columns = gl.arange(0, out.shape[1], layout=gl.SliceLayout(0, layout)) + col
    to = c + (rows.to(gl.int64) * n_cols)[:, None] + columns[None, :]
    gl.store(to, out.to(c.dtype.element_ty), mask=(rows < n_rows)[:, None] & (columns < n_cols)[None, :])


@gluon.jit
def _multiply_tiles(
    c, bias, scale, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner,
    EPILOGUE: gl.constexpr, GROUP_M: gl.constexpr, B_ROWS: gl.constexpr, PROMOTE: gl.constexpr, DIRECT: gl.constexpr,
    PART: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[1 if B_ROWS else 2]
    ROWS: gl.constexpr = BLOCK_M // 2
    INTEGER: gl.constexpr = a_ring.dtype == gl.int8
    ACC: gl.constexpr = gl.int32 if INTEGER else gl.float32
    # For integers Triton has the instruction for at most 224 columns.
    COLUMNS: gl.constexpr = 128 if INTEGER and BLOCK_N > 128 else BLOCK_N
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [gl.num_warps(), 1], [16, COLUMNS, 256 // a_ring.dtype.primitive_bitwidth]
    )
    tiles_m = gl.cdiv(n_rows, BLOCK_M)
    tiles_n = gl.cdiv(n_cols, BLOCK_N)
    tiles = tiles_m * tiles_n
    steps = gl.cdiv(n_inner, BLOCK_K)
    TOP: gl.constexpr = PART * ROWS
    done = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_origin(tile, tiles_m, tiles_n, BLOCK_M, BLOCK_N, GROUP_M)
        if bias is not None:
            # Before the products, which hide its latency.
            cols = col + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
            loaded = gl.load(bias + cols, mask=cols < n_cols, other=0.0)
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
        added = None
        if bias is not None:
            added = loaded.to(gl.float32)[None, :]
        if DIRECT:
            _store_rows(c, EPILOGUE(acc, added, scale), row + TOP, col, n_rows, n_cols)
        else:
            COLS: gl.constexpr = c.block_shape[1]
            buffer = c_smem.index(PART)
            out = EPILOGUE(acc, added, scale).to(c.dtype)
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
    if not DIRECT:
        hopper.tma.store_wait(0)


@gluon.jit
def gemm_pipelined(
    a, b, c, bias, scale, n_rows, n_cols, n_inner, EPILOGUE: gl.constexpr, STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, B_ROWS: gl.constexpr, PROMOTE: gl.constexpr, DIRECT: gl.constexpr,
):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES, a.block_shape[0], a.block_shape[1]], a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES, b.block_shape[0], b.block_shape[1]], b.layout)
    # A direct store needs none.
    c_smem = a_ring if DIRECT else gl.allocate_shared_memory(c.dtype, [2, c.block_shape[0], c.block_shape[1]], c.layout)
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
            c, bias, scale, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner,
            EPILOGUE, GROUP_M, B_ROWS, PROMOTE, DIRECT, FIRST,
        )),
        (_multiply_tiles, (
            c, bias, scale, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner,
            EPILOGUE, GROUP_M, B_ROWS, PROMOTE, DIRECT, SECOND,
        )),
        (_load_tiles, (a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M, B_ROWS)),
    ], [4, 1], [232, 40])
    # fmt: on

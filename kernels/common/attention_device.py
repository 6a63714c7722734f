"""Holds the device code of attention over whole sequences: a Triton kernel and, for sm_90, a Gluon kernel.

A CTA or program computes a block of queries (FlashAttention-2, arXiv 2307.08691, algorithm 1). In the Gluon kernel one
warp loads and two warpgroups each overlap the product of one tile with the softmax of another (FlashAttention-3, arXiv
2407.08608, section 3). Nothing here is called without triton; attention.py launches it.
"""

# mypy: ignore-errors

from __future__ import annotations

from .decode_device import arrives_last, store_stats
from .device import async_load, async_store, gl, gluon, hopper, tl, triton


@triton.jit
def _load_rows(source, head, row, n_rows, n_dims, ROWS: tl.constexpr, BLOCK_D: tl.constexpr, TMA: tl.constexpr):
    if TMA:
        tile = source.load([head, row, 0]).reshape(ROWS, BLOCK_D)
    else:
        rows = row + tl.arange(0, ROWS)
        dims = tl.arange(0, BLOCK_D)
        at = (head.to(tl.int64) * n_rows + rows)[:, None] * n_dims + dims[None, :]
        tile = tl.load(source + at, mask=(rows < n_rows)[:, None] & (dims < n_dims)[None, :], other=0.0)
    return tile


@triton.jit
def _attend(
    acc,
    total,
    maximum,
    q,
    k,
    v,
    kv_head,
    first,
    last,
    query_rows,
    n_rows,
    n_dims,
    scale_log2,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EDGE: tl.constexpr,
    CAUSAL: tl.constexpr,
    TMA: tl.constexpr,
):
    for start in tl.range(first, last, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        k_tile = _load_rows(k, kv_head, start, n_rows, n_dims, BLOCK_N, BLOCK_D, TMA)
        scores = tl.dot(q, tl.trans(k_tile))
        if EDGE:
            keys = start + tl.arange(0, BLOCK_N)
            seen = (keys < n_rows)[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= query_rows[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        # The scale is positive, so it may follow the maximum: one multiply-add a score.
        new_maximum = tl.maximum(maximum, tl.max(scores, axis=1) * scale_log2)
        exponentials = tl.exp2(scores * scale_log2 - new_maximum[:, None])
        correction = tl.exp2(maximum - new_maximum)
        total = total * correction + tl.sum(exponentials, axis=1)
        acc = acc * correction[:, None]
        v_tile = _load_rows(v, kv_head, start, n_rows, n_dims, BLOCK_N, BLOCK_D, TMA)
        acc = tl.dot(exponentials.to(v_tile.dtype), v_tile, acc)
        maximum = new_maximum
    return acc, total, maximum


@triton.jit
def attention_kernel(
    q,
    k,
    v,
    y,
    partial_ptr,
    stats_ptr,
    arrivals_ptr,
    n_rows,
    n_units,
    scale_log2,
    UNIT: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SPLITS: tl.constexpr,
    CAUSAL: tl.constexpr,
    TMA: tl.constexpr,
):
    n_dims = n_units * UNIT
    head = tl.program_id(0)
    kv_head = head // GROUP
    split = tl.program_id(2)
    block = tl.program_id(1)
    if CAUSAL:
        # The last queries see the most keys; they start first, so that short programs fill the last wave.
        block = tl.num_programs(1) - 1 - block
    row = block * BLOCK_M
    query_rows = row + tl.arange(0, BLOCK_M)
    q_tile = _load_rows(q, head, row, n_rows, n_dims, BLOCK_M, BLOCK_D, TMA)
    maximum = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)

    # Whole tiles that every query of the block sees need no mask.
    end = tl.minimum(row + BLOCK_M, n_rows) if CAUSAL else n_rows
    plain = (row if CAUSAL else n_rows) // BLOCK_N * BLOCK_N
    begin = 0
    if SPLITS > 1:
        tiles = tl.cdiv(end, BLOCK_N)
        begin = split * tiles // SPLITS * BLOCK_N
        end = tl.minimum((split + 1) * tiles // SPLITS * BLOCK_N, end)
        plain = tl.minimum(tl.maximum(plain, begin), end)
    acc, total, maximum = _attend(
        acc, total, maximum, q_tile, k, v, kv_head, begin, plain, query_rows, n_rows, n_dims, scale_log2,
        BLOCK_N, BLOCK_D, False, CAUSAL, TMA,
    )  # fmt: skip
    if plain < end:
        acc, total, maximum = _attend(
            acc, total, maximum, q_tile, k, v, kv_head, plain, end, query_rows, n_rows, n_dims, scale_log2,
            BLOCK_N, BLOCK_D, True, CAUSAL, TMA,
        )  # fmt: skip

    if SPLITS > 1:
        tile = head * tl.num_programs(1) + block
        slot = tile.to(tl.int64) * SPLITS
        rows = tl.arange(0, BLOCK_M)
        in_slot = rows[:, None] * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
        tl.store(partial_ptr + (slot + split) * (BLOCK_M * BLOCK_D) + in_slot, acc)
        store_stats(stats_ptr, slot + split, rows, maximum, total, rows < BLOCK_M, BLOCK_M)
        if not arrives_last(arrivals_ptr, tile, SPLITS):
            return
        # The next launch needs a counter of 0; it starts after this one ends.
        tl.store(arrivals_ptr + tile, 0)
        stats = stats_ptr + slot * (2 * BLOCK_M) + rows
        maximum = tl.load(stats, cache_modifier=".cg")
        for part in tl.static_range(1, SPLITS):
            maximum = tl.maximum(maximum, tl.load(stats + part * (2 * BLOCK_M), cache_modifier=".cg"))
        total = tl.zeros((BLOCK_M,), dtype=tl.float32)
        acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
        # Registers do not hold several parts of wide tiles.
        UNROLLED: tl.constexpr = 1 if BLOCK_D > 128 else SPLITS
        for part in tl.range(0, SPLITS, loop_unroll_factor=UNROLLED):
            of_part = stats + part * (2 * BLOCK_M)
            weight = tl.exp2(tl.load(of_part, cache_modifier=".cg") - maximum)
            total += weight * tl.load(of_part + BLOCK_M, cache_modifier=".cg")
            sums = tl.load(partial_ptr + (slot + part) * (BLOCK_M * BLOCK_D) + in_slot, cache_modifier=".cg")
            acc += weight[:, None] * sums

    acc = acc / total[:, None]
    if TMA:
        y.store([head, row, 0], acc.to(y.dtype).reshape(1, BLOCK_M, BLOCK_D))
    else:
        dims = tl.arange(0, BLOCK_D)
        at = (head.to(tl.int64) * n_rows + query_rows)[:, None] * n_dims + dims[None, :]
        tl.store(y + at, acc.to(y.dtype.element_ty), mask=(query_rows < n_rows)[:, None] & (dims < n_dims)[None, :])


@gluon.jit
def _block_of_queries(index, n_rows, n_heads, section, ROWS: gl.constexpr, CAUSAL: gl.constexpr):
    # The heads of a section keep their keys and values in L2; the last queries, which see most, come first.
    blocks = gl.cdiv(n_rows, ROWS)
    first = index // (section * blocks) * section
    width = gl.minimum(section, n_heads - first)
    inside = index - first * blocks
    if CAUSAL:
        head, block = first + inside % width, blocks - 1 - inside // width
    else:
        head, block = first + inside // blocks, inside % blocks
    return head, block


@gluon.jit
def _tiles_of_keys(row, n_rows, ROWS: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    end = gl.minimum(row + ROWS, n_rows) if CAUSAL else n_rows
    return gl.cdiv(end, BLOCK_N)


@gluon.jit
def _load_parts(source, source_tail, head, row, barrier, buffer, buffer_tail, TAIL: gl.constexpr):
    async_load(source, [head, row, 0], barrier, buffer)
    if TAIL > 0:
        async_load(source_tail, [head, row, source.block_shape[2]], barrier, buffer_tail)


@gluon.jit
def _load_tile(source, source_tail, head, row, done, ring, ring_tail, full, empty, TAIL: gl.constexpr):
    STAGES: gl.constexpr = ring.shape[0]
    BYTES: gl.constexpr = source.block_type.nbytes + (source_tail.block_type.nbytes if TAIL > 0 else 0)
    stage = done % STAGES
    hopper.mbarrier.wait(empty.index(stage), (done // STAGES & 1) ^ 1)
    hopper.mbarrier.expect(full.index(stage), BYTES)
    _load_parts(source, source_tail, head, row, full.index(stage), ring.index(stage), ring_tail.index(stage), TAIL)
    return done + 1


@gluon.jit
def _load_tiles(
    q, k, v, q_tail, k_tail, v_tail, fetched_ptr, q_ring, ring, q_ring_tail, ring_tail, blocks, q_full, q_empty, full,
    empty, n_rows, n_heads, section, GROUP: gl.constexpr, CAUSAL: gl.constexpr, TAIL: gl.constexpr,
):  # fmt: skip
    HALF: gl.constexpr = q.block_shape[1]
    BLOCK_M: gl.constexpr = 2 * HALF
    BLOCK_N: gl.constexpr = k.block_shape[1]
    SLOTS: gl.constexpr = q_ring.shape[0] // 2
    Q_BYTES: gl.constexpr = 2 * (q.block_type.nbytes + (q_tail.block_type.nbytes if TAIL > 0 else 0))
    one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    total = gl.cdiv(n_rows, BLOCK_M) * n_heads
    index = gl.program_id(0)
    turn = 0
    done = 0
    while index < total:
        head, block = _block_of_queries(index, n_rows, n_heads, section, BLOCK_M, CAUSAL)
        steps = _tiles_of_keys(block * BLOCK_M, n_rows, BLOCK_M, BLOCK_N, CAUSAL)
        key_head = head // GROUP
        # From the last tile, which may need a mask, to the first; in the order in which tiles are used. Keys come
        # before queries, whose slot may still carry a result out.
        last = (steps - 1) * BLOCK_N
        done = _load_tile(k, k_tail, key_head, last, done, ring, ring_tail, full, empty, TAIL)
        slot = turn % SLOTS
        hopper.mbarrier.wait(q_empty.index(slot), (turn // SLOTS & 1) ^ 1)
        blocks.index(slot).store(gl.full([1], index, gl.int32, one))
        tl.debug_barrier()
        hopper.mbarrier.expect(q_full.index(slot), Q_BYTES)
        for part in gl.static_range(2):
            row = block * BLOCK_M + part * HALF
            at = slot * 2 + part
            _load_parts(q, q_tail, head, row, q_full.index(slot), q_ring.index(at), q_ring_tail.index(at), TAIL)
        for i in range(1, steps):
            row = last - i * BLOCK_N
            done = _load_tile(k, k_tail, key_head, row, done, ring, ring_tail, full, empty, TAIL)
            done = _load_tile(v, v_tail, key_head, row + BLOCK_N, done, ring, ring_tail, full, empty, TAIL)
        done = _load_tile(v, v_tail, key_head, 0, done, ring, ring_tail, full, empty, TAIL)
        turn += 1
        fetched = gl.atomic_add(fetched_ptr, 1, sem="relaxed")
        index = gl.num_programs(0) + fetched
        if fetched == total - 1:
            # Nobody fetches after this: ready for the next launch.
            gl.store(fetched_ptr, 0)
    slot = turn % SLOTS
    hopper.mbarrier.wait(q_empty.index(slot), (turn // SLOTS & 1) ^ 1)
    blocks.index(slot).store(gl.full([1], -1, gl.int32, one))
    tl.debug_barrier()
    hopper.mbarrier.arrive(q_full.index(slot), count=1)


@gluon.jit
def _exponentials(scores, maximum, scale_log2):
    new_maximum = gl.maximum(maximum, gl.max(scores, axis=1) * scale_log2)
    return gl.exp2(scores * scale_log2 - new_maximum[:, None]), new_maximum


@gluon.jit
def _multiply_keys(queries, keys, queries_tail, keys_tail, zeros, TAIL: gl.constexpr):
    pending = hopper.warpgroup_mma(queries, keys.permute((1, 0)), zeros, use_acc=False, is_async=True)
    if TAIL > 0:
        pending = hopper.warpgroup_mma(queries_tail, keys_tail.permute((1, 0)), pending, is_async=True)
    return pending


@gluon.jit
def _add_values(weights, values, values_tail, acc, tail, tail_layout: gl.constexpr, TAIL: gl.constexpr):
    sums = hopper.warpgroup_mma(weights, values, acc, is_async=True)
    tail_sums = tail
    if TAIL > 0:
        weights = gl.convert_layout(weights, gl.DotOperandLayout(0, tail_layout, 2))
        tail_sums = hopper.warpgroup_mma(weights, values_tail, tail, is_async=True)
    return sums, tail_sums


@gluon.jit
def _attend_half(
    y, y_tail, q_ring, ring, q_ring_tail, ring_tail, blocks, order, q_full, q_empty, full, empty, n_rows, n_heads,
    section, scale_log2, CAUSAL: gl.constexpr, PINGPONG: gl.constexpr, TAIL: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = ring.shape[0]
    SLOTS: gl.constexpr = q_ring.shape[0] // 2
    BLOCK_N: gl.constexpr = ring.shape[2]
    HEAD: gl.constexpr = ring.shape[3]
    TAIL_COLUMNS: gl.constexpr = ring_tail.shape[3]
    PARTS: gl.constexpr = 2 if TAIL > 0 else 1
    HALF: gl.constexpr = q_ring.shape[2]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, HEAD, 16])
    tail_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, max(TAIL, 16), 16])
    tail_rows: gl.constexpr = gl.SliceLayout(1, tail_layout)
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    s_rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    one: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    zeros = gl.zeros([HALF, BLOCK_N], gl.float32, s_layout)
    # Tiles of keys, from the last, of which a query may see none or some; the first half may see none of the last.
    MASKED: gl.constexpr = 2 * HALF // BLOCK_N if CAUSAL else 1
    LOWEST: gl.constexpr = -1e30 if MASKED > 1 else -float("inf")
    turn = 0
    done = 0
    products = 0
    hopper.mbarrier.wait(q_full.index(0), 0)
    index = gl.max(blocks.index(0).load(one), axis=0)
    while index >= 0:
        slot = turn % SLOTS
        head, block = _block_of_queries(index, n_rows, n_heads, section, 2 * HALF, CAUSAL)
        steps = _tiles_of_keys(block * (2 * HALF), n_rows, 2 * HALF, BLOCK_N, CAUSAL)
        row = block * (2 * HALF) + PART * HALF
        queries = q_ring.index(slot * 2 + PART).reshape([HALF, HEAD])
        queries_tail = q_ring_tail.index(slot * 2 + PART).reshape([HALF, TAIL_COLUMNS])

        stage = done % STAGES
        hopper.mbarrier.wait(full.index(stage), done // STAGES & 1)
        if PINGPONG:
            hopper.mbarrier.wait(order.index(PART), (products & 1) ^ (1 - PART))
        keys = ring.index(stage).reshape([BLOCK_N, HEAD])
        keys_tail = ring_tail.index(stage).reshape([BLOCK_N, TAIL_COLUMNS])
        pending = _multiply_keys(queries, keys, queries_tail, keys_tail, zeros, TAIL)
        if PINGPONG:
            hopper.mbarrier.arrive(order.index(1 - PART), count=1)
        products += 1
        scores = hopper.warpgroup_mma_wait(0, deps=(pending,))
        hopper.mbarrier.arrive(empty.index(stage), count=1)
        done += 1
        at = (steps - 1) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, s_layout))
        visible = (at < n_rows)[None, :]
        if CAUSAL:
            visible = visible & (at[None, :] <= (row + gl.arange(0, HALF, s_rows))[:, None])
        scores = gl.where(visible, scores, -float("inf"))
        exponentials, maximum = _exponentials(scores, gl.full([HALF], LOWEST, gl.float32, s_rows), scale_log2)
        total = gl.sum(exponentials, axis=1)
        weights = gl.convert_layout(exponentials.to(y.dtype), p_layout)
        acc = gl.zeros([HALF, HEAD], gl.float32, o_layout)
        # Without a second part its sums are a tensor that nothing changes.
        tail = gl.zeros([HALF, TAIL], gl.float32, tail_layout) if TAIL > 0 else total

        hopper.mbarrier.wait(full.index(done % STAGES), done // STAGES & 1)
        for i in range(1, steps):
            k_stage = done % STAGES
            v_stage = (done + 1) % STAGES
            if PINGPONG:
                hopper.mbarrier.wait(order.index(PART), (products & 1) ^ (1 - PART))
            keys = ring.index(k_stage).reshape([BLOCK_N, HEAD])
            keys_tail = ring_tail.index(k_stage).reshape([BLOCK_N, TAIL_COLUMNS])
            pending = _multiply_keys(queries, keys, queries_tail, keys_tail, zeros, TAIL)
            hopper.mbarrier.wait(full.index(v_stage), (done + 1) // STAGES & 1)
            values = ring.index(v_stage).reshape([BLOCK_N, HEAD])
            values_tail = ring_tail.index(v_stage).reshape([BLOCK_N, TAIL_COLUMNS])
            sums, tail_sums = _add_values(weights, values, values_tail, acc, tail, tail_layout, TAIL)
            if PINGPONG:
                hopper.mbarrier.arrive(order.index(1 - PART), count=1)
            products += 1
            # The product with the keys is done; that with the values runs beside the softmax.
            scores = hopper.warpgroup_mma_wait(PARTS, deps=(pending,))
            hopper.mbarrier.arrive(empty.index(k_stage), count=1)
            if MASKED > 1:  # noqa: SIM102 (known when it compiles)
                if i < MASKED:
                    keys_at = (steps - 1 - i) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, s_layout))
                    seen = keys_at[None, :] <= (row + gl.arange(0, HALF, s_rows))[:, None]
                    scores = gl.where(seen, scores, -float("inf"))
            exponentials, new_maximum = _exponentials(scores, maximum, scale_log2)
            correction = gl.exp2(maximum - new_maximum)
            total = total * correction + gl.sum(exponentials, axis=1)
            maximum = new_maximum
            done += 2
            # A wait for the next tile here also keeps the compiler from moving the next line up over the softmax.
            hopper.mbarrier.wait(full.index(done % STAGES), done // STAGES & 1)
            acc, exponentials, weights = hopper.warpgroup_mma_wait(0, deps=(sums, exponentials, weights))
            if TAIL > 0:
                tail = hopper.warpgroup_mma_wait(0, deps=(tail_sums,))
                tail = tail * gl.convert_layout(correction, tail_rows)[:, None]
            hopper.mbarrier.arrive(empty.index(v_stage), count=1)
            acc = acc * gl.convert_layout(correction, o_rows)[:, None]
            weights = gl.convert_layout(exponentials.to(y.dtype), p_layout)

        stage = done % STAGES
        values = ring.index(stage).reshape([BLOCK_N, HEAD])
        values_tail = ring_tail.index(stage).reshape([BLOCK_N, TAIL_COLUMNS])
        sums, tail_sums = _add_values(weights, values, values_tail, acc, tail, tail_layout, TAIL)
        acc, weights = hopper.warpgroup_mma_wait(0, deps=(sums, weights))
        if TAIL > 0:
            tail = hopper.warpgroup_mma_wait(0, deps=(tail_sums,))
        hopper.mbarrier.arrive(empty.index(stage), count=1)
        done += 1

        # The queries of this half are used up: their buffer carries the result out.
        queries.store((acc * gl.convert_layout(1.0 / total, o_rows)[:, None]).to(y.dtype))
        if TAIL > 0:
            queries_tail.store((tail * gl.convert_layout(1.0 / total, tail_rows)[:, None]).to(y.dtype))
        hopper.fence_async_shared()
        tl.debug_barrier()
        async_store(y, [head, row, 0], q_ring.index(slot * 2 + PART))
        if TAIL > 0:
            async_store(y_tail, [head, row, HEAD], q_ring_tail.index(slot * 2 + PART))
        hopper.tma.store_wait(0)
        hopper.mbarrier.arrive(q_empty.index(slot), count=1)
        turn += 1
        slot = turn % SLOTS
        hopper.mbarrier.wait(q_full.index(slot), turn // SLOTS & 1)
        index = gl.max(blocks.index(slot).load(one), axis=0)


@gluon.jit
def attention_warp_specialised(
    q,
    k,
    v,
    y,
    q_tail,
    k_tail,
    v_tail,
    y_tail,
    fetched_ptr,
    n_rows,
    n_heads,
    section,
    scale_log2,
    GROUP: gl.constexpr,
    CAUSAL: gl.constexpr,
    STAGES: gl.constexpr,
    SLOTS: gl.constexpr,
    PINGPONG: gl.constexpr,
    TAIL: gl.constexpr,
):
    barrier: gl.constexpr = hopper.mbarrier.MBarrierLayout()
    q_ring = gl.allocate_shared_memory(q.dtype, [2 * SLOTS, 1, q.block_shape[1], q.block_shape[2]], q.layout)
    ring = gl.allocate_shared_memory(k.dtype, [STAGES, 1, k.block_shape[1], k.block_shape[2]], k.layout)
    q_ring_tail = q_ring
    ring_tail = ring
    if TAIL > 0:
        q_ring_tail = gl.allocate_shared_memory(q.dtype, [2 * SLOTS, 1, q.block_shape[1], TAIL], q_tail.layout)
        ring_tail = gl.allocate_shared_memory(k.dtype, [STAGES, 1, k.block_shape[1], TAIL], k_tail.layout)
    blocks = gl.allocate_shared_memory(gl.int32, [SLOTS, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    order = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    q_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    q_empty = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    for i in gl.static_range(2):
        hopper.mbarrier.init(order.index(i), count=1)
    for i in gl.static_range(SLOTS):
        hopper.mbarrier.init(q_full.index(i), count=1)
        hopper.mbarrier.init(q_empty.index(i), count=2)
    for i in gl.static_range(STAGES):
        hopper.mbarrier.init(full.index(i), count=1)
        hopper.mbarrier.init(empty.index(i), count=2)
    UPPER: gl.constexpr = 0
    LOWER: gl.constexpr = 1
    # fmt: off
    gl.warp_specialize([
        (_attend_half, (
            y, y_tail, q_ring, ring, q_ring_tail, ring_tail, blocks, order, q_full, q_empty, full, empty, n_rows,
            n_heads, section, scale_log2, CAUSAL, PINGPONG, TAIL, UPPER,
        )),
        (_attend_half, (
            y, y_tail, q_ring, ring, q_ring_tail, ring_tail, blocks, order, q_full, q_empty, full, empty, n_rows,
            n_heads, section, scale_log2, CAUSAL, PINGPONG, TAIL, LOWER,
        )),
        (_load_tiles, (
            q, k, v, q_tail, k_tail, v_tail, fetched_ptr, q_ring, ring, q_ring_tail, ring_tail, blocks, q_full,
            q_empty, full, empty, n_rows, n_heads, section, GROUP, CAUSAL, TAIL,
        )),
    ], [4, 1], [240, 24])
    # fmt: on

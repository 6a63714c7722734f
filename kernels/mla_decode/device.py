"""Holds mla_decode's kernels in Triton (generic) and in Gluon (warp-specialised, sm_90).

In the Gluon kernel one warp loads, one warpgroup computes scores and exponentials, and two warpgroups each hold the
accumulators of 256 columns of the latent.
"""

# mypy: ignore-errors

from __future__ import annotations

from ledger.kernels.common.decode_device import (
    any_of,
    arrives_last,
    is_unwritten,
    split_weights,
    store_stats,
    weighted_sum,
)
from ledger.kernels.common.device import (
    async_load,
    async_store,
    gl,
    gluon,
    grid,
    hopper,
    new_barrier,
    new_barriers,
    tl,
    triton,
    wait_for_previous_launch,
)


@triton.jit
def _reduce_splits(
    partial_ptr, stats_ptr, tile, range_h, in_tile, LATENT: tl.constexpr, BLOCK_H: tl.constexpr, SPLITS: tl.constexpr
):  # fmt: skip
    start = tile.to(tl.int64) * SPLITS
    maximum = tl.full((BLOCK_H,), -float("inf"), dtype=tl.float32)
    for part in tl.range(SPLITS):
        maxima_ptrs = stats_ptr + (start + part) * (2 * BLOCK_H) + range_h
        maximum = tl.maximum(maximum, tl.load(maxima_ptrs, cache_modifier=".cg"))
    total = tl.zeros((BLOCK_H,), dtype=tl.float32)
    merged = tl.zeros((BLOCK_H, LATENT), dtype=tl.float32)
    for part in tl.range(SPLITS):
        stats = stats_ptr + (start + part) * (2 * BLOCK_H) + range_h
        weight = tl.exp2(tl.load(stats, cache_modifier=".cg") - maximum)
        total += weight * tl.load(stats + BLOCK_H, cache_modifier=".cg")
        piece = tl.load(partial_ptr + (start + part) * (BLOCK_H * LATENT) + in_tile, cache_modifier=".cg")
        merged += piece * weight[:, None]
    return merged, total


@triton.jit
def mla_decode_kernel(
    q_ptr, latent, rope, y_ptr, partial_ptr, stats_ptr, arrivals_ptr, n_heads, n_keys, scale_log2, LATENT: tl.constexpr,
    ROPE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_S: tl.constexpr, SPLITS: tl.constexpr, STAGES: tl.constexpr,
    TMA: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    wait_for_previous_launch(PDL)
    width: tl.constexpr = LATENT + ROPE
    # Blocks of heads of one sequence have consecutive numbers, so that the second finds the cache in L2.
    block = tl.program_id(0)
    split = tl.program_id(1)
    batch = tl.program_id(2)
    heads = block * BLOCK_H + tl.arange(0, BLOCK_H)
    range_l = tl.arange(0, LATENT)
    range_r = tl.arange(0, ROPE)
    range_s = tl.arange(0, BLOCK_S)
    head_mask = (heads < n_heads)[:, None]
    query_rows = q_ptr + (batch.to(tl.int64) * n_heads + heads)[:, None] * width
    q_latent = tl.load(query_rows + range_l[None, :], mask=head_mask, other=0.0)
    q_rope = tl.load(query_rows + LATENT + range_r[None, :], mask=head_mask, other=0.0)

    steps = tl.cdiv(n_keys, BLOCK_S)
    first = split * steps // SPLITS
    last = (split + 1) * steps // SPLITS
    maximum = tl.full((BLOCK_H,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_H,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_H, LATENT), dtype=tl.float32)
    for step in tl.range(first, last, num_stages=STAGES):
        keys = step * BLOCK_S + range_s
        if TMA:
            latent_tile = latent.load([batch, step * BLOCK_S, 0]).reshape(BLOCK_S, LATENT)
            rope_tile = rope.load([batch, step * BLOCK_S, LATENT]).reshape(BLOCK_S, ROPE)
        else:
            cache_rows = latent + (batch.to(tl.int64) * n_keys + keys)[:, None] * width
            key_mask = (keys < n_keys)[:, None]
            latent_tile = tl.load(cache_rows + range_l[None, :], mask=key_mask, other=0.0)
            rope_tile = tl.load(cache_rows + LATENT + range_r[None, :], mask=key_mask, other=0.0)
        scores = tl.dot(q_rope, tl.trans(rope_tile))
        scores = tl.dot(q_latent, tl.trans(latent_tile), scores) * scale_log2
        scores = tl.where((keys < n_keys)[None, :], scores, -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, axis=1))
        correction = tl.exp2(maximum - new_maximum)
        exponentials = tl.exp2(scores - new_maximum[:, None])
        total = total * correction + tl.sum(exponentials, axis=1)
        acc = tl.dot(exponentials.to(latent_tile.dtype), latent_tile, acc * correction[:, None])
        maximum = new_maximum

    y_rows = y_ptr + (batch.to(tl.int64) * n_heads + heads)[:, None] * LATENT
    if SPLITS == 1:
        tl.store(y_rows + range_l[None, :], (acc / total[:, None]).to(y_ptr.dtype.element_ty), mask=head_mask)
    else:
        tile = batch * tl.num_programs(0) + block
        slot = tile.to(tl.int64) * SPLITS + split
        range_h = tl.arange(0, BLOCK_H)
        in_tile = range_h[:, None] * LATENT + range_l[None, :]
        tl.store(partial_ptr + slot * (BLOCK_H * LATENT) + in_tile, acc)
        store_stats(stats_ptr, slot, range_h, maximum, total, None, BLOCK_H)
        if arrives_last(arrivals_ptr, tile, SPLITS):
            merged, sums = _reduce_splits(partial_ptr, stats_ptr, tile, range_h, in_tile, LATENT, BLOCK_H, SPLITS)
            tl.store(y_rows + range_l[None, :], (merged / sums[:, None]).to(y_ptr.dtype.element_ty), mask=head_mask)
            # The next launch needs a counter of 0; it starts after this one ends.
            tl.store(arrivals_ptr + tile, 0)


@gluon.jit
def _load_tiles(
    q_piece, q_rope, latent, rope, q_smem, p_ring, ring, rope_ring, q_full, full, empty, batch, head, first, steps,
    PDL: gl.constexpr,
):  # fmt: skip
    BLOCK_S: gl.constexpr = latent.block_shape[1]
    PIECE: gl.constexpr = latent.block_shape[2]
    if PDL:
        grid.gdc_wait()
    hopper.mbarrier.expect(q_full, 4 * q_piece.block_type.nbytes + q_rope.block_type.nbytes)
    # These query columns are moved to registers: until then they use the buffer of the exponentials.
    async_load(q_rope, [batch, head, 4 * PIECE], q_full, p_ring.index(0))
    for part in gl.static_range(4):
        async_load(q_piece, [batch, head, part * PIECE], q_full, q_smem.index(part))
    for i in range(steps):
        stage = i % 2
        phase = (i // 2 & 1) ^ 1
        at = (first + i) * BLOCK_S
        for piece in gl.static_range(4):
            # The left half is released first, and its pieces arrive together with the rope.
            bar = full.index(stage * 3 + max(piece - 1, 0))
            hopper.mbarrier.wait(empty.index(stage * 4 + piece), phase)
            if piece == 0:
                hopper.mbarrier.expect(bar, 2 * latent.block_type.nbytes + rope.block_type.nbytes)
                async_load(rope, [batch, at, 4 * PIECE], bar, rope_ring.index(stage))
            elif piece > 1:
                hopper.mbarrier.expect(bar, latent.block_type.nbytes)
            async_load(latent, [batch, at, piece * PIECE], bar, ring.index(stage * 4 + piece))


@gluon.jit
def _score_tiles(
    q_smem, p_ring, ring, rope_ring, correction_ring, stats, q_full, full, scored, p_full, stats_full, first, steps,
    n_keys, scale_log2, HELD: gl.constexpr,
):  # fmt: skip
    HEADS: gl.constexpr = q_smem.shape[2]
    BLOCK_S: gl.constexpr = ring.shape[2]
    PIECE: gl.constexpr = ring.shape[3]
    ROPE: gl.constexpr = rope_ring.shape[3]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_S, 16])
    rows: gl.constexpr = gl.SliceLayout(1, layout)
    hopper.mbarrier.wait(q_full, 0)
    q_rope = p_ring.index(0).reshape([HEADS, ROPE]).load(gl.DotOperandLayout(0, layout, 2))
    if HELD:
        # Shared-memory bandwidth is the next limit: from there every tile would read these again.
        q_held = q_smem.index(0).reshape([HEADS, PIECE]).load(gl.DotOperandLayout(0, layout, 2))
    reference = gl.full([HEADS], -float("inf"), gl.float32, rows)
    total = gl.zeros([HEADS], gl.float32, rows)
    zeros = gl.zeros([HEADS, BLOCK_S], gl.float32, layout)
    SLACK: gl.constexpr = 8.0  # exponentials stay below 2 ** 8
    for i in range(steps):
        stage = i % 2
        phase = i // 2 & 1
        hopper.mbarrier.wait(full.index(stage * 3), phase)
        keys = rope_ring.index(stage).reshape([BLOCK_S, ROPE]).permute((1, 0))
        pending = hopper.warpgroup_mma(q_rope, keys, zeros, use_acc=False, is_async=True)
        for piece in gl.static_range(4):
            if piece > 1:
                hopper.mbarrier.wait(full.index(stage * 3 + piece - 1), phase)
            keys = ring.index(stage * 4 + piece).reshape([BLOCK_S, PIECE]).permute((1, 0))
            if HELD and piece == 0:
                pending = hopper.warpgroup_mma(q_held, keys, pending, is_async=True)
            else:
                pending = hopper.warpgroup_mma(
                    q_smem.index(piece).reshape([HEADS, PIECE]), keys, pending, is_async=True
                )
        if HELD:
            scores, q_rope, q_held = hopper.warpgroup_mma_wait(0, deps=(pending, q_rope, q_held))
        else:
            scores, q_rope = hopper.warpgroup_mma_wait(0, deps=(pending, q_rope))
        hopper.mbarrier.arrive(scored.index(stage), count=1)
        at = (first + i) * BLOCK_S
        if at + BLOCK_S > n_keys:
            columns = at + gl.arange(0, BLOCK_S, gl.SliceLayout(0, layout))
            scores = gl.where((columns < n_keys)[None, :], scores, -float("inf"))
        # The scale is positive, so it may follow the maximum: one multiply-add per score. The reference may be up to
        # SLACK below the maximum; while it stays, no sum needs a correction.
        highest = gl.max(scores, axis=1) * scale_log2
        new_reference = gl.where(highest > reference + SLACK, highest, reference)
        exponentials = gl.exp2(scores * scale_log2 - new_reference[:, None])
        correction = gl.exp2(reference - new_reference)
        reference = new_reference
        # This tile is loaded, so both accumulating groups released the stage and read its exponentials two tiles ago.
        p_ring.index(stage).reshape([HEADS, BLOCK_S]).store(exponentials.to(p_ring.dtype))
        correction_ring.index(stage).store(correction)
        hopper.mbarrier.arrive(p_full.index(stage), count=1)
        total = total * correction + gl.sum(exponentials, axis=1)
    stats.index(0).store(reference)
    stats.index(1).store(total)
    hopper.mbarrier.arrive(stats_full, count=1)


@gluon.jit
def _accumulate_half(
    y, y_ptr, partial_ptr, stats_ptr, q_smem, p_ring, ring, correction_ring, stats, empty, scored, p_full, stats_full,
    batch, head, split, n_heads, steps, SPLITS: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    HEADS: gl.constexpr = q_smem.shape[2]
    BLOCK_S: gl.constexpr = ring.shape[2]
    PIECE: gl.constexpr = ring.shape[3]
    # A product of 256 columns at once would need more registers than a thread starts with.
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, PIECE, 16])
    rows: gl.constexpr = gl.SliceLayout(1, layout)
    every: gl.constexpr = gl.BlockedLayout([2], [32], [gl.num_warps()], [0])
    acc = gl.zeros([HEADS, PIECE], gl.float32, layout)
    acc_next = gl.zeros([HEADS, PIECE], gl.float32, layout)
    for i in range(steps):
        stage = i % 2
        slot = stage * 4 + PART * 2
        hopper.mbarrier.wait(p_full.index(stage), i // 2 & 1)
        exponentials = p_ring.index(stage).reshape([HEADS, BLOCK_S]).load(gl.DotOperandLayout(0, layout, 2))
        if gl.min(correction_ring.index(stage).load(every), axis=0) < 1.0:
            correction = correction_ring.index(stage).load(rows)[:, None]
            acc = acc * correction
            acc_next = acc_next * correction
        if PART == 1:
            # The right half waits until the next scores are computed, so that its products overlap their softmax.
            hopper.mbarrier.wait(scored.index(1 - stage), (i + 1) // 2 & 1, pred=i + 1 < steps)
        # The scores of this tile are computed, so its pieces are loaded, and only this group still needs them.
        values = ring.index(slot).reshape([BLOCK_S, PIECE])
        pending = hopper.warpgroup_mma(exponentials, values, acc, is_async=True)
        values = ring.index(slot + 1).reshape([BLOCK_S, PIECE])
        pending_next = hopper.warpgroup_mma(exponentials, values, acc_next, is_async=True)
        acc = hopper.warpgroup_mma_wait(1, deps=(pending,))
        hopper.mbarrier.arrive(empty.index(slot), count=1)
        acc_next, exponentials = hopper.warpgroup_mma_wait(0, deps=(pending_next, exponentials))
        hopper.mbarrier.arrive(empty.index(slot + 1), count=1)
    hopper.mbarrier.wait(stats_full, 0)
    total = stats.index(1).load(rows)
    if SPLITS == 1:
        # The queries are no longer needed: their buffer stages the result for the TMA store.
        share = (1.0 / total)[:, None]
        q_smem.index(PART * 2).reshape([HEADS, PIECE]).store((acc * share).to(y.dtype))
        q_smem.index(PART * 2 + 1).reshape([HEADS, PIECE]).store((acc_next * share).to(y.dtype))
        hopper.fence_async_shared()
        tl.debug_barrier()
        for piece in gl.static_range(PART * 2, PART * 2 + 2):
            async_store(y, [batch, head, piece * PIECE], q_smem.index(piece))
        hopper.tma.store_wait(0)
    else:
        SHARE: gl.constexpr = HEADS // SPLITS
        HALF: gl.constexpr = 2 * PIECE
        tile = ((batch * gl.num_programs(0) + gl.program_id(0)) * 2 + PART).to(gl.int64)
        partial = partial_ptr + tile * (SPLITS * HEADS * HALF)
        sums = stats_ptr + tile * (SPLITS * 2 * HEADS)
        _store_partial_sums(partial, sums, acc, acc_next, stats, total, split, layout, SPLITS)
        _reduce_partial_sums(
            y_ptr, partial + split * (SPLITS * SHARE * HALF), sums + split * (SPLITS * 2 * SHARE), batch,
            head + split * SHARE, n_heads, PART * HALF, SPLITS, SHARE, HALF,
        )  # fmt: skip


@gluon.jit
def _store_partial_sums(
    partial_ptr, stats_ptr, acc, acc_next, stats, total, split, layout: gl.constexpr, SPLITS: gl.constexpr
):  # fmt: skip
    # A tile's workspace is [split that reads][split that wrote][row of the reader's share][column].
    HEADS: gl.constexpr = acc.shape[0]
    PIECE: gl.constexpr = acc.shape[1]
    SHARE: gl.constexpr = HEADS // SPLITS
    HALF: gl.constexpr = 2 * PIECE
    rows: gl.constexpr = gl.SliceLayout(1, layout)
    range_h = gl.arange(0, HEADS, rows)
    cols = gl.arange(0, PIECE, gl.SliceLayout(0, layout))
    share = range_h // SHARE * (SPLITS * SHARE * HALF) + split * (SHARE * HALF) + range_h % SHARE * HALF
    gl.store(partial_ptr + share[:, None] + cols[None, :], acc)
    gl.store(partial_ptr + share[:, None] + (PIECE + cols)[None, :], acc_next)
    share = range_h // SHARE * (SPLITS * 2 * SHARE) + split * (2 * SHARE) + range_h % SHARE
    gl.store(stats_ptr + share, stats.index(0).load(rows))
    gl.store(stats_ptr + share + SHARE, total)


@gluon.jit
def _reduce_partial_sums(
    y_ptr, partial_ptr, stats_ptr, batch, head, n_heads, col, SPLITS: gl.constexpr, ROWS: gl.constexpr,
    HALF: gl.constexpr,
):  # fmt: skip
    UNWRITTEN: gl.constexpr = 0x7FFFDEAD  # decode.UNWRITTEN, which a kernel cannot read
    COLS: gl.constexpr = min(HALF, 64)
    layout: gl.constexpr = gl.BlockedLayout([1, 1, 4], [2, 1, 16], [1, gl.num_warps(), 1], [2, 1, 0])
    per_row: gl.constexpr = gl.SliceLayout(2, layout)
    reduced: gl.constexpr = gl.SliceLayout(0, layout)
    part = gl.arange(0, SPLITS, gl.SliceLayout(1, per_row))[:, None]
    row = gl.arange(0, ROWS, gl.SliceLayout(0, per_row))[None, :]
    cols = gl.arange(0, COLS, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    references_ptrs = stats_ptr + part * (2 * ROWS) + row
    partial_ptrs = partial_ptr + (part * (ROWS * HALF) + row * HALF)[:, :, None] + cols
    references = gl.full([SPLITS, ROWS], 0.0, gl.float32, per_row)
    totals = gl.full([SPLITS, ROWS], 0.0, gl.float32, per_row)
    values = gl.full([SPLITS, ROWS, COLS], 0.0, gl.float32, layout)
    # Every word is its own flag: no fence and no counter is needed between its writer and its reader.
    waiting = 1
    while waiting != 0:
        references = gl.load(references_ptrs, volatile=True)
        totals = gl.load(references_ptrs + ROWS, volatile=True)
        waiting = any_of((is_unwritten(references) | is_unwritten(totals)).to(gl.int32))
    # Two warps may hold the same words: neither may reset them before the other has read them.
    tl.debug_barrier()
    reset = gl.full([SPLITS, ROWS], UNWRITTEN, gl.int32, per_row).to(gl.float32, bitcast=True)
    gl.store(references_ptrs, reset)
    gl.store(references_ptrs + ROWS, reset)
    weights = split_weights(references)
    weights = weights * (1.0 / gl.sum(weights * totals, axis=0))[None, :]
    heads = head + gl.arange(0, ROWS, gl.SliceLayout(1, reduced))
    y_rows = y_ptr + ((batch * n_heads).to(gl.int64) + heads)[:, None] * (2 * HALF) + col
    live = (heads < n_heads)[:, None]
    reset = gl.full([SPLITS, ROWS, COLS], UNWRITTEN, gl.int32, layout).to(gl.float32, bitcast=True)
    for chunk in gl.static_range(HALF // COLS):
        waiting = 1
        while waiting != 0:
            values = gl.load(partial_ptrs + chunk * COLS, volatile=True)
            waiting = any_of(gl.max(is_unwritten(values).to(gl.int32), axis=2))
        tl.debug_barrier()
        gl.store(partial_ptrs + chunk * COLS, reset)
        y = weighted_sum(values, weights)
        y_cols = chunk * COLS + gl.arange(0, COLS, gl.SliceLayout(0, reduced))[None, :]
        gl.store(y_rows + y_cols, y.to(y_ptr.dtype.element_ty), mask=live & (y_cols >= 0))


@gluon.jit
def mla_decode_warp_specialised(
    q_piece, q_rope, latent, rope, y, y_ptr, partial_ptr, stats_ptr, n_heads, n_keys, scale_log2,
    SPLITS: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    if PDL:
        grid.gdc_launch_dependents()
    HEADS: gl.constexpr = q_piece.block_shape[1]
    PIECE: gl.constexpr = q_piece.block_shape[2]
    ROPE: gl.constexpr = rope.block_shape[2]
    BLOCK_S: gl.constexpr = latent.block_shape[1]
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    q_smem = gl.allocate_shared_memory(q_piece.dtype, [4, 1, HEADS, PIECE], q_piece.layout)
    ring = gl.allocate_shared_memory(latent.dtype, [8, 1, BLOCK_S, PIECE], latent.layout)
    rope_ring = gl.allocate_shared_memory(rope.dtype, [2, 1, BLOCK_S, ROPE], rope.layout)
    p_ring = gl.allocate_shared_memory(latent.dtype, [2, 1, HEADS, BLOCK_S], q_rope.layout)
    correction_ring = gl.allocate_shared_memory(gl.float32, [2, HEADS], flat)
    stats = gl.allocate_shared_memory(gl.float32, [2, HEADS], flat)
    q_full = new_barrier()
    stats_full = new_barrier()
    full = new_barriers(6)
    empty = new_barriers(8)
    scored = new_barriers(2)
    p_full = new_barriers(2)
    hopper.mbarrier.init(q_full, count=1)
    hopper.mbarrier.init(stats_full, count=1)
    for i in gl.static_range(6):
        hopper.mbarrier.init(full.index(i), count=1)
    for i in gl.static_range(8):
        hopper.mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(2):
        hopper.mbarrier.init(scored.index(i), count=1)
        hopper.mbarrier.init(p_full.index(i), count=1)
    # Blocks of heads of one sequence have consecutive numbers, so that the second finds the cache in L2.
    head = gl.program_id(0) * HEADS
    split = gl.program_id(1)
    batch = gl.program_id(2)
    tiles = gl.cdiv(n_keys, BLOCK_S)
    first = split * tiles // SPLITS
    steps = (split + 1) * tiles // SPLITS - first
    LEFT: gl.constexpr = 0
    RIGHT: gl.constexpr = 1
    # The reduction of splits needs the registers.
    HELD: gl.constexpr = SPLITS == 1
    # fmt: off
    gl.warp_specialize([
        (_accumulate_half, (
            y, y_ptr, partial_ptr, stats_ptr, q_smem, p_ring, ring, correction_ring, stats, empty, scored, p_full,
            stats_full, batch, head, split, n_heads, steps, SPLITS, LEFT,
        )),
        (_accumulate_half, (
            y, y_ptr, partial_ptr, stats_ptr, q_smem, p_ring, ring, correction_ring, stats, empty, scored, p_full,
            stats_full, batch, head, split, n_heads, steps, SPLITS, RIGHT,
        )),
        (_score_tiles, (
            q_smem, p_ring, ring, rope_ring, correction_ring, stats, q_full, full, scored, p_full, stats_full, first,
            steps, n_keys, scale_log2, HELD,
        )),
        (_load_tiles, (
            q_piece, q_rope, latent, rope, q_smem, p_ring, ring, rope_ring, q_full, full, empty, batch, head, first,
            steps, PDL,
        )),
    ], [4, 4, 1], [176, 136, 24])
    # fmt: on

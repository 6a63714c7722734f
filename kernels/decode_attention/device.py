"""Holds decode_attention's kernels in Triton (generic) and in Gluon (software-pipelined, sm_90).

Both take a tile of keys as the M side of the first product, because a tile of 64 keys reaches wgmma and a group of
query heads does not.
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
def decode_attention_kernel(
    q_ptr, k, v, y_ptr, partial_ptr, stats_ptr, arrivals_ptr, n_keys, n_units, scale_log2, UNIT: tl.constexpr,
    HEADS: tl.constexpr, SHARERS: tl.constexpr, GROUP: tl.constexpr, GROUP_PADDED: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, SPLITS: tl.constexpr, SPLITS_PADDED: tl.constexpr,
    CHUNK_D: tl.constexpr, STAGES: tl.constexpr, TENSOR_CORES: tl.constexpr, TMA: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    wait_for_previous_launch(PDL)
    n_dims = n_units * UNIT
    split = tl.program_id(0) % SPLITS
    head = tl.program_id(0) // SPLITS
    range_g = tl.arange(0, BLOCK_G)
    range_d = tl.arange(0, BLOCK_D)
    range_s = tl.arange(0, BLOCK_S)
    # HEADS query heads share a key head; each of its SHARERS takes GROUP of them, the last one the remainder.
    key_head = head // SHARERS
    share = head % SHARERS * GROUP
    live = tl.minimum(HEADS - share, GROUP)
    group_mask = range_g < live
    dim_mask = range_d < n_dims
    first_row = key_head.to(tl.int64) * HEADS + share
    query_rows = first_row + range_g
    q = tl.load(
        q_ptr + query_rows[:, None] * n_dims + range_d[None, :],
        mask=group_mask[:, None] & dim_mask[None, :],
        other=0.0,
    )
    q_columns = tl.trans(q)
    # Without tensor cores a query row is broadcast over the keys.
    q_rows = q.to(tl.float32)[:, None, :]
    cache_row = key_head.to(tl.int64) * n_keys

    steps = tl.cdiv(n_keys, BLOCK_S)
    first = split * steps // SPLITS
    last = (split + 1) * steps // SPLITS
    maximum = tl.full((BLOCK_G,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_G,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_D, BLOCK_G) if TENSOR_CORES else (BLOCK_G, BLOCK_D), dtype=tl.float32)
    for step in tl.range(first, last, num_stages=STAGES):
        keys = step * BLOCK_S + range_s
        if TMA:
            k_tile = k.load([key_head, step * BLOCK_S, 0]).reshape(BLOCK_S, BLOCK_D)
            v_tile = v.load([key_head, step * BLOCK_S, 0]).reshape(BLOCK_S, BLOCK_D)
        else:
            at = (cache_row + keys)[:, None] * n_dims + range_d[None, :]
            mask = (keys < n_keys)[:, None] & dim_mask[None, :]
            k_tile = tl.load(k + at, mask=mask, other=0.0)
            v_tile = tl.load(v + at, mask=mask, other=0.0)
        if TENSOR_CORES:
            scores = tl.dot(k_tile, q_columns, input_precision="ieee") * scale_log2
            scores = tl.where((keys < n_keys)[:, None], scores, -float("inf"))
            new_maximum = tl.maximum(maximum, tl.max(scores, axis=0))
            correction = tl.exp2(maximum - new_maximum)
            exponentials = tl.exp2(scores - new_maximum[None, :])
            total = total * correction + tl.sum(exponentials, axis=0)
            acc = tl.dot(
                tl.trans(v_tile), exponentials.to(v_tile.dtype), acc * correction[None, :], input_precision="ieee"
            )
        else:
            scores = tl.sum(q_rows * k_tile.to(tl.float32)[None, :, :], axis=2) * scale_log2
            scores = tl.where((keys < n_keys)[None, :], scores, -float("inf"))
            new_maximum = tl.maximum(maximum, tl.max(scores, axis=1))
            correction = tl.exp2(maximum - new_maximum)
            exponentials = tl.exp2(scores - new_maximum[:, None])
            total = total * correction + tl.sum(exponentials, axis=1)
            acc = acc * correction[:, None] + tl.sum(
                exponentials[:, :, None] * v_tile.to(tl.float32)[None, :, :], axis=1
            )
        maximum = new_maximum

    # Tensor cores computed the transposed result.
    result = tl.trans(acc) if TENSOR_CORES else acc
    if SPLITS == 1:
        y = result / total[:, None]
        tl.store(
            y_ptr + query_rows[:, None] * n_dims + range_d[None, :],
            y.to(y_ptr.dtype.element_ty),
            mask=group_mask[:, None] & dim_mask[None, :],
        )
    else:
        slot = head.to(tl.int64) * SPLITS + split
        in_slot = range_g[:, None] * BLOCK_D + range_d[None, :]
        tl.store(partial_ptr + slot * (GROUP * BLOCK_D) + in_slot, result, mask=group_mask[:, None])
        store_stats(stats_ptr, slot, range_g, maximum, total, group_mask, GROUP)
        if arrives_last(arrivals_ptr, head, SPLITS):
            parts = tl.arange(0, SPLITS_PADDED)
            members = tl.arange(0, GROUP_PADDED)
            slots = head.to(tl.int64) * SPLITS + parts
            known = (parts < SPLITS)[:, None] & (members < live)[None, :]
            stats = stats_ptr + slots[:, None] * (2 * GROUP) + members[None, :]
            maxima = tl.load(stats, mask=known, other=-float("inf"), cache_modifier=".cg")
            totals = tl.load(stats + GROUP, mask=known, other=0.0, cache_modifier=".cg")
            top = tl.where(members < live, tl.max(maxima, axis=0), 0.0)
            weights = tl.exp2(maxima - top[None, :])
            sums = tl.where(members < live, tl.sum(weights * totals, axis=0), 1.0)
            weights = weights / sums[None, :]
            for chunk in tl.static_range(0, BLOCK_D, CHUNK_D):
                dims = chunk + tl.arange(0, CHUNK_D)
                in_part = members[:, None] * BLOCK_D + dims[None, :]
                part = tl.load(
                    partial_ptr + slots[:, None, None] * (GROUP * BLOCK_D) + in_part[None, :, :],
                    mask=known[:, :, None],
                    other=0.0,
                    cache_modifier=".cg",
                )
                y = tl.sum(part * weights[:, :, None], axis=0)
                y_rows = first_row + members
                tl.store(
                    y_ptr + y_rows[:, None] * n_dims + dims[None, :],
                    y.to(y_ptr.dtype.element_ty),
                    mask=(members < live)[:, None] & (dims < n_dims)[None, :],
                )
            # The next launch needs a counter of 0; it starts after this one ends.
            tl.store(arrivals_ptr + head, 0)


@gluon.jit
def _load_stage(k, v, k_ring, v_ring, k_full, v_full, head, step, first, last):
    stage = step % k_ring.shape[0]
    at = (first + step) * k.block_shape[1]
    live = first + step < last
    hopper.mbarrier.expect(k_full.index(stage), k.block_type.nbytes, pred=live)
    async_load(k, [head, at, 0], k_full.index(stage), k_ring.index(stage), pred=live)
    hopper.mbarrier.expect(v_full.index(stage), v.block_type.nbytes, pred=live)
    async_load(v, [head, at, 0], v_full.index(stage), v_ring.index(stage), pred=live)


@gluon.jit
def _reduce_partial_sums(
    y_ptr, partial_ptr, stats_ptr, head, reader, n_dims, GROUP: gl.constexpr, SPLITS: gl.constexpr,
    SPLITS_PADDED: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, BLOCK_D: gl.constexpr,
):  # fmt: skip
    UNWRITTEN: gl.constexpr = 0x7FFFDEAD  # decode.UNWRITTEN, which a kernel cannot read
    WIDTH: gl.constexpr = min(4, COLS)
    COL_LANES: gl.constexpr = min(COLS // WIDTH, 32)
    layout: gl.constexpr = gl.BlockedLayout(
        [1, 1, WIDTH], [32 // COL_LANES, 1, COL_LANES], [gl.num_warps(), 1, 1], [2, 1, 0]
    )
    stats_layout: gl.constexpr = gl.SliceLayout(2, layout)
    y_layout: gl.constexpr = gl.SliceLayout(0, layout)
    part = gl.arange(0, SPLITS_PADDED, gl.SliceLayout(1, stats_layout))[:, None]
    row = gl.arange(0, ROWS, gl.SliceLayout(0, stats_layout))[None, :]
    col = gl.arange(0, COLS, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    element = reader * (ROWS * COLS)
    partial_ptrs = partial_ptr + (part * (ROWS * COLS) + row * COLS)[:, :, None] + col
    maxima_ptrs = stats_ptr + part * (2 * ROWS) + row
    known = (part < SPLITS) & (element // BLOCK_D + row < GROUP)
    live = known[:, :, None] & (col >= 0)
    values = gl.full([SPLITS_PADDED, ROWS, COLS], 0.0, gl.float32, layout)
    maxima = gl.full([SPLITS_PADDED, ROWS], 0.0, gl.float32, stats_layout)
    totals = gl.full([SPLITS_PADDED, ROWS], 0.0, gl.float32, stats_layout)
    # Every word is its own flag: no fence and no counter is needed between its writer and its reader.
    waiting = 1
    while waiting != 0:
        maxima = gl.load(maxima_ptrs, mask=known, other=-float("inf"), volatile=True)
        totals = gl.load(maxima_ptrs + ROWS, mask=known, other=0.0, volatile=True)
        values = gl.load(partial_ptrs, mask=live, other=0.0, volatile=True)
        missing = gl.max(is_unwritten(values).to(gl.int32), axis=2)
        missing = gl.maximum(missing, is_unwritten(totals).to(gl.int32))
        waiting = any_of(gl.maximum(missing, is_unwritten(maxima).to(gl.int32)))
    # Two warps may hold the same words: neither may reset them before the other has read them.
    tl.debug_barrier()
    reset = gl.full([SPLITS_PADDED, ROWS], UNWRITTEN, gl.int32, stats_layout).to(gl.float32, bitcast=True)
    gl.store(maxima_ptrs, reset, mask=known)
    gl.store(maxima_ptrs + ROWS, reset, mask=known)
    reset = gl.full([SPLITS_PADDED, ROWS, COLS], UNWRITTEN, gl.int32, layout).to(gl.float32, bitcast=True)
    gl.store(partial_ptrs, reset, mask=live)
    weights = split_weights(maxima)
    weights = weights / gl.sum(weights * totals, axis=0)[None, :]
    y = weighted_sum(values, weights)
    rows = element // BLOCK_D + gl.arange(0, ROWS, gl.SliceLayout(1, y_layout))[:, None]
    cols = element % BLOCK_D + gl.arange(0, COLS, gl.SliceLayout(0, y_layout))[None, :]
    y_ptrs = y_ptr + (head.to(gl.int64) * GROUP + rows) * n_dims + cols
    gl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(rows < GROUP) & (cols < n_dims))


@gluon.jit
def _store_partial_sums(
    partial_ptr, stats_ptr, acc, maximum, total, head, split, dims, members, GROUP: gl.constexpr, SPLITS: gl.constexpr,
    READERS: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, BLOCK_D: gl.constexpr,
):  # fmt: skip
    # A head's workspace is [split that reads][split that wrote][row][column of the reader's share].
    SHARE: gl.constexpr = ROWS * COLS
    element = members[None, :] * BLOCK_D + dims
    partial = partial_ptr + head.to(gl.int64) * (READERS * SPLITS * SHARE)
    offsets = element // SHARE * (SPLITS * SHARE) + split * SHARE + element % SHARE
    gl.store(partial + offsets, acc, mask=(members < GROUP)[None, :] & (dims >= 0))
    stats = stats_ptr + head.to(gl.int64) * (READERS * SPLITS * 2 * ROWS)
    for chunk in gl.static_range(BLOCK_D // COLS):
        reader = (members * BLOCK_D + chunk * COLS) // SHARE
        offsets = reader * (SPLITS * 2 * ROWS) + split * (2 * ROWS) + members % ROWS
        gl.store(stats + offsets, maximum, mask=members < GROUP)
        gl.store(stats + offsets + ROWS, total, mask=members < GROUP)
    return partial, stats


@gluon.jit
def _attend_tiles(
    k, v, q_smem, p_smem, k_ring, v_ring, q_full, k_full, v_full, head, first, last, n_keys, scale_log2,
    layout: gl.constexpr,
):  # fmt: skip
    BLOCK_G: gl.constexpr = q_smem.shape[1]
    BLOCK_D: gl.constexpr = q_smem.shape[2]
    BLOCK_S: gl.constexpr = k.block_shape[1]
    STAGES: gl.constexpr = k_ring.shape[0]
    queries = q_smem.reshape([BLOCK_G, BLOCK_D]).permute((1, 0))
    keys = gl.arange(0, BLOCK_S, gl.SliceLayout(1, layout))
    zeros = gl.zeros([BLOCK_S, BLOCK_G], gl.float32, layout)
    maximum = gl.full([BLOCK_G], -float("inf"), gl.float32, gl.SliceLayout(0, layout))
    # One sum for each key of a tile: their reduction needs all warps, and follows the loop.
    totals = gl.zeros([BLOCK_S, BLOCK_G], gl.float32, layout)
    acc = gl.zeros([BLOCK_D, BLOCK_G], gl.float32, layout)
    hopper.mbarrier.wait(q_full, 0)
    for step in range(last - first):
        stage = step % STAGES
        phase = step // STAGES & 1
        hopper.mbarrier.wait(k_full.index(stage), phase)
        tile = k_ring.index(stage).reshape([BLOCK_S, BLOCK_D])
        pending = hopper.warpgroup_mma(tile, queries, zeros, use_acc=False, is_async=True)
        scores = hopper.warpgroup_mma_wait(0, deps=(pending,))
        scores = gl.where(((first + step) * BLOCK_S + keys < n_keys)[:, None], scores, -float("inf"))
        # The scale is positive, so it may follow the maximum: one multiply-add per score.
        new_maximum = gl.maximum(maximum, gl.max(scores, axis=0) * scale_log2)
        correction = gl.exp2(maximum - new_maximum)
        exponentials = gl.exp2(scores * scale_log2 - new_maximum[None, :])
        totals = totals * correction[None, :] + exponentials
        acc = acc * correction[None, :]
        maximum = new_maximum
        p_smem.permute((1, 0)).store(exponentials.to(k.dtype))
        hopper.fence_async_shared()
        hopper.mbarrier.wait(v_full.index(stage), phase)
        tl.debug_barrier()
        tile = v_ring.index(stage).reshape([BLOCK_S, BLOCK_D]).permute((1, 0))
        pending = hopper.warpgroup_mma(tile, p_smem.permute((1, 0)), acc, is_async=True)
        acc = hopper.warpgroup_mma_wait(0, deps=(pending,))
        # All warps have read the stage before it is overwritten.
        tl.debug_barrier()
        _load_stage(k, v, k_ring, v_ring, k_full, v_full, head, step + STAGES, first, last)
    return acc, maximum, totals


@gluon.jit
def decode_attention_software_pipelined(
    q, k, v, y_ptr, partial_ptr, stats_ptr, n_keys, n_dims, scale_log2, GROUP: gl.constexpr, SPLITS: gl.constexpr,
    SPLITS_PADDED: gl.constexpr, READERS: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, STAGES: gl.constexpr,
    PDL: gl.constexpr, LATE_TRIGGER: gl.constexpr,
):  # fmt: skip
    if PDL and not LATE_TRIGGER:
        grid.gdc_launch_dependents()
    BLOCK_G: gl.constexpr = q.block_shape[1]
    BLOCK_S: gl.constexpr = k.block_shape[1]
    BLOCK_D: gl.constexpr = k.block_shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_G, 16])
    k_ring = gl.allocate_shared_memory(k.dtype, [STAGES, 1, BLOCK_S, BLOCK_D], k.layout)
    v_ring = gl.allocate_shared_memory(v.dtype, [STAGES, 1, BLOCK_S, BLOCK_D], v.layout)
    q_smem = gl.allocate_shared_memory(q.dtype, [1, BLOCK_G, BLOCK_D], q.layout)
    p_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_G, BLOCK_S], q.dtype)
    p_smem = gl.allocate_shared_memory(q.dtype, [BLOCK_G, BLOCK_S], p_layout)
    q_full = new_barrier()
    k_full = new_barriers(STAGES)
    v_full = new_barriers(STAGES)
    hopper.mbarrier.init(q_full, count=1)
    for i in gl.static_range(STAGES):
        hopper.mbarrier.init(k_full.index(i), count=1)
        hopper.mbarrier.init(v_full.index(i), count=1)
    # The splits of a head have consecutive program numbers, so those that a split waits for run or start next.
    split = gl.program_id(0) % SPLITS
    head = gl.program_id(0) // SPLITS
    tiles = gl.cdiv(n_keys, BLOCK_S)
    first = split * tiles // SPLITS
    last = (split + 1) * tiles // SPLITS
    if PDL:
        grid.gdc_wait()
    hopper.mbarrier.expect(q_full, q.block_type.nbytes)
    async_load(q, [head, 0, 0], q_full, q_smem)
    for i in gl.static_range(STAGES):
        _load_stage(k, v, k_ring, v_ring, k_full, v_full, head, i, first, last)
    acc, maximum, totals = _attend_tiles(
        k, v, q_smem, p_smem, k_ring, v_ring, q_full, k_full, v_full, head, first, last, n_keys, scale_log2, layout
    )
    if LATE_TRIGGER:
        grid.gdc_launch_dependents()
    total = gl.sum(totals, axis=0)
    dims = gl.arange(0, BLOCK_D, gl.SliceLayout(1, layout))[:, None]
    members = gl.arange(0, BLOCK_G, gl.SliceLayout(0, layout))
    if SPLITS == 1:
        y = acc * (1.0 / total)[None, :]
        y_ptrs = y_ptr + (head.to(gl.int64) * GROUP + members[None, :]) * n_dims + dims
        gl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(members < GROUP)[None, :] & (dims < n_dims))
    else:
        partial, stats = _store_partial_sums(
            partial_ptr, stats_ptr, acc, maximum, total, head, split, dims, members, GROUP, SPLITS, READERS, ROWS, COLS,
            BLOCK_D,
        )  # fmt: skip
        if split < READERS:
            _reduce_partial_sums(
                y_ptr, partial + split * (SPLITS * ROWS * COLS), stats + split * (SPLITS * 2 * ROWS), head, split,
                n_dims, GROUP, SPLITS, SPLITS_PADDED, ROWS, COLS, BLOCK_D,
            )  # fmt: skip

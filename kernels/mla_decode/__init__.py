"""Compute multi-head latent attention of one query token per sequence, all heads sharing one latent cache.

Formula: y[b, h] = Σ_s softmax_s(q[b, h] · cache[b, s] / sqrt(192)) · cache[b, s, :512]
Shapes: q (B, H, 576), cache (B, S, 576), y (B, H, 512), row-major and of one dtype (fp16 or bf16). The first 512
columns are the latent, which is key and value at once; the last 64 carry the rotary position and are key only.
Traffic: e · (B·H·576 + B·S·576) bytes read and e · B·H·512 written, e bytes an element.
Source: DeepSeek-V2, arXiv 2405.04434, section 2.1, with the projections absorbed into q and into what follows; its
softmax scale is that of heads of 128 + 64.
The work model excludes: the second read of the cache by the other half of 128 heads (L2), partial results of the
splits (L2), the softmax (about five operations a score, none on the tensor cores) and the padding of H to 64.

Precision: scores, sums and outputs are fp32; the powers are rounded to the dtype before they meet the latent (they are
up to 1, in the kernels for sm_90 up to 256: these raise a row's reference only for scores well above it); one rounding
at the end. Determinism: the splits are added in their order, in the portable kernel by the last program to
arrive, whichever that is; in the pipelined one (sm_90) each split adds a share of the heads; the one in clusters
(sm_90, whole 128s of heads) has no splits. So the same inputs give the same bits. A program of the pipelined kernel
waits for the others of its sequence: they have neighbouring numbers, and the hardware places programs in the order of
these.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Ahead, AheadCuda, Config, Kernel, Launch, Tolerance, import_triton
from ledger.kernels.common import configs
from ledger.kernels.common.baselines import dtype_name
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_cuda, tensor_map
from ledger.kernels.common.gluon import import_gluon
from ledger.kernels.common.launches import ahead_of, options_of
from ledger.kernels.common.targets import SMS, TMA_TARGETS, device_target, is_tma_aligned
from ledger.kernels.common.tensor_maps import gluon_descriptors, gluon_types_of, triton_descriptor, triton_type
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.operations import MLA_DECODE, MLA_LATENT, MLA_ROPE, MLA_SCALE, Shape
from ledger.records import Dtype, Path, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper, grid = _gluon.gluon, _gluon.language, _gluon.hopper, _gluon.grid
async_load, async_store = _gluon.async_load, _gluon.async_store


@triton.jit
def mla_decode_kernel(
    q_ptr,
    latent,
    rope,
    y_ptr,
    partial_ptr,
    stats_ptr,
    arrivals_ptr,
    n_heads,
    n_keys,
    scale_log2,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_S: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    TMA: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        # The next kernel's blocks may be placed now; this one's wait until all before it is written.
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    width: tl.constexpr = LATENT + ROPE
    # Blocks of heads of one sequence are neighbours, so that the second finds the cache in L2.
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
    highest = tl.full((BLOCK_H,), -float("inf"), dtype=tl.float32)
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
        risen = tl.maximum(highest, tl.max(scores, axis=1))
        kept = tl.exp2(highest - risen)
        powers = tl.exp2(scores - risen[:, None])
        total = total * kept + tl.sum(powers, axis=1)
        acc = tl.dot(powers.to(latent_tile.dtype), latent_tile, acc * kept[:, None])
        highest = risen

    y_rows = y_ptr + (batch.to(tl.int64) * n_heads + heads)[:, None] * LATENT
    if SPLITS == 1:
        tl.store(y_rows + range_l[None, :], (acc / total[:, None]).to(y_ptr.dtype.element_ty), mask=head_mask)
    else:
        tile = batch * tl.num_programs(0) + block
        slot = tile.to(tl.int64) * SPLITS + split
        range_h = tl.arange(0, BLOCK_H)
        in_tile = range_h[:, None] * LATENT + range_l[None, :]
        tl.store(partial_ptr + slot * (BLOCK_H * LATENT) + in_tile, acc)
        tl.store(stats_ptr + slot * (2 * BLOCK_H) + range_h, highest)
        tl.store(stats_ptr + slot * (2 * BLOCK_H) + BLOCK_H + range_h, total)
        # The atomic is one thread's: every thread's partial must be written before it is published.
        tl.debug_barrier()
        arrived = tl.atomic_add(arrivals_ptr + tile, 1, sem="acq_rel")
        if arrived == SPLITS - 1:
            start = tile.to(tl.int64) * SPLITS
            top = tl.full((BLOCK_H,), -float("inf"), dtype=tl.float32)
            for part in tl.range(SPLITS):
                top = tl.maximum(
                    top, tl.load(stats_ptr + (start + part) * (2 * BLOCK_H) + range_h, cache_modifier=".cg")
                )
            sums = tl.zeros((BLOCK_H,), dtype=tl.float32)
            merged = tl.zeros((BLOCK_H, LATENT), dtype=tl.float32)
            for part in tl.range(SPLITS):
                stats = stats_ptr + (start + part) * (2 * BLOCK_H) + range_h
                weight = tl.exp2(tl.load(stats, cache_modifier=".cg") - top)
                sums += weight * tl.load(stats + BLOCK_H, cache_modifier=".cg")
                piece = tl.load(partial_ptr + (start + part) * (BLOCK_H * LATENT) + in_tile, cache_modifier=".cg")
                merged += piece * weight[:, None]
            tl.store(y_rows + range_l[None, :], (merged / sums[:, None]).to(y_ptr.dtype.element_ty), mask=head_mask)
            # Ready for the next launch, which starts after this one ends.
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
    # These columns of the queries go on to registers: until then they lie where the powers will.
    async_load(q_rope, [batch, head, 4 * PIECE], q_full, p_ring.index(0))
    for part in gl.static_range(4):
        async_load(q_piece, [batch, head, part * PIECE], q_full, q_smem.index(part))
    for i in range(steps):
        stage = i % 2
        phase = (i // 2 & 1) ^ 1
        at = (first + i) * BLOCK_S
        for piece in gl.static_range(4):
            # The left half is given up first, and its pieces come together with the rope.
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
    q_smem, p_ring, ring, rope_ring, kept_ring, stats, q_full, full, scored, p_full, stats_full, first, steps,
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
        # Shared memory is the next limit: every tile would read these again.
        q_held = q_smem.index(0).reshape([HEADS, PIECE]).load(gl.DotOperandLayout(0, layout, 2))
    highest = gl.full([HEADS], -float("inf"), gl.float32, rows)
    total = gl.zeros([HEADS], gl.float32, rows)
    zeros = gl.zeros([HEADS, BLOCK_S], gl.float32, layout)
    SLACK: gl.constexpr = 8.0  # powers stay below 2 ** 8
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
        # The scale is positive, so it may follow the maximum: one multiply-add a score. A reference that is a little
        # below the maximum serves as well, and while it stays no sum needs a correction.
        top = gl.max(scores, axis=1) * scale_log2
        risen = gl.where(top > highest + SLACK, top, highest)
        powers = gl.exp2(scores * scale_log2 - risen[:, None])
        kept = gl.exp2(highest - risen)
        highest = risen
        # This tile is here, so the groups that add have given up the stage, and read its powers, two tiles ago.
        p_ring.index(stage).reshape([HEADS, BLOCK_S]).store(powers.to(p_ring.dtype))
        kept_ring.index(stage).store(kept)
        hopper.mbarrier.arrive(p_full.index(stage), count=1)
        total = total * kept + gl.sum(powers, axis=1)
    stats.index(0).store(highest)
    stats.index(1).store(total)
    hopper.mbarrier.arrive(stats_full, count=1)


@gluon.jit
def _add_half(
    y, y_ptr, partial_ptr, stats_ptr, q_smem, p_ring, ring, kept_ring, stats, empty, scored, p_full, stats_full, batch,
    head, split, n_heads, steps, SPLITS: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    HEADS: gl.constexpr = q_smem.shape[2]
    BLOCK_S: gl.constexpr = ring.shape[2]
    PIECE: gl.constexpr = ring.shape[3]
    # Products of 256 columns at once would need more registers than a thread starts with.
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, PIECE, 16])
    rows: gl.constexpr = gl.SliceLayout(1, layout)
    every: gl.constexpr = gl.BlockedLayout([2], [32], [gl.num_warps()], [0])
    acc = gl.zeros([HEADS, PIECE], gl.float32, layout)
    acc_next = gl.zeros([HEADS, PIECE], gl.float32, layout)
    for i in range(steps):
        stage = i % 2
        slot = stage * 4 + PART * 2
        hopper.mbarrier.wait(p_full.index(stage), i // 2 & 1)
        powers = p_ring.index(stage).reshape([HEADS, BLOCK_S]).load(gl.DotOperandLayout(0, layout, 2))
        if gl.min(kept_ring.index(stage).load(every), axis=0) < 1.0:
            kept = kept_ring.index(stage).load(rows)[:, None]
            acc = acc * kept
            acc_next = acc_next * kept
        if PART == 1:
            # The right half stays off the tensor cores until the next scores are there, and works beside their softmax.
            hopper.mbarrier.wait(scored.index(1 - stage), (i + 1) // 2 & 1, pred=i + 1 < steps)
        # The scores of this tile are there, so its pieces are, and nobody but this group still needs them.
        values = ring.index(slot).reshape([BLOCK_S, PIECE])
        pending = hopper.warpgroup_mma(powers, values, acc, is_async=True)
        values = ring.index(slot + 1).reshape([BLOCK_S, PIECE])
        pending_next = hopper.warpgroup_mma(powers, values, acc_next, is_async=True)
        acc = hopper.warpgroup_mma_wait(1, deps=(pending,))
        hopper.mbarrier.arrive(empty.index(slot), count=1)
        acc_next, powers = hopper.warpgroup_mma_wait(0, deps=(pending_next, powers))
        hopper.mbarrier.arrive(empty.index(slot + 1), count=1)
    hopper.mbarrier.wait(stats_full, 0)
    total = stats.index(1).load(rows)
    if SPLITS == 1:
        # The queries are used up: their buffer carries the result out.
        share = (1.0 / total)[:, None]
        q_smem.index(PART * 2).reshape([HEADS, PIECE]).store((acc * share).to(y.dtype))
        q_smem.index(PART * 2 + 1).reshape([HEADS, PIECE]).store((acc_next * share).to(y.dtype))
        hopper.fence_async_shared()
        tl.debug_barrier()
        for piece in gl.static_range(PART * 2, PART * 2 + 2):
            async_store(y, [batch, head, piece * PIECE], q_smem.index(piece))
        hopper.tma.store_wait(0)
    else:
        # Partial results lie as [tile][part that reads][part that wrote][row of the reader's share][column].
        SHARE: gl.constexpr = HEADS // SPLITS
        HALF: gl.constexpr = 2 * PIECE
        tile = ((batch * gl.num_programs(0) + gl.program_id(0)) * 2 + PART).to(gl.int64)
        partial = partial_ptr + tile * (SPLITS * HEADS * HALF)
        sums = stats_ptr + tile * (SPLITS * 2 * HEADS)
        range_h = gl.arange(0, HEADS, rows)
        cols = gl.arange(0, PIECE, gl.SliceLayout(0, layout))
        share = range_h // SHARE * (SPLITS * SHARE * HALF) + split * (SHARE * HALF) + range_h % SHARE * HALF
        gl.store(partial + share[:, None] + cols[None, :], acc)
        gl.store(partial + share[:, None] + (PIECE + cols)[None, :], acc_next)
        share = range_h // SHARE * (SPLITS * 2 * SHARE) + split * (2 * SHARE) + range_h % SHARE
        gl.store(sums + share, stats.index(0).load(rows))
        gl.store(sums + share + SHARE, total)
        _join_parts(
            y_ptr, partial + split * (SPLITS * SHARE * HALF), sums + split * (SPLITS * 2 * SHARE), batch,
            head + split * SHARE, n_heads, PART * HALF, SPLITS, SHARE, HALF,
        )  # fmt: skip


@gluon.jit
def _join_parts(
    y_ptr, partial_ptr, stats_ptr, batch, head, n_heads, col,
    SPLITS: gl.constexpr, ROWS: gl.constexpr, HALF: gl.constexpr,
):  # fmt: skip
    EMPTY: gl.constexpr = 0x7FFFDEAD  # _EMPTY, which a kernel cannot read
    COLS: gl.constexpr = min(HALF, 64)
    layout: gl.constexpr = gl.BlockedLayout([1, 1, 4], [2, 1, 16], [1, gl.num_warps(), 1], [2, 1, 0])
    pairs: gl.constexpr = gl.SliceLayout(2, layout)
    flat: gl.constexpr = gl.SliceLayout(0, layout)
    part = gl.arange(0, SPLITS, gl.SliceLayout(1, pairs))[:, None]
    row = gl.arange(0, ROWS, gl.SliceLayout(0, pairs))[None, :]
    cols = gl.arange(0, COLS, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    stats_ptrs = stats_ptr + part * (2 * ROWS) + row
    partial_ptrs = partial_ptr + (part * (ROWS * HALF) + row * HALF)[:, :, None] + cols
    highs = gl.full([SPLITS, ROWS], 0.0, gl.float32, pairs)
    sums = gl.full([SPLITS, ROWS], 0.0, gl.float32, pairs)
    values = gl.full([SPLITS, ROWS, COLS], 0.0, gl.float32, layout)
    # Every element is its own flag, so no fence and no counter stands between its writer and its reader.
    waiting = 1
    while waiting != 0:
        highs = gl.load(stats_ptrs, volatile=True)
        sums = gl.load(stats_ptrs + ROWS, volatile=True)
        missing = (highs.to(gl.int32, bitcast=True) == EMPTY) | (sums.to(gl.int32, bitcast=True) == EMPTY)
        waiting = gl.max(gl.max(missing.to(gl.int32), axis=0), axis=0)
    # Two warps may hold the same elements: neither may empty them before the other has seen them.
    tl.debug_barrier()
    empty = gl.full([SPLITS, ROWS], EMPTY, gl.int32, pairs).to(gl.float32, bitcast=True)
    gl.store(stats_ptrs, empty)
    gl.store(stats_ptrs + ROWS, empty)
    weights = gl.exp2(highs - gl.max(highs, axis=0)[None, :])
    weights = weights * (1.0 / gl.sum(weights * sums, axis=0))[None, :]
    heads = head + gl.arange(0, ROWS, gl.SliceLayout(1, flat))
    y_rows = y_ptr + ((batch * n_heads).to(gl.int64) + heads)[:, None] * (2 * HALF) + col
    live = (heads < n_heads)[:, None]
    empty = gl.full([SPLITS, ROWS, COLS], EMPTY, gl.int32, layout).to(gl.float32, bitcast=True)
    for chunk in gl.static_range(HALF // COLS):
        waiting = 1
        while waiting != 0:
            values = gl.load(partial_ptrs + chunk * COLS, volatile=True)
            missing = gl.max((values.to(gl.int32, bitcast=True) == EMPTY).to(gl.int32), axis=2)
            waiting = gl.max(gl.max(missing, axis=0), axis=0)
        tl.debug_barrier()
        gl.store(partial_ptrs + chunk * COLS, empty)
        y = gl.sum(values * weights[:, :, None], axis=0)
        y_cols = chunk * COLS + gl.arange(0, COLS, gl.SliceLayout(0, flat))[None, :]
        gl.store(y_rows + y_cols, y.to(y_ptr.dtype.element_ty), mask=live & (y_cols >= 0))


@gluon.jit
def mla_decode_pipelined(
    q_piece,
    q_rope,
    latent,
    rope,
    y,
    y_ptr,
    partial_ptr,
    stats_ptr,
    n_heads,
    n_keys,
    scale_log2,
    SPLITS: gl.constexpr,
    PDL: gl.constexpr,
):
    if PDL:
        # The next kernel's blocks may be placed now; this one's wait until all before it is written.
        grid.gdc_launch_dependents()
    HEADS: gl.constexpr = q_piece.block_shape[1]
    PIECE: gl.constexpr = q_piece.block_shape[2]
    ROPE: gl.constexpr = rope.block_shape[2]
    BLOCK_S: gl.constexpr = latent.block_shape[1]
    barrier: gl.constexpr = hopper.mbarrier.MBarrierLayout()
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    q_smem = gl.allocate_shared_memory(q_piece.dtype, [4, 1, HEADS, PIECE], q_piece.layout)
    ring = gl.allocate_shared_memory(latent.dtype, [8, 1, BLOCK_S, PIECE], latent.layout)
    rope_ring = gl.allocate_shared_memory(rope.dtype, [2, 1, BLOCK_S, ROPE], rope.layout)
    p_ring = gl.allocate_shared_memory(latent.dtype, [2, 1, HEADS, BLOCK_S], q_rope.layout)
    kept_ring = gl.allocate_shared_memory(gl.float32, [2, HEADS], flat)
    stats = gl.allocate_shared_memory(gl.float32, [2, HEADS], flat)
    q_full = gl.allocate_shared_memory(gl.int64, [1], barrier)
    stats_full = gl.allocate_shared_memory(gl.int64, [1], barrier)
    full = gl.allocate_shared_memory(gl.int64, [6, 1], barrier)
    empty = gl.allocate_shared_memory(gl.int64, [8, 1], barrier)
    scored = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    p_full = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    hopper.mbarrier.init(q_full, count=1)
    hopper.mbarrier.init(stats_full, count=1)
    for i in gl.static_range(6):
        hopper.mbarrier.init(full.index(i), count=1)
    for i in gl.static_range(8):
        hopper.mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(2):
        hopper.mbarrier.init(scored.index(i), count=1)
        hopper.mbarrier.init(p_full.index(i), count=1)
    # Blocks of heads of one sequence are neighbours, so that the second finds the cache in L2.
    head = gl.program_id(0) * HEADS
    split = gl.program_id(1)
    batch = gl.program_id(2)
    tiles = gl.cdiv(n_keys, BLOCK_S)
    first = split * tiles // SPLITS
    steps = (split + 1) * tiles // SPLITS - first
    LEFT: gl.constexpr = 0
    RIGHT: gl.constexpr = 1
    # Adding up splits takes the registers.
    HELD: gl.constexpr = SPLITS == 1
    # fmt: off
    gl.warp_specialize([
        (_add_half, (
            y, y_ptr, partial_ptr, stats_ptr, q_smem, p_ring, ring, kept_ring, stats, empty, scored, p_full, stats_full,
            batch, head, split, n_heads, steps, SPLITS, LEFT,
        )),
        (_add_half, (
            y, y_ptr, partial_ptr, stats_ptr, q_smem, p_ring, ring, kept_ring, stats, empty, scored, p_full, stats_full,
            batch, head, split, n_heads, steps, SPLITS, RIGHT,
        )),
        (_score_tiles, (
            q_smem, p_ring, ring, rope_ring, kept_ring, stats, q_full, full, scored, p_full, stats_full, first,
            steps, n_keys, scale_log2, HELD,
        )),
        (_load_tiles, (
            q_piece, q_rope, latent, rope, q_smem, p_ring, ring, rope_ring, q_full, full, empty, batch, head, first,
            steps, PDL,
        )),
    ], [4, 4, 1], [176, 136, 24])
    # fmt: on


# AHEAD: the rotary position and most of the first piece. Of 14 the last would wait for products of the right half.
_CLUSTER_DEFINES = {"SLOTS": 9, "ROPES": 3, "HELD": 3, "AHEAD": 10}
_CLUSTER_THREADS = 512


def _cluster_bytes() -> int:
    """Return the shared memory of a program of the cluster, in bytes: tiles, corrections and sums, barriers."""
    slots, ropes, held = (_CLUSTER_DEFINES[name] for name in ("SLOTS", "ROPES", "HELD"))
    boxes = 2 * slots + ropes + MLA_LATENT // 64 - held + 2
    return 8192 * boxes + 3 * 64 * 4 + 8 * (2 * slots + 2 * ropes + 9)


def _cluster_source(dtype: Dtype) -> CudaSource:
    kind = "bf16" if dtype == "bf16" else "f16"
    # Scores of 64 keys, with queries in shared memory or in registers; sums of 128 columns of values (MN-major).
    products = (
        Wgmma(n=64, kind=kind, name="score"),
        Wgmma(n=64, kind=kind, name="score", a="registers"),
        Wgmma(n=128, kind=kind, name="add", b_transposed=True),
    )
    defines = {**_CLUSTER_DEFINES, "BF16": int(dtype == "bf16")}
    return cuda_source(
        __name__, "cluster.cu", entry="mla_decode_cluster", defines=defines, generated=wgmma_header(*products)
    )


def _prepare_cluster(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    q, cache = inputs["q"], inputs["cache"]
    b, h, width = q.shape
    maps = [
        tensor_map(q.view(b * h, width), (64, 64)),
        tensor_map(cache, (64, 64)),
        tensor_map(cache, (32, 64)),
        tensor_map(out.view(b * h, MLA_LATENT), (16, 64)),
    ]
    return prepare_cuda(
        _cluster_source(dtype_name(q, "mla_decode")),
        programs=b * h // 64,
        threads=_CLUSTER_THREADS,
        shared_bytes=_cluster_bytes(),
        arguments=[*maps, h, cache.shape[1], _SCALE_LOG2],
        overlap=bool(config["pdl"]),
    )


def mla_decode(q: Tensor, cache: Tensor) -> Tensor:
    """Return softmax(q · cacheᵀ / sqrt(192)) · cache[:, :, :512] of one query token per sequence.

    Shapes: q (B, H, 576), cache (B, S, 576) of one dtype on one GPU; the result (B, H, 512).
    """
    import torch

    inputs = {"q": q.contiguous(), "cache": cache.contiguous()}
    b, h, _ = q.shape
    out = torch.empty((b, h, MLA_LATENT), dtype=q.dtype, device=q.device)
    shape, target = {"B": b, "H": h, "S": cache.shape[1]}, device_target(q)
    config = config_for(shape, dtype_name(q, "mla_decode"), target)
    if not is_tma_aligned(*inputs.values()):
        config = {**_portable_config(shape, dtype_name(q, "mla_decode"), target), "tma": 0}
    prepare_triton(inputs, out, config)()
    return out


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Allocate the workspace and return the launch."""
    return (_prepare_portable, _prepare_pipelined, _prepare_cluster)[config["pipeline"]](inputs, out, config)


def _prepare_portable(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    q, cache = inputs["q"], inputs["cache"]
    b, h, _ = q.shape
    splits, block_h, block_s = config["splits"], config["block_h"], config["block_s"]
    blocks = -(-h // block_h)
    slots = b * blocks * splits if splits > 1 else 1
    partial = torch.empty(slots * block_h * MLA_LATENT, dtype=torch.float32, device=q.device)
    stats = torch.empty(slots * 2 * block_h, dtype=torch.float32, device=q.device)
    arrivals = torch.zeros(b * blocks, dtype=torch.int32, device=q.device)
    operands: tuple[object, object] = (cache, cache)
    if config["tma"]:
        operands = (
            triton_descriptor(cache, [1, block_s, MLA_LATENT]),
            triton_descriptor(cache, [1, block_s, MLA_ROPE]),
        )
    constants = _constants(config)

    def launch() -> None:
        mla_decode_kernel[(blocks, splits, b)](
            q, *operands, out, partial, stats, arrivals, h, cache.shape[1], _SCALE_LOG2,
            **constants, **options_of(config, stages=False),
        )  # fmt: skip

    return launch


def _prepare_pipelined(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    q, cache = inputs["q"], inputs["cache"]
    b, h, _ = q.shape
    splits = config["splits"]
    tiles = b * -(-h // config["block_h"])
    rows = tiles * splits * config["block_h"] if splits > 1 else 1
    partial = torch.full((rows * MLA_LATENT,), _EMPTY, dtype=torch.int32, device=q.device)
    stats = torch.full((rows * 4,), _EMPTY, dtype=torch.int32, device=q.device)
    tensors = {"q_piece": q, "q_rope": q, "latent": cache, "rope": cache, "y": out}
    operands = gluon_descriptors(tensors, _blocks(config))
    programs = (-(-h // config["block_h"]), splits, b)

    def launch() -> None:
        mla_decode_pipelined[programs](
            *operands, out, partial.view(torch.float32), stats.view(torch.float32), h, cache.shape[1],
            _SCALE_LOG2, **_pipelined_constants(config), **options_of(config, stages=False),
        )  # fmt: skip

    return launch


def _blocks(config: Config) -> dict[str, list[int]]:
    block_h, block_s, piece = config["block_h"], config["block_s"], MLA_LATENT // 4
    return {
        "q_piece": [1, block_h, piece], "q_rope": [1, block_h, MLA_ROPE], "latent": [1, block_s, piece],
        "rope": [1, block_s, MLA_ROPE], "y": [1, block_h, piece],
    }  # fmt: skip


def _pipelined_constants(config: Config) -> dict[str, int]:
    return {"SPLITS": config["splits"], "PDL": config["pdl"]}


def _constants(config: Config) -> dict[str, int]:
    return {
        "LATENT": MLA_LATENT,
        "ROPE": MLA_ROPE,
        "BLOCK_H": config["block_h"],
        "BLOCK_S": config["block_s"],
        "SPLITS": config["splits"],
        "STAGES": config["num_stages"],
        "TMA": config["tma"],
        "PDL": config["pdl"],
    }


def prepare_torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return two batched products around torch's softmax, in fp32."""
    import torch

    q, cache = inputs["q"], inputs["cache"]

    def launch() -> None:
        keys = cache.float()
        weights = torch.softmax(q.float() @ keys.transpose(1, 2) * MLA_SCALE, dim=-1)
        out.copy_(weights @ keys[:, :, :MLA_LATENT])

    return launch


def prepare_torch_eager(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return two batched products around torch's softmax, in the inputs' dtype."""
    import torch

    q, cache = inputs["q"], inputs["cache"]

    def launch() -> None:
        weights = torch.softmax(torch.bmm(q, cache.transpose(1, 2)) * MLA_SCALE, dim=-1)
        torch.bmm(weights, cache[:, :, :MLA_LATENT], out=out)

    return launch


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64, one sequence at a time to spare memory."""
    import torch

    rows = []
    for query, cache in zip(inputs["q"], inputs["cache"], strict=True):
        keys = cache.double()
        weights = torch.softmax(query.double() @ keys.T * MLA_SCALE, dim=-1)
        rows.append(weights @ keys[:, :MLA_LATENT])
    return torch.stack(rows)


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count the products of 576 and 512 multiply-adds a key and head; each operand moves once."""
    b, h, s = shape["B"], shape["H"], shape["S"]
    element, width = DTYPE_BYTES[dtype], MLA_LATENT + MLA_ROPE
    return Work(
        flops=2 * b * h * s * (width + MLA_LATENT),
        bytes_read=element * (b * h + b * s) * width,
        bytes_written=element * b * h * MLA_LATENT,
    )


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return the instruction path, as found in the compiled code (tests/test_kernel_attention.py)."""
    if implementation != "triton" or dtype == "fp32":
        return "fp32"
    return "fp16_tensor" if dtype == "fp16" else "bf16_tensor"


_MOST_SPLITS = 64
# A partial sum that is not there yet: a NaN that no sum yields.
_EMPTY = 0x7FFFDEAD
# What a score is multiplied by, so that powers of two make its softmax.
_SCALE_LOG2 = math.log2(math.e) * MLA_SCALE
# Time to fill the pipeline and, a wave, to add up splits, in tiles of 64 keys (1.65 us): fitted to timings on an H200
# (B 1 to 60, S 3072 to 7168, 1 to 16 splits).
_FILL, _JOIN, _JOIN_A_PROGRAM = 1.4, 5.0, 0.06

# What the pipelined kernel (1) and the cluster (2) are written for, and the heads of a cluster.
_FIXED = {
    1: {"block_h": 64, "block_s": 64, "num_warps": 4, "num_stages": 2},
    2: {"block_h": 64, "block_s": 64, "num_warps": 16, "num_stages": 2},
}
_CLUSTER_HEADS = 128

# Target -> (BLOCK_H, BLOCK_S, num_warps, num_stages); the fp32 sums of BLOCK_H heads fill half of the registers.
_TILES = {
    "sm_80": (32, 32, 8, 2),
    "sm_89": (16, 32, 8, 1),
    "sm_90": (64, 64, 8, 2),
    "sm_100": (64, 16, 8, 2),
}


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape. Raises: InputError for a target, or a dtype, without one."""
    portable = _portable_config(shape, dtype, target)
    if target != "sm_90":
        return portable
    splits = _pipelined_splits(shape)
    cluster = splits == 1 and shape["H"] % _CLUSTER_HEADS == 0
    fixed = _FIXED[2 if cluster else 1]
    return {**portable, **fixed, "splits": splits, "pipeline": 2 if cluster else 1}


def _pipelined_splits(shape: Shape) -> int:
    """Return how many programs share a sequence's keys: the power of two that takes least time, in tiles of 64."""
    programs, steps = shape["B"] * -(-shape["H"] // 64), -(-shape["S"] // 64)

    def cost(splits: int) -> float:
        waves = -(-programs * splits // SMS["sm_90"])
        resident = min(programs * splits, SMS["sm_90"])
        join = _JOIN + _JOIN_A_PROGRAM * resident if splits > 1 else 0.0
        return waves * (-(-steps // splits) + _FILL + join)

    return min((splits for splits in (1, 2, 4, 8, 16) if splits <= steps), key=cost)


def _portable_config(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    if target not in _TILES:
        raise InputError(
            f"mla_decode: no launch configuration for {target}; expected one of: {', '.join(_TILES)}: 576 columns a "
            "key need more shared memory and registers than older ones have"
        )
    _check_dtype(dtype, target)
    block_h, block_s, num_warps, num_stages = _TILES[target]
    programs = shape["B"] * -(-shape["H"] // block_h)
    steps = -(-shape["S"] // block_s)
    return {
        "block_h": block_h,
        "block_s": block_s,
        # Beyond eight the last program's sum of the splits costs more than it saves.
        "splits": max(1, min(SMS[target] // programs, steps, 8)),
        "num_warps": num_warps,
        "num_stages": num_stages,
        "tma": int(target in TMA_TARGETS),
        "pdl": int(target in TMA_TARGETS),
        "pipeline": 0,
    }


def _check_dtype(dtype: Dtype, target: str) -> None:
    if dtype == "fp32":
        raise InputError(f"mla_decode: fp32 is for CPUs, not {target}; expected fp16 or bf16")


def shared_bytes(config: Config, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    element, width = DTYPE_BYTES[dtype], MLA_LATENT + MLA_ROPE
    block_h, block_s = config["block_h"], config["block_s"]
    if config["pipeline"] == 2:
        return _cluster_bytes()
    if config["pipeline"]:
        # The last columns of the queries and both buffers of powers are as large as two tiles of powers.
        return element * (block_h * MLA_LATENT + 2 * block_s * width + 2 * block_h * block_s) + 16 * block_h + 1024
    # A tile on its way through registers, or transposed for tensor cores, has a copy; 64 keys through TMA have none.
    tiles = config["num_stages"] + (0 if config["tma"] and block_s >= 64 else 1)
    return element * (block_h + tiles * block_s) * width + element * block_h * block_s + 2048


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    configs.check_keys("mla_decode", config, _CONFIG_KEYS)
    configs.check_target("mla_decode", target, tuple(_TILES))
    _check_dtype(dtype, target)
    configs.check_powers("mla_decode", config, (("block_h", 16, 128), ("block_s", 16, 128), ("num_warps", 1, 16)))
    steps = -(-shape["S"] // config["block_s"])
    if not 1 <= config["splits"] <= min(steps, _MOST_SPLITS):
        raise InputError(f"mla_decode: splits is {config['splits']}; expected 1 to {min(steps, _MOST_SPLITS)}")
    configs.check_ranges("mla_decode", config, (("num_stages", 1, 8),))
    configs.check_pdl("mla_decode", config, target, "tma", "pdl")
    if config["pipeline"]:
        _check_pipeline(config, shape, target)
    configs.check_shared("mla_decode", shared_bytes(config, dtype), target, smaller="block_s")


def _check_pipeline(config: Config, shape: Shape, target: str) -> None:
    pipeline = config["pipeline"]
    if pipeline not in _FIXED or target != "sm_90" or not config["tma"]:
        raise InputError(f"mla_decode: pipeline is {pipeline} on {target}; expected 0, or 1 or 2 on sm_90 with tma 1")
    fixed = _FIXED[pipeline]
    if any(config[key] != value for key, value in fixed.items()):
        raise InputError(
            f"mla_decode: pipeline is {pipeline}; expected {', '.join(f'{k} {v}' for k, v in fixed.items())}"
        )
    if pipeline == 2 and (config["splits"] != 1 or shape["H"] % _CLUSTER_HEADS):
        raise InputError(
            f"mla_decode: splits is {config['splits']} and H {shape['H']} with pipeline 2; expected 1 and a "
            f"multiple of {_CLUSTER_HEADS}"
        )
    if config["splits"] not in (1, 2, 4, 8, 16):
        raise InputError(f"mla_decode: splits is {config['splits']} with pipeline 1; expected 1, 2, 4, 8 or 16")


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
    """Return what the compiler needs to compile the kernel without a GPU."""
    if config["pipeline"] == 2:
        return AheadCuda(
            source=_cluster_source(dtype),
            programs=shape["B"] * shape["H"] // 64,
            threads=_CLUSTER_THREADS,
            shared_bytes=_cluster_bytes(),
        )
    if config["pipeline"]:
        return _ahead_pipelined(config, dtype)
    constants = _constants(config)
    pointer = f"*{dtype}"
    widths = {"latent": MLA_LATENT, "rope": MLA_ROPE}
    cache = {
        name: triton_type(dtype, [1, config["block_s"], width]) if config["tma"] else pointer
        for name, width in widths.items()
    }
    signature = {
        "q_ptr": pointer, **cache, "y_ptr": pointer,
        "partial_ptr": "*fp32", "stats_ptr": "*fp32", "arrivals_ptr": "*i32",
        "n_heads": "i32", "n_keys": "i32", "scale_log2": "fp32",
    }  # fmt: skip
    return ahead_of(
        mla_decode_kernel,
        signature,
        constants=constants,
        options=options_of(config, stages=False),
    )


def _ahead_pipelined(config: Config, dtype: Dtype) -> Ahead:
    operands = gluon_types_of(dtype, _blocks(config))
    constants = _pipelined_constants(config)
    others = {
        "y_ptr": f"*{dtype}", "partial_ptr": "*fp32", "stats_ptr": "*fp32", "n_heads": "i32", "n_keys": "i32",
        "scale_log2": "fp32",
    }  # fmt: skip
    return ahead_of(
        mla_decode_pipelined,
        {**operands, **others},
        constants=constants,
        options=options_of(config, stages=False),
    )


_CONFIG_KEYS = ("block_h", "block_s", "splits", "num_warps", "num_stages", "tma", "pdl", "pipeline")

CASES: tuple[dict[str, int], ...] = (
    {"B": 64, "H": 128, "S": 8192},
    {"B": 1, "H": 128, "S": 8192},
    {"B": 1, "H": 1, "S": 1},
    {"B": 3, "H": 67, "S": 1031},
)

KERNEL = Kernel(
    name="mla_decode",
    operation=MLA_DECODE,
    summary="multi-head latent attention of one query token over a latent cache",
    formula="y = softmax(q · cacheᵀ / sqrt(192)) · cache[:, :512]",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="the cache's second read by the other half of 128 heads, partial results of splits (L2), the softmax",
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(6e-4, 5e-4, "powers are rounded to 11 bits, values are up to 2; one more rounding"),
        "bf16": Tolerance(5e-3, 4e-3, "as fp16, with 8 bits: eight times as wide"),
        "fp32": Tolerance(1e-5, 1e-5, "scores of up to 16 have 24 bits, and their powers as many less four"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu},
    reference=reference,
    launched="^mla_decode_(kernel|pipelined|cluster)$",
    baselines={"torch-eager": prepare_torch_eager},
    ahead=ahead,
)

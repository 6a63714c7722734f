"""Compute attention of one query token per sequence over a key-value cache of plain tensors.

Formula: y[b, h] = softmax(q[b, h] · k[b, g]ᵀ / sqrt(D)) · v[b, g], g = h · HKV ÷ HQ rounded down
Shapes: q (B, HQ, D), k and v (B, HKV, S, D), y (B, HQ, D), row-major and of one dtype (fp16, bf16 or fp32).
HQ is a multiple of HKV: equal is multi-head attention, more is grouped-query attention.
Traffic: e · (B·HQ·D + 2·B·HKV·S·D) bytes read and e · B·HQ·D written, e bytes an element.
Source: splitting the keys among programs is Flash-Decoding (Dao, Haziza, Massa, Sizov, 2023); the running maximum is
FlashAttention-2, arXiv 2307.08691, algorithm 1.
The work model excludes: partial results of the splits (written and read in L2), the padding of a group of query heads
to 16 and of keys to whole tiles, the corrections where a running maximum rises, and, without tensor cores, keys and
values read again (from L2) where a group has more than four query heads.

Precision: scores, sums and outputs are fp32; the powers are rounded to the dtype before they meet v (they are up to 1,
in the direct kernel up to 256: it raises a row's reference only for scores well above it); one rounding at the end.
fp32 takes plain multiply-adds only.
Determinism: the splits of a head are added in a fixed order, in the portable kernel by the last program to arrive,
whichever that is; in the pipelined and the direct one (sm_90) each split adds a share of the columns, or, where
programs take equal shares of all keys, the last of a head's programs adds up. So the same inputs give the same bits. A
pipelined program waits for the others of its head: they have neighbouring numbers, and the hardware places programs in
the order of these. A direct one waits for the others of its cluster, which run together, or for lower ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Ahead, AheadCuda, Config, Kernel, Launch, Tolerance, import_triton
from ledger.kernels.common import configs
from ledger.kernels.common.baselines import dtype_name, scaled_dot_product
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_cuda
from ledger.kernels.common.gluon import import_gluon
from ledger.kernels.common.launches import ahead_of, options_of
from ledger.kernels.common.targets import (
    SHARED_BYTES,
    SMS,
    TMA_ALIGNMENT,
    TMA_TARGETS,
    attention_path,
    device_target,
    is_tma_aligned,
    power_of_two,
)
from ledger.kernels.common.tensor_maps import gluon_descriptors, gluon_types_of, triton_descriptor, triton_type
from ledger.operations import DECODE_ATTENTION, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper, grid = _gluon.gluon, _gluon.language, _gluon.hopper, _gluon.grid
async_load = _gluon.async_load


@triton.jit
def decode_attention_kernel(
    q_ptr,
    k,
    v,
    y_ptr,
    partial_ptr,
    stats_ptr,
    arrivals_ptr,
    n_keys,
    n_units,
    scale_log2,
    UNIT: tl.constexpr,
    HEADS: tl.constexpr,
    SHARERS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLITS_PADDED: tl.constexpr,
    CHUNK_D: tl.constexpr,
    STAGES: tl.constexpr,
    DOT: tl.constexpr,
    TMA: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        # The next kernel's blocks may be placed now; this one's wait until all before it is written.
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    n_dims = n_units * UNIT
    split = tl.program_id(0) % SPLITS
    head = tl.program_id(0) // SPLITS
    range_g = tl.arange(0, BLOCK_G)
    range_d = tl.arange(0, BLOCK_D)
    range_s = tl.arange(0, BLOCK_S)
    # HEADS query heads share a key head; each of its SHARERS takes GROUP of them, the last one what is left.
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
    # One query row is broadcast over the keys where no tensor core helps.
    q_rows = q.to(tl.float32)[:, None, :]
    cache_row = key_head.to(tl.int64) * n_keys

    steps = tl.cdiv(n_keys, BLOCK_S)
    first = split * steps // SPLITS
    last = (split + 1) * steps // SPLITS
    highest = tl.full((BLOCK_G,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_G,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_D, BLOCK_G) if DOT else (BLOCK_G, BLOCK_D), dtype=tl.float32)
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
        if DOT:
            # Keys are the rows of the product: a tile of 64 of them reaches wgmma, a group of query heads would not.
            scores = tl.dot(k_tile, q_columns, input_precision="ieee") * scale_log2
            scores = tl.where((keys < n_keys)[:, None], scores, -float("inf"))
            risen = tl.maximum(highest, tl.max(scores, axis=0))
            kept = tl.exp2(highest - risen)
            powers = tl.exp2(scores - risen[None, :])
            total = total * kept + tl.sum(powers, axis=0)
            acc = tl.dot(tl.trans(v_tile), powers.to(v_tile.dtype), acc * kept[None, :], input_precision="ieee")
        else:
            scores = tl.sum(q_rows * k_tile.to(tl.float32)[None, :, :], axis=2) * scale_log2
            scores = tl.where((keys < n_keys)[None, :], scores, -float("inf"))
            risen = tl.maximum(highest, tl.max(scores, axis=1))
            kept = tl.exp2(highest - risen)
            powers = tl.exp2(scores - risen[:, None])
            total = total * kept + tl.sum(powers, axis=1)
            acc = acc * kept[:, None] + tl.sum(powers[:, :, None] * v_tile.to(tl.float32)[None, :, :], axis=1)
        highest = risen

    # The product by tensor cores left its result transposed.
    result = tl.trans(acc) if DOT else acc
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
        tl.store(stats_ptr + slot * (2 * GROUP) + range_g, highest, mask=group_mask)
        tl.store(stats_ptr + slot * (2 * GROUP) + GROUP + range_g, total, mask=group_mask)
        # The atomic is one thread's: every thread's partial must be written before it is published.
        tl.debug_barrier()
        arrived = tl.atomic_add(arrivals_ptr + head, 1, sem="acq_rel")
        if arrived == SPLITS - 1:
            parts = tl.arange(0, SPLITS_PADDED)
            members = tl.arange(0, GROUP_PADDED)
            slots = head.to(tl.int64) * SPLITS + parts
            known = (parts < SPLITS)[:, None] & (members < live)[None, :]
            stats = stats_ptr + slots[:, None] * (2 * GROUP) + members[None, :]
            highs = tl.load(stats, mask=known, other=-float("inf"), cache_modifier=".cg")
            totals = tl.load(stats + GROUP, mask=known, other=0.0, cache_modifier=".cg")
            top = tl.where(members < live, tl.max(highs, axis=0), 0.0)
            weights = tl.exp2(highs - top[None, :])
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
            # Ready for the next launch, which starts after this one ends.
            tl.store(arrivals_ptr + head, 0)


@gluon.jit
def _load_tile(k, v, k_ring, v_ring, k_full, v_full, head, step, first, last):
    stage = step % k_ring.shape[0]
    at = (first + step) * k.block_shape[1]
    live = first + step < last
    hopper.mbarrier.expect(k_full.index(stage), k.block_type.nbytes, pred=live)
    async_load(k, [head, at, 0], k_full.index(stage), k_ring.index(stage), pred=live)
    hopper.mbarrier.expect(v_full.index(stage), v.block_type.nbytes, pred=live)
    async_load(v, [head, at, 0], v_full.index(stage), v_ring.index(stage), pred=live)


@gluon.jit
def _join_parts(
    y_ptr, partial_ptr, stats_ptr, head, reader, n_dims, GROUP: gl.constexpr, SPLITS: gl.constexpr,
    SPLITS_PADDED: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, BLOCK_D: gl.constexpr,
):  # fmt: skip
    EMPTY: gl.constexpr = 0x7FFFDEAD  # _EMPTY, which a kernel cannot read
    VECTOR: gl.constexpr = min(4, COLS)
    LANES: gl.constexpr = min(COLS // VECTOR, 32)
    layout: gl.constexpr = gl.BlockedLayout([1, 1, VECTOR], [32 // LANES, 1, LANES], [gl.num_warps(), 1, 1], [2, 1, 0])
    pairs: gl.constexpr = gl.SliceLayout(2, layout)
    flat: gl.constexpr = gl.SliceLayout(0, layout)
    part = gl.arange(0, SPLITS_PADDED, gl.SliceLayout(1, pairs))[:, None]
    row = gl.arange(0, ROWS, gl.SliceLayout(0, pairs))[None, :]
    col = gl.arange(0, COLS, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    element = reader * (ROWS * COLS)
    partial_ptrs = partial_ptr + (part * (ROWS * COLS) + row * COLS)[:, :, None] + col
    stats_ptrs = stats_ptr + part * (2 * ROWS) + row
    known = (part < SPLITS) & (element // BLOCK_D + row < GROUP)
    live = known[:, :, None] & (col >= 0)
    values = gl.full([SPLITS_PADDED, ROWS, COLS], 0.0, gl.float32, layout)
    highs = gl.full([SPLITS_PADDED, ROWS], 0.0, gl.float32, pairs)
    sums = gl.full([SPLITS_PADDED, ROWS], 0.0, gl.float32, pairs)
    # Every element is its own flag, so no fence and no counter stands between its writer and its reader.
    waiting = 1
    while waiting != 0:
        highs = gl.load(stats_ptrs, mask=known, other=-float("inf"), volatile=True)
        sums = gl.load(stats_ptrs + ROWS, mask=known, other=0.0, volatile=True)
        values = gl.load(partial_ptrs, mask=live, other=0.0, volatile=True)
        missing = gl.max((values.to(gl.int32, bitcast=True) == EMPTY).to(gl.int32), axis=2)
        missing = gl.maximum(missing, (sums.to(gl.int32, bitcast=True) == EMPTY).to(gl.int32))
        missing = gl.maximum(missing, (highs.to(gl.int32, bitcast=True) == EMPTY).to(gl.int32))
        waiting = gl.max(gl.max(missing, axis=0), axis=0)
    # Two warps may hold the same elements: neither may empty them before the other has seen them.
    tl.debug_barrier()
    empty = gl.full([SPLITS_PADDED, ROWS], EMPTY, gl.int32, pairs).to(gl.float32, bitcast=True)
    gl.store(stats_ptrs, empty, mask=known)
    gl.store(stats_ptrs + ROWS, empty, mask=known)
    empty = gl.full([SPLITS_PADDED, ROWS, COLS], EMPTY, gl.int32, layout).to(gl.float32, bitcast=True)
    gl.store(partial_ptrs, empty, mask=live)
    weights = gl.exp2(highs - gl.max(highs, axis=0)[None, :])
    weights = weights / gl.sum(weights * sums, axis=0)[None, :]
    y = gl.sum(values * weights[:, :, None], axis=0)
    rows = element // BLOCK_D + gl.arange(0, ROWS, gl.SliceLayout(1, flat))[:, None]
    cols = element % BLOCK_D + gl.arange(0, COLS, gl.SliceLayout(0, flat))[None, :]
    y_ptrs = y_ptr + (head.to(gl.int64) * GROUP + rows) * n_dims + cols
    gl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(rows < GROUP) & (cols < n_dims))


@gluon.jit
def decode_attention_pipelined(
    q,
    k,
    v,
    y_ptr,
    partial_ptr,
    stats_ptr,
    n_keys,
    n_dims,
    scale_log2,
    GROUP: gl.constexpr,
    SPLITS: gl.constexpr,
    SPLITS_PADDED: gl.constexpr,
    READERS: gl.constexpr,
    ROWS: gl.constexpr,
    COLS: gl.constexpr,
    STAGES: gl.constexpr,
    PDL: gl.constexpr,
):
    if PDL == 1:
        # The next kernel's blocks may be placed now; this one's wait until all before it is written.
        grid.gdc_launch_dependents()
    BLOCK_G: gl.constexpr = q.block_shape[1]
    BLOCK_S: gl.constexpr = k.block_shape[1]
    BLOCK_D: gl.constexpr = k.block_shape[2]
    barrier: gl.constexpr = hopper.mbarrier.MBarrierLayout()
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_G, 16])
    heads: gl.constexpr = gl.SliceLayout(0, layout)
    k_ring = gl.allocate_shared_memory(k.dtype, [STAGES, 1, BLOCK_S, BLOCK_D], k.layout)
    v_ring = gl.allocate_shared_memory(v.dtype, [STAGES, 1, BLOCK_S, BLOCK_D], v.layout)
    q_smem = gl.allocate_shared_memory(q.dtype, [1, BLOCK_G, BLOCK_D], q.layout)
    p_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_G, BLOCK_S], q.dtype)
    p_smem = gl.allocate_shared_memory(q.dtype, [BLOCK_G, BLOCK_S], p_layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1], barrier)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    hopper.mbarrier.init(q_full, count=1)
    for i in gl.static_range(STAGES):
        hopper.mbarrier.init(k_full.index(i), count=1)
        hopper.mbarrier.init(v_full.index(i), count=1)
    # The splits of a head are neighbours, so that when one waits for the others, these run or come next.
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
        _load_tile(k, v, k_ring, v_ring, k_full, v_full, head, i, first, last)

    # Keys are the rows of the product: a tile of 64 of them reaches wgmma, a group of query heads would not.
    queries = q_smem.reshape([BLOCK_G, BLOCK_D]).permute((1, 0))
    keys = gl.arange(0, BLOCK_S, gl.SliceLayout(1, layout))
    zeros = gl.zeros([BLOCK_S, BLOCK_G], gl.float32, layout)
    highest = gl.full([BLOCK_G], -float("inf"), gl.float32, heads)
    # One sum for each key of a tile: adding them up takes all warps, and can wait.
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
        # The scale is positive, so it may follow the maximum: one multiply-add a score.
        risen = gl.maximum(highest, gl.max(scores, axis=0) * scale_log2)
        kept = gl.exp2(highest - risen)
        powers = gl.exp2(scores * scale_log2 - risen[None, :])
        totals = totals * kept[None, :] + powers
        acc = acc * kept[None, :]
        highest = risen
        p_smem.permute((1, 0)).store(powers.to(k.dtype))
        hopper.fence_async_shared()
        hopper.mbarrier.wait(v_full.index(stage), phase)
        tl.debug_barrier()
        tile = v_ring.index(stage).reshape([BLOCK_S, BLOCK_D]).permute((1, 0))
        pending = hopper.warpgroup_mma(tile, p_smem.permute((1, 0)), acc, is_async=True)
        acc = hopper.warpgroup_mma_wait(0, deps=(pending,))
        # Every warp is done with the stage before it is filled anew.
        tl.debug_barrier()
        _load_tile(k, v, k_ring, v_ring, k_full, v_full, head, step + STAGES, first, last)
    if PDL == 2:
        grid.gdc_launch_dependents()
    total = gl.sum(totals, axis=0)

    dims = gl.arange(0, BLOCK_D, gl.SliceLayout(1, layout))[:, None]
    members = gl.arange(0, BLOCK_G, heads)
    if SPLITS == 1:
        y = acc * (1.0 / total)[None, :]
        y_ptrs = y_ptr + (head.to(gl.int64) * GROUP + members[None, :]) * n_dims + dims
        gl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(members < GROUP)[None, :] & (dims < n_dims))
    else:
        # Partial results lie as [head][program that reads][program that wrote][row][column of the reader's share].
        SHARE: gl.constexpr = ROWS * COLS
        element = members[None, :] * BLOCK_D + dims
        partial = partial_ptr + head.to(gl.int64) * (READERS * SPLITS * SHARE)
        offsets = element // SHARE * (SPLITS * SHARE) + split * SHARE + element % SHARE
        gl.store(partial + offsets, acc, mask=(members < GROUP)[None, :] & (dims >= 0))
        stats = stats_ptr + head.to(gl.int64) * (READERS * SPLITS * 2 * ROWS)
        for chunk in gl.static_range(BLOCK_D // COLS):
            reader = (members * BLOCK_D + chunk * COLS) // SHARE
            offsets = reader * (SPLITS * 2 * ROWS) + split * (2 * ROWS) + members % ROWS
            gl.store(stats + offsets, highest, mask=members < GROUP)
            gl.store(stats + offsets + ROWS, total, mask=members < GROUP)
        if split < READERS:
            _join_parts(
                y_ptr, partial + split * (SPLITS * SHARE), stats + split * (SPLITS * 2 * ROWS), head, split, n_dims,
                GROUP, SPLITS, SPLITS_PADDED, ROWS, COLS, BLOCK_D,
            )  # fmt: skip


def _direct_source(config: Config, shape: Shape, dtype: Dtype) -> CudaSource:
    streams = config["pipeline"] == _STREAMED
    defines = {
        "GROUP": shape["HQ"] // shape["HKV"], "D": shape["D"], "BLOCK_S": config["block_s"],
        "WARPS": config["num_warps"], "CLUSTER": 1 if streams else config["splits"], "STREAM": int(streams),
        "RESIDENT": _resident(config), "PDL": config["pdl"], "BF16": int(dtype == "bf16"),
    }  # fmt: skip
    return cuda_source(__name__, "direct.cu", entry="decode_attention_direct", defines=defines)


def _resident(config: Config) -> int:
    """Return for how many programs the registers of a multiprocessor are divided: a step of 32 keys takes 224."""
    return max(1, (8 if config["block_s"] == 32 else 12) // config["num_warps"])


def _direct_programs(config: Config, shape: Shape) -> int:
    heads = shape["B"] * shape["HKV"]
    if config["pipeline"] == _CLUSTERED:
        return heads * config["splits"]
    return min(heads * -(-shape["S"] // config["block_s"]), SMS["sm_90"] * config["splits"])


def _direct_bytes(config: Config, shape: Shape) -> int:
    """Return the shared memory of one program: sums of every warp and of the other programs, queries of every lane."""
    group, d, warps = shape["HQ"] // shape["HKV"], shape["D"], config["num_warps"]
    streams = config["pipeline"] == _STREAMED
    received = 0 if streams or config["splits"] == 1 else config["splits"]
    sums = warps * (2 if streams else 1) + received
    return sums * (-(-4 * group * (d + 2) // 16) * 16) + 512 * warps * (d // 32)


def _prepare_direct(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    b, hkv, s, d = k.shape
    shape = {"B": b, "HQ": q.shape[1], "HKV": hkv, "S": s, "D": d}
    programs, group = _direct_programs(config, shape), q.shape[1] // hkv
    # Sums of a program's group and their references, as the kernel's N_FLOATS.
    floats = programs * -(-group * (d + 2) // 4) * 4 if config["pipeline"] == _STREAMED else 1
    partial = torch.full((floats,), _EMPTY, dtype=torch.int32, device=q.device)
    share, longer = divmod(b * hkv * -(-s // config["block_s"]), programs)
    return prepare_cuda(
        _direct_source(config, shape, dtype_name(q, "decode_attention")),
        programs=programs,
        threads=32 * config["num_warps"],
        shared_bytes=_direct_bytes(config, shape),
        arguments=[q, k, v, out, partial, s, share, longer, _scale_log2(d)],
        overlap=bool(config["pdl"]),
    )


def decode_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q · kᵀ / sqrt(D)) · v of one query token per sequence.

    Shapes: q (B, HQ, D), k and v (B, HKV, S, D) of one dtype on one GPU; the result as q.
    """
    import torch

    inputs = {"q": q.contiguous(), "k": k.contiguous(), "v": v.contiguous()}
    out = torch.empty_like(inputs["q"])
    b, hkv, s, d = k.shape
    shape = {"B": b, "HQ": q.shape[1], "HKV": hkv, "S": s, "D": d}
    dtype, target = dtype_name(q, "decode_attention"), device_target(q)
    config = config_for(shape, dtype, target)
    if not is_tma_aligned(*inputs.values()):
        config = {**_portable_config(shape, dtype, target), "tma": 0}
    prepare_triton(inputs, out, config)()
    return out


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Allocate the workspace and return the launch."""
    return (_prepare_portable, _prepare_pipelined, _prepare_direct, _prepare_direct)[config["pipeline"]](
        inputs, out, config
    )


def _prepare_portable(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    b, hkv, s, d = k.shape
    shape = {"B": b, "HQ": q.shape[1], "HKV": hkv, "S": s, "D": d}
    constants = _constants(config, shape)
    heads, splits, group = b * hkv * constants["SHARERS"], config["splits"], constants["GROUP"]
    slots = heads * splits if splits > 1 else 1
    partial = torch.empty(slots * group * constants["BLOCK_D"], dtype=torch.float32, device=q.device)
    stats = torch.empty(slots * 2 * group, dtype=torch.float32, device=q.device)
    arrivals = torch.zeros(heads, dtype=torch.int32, device=q.device)
    cache: tuple[object, object] = (k, v)
    if config["tma"]:
        block = [1, config["block_s"], constants["BLOCK_D"]]
        cache = (triton_descriptor(k.view(b * hkv, s, d), block), triton_descriptor(v.view(b * hkv, s, d), block))
    scale_log2 = _scale_log2(d)

    def launch() -> None:
        decode_attention_kernel[(heads * splits,)](
            q, *cache, out, partial, stats, arrivals, s, d // constants["UNIT"], scale_log2,
            **constants, **options_of(config, stages=False),
        )  # fmt: skip

    return launch


def _prepare_pipelined(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    b, hkv, s, d = k.shape
    shape = {"B": b, "HQ": q.shape[1], "HKV": hkv, "S": s, "D": d}
    constants = _pipelined_constants(config, shape)
    heads, splits, group = b * hkv, config["splits"], constants["GROUP"]
    slots = heads * constants["READERS"] * splits * constants["ROWS"] if splits > 1 else 1
    partial = torch.full((slots * constants["COLS"],), _EMPTY, dtype=torch.int32, device=q.device)
    stats = torch.full((slots * 2,), _EMPTY, dtype=torch.int32, device=q.device)
    tensors = {"q": q.view(heads, group, d), "k": k.view(heads, s, d), "v": v.view(heads, s, d)}
    operands = gluon_descriptors(tensors, _blocks(config, shape))
    scale_log2 = _scale_log2(d)

    def launch() -> None:
        decode_attention_pipelined[(heads * splits,)](
            *operands, out, partial.view(torch.float32), stats.view(torch.float32), s, d, scale_log2,
            **constants, **options_of(config, stages=False),
        )  # fmt: skip

    return launch


def _blocks(config: Config, shape: Shape) -> dict[str, list[int]]:
    group, block_d = power_of_two(shape["HQ"] // shape["HKV"]), power_of_two(shape["D"])
    tile = [1, config["block_s"], block_d]
    return {"q": [1, max(group, 8), block_d], "k": tile, "v": tile}


def _pipelined_constants(config: Config, shape: Shape) -> dict[str, int]:
    group, block_d, splits = shape["HQ"] // shape["HKV"], power_of_two(shape["D"]), config["splits"]
    # Each split adds up a share of the group's results: some columns of a row, or some rows.
    share = max(power_of_two(-(-power_of_two(group) * block_d // splits)), 4)
    return {
        "GROUP": group,
        "SPLITS": splits,
        "SPLITS_PADDED": power_of_two(splits),
        "READERS": -(-group * block_d // share),
        "ROWS": max(1, share // block_d),
        "COLS": min(share, block_d),
        "STAGES": config["num_stages"],
        "PDL": config["pdl"],
    }


def _scale_log2(d: int) -> float:
    """Return what a score is multiplied by, so that powers of two make its softmax."""
    return math.log2(math.e) / math.sqrt(d)


def _constants(config: Config, shape: Shape) -> dict[str, int]:
    heads, sharers = shape["HQ"] // shape["HKV"], _sharers(config, shape)
    group = -(-heads // sharers)
    group_padded, splits_padded = power_of_two(group), power_of_two(config["splits"])
    block_d = max(power_of_two(shape["D"]), 16)
    return {
        "UNIT": math.gcd(shape["D"], _WIDEST_UNIT),
        "HEADS": heads,
        "SHARERS": sharers,
        "GROUP": group,
        "GROUP_PADDED": group_padded,
        "BLOCK_G": max(group_padded, 16) if config["dot"] else group_padded,
        "BLOCK_S": config["block_s"],
        "BLOCK_D": block_d,
        "SPLITS": config["splits"],
        "SPLITS_PADDED": splits_padded,
        # The last program adds up what its registers hold at once: 64 values a thread.
        "CHUNK_D": min(block_d, max(64 * 32 * config["num_warps"] // (splits_padded * group_padded), 1)),
        "STAGES": config["num_stages"],
        "DOT": config["dot"],
        "TMA": config["tma"],
        "PDL": config["pdl"],
    }


def _sharers(config: Config, shape: Shape) -> int:
    """Return how many programs share a key head's keys, each with some of its query heads."""
    return 1 if config["dot"] else -(-(shape["HQ"] // shape["HKV"]) // _MOST_WITHOUT_DOT)


def prepare_torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return torch's scaled_dot_product_attention, in fp32."""
    import torch

    q, k, v = (inputs[name] for name in ("q", "k", "v"))
    grouped = q.shape[1] != k.shape[1]

    def launch() -> None:
        attended = torch.nn.functional.scaled_dot_product_attention(
            q.float().unsqueeze(2), k.float(), v.float(), enable_gqa=grouped
        )
        out.copy_(attended.squeeze(2))

    return launch


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64, one sequence at a time to spare memory."""
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    b, hq, d = q.shape
    hkv = k.shape[1]
    rows = []
    for index in range(b):
        query = q[index].double().view(hkv, hq // hkv, d)
        weights = torch.softmax(query @ k[index].double().transpose(1, 2) / math.sqrt(d), dim=-1)
        rows.append((weights @ v[index].double()).view(hq, d))
    return torch.stack(rows)


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count two products of 2·D operations a key and query head, and five of its softmax; each operand moves once."""
    b, hq, hkv, s, d = (shape[key] for key in ("B", "HQ", "HKV", "S", "D"))
    element = DTYPE_BYTES[dtype]
    return Work(
        flops=b * hq * s * (4 * d + 5),
        bytes_read=element * (b * hq * d + 2 * b * hkv * s * d),
        bytes_written=element * b * hq * d,
    )


_WIDEST_UNIT = 16
_WIDEST_GROUP = 32
_WIDEST_DIRECT_GROUP = 8
# From so many programs on, one more of them on a multiprocessor is worth more than a fourth stage.
_MANY_PROGRAMS = 1056
# A partial sum that is not there yet: a NaN that no sum yields.
_EMPTY = 0x7FFFDEAD
_MOST_SPLITS = 128
# Values of the key pipeline: 1 is the pipelined kernel in Gluon, these two are the direct one in CUDA C++.
_CLUSTERED, _STREAMED = 2, 3
# Query heads whose plain multiply-adds one program takes: more would need more registers than it has.
_MOST_WITHOUT_DOT = 4


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    portable = _portable_config(shape, dtype, target)
    choices = [*_pipelined_choices(portable, shape, dtype, target), *_direct_choices(portable, shape, dtype, target)]
    return min(choices, key=lambda choice: choice[0])[1] if choices else portable


def _pipelined_choices(
    portable: dict[str, int], shape: Shape, dtype: Dtype, target: str
) -> list[tuple[float, dict[str, int]]]:
    """Return modelled times in us and configurations of the pipelined kernel; none where it cannot run."""
    choices = []
    heads = shape["B"] * shape["HKV"]
    for block_s, num_stages in _PIPELINED_TILES:
        config = {**portable, "block_s": block_s, "num_stages": num_stages, "num_warps": 4, "pipeline": 1}
        if not _can_pipeline(config, shape, dtype, target) or shared_bytes(config, shape, dtype) > SHARED_BYTES[target]:
            continue
        for splits in range(1, min(-(-shape["S"] // block_s), _MOST_SPLITS) + 1):
            # Early programs of the next launch would take the places unevenly where these do not fill them.
            late = splits == 1 and SMS[target] < 2 * heads <= 4 * SMS[target]
            choice = {**config, "splits": splits, "pdl": 2 if late else 1}
            choices.append((_PIPELINED_LAUNCH_US + _pipelined_cost_us(choice, shape, dtype), choice))
    return choices


def _direct_choices(
    portable: dict[str, int], shape: Shape, dtype: Dtype, target: str
) -> list[tuple[float, dict[str, int]]]:
    """Return modelled times in us and configurations of the direct kernel; none where it cannot run."""
    if not _can_go_direct(shape, dtype, target):
        return []
    multiprocessors = SMS[target]
    heads, keys = shape["B"] * shape["HKV"], shape["S"]
    direct = {**portable, "block_s": 32, "splits": 1, "num_warps": 8, "num_stages": 1, "tma": 0, "pdl": 1}
    # All keys and values at the rate of the whole memory, and those of a head at that of one multiprocessor.
    shared = 4 * heads * keys * shape["D"] / _MEMORY_BYTES_PER_US
    alone = 4 * keys * shape["D"] / _MULTIPROCESSOR_BYTES_PER_US
    few = _STREAM_OF_FEW_US if 8 * heads < multiprocessors else 0.0
    choices = [(_STREAM_US + few + shared, {**direct, "pipeline": _STREAMED})]
    for num_warps in (8, 4, 2):
        places = multiprocessors * 8 // num_warps
        if places < 2 * heads <= 2 * places:
            time = _ONE_A_HEAD_US + shared * places / heads
            choices.append((time, {**direct, "num_warps": num_warps, "pipeline": _CLUSTERED}))
    for splits in (2, 4, 8):
        # Wider clusters than two fit into half of the multiprocessors for sure.
        if heads * splits <= (multiprocessors if splits == 2 else multiprocessors // 2):
            time = _CLUSTER_US + math.hypot((alone / splits) ** 2.5, shared**2.5) ** 0.4
            cluster = {"block_s": 16, "splits": splits, "pdl": 2, "pipeline": _CLUSTERED}
            choices.append((time, {**direct, **cluster}))
    return choices


def _pipelined_cost_us(config: Config, shape: Shape, dtype: Dtype) -> float:
    """Return the modelled time of a launch: waves of programs that share the memory's bandwidth, then the join."""
    splits, block_s, multiprocessors = config["splits"], config["block_s"], SMS["sm_90"]
    programs = shape["B"] * shape["HKV"] * splits
    tiles = math.ceil(math.ceil(shape["S"] / block_s) / splits)
    resident = (SHARED_BYTES["sm_90"] + 1024) // (shared_bytes(config, shape, dtype) + 1024) * multiprocessors
    width = power_of_two(shape["D"]) / 128
    alone, shared, fill = _PIPELINED_TILES[block_s, config["num_stages"]]
    full, rest = divmod(programs - 1, resident)
    streaming = full * tiles * max(alone, resident * shared) + tiles * max(alone, (rest + 1) * shared)
    join = 1.8 + 0.029 * splits + 0.0035 * programs if splits > 1 else 0.0
    return fill + width * streaming + 1.1 * full + join


# (BLOCK_S, stages) -> time of a tile of 128 fp16 columns for a program that has the memory to itself, the same when
# divided among all programs, and of filling the pipeline beyond what all take, in us. These and the constants above
# are fitted to 220 timings on an H200 (D 128; B 1, 6, 12, 48; S 192 to 24576), within 8% root mean square.
_PIPELINED_TILES = {(64, 2): (0.782, 0.00795, 0.0), (64, 3): (0.67, 0.00795, 0.4), (128, 2): (1.07, 0.01606, 0.0)}


# What a launch takes beyond what the models count, by kernel, and the rates of its loads: fitted to 45 shapes on an
# H200 (D 128; B 1 to 64, S 128 to 24576), where the choice is on average 1% slower than the best of 12 to 15 timed.
_PIPELINED_LAUNCH_US, _STREAM_US, _STREAM_OF_FEW_US, _ONE_A_HEAD_US, _CLUSTER_US = 1.7, 4.3, 1.0, 2.4, 2.6
_MEMORY_BYTES_PER_US, _MULTIPROCESSOR_BYTES_PER_US = 4.66e6, 47_900


def _can_pipeline(config: Config, shape: Shape, dtype: Dtype, target: str) -> bool:
    """Whether tiles of 64 keys or more come by TMA and both products reach wgmma."""
    group = shape["HQ"] // shape["HKV"]
    return (
        target == "sm_90"
        and DTYPE_BYTES[dtype] == 2
        and bool(config["tma"])
        and config["block_s"] in (64, 128)
        and config["num_warps"] == 4
        and 64 <= power_of_two(shape["D"]) <= 256
        and group <= _WIDEST_GROUP
    )


def _portable_config(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    if target not in SMS:
        raise InputError(f"decode_attention: no launch configuration for {target}; expected one of: {', '.join(SMS)}")
    aligned = not _ragged(shape, dtype)
    config = {
        "num_warps": 4,
        "dot": _dot(dtype, target),
        "tma": int(target in TMA_TARGETS and aligned),
        "pdl": int(target in TMA_TARGETS),
        "pipeline": 0,
    }
    sharers = _sharers(config, shape)
    heads, group = shape["B"] * shape["HKV"] * sharers, -(-(shape["HQ"] // shape["HKV"]) // sharers)
    if config["dot"] == 0 and group > 1:
        # One warp a program adds up its scores without a barrier; many programs keep the memory busy.
        # Elsewhere than measured, a ring of tiles would spill.
        block_s, num_stages = 16, 4 if target in ("sm_80", "sm_90") else 1
        splits = min(max(4, 512 // heads), -(-shape["S"] // block_s), 32)
        if num_stages == 4 and heads * splits >= _MANY_PROGRAMS:
            num_stages = 3
        # Ragged rows, loaded element by element, and wide ones take more registers than one warp has.
        config["num_warps"] = 1 if aligned and shape["D"] <= 128 else 4
    else:
        block_s = 64 if config["dot"] and aligned else 32
        block_s, splits, num_stages = _tiling(shape, block_s, SMS[target], config["dot"] == 1)
    config = {"block_s": block_s, "splits": splits, "num_stages": 1 if target == "sm_75" else num_stages, **config}
    while shared_bytes(config, shape, dtype) > SHARED_BYTES[target] and config["num_stages"] > 1:
        config["num_stages"] -= 1
    while shared_bytes(config, shape, dtype) > SHARED_BYTES[target] and config["block_s"] > 16:
        config["block_s"] //= 2
    return config


def _dot(dtype: Dtype, target: str) -> int:
    """Return which products to take: 0 plain multiply-adds, 1 tensor cores."""
    return int(dtype != "fp32" and target != "sm_75")


def _tiling(shape: Shape, block_s: int, multiprocessors: int, short: bool) -> tuple[int, int, int]:
    """Return BLOCK_S, how many programs share a head's keys, and the stages, by a cost in tiles of keys.

    short: whether a pipeline of two stages is worth considering.
    """
    heads, steps = shape["B"] * shape["HKV"], -(-shape["S"] // block_s)

    def cost(choice: tuple[int, int]) -> float:
        splits, num_stages = choice
        # Two programs of three stages fit on a multiprocessor, or three of two; they share its bandwidth.
        shares = _SHARES[num_stages]
        waves, rest = divmod(heads * splits, len(shares) * multiprocessors)
        tiles = -(-steps // splits)
        tail = shares[-(-rest // multiprocessors) - 1] if rest else 0.0
        streaming = tiles * (len(shares) * waves + tail) + waves + (1 if rest else 0)
        return streaming + (_COMBINE + _COMBINE_A_SPLIT * splits if splits > 1 else 0.0)

    choices = [
        (splits, stages)
        for splits in range(1, min(steps, _MOST_SPLITS) + 1)
        for stages in _SHARES
        if short or stages == 3
    ]
    splits, num_stages = min(choices, key=cost)
    # A few tiles are best fetched at once.
    few = -(-steps // splits) <= (3 if splits == 1 else 2)
    if few and block_s == 64 and heads * splits <= multiprocessors:
        return 128, max(1, min(splits, -(-shape["S"] // 128))), 2
    return block_s, splits, num_stages


# Stages -> time of a tile for one, two, … programs on a multiprocessor, in units of a tile at full bandwidth; fitted
# with the next two to timings on an H200 at S 160, 384, 1536, 6144 and B 1, 8, 48.
_SHARES = {3: (1.02, 2.0), 2: (1.4, 2.1, 3.03)}
_COMBINE, _COMBINE_A_SPLIT = 1.7, 0.15


def shared_bytes(config: Config, shape: Shape, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    element = DTYPE_BYTES[dtype]
    if config["pipeline"] >= _CLUSTERED:
        return _direct_bytes(config, shape)
    if config["pipeline"]:
        blocks = _blocks(config, shape)
        (_, block_g, block_d), block_s = blocks["q"], config["block_s"]
        tiles = 2 * config["num_stages"] * block_s * block_d
        return element * (tiles + block_g * (block_d + block_s)) + 4 * 8 * block_g + 1024
    constants = _constants(config, shape)
    block_g, block_s, block_d = (constants[name] for name in ("BLOCK_G", "BLOCK_S", "BLOCK_D"))
    tiles = 2 * element * block_s * block_d
    operands = element * block_g * (block_d + block_s)
    return config["num_stages"] * tiles + (2 * operands if config["dot"] else 0) + 4 * block_d * block_g + 2048


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    configs.check_keys("decode_attention", config, _CONFIG_KEYS)
    configs.check_target("decode_attention", target)
    configs.check_bf16("decode_attention", dtype, target)
    configs.check_groups("decode_attention", shape)
    if config["pipeline"] in (_CLUSTERED, _STREAMED):
        _check_direct(config, shape, dtype, target)
        return
    configs.check_powers("decode_attention", config, (("block_s", 16, 256), ("num_warps", 1, 16)))
    steps = -(-shape["S"] // config["block_s"])
    if not 1 <= config["splits"] <= min(steps, _MOST_SPLITS):
        raise InputError(
            f"decode_attention: splits is {config['splits']}; expected 1 to {min(steps, _MOST_SPLITS)}, the steps of "
            "block_s in S"
        )
    configs.check_ranges("decode_attention", config, (("num_stages", 1, 8),))
    configs.check_flags("decode_attention", config, "dot")
    if config["pdl"] not in (0, 1) and not (config["pdl"] == 2 and config["pipeline"] == 1):
        raise InputError(f"decode_attention: pdl is {config['pdl']}; expected 0 or 1, or 2 with pipeline 1, 2 or 3")
    if config["pdl"] and target not in TMA_TARGETS:
        raise InputError(f"decode_attention: pdl is {config['pdl']} on {target}; expected 0, or more from sm_90 up")
    if config["dot"] == 1 and config["block_s"] >= 64 and target == "sm_90" and _ragged(shape, dtype):
        raise InputError(
            f"decode_attention: block_s is {config['block_s']} with D={shape['D']} in {dtype}; expected at most 32: "
            "triton 3.6 miscompiles wgmma on tiles whose rows are no multiple of 16 bytes"
        )
    configs.check_tma(
        "decode_attention", config, target, rows={"D": shape["D"]}, size=DTYPE_BYTES[dtype], of=dtype
    )  # fmt: skip
    if config["pipeline"] not in (0, 1) or (config["pipeline"] and not _can_pipeline(config, shape, dtype, target)):
        raise InputError(
            f"decode_attention: pipeline is {config['pipeline']} with D={shape['D']} in {dtype} on {target}; expected "
            "0, or 1 on sm_90 in fp16 or bf16 with tma 1, 4 warps, block_s 64 or 128 and D from 33 to 256"
        )
    configs.check_shared("decode_attention", shared_bytes(config, shape, dtype), target, smaller="block_s")


def _check_direct(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    if not _can_go_direct(shape, dtype, target):
        raise InputError(
            f"decode_attention: pipeline is {config['pipeline']} with D={shape['D']}, groups of "
            f"{shape['HQ'] // shape['HKV']} and {dtype} on {target}; expected 2 or 3 on sm_90 alone, in fp16 or bf16, "
            f"with D 64 or 128 and groups of at most {_WIDEST_DIRECT_GROUP}"
        )
    clustered = config["pipeline"] == _CLUSTERED
    allowed = {
        "block_s": (16, 32), "num_warps": (1, 2, 4, 8), "splits": (1, 2, 4, 8) if clustered else (1, 2, 3),
        "num_stages": (1,), "dot": (1,), "tma": (0,), "pdl": (0, 1, 2),
    }  # fmt: skip
    for key, values in allowed.items():
        if config[key] not in values:
            raise InputError(
                f"decode_attention: {key} is {config[key]} with pipeline {config['pipeline']}; expected one of: "
                f"{', '.join(map(str, values))}"
            )


def _can_go_direct(shape: Shape, dtype: Dtype, target: str) -> bool:
    """Whether keys and values go straight to the registers of plain tensor-core products."""
    group = shape["HQ"] // shape["HKV"]
    return target == "sm_90" and DTYPE_BYTES[dtype] == 2 and shape["D"] in (64, 128) and group <= _WIDEST_DIRECT_GROUP


def _ragged(shape: Shape, dtype: Dtype) -> bool:
    return shape["D"] * DTYPE_BYTES[dtype] % TMA_ALIGNMENT != 0


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
    """Return what Triton needs to compile the kernel without a GPU."""
    if config["pipeline"] >= _CLUSTERED:
        return AheadCuda(
            source=_direct_source(config, shape, dtype),
            programs=_direct_programs(config, shape),
            threads=32 * config["num_warps"],
            shared_bytes=_direct_bytes(config, shape),
        )
    if config["pipeline"]:
        return _ahead_pipelined(config, shape, dtype)
    constants = _constants(config, shape)
    pointer = f"*{dtype}"
    cache = triton_type(dtype, [1, config["block_s"], constants["BLOCK_D"]]) if config["tma"] else pointer
    signature = {
        "q_ptr": pointer, "k": cache, "v": cache, "y_ptr": pointer,
        "partial_ptr": "*fp32", "stats_ptr": "*fp32", "arrivals_ptr": "*i32",
        "n_keys": "i32", "n_units": "i32", "scale_log2": "fp32",
    }  # fmt: skip
    return ahead_of(
        decode_attention_kernel,
        signature,
        constants=constants,
        options=options_of(config, stages=False),
    )


def _ahead_pipelined(config: Config, shape: Shape, dtype: Dtype) -> Ahead:
    operands = gluon_types_of(dtype, _blocks(config, shape))
    constants = _pipelined_constants(config, shape)
    others = {
        "y_ptr": f"*{dtype}", "partial_ptr": "*fp32", "stats_ptr": "*fp32", "n_keys": "i32", "n_dims": "i32",
        "scale_log2": "fp32",
    }  # fmt: skip
    return ahead_of(
        decode_attention_pipelined,
        {**operands, **others},
        constants=constants,
        options=options_of(config, stages=False),
    )


_CONFIG_KEYS = ("block_s", "splits", "num_warps", "num_stages", "dot", "tma", "pdl", "pipeline")

CASES: tuple[dict[str, int], ...] = (
    *({"B": b, "HQ": 32, "HKV": 8, "S": s, "D": 128} for b in (1, 8, 64) for s in (128, 256, 512, 1024, 8192)),
    {"B": 8, "HQ": 32, "HKV": 32, "S": 1024, "D": 128},
    {"B": 1, "HQ": 1, "HKV": 1, "S": 1, "D": 1},
    {"B": 3, "HQ": 14, "HKV": 2, "S": 1031, "D": 67},
    {"B": 1, "HQ": 32, "HKV": 8, "S": 131072, "D": 128},
)

KERNEL = Kernel(
    name="decode_attention",
    operation=DECODE_ATTENTION,
    summary="attention of one query token over a key-value cache",
    formula="y = softmax(q · kᵀ / sqrt(D)) · v",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="partial results of the splits (L2), padding of query groups and of keys, corrections of running maxima",
    path=attention_path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(
            6e-4, 5e-4, "powers of up to 1 are rounded to 11 bits, values are up to 2; one more rounding"
        ),
        "bf16": Tolerance(5e-3, 4e-3, "as fp16, with 8 bits: eight times as wide"),
        "fp32": Tolerance(1e-5, 1e-5, "scores of up to 16 keep 21 bits or more, and their powers as many less four"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu},
    reference=reference,
    launched="^decode_attention_(kernel|pipelined|direct)$",
    baselines={
        "sdpa-cudnn": scaled_dot_product("CUDNN_ATTENTION", decode=True),
        "sdpa-flash": scaled_dot_product("FLASH_ATTENTION", decode=True),
        "sdpa-efficient": scaled_dot_product("EFFICIENT_ATTENTION", decode=True),
        "sdpa-math": scaled_dot_product("MATH", decode=True),
    },
    ahead=ahead,
)

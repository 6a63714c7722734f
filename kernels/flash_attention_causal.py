"""Compute attention of whole sequences, no query seeing a later key; forward only.

Formula: y[b, h, i] = Σ_j≤i softmax_j≤i(q[b, h, i] · k[b, g, j] / sqrt(D)) · v[b, g, j], g = h · HKV ÷ HQ rounded down
Shapes: q, y (B, HQ, S, D), k, v (B, HKV, S, D), row-major and of one dtype (fp16 or bf16). HQ is a multiple of HKV.
Traffic: e · (B·HQ·S·D + 2·B·HKV·S·D) bytes read and e · B·HQ·S·D written, e bytes an element.
Source: FlashAttention-2, arXiv 2307.08691, algorithm 1; the products count as in its section 4.1; overlapping softmax
and products is FlashAttention-3, arXiv 2407.08608, section 3.
The work model excludes: masked scores in the tiles on the diagonal, re-reads of k and v by each block of queries (L2),
the padding of S and D to whole tiles, the softmax (about five operations a score, none on the tensor cores) and
corrections where a running maximum rises.

On sm_90, 16-bit rows of 33 to 128 columns take a pipelined kernel: one warp loads, two groups of warps overlap the
products of one tile with the softmax of another. Everything else takes the portable one.

Precision: scores, sums and outputs are fp32; the powers are rounded to the dtype before they meet v; one rounding at
the end. Determinism: each block of queries is one program's work in a fixed order, so the same inputs give the same
bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Ahead, Config, Kernel, Launch, Prepare, Tolerance, import_triton, keeping
from ledger.kernels.common.gluon import import_gluon
from ledger.operations import FLASH_ATTENTION_CAUSAL, Shape
from ledger.records import Dtype, Path, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper = _gluon.gluon, _gluon.language, _gluon.hopper
async_load, async_store = _gluon.async_load, _gluon.async_store

_NAME = "flash_attention_causal"
CAUSAL = True


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
    highest,
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
        risen = tl.maximum(highest, tl.max(scores, axis=1) * scale_log2)
        powers = tl.exp2(scores * scale_log2 - risen[:, None])
        kept = tl.exp2(highest - risen)
        total = total * kept + tl.sum(powers, axis=1)
        acc = acc * kept[:, None]
        v_tile = _load_rows(v, kv_head, start, n_rows, n_dims, BLOCK_N, BLOCK_D, TMA)
        acc = tl.dot(powers.to(v_tile.dtype), v_tile, acc)
        highest = risen
    return acc, total, highest


@triton.jit
def flash_attention_causal_kernel(
    q,
    k,
    v,
    y,
    n_rows,
    n_units,
    scale_log2,
    UNIT: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    TMA: tl.constexpr,
):
    n_dims = n_units * UNIT
    head = tl.program_id(0)
    kv_head = head // GROUP
    block = tl.program_id(1)
    if CAUSAL:
        # The last queries see the most keys; they start first, so that the short programs fill the end.
        block = tl.num_programs(1) - 1 - block
    row = block * BLOCK_M
    query_rows = row + tl.arange(0, BLOCK_M)
    q_tile = _load_rows(q, head, row, n_rows, n_dims, BLOCK_M, BLOCK_D, TMA)
    highest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)

    # Whole tiles that every query of the block sees need no mask.
    end = tl.minimum(row + BLOCK_M, n_rows) if CAUSAL else n_rows
    plain = (row if CAUSAL else n_rows) // BLOCK_N * BLOCK_N
    acc, total, highest = _attend(
        acc, total, highest, q_tile, k, v, kv_head, 0, plain, query_rows, n_rows, n_dims, scale_log2,
        BLOCK_N, BLOCK_D, False, CAUSAL, TMA,
    )  # fmt: skip
    if plain < end:
        acc, total, highest = _attend(
            acc, total, highest, q_tile, k, v, kv_head, plain, end, query_rows, n_rows, n_dims, scale_log2,
            BLOCK_N, BLOCK_D, True, CAUSAL, TMA,
        )  # fmt: skip

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
def _load_tile(source, head, row, done, ring, full, empty):
    STAGES: gl.constexpr = ring.shape[0]
    stage = done % STAGES
    hopper.mbarrier.wait(empty.index(stage), (done // STAGES & 1) ^ 1)
    hopper.mbarrier.expect(full.index(stage), source.block_type.nbytes)
    async_load(source, [head, row, 0], full.index(stage), ring.index(stage))
    return done + 1


@gluon.jit
def _load_tiles(
    q, k, v, fetched_ptr, q_ring, ring, blocks, q_full, q_empty, full, empty, n_rows, n_heads, section,
    GROUP: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    HALF: gl.constexpr = q.block_shape[1]
    BLOCK_M: gl.constexpr = 2 * HALF
    BLOCK_N: gl.constexpr = k.block_shape[1]
    one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    total = gl.cdiv(n_rows, BLOCK_M) * n_heads
    index = gl.program_id(0)
    turn = 0
    done = 0
    while index < total:
        head, block = _block_of_queries(index, n_rows, n_heads, section, BLOCK_M, CAUSAL)
        slot = turn % 2
        hopper.mbarrier.wait(q_empty.index(slot), (turn // 2 & 1) ^ 1)
        blocks.index(slot).store(gl.full([1], index, gl.int32, one))
        tl.debug_barrier()
        hopper.mbarrier.expect(q_full.index(slot), 2 * q.block_type.nbytes)
        for part in gl.static_range(2):
            row = block * BLOCK_M + part * HALF
            async_load(q, [head, row, 0], q_full.index(slot), q_ring.index(slot * 2 + part))
        steps = _tiles_of_keys(block * BLOCK_M, n_rows, BLOCK_M, BLOCK_N, CAUSAL)
        # From the last tile, which may need a mask, to the first; in the order in which tiles are used.
        done = _load_tile(k, head // GROUP, (steps - 1) * BLOCK_N, done, ring, full, empty)
        for i in range(1, steps):
            done = _load_tile(k, head // GROUP, (steps - 1 - i) * BLOCK_N, done, ring, full, empty)
            done = _load_tile(v, head // GROUP, (steps - i) * BLOCK_N, done, ring, full, empty)
        done = _load_tile(v, head // GROUP, 0, done, ring, full, empty)
        turn += 1
        fetched = gl.atomic_add(fetched_ptr, 1, sem="relaxed")
        index = gl.num_programs(0) + fetched
        if fetched == total - 1:
            # Nobody fetches after this: ready for the next launch.
            gl.store(fetched_ptr, 0)
    slot = turn % 2
    hopper.mbarrier.wait(q_empty.index(slot), (turn // 2 & 1) ^ 1)
    blocks.index(slot).store(gl.full([1], -1, gl.int32, one))
    tl.debug_barrier()
    hopper.mbarrier.arrive(q_full.index(slot), count=1)


@gluon.jit
def _powers(scores, highest, scale_log2):
    risen = gl.maximum(highest, gl.max(scores, axis=1) * scale_log2)
    return gl.exp2(scores * scale_log2 - risen[:, None]), risen


@gluon.jit
def _attend_half(
    y, q_ring, ring, blocks, turns, q_full, q_empty, full, empty, n_rows, n_heads, section, scale_log2,
    CAUSAL: gl.constexpr, TURNS: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = ring.shape[0]
    BLOCK_N: gl.constexpr = ring.shape[2]
    BLOCK_D: gl.constexpr = ring.shape[3]
    HALF: gl.constexpr = q_ring.shape[2]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    s_rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    o_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    one: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    zeros = gl.zeros([HALF, BLOCK_N], gl.float32, s_layout)
    turn = 0
    done = 0
    products = 0
    hopper.mbarrier.wait(q_full.index(0), 0)
    index = gl.max(blocks.index(0).load(one), axis=0)
    while index >= 0:
        slot = turn % 2
        head, block = _block_of_queries(index, n_rows, n_heads, section, 2 * HALF, CAUSAL)
        steps = _tiles_of_keys(block * (2 * HALF), n_rows, 2 * HALF, BLOCK_N, CAUSAL)
        row = block * (2 * HALF) + PART * HALF
        queries = q_ring.index(slot * 2 + PART).reshape([HALF, BLOCK_D])

        stage = done % STAGES
        hopper.mbarrier.wait(full.index(stage), done // STAGES & 1)
        if TURNS:
            hopper.mbarrier.wait(turns.index(PART), (products & 1) ^ (1 - PART))
        keys = ring.index(stage).reshape([BLOCK_N, BLOCK_D]).permute((1, 0))
        pending = hopper.warpgroup_mma(queries, keys, zeros, use_acc=False, is_async=True)
        if TURNS:
            hopper.mbarrier.arrive(turns.index(1 - PART), count=1)
        products += 1
        scores = hopper.warpgroup_mma_wait(0, deps=(pending,))
        hopper.mbarrier.arrive(empty.index(stage), count=1)
        done += 1
        at = (steps - 1) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, s_layout))
        visible = (at < n_rows)[None, :]
        if CAUSAL:
            visible = visible & (at[None, :] <= (row + gl.arange(0, HALF, s_rows))[:, None])
        scores = gl.where(visible, scores, -float("inf"))
        powers, highest = _powers(scores, gl.full([HALF], -float("inf"), gl.float32, s_rows), scale_log2)
        total = gl.sum(powers, axis=1)
        weights = gl.convert_layout(powers.to(y.dtype), p_layout)
        acc = gl.zeros([HALF, BLOCK_D], gl.float32, o_layout)

        hopper.mbarrier.wait(full.index(done % STAGES), done // STAGES & 1)
        for _ in range(1, steps):
            k_stage = done % STAGES
            v_stage = (done + 1) % STAGES
            if TURNS:
                hopper.mbarrier.wait(turns.index(PART), (products & 1) ^ (1 - PART))
            keys = ring.index(k_stage).reshape([BLOCK_N, BLOCK_D]).permute((1, 0))
            pending = hopper.warpgroup_mma(queries, keys, zeros, use_acc=False, is_async=True)
            hopper.mbarrier.wait(full.index(v_stage), (done + 1) // STAGES & 1)
            values = ring.index(v_stage).reshape([BLOCK_N, BLOCK_D])
            sums = hopper.warpgroup_mma(weights, values, acc, is_async=True)
            if TURNS:
                hopper.mbarrier.arrive(turns.index(1 - PART), count=1)
            products += 1
            # The product with the keys is done; that with the values runs beside the softmax.
            scores = hopper.warpgroup_mma_wait(1, deps=(pending,))
            hopper.mbarrier.arrive(empty.index(k_stage), count=1)
            powers, risen = _powers(scores, highest, scale_log2)
            kept = gl.exp2(highest - risen)
            total = total * kept + gl.sum(powers, axis=1)
            highest = risen
            done += 2
            # A wait for the next tile here also keeps the compiler from moving the next line up over the softmax.
            hopper.mbarrier.wait(full.index(done % STAGES), done // STAGES & 1)
            acc, powers, weights = hopper.warpgroup_mma_wait(0, deps=(sums, powers, weights))
            hopper.mbarrier.arrive(empty.index(v_stage), count=1)
            acc = acc * gl.convert_layout(kept, o_rows)[:, None]
            weights = gl.convert_layout(powers.to(y.dtype), p_layout)

        stage = done % STAGES
        values = ring.index(stage).reshape([BLOCK_N, BLOCK_D])
        sums = hopper.warpgroup_mma(weights, values, acc, is_async=True)
        acc, weights = hopper.warpgroup_mma_wait(0, deps=(sums, weights))
        hopper.mbarrier.arrive(empty.index(stage), count=1)
        done += 1

        # The queries of this half are used up: their buffer carries the result out.
        result = acc * gl.convert_layout(1.0 / total, o_rows)[:, None]
        queries.store(result.to(y.dtype))
        hopper.fence_async_shared()
        tl.debug_barrier()
        async_store(y, [head, row, 0], q_ring.index(slot * 2 + PART))
        hopper.tma.store_wait(0)
        hopper.mbarrier.arrive(q_empty.index(slot), count=1)
        turn += 1
        slot = turn % 2
        hopper.mbarrier.wait(q_full.index(slot), turn // 2 & 1)
        index = gl.max(blocks.index(slot).load(one), axis=0)


@gluon.jit
def flash_attention_causal_pipelined(
    q,
    k,
    v,
    y,
    fetched_ptr,
    n_rows,
    n_heads,
    section,
    scale_log2,
    GROUP: gl.constexpr,
    CAUSAL: gl.constexpr,
    STAGES: gl.constexpr,
    TURNS: gl.constexpr,
):
    barrier: gl.constexpr = hopper.mbarrier.MBarrierLayout()
    q_ring = gl.allocate_shared_memory(q.dtype, [4, 1, q.block_shape[1], q.block_shape[2]], q.layout)
    ring = gl.allocate_shared_memory(k.dtype, [STAGES, 1, k.block_shape[1], k.block_shape[2]], k.layout)
    blocks = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    q_empty = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    for i in gl.static_range(2):
        hopper.mbarrier.init(turns.index(i), count=1)
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
            y, q_ring, ring, blocks, turns, q_full, q_empty, full, empty, n_rows, n_heads, section, scale_log2,
            CAUSAL, TURNS, UPPER,
        )),
        (_attend_half, (
            y, q_ring, ring, blocks, turns, q_full, q_empty, full, empty, n_rows, n_heads, section, scale_log2,
            CAUSAL, TURNS, LOWER,
        )),
        (_load_tiles, (
            q, k, v, fetched_ptr, q_ring, ring, blocks, q_full, q_empty, full, empty, n_rows, n_heads, section,
            GROUP, CAUSAL,
        )),
    ], [4, 1], [240, 24])
    # fmt: on


def flash_attention_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return, over the keys up to each query's own, softmax(q · kᵀ / sqrt(D)) · v.

    Shapes: q (B, HQ, S, D), k and v (B, HKV, S, D) of one dtype on one GPU; the result as q.
    """
    import torch

    inputs = {"q": q.contiguous(), "k": k.contiguous(), "v": v.contiguous()}
    out = torch.empty_like(inputs["q"])
    b, hq, s, d = q.shape
    shape = {"B": b, "HQ": hq, "HKV": k.shape[1], "S": s, "D": d}
    major, minor = torch.cuda.get_device_capability(q.device)
    config = config_for(shape, _dtype_name(q), f"sm_{major}{minor}")
    if any(tensor.data_ptr() % _TMA_ALIGNMENT for tensor in inputs.values()):
        config = {**_portable_config(shape, _dtype_name(q), f"sm_{major}{minor}"), "tma": 0}
    prepare_triton(inputs, out, config)()
    return out


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Make the descriptors and return the launch."""
    if config["pipeline"]:
        return _prepare_pipelined(inputs, out, config)
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    b, hq, s, d = q.shape
    shape = {"B": b, "HQ": hq, "HKV": k.shape[1], "S": s, "D": d}
    constants = _constants(config, shape)
    operands: tuple[object, ...] = (q, k, v, out)
    if config["tma"]:
        rows = (config["block_m"], config["block_n"], config["block_n"], config["block_m"])
        operands = tuple(
            _descriptor(tensor.view(-1, s, d), [1, block, constants["BLOCK_D"]])
            for tensor, block in zip((q, k, v, out), rows, strict=True)
        )
    grid = (b * hq, -(-s // config["block_m"]))
    scale_log2 = _scale_log2(d)

    def launch() -> None:
        flash_attention_causal_kernel[grid](
            *operands, s, d // constants["UNIT"], scale_log2,
            **constants, num_warps=config["num_warps"], num_stages=config["num_stages"],
        )  # fmt: skip

    return launch


def _prepare_pipelined(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    b, hq, s, d = inputs["q"].shape
    shape = {"B": b, "HQ": hq, "HKV": inputs["k"].shape[1], "S": s, "D": d}
    tensors = {**inputs, "y": out}
    operands = [
        TensorDescriptor.from_tensor(tensors[name].view(-1, s, d), block, _layout(block))
        for name, block in _blocks(config, shape).items()
    ]
    fetched = torch.zeros(1, dtype=torch.int32, device=out.device)
    programs = (min(b * hq * -(-s // config["block_m"]), config["programs"]),)
    scale_log2 = _scale_log2(d)

    def launch() -> None:
        flash_attention_causal_pipelined[programs](
            *operands, fetched, s, b * hq, _section(shape), scale_log2,
            **_pipelined_constants(config, shape), num_warps=config["num_warps"],
        )  # fmt: skip

    return launch


def _blocks(config: Config, shape: Shape) -> dict[str, list[int]]:
    block_n, block_d = config["block_n"], _block_d(shape)
    # Two groups of warps take half of the queries each.
    half = [1, config["block_m"] // 2, block_d]
    return {"q": half, "k": [1, block_n, block_d], "v": [1, block_n, block_d], "y": half}


def _layout(block: list[int]) -> Any:
    return gl.NVMMASharedLayout.get_default_for(block, gl.float16)


def _pipelined_constants(config: Config, shape: Shape) -> dict[str, int]:
    return {
        "GROUP": shape["HQ"] // shape["HKV"],
        "CAUSAL": int(CAUSAL),
        "STAGES": config["num_stages"],
        "TURNS": config["turns"],
    }


def _section(shape: Shape) -> int:
    """Return how many query heads may be under way at once so that their keys and values stay in L2."""
    heads = _L2_SHARE // (4 * shape["S"] * _block_d(shape))
    return max(1, heads) * (shape["HQ"] // shape["HKV"])


def _block_d(shape: Shape) -> int:
    return max(1 << (shape["D"] - 1).bit_length(), 16)


def _scale_log2(d: int) -> float:
    """Return what a score is multiplied by, so that powers of two make its softmax."""
    return math.log2(math.e) / math.sqrt(d)


def _descriptor(tensor: Tensor, block: list[int]) -> object:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(tensor, block)


def _constants(config: Config, shape: Shape) -> dict[str, int]:
    return {
        "UNIT": math.gcd(shape["D"], _WIDEST_UNIT),
        "GROUP": shape["HQ"] // shape["HKV"],
        "BLOCK_M": config["block_m"],
        "BLOCK_N": config["block_n"],
        "BLOCK_D": _block_d(shape),
        "CAUSAL": int(CAUSAL),
        "TMA": config["tma"],
    }


def _dtype_name(tensor: Tensor) -> Dtype:
    import torch

    names: dict[object, Dtype] = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    if tensor.dtype not in names:
        raise InputError(f"{_NAME}: dtype is {tensor.dtype}; expected float16, bfloat16 or float32")
    return names[tensor.dtype]


def prepare_torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return torch's scaled_dot_product_attention, in fp32."""
    import torch

    q, k, v = (inputs[name] for name in ("q", "k", "v"))
    grouped = q.shape[1] != k.shape[1]

    def launch() -> None:
        out.copy_(
            torch.nn.functional.scaled_dot_product_attention(
                q.float(), k.float(), v.float(), is_causal=CAUSAL, enable_gqa=grouped
            )
        )

    return launch


def _prepare_sdpa(backend: str) -> Prepare:
    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = (inputs[name] for name in ("q", "k", "v"))
        grouped = q.shape[1] != k.shape[1]
        chosen = getattr(SDPBackend, backend)

        def attend() -> Tensor:
            with sdpa_kernel(chosen):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=CAUSAL, enable_gqa=grouped)

        return keeping(attend)

    return prepare


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64, a block of queries of one head at a time to spare memory."""
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    b, hq, s, d = q.shape
    group = hq // k.shape[1]
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for batch in range(b):
        for head in range(hq):
            keys, values = k[batch, head // group].double(), v[batch, head // group].double()
            for first in range(0, s, _REFERENCE_ROWS):
                rows = torch.arange(first, min(first + _REFERENCE_ROWS, s), device=q.device)
                scores = q[batch, head, rows].double() @ keys.T / math.sqrt(d)
                if CAUSAL:
                    scores.masked_fill_(torch.arange(s, device=q.device)[None, :] > rows[:, None], -math.inf)
                out[batch, head, rows] = torch.softmax(scores, dim=-1) @ values
    return out


_REFERENCE_ROWS = 4096


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count two products of 2·D operations a query and key that it sees; each operand moves once."""
    b, hq, hkv, s, d = (shape[key] for key in ("B", "HQ", "HKV", "S", "D"))
    element = DTYPE_BYTES[dtype]
    seen = s * (s + 1) // 2 if CAUSAL else s * s
    return Work(
        flops=4 * b * hq * seen * d,
        bytes_read=element * (b * hq + 2 * b * hkv) * s * d,
        bytes_written=element * b * hq * s * d,
    )


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return the instruction path, as found in the compiled code (tests/test_kernel_attention.py).

    On sm_75 Triton compiles the products to scalar fp32 multiply-adds: no tensor-core instruction.
    """
    if implementation != "triton" or dtype == "fp32" or target == "sm_75":
        return "fp32"
    return "fp16_tensor" if dtype == "fp16" else "bf16_tensor"


_TMA_ALIGNMENT = 16
_TMA_TARGETS = ("sm_90", "sm_100")
_WIDEST_UNIT = 16
_SHARED_BYTES = {"sm_75": 65_536, "sm_80": 166_912, "sm_89": 101_376, "sm_90": 232_448, "sm_100": 232_448}

# (target, widest D) -> (BLOCK_M, BLOCK_N, num_warps, num_stages). On sm_90 measured on an H200 at S 6144; two programs
# a multiprocessor there, so that one's softmax runs beside the other's products.
_TILES = {
    ("sm_75", 64): (32, 32, 8, 1),
    ("sm_75", 128): (32, 16, 8, 1),
    ("sm_80", 64): (128, 64, 8, 2),
    ("sm_80", 128): (128, 32, 8, 2),
    ("sm_89", 64): (64, 64, 4, 2),
    ("sm_89", 128): (64, 64, 4, 2),
    ("sm_90", 64): (64, 128, 4, 2),
    ("sm_90", 128): (128, 64, 4, 2),
    ("sm_100", 64): (128, 64, 8, 2),
    ("sm_100", 128): (128, 64, 8, 2),
}
# Columns of a head -> tiles of 128 keys or values that fit beside two blocks of 128 queries on sm_90.
_PIPELINED_STAGES = {64: 10, 128: 5}
_MULTIPROCESSORS = 132
# Bytes of keys and values that are used at one time: about half of L2.
_L2_SHARE = 32 << 20
_TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100")


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    portable = _portable_config(shape, dtype, target)
    if target != "sm_90" or not portable["tma"] or _block_d(shape) not in _PIPELINED_STAGES:
        return portable
    # Taking turns pays or does no harm but for causal attention of 128 columns, which it slows by 2%.
    return {
        **portable, "block_m": 128, "block_n": 128, "num_warps": 4, "num_stages": _PIPELINED_STAGES[_block_d(shape)],
        "pipeline": 1, "programs": _MULTIPROCESSORS, "turns": int(not CAUSAL or _block_d(shape) == 64),
    }  # fmt: skip


def _portable_config(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    if target not in _TARGETS:
        raise InputError(f"{_NAME}: no launch configuration for {target}; expected one of: {', '.join(_TARGETS)}")
    _check_dtype(dtype, target)
    block_m, block_n, num_warps, num_stages = _TILES[target, 64 if shape["D"] <= 64 else 128]
    aligned = shape["D"] * DTYPE_BYTES[dtype] % _TMA_ALIGNMENT == 0
    if not aligned and target != "sm_75":
        # Rows loaded element by element need registers for their addresses: the others spill.
        block_m, block_n, num_warps, num_stages = 32, 32 if shape["D"] <= 128 else 16, 8, 1
    config = {
        "block_m": block_m,
        "block_n": block_n,
        "num_warps": num_warps,
        "num_stages": num_stages,
        "tma": int(target in _TMA_TARGETS and aligned),
        "pipeline": 0,
        "programs": 0,
        "turns": 0,
    }
    while shared_bytes(config, shape, dtype) > _SHARED_BYTES[target]:
        if config["num_stages"] > 1:
            config["num_stages"] -= 1
        else:
            smaller = "block_n" if config["block_n"] > 16 else "block_m"
            config[smaller] //= 2
    return config


def _check_dtype(dtype: Dtype, target: str) -> None:
    if dtype == "fp32":
        raise InputError(f"{_NAME}: fp32 is for CPUs, not {target}; expected fp16 or bf16")
    if target == "sm_75" and dtype == "bf16":
        raise InputError(f"{_NAME}: sm_75 has no bf16; expected fp16")


def shared_bytes(config: Config, shape: Shape, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    element, block_d = DTYPE_BYTES[dtype], _block_d(shape)
    queries, keys = element * config["block_m"] * block_d, element * config["block_n"] * block_d
    if config["pipeline"]:
        return 2 * queries + config["num_stages"] * keys + 1024
    powers = element * config["block_m"] * config["block_n"]
    return queries + 2 * max(config["num_stages"], 1) * keys + powers + 8192


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    if set(config) != set(_CONFIG_KEYS):
        raise InputError(
            f"{_NAME}: configuration keys are {','.join(sorted(config))}; expected {','.join(_CONFIG_KEYS)}"
        )
    if target not in _SHARED_BYTES:
        raise InputError(f"{_NAME}: target {target} is unknown; expected one of: {', '.join(_SHARED_BYTES)}")
    _check_dtype(dtype, target)
    if shape["HQ"] % shape["HKV"]:
        raise InputError(
            f"{_NAME}: HQ is {shape['HQ']} with HKV {shape['HKV']}; expected a multiple: each group of query "
            "heads shares one key head"
        )
    for key, least, most in (("block_m", 16, 256), ("block_n", 16, 256), ("num_warps", 1, 16)):
        value = config[key]
        if not least <= value <= most or value & (value - 1):
            raise InputError(f"{_NAME}: {key} is {value}; expected a power of two from {least} to {most}")
    if not 1 <= config["num_stages"] <= 16:
        raise InputError(f"{_NAME}: num_stages is {config['num_stages']}; expected 1 to 16")
    if config["tma"] not in (0, 1) or (config["tma"] and target not in _TMA_TARGETS):
        raise InputError(f"{_NAME}: tma is {config['tma']}; expected 0, or 1 from sm_90 up")
    if config["tma"] and shape["D"] * DTYPE_BYTES[dtype] % _TMA_ALIGNMENT:
        raise InputError(
            f"{_NAME}: tma is 1 with D={shape['D']} in {dtype}; expected rows of a multiple of "
            f"{_TMA_ALIGNMENT} bytes, or tma 0"
        )
    _check_pipeline(config, shape, target)
    need = shared_bytes(config, shape, dtype)
    if need > _SHARED_BYTES[target]:
        raise InputError(
            f"{_NAME}: tiles need {need} bytes of shared memory; {target} has {_SHARED_BYTES[target]}: "
            "take fewer num_stages or a smaller block_n"
        )


def _check_pipeline(config: Config, shape: Shape, target: str) -> None:
    if config["pipeline"] not in (0, 1) or (config["pipeline"] and (target != "sm_90" or not config["tma"])):
        raise InputError(f"{_NAME}: pipeline is {config['pipeline']} on {target}; expected 0, or 1 on sm_90 with tma 1")
    if not config["pipeline"]:
        if config["programs"] or config["turns"]:
            raise InputError(f"{_NAME}: programs and turns are for pipeline 1; expected 0 and 0")
        return
    if config["block_m"] != 128 or config["num_warps"] != 4 or _block_d(shape) not in _PIPELINED_STAGES:
        raise InputError(
            f"{_NAME}: pipeline is 1 with D={shape['D']}; expected D from 33 to 128, block_m 128 and 4 warps"
        )
    if config["num_stages"] < 3 or config["programs"] < 1 or config["turns"] not in (0, 1):
        raise InputError(f"{_NAME}: pipeline is 1; expected 3 stages or more, programs from 1 and turns 0 or 1")


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return what Triton needs to compile the kernel without a GPU."""
    if config["pipeline"]:
        return _ahead_pipelined(config, shape, dtype)
    constants = _constants(config, shape)
    rows = {"q": config["block_m"], "k": config["block_n"], "v": config["block_n"], "y": config["block_m"]}
    operands = {
        name: f"tensordesc<{dtype}[1,{block},{constants['BLOCK_D']}]>" if config["tma"] else f"*{dtype}"
        for name, block in rows.items()
    }
    sizes = {"n_rows": "i32", "n_units": "i32", "scale_log2": "fp32"}
    return Ahead(
        function=flash_attention_causal_kernel,
        signature={**operands, **sizes, **dict.fromkeys(constants, "constexpr")},
        constants=constants,
        options={"num_warps": config["num_warps"], "num_stages": config["num_stages"]},
    )


def _ahead_pipelined(config: Config, shape: Shape, dtype: Dtype) -> Ahead:
    operands = {
        name: f"tensordesc<{dtype}[{','.join(map(str, block))}],{_layout(block)!r}>"
        for name, block in _blocks(config, shape).items()
    }
    constants = _pipelined_constants(config, shape)
    sizes = {"fetched_ptr": "*i32", "n_rows": "i32", "n_heads": "i32", "section": "i32", "scale_log2": "fp32"}
    return Ahead(
        function=flash_attention_causal_pipelined,
        signature={**operands, **sizes, **dict.fromkeys(constants, "constexpr")},
        constants=constants,
        options={"num_warps": config["num_warps"]},
    )


_CONFIG_KEYS = ("block_m", "block_n", "num_warps", "num_stages", "tma", "pipeline", "programs", "turns")

CASES: tuple[dict[str, int], ...] = (
    *({"B": 16384 // s, "HQ": 16, "HKV": 16, "S": s, "D": d} for s in (2048, 4096, 8192, 16384) for d in (64, 128)),
    {"B": 1, "HQ": 32, "HKV": 8, "S": 4096, "D": 128},
    {"B": 1, "HQ": 1, "HKV": 1, "S": 1, "D": 1},
    {"B": 2, "HQ": 6, "HKV": 2, "S": 1031, "D": 67},
)

KERNEL = Kernel(
    name=_NAME,
    operation=FLASH_ATTENTION_CAUSAL,
    summary="causal attention of whole sequences, forward",
    formula="each query sees the keys up to its own: y = softmax(q · kᵀ / sqrt(D)) · v",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="masked scores on the diagonal, "
    "re-reads of k and v by each block of queries (L2), padding to whole tiles, the softmax",
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(
            6e-4, 5e-4, "powers of up to 1 are rounded to 11 bits, values are up to 2; one more rounding"
        ),
        "bf16": Tolerance(5e-3, 4e-3, "as fp16, with 8 bits: eight times as wide"),
        "fp32": Tolerance(1e-5, 1e-5, "scores of up to 16 have 24 bits, and their powers as many less four"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu},
    reference=reference,
    launched="^flash_attention_causal_(kernel|pipelined)$",
    baselines={
        "sdpa-cudnn": _prepare_sdpa("CUDNN_ATTENTION"),
        "sdpa-flash": _prepare_sdpa("FLASH_ATTENTION"),
        "sdpa-efficient": _prepare_sdpa("EFFICIENT_ATTENTION"),
    },
    ahead=ahead,
)

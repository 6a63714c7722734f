"""Compute C = A · B with a grid of persistent programs.

Formula: C[m, n] = Σ_k A[m, k] · B[k, n]
Shapes: A (M, K), B (K, N), C (M, N), all row-major and of one dtype (fp16 or bf16).
Traffic: e · (M·K + K·N) bytes read and e · M·N written, e bytes an element: each operand once.
Source: the grouped tile order is the one of Triton's matrix-multiplication tutorial.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, and with
`stream` the sums that programs leave for one another (at most 20 MB written and read, L2).

Precision: fp32 accumulation, one rounding to the dtype.
Determinism: each element is one program's sum in the order of k, or with `stream` the sum of a few programs' sums,
added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Candidate, Config, Kernel, Launch, Tolerance, import_triton
from ledger.kernels.common import gemm_rule
from ledger.kernels.common.baselines import dtype_name, library
from ledger.kernels.common.cuda import CudaSource, prepare_cuda, tensor_map
from ledger.kernels.common.gemm import (
    RESIDENT,
    Gemm,
    cluster_keys,
    cluster_programs,
    cluster_threads,
    group_rows,
    row_step,
    shared_bytes,
    tile_rows,
)
from ledger.kernels.common.gemm import cluster_shape as _cluster_shape
from ledger.kernels.common.gemm import split as _split
from ledger.kernels.common.gemm import swapped as _swapped
from ledger.kernels.common.gluon import import_gluon
from ledger.kernels.common.targets import SMS, ceil_div, matmul_path
from ledger.operations import MATMUL, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper = _gluon.gluon, _gluon.language, _gluon.hopper
async_load, async_store = _gluon.async_load, _gluon.async_store


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    n_rows,
    n_cols,
    n_inner,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SUBTILES: tl.constexpr,
    TMA: tl.constexpr,
):
    tiles_m = tl.cdiv(n_rows, BLOCK_M)
    tiles_n = tl.cdiv(n_cols, BLOCK_N)
    tiles_k = tl.cdiv(n_inner, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=TMA):
        # GROUP_M rows of tiles share the columns of B that they read while these are in L2.
        group = tile // (GROUP_M * tiles_n)
        group_rows = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
        in_group = tile % (GROUP_M * tiles_n)
        row = (group * GROUP_M + in_group % group_rows) * BLOCK_M
        col = (in_group // group_rows) * BLOCK_N
        rows = row + tl.arange(0, BLOCK_M)
        cols = col + tl.arange(0, BLOCK_N)

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in tl.range(tiles_k):
            if TMA:
                a_tile = a.load([row, step * BLOCK_K])
                b_tile = b.load([step * BLOCK_K, col])
            else:
                inner = step * BLOCK_K + tl.arange(0, BLOCK_K)
                a_tile = tl.load(
                    a + rows.to(tl.int64)[:, None] * n_inner + inner[None, :],
                    mask=(rows < n_rows)[:, None] & (inner < n_inner)[None, :],
                    other=0.0,
                )
                b_tile = tl.load(
                    b + inner.to(tl.int64)[:, None] * n_cols + cols[None, :],
                    mask=(inner < n_inner)[:, None] & (cols < n_cols)[None, :],
                    other=0.0,
                )
            acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee")

        if TMA:
            # The store goes through shared memory: in parts it leaves room for one more load stage.
            if SUBTILES == 2:
                halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
                left, right = tl.split(halves)
                c.store([row, col], left.to(c.dtype))
                c.store([row, col + BLOCK_N // 2], right.to(c.dtype))
            else:
                c.store([row, col], acc.to(c.dtype))
        else:
            tl.store(
                c + rows.to(tl.int64)[:, None] * n_cols + cols[None, :],
                acc.to(c.dtype.element_ty),
                mask=(rows < n_rows)[:, None] & (cols < n_cols)[None, :],
            )


@gluon.jit
def _tile_origin(tile, n_rows, n_cols, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    tiles_m = gl.cdiv(n_rows, BLOCK_M)
    tiles_n = gl.cdiv(n_cols, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    group_rows = gl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    in_group = tile % (GROUP_M * tiles_n)
    return (group * GROUP_M + in_group % group_rows) * BLOCK_M, (in_group // group_rows) * BLOCK_N


@gluon.jit
def _load_tiles(a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M: gl.constexpr):
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a.block_shape[0]
    BLOCK_K: gl.constexpr = a.block_shape[1]
    BLOCK_N: gl.constexpr = b.block_shape[1]
    tiles = gl.cdiv(n_rows, BLOCK_M) * gl.cdiv(n_cols, BLOCK_N)
    steps = gl.cdiv(n_inner, BLOCK_K)
    done = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = _tile_origin(tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP_M)
        for step in range(steps):
            stage = done % STAGES
            hopper.mbarrier.wait(empty.index(stage), (done // STAGES & 1) ^ 1)
            hopper.mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes)
            async_load(a, [row, step * BLOCK_K], full.index(stage), a_ring.index(stage))
            async_load(b, [step * BLOCK_K, col], full.index(stage), b_ring.index(stage))
            done += 1


@gluon.jit
def _multiply_tiles(
    c, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner, GROUP_M: gl.constexpr, PART: gl.constexpr
):
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[2]
    ROWS: gl.constexpr = c.block_shape[0]
    COLS: gl.constexpr = c.block_shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    tiles = gl.cdiv(n_rows, BLOCK_M) * gl.cdiv(n_cols, BLOCK_N)
    steps = gl.cdiv(n_inner, BLOCK_K)
    done = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = _tile_origin(tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP_M)
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        for step in range(steps):
            stage = done % STAGES
            hopper.mbarrier.wait(full.index(stage), done // STAGES & 1)
            acc = hopper.warpgroup_mma(
                a_ring.index(stage).slice(PART * ROWS, ROWS), b_ring.index(stage), acc, is_async=True
            )
            acc = hopper.warpgroup_mma_wait(1, deps=(acc,))
            hopper.mbarrier.arrive(empty.index((done + STAGES - 1) % STAGES), count=1, pred=step > 0)
            done += 1
        acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
        hopper.mbarrier.arrive(empty.index((done + STAGES - 1) % STAGES), count=1)
        # The store of the tile before may still read the buffer; the loads of the next tile are under way.
        buffer = c_smem.index(PART)
        out = acc.to(c.dtype)
        if COLS == BLOCK_N:
            hopper.tma.store_wait(0)
            tl.debug_barrier()
            buffer.store(out)
            hopper.fence_async_shared()
            tl.debug_barrier()
            async_store(c, [row + PART * ROWS, col], buffer)
        else:
            left, right = gl.split(gl.permute(gl.reshape(out, [ROWS, 2, COLS]), (0, 2, 1)))
            for half in gl.static_range(2):
                hopper.tma.store_wait(0)
                tl.debug_barrier()
                buffer.store(right if half else left)
                hopper.fence_async_shared()
                tl.debug_barrier()
                async_store(c, [row + PART * ROWS, col + half * COLS], buffer)
    hopper.tma.store_wait(0)


@gluon.jit
def matmul_pipelined(a, b, c, n_rows, n_cols, n_inner, STAGES: gl.constexpr, GROUP_M: gl.constexpr):
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
    gl.warp_specialize(
        [
            (_multiply_tiles, (c, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner, GROUP_M, FIRST)),
            (_multiply_tiles, (c, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner, GROUP_M, SECOND)),
            (_load_tiles, (a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M)),
        ],
        [4, 1],
        [232, 40],
    )


# CUDA C++ for sm_90, which Gluon cannot express in triton 3.6: GROUPS groups of four warps multiply 64 rows of a tile
# each. A cluster is ROWS programs, one above the other, by COLS, side by side: each loads a share of its tile of A for
# those beside it and of its tile of B for those above and below. With STREAM the tiles that would leave the last wave
# nearly empty are divided by steps of k among all clusters; who ends a tile adds the others' sums in a fixed order.
# With SPLIT 2 a cluster is twice as large: two programs multiply half of a tile's steps each, exchange sums through
# each other's shared memory and end half of its rows each. The other macros are BLOCK_M, BLOCK_N, STAGES and BF16. A
# program multiplies BLOCK_M rows, of which it loads and stores tile_rows: the rows of C are divided evenly among the
# tiles. With SWAPPED the operands change over: a group multiplies 64 columns of B by all rows of the tile, which are
# wgmma's columns, so that they come in eights where a group's rows come in 64s.
_CLUSTER = r"""
#if BF16
#define TWO "bf16x2"
#else
#define TWO "f16x2"
#endif
typedef unsigned int u32; typedef unsigned long long u64; typedef unsigned short u16;
struct __align__(64) TensorMap { u64 opaque[16]; };

constexpr int BLOCK_K = 64, CHUNKS = BLOCK_K / 16, BOXES = BLOCK_N / 64;
constexpr int GROUPS = (SWAPPED ? BLOCK_N : BLOCK_M) / 64;    // of four warps that multiply
constexpr int ACC = (SWAPPED ? BLOCK_M : BLOCK_N) / 2;   // sums of a thread: 64 by BLOCK_N or BLOCK_M in a group of 128
constexpr int CONSUMERS = 4 * GROUPS, LOADER = CONSUMERS;     // warps
constexpr int THREADS = 32 * CONSUMERS;                  // that multiply
constexpr int PLACES = ROWS * COLS;                      // programs of a cluster that multiply the same steps
constexpr u32 A_BYTES = BLOCK_M * BLOCK_K * 2, B_BYTES = BLOCK_K * BLOCK_N * 2, STAGE_BYTES = A_BYTES + B_BYTES;
// 16 rows by 64 columns, two of them a warp. With SWAPPED a group's are two of 64 rows.
constexpr u32 RING = STAGES * STAGE_BYTES, C_BYTES = 2048;
// Sums that the other part leaves here, and then the result, lie where the ring was.
constexpr u32 C_AT = SPLIT > 1 ? THREADS * ACC * 2 : RING, C_END = C_AT + CONSUMERS * 2 * C_BYTES;
constexpr u32 BARRIERS_AT = C_END > RING ? C_END : RING;

#define DEVICE __device__ __forceinline__
DEVICE u32 shared(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE bool elected() {
    u32 one;
    asm volatile("{.reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p;}" : "=r"(one));
    return one;
}
DEVICE void init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count));
}
DEVICE void expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
DEVICE void arrive(u32 bar, u32 rank) {
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];}" :: "r"(bar), "r"(rank) : "memory");
}
DEVICE void wait(u32 bar, u32 phase) {
    asm volatile("{\n.reg .pred done;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(bar), "r"(phase) : "memory");
}
DEVICE void prefetch(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }
DEVICE void load(u32 to, const TensorMap* map, int inner, int outer, u32 bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" :: "r"(to), "l"(map), "r"(inner), "r"(outer), "r"(bar) : "memory");
}
// Into the shared memory of the programs of a mask, at the same place, counted at the barrier of each.
DEVICE void load_for(u32 mask, u32 to, const TensorMap* map, int inner, int outer, u32 bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3}], [%4], %5;"
        :: "r"(to), "l"(map), "r"(inner), "r"(outer), "r"(bar), "h"((u16)mask) : "memory");
}
DEVICE void store(const TensorMap* map, int inner, int outer, u32 from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
        :: "l"(map), "r"(inner), "r"(outer), "r"(from) : "memory");
}
DEVICE u32 packed(float lo, float hi) {
    u32 r;
    asm("cvt.rn." TWO ".f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
// Read anew in each role: what both roles hold the compiler keeps in local memory.
DEVICE int cluster_id() {
    int id;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id));
    return id;
}
DEVICE int thread_id() {
    int id;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(id));
    return id;
}
DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
DEVICE void group_barrier(int group) { asm volatile("bar.sync %0, 128;" :: "r"(group + 1) : "memory"); }
@MMA@

// Lists what a cluster multiplies, the same for its loader and for the warps that multiply: whole tiles in turn, then
// its share of the tiles that would leave the last wave nearly empty, whose steps all clusters divide evenly.
struct Walk {
    int tiles, steps, clusters, whole, next;
    int begin, end;
    int tile, first, last;
    int part;

    DEVICE Walk(int tiles, int steps, int cluster, int clusters, int part)
        : tiles(tiles), steps(steps), clusters(clusters), whole(tiles), next(cluster), part(part) {
        begin = end = 0;
        if (STREAM && tiles % clusters) {
            const int divided = tiles < clusters ? tiles : clusters + tiles % clusters;
            whole = tiles - divided;
            begin = bound(cluster);
            end = bound(cluster + 1);
        }
    }
    DEVICE int bound(int cluster) const { return (u32)((tiles - whole) * steps * cluster) / (u32)clusters; }
    // The last piece comes first: another cluster waits for it, and none for the piece that ends a tile.
    DEVICE bool advance() {
        if (next < whole) {
            tile = next; first = steps * part / SPLIT; last = steps * (part + 1) / SPLIT;
            next += clusters;
            return true;
        }
        if (begin >= end) return false;
        tile = (end - 1) / steps;
        const int start = tile * steps;
        first = max(begin - start, 0);
        last = end - start;
        end = start + first;
        tile += whole;
        return true;
    }
};

// Where a thread has sum i of the k-th four of a part's: a part ends half of each 16 rows, with SWAPPED half of all.
constexpr DEVICE int place_of(int part, int k, int i) {
    return SWAPPED ? part * (ACC / 2) + 4 * k + i : 8 * k + 4 * (i / 2) + 2 * part + i % 2;
}
// Leaves the sums of one half in the other part's shared memory and adds to its own half what that left here. The sums
// that a program ends come to lie in the first half of acc.
DEVICE void exchange(float (&acc)[ACC], u32 ring, int thread, int part, int other) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(ring + thread * 16), "r"(other));
    // All loads of both programs have come, and all products have read them.
    cluster_barrier();
#pragma unroll
    for (int k = 0; k < ACC / 8; ++k) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = part ? acc[place_of(0, k, i)] : acc[place_of(1, k, i)];
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
            :: "r"(there + k * THREADS * 16), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
    }
    cluster_barrier();
#pragma unroll
    for (int k = 0; k < ACC / 8; ++k) {
        float r[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
            : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "r"(ring + (k * THREADS + thread) * 16) : "memory");
        float own[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) own[i] = part ? acc[place_of(1, k, i)] : acc[place_of(0, k, i)];
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[4 * k + i] = own[i] + r[i];
    }
}

extern "C" __global__ void __cluster_dims__(PLACES * SPLIT, 1, 1) __launch_bounds__(THREADS + 128, 1)
matmul_cluster(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
    const __grid_constant__ TensorMap c_map, float4* partial, int* ready, int n_rows, int n_cols, int n_inner,
    int tile_rows, int last_row, int last_col, int group_rows)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int rank = blockIdx.x % (PLACES * SPLIT), part = rank / PLACES;
    const int down = rank % ROWS, right = rank % PLACES / ROWS;
    // The first of the programs that share this one's tile of A, and of B.
    const int beside = part * PLACES + down, above = part * PLACES + right * ROWS;
    auto full = [&](int s) { return ring + BARRIERS_AT + s * 16; };
    auto empty = [&](int s) { return ring + BARRIERS_AT + s * 16 + 8; };
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (threadIdx.x == 0) {
        prefetch(&a_map); prefetch(&b_map); prefetch(&c_map);
        // A stage is free when the warps of all programs have read it that get something of what this one loads.
        for (int s = 0; s < STAGES; ++s) { init(full(s), 1); init(empty(s), (ROWS + COLS - 1) * CONSUMERS); }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_barrier();
    // The launch before this one may have written the operands, and may still read what this one writes.
    asm volatile("griddepcontrol.wait;" ::: "memory");

    const int tiles_m = (n_rows + ROWS * BLOCK_M - 1) / (ROWS * BLOCK_M);
    const int tiles_n = (n_cols + COLS * BLOCK_N - 1) / (COLS * BLOCK_N);
    const int steps = (n_inner + BLOCK_K - 1) / BLOCK_K;
    // A tile's own rows and columns begin at own_row and own_col. What it loads begins at row and col, which lie before
    // them where it would reach beyond the matrix: zeros for what is not there come slowly.
    int own_row, own_col, row, col;
    auto place = [&](int tile) {
        const int group = tile / (group_rows * tiles_n), rest = tile % (group_rows * tiles_n);
        const int rows = min(group_rows, tiles_m - group * group_rows);
        own_row = ((group * group_rows + rest % rows) * ROWS + down) * tile_rows;
        own_col = (rest / rows * COLS + right) * BLOCK_N;
        row = min(own_row, last_row);
        col = min(own_col, last_col);
    };

    if (warp >= CONSUMERS) {
        if (GROUPS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (GROUPS == 3) asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (warp == LOADER && elected()) {
            Walk walk(tiles_m * tiles_n, steps, cluster_id(), gridDim.x / (PLACES * SPLIT), part);
            int s = 0, phase = 1;
            const u32 a_mask = (COLS == 2 ? 1 | 1 << ROWS : 1) << beside, b_mask = ((1 << ROWS) - 1) << above;
            while (walk.advance()) {
                place(walk.tile);
                const int share = tile_rows / COLS * right;
#pragma unroll 1
                for (int i = walk.first; i < walk.last; ++i) {
                    wait(empty(s), phase);
                    expect(full(s), tile_rows * BLOCK_K * 2 + B_BYTES);
                    const u32 a = ring + s * STAGE_BYTES, b = a + A_BYTES;
                    if (COLS == 1) {
                        load(a, &a_map, i * BLOCK_K, row, full(s));
                    } else {
                        load_for(a_mask, a + share * BLOCK_K * 2, &a_map, i * BLOCK_K, row + share, full(s));
                    }
                    if (ROWS == 1) {
#pragma unroll
                        for (int o = 0; o < BOXES; ++o)
                            load(b + o * 8192, &b_map, col + o * 64, i * BLOCK_K, full(s));
                    } else if (BOXES % ROWS == 0) {
#pragma unroll
                        for (int o = 0; o < BOXES / ROWS; ++o) {
                            const int box = down * (BOXES / ROWS) + o;
                            load_for(b_mask, b + box * 8192, &b_map, col + box * 64, i * BLOCK_K, full(s));
                        }
                    } else if (BLOCK_K % ROWS == 0) {
                        // The boxes do not divide: each program loads its share of the rows of all.
                        const int first = BLOCK_K / ROWS * down;
#pragma unroll
                        for (int o = 0; o < BOXES; ++o)
                            load_for(b_mask, b + o * 8192 + first * 128, &b_map, col + o * 64, i * BLOCK_K + first,
                                     full(s));
                    } else {
                        for (int o = down; o < BOXES; o += ROWS)
                            load_for(b_mask, b + o * 8192, &b_map, col + o * 64, i * BLOCK_K, full(s));
                    }
                    if (++s == STAGES) { s = 0; phase ^= 1; }
                }
            }
        }
        __syncwarp();
        if (SPLIT > 1) { cluster_barrier(); cluster_barrier(); }
    } else {
        if (GROUPS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        if (GROUPS == 3) asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        const int group = warp / 4, thread = thread_id(), lane = thread % 32;
        // A: rows of 64 inner positions (128 bytes, swizzled), 8 an atom. B: 64 columns by 8 inner positions an atom. A
        // group takes its 64 of A's rows, or with SWAPPED of B's columns, and all of the other operand.
        const u64 a_shape = (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
        const u64 b_shape = (u64)(8192 >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
        const u32 a_own = SWAPPED ? 0 : group * 8192, b_own = A_BYTES + (SWAPPED ? group * 8192 : 0);
#if SWAPPED
        const u32 out = ring + C_AT + group * 8 * C_BYTES;
        // Where lane l gives the address of a row of stmatrix: matrices lie as the next columns, then rows 8-15.
        const u32 out_row = (lane / 16 * 8 + lane % 8) * 128, out_swizzle = lane % 8, out_half = lane / 8 % 2;
#else
        const u32 out = ring + C_AT + warp * 2 * C_BYTES;
        // Where lane l gives the address of a row of stmatrix: matrices lie as rows 0-7, rows 8-15, the next columns.
        const u32 out_row = lane % 16 * 128, out_swizzle = lane % 8, out_half = lane / 16;
#endif
        const int cluster = cluster_id();
        Walk walk(tiles_m * tiles_n, steps, cluster, gridDim.x / (PLACES * SPLIT), part);
        // The programs that load something for this one, one a lane.
        const int loader = lane < ROWS ? above + lane : beside + (1 - right) * ROWS;
        int s = 0, phase = 0, turn = 0;
        while (walk.advance()) {
            float acc[ACC];
            int before = 0;
            if (SPLIT > 1) {
                // One step alone leaves the first part without any.
#pragma unroll
                for (int i = 0; i < ACC; ++i) acc[i] = 0.f;
            }
#pragma unroll 1
            for (int i = walk.first; i < walk.last; ++i) {
                // The same in all lanes, which the compiler does not see: descriptors belong in uniform registers.
                const u32 at = __shfl_sync(~0u, (ring & 0x3ffff) + s * STAGE_BYTES, 0);
                wait(full(s), phase);
                const u64 a = a_shape | (at + a_own) >> 4, b = b_shape | (at + b_own) >> 4;
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k) {
                    const u64 a_k = a + k * (32 >> 4), b_k = b + k * (2048 >> 4);
                    mma(acc, SWAPPED ? b_k : a_k, SWAPPED ? a_k : b_k, k > 0 || i > walk.first);
                }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                // The products of the step before are done; these run on.
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (i > walk.first && lane < ROWS + COLS - 1) arrive(empty(before), loader);
                before = s;
                if (++s == STAGES) { s = 0; phase ^= 1; }
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int i = 0; i < ACC; ++i) asm volatile("" : "+f"(acc[i]) :: "memory");
            if ((SPLIT == 1 || walk.first < walk.last) && lane < ROWS + COLS - 1) arrive(empty(before), loader);
            if (SPLIT > 1) exchange(acc, ring, thread, part, (rank + PLACES) % (PLACES * SPLIT));

            if (STREAM && walk.last < walk.steps) {
                // Another cluster ends this tile: it gets the sums so far, in the places of the same threads.
                float4* to = partial + (long long)blockIdx.x * (ACC / 4 * THREADS) + thread;
#pragma unroll
                for (int k = 0; k < ACC / 4; ++k)
                    __stcg(to + k * THREADS, make_float4(acc[4 * k], acc[4 * k + 1], acc[4 * k + 2], acc[4 * k + 3]));
                group_barrier(group);
                if (thread % 128 == 0) {
                    __threadfence();
                    asm volatile("st.release.gpu.global.s32 [%0], 1;"
                        :: "l"(ready + blockIdx.x * GROUPS + group) : "memory");
                }
                continue;
            }
            if (STREAM && walk.first > 0) {
                const int start = (walk.tile - walk.whole) * walk.steps;
                // Always in the same order, so that the sum has always the same bits.
#pragma unroll 1
                for (int other = cluster - 1;; --other) {
                    if (walk.bound(other + 1) > walk.bound(other)) {
                        int* flag = ready + (PLACES * other + rank) * GROUPS + group;
                        int there;
                        do {
                            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
                        } while (!__all_sync(~0u, there));
                        const long long from_program = PLACES * other + rank;
                        const float4* from = partial + from_program * (ACC / 4 * THREADS) + thread;
#pragma unroll
                        for (int k = 0; k < ACC / 4; ++k) {
                            // More at once would not stay in registers.
                            if (k % 16 == 0) asm volatile("" ::: "memory");
                            const float4 v = __ldcg(from + k * THREADS);
                            acc[4 * k] += v.x; acc[4 * k + 1] += v.y; acc[4 * k + 2] += v.z; acc[4 * k + 3] += v.w;
                        }
                        group_barrier(group);
                        // Ready for the next launch, which starts after this one ends.
                        if (thread % 128 == 0) *flag = 0;
                    }
                    if (walk.bound(other) <= start) break;
                }
            }
            place(walk.tile);
#if SWAPPED
            // A warp holds 16 columns of all rows that its program ends. The group gathers pieces of 64 rows by 64
            // columns, and each warp stores 16 rows of a piece: 8, then 8, since tiles begin at any multiple of 8.
            constexpr int ENDED = BLOCK_M / SPLIT, PIECES = (ENDED + 63) / 64;
            const int at = col + group * 64, mine = warp % 4 * 16;
            if (SPLIT > 1) row += part * ENDED;
#pragma unroll
            for (int o = 0; o < PIECES; ++o) {
                const u32 buffer = out + (PIECES % 2 ? turn++ % 2 : o % 2) * 4 * C_BYTES;
                // All warps' stores that used this buffer have read it.
                if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                __syncwarp();
                group_barrier(group);
#pragma unroll
                for (int j = 0; j < 4 && 64 * o + 16 * j < ENDED; ++j) {
                    // Where only 8 rows are left the next 8 are the same again and nobody stores them.
                    const int k = 32 * o + 8 * j, l = 64 * o + 16 * j + 8 < ENDED ? k + 4 : k;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                        :: "r"(buffer + j * C_BYTES + out_row + ((mine / 8 + out_half) ^ out_swizzle) * 16),
                        "r"(packed(acc[k], acc[k + 1])), "r"(packed(acc[k + 2], acc[k + 3])),
                        "r"(packed(acc[l], acc[l + 1])), "r"(packed(acc[l + 2], acc[l + 3])) : "memory");
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                group_barrier(group);
                if (lane == 0) {
#pragma unroll
                    for (int h = 0; h < 16; h += 8) {
                        const int in = 64 * o + mine + h, to = row + in;
                        // The other rows and columns are another tile's, or garbage where none were loaded.
                        const bool own = in < ENDED && (u32)(to - own_row) < (u32)tile_rows && to < n_rows;
                        if (own && own_col <= at && at < n_cols) store(&c_map, at, to, buffer + (mine + h) * 128);
                    }
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
            }
#else
            row += group * 64 + warp % 4 * 16;
            if (SPLIT > 1) row += part * 8;
            // The other rows are another tile's, or garbage where none were loaded; a warp's are never of both kinds.
            const bool own = (u32)(row - own_row) < (u32)tile_rows && row < n_rows;
#pragma unroll
            for (int o = 0; o < BOXES; ++o) {
                const u32 buffer = out + (BOXES % 2 ? turn++ % 2 : o % 2) * C_BYTES;
                // The store that used this buffer has read it.
                if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                __syncwarp();
#pragma unroll
                for (int j = 0; SPLIT > 1 && j < 2; ++j) {
                    const int k = 16 * o + 8 * j;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                        :: "r"(buffer + lane % 8 * 128 + ((4 * j + lane / 8) ^ out_swizzle) * 16),
                        "r"(packed(acc[k], acc[k + 1])), "r"(packed(acc[k + 2], acc[k + 3])),
                        "r"(packed(acc[k + 4], acc[k + 5])), "r"(packed(acc[k + 6], acc[k + 7])) : "memory");
                }
#pragma unroll
                for (int j = 0; SPLIT == 1 && j < 4; ++j) {
                    const int k = 32 * o + 8 * j;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                        :: "r"(buffer + out_row + ((2 * j + out_half) ^ out_swizzle) * 16),
                        "r"(packed(acc[k], acc[k + 1])), "r"(packed(acc[k + 2], acc[k + 3])),
                        "r"(packed(acc[k + 4], acc[k + 5])), "r"(packed(acc[k + 6], acc[k + 7])) : "memory");
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                __syncwarp();
                if (lane == 0) {
                    const int at = col + o * 64;
                    if (own && own_col <= at && at < n_cols) store(&c_map, at, row, buffer);
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
            }
#endif
        }
        if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        __syncwarp();
    }
    // The other program may still count at this one's barriers.
    if (SPLIT == 1) cluster_barrier();
}
"""


def _cluster_source(config: Config, dtype: Dtype) -> CudaSource:
    # What is columns to wgmma, and whether its operands lie along k: A's rows do, B's columns do not.
    swapped, kind = _swapped(config), "bf16" if dtype == "bf16" else "f16"
    columns = config["block_m"] if swapped else config["block_n"]
    rows, cols = _cluster_shape(config)
    sums = columns // 2
    registers = ", ".join(f"%{i}" for i in range(sums))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(sums))
    multiply = f"""DEVICE void mma(float (&d)[{sums}], u64 a, u64 b, int add) {{
    asm volatile("{{.reg .pred p; setp.ne.b32 p, %{sums + 2}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {{{registers}}},"
        " %{sums}, %{sums + 1}, p, 1, 1, {int(swapped)}, {int(not swapped)};}}"
        : {outputs} : "l"(a), "l"(b), "r"(add));
}}"""
    defines = {
        "BLOCK_M": config["block_m"], "BLOCK_N": config["block_n"], "STAGES": config["num_stages"], "ROWS": rows,
        "COLS": cols, "SPLIT": _split(config), "STREAM": int(config["stream"] == 1), "BF16": int(dtype == "bf16"),
        "SWAPPED": int(swapped),
    }  # fmt: skip
    text = _CLUSTER.replace("@MMA@", multiply)
    return CudaSource(text, "matmul_cluster", tuple((name, str(value)) for name, value in defines.items()))


def _prepare_cluster(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[1]
    dtype = dtype_name(a, "matmul")
    programs = cluster_programs(config, {"M": n_rows, "N": n_cols, "K": n_inner})
    shared = programs if config["stream"] == 1 else 0
    partial = torch.empty(shared * config["block_m"] * config["block_n"] + 4, dtype=torch.float32, device=a.device)
    ready = torch.zeros(config["num_warps"] // 4 * shared + 1, dtype=torch.int32, device=a.device)
    rows, cols = _cluster_shape(config)
    # Where boxes of 64 columns do not divide among programs, their rows do.
    shares = rows if config["block_n"] // 64 % rows and config["block_k"] % rows == 0 else 1
    rows_each = tile_rows(config, n_rows)
    # Where the last tiles begin to load.
    last_row = row_step(config) * ceil_div(n_rows, row_step(config)) - rows_each
    last_col = max(64 * ceil_div(n_cols, 64) - config["block_n"], 0)
    maps = [
        tensor_map(a, (rows_each // cols, config["block_k"]), promotion=128),
        tensor_map(b, (config["block_k"] // shares, 64), promotion=128),
        # A warp's 16 rows, of which parts end 8 each; where swapped, tiles begin at any multiple of 8.
        tensor_map(out, (8 if _swapped(config) or _split(config) > 1 else 16, 64), promotion=128),
    ]
    return prepare_cuda(
        _cluster_source(config, dtype),
        programs=programs,
        threads=cluster_threads(config),
        shared_bytes=shared_bytes(config, dtype),
        arguments=[*maps, partial, ready, n_rows, n_cols, n_inner, rows_each, last_row, last_col, config["group_m"]],
        overlap=bool(config["pdl"]),
    )


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a · b.

    Shapes: a (M, K), b (K, N) of one dtype on one GPU; the result (M, N).
    """
    return GEMM.call({"a": a, "b": b}, config=config_for, generic=gemm_rule.generic_config)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product in float64."""
    return inputs["a"].double() @ inputs["b"].double()


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one multiply-add (two operations) for each (m, n, k); each operand moves once."""
    m, n, k = shape["M"], shape["N"], shape["K"]
    element = DTYPE_BYTES[dtype]
    return Work(flops=2 * m * n * k, bytes_read=element * (m * k + k * n), bytes_written=element * m * n)


# Where another frame was measured faster than the one with the fewest clocks, or is level with it and known longer:
# 1024 x 1536 x 2048 by `ledger tune` (benchmarks/tuning/matmul-h200.json), the others in the runs of docs/kernels.md.
_TUNED: dict[tuple[int, int, int], gemm_rule.Frame] = {
    (128, 8192, 8192): (121, 64, 128, 0),
    (128, 8192, 28672): (121, 64, 128, 0),
    (512, 4096, 4096): (121, 128, 128, 0),
    (777, 3000, 4104): (112, 160, 128, 0),
    (1000, 1512, 2056): (22, 128, 128, 0),
    (1024, 1536, 2048): (11, 64, 192, 0),
    (2816, 4352, 6144): (2, 128, 128, 1),
    (3072, 3584, 2560): (2, 128, 128, 1),
    (3000, 5000, 7000): (2, 128, 256, 1),
    (5000, 5000, 520): (2, 128, 256, 0),
    (5120, 5120, 5120): (2, 128, 128, 1),
}
# Few rows in a single wave: two programs a tile, so that more of them ask L2. At 72 x 4096 x 4096 11.6 us, not 20.
_FEW_ROWS: gemm_rule.Frame = (11, 128, 64, 2)
# Columns of the cluster kernel's tiles with the operands changed over -> the most rows: what wgmma multiplies at once,
# or whose sums stay in the registers that three groups of warps leave (as compiled ahead of time).
_SWAPPED_ROWS = {64: 256, 128: 256, 192: 200}
# Rows of C for which the rule weighs such tiles, and the least K: those of the shapes that were timed. A tile of fewer
# rows than 32 was nowhere near the fastest.
_SWAPPED_FROM, _SWAPPED_BELOW, _SWAPPED_INNER, _SWAPPED_LEAST = 65, 2048, 1000, 32
# Their clusters, by the lines of L2 in which 128 bytes of a row lie. Where that is one, sharing A made nothing faster.
_SWAPPED_CLUSTERS = {1: (121, 111), 2: (112, 121, 122, 111)}
# What a multiprocessor does in a clock for such tiles, fitted to times of 33 shapes (docs/kernels.md) beside the clocks
# above: bytes that it asks L2 for where rows lie in two lines; bytes that arrive, by the lines; bytes of shared memory
# that wgmma reads and the loads write. And the rates of clusters, of which four wait for one another longer.
_SWAPPED_ASKED_BYTES = 28.6
_SWAPPED_ARRIVING_BYTES = {1: 83.0, 2: 50.8}
_SWAPPED_SHARED_BYTES = 173.0
_SWAPPED_CLUSTER_RATES = {1: 1.0, 2: 0.959, 4: 0.825}
# Clocks of a tile in two halves, which leave each other sums. Such were the fastest with 64 columns only.
_HALVES_CLOCKS, _HALVES_COLUMNS = 1_900, 64
# As many of them as `ledger tune` is offered.
_SWAPPED_OFFERED = 16


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape: the kernel and tile whose waves take least time.

    Raises: InputError for a target without one.
    """
    generic = gemm_rule.generic_config("matmul", shape, dtype, target)
    if target != "sm_90" or DTYPE_BYTES[dtype] != 2 or not generic["tma"]:
        return generic
    frame = _measured_frame(shape) or _frame_of(shape)
    return generic if frame is None else gemm_rule.frame_config(frame, generic, shape, dtype)


def _measured_frame(shape: Shape) -> gemm_rule.Frame | None:
    """Return the frame that was measured to be the fastest, where it is another than the model's."""
    few_columns = 2 * ceil_div(shape["N"], _FEW_ROWS[2]) <= SMS["sm_90"]
    if shape["M"] <= _FEW_ROWS[1] and few_columns and shape["K"] >= 1024:
        return _FEW_ROWS
    return _TUNED.get((shape["M"], shape["N"], shape["K"]))


def _frame_of(shape: Shape) -> gemm_rule.Frame | None:
    """Return kernel, cluster and tile that take the fewest clocks, or None where the portable kernel takes fewer."""
    clocks, best = min((gemm_rule.clocks(frame, shape, even_rows=True), frame) for frame in gemm_rule.frames())
    if _SWAPPED_FROM <= shape["M"] < _SWAPPED_BELOW and shape["K"] >= _SWAPPED_INNER:
        for frame in _swapped_frames(shape):
            if (swapped := _swapped_clocks(frame, shape)) < clocks:
                clocks, best = swapped, frame
    return None if gemm_rule.generic_clocks(shape) < clocks else best


def _swapped_frames(shape: Shape) -> Iterator[gemm_rule.Frame]:
    """Yield the frames of the operands changed over: the rows of C in any number of even shares."""
    clusters = _SWAPPED_CLUSTERS[max(gemm_rule.lines(shape["N"]), gemm_rule.lines(shape["K"]))]
    for pipeline, stream in (*((pipeline, 0) for pipeline in clusters), (111, 2)):
        config = {"pipeline": pipeline, "stream": stream}
        (rows, _), step = _cluster_shape(config), _swapped_step(config)
        shares = range(1, ceil_div(shape["M"], rows * _SWAPPED_LEAST) + 1)
        heights = {step * ceil_div(shape["M"], step * rows * tiles) for tiles in shares}
        for block_n, most in _SWAPPED_ROWS.items():
            if not stream or block_n == _HALVES_COLUMNS:
                for block_m in sorted(heights, reverse=True):
                    if _SWAPPED_LEAST <= block_m <= most:
                        yield pipeline, block_m, block_n, stream


def _swapped_clocks(frame: gemm_rule.Frame, shape: Shape) -> float:
    """Return the same as _clocks for a frame of the operands changed over."""
    pipeline, block_m, block_n, stream = frame
    config = {"pipeline": pipeline, "stream": stream, "block_m": block_m}
    (rows, cols), split, n_rows, n_inner = _cluster_shape(config), _split(config), shape["M"], shape["K"]
    slots = RESIDENT.get(pipeline % 100, 132) // (rows * cols * split)
    waves = ceil_div(ceil_div(n_rows, rows * block_m) * ceil_div(shape["N"], cols * block_n), slots)
    lines_a, lines_b, loaded = gemm_rule.lines(n_inner), gemm_rule.lines(shape["N"]), tile_rows(config, n_rows)
    asked_bytes = {1: gemm_rule.ASKED_BYTES[1] if waves > 1 else gemm_rule.ASKED_AT_ONCE_BYTES, 2: _SWAPPED_ASKED_BYTES}
    asked = 2 * loaded / cols / asked_bytes[lines_a] + 2 * block_n / rows / asked_bytes[lines_b]
    arriving = 2 * loaded / _SWAPPED_ARRIVING_BYTES[lines_a] + 2 * block_n / _SWAPPED_ARRIVING_BYTES[lines_b]
    # Each group of warps reads its own 64 columns of B and all rows of A.
    read = 2 * (block_n // 64) * (64 + block_m)
    in_shared = (read + 2 * (loaded + block_n)) / _SWAPPED_SHARED_BYTES
    multiplied = 2 * block_m * block_n / gemm_rule.TENSOR_FLOPS / _SWAPPED_CLUSTER_RATES[rows * cols]
    inner = max(multiplied, asked, arriving, in_shared) * n_inner / split
    once = inner + gemm_rule.TILE_CLOCKS * block_m * block_n / (128 * 256)
    return waves * once + (_HALVES_CLOCKS if split > 1 else 0)


def _check_swapped(config: Config) -> None:
    block_m, block_n, step = config["block_m"], config["block_n"], _swapped_step(config)
    if not step <= block_m <= _SWAPPED_ROWS.get(block_n, 0) or block_m % step:
        most = ", ".join(f"{rows} by {cols}" for cols, rows in _SWAPPED_ROWS.items())
        raise InputError(
            f"matmul: tiles are {block_m} x {block_n} with pipeline {config['pipeline']} and stream "
            f"{config['stream']}; expected rows in steps of {step}, at most {most}"
        )


def _swapped_step(config: Config) -> int:
    """Return what a swapped tile's rows are a multiple of: 8 of each program that shares them or ends a part."""
    return 16 if _cluster_shape(config)[1] > 1 or _split(config) > 1 else 8


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing."""
    own = config_for(shape, dtype, target)
    return gemm_rule.candidates(own, shape, dtype, target, even_rows=True, swapped=_swapped_configs)


def _swapped_configs(own: Config, shape: Shape) -> Iterator[dict[str, int]]:
    """Yield the tiles of the operands changed over that take the fewest clocks by the rule, whatever the rows."""
    for pipeline, block_m, block_n, stream in heapq.nsmallest(
        _SWAPPED_OFFERED, _swapped_frames(shape), key=lambda frame: _swapped_clocks(frame, shape)
    ):
        config = {**own, **cluster_keys(block_m, block_n, pipeline), "stream": stream, "pdl": 1}
        yield {**config, "group_m": group_rows(config, shape)}


def _check_tile(config: Config) -> None:
    block_m, block_n = config["block_m"], config["block_n"]
    if _swapped(config):
        _check_swapped(config)
    elif block_m not in (64, 128, 192) or block_n not in (64, 128, 192, 256):
        raise InputError(
            f"matmul: tiles are {block_m} x {block_n} with pipeline {config['pipeline']}; expected 64, 128 or 192 by "
            "64 to 256 in steps of 64"
        )


TORCH = library(lambda torch, out, a, b: torch.matmul(a, b, out=out), "a", "b")

GEMM = Gemm(
    "matmul",
    generic=matmul_kernel,
    warp_specialized=matmul_pipelined,
    source=_cluster_source,
    prepare_cluster=_prepare_cluster,
    check_tile=_check_tile,
    swaps=True,
)

CASES: tuple[dict[str, int], ...] = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 8192, "N": 8192, "K": 8192},
    {"M": 1, "N": 1, "K": 1},
    {"M": 127, "N": 129, "K": 131},
    {"M": 1000, "N": 1512, "K": 2056},
    {"M": 16, "N": 14336, "K": 4096},
)

KERNEL = Kernel(
    name="matmul",
    operation=MATMUL,
    summary="matrix product",
    formula="C = A · B",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="re-reads of A and B by other tiles and sums handed on between programs (L2), padding to whole tiles",
    path=matmul_path,
    config=config_for,
    check_config=GEMM.check_config,
    tolerances={
        "fp16": Tolerance(1e-4, 5e-4, "one rounding to 11 bits; the sum is fp32"),
        "bf16": Tolerance(1e-4, 4e-3, "one rounding to 8 bits; the sum is fp32"),
        "fp32": Tolerance(2e-5, 1e-5, "up to 8192 terms are summed in 24 bits, in blocks"),
    },
    cases=CASES,
    implementations={"triton": GEMM.prepare_triton, "torch-cpu": TORCH},
    reference=reference,
    launched="^matmul_(kernel|pipelined|cluster)$",
    baselines={"torch_matmul": TORCH},
    ahead=GEMM.ahead,
    candidates=candidates,
)

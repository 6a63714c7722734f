"""Compute C = max(0, A · B + bias) with a grid of persistent programs.

Formula: C[m, n] = max(0, Σ_k A[m, k] · B[k, n] + bias[n])
Shapes: A (M, K), B (K, N), bias (N), C (M, N), all row-major and of one dtype (fp16 or bf16).
Traffic: e · (M·K + K·N + N) bytes read and e · M·N written, e bytes an element: each operand once.
Source: the grouped tile order is the one of Triton's matrix-multiplication tutorial.
The work model excludes: re-reads of A, B and bias by other tiles (L2), the padding of M, N and K to whole
tiles, and with `stream` the sums that programs leave for one another (at most 20 MB written and read, L2).

Precision: fp32 accumulation, bias and maximum in fp32, one rounding to the dtype; NaN stays NaN.
Determinism: each element is one program's sum in the order of k, or with `stream` the sum of a few programs' sums,
added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Candidate, Config, Kernel, Launch, Tolerance, import_triton
from ledger.kernels.common import gemm_rule
from ledger.kernels.common.baselines import compiled, dtype_name, library
from ledger.kernels.common.cuda import CudaSource, prepare_cuda, tensor_map
from ledger.kernels.common.gemm import (
    Gemm,
    cluster_programs,
    cluster_threads,
    shared_bytes,
)
from ledger.kernels.common.gemm import cluster_shape as _cluster_shape
from ledger.kernels.common.gemm import split as _split
from ledger.kernels.common.gluon import import_gluon
from ledger.kernels.common.targets import matmul_path
from ledger.operations import MATMUL_BIAS_RELU, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper = _gluon.gluon, _gluon.language, _gluon.hopper
async_load, async_store = _gluon.async_load, _gluon.async_store


@triton.jit
def matmul_bias_relu_kernel(
    a,
    b,
    c,
    bias,
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
        acc += tl.load(bias + cols, mask=cols < n_cols, other=0.0).to(tl.float32)[None, :]
        # Not a maximum, which would turn NaN into 0.
        acc = tl.where(acc < 0.0, 0.0, acc)

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
    c, bias, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner,
    GROUP_M: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
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
        # Loaded before the product, added after it: the latency passes meanwhile.
        cols = col + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
        added = gl.load(bias + cols, mask=cols < n_cols, other=0.0)
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
        total = acc + added.to(gl.float32)[None, :]
        # Not a maximum, which would turn NaN into 0.
        out = gl.where(total < 0.0, 0.0, total).to(c.dtype)
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
def matmul_bias_relu_pipelined(a, b, c, bias, n_rows, n_cols, n_inner, STAGES: gl.constexpr, GROUP_M: gl.constexpr):
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
            (_multiply_tiles, (c, bias, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner, GROUP_M, FIRST)),
            (_multiply_tiles, (c, bias, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner, GROUP_M, SECOND)),
            (_load_tiles, (a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M)),
        ],
        [4, 1],
        [232, 40],
    )


# CUDA C++ for sm_90: the frame of matmul's cluster kernel (kernels/matmul): GROUPS groups of four warps multiply 64
# rows of a tile each; a cluster is ROWS by COLS programs that share their tiles; with STREAM the tiles of the last wave
# are divided by steps of k among all clusters; with SPLIT 2 two programs of a cluster divide the steps of each tile.
_CLUSTER = r"""
#if BF16
#define TWO "bf16x2"
#else
#define TWO "f16x2"
#endif
typedef unsigned int u32; typedef unsigned long long u64; typedef unsigned short u16;
struct __align__(64) TensorMap { u64 opaque[16]; };

constexpr int BLOCK_M = 64 * GROUPS, BLOCK_K = 64, CHUNKS = BLOCK_K / 16, BOXES = BLOCK_N / 64;
constexpr int ACC = BLOCK_N / 2;                         // sums of a thread: 64 rows by BLOCK_N in a group of 128
constexpr int CONSUMERS = 4 * GROUPS, LOADER = CONSUMERS;     // warps
constexpr int THREADS = 32 * CONSUMERS;                  // that multiply
constexpr int PLACES = ROWS * COLS;                      // programs of a cluster that multiply the same steps
constexpr u32 A_BYTES = BLOCK_M * BLOCK_K * 2, B_BYTES = BLOCK_K * BLOCK_N * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr u32 RING = STAGES * STAGE_BYTES, C_BYTES = 2048;    // 16 rows by 64 columns, two of them a warp
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
#if BF16
DEVICE float low(u32 two) { return __uint_as_float(two << 16); }
DEVICE float high(u32 two) { return __uint_as_float(two & 0xffff0000u); }
#else
DEVICE float low(u32 two) {
    float f;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(f) : "r"(two));
    return f;
}
DEVICE float high(u32 two) {
    float f;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(two));
    return f;
}
#endif
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

// Leaves the sums of half of each 16 rows in the other part's shared memory and adds to its own half what that left
// here. The sums that a program ends come to lie in the first half of acc.
DEVICE void exchange(float (&acc)[ACC], u32 ring, int thread, int part, int other) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(ring + thread * 16), "r"(other));
    // All loads of both programs have come, and all products have read them.
    cluster_barrier();
#pragma unroll
    for (int k = 0; k < ACC / 8; ++k) {
        const float* v = acc + 8 * k;
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
            :: "r"(there + k * THREADS * 16), "f"(part ? v[0] : v[2]), "f"(part ? v[1] : v[3]),
            "f"(part ? v[4] : v[6]), "f"(part ? v[5] : v[7]) : "memory");
    }
    cluster_barrier();
#pragma unroll
    for (int k = 0; k < ACC / 8; ++k) {
        const float* v = acc + 8 * k;
        float r[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
            : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "r"(ring + (k * THREADS + thread) * 16) : "memory");
        const float own[4] = {part ? v[2] : v[0], part ? v[3] : v[1], part ? v[6] : v[4], part ? v[7] : v[5]};
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[4 * k + i] = own[i] + r[i];
    }
}

extern "C" __global__ void __cluster_dims__(PLACES * SPLIT, 1, 1) __launch_bounds__(THREADS + 128, 1)
matmul_bias_relu_cluster(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
    const __grid_constant__ TensorMap c_map, const u16* bias, float4* partial, int* ready, int n_rows, int n_cols,
    int n_inner, int group_rows)
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
    auto place = [&](int tile, int& row, int& col) {
        const int group = tile / (group_rows * tiles_n), rest = tile % (group_rows * tiles_n);
        const int rows = min(group_rows, tiles_m - group * group_rows);
        row = ((group * group_rows + rest % rows) * ROWS + down) * BLOCK_M;
        col = (rest / rows * COLS + right) * BLOCK_N;
    };
    int row, col;

    if (warp >= CONSUMERS) {
#if GROUPS == 2
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#elif GROUPS == 3
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
#endif
        if (warp == LOADER && elected()) {
            Walk walk(tiles_m * tiles_n, steps, cluster_id(), gridDim.x / (PLACES * SPLIT), part);
            int s = 0, phase = 1;
            const u32 a_mask = (COLS == 2 ? 1 | 1 << ROWS : 1) << beside, b_mask = ((1 << ROWS) - 1) << above;
            while (walk.advance()) {
                place(walk.tile, row, col);
#pragma unroll 1
                for (int i = walk.first; i < walk.last; ++i) {
                    wait(empty(s), phase);
                    expect(full(s), STAGE_BYTES);
                    const u32 a = ring + s * STAGE_BYTES, b = a + A_BYTES;
                    if (COLS == 1) {
                        load(a, &a_map, i * BLOCK_K, row, full(s));
                    } else {
                        const u32 share = A_BYTES / COLS * right;
                        load_for(a_mask, a + share, &a_map, i * BLOCK_K, row + BLOCK_M / COLS * right, full(s));
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
#if GROUPS == 2
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#elif GROUPS == 3
        asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
#endif
        const int group = warp / 4, thread = thread_id(), lane = thread % 32;
        // A: rows of 64 inner positions (128 bytes, swizzled), 8 an atom. B: 64 columns by 8 inner positions an atom.
        const u64 a_shape = (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
        const u64 b_shape = (u64)(8192 >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
        const u32 out = ring + C_AT + warp * 2 * C_BYTES;
        // Where lane l gives the address of a row of stmatrix: matrices lie as rows 0-7, rows 8-15, the next columns.
        const u32 out_row = lane % 16 * 128, out_swizzle = lane % 8, out_half = lane / 16;
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
                const u64 a = a_shape | (at + group * 8192) >> 4, b = b_shape | (at + A_BYTES) >> 4;
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k)
                    mma(acc, a + k * (32 >> 4), b + k * (2048 >> 4), k > 0 || i > walk.first);
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
            place(walk.tile, row, col);
#pragma unroll
            for (int j = 0; j < BLOCK_N / 8; ++j) {
                const int at = col + 8 * j + lane % 4 * 2;
                const u32 two = at < n_cols ? *(const u32*)(bias + at) : 0u;
#pragma unroll
                for (int k = 0; k < 4 / SPLIT; ++k) {
                    float& one = acc[4 / SPLIT * j + k];
                    const float sum = one + (k % 2 ? high(two) : low(two));
                    // Not a maximum, which would turn NaN into 0.
                    one = sum < 0.f ? 0.f : sum;
                }
            }
            row += group * 64 + warp % 4 * 16;
            if (SPLIT > 1) row += part * 8;
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
                    if (row < n_rows && col + o * 64 < n_cols) store(&c_map, col + o * 64, row, buffer);
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
            }
        }
        if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        __syncwarp();
    }
    // The other program may still count at this one's barriers.
    if (SPLIT == 1) cluster_barrier();
}
"""


def _cluster_source(config: Config, dtype: Dtype) -> CudaSource:
    columns, kind = config["block_n"], "bf16" if dtype == "bf16" else "f16"
    rows, cols = _cluster_shape(config)
    sums = columns // 2
    registers = ", ".join(f"%{i}" for i in range(sums))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(sums))
    multiply = f"""DEVICE void mma(float (&d)[{sums}], u64 a, u64 b, int add) {{
    asm volatile("{{.reg .pred p; setp.ne.b32 p, %{sums + 2}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {{{registers}}},"
        " %{sums}, %{sums + 1}, p, 1, 1, 0, 1;}}"
        : {outputs} : "l"(a), "l"(b), "r"(add));
}}"""
    defines = {
        "GROUPS": config["block_m"] // 64, "BLOCK_N": columns, "STAGES": config["num_stages"], "ROWS": rows,
        "COLS": cols, "SPLIT": _split(config), "STREAM": int(config["stream"] == 1), "BF16": int(dtype == "bf16"),
    }  # fmt: skip
    text = _CLUSTER.replace("@MMA@", multiply)
    return CudaSource(text, "matmul_bias_relu_cluster", tuple((name, str(value)) for name, value in defines.items()))


def _prepare_cluster(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[1]
    dtype = dtype_name(a, "matmul_bias_relu")
    programs = cluster_programs(config, {"M": n_rows, "N": n_cols, "K": n_inner})
    shared = programs if config["stream"] == 1 else 0
    partial = torch.empty(shared * config["block_m"] * config["block_n"] + 4, dtype=torch.float32, device=a.device)
    ready = torch.zeros(config["block_m"] // 64 * shared + 1, dtype=torch.int32, device=a.device)
    rows, cols = _cluster_shape(config)
    # Where boxes of 64 columns do not divide among programs, their rows do.
    shares = rows if config["block_n"] // 64 % rows and config["block_k"] % rows == 0 else 1
    maps = [
        tensor_map(a, (config["block_m"] // cols, config["block_k"]), promotion=128),
        tensor_map(b, (config["block_k"] // shares, 64), promotion=128),
        tensor_map(out, (16 // _split(config), 64), promotion=128),
    ]
    return prepare_cuda(
        _cluster_source(config, dtype),
        programs=programs,
        threads=cluster_threads(config),
        shared_bytes=shared_bytes(config, dtype),
        arguments=[*maps, inputs["bias"], partial, ready, n_rows, n_cols, n_inner, config["group_m"]],
        overlap=bool(config["pdl"]),
    )


def matmul_bias_relu(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """Return max(0, a · b + bias).

    Shapes: a (M, K), b (K, N), bias (N) of one dtype on one GPU; the result (M, N).
    """
    return GEMM.call({"a": a, "b": b, "bias": bias}, config=config_for, generic=gemm_rule.generic_config)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product, with bias and rectifier, in float64."""
    total = inputs["a"].double() @ inputs["b"].double() + inputs["bias"].double()
    return total.clamp_(min=0.0)


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one multiply-add (two operations) for each (m, n, k), one addition and one maximum for each (m, n)."""
    m, n, k = shape["M"], shape["N"], shape["K"]
    element = DTYPE_BYTES[dtype]
    return Work(
        flops=2 * m * n * k + 2 * m * n,
        bytes_read=element * (m * k + k * n + n),
        bytes_written=element * m * n,
    )


# Where another frame was measured faster for kernels/matmul than the one with the fewest clocks.
_TUNED: dict[tuple[int, int, int], gemm_rule.Frame] = {
    (777, 3000, 4104): (22, 128, 192, 1),
    (2816, 4352, 6144): (2, 128, 128, 1),
    (3072, 3584, 2560): (2, 128, 128, 1),
    (3000, 5000, 7000): (2, 128, 256, 1),
    (5000, 5000, 520): (2, 128, 256, 0),
    (5120, 5120, 5120): (2, 128, 128, 1),
}


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape: the kernel and tile whose waves take least time.

    Raises: InputError for a target without one.
    """
    generic = gemm_rule.generic_config("matmul_bias_relu", shape, dtype, target)
    if target != "sm_90" or DTYPE_BYTES[dtype] != 2 or not generic["tma"]:
        return generic
    frame = _frame_of(shape)
    if gemm_rule.generic_clocks(shape) < gemm_rule.clocks(frame, shape, even_rows=False):
        return generic
    return gemm_rule.frame_config(frame, generic, shape, dtype)


def _frame_of(shape: Shape) -> gemm_rule.Frame:
    """Return kernel, cluster and tile for a shape: what was tuned, or what takes the fewest clocks."""
    tuned = _TUNED.get((shape["M"], shape["N"], shape["K"]))
    return tuned or min(gemm_rule.frames(), key=lambda one: gemm_rule.clocks(one, shape, even_rows=False))


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing."""
    own = config_for(shape, dtype, target)
    return gemm_rule.candidates(own, shape, dtype, target, even_rows=False)


def _check_tile(config: Config) -> None:
    block_m, block_n = config["block_m"], config["block_n"]
    if block_m not in (64, 128, 192) or block_n not in (64, 128, 192, 256):
        raise InputError(
            f"matmul_bias_relu: tiles are {block_m} x {block_n} with pipeline {config['pipeline']}; expected 64, 128 "
            "or 192 by 64 to 256 in steps of 64"
        )


def _addmm_activation(torch: Any, out: Tensor, a: Tensor, b: Tensor, bias: Tensor) -> None:
    torch._addmm_activation(bias, a, b, use_gelu=False, out=out)


def _unfused(torch: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda a, b, bias: torch.relu(torch.addmm(bias, a, b))


TORCH = library(lambda torch, out, a, b, bias: torch.addmm(bias, a, b, out=out).relu_(), "a", "b", "bias")

GEMM = Gemm(
    "matmul_bias_relu",
    generic=matmul_bias_relu_kernel,
    warp_specialized=matmul_bias_relu_pipelined,
    source=_cluster_source,
    prepare_cluster=_prepare_cluster,
    check_tile=_check_tile,
    vectors=("bias",),
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
    name="matmul_bias_relu",
    operation=MATMUL_BIAS_RELU,
    summary="matrix product with a bias and a rectifier",
    formula="C = max(0, A · B + bias)",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="re-reads of A, B, bias and sums handed on between programs (L2), padding to whole tiles",
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
    launched="^matmul_bias_relu_(kernel|pipelined|cluster)$",
    baselines={
        "torch_eager": TORCH,
        "torch_addmm_activation": library(_addmm_activation, "a", "b", "bias"),
        "torch_compile_default": compiled(_unfused, "a", "b", "bias", mode="default"),
        "torch_compile_max_autotune": compiled(_unfused, "a", "b", "bias", mode="max-autotune-no-cudagraphs"),
    },
    ahead=GEMM.ahead,
    candidates=candidates,
)

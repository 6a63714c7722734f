// CUDA C++ for sm_90: the frame of matmul's cluster kernel (kernels/matmul.py). Two programs of a cluster multiply tiles
// one above the other and load half of their tile of B each, for both; with STREAM the tiles of the last wave are
// divided by steps of k among all clusters. Sums are promoted in pairs: while wgmma makes one, the other is added.
#include "hopper.cuh"
#include "wgmma.h"

constexpr int BLOCK_M = 128, BLOCK_K = 128, CHUNKS = BLOCK_K / 32;
constexpr int ACC = BLOCK_N / 2;                         // sums of a thread: 64 rows by BLOCK_N in a group of 128
constexpr int CONSUMERS = 8, LOADER = 8;                 // warps
constexpr u32 A_BYTES = BLOCK_M * BLOCK_K, B_BYTES = BLOCK_N * BLOCK_K, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr u32 C_AT = STAGES * STAGE_BYTES, C_BYTES = 2048;    // 16 rows by 64 columns, two of them a warp
constexpr u32 BARRIERS_AT = C_AT + CONSUMERS * 2 * C_BYTES;

DEVICE u32 packed(float lo, float hi, float scale) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi * scale), "f"(lo * scale));
    return r;
}

// Lists what a cluster multiplies, the same for its loader and for the warps that multiply: whole tiles in turn, then
// its share of the tiles that would leave the last wave nearly empty, whose steps all clusters divide evenly.
struct Walk {
    int tiles, steps, clusters, whole, next;
    int begin, end;
    int tile, first, last;

    DEVICE Walk(int tiles, int steps, int cluster, int clusters)
        : tiles(tiles), steps(steps), clusters(clusters), whole(tiles), next(cluster) {
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
            tile = next; first = 0; last = steps;
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

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) matmul_fp8_cluster(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
    const __grid_constant__ TensorMap c_map, float4* partial, int* ready, float scale, int n_rows, int n_cols,
    int n_inner, int group_rows)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int rank = blockIdx.x % 2;
    auto full = [&](int s) { return ring + BARRIERS_AT + s * 16; };
    auto empty = [&](int s) { return ring + BARRIERS_AT + s * 16 + 8; };
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch(&a_map); prefetch(&b_map); prefetch(&c_map);
        // A stage is free when the warps of both programs have read it: half of B comes from the other one.
        for (int s = 0; s < STAGES; ++s) { init(full(s), 1); init(empty(s), 2 * CONSUMERS); }
        fence_barrier_init();
    }
    cluster_barrier();
    // The launch before this one may have written the operands, and may still read what this one writes.
    wait_for_launch_before();

    const int tiles_m = (n_rows + 2 * BLOCK_M - 1) / (2 * BLOCK_M), tiles_n = (n_cols + BLOCK_N - 1) / BLOCK_N;
    const int steps = (n_inner + BLOCK_K - 1) / BLOCK_K;
    auto place = [&](int tile, int& row, int& col) {
        const int group = tile / (group_rows * tiles_n), rest = tile % (group_rows * tiles_n);
        const int rows = min(group_rows, tiles_m - group * group_rows);
        row = ((group * group_rows + rest % rows) * 2 + rank) * BLOCK_M;
        col = rest / rows * BLOCK_N;
    };
    int row, col;

    if (warp >= CONSUMERS) {
        decrease_registers<40>();
        if (warp == LOADER && elected()) {
            Walk walk(tiles_m * tiles_n, steps, cluster_id(), gridDim.x / 2);
            int s = 0, phase = 1;
            while (walk.advance()) {
                place(walk.tile, row, col);
#pragma unroll 1
                for (int i = walk.first; i < walk.last; ++i) {
                    wait(empty(s), phase);
                    expect(full(s), STAGE_BYTES);
                    const u32 a = ring + s * STAGE_BYTES, b = a + A_BYTES;
                    load(a, &a_map, i * BLOCK_K, row, full(s));
                    load_for(3, b + rank * (B_BYTES / 2), &b_map, i * BLOCK_K, col + rank * (BLOCK_N / 2), full(s));
                    if (++s == STAGES) { s = 0; phase ^= 1; }
                }
            }
        }
        __syncwarp();
    } else {
        increase_registers<232>();
        const int group = warp / 4, thread = thread_id(), lane = thread % 32;
        // Rows of 128 inner positions (bytes, swizzled), 8 an atom.
        const u32 out = ring + C_AT + warp * 2 * C_BYTES;
        // Where lane l gives the address of a row of stmatrix: matrices lie as rows 0-7, rows 8-15, the next columns.
        const u32 out_row = lane % 16 * 128, out_swizzle = lane % 8, out_half = lane / 16;
        const int cluster = cluster_id();
        Walk walk(tiles_m * tiles_n, steps, cluster, gridDim.x / 2);
        u32 flip = 0;
        int s = 0, phase = 0;
        while (walk.advance()) {
            float acc[ACC], even[ACC], odd[ACC];
#pragma unroll
            for (int i = 0; i < ACC; ++i) acc[i] = 0.f;
            auto multiply = [&](float (&sums)[ACC]) {
                // The same in all lanes, which the compiler does not see: descriptors belong in uniform registers.
                const u32 at = __shfl_sync(~0u, (ring & 0x3ffff) + s * STAGE_BYTES, 0);
                wait(full(s), phase);
                const u64 a = K_MAJOR | (at + group * 8192) >> 4, b = K_MAJOR | (at + A_BYTES) >> 4;
                fence_products();
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k) mma(sums, a + k * (32 >> 4), b + k * (32 >> 4), k > 0);
                commit_products();
                const u32 used = empty(s);
                if (++s == STAGES) { s = 0; phase ^= 1; }
                return used;
            };
            // Sums of 128 products stay in wgmma, which keeps fewer bits than fp32, and are added here.
            auto add = [&](float (&sums)[ACC], u32 used) {
                if (lane < 2) arrive_at_rank(used, lane);
#pragma unroll
                for (int i = 0; i < ACC; ++i) {
                    asm volatile("" : "+f"(sums[i]) :: "memory");
                    acc[i] += sums[i];
                }
            };
            int i = walk.first;
#pragma unroll 1
            for (; i + 1 < walk.last; i += 2) {
                const u32 first = multiply(even), second = multiply(odd);
                wait_products<1>();
                add(even, first);
                wait_products<0>();
                add(odd, second);
            }
            if (i < walk.last) {
                const u32 first = multiply(even);
                wait_products<0>();
                add(even, first);
            }

            if (STREAM && walk.last < walk.steps) {
                // Another cluster ends this tile: it gets the sums so far, in the places of the same threads.
                float4* to = partial + (long long)blockIdx.x * (ACC / 4 * 256) + thread;
#pragma unroll
                for (int k = 0; k < ACC / 4; ++k)
                    __stcg(to + k * 256, make_float4(acc[4 * k], acc[4 * k + 1], acc[4 * k + 2], acc[4 * k + 3]));
                group_barrier(group);
                if (thread % 128 == 0) {
                    __threadfence();
                    store_release(ready + blockIdx.x * 2 + group, 1);
                }
                continue;
            }
            if (STREAM && walk.first > 0) {
                const int start = (walk.tile - walk.whole) * walk.steps;
                // Always in the same order, so that the sum has always the same bits.
#pragma unroll 1
                for (int other = cluster - 1;; --other) {
                    if (walk.bound(other + 1) > walk.bound(other)) {
                        int* flag = ready + (2 * other + rank) * 2 + group;
                        int there;
                        do {
                            there = load_acquire(flag);
                        } while (!__all_sync(~0u, there));
                        const float4* from = partial + (long long)(2 * other + rank) * (ACC / 4 * 256) + thread;
#pragma unroll
                        for (int k = 0; k < ACC / 4; ++k) {
                            // More at once would not stay in registers.
                            if (k % 16 == 0) asm volatile("" ::: "memory");
                            const float4 v = __ldcg(from + k * 256);
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
            row += group * 64 + warp % 4 * 16;
#pragma unroll
            for (int o = 0; o < BLOCK_N / 64; ++o) {
                const u32 buffer = out + flip;
                flip ^= C_BYTES;
                // The store that used this buffer has read it.
                if (lane == 0) wait_stores_read<1>();
                __syncwarp();
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int k = 32 * o + 8 * j;
                    store_matrices(buffer + out_row + ((2 * j + out_half) ^ out_swizzle) * 16,
                        packed(acc[k], acc[k + 1], scale), packed(acc[k + 2], acc[k + 3], scale),
                        packed(acc[k + 4], acc[k + 5], scale), packed(acc[k + 6], acc[k + 7], scale));
                }
                fence_async();
                __syncwarp();
                if (lane == 0) {
                    if (row < n_rows && col + o * 64 < n_cols) store(&c_map, col + o * 64, row, buffer);
                    commit_stores();
                }
            }
        }
        if (lane == 0) wait_stores();
        __syncwarp();
    }
    // The other program may still count at this one's barriers.
    cluster_barrier();
}

// GEMM with thread block clusters on sm_90: c (n_rows, n_cols) = a (n_rows, n_inner) times b (n_inner, n_cols); with
// FP8 or INT8 b is (n_cols, n_inner). All are row-major. The rows of C are divided evenly among the tiles, tile_rows
// each. Here are its constants, its tile schedule and stream-K; the kernel is in cluster_gemm_kernel.cuh. A CTA has
// GROUPS warpgroups that multiply 64 rows of a tile each, and one warp that loads.
// Macros, of the launch configuration unless a default stands below:
//   BLOCK_M, BLOCK_N: the tile of a CTA. STAGES: of the ring in shared memory. BF16: 1 for bf16, 0 for fp16.
//   ROWS, COLS: CTAs of a cluster, one above the other and side by side. Each loads a share of its tile of A for those
//     beside it and of its tile of B for those above and below it, by multicast.
//   STREAM: stream-K. The tiles that would leave the last wave nearly empty are divided by steps of k among all
//     clusters; the cluster that ends a tile adds the accumulators of the others in a fixed order.
//   SPLIT: with 2 a cluster is twice as large. Two CTAs multiply half of a tile's steps each, exchange accumulators
//     through distributed shared memory, and store half of the rows each.
//   SWAPPED: swap-AB. A warpgroup multiplies 64 columns of B by all rows of the tile, which are wgmma's N, so that the
//     rows of a tile come in multiples of 8.
//   AWAITS_A: only A comes from the launch before (cluster_gemm_kernel.cuh).
//   STORES_IN_RING: a CTA has one tile, whose result leaves through the ring: more stages fit.
//   FP8: e4m3 operands with fp16 results; accumulators are promoted every 128 products.
//   INT8: 8-bit integers, summed in 32 bits, with fp32 results, which lanes store: c is its address. With SWAPPED only.
//   DIRECT: rows of C are no multiple of 16 bytes, which the TMA cannot store: c is its address, and lanes store it.
#pragma once
#include "products.cuh"
#include "wgmma.h"

#ifndef STORES_IN_RING
#define STORES_IN_RING 0
#endif
#ifndef AWAITS_A
#define AWAITS_A 0
#endif
#ifndef DIRECT
#define DIRECT 0
#endif
// A CTA alone is no cluster: its barriers are its own.
#if ROWS * COLS * SPLIT > 1
#define CLUSTER __cluster_dims__(ROWS * COLS * SPLIT, 1, 1)
#define barrier_of_all cluster_barrier
#define cluster_of_this cluster_id
#else
#define CLUSTER
#define barrier_of_all __syncthreads
#define cluster_of_this block_id
#endif
#if INT8
#define RESULT float* c
#else
#if DIRECT
#define RESULT u16* c
#else
#define RESULT const __grid_constant__ TensorMap c_map
#endif
#endif

constexpr int BOXES = BLOCK_N / 64, LOADER = CONSUMERS;
constexpr int THREADS = 32 * CONSUMERS;                  // of the warps that multiply
// Registers of a thread: at launch, then of the warps that load, and the rest of the same sum of those that multiply.
constexpr int AT_LAUNCH = 65536 / (THREADS + 128) / 8 * 8, LOADING = GROUPS == 2 ? 40 : GROUPS == 3 ? 32 : 24;
constexpr int MULTIPLYING = (AT_LAUNCH * (THREADS + 128) - LOADING * 128) / THREADS / 8 * 8;
constexpr int PLACES = ROWS * COLS;                      // CTAs of a cluster that multiply the same steps
constexpr u32 K_BYTES = 128;                             // of a row of a stage: the width of the swizzle
constexpr u32 A_BYTES = BLOCK_M * K_BYTES, B_BYTES = BLOCK_N * K_BYTES, STAGE_BYTES = A_BYTES + B_BYTES;
// Store buffers of 16 rows by 64 columns, two for each warp; with SWAPPED two of 64 rows for each warpgroup.
constexpr u32 RING = STAGES * STAGE_BYTES, C_BYTES = 2048;
// With SPLIT the accumulators of the other part, and then the result, take the place of the ring; with STORES_IN_RING
// the result does.
constexpr u32 C_AT = SPLIT > 1 ? THREADS * ACC * 2 : STORES_IN_RING ? 0 : RING, C_END = C_AT + CONSUMERS * 2 * C_BYTES;
constexpr u32 BARRIERS_AT = C_END > RING ? C_END : RING;

// A sum as the bits that move between CTAs, and back.
DEVICE float bits_of(float sum) { return sum; }
DEVICE float bits_of(int sum) { return __int_as_float(sum); }
template <class T> DEVICE T sum_of(float bits);
template <> DEVICE float sum_of<float>(float bits) { return bits; }
template <> DEVICE int sum_of<int>(float bits) { return __float_as_int(bits); }

// Lets the CTA of a rank load into a stage again that this warp has read.
DEVICE void release(u32 empty, int rank) {
    if (PLACES * SPLIT > 1) arrive_at_rank(empty, rank);
    else arrive(empty);
}

// Of all warps that multiply.
DEVICE void barrier_of_multiplying() { asm volatile("bar.sync 8, %0;" :: "n"(THREADS) : "memory"); }

// The tile schedule of a cluster, the same for its loader and for the warps that multiply: whole tiles one after the
// other, then, with STREAM, its share of the steps of the last tiles, which all clusters divide evenly.
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
    // Its pieces from last to first: another cluster waits for the last one, and none for one that ends a tile.
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

// The index of accumulator i of the k-th four of a part: a part stores half of each 16 rows, with SWAPPED half of all.
constexpr DEVICE int place_of(int part, int k, int i) {
    return SWAPPED ? part * (ACC / 2) + 4 * k + i : 8 * k + 4 * (i / 2) + 2 * part + i % 2;
}
// Writes the accumulators of the other part's half to its shared memory and adds what that part wrote here to the own
// half, which then lies in the first half of acc.
DEVICE void exchange(Sum (&acc)[ACC], u32 ring, int thread, int part, int other) {
    const u32 there = peer(ring + thread * 16, other);
    // All loads of both CTAs have arrived, and all products have read them.
    cluster_barrier();
#pragma unroll
    for (int k = 0; k < ACC / 8; ++k) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = bits_of(part ? acc[place_of(0, k, i)] : acc[place_of(1, k, i)]);
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
            :: "r"(there + k * THREADS * 16), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
    }
    cluster_barrier();
#pragma unroll
    for (int k = 0; k < ACC / 8; ++k) {
        float r[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
            : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "r"(ring + (k * THREADS + thread) * 16) : "memory");
        Sum own[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) own[i] = part ? acc[place_of(1, k, i)] : acc[place_of(0, k, i)];
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[4 * k + i] = own[i] + sum_of<Sum>(r[i]);
    }
}

// Stream-K: leaves the accumulators of a tile that another cluster ends, in register layout.
DEVICE void leave_sums(const Sum (&acc)[ACC], float4* partial, int* ready, int group, int thread) {
    float4* to = partial + (long long)blockIdx.x * (ACC / 4 * THREADS) + thread;
#pragma unroll
    for (int k = 0; k < ACC / 4; ++k)
        __stcg(to + k * THREADS, make_float4(bits_of(acc[4 * k]), bits_of(acc[4 * k + 1]), bits_of(acc[4 * k + 2]),
                                             bits_of(acc[4 * k + 3])));
    group_barrier(group);
    if (thread % 128 == 0) {
        __threadfence();
        store_release(ready + blockIdx.x * GROUPS + group, 1);
    }
}
// Adds what the clusters before this one left of its tile, always in the same order: the result is deterministic.
DEVICE void add_sums(Sum (&acc)[ACC], const float4* partial, int* ready, const Walk& walk, int cluster, int rank,
    int group, int thread)
{
    const int start = (walk.tile - walk.whole) * walk.steps;
#pragma unroll 1
    for (int other = cluster - 1;; --other) {
        if (walk.bound(other + 1) > walk.bound(other)) {
            int* flag = ready + (PLACES * other + rank) * GROUPS + group;
            int there;
            do {
                there = load_acquire(flag);
            } while (!__all_sync(~0u, there));
            const long long from_program = PLACES * other + rank;
            const float4* from = partial + from_program * (ACC / 4 * THREADS) + thread;
#pragma unroll
            for (int k = 0; k < ACC / 4; ++k) {
                // More loads in flight would not fit into registers.
                if (k % 16 == 0) asm volatile("" ::: "memory");
                const float4 v = __ldcg(from + k * THREADS);
                acc[4 * k] += sum_of<Sum>(v.x); acc[4 * k + 1] += sum_of<Sum>(v.y);
                acc[4 * k + 2] += sum_of<Sum>(v.z); acc[4 * k + 3] += sum_of<Sum>(v.w);
            }
            group_barrier(group);
            // Reset for the next launch, which starts after this one ends.
            if (thread % 128 == 0) *flag = 0;
        }
        if (walk.bound(other) <= start) break;
    }
}

#if DIRECT
// Stores 64 columns of a row of C, which lie in row `from_row` of a store buffer; each lane two of them.
DEVICE void store_row(u16* c, int row, int col, int n_cols, u32 buffer, int from_row, int lane) {
    const u32 two = load_word(buffer + from_row * 128 + ((lane / 4) ^ (from_row % 8)) * 16 + lane % 4 * 4);
    col += 2 * lane;
    u16* to = c + (i64)row * n_cols + col;
    if (n_cols % 2 == 0) {
        if (col < n_cols) *(u32*)to = two;
    } else {
        if (col < n_cols) to[0] = (u16)two;
        if (col + 1 < n_cols) to[1] = (u16)(two >> 16);
    }
}
#endif

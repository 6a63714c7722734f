// CUDA C++ for sm_90, which Gluon cannot express in triton 3.6: GROUPS groups of four warps multiply 64 rows of a tile
// each. A cluster is ROWS programs, one above the other, by COLS, side by side: each loads a share of its tile of A for
// those beside it and of its tile of B for those above and below. With STREAM the tiles that would leave the last wave
// nearly empty are divided by steps of k among all clusters; who ends a tile adds the others' sums in a fixed order.
// With SPLIT 2 a cluster is twice as large: two programs multiply half of a tile's steps each, exchange sums through
// each other's shared memory and end half of its rows each. The other macros are BLOCK_M, BLOCK_N, STAGES and BF16. A
// program multiplies BLOCK_M rows, of which it loads and stores tile_rows: the rows of C are divided evenly among the
// tiles. With SWAPPED the operands change over: a group multiplies 64 columns of B by all rows of the tile, which are
// wgmma's columns, so that they come in eights where a group's rows come in 64s.
#include "hopper.cuh"
#include "wgmma.h"

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
    const u32 there = peer(ring + thread * 16, other);
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
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch(&a_map); prefetch(&b_map); prefetch(&c_map);
        // A stage is free when the warps of all programs have read it that get something of what this one loads.
        for (int s = 0; s < STAGES; ++s) { init(full(s), 1); init(empty(s), (ROWS + COLS - 1) * CONSUMERS); }
        fence_barrier_init();
    }
    cluster_barrier();
    // The launch before this one may have written the operands, and may still read what this one writes.
    wait_for_launch_before();

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
        if (GROUPS == 2) decrease_registers<40>();
        if (GROUPS == 3) decrease_registers<32>();
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
        if (GROUPS == 2) increase_registers<232>();
        if (GROUPS == 3) increase_registers<160>();
        const int group = warp / 4, thread = thread_id(), lane = thread % 32;
        // A: rows of 64 inner positions (128 bytes, swizzled), 8 an atom. B: 64 columns by 8 inner positions an atom. A
        // group takes its 64 of A's rows, or with SWAPPED of B's columns, and all of the other operand.
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
                const u64 a = K_MAJOR | (at + a_own) >> 4, b = MN_MAJOR | (at + b_own) >> 4;
                fence_products();
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k) {
                    const u64 a_k = a + k * (32 >> 4), b_k = b + k * (2048 >> 4);
                    mma(acc, SWAPPED ? b_k : a_k, SWAPPED ? a_k : b_k, k > 0 || i > walk.first);
                }
                commit_products();
                // The products of the step before are done; these run on.
                wait_products<1>();
                if (i > walk.first && lane < ROWS + COLS - 1) arrive_at_rank(empty(before), loader);
                before = s;
                if (++s == STAGES) { s = 0; phase ^= 1; }
            }
            wait_products<0>();
            pin(acc);
            if ((SPLIT == 1 || walk.first < walk.last) && lane < ROWS + COLS - 1) arrive_at_rank(empty(before), loader);
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
                    store_release(ready + blockIdx.x * GROUPS + group, 1);
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
                            there = load_acquire(flag);
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
                if (lane == 0) wait_stores_read<1>();
                __syncwarp();
                group_barrier(group);
#pragma unroll
                for (int j = 0; j < 4 && 64 * o + 16 * j < ENDED; ++j) {
                    // Where only 8 rows are left the next 8 are the same again and nobody stores them.
                    const int k = 32 * o + 8 * j, l = 64 * o + 16 * j + 8 < ENDED ? k + 4 : k;
                    store_matrices_transposed(buffer + j * C_BYTES + out_row + ((mine / 8 + out_half) ^ out_swizzle) * 16,
                        packed(acc[k], acc[k + 1]), packed(acc[k + 2], acc[k + 3]),
                        packed(acc[l], acc[l + 1]), packed(acc[l + 2], acc[l + 3]));
                }
                fence_async();
                group_barrier(group);
                if (lane == 0) {
#pragma unroll
                    for (int h = 0; h < 16; h += 8) {
                        const int in = 64 * o + mine + h, to = row + in;
                        // The other rows and columns are another tile's, or garbage where none were loaded.
                        const bool own = in < ENDED && (u32)(to - own_row) < (u32)tile_rows && to < n_rows;
                        if (own && own_col <= at && at < n_cols) store(&c_map, at, to, buffer + (mine + h) * 128);
                    }
                    commit_stores();
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
                if (lane == 0) wait_stores_read<1>();
                __syncwarp();
#pragma unroll
                for (int j = 0; SPLIT > 1 && j < 2; ++j) {
                    const int k = 16 * o + 8 * j;
                    store_matrices(buffer + lane % 8 * 128 + ((4 * j + lane / 8) ^ out_swizzle) * 16,
                        packed(acc[k], acc[k + 1]), packed(acc[k + 2], acc[k + 3]),
                        packed(acc[k + 4], acc[k + 5]), packed(acc[k + 6], acc[k + 7]));
                }
#pragma unroll
                for (int j = 0; SPLIT == 1 && j < 4; ++j) {
                    const int k = 32 * o + 8 * j;
                    store_matrices(buffer + out_row + ((2 * j + out_half) ^ out_swizzle) * 16,
                        packed(acc[k], acc[k + 1]), packed(acc[k + 2], acc[k + 3]),
                        packed(acc[k + 4], acc[k + 5]), packed(acc[k + 6], acc[k + 7]));
                }
                fence_async();
                __syncwarp();
                if (lane == 0) {
                    const int at = col + o * 64;
                    if (own && own_col <= at && at < n_cols) store(&c_map, at, row, buffer);
                    commit_stores();
                }
            }
#endif
        }
        if (lane == 0) wait_stores();
        __syncwarp();
    }
    // The other program may still count at this one's barriers.
    if (SPLIT == 1) cluster_barrier();
}

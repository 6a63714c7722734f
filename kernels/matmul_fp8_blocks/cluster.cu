// matmul_fp8_blocks on sm_90: the tiles, ring, schedule and stream-K of cluster_gemm.cuh with a loop of its own. wgmma sums
// the 128 products of a step; these sums are multiplied by the scales of their row and of their 128 columns and added in
// fp32. Meanwhile the tensor cores multiply the next step of the same warpgroup, or where registers hold the sums of one
// step only, steps of the other warpgroups.
#undef BF16
#define BF16 1
#define FP8 1
#include "cluster_gemm.cuh"

// Whether registers hold the sums of two steps beside those of the tile.
#define TWO_STEPS (BLOCK_M < 192)
// A second warp loads the scales of a step, of each row of A and of each 64 columns, into one of SLOTS places in shared
// memory. One place less than stages fits beside six stages.
constexpr int SLOTS = STAGES - 1, SCALES = BLOCK_M + BOXES;
constexpr u32 SCALES_AT = BARRIERS_AT + STAGES * 16;

DEVICE void copy_float(u32 to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory");
}
// Arrives when what this thread has copied is there.
DEVICE void arrive_when_copied(u32 bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory");
}
// The scales of a thread's two rows of a tile, 8 apart, and of each 64 columns, in one step.
struct Scales {
    float rows[2], columns[BOXES];

    DEVICE void read(u32 from, int row) {
        UNROLL for (int h = 0; h < 2; ++h) rows[h] = __uint_as_float(load_word(from + (row + 8 * h) * 4));
        UNROLL for (int o = 0; o < BOXES; ++o) columns[o] = __uint_as_float(load_word(from + (BLOCK_M + o) * 4));
    }
};

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS + 128, 1) matmul_fp8_blocks_cluster(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, RESULT, float4* partial, int* ready,
    int n_rows, int n_cols, int n_inner, int tile_rows, int last_row, int last_col, int group_rows, const float* a_scale,
    const float* b_scale)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    auto full = [&](int s) { return ring + BARRIERS_AT + s * 16; };
    auto empty = [&](int s) { return ring + BARRIERS_AT + s * 16 + 8; };
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch(&a_map); prefetch(&b_map);
        // A stage is full when its operands and what each lane copies are there, and free when all warps have read it that
        // get a share of what this CTA loads.
        for (int s = 0; s < STAGES; ++s) { init(full(s), 33); init(empty(s), ROWS * CONSUMERS); }
        fence_barrier_init();
    }
    barrier_of_all();
    // The launch before this one may have written the operands, and may still read what this one writes.
    wait_for_launch_before();

    const int tiles_m = (n_rows + ROWS * BLOCK_M - 1) / (ROWS * BLOCK_M);
    const int tiles_n = (n_cols + BLOCK_N - 1) / BLOCK_N;
    // A tile stores from own_row and own_col on. It loads from row and col on, which lie before them at the edges of the
    // matrix: the TMA fills boxes outside the matrix with zeros, slowly.
    struct Place { int row, col, own_row, own_col; };
    auto place_of_tile = [&](int tile, int rank) {
        const int group = tile / (group_rows * tiles_n), rest = tile % (group_rows * tiles_n);
        const int rows = min(group_rows, tiles_m - group * group_rows);
        const int own_row = ((group * group_rows + rest % rows) * ROWS + rank) * tile_rows;
        const int own_col = rest / rows * BLOCK_N;
        return Place{min(own_row, last_row), min(own_col, last_col), own_row, own_col};
    };
    // Each role makes its own of what follows: ptxas would keep common values in local memory.
    auto rank_of_this = [] { return (int)(block_id() % ROWS); };
    auto walk_of = [&](int cluster) {
        return Walk(tiles_m * tiles_n, (n_inner + BLOCK_K - 1) / BLOCK_K, cluster, gridDim.x / ROWS, 0);
    };

    if (warp >= CONSUMERS) {
        if (GROUPS == 2) decrease_registers<56>();
        if (GROUPS == 3) decrease_registers<56>();
        if (warp == LOADER && elected()) {
            Walk walk = walk_of(cluster_of_this());
            const int rank = rank_of_this(), share = BLOCK_N / ROWS * rank;
            int s = 0, phase = 1;
            while (walk.advance()) {
                const Place at = place_of_tile(walk.tile, rank);
                NO_UNROLL for (int i = walk.first; i < walk.last; ++i) {
                    wait(empty(s), phase);
                    expect(full(s), tile_rows * K_BYTES + B_BYTES);
                    const u32 a = ring + s * STAGE_BYTES, b = a + A_BYTES;
                    load(a, &a_map, i * BLOCK_K, at.row, full(s));
                    if (ROWS == 1) load(b, &b_map, i * BLOCK_K, at.col, full(s));
                    else load_for((1 << ROWS) - 1, b + share * K_BYTES, &b_map, i * BLOCK_K, at.col + share, full(s));
                    if (++s == STAGES) { s = 0; phase ^= 1; }
                }
            }
        } else if (warp == LOADER + 1) {
            Walk walk = walk_of(cluster_of_this());
            const int lane = thread_id() % 32, rank = rank_of_this();
            // The step whose place is taken again lies one stage further on.
            int s = 0, freed = 1, phase = 1, slot = 0;
            while (walk.advance()) {
                const Place at = place_of_tile(walk.tile, rank);
                const float *of_rows = a_scale + (i64)walk.first * n_rows, *of_columns = b_scale + walk.first
                    + (i64)(min(at.col + 64 * min(lane, BOXES - 1), n_cols - 1) / 128) * walk.steps;
                int rows[BLOCK_M / 32];
                UNROLL for (int r = 0; r < BLOCK_M / 32; ++r) rows[r] = min(at.row + lane + 32 * r, n_rows - 1);
                NO_UNROLL for (int i = walk.first; i < walk.last; ++i) {
                    const u32 to = ring + SCALES_AT + (slot * SCALES + lane) * 4;
                    wait(empty(freed), phase);
                    UNROLL for (int r = 0; r < BLOCK_M / 32; ++r) copy_float(to + 128 * r, of_rows + rows[r]);
                    if (lane < BOXES) copy_float(to + BLOCK_M * 4, of_columns);
                    of_rows += n_rows;
                    ++of_columns;
                    arrive_when_copied(full(s));
                    if (++s == STAGES) s = 0;
                    if (++freed == STAGES) { freed = 0; phase ^= 1; }
                    if (++slot == SLOTS) slot = 0;
                }
            }
        }
        __syncwarp();
    } else {
        if (GROUPS == 2) increase_registers<224>();
        if (GROUPS == 3) increase_registers<152>();
        const int group = warp / 4, thread = thread_id(), lane = thread % 32, warp_row = group * 64 + warp % 4 * 16;
        const u32 out = ring + C_AT + warp * 2 * C_BYTES;
        // Where lane l gives the address of a row of stmatrix: matrices lie as rows 0-7, rows 8-15, the next columns.
        const u32 out_row = lane % 16 * 128, out_swizzle = lane % 8, out_half = lane / 16;
        const int cluster = cluster_of_this(), rank = rank_of_this();
        Walk walk = walk_of(cluster);
        int s = 0, phase = 0, turn = 0, slot = 0;
        while (walk.advance()) {
            float acc[ACC], sums[ACC];
            UNROLL for (int i = 0; i < ACC; ++i) acc[i] = 0.f;
            // Begins to multiply a step and returns the barrier at which its stage is released.
            auto multiply = [&](float (&to)[ACC], Scales& scales) {
                const u32 stage = uniform((ring & 0x3ffff) + s * STAGE_BYTES), used = empty(s);
                wait(full(s), phase);
                const u64 a = K_MAJOR | (stage + group * 8192) >> 4, b = K_MAJOR | (stage + A_BYTES) >> 4;
                fence_products();
                UNROLL for (int k = 0; k < CHUNKS; ++k) mma(to, a + k * (32 >> 4), b + k * (32 >> 4), k > 0);
                commit_products();
                scales.read(ring + SCALES_AT + slot * SCALES * 4, warp_row + lane / 4);
                if (++s == STAGES) { s = 0; phase ^= 1; }
                if (++slot == SLOTS) slot = 0;
                return used;
            };
            auto add = [&](float (&of)[ACC], const Scales& scales, u32 used) {
                pin(of);
                // A lane arrives for its warp, all of whose lanes have read the scales.
                __syncwarp();
                // All CTAs of the cluster load something for this one.
                if (lane < ROWS) release(used, lane);
                UNROLL for (int o = 0; o < BOXES; ++o) {
                    const float above = scales.rows[0] * scales.columns[o], below = scales.rows[1] * scales.columns[o];
                    UNROLL for (int i = 32 * o; i < 32 * o + 32; ++i) acc[i] += of[i] * (i / 2 % 2 ? below : above);
                }
            };
            int left = walk.last - walk.first;
            Scales scales;
#if TWO_STEPS
            float next_sums[ACC];
            Scales next_scales;
            u32 used = multiply(sums, scales), next_used;
            NO_UNROLL for (; left > 2; left -= 2) {
                next_used = multiply(next_sums, next_scales);
                wait_products<1>();
                add(sums, scales, used);
                used = multiply(sums, scales);
                wait_products<1>();
                add(next_sums, next_scales, next_used);
            }
            // ptxas lets no product overlap if one is in flight where branches meet.
            if (left == 2) {
                next_used = multiply(next_sums, next_scales);
                wait_products<1>();
                add(sums, scales, used);
                wait_products<0>();
                add(next_sums, next_scales, next_used);
            } else {
                wait_products<0>();
                add(sums, scales, used);
            }
#else
            NO_UNROLL for (; left > 0; --left) {
                const u32 used = multiply(sums, scales);
                wait_products<0>();
                add(sums, scales, used);
            }
#endif
            if (STREAM && walk.last < walk.steps) {
                leave_sums(acc, partial, ready, group, thread);
                continue;
            }
            if (STREAM && walk.first > 0) add_sums(acc, partial, ready, walk, cluster, rank, group, thread);
            Place to = place_of_tile(walk.tile, rank);
            to.row += warp_row;
            // The other rows are another tile's, or garbage where none were loaded; a warp's are never of both kinds.
            const bool own = (u32)(to.row - to.own_row) < (u32)tile_rows && to.row < n_rows;
            UNROLL for (int o = 0; o < BOXES; ++o) {
                const u32 buffer = out + (BOXES % 2 ? turn++ % 2 : o % 2) * C_BYTES;
                // The store that used this buffer has read it.
                if (lane == 0) wait_stores_read<1>();
                __syncwarp();
                UNROLL for (int i = 32 * o, j = 0; j < 4; i += 8, ++j)
                    store_matrices(buffer + out_row + ((2 * j + out_half) ^ out_swizzle) * 16,
                        packed(acc[i], acc[i + 1]), packed(acc[i + 2], acc[i + 3]),
                        packed(acc[i + 4], acc[i + 5]), packed(acc[i + 6], acc[i + 7]));
                fence_async();
                __syncwarp();
                const int col = to.col + o * 64;
#if DIRECT
                if (own && to.own_col <= col)
                    NO_UNROLL for (int h = 0; h < min(16, n_rows - to.row); ++h)
                        store_row(c, to.row + h, col, n_cols, buffer, h, lane);
#else
                if (lane == 0) {
                    if (own && to.own_col <= col && col < n_cols) store(&c_map, col, to.row, buffer);
                    commit_stores();
                }
#endif
            }
        }
        if (lane == 0) wait_stores();
        __syncwarp();
    }
    // The other CTAs may still arrive at the mbarriers of this one.
    if (ROWS > 1) cluster_barrier();
}

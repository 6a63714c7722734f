// matmul_bias_relu on clusters: constants, tile schedule and stream-K are those of cluster_gemm.cuh. The loop is that of
// cluster_gemm_kernel.cuh without even tiles and swap-AB: including that file changed the instruction schedule.
#include "cluster_gemm.cuh"

// Leaves the sums of half of each 16 rows in the other part's shared memory and adds to its own half what that left
// here. The sums that a program ends come to lie in the first half of acc.
DEVICE void exchange_halves(float (&acc)[ACC], u32 ring, int thread, int part, int other) {
    const u32 there = peer(ring + thread * 16, other);
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
    auto place = [&](int tile, int& row, int& col) {
        const int group = tile / (group_rows * tiles_n), rest = tile % (group_rows * tiles_n);
        const int rows = min(group_rows, tiles_m - group * group_rows);
        row = ((group * group_rows + rest % rows) * ROWS + down) * BLOCK_M;
        col = (rest / rows * COLS + right) * BLOCK_N;
    };
    int row, col;

    if (warp >= CONSUMERS) {
        if (GROUPS == 2) decrease_registers<40>();
        if (GROUPS == 3) decrease_registers<32>();
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
        if (GROUPS == 2) increase_registers<232>();
        if (GROUPS == 3) increase_registers<160>();
        const int group = warp / 4, thread = thread_id(), lane = thread % 32;
        // A: rows of 64 inner positions (128 bytes, swizzled), 8 an atom. B: 64 columns by 8 inner positions an atom.
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
                const u64 a = K_MAJOR | (at + group * 8192) >> 4, b = MN_MAJOR | (at + A_BYTES) >> 4;
                fence_products();
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k)
                    mma(acc, a + k * (32 >> 4), b + k * (2048 >> 4), k > 0 || i > walk.first);
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
            if (SPLIT > 1) exchange_halves(acc, ring, thread, part, (rank + PLACES) % (PLACES * SPLIT));

            if (STREAM && walk.last < walk.steps) {
                leave_sums(acc, partial, ready, group, thread);
                continue;
            }
            if (STREAM && walk.first > 0) add_sums(acc, partial, ready, walk, cluster, rank, group, thread);
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
                    if (row < n_rows && col + o * 64 < n_cols) store(&c_map, col + o * 64, row, buffer);
                    commit_stores();
                }
            }
        }
        if (lane == 0) wait_stores();
        __syncwarp();
    }
    // The other program may still count at this one's barriers.
    if (SPLIT == 1) cluster_barrier();
}

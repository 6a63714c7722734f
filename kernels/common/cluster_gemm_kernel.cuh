// The kernel of cluster_gemm.cuh. The file that includes this one defines:
//   NAME: the entry. PARAMETERS: what follows A, B and C: partial and ready (the stream-K workspace), n_rows, n_cols,
//     n_inner, tile_rows, last_row, last_col, group_rows (rows of tiles that are scheduled together, so that tiles of B
//     stay in L2), and what the epilogue needs.
//   EPILOGUE(acc, col, n_cols, lane): a statement on the accumulators of a finished tile that begins at column col; with
//     SWAPPED, of a warp's 16 columns from col on.
//   PACKED(lo, hi): two accumulators as two 16-bit results; with INT8 WIDE(sum): one as an fp32 result.
//   BEFORE_TILE(col, lane), if any: a statement of a warp that multiplies, before it waits for a tile from col on.
//   AWAITS_A, 1 where only A comes from the launch before: AWAIT_A(b_map, col, step, lane), a statement of the warp that
//     loads, before its first tile, waits for that launch.
// It is included as text: as an inlined device function it compiled to another instruction schedule (NVRTC 13).

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS + 128, 1) NAME(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
    RESULT, PARAMETERS)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int rank = blockIdx.x % (PLACES * SPLIT), part = rank / PLACES;
    const int down = rank % ROWS, right = rank % PLACES / ROWS;
    // The first of the CTAs that share this one's tile of A, and of B.
    const int beside = part * PLACES + down, above = part * PLACES + right * ROWS;
    auto full = [&](int s) { return ring + BARRIERS_AT + s * 16; };
    auto empty = [&](int s) { return ring + BARRIERS_AT + s * 16 + 8; };
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch(&a_map); prefetch(&b_map);
#if !DIRECT
        prefetch(&c_map);
#endif
        // A stage is free when all warps have read it that get a share of what this CTA loads.
        for (int s = 0; s < STAGES; ++s) { init(full(s), 1); init(empty(s), (ROWS + COLS - 1) * CONSUMERS); }
        fence_barrier_init();
    }
    barrier_of_all();
    // The launch before this one may have written the operands, and may still read what this one writes.
    if (!AWAITS_A) wait_for_launch_before();

    const int tiles_m = (n_rows + ROWS * BLOCK_M - 1) / (ROWS * BLOCK_M);
    const int tiles_n = (n_cols + COLS * BLOCK_N - 1) / (COLS * BLOCK_N);
    const int steps = (n_inner + BLOCK_K - 1) / BLOCK_K;
    // A tile stores from own_row and own_col on. It loads from row and col on, which lie before them at the edges of the
    // matrix: the TMA fills boxes outside the matrix with zeros, slowly. TMA stores write columns before own_col in
    // the same 64 again, with the same bits; lanes that store 64 at once need columns in steps of 64.
    int row, col, own_row, own_col;
    auto place = [&](int tile) {
        const int group = tile / (group_rows * tiles_n), rest = tile % (group_rows * tiles_n);
        const int rows = min(group_rows, tiles_m - group * group_rows);
        own_row = ((group * group_rows + rest % rows) * ROWS + down) * tile_rows;
        own_col = (rest / rows * COLS + right) * BLOCK_N;
        row = min(own_row, last_row);
        col = min(own_col, last_col);
    };

    if (warp >= CONSUMERS) {
        if (GROUPS > 1) decrease_registers<LOADING>();
#if AWAITS_A
        if (warp == LOADER) {
            Walk walk(tiles_m * tiles_n, steps, cluster_of_this(), gridDim.x / (PLACES * SPLIT), part);
            col = n_cols;
            if (walk.advance()) place(walk.tile);
            AWAIT_A(&b_map, col, walk.first, thread_id() % 32);
            __syncwarp();
        }
#endif
        if (warp == LOADER && elected()) {
            Walk walk(tiles_m * tiles_n, steps, cluster_of_this(), gridDim.x / (PLACES * SPLIT), part);
            int s = 0, phase = 1;
            // One bit for each CTA beside this one.
            const u32 a_mask = ((1 << ROWS * COLS) - 1) / ((1 << ROWS) - 1) << beside, b_mask = ((1 << ROWS) - 1) << above;
            while (walk.advance()) {
                place(walk.tile);
                const int share = tile_rows / COLS * right;
#pragma unroll 1
                for (int i = walk.first; i < walk.last; ++i) {
                    wait(empty(s), phase);
                    expect(full(s), tile_rows * K_BYTES + B_BYTES);
                    const u32 a = ring + s * STAGE_BYTES, b = a + A_BYTES;
                    if (COLS == 1) {
                        load(a, &a_map, i * BLOCK_K, row, full(s));
                    } else {
                        load_for(a_mask, a + share * K_BYTES, &a_map, i * BLOCK_K, row + share, full(s));
                    }
                    if (B_ROWS && ROWS == 1) {
                        load(b, &b_map, i * BLOCK_K, col, full(s));
                    } else if (B_ROWS) {
                        load_for(b_mask, b + down * (B_BYTES / ROWS), &b_map, i * BLOCK_K,
                                 col + down * (BLOCK_N / ROWS), full(s));
                    } else if (ROWS == 1) {
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
                        // The boxes do not divide: each CTA loads its share of the rows of all.
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
        if (GROUPS > 1) increase_registers<MULTIPLYING>();
        const int group = warp / 4, thread = thread_id(), lane = thread % 32;
        // A warpgroup takes 64 rows of A, or with SWAPPED 64 columns of B, and all of the other operand.
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
        if (AWAITS_A) wait_for_launch_before();
        const int cluster = cluster_of_this();
        Walk walk(tiles_m * tiles_n, steps, cluster, gridDim.x / (PLACES * SPLIT), part);
        // The CTAs that load something for this one, one for each lane.
        const int other = lane - ROWS, loader = lane < ROWS ? above + lane : beside + (other + (other >= right)) * ROWS;
        int s = 0, phase = 0, turn = 0;
        while (walk.advance()) {
#ifdef BEFORE_TILE
            place(walk.tile);
            if (warp == 0) BEFORE_TILE(col, lane);
#endif
            Sum acc[ACC];
            // Sums of fp8 are added to them, and one step alone leaves the first part of SPLIT without any.
            if (FP8 || SPLIT > 1) {
#pragma unroll
                for (int i = 0; i < ACC; ++i) acc[i] = 0;
            }
#if FP8
            // Begins to multiply a step and returns the barrier at which its stage is released.
            auto multiply = [&](float (&to)[ACC]) {
                // The same in all lanes, which the compiler does not see: descriptors belong in uniform registers.
                const u32 at = __shfl_sync(~0u, (ring & 0x3ffff) + s * STAGE_BYTES, 0), used = empty(s);
                wait(full(s), phase);
                const u64 a = K_MAJOR | (at + a_own) >> 4, b = K_MAJOR | (at + b_own) >> 4;
                fence_products();
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k) {
                    const u64 a_k = a + k * (32 >> 4), b_k = b + k * (32 >> 4);
                    mma(to, SWAPPED ? b_k : a_k, SWAPPED ? a_k : b_k, k > 0);
                }
                commit_products();
                if (++s == STAGES) { s = 0; phase ^= 1; }
                return used;
            };
            auto free_stage = [&](u32 used) { if (lane < ROWS + COLS - 1) release(used, loader); };
            const int left = walk.last - walk.first;
            constexpr bool two_steps = 3 * ACC + 24 <= (GROUPS == 1 ? 255 : MULTIPLYING);
            if (!two_steps || SPLIT == 1 || left > 0) multiply_promoted<two_steps>(acc, left, multiply, free_stage);
#else
            int before = 0;
#pragma unroll 1
            for (int i = walk.first; i < walk.last; ++i) {
                // The same in all lanes, which the compiler does not see: descriptors belong in uniform registers.
                const u32 at = __shfl_sync(~0u, (ring & 0x3ffff) + s * STAGE_BYTES, 0);
                wait(full(s), phase);
                const u64 a = K_MAJOR | (at + a_own) >> 4, b = (B_ROWS ? K_MAJOR : MN_MAJOR) | (at + b_own) >> 4;
                fence_products();
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k) {
                    const u64 a_k = a + k * (32 >> 4), b_k = b + k * ((B_ROWS ? 32 : 2048) >> 4);
                    mma(acc, SWAPPED ? b_k : a_k, SWAPPED ? a_k : b_k, k > 0 || i > walk.first);
                }
                commit_products();
                // The products of the step before are done; those of this one are in flight.
                wait_products<1>();
                if (i > walk.first && lane < ROWS + COLS - 1) release(empty(before), loader);
                before = s;
                if (++s == STAGES) { s = 0; phase ^= 1; }
            }
            wait_products<0>();
            pin(acc);
            if ((SPLIT == 1 || walk.first < walk.last) && lane < ROWS + COLS - 1) release(empty(before), loader);
#endif
            // All warps have read the stages that results overwrite.
            if (STORES_IN_RING) barrier_of_multiplying();
            if (SPLIT > 1) exchange(acc, ring, thread, part, (rank + PLACES) % (PLACES * SPLIT));

            if (STREAM && walk.last < walk.steps) {
                leave_sums(acc, partial, ready, group, thread);
                continue;
            }
            if (STREAM && walk.first > 0) add_sums(acc, partial, ready, walk, cluster, rank, group, thread);
            place(walk.tile);
#if INT8
            // Of each four accumulators of a lane two lie one above the other, and two 8 columns on: eight lanes store 32
            // bytes of a row.
            const int first_row = row + lane % 4 * 2 + (SPLIT > 1 ? part * (BLOCK_M / SPLIT) : 0);
            const int first_col = col + group * 64 + warp % 4 * 16 + lane / 4;
#pragma unroll
            for (int i = 0; i < ACC / SPLIT; ++i) {
                const int to = first_row + i / 4 * 8 + i % 2, at = first_col + i / 2 % 2 * 8;
                const bool own = to < n_rows && (u32)(to - own_row) < (u32)tile_rows;
                if (own && own_col <= at && at < n_cols) c[(i64)to * n_cols + at] = WIDE(acc[i]);
            }
#elif SWAPPED
            // A warp holds 16 columns of all rows that its CTA stores. The warpgroup gathers pieces of 64 rows by 64
            // columns, and each warp stores 16 rows of a piece: 8, then 8, since tiles begin at any multiple of 8.
            constexpr int ENDED = BLOCK_M / SPLIT, PIECES = (ENDED + 63) / 64;
            const int at = col + group * 64, mine = warp % 4 * 16;
            EPILOGUE(acc, at + mine, n_cols, lane);
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
                        PACKED(acc[k], acc[k + 1]), PACKED(acc[k + 2], acc[k + 3]),
                        PACKED(acc[l], acc[l + 1]), PACKED(acc[l + 2], acc[l + 3]));
                }
                fence_async();
                group_barrier(group);
#if DIRECT
#pragma unroll 4
                for (int h = 0; h < 16; ++h) {
                    const int in = 64 * o + mine + h, to = row + in;
                    if (in < ENDED && (u32)(to - own_row) < (u32)tile_rows && to < n_rows && own_col <= at)
                        store_row(c, to, at, n_cols, buffer + mine * 128, h, lane);
                }
#else
                if (lane == 0) {
#pragma unroll
                    for (int h = 0; h < 16; h += 8) {
                        const int in = 64 * o + mine + h, to = row + in;
                        // The other rows and columns are another tile's, or garbage where none were loaded.
                        const bool own = in < ENDED && (u32)(to - own_row) < (u32)tile_rows && to < n_rows;
                        if (own && own_col < at + 64 && at < n_cols) store(&c_map, at, to, buffer + (mine + h) * 128);
                    }
                    commit_stores();
                }
#endif
            }
#else
            EPILOGUE(acc, col, n_cols, lane);
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
                        PACKED(acc[k], acc[k + 1]), PACKED(acc[k + 2], acc[k + 3]),
                        PACKED(acc[k + 4], acc[k + 5]), PACKED(acc[k + 6], acc[k + 7]));
                }
#pragma unroll
                for (int j = 0; SPLIT == 1 && j < 4; ++j) {
                    const int k = 32 * o + 8 * j;
                    store_matrices(buffer + out_row + ((2 * j + out_half) ^ out_swizzle) * 16,
                        PACKED(acc[k], acc[k + 1]), PACKED(acc[k + 2], acc[k + 3]),
                        PACKED(acc[k + 4], acc[k + 5]), PACKED(acc[k + 6], acc[k + 7]));
                }
                fence_async();
                __syncwarp();
                const int at = col + o * 64;
#if DIRECT
                if (own && own_col <= at)
#pragma unroll 4
                    for (int h = 0; h < min(16 / SPLIT, n_rows - row); ++h)
                        store_row(c, row + h, at, n_cols, buffer, h, lane);
#else
                if (lane == 0) {
                    if (own && own_col < at + 64 && at < n_cols) store(&c_map, at, row, buffer);
                    commit_stores();
                }
#endif
            }
#endif
        }
        if (lane == 0) wait_stores();
        __syncwarp();
    }
    // The other CTAs may still arrive at the mbarriers of this one.
    if (PLACES > 1 && SPLIT == 1) cluster_barrier();
}

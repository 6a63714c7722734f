// y = rmsnorm(x) times W with ping-pong warpgroups and swap-AB. The weights are wgmma's A operand, scaled by the gain
// on their way into registers; x is its B operand, unscaled. Groups of warpgroups alternate on the K steps: while one
// waits for weights or scales them, the wgmma of the others runs. Their accumulators are added in shared memory. The
// weights and x have a producer warp and a pipeline each. Other warps sum the squares of x: of the CTA's own tile, from
// shared memory, or, where that would take longer than its wgmma, the first CTAs do it once for all.
// Macros, of the launch configuration (ping_pong.py):
//   BLOCK_B, BLOCK_O: the tile. W_STAGES, X_STAGES: stages of the weights and of x; with X_STAGES 0 x shares those of
//     the weights, which halves the mbarriers. BF16: 1 for bf16, 0 for fp16.
//   GROUPS: groups that alternate. PREFETCH_WEIGHTS: a group scales its next weights while its wgmma runs.
//   CLUSTER_M: CTAs of a cluster, one row tile each, that load every weight once for both, by multicast.
//   SPLIT_K: CTAs of a cluster that divide a tile's inner dimension and exchange partial sums.
//   LOCAL_SQUARES: 1 where a CTA squares its own rows.
// The loops of the warp roles stay in the kernel: as functions they made ptxas allocate other registers.
#include "ping_pong.cuh"

DEVICE void load_weight(u32 to, const TensorMap* map, int inner, int outer, u32 bar, u64 policy) {
    if (CLUSTER_M == 1) load(to, map, inner, outer, bar, policy);
    else load_for((1 << CLUSTER_M) - 1, to, map, inner, outer, bar, policy);
}
// LOCAL_SQUARES: adds the sums of squares of the squaring warps and of the ranks, and stores 1 / rms of each row.
DEVICE void reduce_squares(float sum, unsigned char* memory, const Barriers& barriers, int square_warp, int lane,
    int rank, int own_rows, int n_inner, float eps)
{
    float* const of_ranks = (float*)(memory + RSTD_AT);
    float* const of_warps = (float*)(memory + SQUARES_AT);
    if (lane < BLOCK_B) of_warps[square_warp * BLOCK_B + lane] = sum;
    asm volatile("bar.sync 2, %0;" :: "n"(SQUARE_WARPS * 32) : "memory");
    if (SPLIT_K > 1) cluster_wait();
    // One warp adds them. The sums of a rank's own rows are collected there.
    if (square_warp == 0) {
        if (lane < BLOCK_B) {
            sum = of_warps[lane];
            UNROLL for (int q = 1; q < SQUARE_WARPS; ++q) sum += of_warps[q * BLOCK_B + lane];
            int to = 0;
            UNROLL for (int p = 1; p < SPLIT_K; ++p) to += lane >= first_block(p * GROUPS) * 8;
            float* const there = of_ranks + rank * MAX_OWN_ROWS + lane - first_block(to * GROUPS) * 8;
            if (to == rank) *there = sum;
            else send(peer(shared(there), to), sum, peer(barriers.squares_received(), to));
        }
        __syncwarp();
        if (SPLIT_K > 1) wait(barriers.squares_received(), 0);
        if (lane < own_rows) {
            sum = of_ranks[lane];
            UNROLL for (int p = 1; p < SPLIT_K; ++p) sum += of_ranks[p * MAX_OWN_ROWS + lane];
            of_ranks[lane] = rsqrtf(sum / n_inner + eps);
        }
    }
}

// Without LOCAL_SQUARES the first CTAs sum the squares of all rows. One warp takes a row, LOADS_IN_FLIGHT times 16
// bytes a lane, and writes each reader, a column tile, its own copy of the sum.
DEVICE void publish_squares(const u16* x, float* words, int row, int readers, int n_rows, int n_inner) {
    const uint4* const from = (const uint4*)(x + (long long)row * n_inner);
    const int lane = threadIdx.x % 32;
    float sums[4] = {0.f, 0.f, 0.f, 0.f};
    NO_UNROLL for (int at = lane; at < n_inner / 8; at += 32 * LOADS_IN_FLIGHT) {
        uint4 v[LOADS_IN_FLIGHT];
        UNROLL for (int k = 0; k < LOADS_IN_FLIGHT; ++k)
            v[k] = at + k * 32 < n_inner / 8 ? __ldcg(from + at + k * 32) : make_uint4(0, 0, 0, 0);
        UNROLL for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
            sums[0] = squared(v[k].x, sums[0]);
            sums[1] = squared(v[k].y, sums[1]);
            sums[2] = squared(v[k].z, sums[2]);
            sums[3] = squared(v[k].w, sums[3]);
        }
    }
    float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    UNROLL for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
    NO_UNROLL for (int reader = lane; reader < readers; reader += 32)
        *(volatile float*)(words + (long long)reader * n_rows + row) = sum;
}
// Polls N of a reader's words, STRIDE apart, and resets them for the next launch; none is written beyond the rows.
template <int STRIDE, int N> DEVICE void collect_squares(float (&sums)[N], float* words, int rows) {
    bool missing;
    do {
        missing = false;
        UNROLL for (int k = 0; k < N; ++k) sums[k] = k * STRIDE < rows ? *(volatile float*)(words + k * STRIDE) : 0.f;
        UNROLL for (int k = 0; k < N; ++k) missing |= __float_as_uint(sums[k]) == UNWRITTEN;
    } while (missing);
    UNROLL for (int k = 0; k < N; ++k)
        if (k * STRIDE < rows) words[k * STRIDE] = __uint_as_float(UNWRITTEN);
}

// Epilogue. Only constants may index registers, so every thread asks of all row blocks whether they are its own.
DEVICE float4 accumulators_of(const float (&acc)[ACC], int block) {
    return make_float4(acc[4 * block], acc[4 * block + 1], acc[4 * block + 2], acc[4 * block + 3]);
}
// The groups of a CTA exchange the accumulators of row blocks that they do not own. slot: a thread's place in a block.
DEVICE void reduce_groups(float (&acc)[ACC], unsigned char* memory, int group, u32 slot) {
    UNROLL for (int e = 0; e < ROW_BLOCKS; ++e) {
        const int to = owner_of(e) % GROUPS, at = group - (group > to);
        if (to != group) *(float4*)(memory + (at * ROW_BLOCKS + e) * BLOCK_BYTES + slot) = accumulators_of(acc, e);
    }
    consumer_barrier();
    UNROLL for (int e = 0; e < ROW_BLOCKS; ++e) {
        const int to = owner_of(e) % GROUPS;
        if (to == group) reduce<GROUPS>(acc + 4 * e, to, memory + e * BLOCK_BYTES + slot, ROW_BLOCKS * BLOCK_BYTES);
    }
}
// The ranks of split-K do the same.
DEVICE void send_to_ranks(const float (&acc)[ACC], const Barriers& barriers, int rank, int group, u32 slot) {
    if (!RECEIVE_APART) wait(barriers.peers_ready(), 0);
    UNROLL for (int e = 0; e < ROW_BLOCKS; ++e) {
        const int to = owner_of(e) / GROUPS, from = rank - (rank > to);
        if (owner_of(e) % GROUPS != group || to == rank) continue;
        const u32 at = barriers.base + RECEIVED_AT + from * SENT_BYTES + (e - first_block(to * GROUPS)) * BLOCK_BYTES;
        send(peer(at + slot, to), accumulators_of(acc, e), peer(barriers.sums_received(), to));
    }
}
extern "C" __global__ void __cluster_dims__(CLUSTER_M * SPLIT_K, 1, 1) __launch_bounds__(WARPS * 32, 1)
rmsnorm_matmul_ping_pong(
    const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map, const u16* x,
    const u16* gain, u16* y, float* row_sums, int squaring, int n_rows, int n_inner, int n_cols, float eps)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 base = shared(memory);
    const Barriers barriers = {base};
    const int thread = threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0), lane = thread % 32;
    launch_dependents();
    if (thread == 0) init_barriers(barriers);
    __syncthreads();
    // Waited for before the first store to another rank, which must have started by then.
    if (CLUSTER_M * SPLIT_K > 1) cluster_arrive_relaxed();
    if (CLUSTER_M > 1) cluster_wait();
    const int rank_m = blockIdx.x % CLUSTER_M, rank = blockIdx.x % SPLIT_K, tile = blockIdx.x / SPLIT_K;
    const int row_tiles = (n_rows + BLOCK_B - 1) / BLOCK_B, all_steps = (n_inner + BLOCK_K - 1) / BLOCK_K;
    const int first = all_steps * rank / SPLIT_K, steps = all_steps * (rank + 1) / SPLIT_K - first;
    const int row = tile % row_tiles * BLOCK_B, col_tile = tile / row_tiles, col = col_tile * BLOCK_O;
    const int own_first = first_block(rank * GROUPS) * 8, own_rows = own_blocks(rank) * 8;

    // Of the 64 K registers of an SM, by warpgroups.
    constexpr int PRODUCER_REGISTERS = CONSUMERS == 16 ? 32 : 56, CONSUMER_REGISTERS = CONSUMERS == 16 ? 112 : 224;
    if (warp >= W_LOADER && REALLOCATE) decrease_registers<PRODUCER_REGISTERS>();
    if (warp == W_LOADER) {
        if (elected()) {
            u64 policy;
            if (row_tiles <= CLUSTER_M) policy = evict_first();
            else policy = evict_normal();
            // The previous launch may have written x. Loads of the weights and of the gain do not wait for it.
            NO_UNROLL for (PipelineState<W_STAGES, 1> at(0); at.step < steps; at.advance()) {
                if (at.step == EARLY_STAGES) wait_for_launch_before();
                wait(barriers.w_empty(at.stage), at.phase ^ 1);
                expect(barriers.w_full(at.stage), W_BYTES + (SHARED_STAGES ? X_BYTES : 0));
                // Each CTA of the cluster loads its share of the inner positions, for all.
                UNROLL for (int o = 0; o < WARPGROUPS_O; ++o)
                    load_weight(base + at.stage * W_BYTES + o * 8192 + rank_m * (8192 / CLUSTER_M), &weight_map,
                        col + o * 64, (first + at.step) * BLOCK_K + rank_m * (BLOCK_K / CLUSTER_M),
                        barriers.w_full(at.stage), policy);
            }
        }
        __syncwarp();
    } else if (warp == X_LOADER) {
        if (elected()) {
            auto load_x = [&](int step, int stage) {
                load(base + X_AT + stage * X_BYTES, &x_map, (first + step) * BLOCK_K, row, barriers.x_full(stage));
            };
            const int early = min(steps, X_DEPTH);
            NO_UNROLL for (int s = 0; !SHARED_STAGES && s < early; ++s) expect(barriers.x_full(s), X_BYTES);
            wait_for_launch_before();
#pragma unroll 4
            for (int s = 0; s < early; ++s) load_x(s, s);
            NO_UNROLL for (PipelineState<X_DEPTH, 1> at(0); at.step + X_DEPTH < steps; at.advance()) {
                wait(barriers.x_empty(at.stage), at.phase);
                if (!SHARED_STAGES) expect(barriers.x_full(at.stage), X_BYTES);
                load_x(at.step + X_DEPTH, at.stage);
            }
        }
        __syncwarp();
    } else if (warp >= FIRST_SQUARE_WARP && LOCAL_SQUARES) {
        // The warps alternate on the steps. A lane takes a row, and of its eight times 16 bytes every 32 / LANES-th.
        constexpr int LANES = BLOCK_B <= 8 ? 8 : BLOCK_B <= 16 ? 16 : 32, VECTORS = LANES / 4;
        const int square_warp = warp - FIRST_SQUARE_WARP, r = lane % LANES;
        float sums[VECTORS];
        UNROLL for (int t = 0; t < VECTORS; ++t) sums[t] = 0.f;
        typedef PipelineState<X_DEPTH, LOCAL_SQUARES ? SQUARE_WARPS : 1> SquareState;
        NO_UNROLL for (SquareState at(square_warp); at.step < steps; at.advance()) {
            wait(barriers.x_full(at.stage), at.phase);
            uint4 v[VECTORS];
            UNROLL for (int t = 0; t < VECTORS; ++t) {
                const int sixteen = t * (32 / LANES) + lane / LANES ^ lane % 8;
                v[t] = make_uint4(0, 0, 0, 0);
                if (r < BLOCK_B)
                    load_words(&v[t].x, base + X_AT + at.stage * X_BYTES + r * 128 + sixteen * 16);
            }
            // An arrival does not wait for loads: it is made to depend on all of them.
            bool done = true;
            UNROLL for (int t = 0; t < VECTORS; ++t) {
                sums[t] = squared(v[t].w, squared(v[t].z, squared(v[t].y, squared(v[t].x, sums[t]))));
                asm volatile("" : "+f"(sums[t]));
                done &= !(sums[t] < 0.f);
            }
            __syncwarp();
            if (lane == 0 && done && at.step + X_DEPTH < steps) arrive(barriers.x_empty(at.stage));
        }
        __syncwarp();
        if (lane == 0) arrive(barriers.x_squared());
        float sum = 0.f;
        UNROLL for (int t = 0; t < VECTORS; ++t) sum += sums[t];
        UNROLL for (int bit = LANES; bit < 32; bit *= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        reduce_squares(sum, memory, barriers, square_warp, lane, rank, own_rows, n_inner, eps);
        arrive(barriers.rstd_ready());
        return;
    } else if (warp >= FIRST_SQUARE_WARP) {
        wait_for_launch_before();
        // Layout of the sums: [column tile][row].
        constexpr int THREADS = SQUARE_WARPS * 32, MOST = (MAX_OWN_ROWS + THREADS - 1) / THREADS;     // rows of a lane
        const int col_tiles = (n_cols + BLOCK_O - 1) / BLOCK_O, square_warp = warp - FIRST_SQUARE_WARP;
        const int in_rank = square_warp * 32 + lane;
        NO_UNROLL for (int r = square_warp * squaring + blockIdx.x; blockIdx.x < squaring && r < n_rows;
                       r += SQUARE_WARPS * squaring)
            publish_squares(x, row_sums, r, col_tiles, n_rows, n_inner);
        float sums[MOST];
        const int own = row + own_first, rows = min(n_rows - own, own_rows) - in_rank;
        collect_squares<THREADS>(sums, row_sums + (long long)col_tile * n_rows + own + in_rank, rows);
        UNROLL for (int k = 0; k < MOST; ++k)
            if (in_rank + k * THREADS < own_rows)
                ((float*)(memory + RSTD_AT))[in_rank + k * THREADS] = rsqrtf(sums[k] / n_inner + eps);
        arrive(barriers.rstd_ready());
    }
    if (warp >= W_LOADER) {
        if (SPLIT_K > 1) cluster_wait();
        return;
    }
    if (REALLOCATE) increase_registers<CONSUMER_REGISTERS>();
    const int group = warp / 4 / WARPGROUPS_O, warpgroup = warp / 4 % WARPGROUPS_O;
    // The gain in the order in which a lane of four takes it: [step][lane][chunk of 16][half] of two.
    u32* const gains = (u32*)(memory + GAIN_AT);
    NO_UNROLL for (int j = thread; j < steps * (BLOCK_K / 8); j += CONSUMERS * 32) {
        const int at = (first * (BLOCK_K / 8) + j) * 8;
        const uint4 g = at < n_inner ? *(const uint4*)(gain + at) : make_uint4(0, 0, 0, 0);
        u32* const to = gains + j / 8 * 32 + j % 8;
        to[0] = g.x; to[8] = g.y; to[16] = g.z; to[24] = g.w;
    }
    consumer_barrier();

    // x is wgmma's B operand: rows of 64 inner positions (128 bytes, swizzled), 8 an atom.
    const u64 x_desc = K_MAJOR | (base + X_AT & 0x3ffff) >> 4;
    // The weights are its A operand, transposed on the way into registers: lane l gives the address of 8 columns of an
    // inner position; matrices lie as columns 0-7, columns 8-15, the next 8 inner positions.
    const int w_row = lane / 16 * 8 + lane % 8, w_block = warp % 4 * 2 + lane / 8 % 2;
    const u32 w_in = base + warpgroup * 8192 + w_row * 128 + (w_block ^ lane % 8) * 16;
    const u32 peer_w_empty = CLUSTER_M > 1 ? peer(base + BARRIERS_AT + 8, rank_m ^ 1) : 0;
    float acc[ACC];
    UNROLL for (int i = 0; i < ACC; ++i) acc[i] = 0.f;
    typedef PipelineState<W_STAGES, GROUPS> WeightState;
    typedef PipelineState<X_DEPTH, GROUPS> XState;
    auto load_gain = [&](int step, u32 (&g)[2 * CHUNKS]) {
        UNROLL for (int k = 0; k < 2; ++k)
            load_words(g + 4 * k, base + GAIN_AT + step * (BLOCK_K * 2) + lane % 4 * 32 + k * 16);
    };
    auto load_fragment = [&](const WeightState& at, u32 (&a)[FRAGMENT]) {
        UNROLL for (int k = 0; k < CHUNKS; ++k)
            load_matrices_transposed(a + 4 * k, w_in + at.stage * W_BYTES + k * 2048);
    };
    auto multiply = [&](int x_stage, int phase, const u32 (&a)[FRAGMENT]) {
        if (!SHARED_STAGES) wait(barriers.x_full(x_stage), phase);
        const u64 from = x_desc + x_stage * (X_BYTES >> 4);
        fence_products();
        UNROLL for (int k = 0; k < CHUNKS; ++k)
            mma(acc, a + 4 * k, from + k * (32 >> 4));
        commit_products();
    };
    // Only stages that a later load waits for: a peer may have exited when another arrival would reach it.
    auto release_weights = [&](int step, int stage) {
        if (lane == 0 && step + W_STAGES < steps) {
            arrive(barriers.w_empty(stage));
            if (CLUSTER_M > 1) arrive_at(peer_w_empty + stage * 16);
        }
    };
    auto release_x = [&](int step, int stage) {
        if (lane == 0 && !SHARED_STAGES && step + X_STAGES < steps) arrive(barriers.x_empty(stage));
    };
    WeightState w_at(group);
    XState x_at(group);
    if (!PREFETCH_WEIGHTS) {
        // While one group scales, another multiplies.
        NO_UNROLL for (; w_at.step < steps; w_at.advance(), x_at.advance()) {
            u32 a[FRAGMENT], g[2 * CHUNKS];
            wait(barriers.w_full(w_at.stage), w_at.phase);
            load_fragment(w_at, a);
            load_gain(w_at.step, g);
            scale(a, g);
            multiply(SHARED_STAGES ? w_at.stage : x_at.stage, x_at.phase, a);
            wait_products<0>();
            release_weights(w_at.step, w_at.stage);
            release_x(w_at.step, x_at.stage);
        }
    } else {
        // A group scales its next step's weights while its wgmma runs. Beside wgmma a load from shared memory has a
        // long latency: the next gain is loaded before the wait for the wgmma of the previous step.
        u32 a[2][FRAGMENT], g[2 * CHUNKS];
        int w_before = 0, x_before = 0;
        auto fetch = [&](u32 (&to)[FRAGMENT]) {
            wait(barriers.w_full(w_at.stage), w_at.phase);
            load_fragment(w_at, to);
            scale(to, g);
        };
        auto step = [&](int i, const u32 (&now)[FRAGMENT], u32 (&next)[FRAGMENT]) {
            const int w_stage = w_at.stage, x_stage = SHARED_STAGES ? w_stage : x_at.stage;
            multiply(x_stage, x_at.phase, now);
            // This wgmma has its weights in registers.
            if (!SHARED_STAGES) release_weights(i, w_stage);
            w_at.advance();
            x_at.advance();
            load_gain(min(i + GROUPS, steps - 1), g);
            // The wgmma of the previous step is complete: its stages and its registers are free.
            wait_products<1>();
            if (i >= GROUPS) {
                if (SHARED_STAGES) release_weights(i - GROUPS, w_before);
                else release_x(i - GROUPS, x_before);
            }
            w_before = w_stage;
            x_before = x_stage;
            if (i + GROUPS < steps) fetch(next);
        };
        // Zeros written later would stand between wgmma in flight: the compiler would then wait after each.
        pin(acc);
        if (group < steps) {
            load_gain(group, g);
            fetch(a[0]);
        }
        NO_UNROLL for (int i = group; i < steps; i += 2 * GROUPS) {
            step(i, a[0], a[1]);
            if (i + GROUPS < steps) step(i + GROUPS, a[1], a[0]);
        }
        wait_products<0>();
    }
    pin(acc);
    // All consumers are done with the stages, and all loads have arrived: the epilogue reuses them.
    if (LOCAL_SQUARES) wait(barriers.x_squared(), 0);
    consumer_barrier();
    if (SPLIT_K > 1) {
        cluster_wait();
        // The other ranks may send once all wgmma here is complete.
        if (!RECEIVE_APART && thread < SPLIT_K && thread != rank) arrive_at(peer(barriers.peers_ready(), thread));
    }
    const u32 slot = (warpgroup * 128 + thread % 128) * 16;
    if (GROUPS > 1) reduce_groups(acc, memory, group, slot);
    if (SPLIT_K > 1) send_to_ranks(acc, barriers, rank, group, slot);
    wait(barriers.rstd_ready(), 0);
    if (SPLIT_K > 1) wait(barriers.sums_received(), 0);
    // A warp holds 16 columns, which it transposes in shared memory: lane l gives the address of a row of stmatrix,
    // matrices lying as rows 0-7, the next columns, then rows 8-15.
    const u32 out_at = OUT_AT + warp * OUT_BYTES, out_row = (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16;
    const int at = col + warpgroup * 64 + warp % 4 * 16 + lane % 2 * 8;
    UNROLL for (int e = 0; e < ROW_BLOCKS; ++e) {
        const int owner = owner_of(e), end = first_block(owner + 1), p = owner / GROUPS;
        if ((e - first_block(owner)) % 2 == 1 || owner % GROUPS != group || p != rank) continue;
        u32 v[4];
        UNROLL for (int h = 0; h < 2; ++h) {
            // Where one row block is left it is taken twice, and the second is not stored.
            const int own = e + h < end ? e + h : e, in_rank = own - first_block(p * GROUPS);
            if (own == e + h)
                reduce<SPLIT_K>(acc + 4 * own, p, memory + RECEIVED_AT + in_rank * BLOCK_BYTES + slot, SENT_BYTES);
            const float2 r = *(const float2*)(memory + RSTD_AT + (in_rank * 8 + lane % 4 * 2) * 4);
            v[2 * h] = packed(acc[4 * own] * r.x, acc[4 * own + 1] * r.y);
            v[2 * h + 1] = packed(acc[4 * own + 2] * r.x, acc[4 * own + 3] * r.y);
        }
        __syncwarp();
        store_matrices_transposed(base + out_at + out_row, v[0], v[1], v[2], v[3]);
        __syncwarp();
        const int to = row + e * 8 + lane / 2;
        if (lane / 16 < end - e && to < n_rows && at < n_cols)
            *(uint4*)(y + (long long)to * n_cols + at) = *(const uint4*)(memory + out_at + lane * 16);
    }
}

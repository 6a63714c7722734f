// y = rmsnorm(x) times W by two warpgroups that cooperate on a tile. x is wgmma's A operand, scaled by the gain and
// squared on its way into registers; the weights are its B operand. A third warpgroup or one warp loads.
// With SPLIT_K 2 two CTAs divide a tile's inner dimension as a cluster and exchange partial sums through distributed
// shared memory; each stores half of the columns. Without it the CTAs are persistent.
// Macros, of the launch configuration (cooperative.py): BLOCK_B, BLOCK_O: the tile. SPLIT_K, STAGES: of shared memory,
// for both operands. BF16: 1 for bf16, 0 for fp16.
// The loops of the warp roles stay in the kernel: as functions they made ptxas allocate other registers.
// After a loop that polls memory the compiler keeps no address in uniform registers, which costs 7% of the time: hence
// the break after the one tile of split-K.
#include "scaled_operand.cuh"
#include "wgmma.h"

constexpr int GROUP_ROWS = 8;                                  // row tiles that share the weights in L2
constexpr int SQUARES_TILES = 4;                               // column tiles that share squares (_SQUARES_TILES)
constexpr int COL_GROUPS = BLOCK_B == 64 ? 2 : 1;              // two warpgroups divide the rows or the columns
constexpr int COLS = BLOCK_O / COL_GROUPS, ACC = COLS / 2;     // columns and accumulators of a warpgroup's thread
constexpr int CONSUMERS = 8, LOADER = 8;                       // warps
constexpr bool REALLOCATE = COLS == 256;                       // the loader's registers go to the consumers
constexpr int WARPS = REALLOCATE ? 12 : 9;
// Accumulators are exchanged and stored by blocks: 8 a thread.
constexpr int ACC_BLOCKS = COLS / 16, OWN_BLOCKS = ACC_BLOCKS / SPLIT_K;

constexpr u32 W_BYTES = BLOCK_K * BLOCK_O * 2, X_BYTES = BLOCK_B * BLOCK_K * 2;
constexpr u32 STAGE_BYTES = W_BYTES + X_BYTES;
constexpr u32 HALF_BYTES = CONSUMERS * 32 * 16;                // half of a block, of all threads
// Partial sums [other rank][block][half][thread][4] reuse stages.
constexpr u32 RECEIVED_BYTES = (SPLIT_K - 1) * OWN_BLOCKS * 2 * HALF_BYTES;
constexpr int STAGE_BLOCKS = STAGE_BYTES / (2 * HALF_BYTES);   // blocks that a stage holds
constexpr int RECEIVE_STAGES = ((SPLIT_K - 1) * OWN_BLOCKS + STAGE_BLOCKS - 1) / STAGE_BLOCKS;
constexpr u32 BARRIERS_AT = STAGES * STAGE_BYTES;
constexpr u32 GAIN_AT = (BARRIERS_AT + STAGES * 16 + 16 + 127) / 128 * 128;   // of all steps
constexpr int GAIN_STEPS = 4;                                  // whose gain one load brings (_GAIN_STEPS)
// Sums of squares [row tile and tile group][reader][writer][row]: a word is its own flag.
constexpr int WRITERS = SQUARES_TILES * SPLIT_K, READERS = WRITERS * COL_GROUPS, LANE_WRITERS = (WRITERS + 3) / 4;
static_assert(RECEIVE_STAGES <= STAGES, "the partial sums fit into the stages");
static_assert(ACC_BLOCKS % SPLIT_K == 0, "ranks store whole blocks");

// Addresses of the mbarriers.
struct Barriers {
    u32 base;
    DEVICE u32 full(int stage) const { return base + BARRIERS_AT + stage * 16; }
    DEVICE u32 empty(int stage) const { return base + BARRIERS_AT + stage * 16 + 8; }
    DEVICE u32 received() const { return base + BARRIERS_AT + STAGES * 16; }
    DEVICE u32 peers_ready() const { return base + BARRIERS_AT + STAGES * 16 + 8; }
};
DEVICE void init_barriers(const Barriers& barriers) {
    for (int s = 0; s < STAGES; ++s) { init(barriers.full(s), 1); init(barriers.empty(s), CONSUMERS); }
    init(barriers.received(), 1);
    expect(barriers.received(), RECEIVED_BYTES);
    init(barriers.peers_ready(), SPLIT_K > 1 ? SPLIT_K - 1 : 1);
    fence_barrier_init();
}

// Transposes 4 by 4 words among four lanes: lane i gets word i of each.
DEVICE void transpose(u32 (&v)[4], int lane) {
    UNROLL for (int bit = 1; bit < 4; bit *= 2) {
        UNROLL for (int k = 0; k < 2; ++k) {
            const int low = bit == 1 ? 2 * k : k, high = low + bit;
            const u32 got = __shfl_xor_sync(~0u, lane & bit ? v[low] : v[high], bit);
            if (lane & bit) v[low] = got; else v[high] = got;
        }
    }
}
// The sum over four lanes.
DEVICE float quad_sum(float sum) {
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
}
// The accumulators of a block in the order of its columns.
DEVICE constexpr int acc_of(int block, int k) { return block / 2 * 16 + k / 2 * 4 + block % 2 * 2 + k % 2; }

extern "C" __global__ void __cluster_dims__(SPLIT_K, 1, 1) __launch_bounds__(WARPS * 32, 1)
rmsnorm_matmul_cooperative(
    const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap gain_map,
    const __grid_constant__ TensorMap weight_map, u16* y, float* row_sums, int n_rows, int n_inner, int n_cols,
    float eps)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 base = shared(memory);
    const Barriers barriers = {base};
    const int thread = threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0), lane = thread % 32;
    const int rank = blockIdx.x % SPLIT_K;
    launch_dependents();
    if (thread == 0) init_barriers(barriers);
    __syncthreads();
    // Waited for before the first store to another rank, which must have started by then.
    if (SPLIT_K > 1) cluster_arrive_relaxed();

    const int row_tiles = (n_rows + BLOCK_B - 1) / BLOCK_B, col_tiles = (n_cols + BLOCK_O - 1) / BLOCK_O;
    const int all_steps = (n_inner + BLOCK_K - 1) / BLOCK_K;
    auto steps_of = [&](int r) { return all_steps * (r + 1) / SPLIT_K - all_steps * r / SPLIT_K; };
    const int first = all_steps * rank / SPLIT_K, steps = steps_of(rank);
    // What others send to a rank lies in the stages that it would fill next.
    auto receive_offset = [&](int r, int block) {
        const int stage = steps_of(r) % STAGES + block / STAGE_BLOCKS;
        return (u32)(stage < STAGES ? stage : stage - STAGES) * STAGE_BYTES + block % STAGE_BLOCKS * 2 * HALF_BYTES;
    };
    const int tiles = row_tiles * col_tiles, workers = gridDim.x / SPLIT_K;
    auto find_tile = [&](int tile, int& row_tile, int& col_tile) {
        const int group = tile / (GROUP_ROWS * col_tiles), rest = tile % (GROUP_ROWS * col_tiles);
        const int rows = min(GROUP_ROWS, row_tiles - group * GROUP_ROWS);
        row_tile = group * GROUP_ROWS + rest % rows;
        col_tile = rest / rows;
    };
    // Adjacent column tiles share the squares of their rows: each begins with the steps that it squares.
    int tile_group = 0, member = 0, members = 1, row_tile, col_tile;
    find_tile(blockIdx.x / SPLIT_K, row_tile, col_tile);
    if (SPLIT_K > 1) {
        tile_group = col_tile / SQUARES_TILES;
        member = col_tile % SQUARES_TILES;
        members = min(SQUARES_TILES, col_tiles - tile_group * SQUARES_TILES);
    }
    auto start_of = [&](int m) { return m < members ? steps * m / members / GAIN_STEPS * GAIN_STEPS : steps; };
    const int start = start_of(member), squared_steps = start_of(member + 1) - start;

    if (warp >= CONSUMERS) {
        if (REALLOCATE) decrease_registers<40>();
        if (warp == LOADER && elected()) {
            const u64 policy = evict_first();
            int it = 0;
            for (int tile = blockIdx.x / SPLIT_K; tile < tiles; tile += workers) {
                find_tile(tile, row_tile, col_tile);
                const int row = row_tile * BLOCK_B, col = col_tile * BLOCK_O;
                auto load_weight = [&](int k, int s) {
                    // The gain of several steps comes with the first of them, once.
                    const bool gain = tile == blockIdx.x / SPLIT_K && k % GAIN_STEPS == 0;
                    expect(barriers.full(s), gain ? STAGE_BYTES + GAIN_STEPS * BLOCK_K * 2 : STAGE_BYTES);
                    UNROLL for (int o = 0; o < BLOCK_O / 64; ++o) {
                        const u32 to = base + s * STAGE_BYTES + o * 8192;
                        if (row_tiles == 1)
                            load(to, &weight_map, col + o * 64, (first + k) * BLOCK_K, barriers.full(s), policy);
                        else
                            load(to, &weight_map, col + o * 64, (first + k) * BLOCK_K, barriers.full(s));
                    }
                };
                auto load_rest = [&](int k, int s) {
                    load(base + s * STAGE_BYTES + W_BYTES, &x_map, (first + k) * BLOCK_K, row, barriers.full(s));
                    if (tile == blockIdx.x / SPLIT_K && k % GAIN_STEPS == 0)
                        load(base + GAIN_AT + k * BLOCK_K * 2, &gain_map, (first + k) * BLOCK_K, 0, barriers.full(s));
                };
                int i = 0, k = start;
                if (it == 0) {
                    const int early = min(steps, STAGES);
                    if (early > 0) load_weight(k, 0);
                    // The previous launch may have written x and the gain; more weights first would delay x.
                    wait_for_launch_before();
                    NO_UNROLL for (int s = 0; s < early; ++s) {
                        if (s > 0) load_weight(k, s);
                        load_rest(k, s);
                        if (++k == steps) k = 0;
                    }
                    it = i = early;
                }
                int s = it % STAGES, phase = it / STAGES;
                NO_UNROLL for (; i < steps; ++i, ++it) {
                    wait(barriers.empty(s), (phase & 1) ^ 1);
                    load_weight(k, s);
                    load_rest(k, s);
                    if (++k == steps) k = 0;
                    if (++s == STAGES) { s = 0; ++phase; }
                }
            }
        }
        __syncwarp();
        if (SPLIT_K > 1) {
            cluster_wait();
            // The other ranks may send once all wgmma that reads those stages is complete.
            if (warp == LOADER && elected()) {
                for (int i = steps; i < steps + RECEIVE_STAGES; ++i)
                    wait(barriers.empty(i % STAGES), i / STAGES & 1 ^ 1);
                UNROLL for (int to = 0; to < SPLIT_K; ++to)
                    if (to != rank) arrive_at(peer(barriers.peers_ready(), to));
            }
        }
    } else {
        if (REALLOCATE) increase_registers<232>();
        const int warpgroup = warp / 4, col_group = BLOCK_B == 64 ? warpgroup : 0;
        const int row_in = (BLOCK_B == 64 ? 0 : warpgroup * 64) + warp % 4 * 16;
        // The weights lie as boxes of 64 columns (128 bytes, swizzled); 8 inner positions are an atom.
        const int col_in = col_group * COLS;
        const u32 weight_in = col_in / 64 * 8192 + col_in % 64 * 2;

        const int tile_groups = (col_tiles + SQUARES_TILES - 1) / SQUARES_TILES, writer = member * SPLIT_K + rank;
        float* const words = row_sums
            + (long long)(row_tile * tile_groups + tile_group) * (READERS * WRITERS * BLOCK_B) + row_in + lane / 4;
        int it = 0;
        for (int tile = blockIdx.x / SPLIT_K; tile < tiles; tile += workers) {
            float acc[ACC], squares[4] = {0.f, 0.f, 0.f, 0.f};
            UNROLL for (int i = 0; i < ACC; ++i) acc[i] = 0.f;
            u32 a[2][FRAGMENT];
            int s = it % STAGES, x_stage = s, x_phase = it / STAGES, x_step = start;
            const u32 gain_in = base + GAIN_AT + lane % 4 * 4;
            auto row_squares = [&](int h) { return quad_sum(squares[h] + squares[h + 2]); };
            // Writes the squares of two rows, 8 apart, for each reader; four lanes that hold the same share the readers.
            auto publish_squares = [&]() {
                const float low = row_squares(0), high = row_squares(1);
                if (col_group > 0) return;
                UNROLL for (int r = 0; r < (READERS + 3) / 4; ++r) {
                    const int reader = r * 4 + lane % 4;
                    if (reader < members * SPLIT_K * COL_GROUPS) {
                        float* const to = words + (reader * WRITERS + writer) * BLOCK_B;
                        to[0] = low;
                        to[8] = high;
                    }
                }
            };
            // x of 16 rows a warp and 64 inner positions becomes wgmma's A operand, scaled by the gain and squared.
            auto load_x = [&](u32 (&to)[FRAGMENT], bool square) {
                wait(barriers.full(x_stage), x_phase & 1);
                const u32 at = base + x_stage * STAGE_BYTES + W_BYTES + (row_in + lane % 16) * (BLOCK_K * 2);
                UNROLL for (int k = 0; k < CHUNKS; ++k)
                    load_matrices(to + 4 * k, at + (((k * 2 + lane / 16) ^ (lane & 7)) * 16));
                const u32 gain = gain_in + x_step * BLOCK_K * 2;
                u32 g[2 * CHUNKS];
                UNROLL for (int k = 0; k < 2 * CHUNKS; ++k) g[k] = load_word(gain + k * 16);
                if (square) {
                    UNROLL for (int k = 0; k < FRAGMENT; ++k) squares[k % 4] = squared(to[k], squares[k % 4]);
                }
                scale(to, g);
                if (++x_step == steps) x_step = 0;
                if (++x_stage == STAGES) { x_stage = 0; ++x_phase; }
            };
            int before = -1;
            auto step = [&](u32 (&now)[FRAGMENT], u32 (&next)[FRAGMENT], bool more, bool square) {
                const u64 weights = MN_MAJOR | (base + s * STAGE_BYTES + weight_in & 0x3ffff) >> 4;
                fence_products();
                UNROLL for (int k = 0; k < CHUNKS; ++k) mma(acc, now + 4 * k, weights + k * (2048 >> 4));
                commit_products();
                // The wgmma of the previous step is complete: its stage and its registers are free.
                wait_products<1>();
                if (before >= 0 && lane == 0) arrive(barriers.empty(before));
                before = s;
                // The next step's x is scaled while the wgmma of this one runs.
                if (more) load_x(next, square);
                if (++s == STAGES) s = 0;
            };
            int i = 0;
            if (SPLIT_K == 1) {
                if (steps > 0) load_x(a[0], true);
                NO_UNROLL for (; i < steps; i += 2) {
                    step(a[0], a[1], i + 1 < steps, true);
                    if (i + 1 < steps) step(a[1], a[0], i + 2 < steps, true);
                }
            } else {
                // The own steps come first, so that their squares reach the other tiles long before the end.
                if (squared_steps > 0) load_x(a[0], true);
                else if (steps > 0) load_x(a[0], false);
                NO_UNROLL for (; i + 2 < squared_steps; i += 2) {
                    step(a[0], a[1], true, true);
                    step(a[1], a[0], true, true);
                }
                if (i + 1 < squared_steps) {
                    step(a[0], a[1], true, true);
                    step(a[1], a[0], i + 2 < steps, false);
                    i += 2;
                }
                publish_squares();
                NO_UNROLL for (; i < steps; i += 2) {
                    step(a[0], a[1], i + 1 < steps, false);
                    if (i + 1 < steps) step(a[1], a[0], i + 2 < steps, false);
                }
            }
            wait_products<0>();
            if (before >= 0 && lane == 0) arrive(barriers.empty(before));
            it += steps;
            pin(acc);
            find_tile(tile, row_tile, col_tile);
            const int row = row_tile * BLOCK_B + row_in + lane / 4, col = col_tile * BLOCK_O + col_in;
            // Sixteen bytes a lane: of four groups of 8 columns, each lane of four stores one.
            auto store = [&](int block, const float (&sum)[8], float r) {
                u32 v[4];
                UNROLL for (int k = 0; k < 4; ++k) v[k] = packed(sum[2 * k] * r, sum[2 * k + 1] * r);
                transpose(v, lane);
                const int to = row + block % 2 * 8, at = col + (block / 2 * 4 + lane % 4) * 8;
                if (to < n_rows && at < n_cols)
                    *(uint4*)(y + (long long)to * n_cols + at) = make_uint4(v[0], v[1], v[2], v[3]);
            };
            if (SPLIT_K > 1) {
                cluster_wait();
                wait(barriers.peers_ready(), 0);
                UNROLL for (int u = 0; u < ACC_BLOCKS; ++u) {
                    const int to = u / OWN_BLOCKS, from = rank - (rank > to), at = acc_of(u, 0);
                    if (to == rank) continue;
                    const u32 place = base + receive_offset(to, from * OWN_BLOCKS + u % OWN_BLOCKS) + thread * 16;
                    const u32 there = peer(place, to), bar = peer(barriers.received(), to);
                    send(there, acc[at], acc[at + 1], acc[at + 4], acc[at + 5], bar);
                    send(there + HALF_BYTES, acc[at + 8], acc[at + 9], acc[at + 12], acc[at + 13], bar);
                }
            }
            float r[2];
            if (SPLIT_K > 1) {
                float* const own = words + (writer * COL_GROUPS + col_group) * WRITERS * BLOCK_B;
                // A lane of four polls some of a row's words, resets them for the next launch, and sums them.
                const int writers = members * SPLIT_K;
                float got[LANE_WRITERS][2];
                bool missing;
                do {
                    missing = false;
                    UNROLL for (int w = 0; w < LANE_WRITERS; ++w) {
                        const int from = w * 4 + lane % 4;
                        got[w][0] = got[w][1] = 0.f;
                        if (from < writers) {
                            got[w][0] = *(volatile float*)(own + from * BLOCK_B);
                            got[w][1] = *(volatile float*)(own + from * BLOCK_B + 8);
                        }
                    }
                    UNROLL for (int w = 0; w < LANE_WRITERS; ++w)
                        missing |= __float_as_uint(got[w][0]) == UNWRITTEN || __float_as_uint(got[w][1]) == UNWRITTEN;
                } while (missing);
                UNROLL for (int h = 0; h < 2; ++h) {
                    float sum = 0.f;
                    UNROLL for (int w = 0; w < LANE_WRITERS; ++w) {
                        const int from = w * 4 + lane % 4;
                        sum += got[w][h];
                        if (from < writers) own[from * BLOCK_B + h * 8] = __uint_as_float(UNWRITTEN);
                    }
                    __syncwarp();
                    r[h] = quad_sum(sum);
                }
            } else {
                r[0] = row_squares(0);
                r[1] = row_squares(1);
            }
            UNROLL for (int h = 0; h < 2; ++h) r[h] = rsqrtf(r[h] / n_inner + eps);
            if (SPLIT_K > 1) wait(barriers.received(), 0);
            // The own accumulators are in registers, which only constants may index: one copy of this for each rank.
            UNROLL for (int own = 0; own < SPLIT_K; ++own) {
                if (SPLIT_K > 1 && own != rank) continue;
                UNROLL for (int o = 0; o < OWN_BLOCKS; ++o) {
                    const int u = own * OWN_BLOCKS + o;
                    float sum[8];
                    UNROLL for (int k = 0; k < 8; ++k) sum[k] = 0.f;
                    UNROLL for (int p = 0; p < SPLIT_K; ++p) {
                        if (p == own) {
                            UNROLL for (int k = 0; k < 8; ++k) sum[k] += acc[acc_of(u, k)];
                        } else {
                            const int block = (p - (p > own)) * OWN_BLOCKS + o;
                            const unsigned char* const from = memory + receive_offset(rank, block) + thread * 16;
                            const float4 low = *(const float4*)from, high = *(const float4*)(from + HALF_BYTES);
                            sum[0] += low.x; sum[1] += low.y; sum[2] += low.z; sum[3] += low.w;
                            sum[4] += high.x; sum[5] += high.y; sum[6] += high.z; sum[7] += high.w;
                        }
                    }
                    store(u, sum, r[u % 2]);
                }
            }
            if (SPLIT_K > 1) break;
        }
    }
}

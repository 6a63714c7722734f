// A program and its neighbour share a tile's inner dimension as a cluster. The macros are BLOCK_B, BLOCK_O, SPLIT_K,
// STAGES and BF16. After a loop that waits for data in memory the compiler holds no address in uniform registers, which
// costs 7% of the time: hence the break of a split's one tile.
#include "scaled_operand.cuh"
#include "wgmma.h"

constexpr int GROUP_ROWS = 8;
constexpr int TEAM = 4;                                        // column tiles that share their squares (_TEAM)
constexpr int COL_GROUPS = BLOCK_B == 64 ? 2 : 1;              // two groups of four warps share the rows or the columns
constexpr int COLS = BLOCK_O / COL_GROUPS, ACC = COLS / 2;     // of a group
constexpr int CONSUMERS = 8, LOADER = 8;                       // warps
constexpr int WARPS = COLS == 256 ? 12 : 9;             // with 256 columns the loader's registers go to the others
constexpr int UNITS = COLS / 16, OWN = UNITS / SPLIT_K;          // of 8 sums a thread: a part stores whole ones

constexpr u32 W_BYTES = BLOCK_K * BLOCK_O * 2, X_BYTES = BLOCK_B * BLOCK_K * 2;
constexpr u32 STAGE_BYTES = W_BYTES + X_BYTES;
constexpr u32 HALF = CONSUMERS * 32 * 16;                      // of a unit, of all threads
constexpr u32 RECEIVED_BYTES = (SPLIT_K - 1) * OWN * 2 * HALF;   // partial sums [part][unit][half][thread][4]
constexpr int A_STAGE = STAGE_BYTES / (2 * HALF);              // units of partial sums that a stage holds
constexpr int FREE = ((SPLIT_K - 1) * OWN + A_STAGE - 1) / A_STAGE;   // stages that hold all of them
constexpr u32 BARRIERS_AT = STAGES * STAGE_BYTES;
constexpr u32 GAIN_AT = (BARRIERS_AT + STAGES * 16 + 16 + 127) / 128 * 128;   // all of a part's
static_assert(FREE <= STAGES, "the others' sums fit into the ring");
constexpr int GAIN_STEPS = 4;                                  // that one load brings (_GAIN_STEPS)
static_assert(UNITS % SPLIT_K == 0, "parts store whole units");

// Lane i of four gets what all four hold at place i.
DEVICE void transpose(u32 (&v)[4], int lane) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const int low = bit == 1 ? 2 * k : k, high = low + bit;
            const u32 got = __shfl_xor_sync(~0u, lane & bit ? v[low] : v[high], bit);
            if (lane & bit) v[low] = got; else v[high] = got;
        }
    }
}

extern "C" __global__ void __cluster_dims__(SPLIT_K, 1, 1) __launch_bounds__(WARPS * 32, 1) rmsnorm_matmul_cooperative(
    const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap gain_map,
    const __grid_constant__ TensorMap weight_map, u16* y, float* row_sums, int n_rows, int n_inner, int n_cols,
    float eps)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory), received = ring + BARRIERS_AT + STAGES * 16, ready = received + 8;
    const int thread = threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0), lane = thread % 32;
    const int part = blockIdx.x % SPLIT_K;
    launch_dependents();
    auto full = [&](int s) { return ring + BARRIERS_AT + s * 16; };
    auto empty = [&](int s) { return ring + BARRIERS_AT + s * 16 + 8; };
    if (thread == 0) {
        for (int s = 0; s < STAGES; ++s) { init(full(s), 1); init(empty(s), CONSUMERS); }
        init(received, 1);
        expect(received, RECEIVED_BYTES);
        init(ready, SPLIT_K > 1 ? SPLIT_K - 1 : 1);
        fence_barrier_init();
    }
    __syncthreads();
    // Waited for before the first store to another part, which must have begun by then.
    if (SPLIT_K > 1) cluster_arrive_relaxed();

    const int row_tiles = (n_rows + BLOCK_B - 1) / BLOCK_B, col_tiles = (n_cols + BLOCK_O - 1) / BLOCK_O;
    const int all = (n_inner + BLOCK_K - 1) / BLOCK_K;
    auto steps_of = [&](int p) { return all * (p + 1) / SPLIT_K - all * p / SPLIT_K; };
    const int first = all * part / SPLIT_K, steps = steps_of(part);
    // What others send to a part lies in the stages that the part would fill next.
    auto place_of = [&](int p, int unit) {
        const int stage = steps_of(p) % STAGES + unit / A_STAGE;
        return (u32)(stage < STAGES ? stage : stage - STAGES) * STAGE_BYTES + unit % A_STAGE * 2 * HALF;
    };
    const int tiles = row_tiles * col_tiles, workers = gridDim.x / SPLIT_K;
    auto place = [&](int tile, int& row_tile, int& col_tile) {
        const int group = tile / (GROUP_ROWS * col_tiles), rest = tile % (GROUP_ROWS * col_tiles);
        const int rows = min(GROUP_ROWS, row_tiles - group * GROUP_ROWS);
        row_tile = group * GROUP_ROWS + rest % rows;
        col_tile = rest / rows;
    };
    // A team of column tiles shares the squares of its rows: each member begins with the steps that it squares.
    int team = 0, member = 0, members = 1, row_tile, col_tile;
    place(blockIdx.x / SPLIT_K, row_tile, col_tile);
    if (SPLIT_K > 1) {
        team = col_tile / TEAM;
        member = col_tile % TEAM;
        members = min(TEAM, col_tiles - team * TEAM);
    }
    auto begins = [&](int m) { return m < members ? steps * m / members / GAIN_STEPS * GAIN_STEPS : steps; };
    const int start = begins(member), squared_steps = begins(member + 1) - start;

    if (warp >= CONSUMERS) {
        if (COLS == 256) decrease_registers<40>();
        if (warp == LOADER && elected()) {
            const u64 policy = evict_first();
            int it = 0;
            for (int tile = blockIdx.x / SPLIT_K; tile < tiles; tile += workers) {
                place(tile, row_tile, col_tile);
                const int row = row_tile * BLOCK_B, col = col_tile * BLOCK_O;
                auto load_weight = [&](int k, int s) {
                    // The gain of several steps comes with the first of them, once.
                    const bool gain = tile == blockIdx.x / SPLIT_K && k % GAIN_STEPS == 0;
                    expect(full(s), gain ? STAGE_BYTES + GAIN_STEPS * BLOCK_K * 2 : STAGE_BYTES);
#pragma unroll
                    for (int o = 0; o < BLOCK_O / 64; ++o) {
                        const u32 to = ring + s * STAGE_BYTES + o * 8192;
                        if (row_tiles == 1)
                            load(to, &weight_map, col + o * 64, (first + k) * BLOCK_K, full(s), policy);
                        else
                            load(to, &weight_map, col + o * 64, (first + k) * BLOCK_K, full(s));
                    }
                };
                auto load_rest = [&](int k, int s) {
                    load(ring + s * STAGE_BYTES + W_BYTES, &x_map, (first + k) * BLOCK_K, row, full(s));
                    if (tile == blockIdx.x / SPLIT_K && k % GAIN_STEPS == 0)
                        load(ring + GAIN_AT + k * BLOCK_K * 2, &gain_map, (first + k) * BLOCK_K, 0, full(s));
                };
                int i = 0, k = start;
                if (it == 0) {
                    const int ahead = min(steps, STAGES);
                    if (ahead > 0) load_weight(k, 0);
                    // The launch before this one may have written x and the gain; more weights first would delay x.
                    wait_for_launch_before();
#pragma unroll 1
                    for (int s = 0; s < ahead; ++s) {
                        if (s > 0) load_weight(k, s);
                        load_rest(k, s);
                        if (++k == steps) k = 0;
                    }
                    it = i = ahead;
                }
                int s = it % STAGES, turn = it / STAGES;
#pragma unroll 1
                for (; i < steps; ++i, ++it) {
                    wait(empty(s), (turn & 1) ^ 1);
                    load_weight(k, s);
                    load_rest(k, s);
                    if (++k == steps) k = 0;
                    if (++s == STAGES) { s = 0; ++turn; }
                }
            }
        }
        __syncwarp();
        if (SPLIT_K > 1) {
            cluster_wait();
            // The others may send once all products that read those stages are done.
            if (warp == LOADER && elected()) {
                for (int i = steps; i < steps + FREE; ++i) wait(empty(i % STAGES), i / STAGES & 1 ^ 1);
#pragma unroll
                for (int to = 0; to < SPLIT_K; ++to)
                    if (to != part) arrive_at(peer(ready, to));
            }
        }
    } else {
        if (COLS == 256) increase_registers<232>();
        const int group = warp / 4, col_group = BLOCK_B == 64 ? group : 0;
        const int row_in = (BLOCK_B == 64 ? 0 : group * 64) + warp % 4 * 16;
        // Columns of W lie side by side: 64 of them (128 bytes, swizzled) by 8 inner positions are an atom.
        const int col_in = col_group * COLS;
        const u32 weight_in = col_in / 64 * 8192 + col_in % 64 * 2;

        // Sums of squares [row tile and team][reader][writer][row]: a word is its own flag.
        constexpr int WRITERS = TEAM * SPLIT_K, READERS = WRITERS * COL_GROUPS;
        const int teams = (col_tiles + TEAM - 1) / TEAM, writer = member * SPLIT_K + part;
        float* const words =
            row_sums + (long long)(row_tile * teams + team) * (READERS * WRITERS * BLOCK_B) + row_in + lane / 4;
        int it = 0;
        for (int tile = blockIdx.x / SPLIT_K; tile < tiles; tile += workers) {
            float acc[ACC], squares[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
            for (int i = 0; i < ACC; ++i) acc[i] = 0.f;
            u32 a[2][FRAG];
            int s = it % STAGES, x = s, x_turn = it / STAGES, k_step = start;
            const u32 gain_in = ring + GAIN_AT + lane % 4 * 4;
            auto of_row = [&](int h) {
                float sum = squares[h] + squares[h + 2];
                sum += __shfl_xor_sync(~0u, sum, 1);
                return sum + __shfl_xor_sync(~0u, sum, 2);
            };
            auto publish = [&]() {
                const float low = of_row(0), high = of_row(1);
                if (col_group > 0) return;
#pragma unroll
                for (int r = 0; r < (READERS + 3) / 4; ++r) {
                    const int reader = r * 4 + lane % 4;
                    if (reader < members * SPLIT_K * COL_GROUPS) {
                        float* const to = words + (reader * WRITERS + writer) * BLOCK_B;
                        to[0] = low;
                        to[8] = high;
                    }
                }
            };
            // x of 16 rows a warp and 64 inner positions becomes wgmma's A operand, scaled by the gain and squared.
            auto take = [&](u32 (&to)[FRAG], bool square) {
                wait(full(x), x_turn & 1);
                const u32 at = ring + x * STAGE_BYTES + W_BYTES + (row_in + lane % 16) * (BLOCK_K * 2);
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k)
                    load_matrices(to + 4 * k, at + (((k * 2 + lane / 16) ^ (lane & 7)) * 16));
                const u32 gain = gain_in + k_step * BLOCK_K * 2;
                u32 g[2 * CHUNKS];
#pragma unroll
                for (int k = 0; k < 2 * CHUNKS; ++k)
                    g[k] = load_word(gain + k * 16);
                if (square) {
#pragma unroll
                    for (int k = 0; k < FRAG; ++k) squares[k % 4] = squared(to[k], squares[k % 4]);
                }
#pragma unroll
                for (int k = 0; k < FRAG; ++k) to[k] = scaled(to[k], g[k / 4 * 2 + k / 2 % 2]);
                if (++k_step == steps) k_step = 0;
                if (++x == STAGES) { x = 0; ++x_turn; }
            };
            int before = -1;
            auto step = [&](u32 (&now)[FRAG], u32 (&next)[FRAG], bool more, bool square) {
                const u64 weights = MN_MAJOR | (ring + s * STAGE_BYTES + weight_in & 0x3ffff) >> 4;
                fence_products();
#pragma unroll
                for (int k = 0; k < CHUNKS; ++k)
                    mma(acc, now + 4 * k, weights + k * (2048 >> 4));
                commit_products();
                // The product of the step before is done: its stage and its registers are free.
                wait_products<1>();
                if (before >= 0 && lane == 0) arrive(empty(before));
                before = s;
                // While the tensor cores multiply this step, the next one's x is scaled.
                if (more) take(next, square);
                if (++s == STAGES) s = 0;
            };
            int i = 0;
            if (SPLIT_K == 1) {
                if (steps > 0) take(a[0], true);
#pragma unroll 1
                for (; i < steps; i += 2) {
                    step(a[0], a[1], i + 1 < steps, true);
                    if (i + 1 < steps) step(a[1], a[0], i + 2 < steps, true);
                }
            } else {
                // The own steps come first, so that their squares reach the team long before the end.
                if (squared_steps > 0) take(a[0], true);
                else if (steps > 0) take(a[0], false);
#pragma unroll 1
                for (; i + 2 < squared_steps; i += 2) {
                    step(a[0], a[1], true, true);
                    step(a[1], a[0], true, true);
                }
                if (i + 1 < squared_steps) {
                    step(a[0], a[1], true, true);
                    step(a[1], a[0], i + 2 < steps, false);
                    i += 2;
                }
                publish();
#pragma unroll 1
                for (; i < steps; i += 2) {
                    step(a[0], a[1], i + 1 < steps, false);
                    if (i + 1 < steps) step(a[1], a[0], i + 2 < steps, false);
                }
            }
            wait_products<0>();
            if (before >= 0 && lane == 0) arrive(empty(before));
            it += steps;
            pin(acc);
            place(tile, row_tile, col_tile);
            const int row = row_tile * BLOCK_B + row_in + lane / 4, col = col_tile * BLOCK_O + col_in;
            // Sixteen bytes a lane: of four groups of 8 columns, each lane of four stores one.
            auto store = [&](int unit, const float (&sum)[8], float r) {
                u32 v[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) v[k] = packed(sum[2 * k] * r, sum[2 * k + 1] * r);
                transpose(v, lane);
                const int to = row + unit % 2 * 8, at = col + (unit / 2 * 4 + lane % 4) * 8;
                if (to < n_rows && at < n_cols)
                    *(uint4*)(y + (long long)to * n_cols + at) = make_uint4(v[0], v[1], v[2], v[3]);
            };
            if (SPLIT_K > 1) {
                cluster_wait();
                wait(ready, 0);
#pragma unroll
                for (int u = 0; u < UNITS; ++u) {
                    const int to = u / OWN, slot = part - (part > to), at = u / 2 * 16 + u % 2 * 2;
                    if (to == part) continue;
                    const u32 place = ring + place_of(to, slot * OWN + u % OWN) + thread * 16;
                    const u32 there = peer(place, to), bar = peer(received, to);
                    send(there, acc[at], acc[at + 1], acc[at + 4], acc[at + 5], bar);
                    send(there + HALF, acc[at + 8], acc[at + 9], acc[at + 12], acc[at + 13], bar);
                }
            }
            float r[2];
            if (SPLIT_K > 1) {
                // Each lane of four reads some of a row's words, and empties them for the next launch.
                const int n = members * SPLIT_K;
                float* const mine = words + (writer * COL_GROUPS + col_group) * WRITERS * BLOCK_B;
                float got[(WRITERS + 3) / 4][2];
                bool missing;
                do {
                    missing = false;
#pragma unroll
                    for (int w = 0; w < (WRITERS + 3) / 4; ++w) {
                        const int from = w * 4 + lane % 4;
                        got[w][0] = got[w][1] = 0.f;
                        if (from < n) {
                            got[w][0] = *(volatile float*)(mine + from * BLOCK_B);
                            got[w][1] = *(volatile float*)(mine + from * BLOCK_B + 8);
                        }
                    }
#pragma unroll
                    for (int w = 0; w < (WRITERS + 3) / 4; ++w)
                        missing |= __float_as_uint(got[w][0]) == UNWRITTEN || __float_as_uint(got[w][1]) == UNWRITTEN;
                } while (missing);
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float sum = 0.f;
#pragma unroll
                    for (int w = 0; w < (WRITERS + 3) / 4; ++w) {
                        sum += got[w][h];
                        if (w * 4 + lane % 4 < n) mine[(w * 4 + lane % 4) * BLOCK_B + h * 8] = __uint_as_float(UNWRITTEN);
                    }
                    __syncwarp();
                    sum += __shfl_xor_sync(~0u, sum, 1);
                    r[h] = sum + __shfl_xor_sync(~0u, sum, 2);
                }
            } else {
                r[0] = of_row(0);
                r[1] = of_row(1);
            }
#pragma unroll
            for (int h = 0; h < 2; ++h) r[h] = rsqrtf(r[h] / n_inner + eps);
            if (SPLIT_K > 1) wait(received, 0);
            // The own sums stay in registers, which only a constant may index: one copy of this a part.
#pragma unroll
            for (int own = 0; own < SPLIT_K; ++own) {
                if (SPLIT_K > 1 && own != part) continue;
#pragma unroll
                for (int o = 0; o < OWN; ++o) {
                    const int u = own * OWN + o;
                    float sum[8];
#pragma unroll
                    for (int k = 0; k < 8; ++k) sum[k] = 0.f;
#pragma unroll
                    for (int p = 0; p < SPLIT_K; ++p) {
                        if (p == own) {
#pragma unroll
                            for (int k = 0; k < 8; ++k) sum[k] += acc[u / 2 * 16 + k / 2 * 4 + u % 2 * 2 + k % 2];
                        } else {
                            const int unit = (p - (p > own)) * OWN + o;
                            const unsigned char* const from = memory + place_of(part, unit) + thread * 16;
                            const float4 low = *(const float4*)from, high = *(const float4*)(from + HALF);
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

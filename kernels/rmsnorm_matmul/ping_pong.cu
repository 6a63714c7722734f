// Here the weights are wgmma's A operand, scaled by the gain on their way into registers, and x is its B operand as it
// comes. Groups of four warps take the steps in turn, so that one waits for weights or scales them while the others'
// products run; their sums meet in shared memory at the end. The weights and x have a loader and a ring of stages each,
// or, with X_STAGES 0, one ring, which takes half of the barriers. Warps of their own square x: what their program
// loads, or, where that would take longer than its products, a few rows for all programs. The macros are BLOCK_B, BLOCK_O,
// GROUPS, PREFETCH_WEIGHTS, CLUSTER_M, SPLIT_K, W_STAGES, X_STAGES, LOCAL_SQUARES and BF16: CLUSTER_M programs, one row tile each, load every
// weight once for both, or SPLIT_K programs share a tile's inner dimension, as a cluster; with PREFETCH_WEIGHTS a group scales its
// next weights beside its products.
#include "scaled_operand.cuh"
#include "wgmma.h"

constexpr int HALVES = BLOCK_O / 64, ACC = BLOCK_B / 2;               // groups side by side; sums of a thread
// Eight rows are the least that is handed on: parts, and in each of them the groups in turn, end some of them each.
constexpr int EIGHTS = BLOCK_B / 8, OWNERS = SPLIT_K * GROUPS;
DEVICE constexpr int owner_of(int eight) { return (OWNERS * (eight + 1) - 1) / EIGHTS; }
DEVICE constexpr int first_of(int owner) { return EIGHTS * owner / OWNERS; }
DEVICE constexpr int eights_of(int part) { return first_of((part + 1) * GROUPS) - first_of(part * GROUPS); }
constexpr int OWN_MOST = (EIGHTS + SPLIT_K - 1) / SPLIT_K * 8;      // rows that a part ends, at most
// Warps: those that multiply, one that loads the weights, one that loads x, those that square.
constexpr int CONSUMERS = HALVES * GROUPS * 4, W_LOADER = CONSUMERS, X_LOADER = W_LOADER + 1, SQUARER = X_LOADER + 1;
constexpr bool TOGETHER = X_STAGES == 0;                        // a stage has one pair of barriers
// With many rows the warps that multiply get registers from a whole group that loads and squares.
constexpr bool MOVED = CONSUMERS == 16 ? BLOCK_B > 96 : GROUPS == 1 && BLOCK_B > 128;
constexpr int SQUARERS = LOCAL_SQUARES ? 4 : 2, WARPS = SQUARER + SQUARERS;
constexpr int LOADS = MOVED ? 2 : 8;                            // of 16 bytes that a lane that squares has under way
// Stages of weights that do not wait for the launch before: behind all of them many rows of x would come late.
constexpr int EARLY = BLOCK_B > 32 && BLOCK_O == 64 ? 6 : W_STAGES;
constexpr u32 W_BYTES = BLOCK_K * BLOCK_O * 2, X_BYTES = BLOCK_B * BLOCK_K * 2, X_AT = W_STAGES * W_BYTES;
constexpr int X_RING = TOGETHER ? W_STAGES : X_STAGES;          // stages of x
// Sums are handed on as a thread holds them: of eight rows, four in each of these threads.
constexpr u32 EIGHT = HALVES * 128 * 16, SENT_BYTES = OWN_MOST / 8 * EIGHT;   // what one part sends another
constexpr u32 SUMS_BYTES = (GROUPS - 1) * EIGHTS * EIGHT, RING = X_AT + X_RING * X_BYTES;
// What other parts send has a place of its own, or lies in the ring once all products are done.
constexpr bool APART = BLOCK_O == 64;
constexpr u32 RECEIVED_AT = APART ? RING : SUMS_BYTES, BARRIERS_AT = RING + (APART ? (SPLIT_K - 1) * SENT_BYTES : 0);
// 16 rows by 16 columns of each warp, on their way out.
constexpr u32 OUT_AT = SUMS_BYTES + (APART ? 0 : (SPLIT_K - 1) * SENT_BYTES), OUT_BYTES = 512;
constexpr u32 RSTD_AT = BARRIERS_AT + (W_STAGES + X_STAGES) * 16 + 48;        // [part][own row], first of squares
constexpr u32 SQUARES_AT = RSTD_AT + SPLIT_K * OWN_MOST * 4;                    // [squarer][row]
constexpr u32 GAIN_AT = (SQUARES_AT + LOCAL_SQUARES * SQUARERS * BLOCK_B * 4 + 127) / 128 * 128;
static_assert(OUT_AT + CONSUMERS * OUT_BYTES <= RING, "the sums fit into the ring");
static_assert(CLUSTER_M == 1 || SPLIT_K == 1, "a cluster shares weights or the inner dimension");
static_assert(!LOCAL_SQUARES || BLOCK_B <= 32, "a lane squares one row");

DEVICE void load_weight(u32 to, const TensorMap* map, int inner, int outer, u32 bar, u64 policy) {
    if (CLUSTER_M == 1) load(to, map, inner, outer, bar, policy);
    else load_for((1 << CLUSTER_M) - 1, to, map, inner, outer, bar, policy);
}
DEVICE void send(u32 to, float4 v, u32 bar) { send(to, v.x, v.y, v.z, v.w, bar); }
// Sums a row's squares by one warp, 16 bytes LOADS times a lane at once, and writes each reader its word.
DEVICE void publish(const u16* x, float* words, int row, int readers, int n_rows, int n_inner) {
    const uint4* const from = (const uint4*)(x + (long long)row * n_inner);
    const int lane = threadIdx.x % 32;
    float sums[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 1
    for (int at = lane; at < n_inner / 8; at += 32 * LOADS) {
        uint4 v[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            v[k] = at + k * 32 < n_inner / 8 ? __ldcg(from + at + k * 32) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            sums[0] = squared(v[k].x, sums[0]);
            sums[1] = squared(v[k].y, sums[1]);
            sums[2] = squared(v[k].z, sums[2]);
            sums[3] = squared(v[k].w, sums[3]);
        }
    }
    float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
#pragma unroll 1
    for (int reader = lane; reader < readers; reader += 32)
        *(volatile float*)(words + (long long)reader * n_rows + row) = sum;
}
// Reads N of a reader's words, STRIDE apart, and empties them for the next launch; nobody writes those beyond the rows.
template <int STRIDE, int N> DEVICE void collect(float (&sums)[N], float* words, int rows) {
    bool missing;
    do {
        missing = false;
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] = k * STRIDE < rows ? *(volatile float*)(words + k * STRIDE) : 0.f;
#pragma unroll
        for (int k = 0; k < N; ++k) missing |= __float_as_uint(sums[k]) == UNWRITTEN;
    } while (missing);
#pragma unroll
    for (int k = 0; k < N; ++k)
        if (k * STRIDE < rows) words[k * STRIDE] = __uint_as_float(UNWRITTEN);
}
// The step, its stage and the stage's turn of one of EACH that take the steps in turn. A stage is always the same
// one's: a barrier is waited for by the parity of its turn, and none may be skipped.
template <int N, int EACH> struct Place {
    static_assert(EACH <= N && (TOGETHER || N % EACH == 0), "the rings' stages of a step are the same one's");
    int i, s, turn, own;
    DEVICE explicit Place(int own) : i(own), s(own), turn(0), own(own) {}
    DEVICE void next() {
        s += EACH;
        i += EACH;
        if (s >= N) {
            const int again = N % EACH == 0 ? s - N : own;
            i += N - s + again;
            s = again;
            turn ^= 1;
        }
    }
};
DEVICE void meet() { asm volatile("bar.sync 1, %0;" :: "n"(CONSUMERS * 32) : "memory"); }
// Adds four sums of each of N, a distance apart in memory but for the own ones, in the order of their owners.
template <int N> DEVICE void add(float* own, int at, const unsigned char* others, u32 distance) {
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const float4 v = n == at ? make_float4(own[0], own[1], own[2], own[3])
            : *(const float4*)(others + (n - (n > at)) * distance);
        sum.x += v.x; sum.y += v.y; sum.z += v.z; sum.w += v.w;
    }
    own[0] = sum.x; own[1] = sum.y; own[2] = sum.z; own[3] = sum.w;
}

extern "C" __global__ void __cluster_dims__(CLUSTER_M * SPLIT_K, 1, 1) __launch_bounds__(WARPS * 32, 1) rmsnorm_matmul_ping_pong(
    const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map, const u16* x,
    const u16* gain, u16* y, float* row_sums, int squaring, int n_rows, int n_inner, int n_cols, float eps)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory), squared_all = ring + BARRIERS_AT + (W_STAGES + X_STAGES) * 16;
    const u32 squares_received = squared_all + 8, received = squared_all + 16, ready = squared_all + 24;
    const u32 x_read = squared_all + 32;
    const int thread = threadIdx.x, warp = __shfl_sync(~0u, thread / 32, 0), lane = thread % 32;
    launch_dependents();
    // Each ring's barriers of a stage: full, empty.
    auto w_full = [&](int s) { return ring + BARRIERS_AT + s * 16; };
    auto x_full = [&](int s) { return ring + BARRIERS_AT + (TOGETHER ? s : W_STAGES + s) * 16; };
    if (thread == 0) {
        for (int s = 0; s < W_STAGES; ++s) {
            init(w_full(s), 1);
            init(w_full(s) + 8, 4 * HALVES * CLUSTER_M + (TOGETHER ? LOCAL_SQUARES : 0));
        }
        for (int s = 0; s < X_STAGES; ++s) { init(x_full(s), 1); init(x_full(s) + 8, 4 * HALVES + LOCAL_SQUARES); }
        init(squared_all, SQUARERS * 32);
        init(x_read, SQUARERS);
        init(squares_received, 1);
        init(received, 1);
        init(ready, SPLIT_K > 1 ? SPLIT_K - 1 : 1);
        if (SPLIT_K > 1) {
            const int own = eights_of(blockIdx.x % SPLIT_K);
            expect(squares_received, (SPLIT_K - 1) * own * 32);
            expect(received, (SPLIT_K - 1) * own * EIGHT);
        }
        fence_barrier_init();
    }
    __syncthreads();
    // Waited for before the first store to another part, which must have begun by then.
    if (CLUSTER_M * SPLIT_K > 1) cluster_arrive_relaxed();
    if (CLUSTER_M > 1) cluster_wait();
    const int rank = blockIdx.x % CLUSTER_M, part = blockIdx.x % SPLIT_K, tile = blockIdx.x / SPLIT_K;
    const int row_tiles = (n_rows + BLOCK_B - 1) / BLOCK_B, all = (n_inner + BLOCK_K - 1) / BLOCK_K;
    const int first = all * part / SPLIT_K, steps = all * (part + 1) / SPLIT_K - first;
    const int row = tile % row_tiles * BLOCK_B, col_tile = tile / row_tiles, col = col_tile * BLOCK_O;
    const int own_first = first_of(part * GROUPS) * 8, own_rows = eights_of(part) * 8;

    // Of each multiprocessor's 64 K registers, by groups of four warps.
    constexpr int LOADERS_KEEP = CONSUMERS == 16 ? 32 : 56, OTHERS_GET = CONSUMERS == 16 ? 112 : 224;
    if (warp >= W_LOADER && MOVED) decrease_registers<LOADERS_KEEP>();
    if (warp == W_LOADER) {
        if (elected()) {
            u64 policy;
            if (row_tiles <= CLUSTER_M) policy = evict_first();
            else policy = evict_normal();
            // The launch before this one may have written x; for the weights and the gain nobody waits.
#pragma unroll 1
            for (Place<W_STAGES, 1> at(0); at.i < steps; at.next()) {
                if (at.i == EARLY) wait_for_launch_before();
                wait(w_full(at.s) + 8, at.turn ^ 1);
                expect(w_full(at.s), W_BYTES + (TOGETHER ? X_BYTES : 0));
                // Each program of the cluster loads its share of the inner positions, for all.
#pragma unroll
                for (int o = 0; o < HALVES; ++o)
                    load_weight(ring + at.s * W_BYTES + o * 8192 + rank * (8192 / CLUSTER_M), &weight_map, col + o * 64,
                        (first + at.i) * BLOCK_K + rank * (BLOCK_K / CLUSTER_M), w_full(at.s), policy);
            }
        }
        __syncwarp();
    } else if (warp == X_LOADER) {
        if (elected()) {
            auto load_x = [&](int k, int s) {
                load(ring + X_AT + s * X_BYTES, &x_map, (first + k) * BLOCK_K, row, x_full(s));
            };
            const int ahead = min(steps, X_RING);
#pragma unroll 1
            for (int s = 0; !TOGETHER && s < ahead; ++s) expect(x_full(s), X_BYTES);
            wait_for_launch_before();
#pragma unroll 4
            for (int s = 0; s < ahead; ++s) load_x(s, s);
#pragma unroll 1
            for (Place<X_RING, 1> at(0); at.i + X_RING < steps; at.next()) {
                wait(x_full(at.s) + 8, at.turn);
                if (!TOGETHER) expect(x_full(at.s), X_BYTES);
                load_x(at.i + X_RING, at.s);
            }
        }
        __syncwarp();
    } else if (warp >= SQUARER && LOCAL_SQUARES) {
        // They take the steps in turn; a lane takes a row, and of its eight times 16 bytes every 32 / LANES-th.
        constexpr int LANES = BLOCK_B <= 8 ? 8 : BLOCK_B <= 16 ? 16 : 32, TIMES = LANES / 4;
        const int squarer = warp - SQUARER, r = lane % LANES;
        float sums[TIMES];
#pragma unroll
        for (int t = 0; t < TIMES; ++t) sums[t] = 0.f;
#pragma unroll 1
        for (Place<X_RING, LOCAL_SQUARES ? SQUARERS : 1> at(squarer); at.i < steps; at.next()) {
            wait(x_full(at.s), at.turn);
            uint4 v[TIMES];
#pragma unroll
            for (int t = 0; t < TIMES; ++t) {
                const int sixteen = t * (32 / LANES) + lane / LANES ^ lane % 8;
                v[t] = make_uint4(0, 0, 0, 0);
                if (r < BLOCK_B)
                    load_words(&v[t].x, ring + X_AT + at.s * X_BYTES + r * 128 + sixteen * 16);
            }
            // An arrival does not wait for loads: it is made to depend on all of them.
            bool done = true;
#pragma unroll
            for (int t = 0; t < TIMES; ++t) {
                sums[t] = squared(v[t].w, squared(v[t].z, squared(v[t].y, squared(v[t].x, sums[t]))));
                asm volatile("" : "+f"(sums[t]));
                done &= !(sums[t] < 0.f);
            }
            __syncwarp();
            if (lane == 0 && done && at.i + X_RING < steps) arrive(x_full(at.s) + 8);
        }
        __syncwarp();
        if (lane == 0) arrive(x_read);
        float sum = 0.f;
#pragma unroll
        for (int t = 0; t < TIMES; ++t) sum += sums[t];
#pragma unroll
        for (int bit = LANES; bit < 32; bit *= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        float* const of_parts = (float*)(memory + RSTD_AT);
        float* const of_warps = (float*)(memory + SQUARES_AT);
        if (lane < BLOCK_B) of_warps[squarer * BLOCK_B + lane] = sum;
        asm volatile("bar.sync 2, %0;" :: "n"(SQUARERS * 32) : "memory");
        if (SPLIT_K > 1) cluster_wait();
        // One warp ends them. The sums of a part's own rows meet there.
        if (squarer == 0) {
            if (lane < BLOCK_B) {
                sum = of_warps[lane];
#pragma unroll
                for (int q = 1; q < SQUARERS; ++q) sum += of_warps[q * BLOCK_B + lane];
                int to = 0;
#pragma unroll
                for (int p = 1; p < SPLIT_K; ++p) to += lane >= first_of(p * GROUPS) * 8;
                float* const there = of_parts + part * OWN_MOST + lane - first_of(to * GROUPS) * 8;
                if (to == part) *there = sum;
                else send(peer(shared(there), to), sum, peer(squares_received, to));
            }
            __syncwarp();
            if (SPLIT_K > 1) wait(squares_received, 0);
            if (lane < own_rows) {
                sum = of_parts[lane];
#pragma unroll
                for (int p = 1; p < SPLIT_K; ++p) sum += of_parts[p * OWN_MOST + lane];
                of_parts[lane] = rsqrtf(sum / n_inner + eps);
            }
        }
        arrive(squared_all);
        return;
    } else if (warp >= SQUARER) {
        wait_for_launch_before();
        // One copy of the sums a column tile: [column tile][row].
        constexpr int LANES = SQUARERS * 32, MOST = (OWN_MOST + LANES - 1) / LANES;     // rows of a lane
        const int col_tiles = (n_cols + BLOCK_O - 1) / BLOCK_O, squarer = warp - SQUARER, in_part = squarer * 32 + lane;
#pragma unroll 1
        for (int r = squarer * squaring + blockIdx.x; blockIdx.x < squaring && r < n_rows; r += SQUARERS * squaring)
            publish(x, row_sums, r, col_tiles, n_rows, n_inner);
        float sums[MOST];
        const int own = row + own_first, rows = min(n_rows - own, own_rows) - in_part;
        collect<LANES>(sums, row_sums + (long long)col_tile * n_rows + own + in_part, rows);
#pragma unroll
        for (int k = 0; k < MOST; ++k)
            if (in_part + k * LANES < own_rows)
                ((float*)(memory + RSTD_AT))[in_part + k * LANES] = rsqrtf(sums[k] / n_inner + eps);
        arrive(squared_all);
    }
    if (warp >= W_LOADER) {
        if (SPLIT_K > 1) cluster_wait();
        return;
    }
    if (MOVED) increase_registers<OTHERS_GET>();
    const int group = warp / 4 / HALVES, half = warp / 4 % HALVES;
    // The gain in the order in which a lane of four takes it: [step][lane][chunk of 16][half] of two.
    u32* const gains = (u32*)(memory + GAIN_AT);
#pragma unroll 1
    for (int j = thread; j < steps * (BLOCK_K / 8); j += CONSUMERS * 32) {
        const int at = (first * (BLOCK_K / 8) + j) * 8;
        const uint4 g = at < n_inner ? *(const uint4*)(gain + at) : make_uint4(0, 0, 0, 0);
        u32* const to = gains + j / 8 * 32 + j % 8;
        to[0] = g.x; to[8] = g.y; to[16] = g.z; to[24] = g.w;
    }
    meet();

    // x is wgmma's B operand: rows of 64 inner positions (128 bytes, swizzled), 8 an atom.
    const u64 x_from = K_MAJOR | (ring + X_AT & 0x3ffff) >> 4;
    // The weights are its A operand, transposed on the way into registers: lane l gives the address of 8 columns of an
    // inner position; matrices lie as columns 0-7, columns 8-15, the next 8 inner positions.
    const int w_row = lane / 16 * 8 + lane % 8, w_eight = warp % 4 * 2 + lane / 8 % 2;
    const u32 w_in = ring + half * 8192 + w_row * 128 + (w_eight ^ lane % 8) * 16;
    const u32 there = CLUSTER_M > 1 ? peer(ring + BARRIERS_AT + 8, rank ^ 1) : 0;
    float acc[ACC];
#pragma unroll
    for (int i = 0; i < ACC; ++i) acc[i] = 0.f;
    typedef Place<W_STAGES, GROUPS> OfWeights;
    typedef Place<X_RING, GROUPS> OfX;
    auto gains_of = [&](int i, u32 (&g)[2 * CHUNKS]) {
#pragma unroll
        for (int k = 0; k < 2; ++k)
            load_words(g + 4 * k, ring + GAIN_AT + i * (BLOCK_K * 2) + lane % 4 * 32 + k * 16);
    };
    auto weights_of = [&](const OfWeights& at, u32 (&a)[FRAG]) {
#pragma unroll
        for (int k = 0; k < CHUNKS; ++k)
            load_matrices_transposed(a + 4 * k, w_in + at.s * W_BYTES + k * 2048);
    };
    auto scale = [&](u32 (&a)[FRAG], const u32 (&g)[2 * CHUNKS]) {
#pragma unroll
        for (int k = 0; k < FRAG; ++k) a[k] = scaled(a[k], g[k / 4 * 2 + k / 2 % 2]);
    };
    auto multiply = [&](int x_s, int turn, const u32 (&a)[FRAG]) {
        if (!TOGETHER) wait(x_full(x_s), turn);
        const u64 from = x_from + x_s * (X_BYTES >> 4);
        fence_products();
#pragma unroll
        for (int k = 0; k < CHUNKS; ++k)
            mma(acc, a + 4 * k, from + k * (32 >> 4));
        commit_products();
    };
    // Only what some load waits for: a program may be gone when a later arrival would reach it.
    auto give_weights_back = [&](int i, int s) {
        if (lane == 0 && i + W_STAGES < steps) {
            arrive(w_full(s) + 8);
            if (CLUSTER_M > 1) arrive_at(there + s * 16);
        }
    };
    auto give_x_back = [&](int i, int s) {
        if (lane == 0 && !TOGETHER && i + X_STAGES < steps) arrive(x_full(s) + 8);
    };
    OfWeights w_at(group);
    OfX x_at(group);
    if (!PREFETCH_WEIGHTS) {
        // While one group scales, another multiplies.
#pragma unroll 1
        for (; w_at.i < steps; w_at.next(), x_at.next()) {
            u32 a[FRAG], g[2 * CHUNKS];
            wait(w_full(w_at.s), w_at.turn);
            weights_of(w_at, a);
            gains_of(w_at.i, g);
            scale(a, g);
            multiply(TOGETHER ? w_at.s : x_at.s, x_at.turn, a);
            wait_products<0>();
            give_weights_back(w_at.i, w_at.s);
            give_x_back(w_at.i, x_at.s);
        }
    } else {
        // A group scales its next step's weights beside its products of this one. Beside products a load from shared
        // memory takes long: the next gain is asked for before the wait for the products of the step before.
        u32 a[2][FRAG], g[2 * CHUNKS];
        int w_before = 0, x_before = 0;
        auto fetch = [&](u32 (&to)[FRAG]) {
            wait(w_full(w_at.s), w_at.turn);
            weights_of(w_at, to);
            scale(to, g);
        };
        auto step = [&](int i, const u32 (&now)[FRAG], u32 (&next)[FRAG]) {
            const int w_s = w_at.s, x_s = TOGETHER ? w_s : x_at.s;
            multiply(x_s, x_at.turn, now);
            // These products began with the weights in registers.
            if (!TOGETHER) give_weights_back(i, w_s);
            w_at.next();
            x_at.next();
            gains_of(min(i + GROUPS, steps - 1), g);
            // The products of the step before are done: its stages and its registers are free.
            wait_products<1>();
            if (i >= GROUPS) {
                if (TOGETHER) give_weights_back(i - GROUPS, w_before);
                else give_x_back(i - GROUPS, x_before);
            }
            w_before = w_s;
            x_before = x_s;
            if (i + GROUPS < steps) fetch(next);
        };
        // Zeros written any later would stand among products under way: the compiler would then wait after each.
        pin(acc);
        if (group < steps) {
            gains_of(group, g);
            fetch(a[0]);
        }
#pragma unroll 1
        for (int i = group; i < steps; i += 2 * GROUPS) {
            step(i, a[0], a[1]);
            if (i + GROUPS < steps) step(i + GROUPS, a[1], a[0]);
        }
        wait_products<0>();
    }
    pin(acc);
    // All are done with the rings, and all loads have arrived: they carry the sums.
    if (LOCAL_SQUARES) wait(x_read, 0);
    meet();
    if (SPLIT_K > 1) {
        cluster_wait();
        // The others may send once all products here are done.
        if (!APART && thread < SPLIT_K && thread != part) arrive_at(peer(ready, thread));
    }
    const u32 own_place = (half * 128 + thread % 128) * 16;
    auto sums_of = [&](int e) { return make_float4(acc[4 * e], acc[4 * e + 1], acc[4 * e + 2], acc[4 * e + 3]); };
    // The groups give each other what they do not end. Only constants may index registers: each asks about all eights.
    if (GROUPS > 1) {
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            const int to = owner_of(e) % GROUPS, slot = group - (group > to);
            if (to != group) *(float4*)(memory + (slot * EIGHTS + e) * EIGHT + own_place) = sums_of(e);
        }
        meet();
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            const int to = owner_of(e) % GROUPS;
            if (to == group) add<GROUPS>(acc + 4 * e, to, memory + e * EIGHT + own_place, EIGHTS * EIGHT);
        }
    }
    // So do the parts.
    if (SPLIT_K > 1) {
        if (!APART) wait(ready, 0);
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            const int to = owner_of(e) / GROUPS, slot = part - (part > to);
            if (owner_of(e) % GROUPS != group || to == part) continue;
            const u32 at = ring + RECEIVED_AT + slot * SENT_BYTES + (e - first_of(to * GROUPS)) * EIGHT + own_place;
            send(peer(at, to), sums_of(e), peer(received, to));
        }
    }
    wait(squared_all, 0);
    if (SPLIT_K > 1) wait(received, 0);
    // A warp holds 16 columns, turned round on their way through shared memory: lane l gives the address of a row of
    // stmatrix, matrices lying as rows 0-7, the next columns, then rows 8-15.
    const u32 out_at = OUT_AT + warp * OUT_BYTES, out_row = (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16;
    const int at = col + half * 64 + warp % 4 * 16 + lane % 2 * 8;
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        const int owner = owner_of(e), end = first_of(owner + 1), p = owner / GROUPS;
        if ((e - first_of(owner)) % 2 == 1 || owner % GROUPS != group || p != part) continue;
        u32 v[4];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            // Where only eight rows are left they are the next eight again, which nobody stores.
            const int own = e + h < end ? e + h : e, in_part = own - first_of(p * GROUPS);
            if (own == e + h)
                add<SPLIT_K>(acc + 4 * own, p, memory + RECEIVED_AT + in_part * EIGHT + own_place, SENT_BYTES);
            const float2 r = *(const float2*)(memory + RSTD_AT + (in_part * 8 + lane % 4 * 2) * 4);
            v[2 * h] = packed(acc[4 * own] * r.x, acc[4 * own + 1] * r.y);
            v[2 * h + 1] = packed(acc[4 * own + 2] * r.x, acc[4 * own + 3] * r.y);
        }
        __syncwarp();
        store_matrices_transposed(ring + out_at + out_row, v[0], v[1], v[2], v[3]);
        __syncwarp();
        const int to = row + e * 8 + lane / 2;
        if (lane / 16 < end - e && to < n_rows && at < n_cols)
            *(uint4*)(y + (long long)to * n_cols + at) = *(const uint4*)(memory + out_at + lane * 16);
    }
}

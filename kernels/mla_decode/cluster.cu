// CUDA C++ for sm_90. The two CTAs of a cluster take 64 heads each of one sequence; each loads half of every tile of
// 64 keys for both (multicast). Of a CTA's four warpgroups two hold the accumulators of 256 columns of the latent each,
// one computes scores and softmax, one loads. SLOTS and ROPES are the stages of two pipelines, of the latent by pieces
// of 128 columns and of the rotary position; HELD boxes of 64 columns of the queries stay in registers; AHEAD products
// of the next tile's scores are issued before a tile's softmax. SPLITS clusters share a sequence's keys. Where there are
// several, each leaves partial sums in global memory, waits for those of the others, and reduces a share of them.
#include "hopper.cuh"
#include "wgmma.h"

constexpr int HEADS = 64, KEYS = 64, LATENT = 512;
constexpr u32 BOX = 8192, PIECE = 2 * BOX;              // 64 columns, and 128, of 64 keys or queries
constexpr u32 ROPE_AT = SLOTS * PIECE, Q_AT = ROPE_AT + ROPES * BOX, P_AT = Q_AT + (LATENT / 64 - HELD) * BOX;
// The queries that are moved to registers use the last slots, which the first tile does not fill.
constexpr u32 HELD_AT = ROPE_AT - HELD * BOX;
constexpr int HELD_SLOT = SLOTS - (HELD + 1) / 2;
static_assert(HELD_SLOT >= 4, "the first tile waits for no slot");
constexpr u32 CORRECTION_AT = P_AT + 2 * BOX, STATS_AT = CORRECTION_AT + 2 * HEADS * 4;
// Addresses of mbarriers, 8 bytes each; of a pipeline, that of the first stage.
constexpr u32 FULL = STATS_AT + HEADS * 4, EMPTY = FULL + SLOTS * 8, ROPE_FULL = EMPTY + SLOTS * 8,
    ROPE_EMPTY = ROPE_FULL + ROPES * 8, SCORED = ROPE_EMPTY + ROPES * 8, P_FULL = SCORED + 16, P_EMPTY = P_FULL + 16,
    Q_FULL = P_EMPTY + 16, Q_EMPTY = Q_FULL + 8, STATS_FULL = Q_EMPTY + 8;
constexpr int LEFT = 0, RIGHT = 1, SCORER = 2, LOADER = 3;     // warpgroups
// One of several splits leaves vectors of eight accumulators, [half][vector of a thread][thread of a half], as fractions
// of the greatest of a head in this half, which it leaves too: fp16 keeps 11 bits of them. And for each head its
// reference and the sum of its exponentials.
constexpr int VECTORS = 16, PARTIAL = 2 * VECTORS * 128;
constexpr bool SPLIT = SPLITS > 1;

template <u32 AT> DEVICE float read(u32 from) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1 + %2];" : "=f"(v) : "r"(from), "n"(AT) : "memory");
    return v;
}
template <u32 AT> DEVICE void write(u32 from, float v) {
    asm volatile("st.shared.f32 [%0 + %1], %2;" :: "r"(from), "n"(AT), "f"(v) : "memory");
}
// Two numbers in fp16, the first in the low half, and the sum of both times a weight.
DEVICE u32 halves(float lo, float hi) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
DEVICE void add_weighted(float* sums, u32 two, float weight) {
    float lo, hi;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(lo), "=f"(hi) : "r"(two));
    sums[0] = fmaf(lo, weight, sums[0]);
    sums[1] = fmaf(hi, weight, sums[1]);
}
// Not hoisted by the compiler (volatile): four results outside a loop would take four registers.
DEVICE u32 late_xor(u32 x, u32 bits) {
    u32 r;
    asm volatile("xor.b32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(bits));
    return r;
}
// The address in a box of the row of 16 columns that a lane gives; the k-th 16 columns are at its xor with 32 k.
DEVICE u32 in_box(u32 thread) {
    return thread / 32 % 4 * 2048 + thread % 16 * 128 + (thread / 16 % 2 ^ thread % 8) * 16;
}

// What a CTA computes. Consecutive CTAs take blocks of 64 heads of a sequence; two are a cluster. All splits of two
// blocks come one after the other. Computed where it is used: warp roles would share it in local memory.
struct Share {
    int block, split, first, steps, slot;
    DEVICE Share(int n_keys) {
        const int tiles = (n_keys + KEYS - 1) / KEYS, cluster = block_id() / 2;
        split = cluster % SPLITS;
        block = cluster / SPLITS * 2 + block_id() % 2;
        first = tiles * split / SPLITS;
        steps = tiles * (split + 1) / SPLITS - first;
        slot = block * SPLITS + split;
    }
};
// A CTA loads one of the two boxes of a piece of the latent, and 32 of 64 keys of the rotary position.
DEVICE void load_tiles(const TensorMap* q_map, const TensorMap* latent_map, const TensorMap* rope_map, u32 ring,
    int q_row, int batch, int first_key, int steps, int rank)
{
    expect<Q_FULL>(ring, (LATENT / 64 + 1) * BOX);
    // The rotary columns of the queries use the buffer of the exponentials.
    load(ring + P_AT, q_map, LATENT, q_row, ring + Q_FULL);
    UNROLL for (int o = 0; o < LATENT / 64; ++o)
        load(ring + (o < HELD ? HELD_AT + o * BOX : Q_AT + (o - HELD) * BOX), q_map, o * 64, q_row, ring + Q_FULL);
    int s = 0, phase = 1, r = 0, rope_phase = 1, first = 1;
    NO_UNROLL for (int i = 0; i < steps; ++i) {
        wait<ROPE_EMPTY>(ring + r * 8, rope_phase);
        expect<ROPE_FULL>(ring + r * 8, BOX);
        load_for(3, ring + ROPE_AT + r * BOX + rank * (BOX / 2), rope_map, LATENT,
            first_key + i * KEYS + rank * (KEYS / 2), batch, ring + ROPE_FULL + r * 8);
        if (++r == ROPES) { r = 0; rope_phase ^= 1; }
        NO_UNROLL for (int p = 0; p < LATENT / 128; ++p) {
            wait<EMPTY>(ring + s * 8, phase);
            if (first && s == HELD_SLOT) { wait<Q_EMPTY>(ring, 0); first = 0; }
            expect<FULL>(ring + s * 8, PIECE);
            load_for(3, ring + s * PIECE + rank * BOX, latent_map, p * 128 + rank * 64, first_key + i * KEYS,
                batch, ring + FULL + s * 8);
            if (++s == SLOTS) { s = 0; phase ^= 1; }
        }
    }
}

// stats: where a split leaves those of its heads.
DEVICE void score_tiles(u32 ring, int n_keys, float scale, float2* stats) {
    constexpr float SLACK = 8.f;                        // exponentials stay below 2 ** 8
    constexpr int ROPE_PRODUCTS = 4, PRODUCTS = ROPE_PRODUCTS + LATENT / 16;
    const u32 lane = thread_id() % 32, warp = thread_id() / 32 % 4;
    const u32 there = peer(ring, lane % 2);             // lanes 0 and 1 arrive at the mbarriers of the two CTAs
    const int steps = (n_keys + KEYS - 1) / KEYS;
    u32 held[HELD * 16], q_rope[16];
    wait<Q_FULL>(ring, 0);
    UNROLL for (int k = 0; k < 4; ++k)
        load_matrices<P_AT>(q_rope + 4 * k, late_xor(ring + in_box(thread_id()), 32 * k));
    UNROLL for (int c = 0; c < HELD * 4; ++c)
        load_matrices<HELD_AT>(held + 4 * c, late_xor(ring + in_box(thread_id()) + c / 4 * BOX, 32 * (c % 4)));
    float reference[2] = {-INFINITY, -INFINITY}, total[2] = {0.f, 0.f}, correction[2];
    int s = 0, phase = 0, r = 0, rope_phase = 0, freed = 0;
    u64 queries = 0, rope = 0, keys = 0;
    // Products FROM up to TO of a tile: those of the rotary position, then eight of each piece.
    auto products = [&](float (&d)[32], int from, int to) {
        UNROLL for (int n = 0; n < PRODUCTS; ++n) {
            if (n < from || n >= to) continue;
            const int m = n - ROPE_PRODUCTS, box = m / 4;
            if (n == 0) {
                wait<ROPE_FULL>(ring + r * 8, rope_phase);
                // Recomputed for each tile: descriptors kept across tiles would take registers.
                queries = K_MAJOR | (uniform(ring & 0x3ffff) + Q_AT) >> 4;
                rope = K_MAJOR | uniform((ring & 0x3ffff) + ROPE_AT + r * BOX) >> 4;
                if (++r == ROPES) { r = 0; rope_phase ^= 1; }
                fence_products();
            }
            if (m >= 0 && m % 8 == 0) {
                keys = K_MAJOR | uniform((ring & 0x3ffff) + s * PIECE) >> 4;
                wait<FULL>(ring + s * 8, phase);
                if (++s == SLOTS) { s = 0; phase ^= 1; }
            }
            const u64 at = keys + (m % 8 / 4 * (BOX >> 4) + m % 4 * (32 >> 4));
            if (m < 0) score(d, q_rope + 4 * n, rope + n * (32 >> 4), n > 0);
            else if (box < HELD) score(d, held + m * 4 * (box < HELD), at, 1);
            else score(d, queries + (box - HELD) * (BOX >> 4) + m % 4 * (32 >> 4), at, 1);
        }
        if (to == PRODUCTS) commit_products();
    };
    auto wait_for_scores = [&](float (&d)[32], int i) {
        wait_products<0>();
        pin(d);
        if (lane < 2) {
            arrive_at<ROPE_EMPTY>(there + freed * 8);
            // The queries of the last slots are in registers.
            if (i == 0) arrive_at<Q_EMPTY>(there);
        }
        if (++freed == ROPES) freed = 0;
    };
    auto raise = [&](float (&d)[32], int i, int even) {
        // The scale is positive, so it may follow the maximum. The reference may be up to SLACK below the maximum;
        // while it stays, no sum needs a correction. A thread has row lane / 4 and the eighth after it.
        UNROLL for (int h = 0; h < 2; ++h) {
            float top = fmaxf(d[2 * h], d[2 * h + 1]);
            UNROLL for (int j = 1; j < 8; ++j) top = fmaxf(top, fmaxf(d[4 * j + 2 * h], d[4 * j + 2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale;
            const float new_reference = top > reference[h] + SLACK ? top : reference[h];
            correction[h] = exp2_approx(reference[h] - new_reference);
            reference[h] = new_reference;
        }
        UNROLL for (int k = 0; k < 32; ++k) d[k] = exp2_approx(fmaf(d[k], scale, -reference[k / 2 % 2]));
        // Both accumulating warpgroups have read the exponentials of two tiles ago.
        wait<P_EMPTY>(ring + even * 8, (i / 2 & 1) ^ 1);
        const u32 to = ring + even * BOX + in_box(thread_id());
        UNROLL for (int k = 0; k < 4; ++k)
            store_matrices<P_AT>(late_xor(to, 32 * k), packed(d[8 * k], d[8 * k + 1]),
                packed(d[8 * k + 2], d[8 * k + 3]), packed(d[8 * k + 4], d[8 * k + 5]),
                packed(d[8 * k + 6], d[8 * k + 7]));
        if (lane % 4 == 0) {
            const u32 row = ring + (even * HEADS + warp * 16 + lane / 4) * 4;
            write<CORRECTION_AT>(row, correction[0]);
            write<CORRECTION_AT + 32>(row, correction[1]);
        }
        // wgmma reads the exponentials from shared memory.
        fence_async();
        __syncwarp();
        if (lane == 0) arrive<P_FULL>(ring + even * 8);
    };
    auto sum_up = [&](float (&d)[32]) {
        UNROLL for (int h = 0; h < 2; ++h) {
            float sum = d[2 * h] + d[2 * h + 1];
            UNROLL for (int j = 1; j < 8; ++j) sum += d[4 * j + 2 * h] + d[4 * j + 2 * h + 1];
            total[h] = fmaf(total[h], correction[h], sum);
        }
    };
    // Tile i, whose scores are computed, beside AHEAD products of the next: the tensor cores queue about seven.
    auto tile = [&](float (&d)[32], float (&next)[32], int i, int even) {
        if (lane == 0) arrive<SCORED>(ring + even * 8);
        products(next, 0, AHEAD);
        raise(d, i, even);
        products(next, AHEAD, PRODUCTS);
        sum_up(d);
        wait_for_scores(next, i + 1);
    };
    auto last_tile = [&](float (&d)[32], int i, int even) {
        if (lane == 0) arrive<SCORED>(ring + even * 8);
        const int keys_left = n_keys - i * KEYS - lane % 4 * 2;
        UNROLL for (int k = 0; k < 32; ++k)
            if (k / 4 * 8 + k % 2 >= keys_left) d[k] = -INFINITY;
        raise(d, i, even);
        sum_up(d);
    };
    float d[32], e[32];
    products(d, 0, PRODUCTS);
    wait_for_scores(d, 0);
    int i = 0;
    NO_UNROLL for (; i + 2 < steps; i += 2) { tile(d, e, i, 0); tile(e, d, i + 1, 1); }
    if (i + 2 == steps) { tile(d, e, i, 0); last_tile(e, i + 1, 1); }
    else last_tile(d, i, 0);
    UNROLL for (int h = 0; h < 2; ++h) {
        total[h] += __shfl_xor_sync(~0u, total[h], 1);
        total[h] += __shfl_xor_sync(~0u, total[h], 2);
        if (SPLIT) continue;
        // To 1 ulp: a division would call a function, which takes registers.
        asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(total[h]));
    }
    if (SPLIT) {
        if (lane % 4 == 0) {
            stats[warp * 16 + lane / 4] = make_float2(reference[0], total[0]);
            stats[warp * 16 + lane / 4 + 8] = make_float2(reference[1], total[1]);
        }
        asm volatile("bar.arrive 3, 384;" ::: "memory");
        return;
    }
    if (lane % 4 == 0) {
        write<STATS_AT>(ring + (warp * 16 + lane / 4) * 4, total[0]);
        write<STATS_AT + 32>(ring + (warp * 16 + lane / 4) * 4, total[1]);
    }
    __syncwarp();
    if (lane == 0) arrive<STATS_FULL>(ring);
}

// partial, greatest: where a split leaves its fractions, and the greatest accumulators of its heads in each half.
template <int PART> DEVICE void accumulate_half(const TensorMap* y_map, u32 ring, int steps, uint4* partial,
    float* greatest)
{
    const u32 lane = thread_id() % 32, own_row = (thread_id() / 32 % 4 * 16 + lane / 4) * 4;
    const u32 there = peer(ring, lane % 2);
    float acc[2][64];                                   // of 128 columns each
    UNROLL for (int i = 0; i < 128; ++i) acc[i / 64][i % 64] = 0.f;
    // Zeros written any later would stand among products in flight: the compiler would then wait after each.
    pin(acc[0]);
    pin(acc[1]);
    int s = 2 * PART, before = s;
    NO_UNROLL for (int i = 0; i < steps; ++i) {
        const int next = s + 1 == SLOTS ? 0 : s + 1;
        wait<P_FULL>(ring + i % 2 * 8, i / 2 & 1);
        const float correction[2] = {read<CORRECTION_AT>(ring + i % 2 * HEADS * 4 + own_row),
                               read<CORRECTION_AT + 32>(ring + i % 2 * HEADS * 4 + own_row)};
        if (__any_sync(~0u, fminf(correction[0], correction[1]) < 1.f)) {
            UNROLL for (int k = 0; k < 128; ++k) acc[k / 64][k % 64] *= correction[k / 2 % 2];
        }
        // The right half waits until the next scores are computed, so that its products overlap their softmax.
        if (PART == RIGHT && i + 1 < steps) wait<SCORED>(ring + (i + 1) % 2 * 8, (i + 1) / 2 & 1);
        // The scores of this tile are computed, so its pieces are loaded, and only this warpgroup still needs them.
        const u64 exponentials = K_MAJOR | uniform((ring & 0x3ffff) + P_AT + i % 2 * BOX) >> 4;
        const u64 values = MN_MAJOR | uniform((ring & 0x3ffff) + s * PIECE) >> 4;
        const u64 values_next = MN_MAJOR | uniform((ring & 0x3ffff) + next * PIECE) >> 4;
        fence_products();
        UNROLL for (int o = 0; o < 2; ++o) {
            UNROLL for (int k = 0; k < 4; ++k)
                accumulate(acc[o], exponentials + k * (32 >> 4), (o ? values_next : values) + k * (2048 >> 4), 1);
            commit_products();
        }
        wait_products<1>();
        if (lane < 2) arrive_at<EMPTY>(there + s * 8);
        wait_products<0>();
        pin(acc[0]);
        pin(acc[1]);
        if (lane < 2) arrive_at<EMPTY>(there + next * 8);
        if (lane == 0) arrive<P_EMPTY>(ring + i % 2 * 8);
        before = s;
        s += 4;
        if (s >= SLOTS) s -= SLOTS;
    }
    if (SPLIT) {
        float inverse[2];
        UNROLL for (int h = 0; h < 2; ++h) {
            // Above zero, whose inverse is infinite; a NaN is not counted.
            float top = 1e-37f;
            UNROLL for (int k = 0; k < 64; ++k) top = fmaxf(top, fabsf(acc[k / 32][k % 32 / 2 * 4 + 2 * h + k % 2]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            if (lane % 4 == 0) greatest[PART * HEADS + own_row / 4 + 8 * h] = top;
            asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse[h]) : "f"(top));
        }
        uint4* const to = partial + PART * VECTORS * 128 + thread_id() % 128;
        UNROLL for (int k = 0; k < VECTORS; ++k) {
            const float* const v = acc[k / 8] + k % 8 * 8;
            __stcg(to + k * 128, make_uint4(halves(v[0] * inverse[0], v[1] * inverse[0]),
                halves(v[2] * inverse[1], v[3] * inverse[1]), halves(v[4] * inverse[0], v[5] * inverse[0]),
                halves(v[6] * inverse[1], v[7] * inverse[1])));
        }
        return;
    }
    wait<STATS_FULL>(ring, 0);
    // Read again: in the loop all registers are in use.
    const u32 thread = thread_id(), in_group = thread / 32 % 4;
    const int row = block_id() * HEADS + in_group * 16;
    const float share[2] = {read<STATS_AT>(ring + own_row), read<STATS_AT + 32>(ring + own_row)};
    // The last values are consumed and no load follows: their slots stage the result. A warp writes rows of its own in
    // a box, but all four warps have read all of it.
    asm volatile("bar.sync %0, 128;" :: "n"(PART + 1) : "memory");
    UNROLL for (int o = 0; o < 4; ++o) {
        const u32 slot = o < 2 || before + 1 < SLOTS ? before + o / 2 : 0, to = ring + slot * PIECE + o % 2 * BOX;
        UNROLL for (int k = 0; k < 4; ++k) {
            float v[8];
            UNROLL for (int j = 0; j < 8; ++j) v[j] = acc[o / 2][o % 2 * 32 + 8 * k + j] * share[j / 2 % 2];
            store_matrices<0>(late_xor(to + in_box(thread), 32 * k), packed(v[0], v[1]), packed(v[2], v[3]),
                packed(v[4], v[5]), packed(v[6], v[7]));
        }
        fence_async();
        __syncwarp();
        if (thread % 32 == 0) {
            store(y_map, PART * 256 + o * 64, row, to + in_group * 2048);
            commit_stores();
        }
    }
    if (thread % 32 == 0) wait_stores();
    __syncwarp();
}

#if SPLITS > 1
// Until all splits of these heads have left their partial sums. The CTAs are as many as run at once.
DEVICE void wait_for_splits(int* counters) {
    asm volatile("bar.sync 3, 384;" ::: "memory");
    if (thread_id() == 0) {
        asm volatile("red.release.gpu.global.add.s32 [%0], 1;" :: "l"(counters) : "memory");
        while (load_acquire(counters) < SPLITS) {}
        // The last to leave makes both counters ready for the next launch.
        if (atomicAdd(counters + 1, 1) == SPLITS - 1) { counters[0] = 0; counters[1] = 0; }
    }
    asm volatile("bar.sync 4, 256;" ::: "memory");
}
// Adds the partial sums of all splits for a share of the vectors of 64 heads: consecutive ones, of one half. Four lanes
// add up a vector, every fourth split each. partial, stats, greatest: of the first split; weights: in shared memory.
DEVICE void reduce_splits(float* weights, const uint4* partial, const float2* stats, const float* greatest, u16* y,
    int split)
{
    constexpr int SHARE = PARTIAL / SPLITS, PARTS = 4, EACH = SPLITS / PARTS, MEMBERS = 256 / PARTS;
    // Heads of a share, and the lanes that weigh the splits of one.
    constexpr int ROWS = SHARE < 128 ? 32 : 64, LANES = 256 / ROWS, WEIGHED = SPLITS / LANES;
    static_assert(SHARE % MEMBERS == 0 && EACH >= 1 && WEIGHED >= 1 && SHARE <= VECTORS * 128, "shares of one half");
    const int thread = thread_id(), part = thread % 32 / 8, member = thread / 32 * 8 + thread % 8;
    const int first = split * SHARE, half = first / (VECTORS * 128), first_row = first % 128 / 32 * 16;
    uint4 v[SHARE / MEMBERS][EACH];
    UNROLL for (int m = 0; m < SHARE / MEMBERS; ++m)
        UNROLL for (int i = 0; i < EACH; ++i)
            v[m][i] = __ldcg(partial + (part + PARTS * i) * PARTIAL + first + m * MEMBERS + member);
    const int weighed = thread / LANES;
    float2 of_row[WEIGHED];
    float fraction_of[WEIGHED];
    UNROLL for (int i = 0; i < WEIGHED; ++i) {
        const int other = thread % LANES + LANES * i;
        of_row[i] = __ldcg(stats + other * HEADS + first_row + weighed);
        fraction_of[i] = __ldcg(greatest + (2 * other + half) * HEADS + first_row + weighed);
    }
    float top = of_row[0].x, sum = 0.f;
    UNROLL for (int i = 1; i < WEIGHED; ++i) top = fmaxf(top, of_row[i].x);
    UNROLL for (int bit = 1; bit < LANES; bit *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, bit));
    UNROLL for (int i = 0; i < WEIGHED; ++i) {
        of_row[i].x = exp2_approx(of_row[i].x - top);
        sum = fmaf(of_row[i].x, of_row[i].y, sum);
    }
    UNROLL for (int bit = 1; bit < LANES; bit *= 2) sum += __shfl_xor_sync(~0u, sum, bit);
    // To 1 ulp: a division would call a function, which takes registers.
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(sum));
    UNROLL for (int i = 0; i < WEIGHED; ++i)
        weights[(thread % LANES + LANES * i) * ROWS + weighed] = of_row[i].x * sum * fraction_of[i];
    asm volatile("bar.sync 4, 256;" ::: "memory");
    UNROLL for (int m = 0; m < SHARE / MEMBERS; ++m) {
        const int at = first + m * MEMBERS + member, in_half = at % 128;
        const int row = in_half / 32 * 16 + in_half % 32 / 4, column = at / 128 * 16 + in_half % 4 * 2;
        float r[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
        UNROLL for (int i = 0; i < EACH; ++i) {
            const float* const weight = weights + (part + PARTS * i) * ROWS + row - first_row;
            add_weighted(r, v[m][i].x, weight[0]);
            add_weighted(r + 2, v[m][i].y, weight[8]);
            add_weighted(r + 4, v[m][i].z, weight[0]);
            add_weighted(r + 6, v[m][i].w, weight[8]);
        }
        UNROLL for (int j = 0; j < 8; ++j) {
            r[j] += __shfl_xor_sync(~0u, r[j], 8);
            r[j] += __shfl_xor_sync(~0u, r[j], 16);
        }
        // Each lane stores two of the eight sums: of a head or the eighth after it, in these columns or the next eight.
        const float a = part < 2 ? (part ? r[2] : r[0]) : part == 2 ? r[4] : r[6];
        const float b = part < 2 ? (part ? r[3] : r[1]) : part == 2 ? r[5] : r[7];
        *(u32*)(y + (row + part % 2 * 8) * LATENT + column + part / 2 * 8) = packed(a, b);
    }
}
#endif

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(512, 1) mla_decode_cluster(
    const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap latent_map,
    const __grid_constant__ TensorMap rope_map, const __grid_constant__ TensorMap y_map, u16* y_ptr,
    uint4* partial_ptr, float2* stats_ptr, float* greatest_ptr, int* counters_ptr, int n_heads, int n_keys,
    float scale_log2)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory);
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch(&q_map); prefetch(&latent_map); prefetch(&rope_map); prefetch(&y_map);
        // What both CTAs load is released when four warps of each have read it.
        for (int s = 0; s < SLOTS; ++s) { init(ring + FULL + s * 8, 1); init(ring + EMPTY + s * 8, 8); }
        for (int r = 0; r < ROPES; ++r) { init(ring + ROPE_FULL + r * 8, 1); init(ring + ROPE_EMPTY + r * 8, 8); }
        for (int t = 0; t < 2; ++t) {
            init(ring + SCORED + t * 8, 4);
            init(ring + P_FULL + t * 8, 4);
            init(ring + P_EMPTY + t * 8, 8);
        }
        init(ring + Q_FULL, 1);
        init(ring + Q_EMPTY, 8);
        init(ring + STATS_FULL, 4);
        fence_barrier_init();
    }
    cluster_barrier();
    // The launch before this one may have written the operands, and may still read what this one writes.
    wait_for_launch_before();
    if (group == LOADER) {
        decrease_registers<24>();
        if (thread_id() / 32 % 4 == 0 && elected()) {
            const Share own(n_keys);
            load_tiles(&q_map, &latent_map, &rope_map, ring, own.block * HEADS, own.block / (n_heads / HEADS),
                own.first * KEYS, own.steps, own.block % 2);
        }
        __syncwarp();
    } else if (group == SCORER) {
        increase_registers<168>();
        const Share own(n_keys);
        score_tiles(ring, min(n_keys - own.first * KEYS, own.steps * KEYS), scale_log2,
            stats_ptr + own.slot * HEADS);
    } else {
        increase_registers<160>();
        const Share own(n_keys);
        uint4* const partial = partial_ptr + (i64)own.slot * PARTIAL;
        float* const greatest = greatest_ptr + own.slot * 2 * HEADS;
        if (group == LEFT) accumulate_half<LEFT>(&y_map, ring, own.steps, partial, greatest);
        else accumulate_half<RIGHT>(&y_map, ring, own.steps, partial, greatest);
#if SPLITS > 1
        const Share share(n_keys);
        wait_for_splits(counters_ptr + 2 * share.block);
        const i64 first_slot = share.slot - share.split;
        // All tiles are consumed: the weights use their place.
        reduce_splits((float*)memory, partial_ptr + first_slot * PARTIAL, stats_ptr + first_slot * HEADS,
            greatest_ptr + first_slot * 2 * HEADS, y_ptr + (i64)share.block * HEADS * LATENT, share.split);
#endif
    }
    __syncwarp();
    // The other CTA may still arrive at this one's mbarriers.
    cluster_barrier();
}

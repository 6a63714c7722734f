// Row kernels whose rows lie in the shared memory of a cluster: one read and one write of global memory.
//
// A cluster takes one row, each of its CTAs a part of PART vectors of 16 bytes. The TMA loads a part in chunks, which
// the threads reduce as they arrive. Each warp sends its partial result to every CTA of the cluster; each warp then
// reduces all of them in the same order, so that all threads of a row hold the same bits. The part is then read again
// from shared memory and written.
//
// OP: 0 rmsnorm, 1 softmax, 2 layernorm. N_COLS: columns, whole vectors. ELEMENT: bytes of one, 2 (BF16: bf16 or fp16)
// or 4. CLUSTER, THREADS: CTAs of a cluster, threads of a CTA.
#include "hopper.cuh"

constexpr int VECTOR = 16 / ELEMENT, VECTORS = N_COLS / VECTOR, PART = (VECTORS + CLUSTER - 1) / CLUSTER;
constexpr int AT_ONCE = 4;                               // vectors of a chunk that a thread reduces
constexpr int CHUNK = AT_ONCE * THREADS, CHUNKS = (PART + CHUNK - 1) / CHUNK;
constexpr int WARPS = THREADS / 32, PARTIALS = CLUSTER * WARPS, REDUCTIONS = OP == 2 ? 2 : 1;
// Of shared memory: the part, partial results of 8 bytes, mbarriers of the chunks and of the reductions.
constexpr u32 PARTIALS_AT = 16 * PART, BARRIERS_AT = PARTIALS_AT + 8 * REDUCTIONS * PARTIALS;
constexpr float LOG2_E = 1.4426950408889634f;

DEVICE void load_bulk(u32 to, const void* from, u32 bytes, u32 bar, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1], %2, [%3], %4;" :: "r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy) : "memory");
}
// Writes to the shared memory of a CTA of the cluster and counts the bytes at an mbarrier there.
DEVICE void send(u32 to, float2 v, u32 bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
        :: "r"(to), "f"(v.x), "f"(v.y), "r"(bar) : "memory");
}

DEVICE void widen(float (&v)[VECTOR], uint4 raw) {
#if ELEMENT == 4
    v[0] = __uint_as_float(raw.x); v[1] = __uint_as_float(raw.y);
    v[2] = __uint_as_float(raw.z); v[3] = __uint_as_float(raw.w);
#else
    v[0] = low(raw.x); v[1] = high(raw.x); v[2] = low(raw.y); v[3] = high(raw.y);
    v[4] = low(raw.z); v[5] = high(raw.z); v[6] = low(raw.w); v[7] = high(raw.w);
#endif
}
DEVICE uint4 narrow(const float (&v)[VECTOR]) {
#if ELEMENT == 4
    return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
#else
    return make_uint4(packed(v[0], v[1]), packed(v[2], v[3]), packed(v[4], v[5]), packed(v[6], v[7]));
#endif
}

// Partial results: a sum in x; for softmax the maximum in x and the sum of exponentials of differences to it in y.
#if OP == 1
#define NOTHING (-INFINITY)
#else
#define NOTHING 0.0f
#endif
// What differences are taken to: a row that holds only minus infinity must not compute inf - inf before its end.
DEVICE float reference(float highest) { return highest == NOTHING ? 0.0f : highest; }
DEVICE float exp_of(float x) { return exp2_approx(x * LOG2_E); }
DEVICE float2 combine(float2 a, float2 b) {
#if OP == 1
    const float highest = fmaxf(a.x, b.x), to = reference(highest);
    return make_float2(highest, a.y * exp_of(a.x - to) + b.y * exp_of(b.x - to));
#else
    return make_float2(a.x + b.x, 0.0f);
#endif
}
DEVICE float2 combine_warp(float2 mine) {
#pragma unroll
    for (int apart = 16; apart; apart /= 2)
        mine = combine(mine, make_float2(__shfl_xor_sync(~0u, mine.x, apart), __shfl_xor_sync(~0u, mine.y, apart)));
    return mine;
}
// The result of the row. partials, bar: where the partial results of this reduction arrive, and their mbarrier.
DEVICE float2 combine_cluster(float2 mine, const float2* partials, u32 bar, int thread, int rank) {
    const int lane = thread % 32, warp = thread / 32;
    mine = combine_warp(mine);
    if (lane < CLUSTER) send(peer(shared(partials + rank * WARPS + warp), lane), mine, peer(bar, lane));
    wait(bar, 0);
    float2 all = make_float2(NOTHING, 0.0f);
#pragma unroll
    for (int at = 0; at < PARTIALS; at += 32)
        if (at + lane < PARTIALS) all = combine(all, partials[at + lane]);
    all = combine_warp(all);
    // Lanes add in orders of their own: all take the bits of the first.
    return make_float2(__shfl_sync(~0u, all.x, 0), __shfl_sync(~0u, all.y, 0));
}

// Adds vectors of a chunk to a thread's partial result. SQUARES: add squares of differences to the mean.
template <bool SQUARES> DEVICE float2 add(float2 sum, const float (&v)[AT_ONCE][VECTOR], float mean) {
#if OP == 1
    float highest = sum.x;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) highest = fmaxf(highest, v[i][j]);
    const float to = reference(highest);
    sum = make_float2(highest, sum.y * exp_of(sum.x - to));
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) sum.y += exp_of(v[i][j] - to);
#else
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) {
            const float apart = v[i][j] - mean;
            sum.x += SQUARES ? apart * apart : v[i][j];
        }
#endif
    return sum;
}
// Reduces the vectors of a thread. bars: mbarriers of the chunks, 0 where all have arrived.
template <bool SQUARES> DEVICE float2 reduce(const uint4* part, int count, u32 bars, int thread, float mean) {
    float2 sum = make_float2(NOTHING, 0.0f);
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        if (bars) wait(bars + 8 * chunk, 0);
        float v[AT_ONCE][VECTOR];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int at = chunk * CHUNK + i * THREADS + thread;
            if (at < count) {
                widen(v[i], part[at]);
            } else {
#pragma unroll
                for (int j = 0; j < VECTOR; ++j) v[i][j] = OP == 1 ? NOTHING : mean;
            }
        }
        sum = add<SQUARES>(sum, v, mean);
    }
    return sum;
}

DEVICE void load_vectors(uint4 (&raw)[AT_ONCE], const uint4* part, int from, int count) {
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
        if (from + i * THREADS < count) raw[i] = __ldg(part + from + i * THREADS);
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
row_cluster_kernel(const uint4* __restrict__ x,
#if OP != 1
    const uint4* __restrict__ gain,
#endif
#if OP == 2
    const uint4* __restrict__ bias,
#endif
    uint4* __restrict__ y, float eps)
{
    extern __shared__ __align__(128) unsigned char memory[];
    uint4* const part = (uint4*)memory;
    const float2* const partials = (const float2*)(memory + PARTIALS_AT);
    const u32 bars = shared(memory) + BARRIERS_AT, reduced = bars + 8 * CHUNKS;
    const int thread = threadIdx.x, rank = blockIdx.x % CLUSTER, first = rank * PART;
    const int count = max(min(PART, VECTORS - first), 0);
    const i64 at_part = (i64)(blockIdx.x / CLUSTER) * VECTORS + first;
    launch_dependents();
    if (thread == 0) {
#pragma unroll
        for (int i = 0; i < CHUNKS + REDUCTIONS; ++i) init(bars + 8 * i, 1);
        fence_barrier_init();
#pragma unroll
        for (int i = 0; i < REDUCTIONS; ++i) expect(reduced + 8 * i, 8 * PARTIALS);
        wait_for_launch_before();
        const u64 policy = evict_first();
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const int from = chunk * CHUNK, bytes = 16 * max(min(CHUNK, count - from), 0);
            expect(bars + 8 * chunk, bytes);
            if (bytes) load_bulk(shared(part + from), x + at_part + from, bytes, bars + 8 * chunk, policy);
        }
    }
    __syncwarp();
    // The mbarriers of all CTAs of the cluster are there before a partial result is sent to them.
    cluster_arrive_relaxed();
    cluster_wait();
    wait_for_launch_before();
    float2 all = reduce<OP == 0>(part, count, bars, thread, 0.0f);
#if OP == 0
    // The first chunk of the gain is on its way while the cluster exchanges its results.
    uint4 gains[AT_ONCE];
    load_vectors(gains, gain + first, thread, count);
#endif
    all = combine_cluster(all, partials, reduced, thread, rank);
#if OP == 1
    const float highest = reference(all.x);
    // Dividing by the sum is taking its logarithm from the exponent.
    const float log_sum = __log2f(all.y);
#elif OP == 2
    const float mean = all.x * (1.0f / N_COLS);
    all = combine_cluster(reduce<true>(part, count, 0, thread, mean), partials + PARTIALS, reduced + 8, thread, rank);
#endif
#if OP != 1
    const float rstd = rsqrtf(all.x * (1.0f / N_COLS) + eps);
#endif
#pragma unroll 1
    for (int from = thread; from < count; from += CHUNK) {
#if OP == 0
        if (from != thread) load_vectors(gains, gain + first, from, count);
#endif
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int at = from + i * THREADS;
            if (at >= count) break;
            float v[VECTOR];
            widen(v, part[at]);
#if OP == 0
            float g[VECTOR];
            widen(g, gains[i]);
#elif OP == 2
            float g[VECTOR], b[VECTOR];
            widen(g, __ldg(gain + first + at));
            widen(b, __ldg(bias + first + at));
#endif
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
#if OP == 0
                v[j] = v[j] * rstd * g[j];
#elif OP == 1
                v[j] = exp2_approx(fmaf(v[j] - highest, LOG2_E, -log_sum));
#else
                v[j] = (v[j] - mean) * rstd * g[j] + b[j];
#endif
            }
            __stcs(y + at_part + at, narrow(v));
        }
    }
}

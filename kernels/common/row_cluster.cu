// Row kernels whose rows lie in the shared memory of a cluster: one read and one write of global memory.
//
// A cluster takes one row, each of its CTAs a part of PART vectors of 16 bytes. The TMA loads a part in chunks, which
// the threads reduce as they arrive. Each warp sends its partial result to every CTA of the cluster; each warp then
// reduces all of them in the same order, so that all threads of a row hold the same bits. The part is then read again
// from shared memory and written. No hint says what L2 evicts first: with hints, rows took 5% longer after other kernels
// had filled L2 (benchmarks/behind-h200.json).
//
// OP: 0 rmsnorm, 1 softmax, 2 layernorm. N_COLS: columns, whole vectors. ELEMENT: bytes of one, 2 (BF16: bf16 or fp16)
// or 4. CLUSTER, THREADS: CTAs of a cluster, threads of a CTA.
#include "rows.cuh"

constexpr int VECTORS = N_COLS / VECTOR, PART = (VECTORS + CLUSTER - 1) / CLUSTER;
constexpr int AT_ONCE = 4;                               // vectors of a chunk that a thread reduces
constexpr int CHUNK = AT_ONCE * THREADS, CHUNKS = (PART + CHUNK - 1) / CHUNK;
// Of shared memory: the part, partial results of 8 bytes, mbarriers of the chunks and of the reductions.
constexpr u32 PARTIALS_AT = 16 * PART, BARRIERS_AT = PARTIALS_AT + 8 * REDUCTIONS * PARTIALS;

DEVICE void load_bulk(u32 to, const void* from, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :: "r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
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
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const int from = chunk * CHUNK, bytes = 16 * max(min(CHUNK, count - from), 0);
            expect(bars + 8 * chunk, bytes);
            if (bytes) load_bulk(shared(part + from), x + at_part + from, bytes, bars + 8 * chunk);
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
            __stcg(y + at_part + at, narrow(v));
        }
    }
}

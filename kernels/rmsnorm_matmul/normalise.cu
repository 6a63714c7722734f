// Normalises the rows of x, rounded to the dtype, for a product that is launched next. A CTA takes a row.
// Macro VECTORS: loads of 16 bytes of a row, and of the gain, that a thread keeps in registers; of longer rows the rest
// is read twice.
#include "hopper.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;

// Hints that L2 fetch a row, by `threads` threads; nothing is read, so that the launch before may still write it.
DEVICE void prefetch_row(const void* row, int vectors, int thread, int threads) {
    NO_UNROLL for (int at = thread * 8; at < vectors; at += threads * 8)
        asm volatile("prefetch.global.L2 [%0];" :: "l"((const uint4*)row + at));
}
DEVICE float squared(u32 two, float sum) { return fmaf(high(two), high(two), fmaf(low(two), low(two), sum)); }
DEVICE float squares_of(const uint4& v, float sum) {
    return squared(v.w, squared(v.z, squared(v.y, squared(v.x, sum))));
}
DEVICE u32 normalised(u32 x, u32 gain, float r) { return packed(low(x) * r * low(gain), high(x) * r * high(gain)); }
DEVICE uint4 normalised(const uint4& x, const uint4& gain, float r) {
    return make_uint4(normalised(x.x, gain.x, r), normalised(x.y, gain.y, r), normalised(x.z, gain.z, r),
        normalised(x.w, gain.w, r));
}

extern "C" __global__ void __launch_bounds__(THREADS) rmsnorm_matmul_normalise(
    const u16* x, const u16* gain, u16* normed, int n_inner, float eps)
{
    __shared__ float sums[WARPS];
    launch_dependents();
    const int row = blockIdx.x, from = threadIdx.x, warp = from / 32, lane = from % 32, vectors = n_inner / 8;
    const uint4* const in = (const uint4*)x + (i64)row * vectors;
    const uint4* const gains = (const uint4*)gain;
    // Of those in registers only the last may lie beyond the row's end.
    const bool ends = from + (VECTORS - 1) * THREADS >= vectors;
    auto index_of = [&](int k) { return k + 1 < VECTORS || !ends ? from + k * THREADS : vectors - 1; };
    uint4 g[VECTORS], v[VECTORS];
    prefetch_row(in, vectors, from, THREADS);
    UNROLL for (int k = 0; k < VECTORS; ++k) g[k] = __ldg(gains + index_of(k));
    // The launch before may have written x, and may still read the workspace.
    wait_for_launch_before();
    UNROLL for (int k = 0; k < VECTORS; ++k) v[k] = __ldcg(in + index_of(k));
    float sums_of[4] = {0.f, 0.f, 0.f, 0.f};
    UNROLL for (int k = 0; k < VECTORS - 1; ++k) sums_of[k % 4] = squares_of(v[k], sums_of[k % 4]);
    const float last = squares_of(v[VECTORS - 1], 0.f);
    float sum = (sums_of[0] + sums_of[1]) + (sums_of[2] + sums_of[3]) + (ends ? 0.f : last);
    NO_UNROLL for (int at = from + VECTORS * THREADS; at < vectors; at += THREADS) sum = squares_of(__ldcg(in + at), sum);
    UNROLL for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    sum = 0.f;
    UNROLL for (int w = 0; w < WARPS; ++w) sum += sums[w];
    const float r = rsqrtf(sum / n_inner + eps);
    uint4* const out = (uint4*)normed + (i64)row * vectors;
    UNROLL for (int k = 0; k < VECTORS; ++k)
        if (k + 1 < VECTORS || !ends) out[from + k * THREADS] = normalised(v[k], g[k], r);
    NO_UNROLL for (int at = from + VECTORS * THREADS; at < vectors; at += THREADS)
        out[at] = normalised(__ldcg(in + at), __ldg(gains + at), r);
}

// y = rmsnorm(x) times W by the cluster GEMM of kernels/common. The first CTAs normalise the rows of x, rounded to the
// dtype, into a workspace, from which all CTAs load wgmma's operand. Loads of the weights do not wait for that.
// ROW_VECTORS: loads of 16 bytes, of a row's, that a lane keeps in registers (cluster.py).
#define EVEN_TILES 1
#define PREPARES_A 1
#include "cluster_gemm.cuh"

constexpr int MAX_WRITERS = 64;   // WRITERS of cost.py

// Hints that L2 fetch a row; nothing is read, so that the launch before may still write it.
DEVICE void prefetch_row(const u16* row, int n_inner, int lane) {
    for (int at = lane * 64; at < n_inner; at += 32 * 64) asm volatile("prefetch.global.L2 [%0];" :: "l"(row + at));
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
// A warp normalises one row.
DEVICE void normalise_row(const uint4* x, const uint4* gain, uint4* to, int n_inner, float eps, int lane) {
    const int vectors = n_inner / 8;
    uint4 kept[ROW_VECTORS];
    UNROLL for (int k = 0; k < ROW_VECTORS; ++k)
        kept[k] = lane + 32 * k < vectors ? __ldcg(x + lane + 32 * k) : make_uint4(0, 0, 0, 0);
    float sums[4] = {0.f, 0.f, 0.f, 0.f};
    UNROLL for (int k = 0; k < ROW_VECTORS; ++k) sums[k % 4] = squares_of(kept[k], sums[k % 4]);
    UNROLL_8 for (int at = lane + 32 * ROW_VECTORS; at < vectors; at += 32)
        sums[0] = squares_of(__ldcg(x + at), sums[0]);
    float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    UNROLL for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
    const float r = rsqrtf(sum / n_inner + eps);
    UNROLL for (int k = 0; k < ROW_VECTORS; ++k)
        if (lane + 32 * k < vectors) to[lane + 32 * k] = normalised(kept[k], __ldg(gain + lane + 32 * k), r);
    UNROLL_8 for (int at = lane + 32 * ROW_VECTORS; at < vectors; at += 32)
        to[at] = normalised(__ldcg(x + at), __ldg(gain + at), r);
}
// Orders writes to global memory before reads of it by the TMA.
DEVICE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// The first CTAs, the writers, take a row a warp, and tell every CTA that their rows are there. flags: [reader][writer].
DEVICE void normalise(const u16* x, const u16* gain, u16* normed, int* flags, int writers, int n_rows, int n_inner,
    float eps, int thread)
{
    const int writer = block_id(), lane = thread % 32, first = thread / 32 * writers + writer;
    if (writer < writers) {
        prefetch_row(gain, n_inner, lane);
        if (first < n_rows) prefetch_row(x + (i64)first * n_inner, n_inner, lane);
    }
    // The launch before may have written x, and may still read the workspace and y.
    wait_for_launch_before();
    if (writer >= writers) return;
    NO_UNROLL for (int row = first; row < n_rows; row += CONSUMERS * writers) {
        const i64 at = (i64)row * n_inner;
        normalise_row((const uint4*)(x + at), (const uint4*)gain, (uint4*)(normed + at), n_inner, eps, lane);
    }
    fence_async_global();
    asm volatile("bar.sync 8, %0;" :: "n"(THREADS) : "memory");
    __threadfence();
    NO_UNROLL for (int reader = thread; reader < gridDim.x; reader += THREADS)
        *(volatile int*)(flags + reader * MAX_WRITERS + writer) = 1;
}
// Waits until all rows are there, and resets the flags for the next launch, which waits for this one to end.
DEVICE void await_rows(int* flags, int writers, int lane) {
    wait_for_launch_before();
    volatile int* const own = flags + block_id() * MAX_WRITERS + lane * (MAX_WRITERS / 32);
    bool missing;
    do {
        missing = false;
        UNROLL for (int k = 0; k < MAX_WRITERS / 32; ++k)
            missing |= lane * (MAX_WRITERS / 32) + k < writers && own[k] == 0;
    } while (missing);
    __threadfence();
    UNROLL for (int k = 0; k < MAX_WRITERS / 32; ++k) own[k] = 0;
    fence_async_global();
}

#define NAME rmsnorm_matmul_cluster
#define PARAMETERS float4* partial, int* ready, int n_rows, int n_cols, int n_inner, int tile_rows, int last_row, \
    int last_col, int group_rows, const u16* x, const u16* gain, u16* normed, int* flags, int writers, float eps
#define PREPARE_A(thread) normalise(x, gain, normed, flags, writers, n_rows, n_inner, eps, thread)
#define AWAIT_A(lane) await_rows(flags, writers, lane)
#define EPILOGUE(acc, col, n_cols, lane)
#define PACKED packed
#include "cluster_gemm_kernel.cuh"

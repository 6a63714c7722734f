// y = rmsnorm(x) times W by the cluster GEMM of kernels/common. The first CTAs normalise the rows of x, rounded to the
// dtype, into a workspace, from which all CTAs load wgmma's operand.
// Macros beside those of the GEMM (cluster.py): PARTS: warps that take a row together. VECTORS: loads of 16 bytes of
// its part of a row, and of the gain, that a lane keeps in registers; of longer rows the rest is read twice.
#define EVEN_TILES 1
#define PREPARES_A 1
#include "cluster_gemm.cuh"
#include "normalised_rows.cuh"

constexpr int EARLY_STEPS = 2;                       // whose weights L2 fetches before x; more delay x
constexpr int MAX_WRITERS = 64;                      // WRITERS of cost.py
constexpr int ROWS_AT_ONCE = CONSUMERS / PARTS;      // of a CTA
constexpr u32 SQUARES_AT = BARRIERS_AT + STAGES * 16;
static_assert(CONSUMERS % PARTS == 0, "all warps take a row");

// Orders writes to global memory before reads of it by the TMA.
DEVICE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
DEVICE void writers_barrier() { asm volatile("bar.sync 8, %0;" :: "n"(THREADS) : "memory"); }

// The first CTAs, the writers, take rows, and tell every CTA when their rows are there. flags: [reader][writer].
DEVICE void normalise(const u16* x, const u16* gain, u16* normed, int* flags, int writers, int n_rows, int n_inner,
    float eps, float* sums, int thread)
{
    const int writer = block_id(), warp = thread / 32, lane = thread % 32, vectors = n_inner / 8;
    const int in_turn = warp / PARTS * writers, from = warp % PARTS * 32 + lane;
    constexpr int STRIDE = 32 * PARTS;
    const uint4* const gains = (const uint4*)gain;
    // Of those in registers only the last may lie beyond the row's end.
    const bool ends = from + (VECTORS - 1) * STRIDE >= vectors;
    auto index_of = [&](int k) { return k + 1 < VECTORS || !ends ? from + k * STRIDE : vectors - 1; };
    uint4 g[VECTORS];
    if (writer < writers) {
        NO_UNROLL for (int row = writer + in_turn; warp % PARTS == 0 && row < n_rows; row += ROWS_AT_ONCE * writers)
            prefetch_row(x + (i64)row * n_inner, vectors, lane, 32);
        UNROLL for (int k = 0; k < VECTORS; ++k) g[k] = __ldg(gains + index_of(k));
    }
    // The launch before may have written x, and may still read the workspace and y.
    wait_for_launch_before();
    if (writer >= writers) return;
    NO_UNROLL for (int base = writer; base < n_rows; base += ROWS_AT_ONCE * writers) {
        const bool live = base + in_turn < n_rows;
        const i64 row = live ? base + in_turn : base;
        const uint4* const in = (const uint4*)x + row * vectors;
        uint4* const out = (uint4*)normed + row * vectors;
        uint4 v[VECTORS];
        UNROLL for (int k = 0; k < VECTORS; ++k) v[k] = __ldcg(in + index_of(k));
        float sums_of[4] = {0.f, 0.f, 0.f, 0.f};
        UNROLL for (int k = 0; k < VECTORS - 1; ++k) sums_of[k % 4] = squares_of(v[k], sums_of[k % 4]);
        const float last = squares_of(v[VECTORS - 1], 0.f);
        float sum = (sums_of[0] + sums_of[1]) + (sums_of[2] + sums_of[3]) + (ends ? 0.f : last);
        NO_UNROLL for (int at = from + VECTORS * STRIDE; at < vectors; at += STRIDE)
            sum = squares_of(__ldcg(in + at), sum);
        UNROLL for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        if (PARTS > 1) {
            if (lane == 0) sums[warp] = sum;
            writers_barrier();
            sum = 0.f;
            UNROLL for (int p = 0; p < PARTS; ++p) sum += sums[warp / PARTS * PARTS + p];
        }
        const float r = rsqrtf(sum / n_inner + eps);
        if (live) {
            UNROLL for (int k = 0; k < VECTORS; ++k)
                if (k + 1 < VECTORS || !ends) out[from + k * STRIDE] = normalised(v[k], g[k], r);
            NO_UNROLL for (int at = from + VECTORS * STRIDE; at < vectors; at += STRIDE)
                out[at] = normalised(__ldcg(in + at), __ldg(gains + at), r);
        }
        if (PARTS > 1) writers_barrier();
    }
    fence_async_global();
    writers_barrier();
    // One fence for all flags of a thread, where store_release would fence each.
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    NO_UNROLL for (int reader = thread; reader < gridDim.x; reader += THREADS)
        *(volatile int*)(flags + reader * MAX_WRITERS + writer) = 1;
}
// Hints that L2 fetch a box of the weights.
DEVICE void prefetch_box(const TensorMap* map, int col, int inner) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];"
        :: "l"(map), "r"(col), "r"(inner) : "memory");
}
// Waits until all rows are there, and resets the flags for the next launch, which waits for this one to end.
DEVICE void await_rows(int* flags, int writers, const TensorMap* weights, int col, int n_cols, int step, int lane) {
    const int box = col + lane % BOXES * 64;
    if (lane < BOXES * EARLY_STEPS && box < n_cols) prefetch_box(weights, box, (step + lane / BOXES) * BLOCK_K);
    wait_for_launch_before();
    // A lane takes two.
    u64* const own = (u64*)(flags + block_id() * MAX_WRITERS) + lane;
    const u64 wanted = 2 * lane + 1 < writers ? 1ull << 32 | 1 : 2 * lane < writers;
    u64 got;
    do {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(got) : "l"(own) : "memory");
    } while (got != wanted);
    *own = 0;
    fence_async_global();
}

#define NAME rmsnorm_matmul_cluster
#define PARAMETERS float4* partial, int* ready, int n_rows, int n_cols, int n_inner, int tile_rows, int last_row, \
    int last_col, int group_rows, const u16* x, const u16* gain, u16* normed, int* flags, int writers, float eps
#define PREPARE_A(thread) \
    normalise(x, gain, normed, flags, writers, n_rows, n_inner, eps, (float*)(memory + SQUARES_AT), thread)
#define AWAIT_A(b_map, col, step, lane) await_rows(flags, writers, b_map, col, n_cols, step, lane)
#define EPILOGUE(acc, col, n_cols, lane)
#define PACKED packed
#include "cluster_gemm_kernel.cuh"

// Normalises rows of x, rounded to the dtype, for a product that is launched next, where rows of x begin at any element
// or columns change places. A CTA takes a row.
// Macros: CLASSES, columns with one residue modulo CLASSES lie side by side in the result, as gemm_residues.cu reads
// them; VECTOR, elements that are read at once, of which rows are a multiple; THREADS; HELD, whether shared memory holds
// a row, else it is read twice. A row of the result is CLASSES times in_class columns, zero where no column of x falls.
#include "hopper.cuh"

constexpr int WARPS = THREADS / 32;

DEVICE float squared(u32 two, float sum) { return fmaf(high(two), high(two), fmaf(low(two), low(two), sum)); }
#if VECTOR == 8
typedef uint4 Vector;
DEVICE float squares_of(const uint4& v, float sum) {
    return squared(v.w, squared(v.z, squared(v.y, squared(v.x, sum))));
}
#elif VECTOR == 2
typedef u32 Vector;
DEVICE float squares_of(u32 two, float sum) { return squared(two, sum); }
#else
typedef u16 Vector;
DEVICE float squares_of(u16 one, float sum) { return fmaf(low(one), low(one), sum); }
#endif

extern "C" __global__ void __launch_bounds__(THREADS) rmsnorm_matmul_normalise(
    const u16* x, const u16* gain, u16* normed, int n_inner, int in_class, float eps)
{
    extern __shared__ __align__(16) u16 held[];
    __shared__ float sums[WARPS];
    const int thread = threadIdx.x;
    const u16* const in = x + (i64)blockIdx.x * n_inner;
    // The launch before may have written x, and may still read the workspace.
    wait_for_launch_before();
    // After it: the product may read the weights at once.
    launch_dependents();
    float sum = 0.f;
    UNROLL_8 for (int at = thread; at < n_inner / VECTOR; at += THREADS) {
        const Vector v = __ldcg((const Vector*)in + at);
        if (HELD) ((Vector*)held)[at] = v;
        sum = squares_of(v, sum);
    }
    UNROLL for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
    if (thread % 32 == 0) sums[thread / 32] = sum;
    __syncthreads();
    sum = 0.f;
    UNROLL for (int w = 0; w < WARPS; ++w) sum += sums[w];
    const float r = rsqrtf(sum / n_inner + eps);
    u16* out = normed + (i64)blockIdx.x * CLASSES * in_class;
    NO_UNROLL for (int of_class = 0; of_class < CLASSES; ++of_class, out += in_class)
        UNROLL_8 for (int at = thread; at < in_class; at += THREADS) {
            const int column = at * CLASSES + of_class;
            const bool inside = column < n_inner;
            const float value = inside ? low(HELD ? held[column] : __ldcg(in + column)) : 0.f;
            out[at] = packed(value * r * (inside ? low(__ldg(gain + column)) : 0.f), 0.f);
        }
}

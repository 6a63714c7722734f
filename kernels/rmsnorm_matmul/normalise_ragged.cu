// Normalises rows of x that begin at any element, rounded to the dtype, for a product that is launched next. A CTA
// takes a row and reads it twice.
// Macro CLASSES: columns with one residue modulo CLASSES lie side by side in the result, as gemm_residues.cu reads
// them. A row of it is CLASSES times in_class columns, zero where no column of x falls.
#include "hopper.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;

extern "C" __global__ void __launch_bounds__(THREADS) rmsnorm_matmul_normalise(
    const u16* x, const u16* gain, u16* normed, int n_inner, int in_class, float eps)
{
    __shared__ float sums[WARPS];
    const int thread = threadIdx.x;
    const u16* const in = x + (i64)blockIdx.x * n_inner;
    // The launch before may have written x, and may still read the workspace.
    wait_for_launch_before();
    // After it: the product may read the weights at once.
    launch_dependents();
    float sum = 0.f;
    UNROLL_8 for (int at = thread; at < n_inner; at += THREADS) {
        const float value = low(__ldcg(in + at));
        sum = fmaf(value, value, sum);
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
            out[at] = column < n_inner ? packed(low(__ldcg(in + column)) * r * low(__ldg(gain + column)), 0.f) : 0;
        }
}

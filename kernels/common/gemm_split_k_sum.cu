// Adds the PARTS of a workspace (parts, n_rows, n_cols) in fp32 that gemm_split_k.cu has written, in their order, and
// writes the result (n_rows, n_cols) in 16 bits, or with BIAS_RELU the larger of 0 and the sum with a bias (n_cols). Each
// thread has four neighbours; n_cols is a multiple of 8.
#include "hopper.cuh"

#if BIAS_RELU
#define BIAS const uint2* bias,
#else
#define BIAS
#endif

extern "C" __global__ void __launch_bounds__(THREADS) gemm_split_k_sum(
    const float4* workspace, BIAS uint2* c, int fours, int fours_of_row)
{
    const int e = blockIdx.x * THREADS + threadIdx.x;
    wait_for_launch_before();
    // Not earlier: CTAs of the next product would take SMs one by one as this product leaves them, and neighbours not be
    // neighbours.
    launch_dependents();
    if (e >= fours) return;
    float4 parts[PARTS];
    UNROLL for (int p = 0; p < PARTS; ++p) parts[p] = __ldcg(workspace + (i64)p * fours + e);
    float sum[4] = {0.f, 0.f, 0.f, 0.f};
    UNROLL for (int p = 0; p < PARTS; ++p) {
        sum[0] += parts[p].x; sum[1] += parts[p].y; sum[2] += parts[p].z; sum[3] += parts[p].w;
    }
#if BIAS_RELU
    const uint2 more = bias[e % fours_of_row];
    sum[0] += low(more.x); sum[1] += high(more.x); sum[2] += low(more.y); sum[3] += high(more.y);
    // Not a maximum, which would turn NaN into 0.
    UNROLL for (int i = 0; i < 4; ++i) sum[i] = sum[i] < 0.f ? 0.f : sum[i];
#endif
    c[e] = make_uint2(packed(sum[0], sum[1]), packed(sum[2], sum[3]));
}

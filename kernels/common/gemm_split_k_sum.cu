// Adds the PARTS of a workspace (parts, n_rows, n_cols) in fp32 that gemm_split_k.cu has written, in their order, and
// writes the result (n_rows, n_cols) in 16 bits, or with BIAS_RELU the larger of 0 and the sum with a bias (n_cols). With
// SCALED sums are multiplied by a number; with INT8 they are 32-bit integers, scaled, and the result is fp32. Each thread
// has four neighbours; n_cols is a multiple of 8.
#include "hopper.cuh"

#ifndef SCALED
#define SCALED 0
#endif
#ifndef INT8
#define INT8 0
#endif
#if BIAS_RELU
#define BIAS const uint2* bias,
#else
#define BIAS
#endif
#if SCALED
#define SCALE , float scale
#else
#define SCALE
#endif
#if INT8
using Sum = int;
using Four = int4;
using Result = float4;
#else
using Sum = float;
using Four = float4;
using Result = uint2;
#endif

extern "C" __global__ void __launch_bounds__(THREADS) gemm_split_k_sum(
    const Four* workspace, BIAS Result* c, int fours, int fours_of_row SCALE)
{
    const int e = blockIdx.x * THREADS + threadIdx.x;
    wait_for_launch_before();
    // Not earlier: CTAs of the next product would take SMs one by one as this product leaves them, and neighbours not be
    // neighbours.
    launch_dependents();
    if (e >= fours) return;
    Four parts[PARTS];
    UNROLL for (int p = 0; p < PARTS; ++p) parts[p] = __ldcg(workspace + (i64)p * fours + e);
    Sum sum[4] = {0, 0, 0, 0};
    UNROLL for (int p = 0; p < PARTS; ++p) {
        sum[0] += parts[p].x; sum[1] += parts[p].y; sum[2] += parts[p].z; sum[3] += parts[p].w;
    }
#if BIAS_RELU
    const uint2 more = bias[e % fours_of_row];
    sum[0] += low(more.x); sum[1] += high(more.x); sum[2] += low(more.y); sum[3] += high(more.y);
    // Not a maximum, which would turn NaN into 0.
    UNROLL for (int i = 0; i < 4; ++i) sum[i] = sum[i] < 0.f ? 0.f : sum[i];
#endif
#if INT8
    c[e] = make_float4(sum[0] * scale, sum[1] * scale, sum[2] * scale, sum[3] * scale);
#else
#if SCALED
    UNROLL for (int i = 0; i < 4; ++i) sum[i] *= scale;
#endif
    c[e] = make_uint2(packed(sum[0], sum[1]), packed(sum[2], sum[3]));
#endif
}

// matmul_bias_relu by the cluster GEMM of kernels/common: the epilogue adds the bias in fp32 and rectifies.
#include "cluster_gemm.cuh"

// Not a maximum, which would turn NaN into 0.
DEVICE float rectified(float sum) { return sum < 0.f ? 0.f : sum; }

#if SWAPPED
// Of each four accumulators of a thread two lie in column col + lane / 4, then two 8 columns on.
DEVICE void add_bias_and_rectify(float (&acc)[ACC], const u16* bias, int col, int n_cols, int lane) {
    float two[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int at = col + lane / 4 + 8 * h;
        two[h] = low(at < n_cols ? bias[at] : 0u);
    }
#pragma unroll
    for (int i = 0; i < ACC / SPLIT; ++i) acc[i] = rectified(acc[i] + two[i / 2 % 2]);
}
#else
// Accumulators 4 / SPLIT * j and on of a thread lie in columns col + 8 * j + lane % 4 * 2 and the next one.
DEVICE void add_bias_and_rectify(float (&acc)[ACC], const u16* bias, int col, int n_cols, int lane) {
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j) {
        const int at = col + 8 * j + lane % 4 * 2;
        u32 two = at + DIRECT < n_cols ? *(const u32*)(bias + at) : 0u;
        // Of an odd number of columns the last one has none beside it.
        if (DIRECT && at + 1 == n_cols) two = bias[at];
#pragma unroll
        for (int k = 0; k < 4 / SPLIT; ++k) {
            float& one = acc[4 / SPLIT * j + k];
            one = rectified(one + (k % 2 ? high(two) : low(two)));
        }
    }
}
#endif

// Hints that L2 fetch the bias of a tile, 32 bytes a lane.
DEVICE void prefetch_bias(const u16* bias, int col, int n_cols, int lane) {
    const int at = col + 16 * lane;
    if (lane < BLOCK_N / 16 && at < n_cols) asm volatile("prefetch.global.L2 [%0];" :: "l"(bias + at));
}

#define NAME matmul_bias_relu_cluster
#define PARAMETERS const u16* bias, float4* partial, int* ready, int n_rows, int n_cols, int n_inner, int tile_rows, \
    int last_row, int last_col, int group_rows
#define BEFORE_TILE(col, lane) prefetch_bias(bias, col, n_cols, lane)
#define EPILOGUE(acc, col, n_cols, lane) add_bias_and_rectify(acc, bias, col, n_cols, lane)
#define PACKED packed
#include "cluster_gemm_kernel.cuh"

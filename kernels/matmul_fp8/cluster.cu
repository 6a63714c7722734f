// matmul_fp8 by the cluster GEMM of kernels/common: with a scaled result.
#define FP8 1
#include "cluster_gemm.cuh"

DEVICE u32 packed_scaled(float lo, float hi, float scale) {
    const float second = hi * scale;
    return packed(lo * scale, second);
}

#define NAME matmul_fp8_cluster
#define PARAMETERS float4* partial, int* ready, float scale, int n_rows, int n_cols, int n_inner, int tile_rows, \
    int last_row, int last_col, int group_rows
#define EPILOGUE(acc, col, n_cols, lane)
#define PACKED(lo, hi) packed_scaled(lo, hi, scale)
#include "cluster_gemm_kernel.cuh"

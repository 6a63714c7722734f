// matmul_int8 by the cluster GEMM of kernels/common: exact sums of integers, scaled.
#define INT8 1
#include "cluster_gemm.cuh"

#define NAME matmul_int8_cluster
#define PARAMETERS float4* partial, int* ready, float scale, int n_rows, int n_cols, int n_inner, int tile_rows, \
    int last_row, int last_col, int group_rows
#define WIDE(sum) ((float)(sum) * scale)
#include "cluster_gemm_kernel.cuh"

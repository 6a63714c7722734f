// matmul by the cluster GEMM of kernels/common, without an epilogue.
#include "cluster_gemm.cuh"

#define NAME matmul_cluster
#define PARAMETERS float4* partial, int* ready, int n_rows, int n_cols, int n_inner, int tile_rows, int last_row, \
    int last_col, int group_rows
#define EPILOGUE(acc, col, n_cols, lane)
#define PACKED packed
#include "cluster_gemm_kernel.cuh"

// matmul_fp8_blocks by the cluster GEMM of kernels/common: the sums of each step of 128 products are multiplied by the
// scales of their row and of their 128 columns before they are added.
#undef BF16
#define BF16 1
#define FP8 1
#define STEP_SCALES StepScales
#include "cluster_gemm.cuh"

// The scales of a thread's two rows of A, 8 apart, and of the columns of its tile, for one step at a time.
// a_scale (steps, n_rows), b_scale (columns / 128, steps), both row-major.
struct StepScales {
    const float *of_row, *of_row_below, *of_columns;
    int n_rows;

    DEVICE StepScales(const float* a_scale, const float* b_scale, int row, int col, int steps, int n_rows)
        : of_row(a_scale + min(row, n_rows - 1)), of_row_below(a_scale + min(row + 8, n_rows - 1)),
          of_columns(b_scale + (i64)(col / 128) * steps), n_rows(n_rows) {}
    struct Step { float row, row_below, columns; };
    DEVICE Step at(int step) const {
        const i64 o = (i64)step * n_rows;
        return {__ldg(of_row + o), __ldg(of_row_below + o), __ldg(of_columns + step)};
    }
};

#define NAME matmul_fp8_blocks_cluster
#define PARAMETERS float4* partial, int* ready, int n_rows, int n_cols, int n_inner, int group_rows, \
    const float* a_scale, const float* b_scale
#define EPILOGUE(acc, col, n_cols, lane)
#define PACKED packed
#include "cluster_gemm_kernel.cuh"

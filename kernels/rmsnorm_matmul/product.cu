// Rows that the launch before has normalised times W, by the cluster GEMM of kernels/common. While it waits for the
// rows, L2 fetches the first weights.
#define AWAITS_A 1
#include "cluster_gemm.cuh"

constexpr int EARLY_STEPS = 2;                       // whose weights L2 fetches; more delay x

// Hints that L2 fetch a box of the weights.
DEVICE void prefetch_box(const TensorMap* map, int col, int inner) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];"
        :: "l"(map), "r"(col), "r"(inner) : "memory");
}
// Waits until all rows are there, in the order in which the TMA reads them after the other launch has written them.
DEVICE void await_rows(const TensorMap* weights, int col, int n_cols, int step, int lane) {
    const int box = col + lane % BOXES * 64;
    if (lane < BOXES * EARLY_STEPS && box < n_cols) prefetch_box(weights, box, (step + lane / BOXES) * BLOCK_K);
    wait_for_launch_before();
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

#define NAME rmsnorm_matmul_cluster
#define PARAMETERS float4* partial, int* ready, int n_rows, int n_cols, int n_inner, int tile_rows, int last_row, \
    int last_col, int group_rows
#define AWAIT_A(b_map, col, step, lane) await_rows(b_map, col, n_cols, step, lane)
#define EPILOGUE(acc, col, n_cols, lane)
#define PACKED packed
#include "cluster_gemm_kernel.cuh"

// C (n_rows, n_cols) = A (n_rows, n_inner) times B (n_inner, n_cols) for few rows, at most BLOCK_M, all row-major and
// of 16 bits. Rows of A and B may begin at any element: no copy of them is made.
//
// A CTA has BLOCK_N columns of C. cp.async loads the aligned vectors of 16 bytes in which a row lies, so that it begins
// up to 7 elements late in shared memory; rows that lie 8 apart begin equally late. mma.sync multiplies with A and B
// swapped: 16 columns of B by 8 rows of A. Four warps have 16 columns each, two such groups divide the steps of a stage.
// The SPLIT CTAs of a cluster divide K; each adds up a share of the sums of all, in the same order.
//
// A_LOADS: how a thread reads A from shared memory: 0 ldmatrix, where rows are whole vectors; 1 words, where they begin
// at even elements; 2 elements. BIAS_RELU: 1 where the result is max(0, sum + bias).
#include "hopper.cuh"

constexpr int BLOCK_N = 64, BLOCK_K = 64, THREADS = 256, BLOCKS = BLOCK_M / 8;
// Bytes of a row of a stage, of which the first banks of eight rows differ.
constexpr u32 PITCH = 144, A_AT = BLOCK_K * PITCH, STAGE = A_AT + BLOCK_M * PITCH;
// Of a row of sums, in floats.
constexpr int SUMS = 68;

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#define barrier_of_all cluster_barrier
#else
#define CLUSTER
#define barrier_of_all __syncthreads
#endif
#if BIAS_RELU
#define BIAS const u16* bias,
#else
#define BIAS
#endif

DEVICE void copy_vector(u32 to, u64 from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}
// Copies `bytes`, 2 to 14, and fills the others of 16 with zeros. As compiled it names 16 bytes that end 16 behind them.
DEVICE void copy_first(u32 to, u64 from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
DEVICE void copy_word(u32 to, u64 from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory");
}
DEVICE void store_word(u32 to, u32 word) {
    asm volatile("st.shared.b32 [%0], %1;" :: "r"(to), "r"(word) : "memory");
}
DEVICE u32 load_element(u64 from) {
    return *(const u16*)from;
}
DEVICE void store_zeros(u32 to) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" :: "r"(to), "r"(0) : "memory");
}
// Copies the first elements of a vector, 1 to 7, and fills up with zeros. No access reaches beyond the end of the matrix.
DEVICE void copy_elements(u32 to, u64 from, int elements, u64 matrix_end) {
    const int bytes = 2 * elements;
    if (matrix_end - from >= 32 - bytes) copy_first(to, from, bytes);
    else
        UNROLL for (int i = 0; i < 16; i += 4)
            if (bytes >= i + 4) copy_word(to + i, from + i);
            else store_word(to + i, bytes == i + 2 ? load_element(from + i) : 0);
}
// Two elements of shared memory in one register.
DEVICE u32 load_two(u32 first, u32 second) {
    u32 two;
    asm volatile("{.reg .b16 l, h; ld.shared.b16 l, [%1]; ld.shared.b16 h, [%2]; mov.b32 %0, {l, h};}"
        : "=r"(two) : "r"(first), "r"(second) : "memory");
    return two;
}
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE float load_sum(u32 from, int rank) {
    float v;
    if (SPLIT > 1) asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(peer(from, rank)) : "memory");
    else asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
    return v;
}

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, BLOCK_M > 64 ? 1 : 2) gemm_few_rows(
    const u16* a, const u16* b, BIAS u16* c, int n_rows, int n_cols, int n_inner)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const u32 ring = shared(memory);
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, at = lane / 4, pair = lane % 4;
    const int rank = blockIdx.x % SPLIT, col = blockIdx.x / SPLIT * BLOCK_N;
    const int steps = (n_inner + BLOCK_K - 1) / BLOCK_K;
    const int first = (int)((i64)steps * rank / SPLIT), count = (int)((i64)steps * (rank + 1) / SPLIT) - first;
    auto of_a = [&](int row) { return (u64)(a + ((i64)row * n_inner + first * BLOCK_K)); };
    auto of_b = [&](int row) { return (u64)(b + ((i64)(first * BLOCK_K + row) * n_cols + col)); };
    launch_dependents();
    wait_for_launch_before();

    // Four threads load a row: vectors 0 to 3, 4 to 7, and one of them the ninth.
    const int row = thread / 4, vector = thread % 4;
    const u32 to = ring + row * PITCH + 16 * vector;
    // Elements from a thread's first vector to the end of a row of A at its first step.
    const int left_a = n_inner - first * BLOCK_K + (int)(of_a(row) & 15) / 2 - 8 * vector;
    const u64 end_a = (u64)(a + (i64)n_rows * n_inner), end_b = (u64)(b + (i64)n_inner * n_cols);
    const u64 next_b = 2ull * BLOCK_K * n_cols;
    u64 from_b = (of_b(row) & ~15ull) + 16 * vector, from_a = (of_a(row) & ~15ull) + 16 * vector;
    // Steps of which all vectors, the ninth too, lie inside the rows of A and the matrix B: what follows a row of B falls
    // into columns that nobody stores.
    const int inner_left = n_inner - first * BLOCK_K - BLOCK_K - 8;
    const int whole_steps = n_cols < 9 || inner_left < 0 ? 0 : inner_left / BLOCK_K + 1;
    int to_load = 0, stage_to_load = 0;
    // What the rows of A after the last one hold nobody stores.
    auto load_whole = [&](u32 stage) {
        UNROLL for (int i = 0; i < 3; ++i)
            if (i < 2 || vector == 0) copy_vector(stage + 64 * i, from_b + 64 * i);
        UNROLL for (int o = 0; o < BLOCK_M; o += 64) {
            if (o + row >= n_rows) continue;
            UNROLL for (int i = 0; i < 3; ++i)
                if (i < 2 || (A_LOADS && vector == 0))
                    copy_vector(stage + A_AT + o * PITCH + 64 * i, from_a + 2ll * o * n_inner + 64 * i);
        }
    };
    // A thread has part of at most one vector of a row of A, and of B in its last row; these are copied at the end.
    auto load_rest = [&](u32 stage) {
        const bool is_row = (first + to_load) * BLOCK_K + row < n_inner;
        int part = 0, part_at = 0;
        UNROLL for (int i = 0; i < (vector ? 2 : 3); ++i) {
            const i64 left = (i64)(end_b - from_b) / 2 - 32 * i;
            if (!is_row) store_zeros(stage + 64 * i);
            else if (left >= 8) copy_vector(stage + 64 * i, from_b + 64 * i);
            else if (left > 0) part = (int)left, part_at = 64 * i;
        }
        if (part) copy_elements(stage + part_at, from_b + part_at, part, end_b);
        NO_UNROLL for (int o = 0; o < BLOCK_M && o + row < n_rows; o += 64) {
            const u32 of_row = stage + A_AT + o * PITCH;
            const u64 from = from_a + 2ll * o * n_inner;
            part = 0;
            UNROLL for (int i = 0; i < (A_LOADS && vector == 0 ? 3 : 2); ++i) {
                const int left = left_a - BLOCK_K * to_load - 32 * i;
                if (left >= 8) copy_vector(of_row + 64 * i, from + 64 * i);
                else if (left <= 0) store_zeros(of_row + 64 * i);
                else part = left, part_at = 64 * i;
            }
            if (part) copy_elements(of_row + part_at, from + part_at, part, end_a);
        }
    };
    auto load_step = [&] {
        if (to_load < count) {
            const u32 stage = to + stage_to_load * STAGE;
            if (to_load < whole_steps) load_whole(stage);
            else load_rest(stage);
            from_a += 2 * BLOCK_K;
            from_b += next_b;
            if (++stage_to_load == STAGES) stage_to_load = 0;
        }
        ++to_load;
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    NO_UNROLL for (int i = 0; i < STAGES - 1; ++i) load_step();

    // A warp's columns and its half of the steps of a stage.
    const int column = warp % 4 * 16, half = warp / 4;
    const u32 b_first = ring + half * 32 * PITCH + 2 * (column + at);
    const u32 b_even = b_first + 2 * pair * PITCH + (u32)(of_b(2 * pair) & 15);
    const u32 b_odd = b_first + (2 * pair + 1) * PITCH + (u32)(of_b(2 * pair + 1) & 15);
    // Where lane l gives the address of a row of ldmatrix: matrices lie side by side.
    const u32 a_own = ring + A_AT + half * 64
        + (A_LOADS ? at * PITCH + 4 * pair + (u32)(of_a(at) & 15) : lane % 8 * PITCH + lane / 8 * 16);
    float acc[BLOCKS][4];
    UNROLL for (int j = 0; j < BLOCKS; ++j) UNROLL for (int i = 0; i < 4; ++i) acc[j][i] = 0.f;

    u32 stage = 0;
    NO_UNROLL for (int i = 0; i < count; ++i) {
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
        // All have what this step reads, and have read the stage that is loaded next.
        __syncthreads();
        load_step();
        u32 of_columns[2][4];
        UNROLL for (int k = 0; k < 2; ++k) UNROLL for (int j = 0; j < 4; ++j) {
            const u32 o = stage + (16 * k + j / 2 * 8) * PITCH + j % 2 * 16;
            of_columns[k][j] = load_two(b_even + o, b_odd + o);
        }
        UNROLL for (int j = 0; j < BLOCKS; ++j) {
            u32 of_rows[4];
            const u32 o = a_own + stage + 8 * j * PITCH;
            if (A_LOADS == 0) load_matrices(of_rows, o);
            UNROLL for (int k = 0; A_LOADS && k < 4; ++k)
                of_rows[k] = A_LOADS == 1 ? load_word(o + 16 * k) : load_two(o + 16 * k, o + 16 * k + 2);
            UNROLL for (int k = 0; k < 2; ++k) multiply(acc[j], of_columns[k], of_rows[2 * k], of_rows[2 * k + 1]);
        }
        stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
    }

    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    float* const sums = (float*)memory;
    UNROLL for (int j = 0; j < BLOCKS; ++j) UNROLL for (int i = 0; i < 4; ++i)
        sums[(half * BLOCK_M + 8 * j + 2 * pair + i % 2) * SUMS + column + at + i / 2 * 8] = acc[j][i];
    barrier_of_all();
    for (int e = rank * THREADS + thread; e < min(n_rows, BLOCK_M) * BLOCK_N; e += SPLIT * THREADS) {
        const int m = e / BLOCK_N, n = e % BLOCK_N;
        float sum = 0.f;
        UNROLL for (int r = 0; r < SPLIT; ++r) UNROLL for (int h = 0; h < 2; ++h)
            sum += load_sum(ring + 4 * ((h * BLOCK_M + m) * SUMS + n), r);
        if (col + n >= n_cols) continue;
#if BIAS_RELU
        sum += low(bias[col + n]);
        // Not a maximum, which would turn NaN into 0.
        sum = sum < 0.f ? 0.f : sum;
#endif
        c[(i64)m * n_cols + col + n] = (u16)packed(sum, 0.f);
    }
    // The other CTAs may still read the sums of this one.
    if (SPLIT > 1) cluster_barrier();
}

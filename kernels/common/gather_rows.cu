// Copies A (n_rows, n_inner) so that columns with one residue modulo CLASSES lie side by side, as gemm_residues.cu reads
// them: to (n_rows, CLASSES, in_class), in_class a multiple of 64; what no column of A falls into is zero. A thread
// gathers 8 elements of a class, and threads side by side those of the next class.
#include "hopper.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS) gather_rows(
    const u16* a, uint4* to, int n_rows, int n_inner, int in_class)
{
    // The launch before this one may write A, and may still read the copy of the call before.
    wait_for_launch_before();
    // After it: what follows reads B at once.
    launch_dependents();
    const u32 vectors = in_class / 8, in_row = vectors * CLASSES;
    const u32 t = blockIdx.x * THREADS + threadIdx.x;
    if (t >= in_row * n_rows) return;
    const u32 row = t / in_row, rest = t % in_row, of_class = rest % CLASSES, vector = rest / CLASSES;
    const u16* const from = a + (i64)row * n_inner;
    u32 words[4] = {0, 0, 0, 0};
    UNROLL for (int i = 0; i < 8; ++i) {
        const u32 column = (vector * 8 + i) * CLASSES + of_class;
        if (column < (u32)n_inner) words[i / 2] |= (u32)from[column] << i % 2 * 16;
    }
    to[(i64)row * in_row + of_class * vectors + vector] = make_uint4(words[0], words[1], words[2], words[3]);
}

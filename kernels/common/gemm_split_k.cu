// C (n_rows, n_cols) = A (n_rows, n_inner) times B (n_inner, n_cols) of few tiles and many steps, by TMA and wgmma; with
// FP8 or INT8 b is (n_cols, n_inner). All are row-major, A and B of 16 bits, of e4m3 or of 8-bit integers. CTAs divide K
// into parts. Each CTA leaves its sums, in fp32 or as 32-bit integers, in a workspace (parts, n_rows, n_cols), which
// gemm_split_k_sum.cu adds up: nothing waits for another CTA of a launch.
//
// Neighbours among the CTAs load the same tile of B at the same time: a read of L2 then serves several of them.
//
// BLOCK_M, BLOCK_N: the tile of a CTA, of which tile_rows rows are loaded. A warpgroup multiplies 64 of its rows by all of
// its columns, or with SWAPPED 64 of its columns by all of its rows (swap-AB); the other side is a multiple of 8.
// STAGES: of the ring in shared memory. The last tiles begin early rather than end outside of the matrix.
// PROMOTED: with FP8, sums of 128 products are added in fp32; without, they stay in wgmma, which keeps fewer bits.
#include "products.cuh"
#include "wgmma.h"

#ifndef PROMOTED
#define PROMOTED 0
#endif
#if INT8
using Pair = int2;
#else
using Pair = float2;
#endif

constexpr int THREADS = 32 * CONSUMERS + 32, BOXES = B_ROWS ? 1 : (BLOCK_N + 63) / 64;
constexpr u32 A_BYTES = BLOCK_M * 128, B_BYTES = B_ROWS ? BLOCK_N * 128 : BOXES * 8192, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr u64 B_MAJOR = B_ROWS ? K_MAJOR : MN_MAJOR;
constexpr u32 B_CHUNK = B_ROWS ? 32 : 2048;
constexpr u32 BARRIERS_AT = STAGES * STAGE_BYTES;
// Of a thread: warps get registers by fours.
constexpr int REGISTERS = 65536 / (128 * (GROUPS + 1)) / 8 * 8;

extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm_split_k(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, Sum* workspace,
    int n_rows, int n_cols, int n_inner, int tile_rows, int parts)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int tiles_m = (n_rows + tile_rows - 1) / tile_rows, tiles = gridDim.x / parts;
    const int part = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    const int own_row = tile % tiles_m * tile_rows, own_col = tile / tiles_m * BLOCK_N;
    const int row = min(own_row, n_rows - tile_rows), col = max(min(own_col, n_cols - BLOCK_N), 0);
    const int steps = (n_inner + BLOCK_K - 1) / BLOCK_K, first = steps * part / parts, last = steps * (part + 1) / parts;
    auto full = [&](int s) { return ring + BARRIERS_AT + s * 16; };
    auto empty = [&](int s) { return ring + BARRIERS_AT + s * 16 + 8; };
    launch_dependents();
    if (warp == CONSUMERS) {
        if (lane == 0) { prefetch(&a_map); prefetch(&b_map); }
        if (lane < STAGES) { init(full(lane), 1); init(empty(lane), CONSUMERS); }
        fence_barrier_init();
    }
    __syncthreads();

    if (warp == CONSUMERS) {
        if (elected()) {
            // The launch before this one may have written the operands, and may still read the workspace.
            wait_for_launch_before();
            int s = 0, phase = 1;
            NO_UNROLL for (int i = first; i < last; ++i) {
                wait(empty(s), phase);
                expect(full(s), tile_rows * 128 + B_BYTES);
                const u32 a = ring + s * STAGE_BYTES, b = a + A_BYTES;
                load(a, &a_map, i * BLOCK_K, row, full(s));
                if (B_ROWS) {
                    load(b, &b_map, i * BLOCK_K, col, full(s));
                } else {
                    UNROLL for (int o = 0; o < BOXES; ++o)
                        load(b + o * 8192, &b_map, col + o * 64, i * BLOCK_K, full(s));
                }
                if (++s == STAGES) { s = 0; phase ^= 1; }
            }
        }
    } else {
        const int group = warp / 4;
        const u32 a_own = SWAPPED ? 0 : group * 8192, b_own = A_BYTES + (SWAPPED ? group * 8192 : 0);
        Sum acc[ACC];
        int s = 0, phase = 0;
        // Begins to multiply a step. more: whether its products are added to those that are there.
        auto multiply = [&](Sum (&to)[ACC], bool more) {
            const u32 at = uniform((ring & 0x3ffff) + s * STAGE_BYTES);
            wait(full(s), phase);
            const u64 a = K_MAJOR | (at + a_own) >> 4, b = B_MAJOR | (at + b_own) >> 4;
            fence_products();
            UNROLL for (int k = 0; k < CHUNKS; ++k) {
                const u64 a_k = a + k * (32 >> 4), b_k = b + k * (B_CHUNK >> 4);
                mma(to, SWAPPED ? b_k : a_k, SWAPPED ? a_k : b_k, k > 0 || more);
            }
            commit_products();
        };
#if PROMOTED
        auto step = [&](float (&to)[ACC]) {
            multiply(to, false);
            const u32 used = empty(s);
            if (++s == STAGES) { s = 0; phase ^= 1; }
            return used;
        };
        auto release = [&](u32 used) { if (lane == 0) arrive(used); };
        UNROLL for (int i = 0; i < ACC; ++i) acc[i] = 0.f;
        multiply_promoted<3 * ACC + 24 <= REGISTERS>(acc, last - first, step, release);
#else
        int before = 0;
        NO_UNROLL for (int i = first; i < last; ++i) {
            multiply(acc, i > first);
            // The products of the step before are done; those of this one are in flight.
            wait_products<1>();
            if (i > first && lane == 0) arrive(empty(before));
            before = s;
            if (++s == STAGES) { s = 0; phase ^= 1; }
        }
        wait_products<0>();
        pin(acc);
#endif
        // A thread has the sums of two neighbours, and the same 8 further along a warpgroup's 64.
        const int along = group * 64 + warp % 4 * 16 + lane / 4, across = lane % 4 * 2;
        Sum* const own_sums = workspace + (i64)part * n_rows * n_cols;
        const int row_end = min(own_row + tile_rows, n_rows);
        auto owned_row = [&](int r) { return r >= own_row && r < row_end; };
        auto owned_col = [&](int c) { return c >= own_col && c < n_cols; };
        UNROLL for (int h = 0; h < 2; ++h) {
            const int r = row + (SWAPPED ? across : along + 8 * h), c = col + (SWAPPED ? along + 8 * h : across);
            // Moved from row to row: the addresses of all sums would not fit in the registers beside them.
            Sum* place = own_sums + (i64)r * n_cols + c;
            UNROLL for (int j = 0; j < ACC / 4; ++j) {
                const Sum one = acc[4 * j + 2 * h], two = acc[4 * j + 2 * h + 1];
                if (SWAPPED) {
                    if (owned_col(c) && owned_row(r + 8 * j)) __stcg(place, one);
                    if (owned_col(c) && owned_row(r + 8 * j + 1)) __stcg(place + n_cols, two);
                    place += 8 * n_cols;
                } else if (owned_row(r) && owned_col(c + 8 * j)) {
                    __stcg((Pair*)(place + 8 * j), Pair{one, two});
                }
            }
        }
    }
}

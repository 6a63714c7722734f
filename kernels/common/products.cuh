// What the products over wgmma share: the operands' element, the tile's division among warps, and sums of fp8.
//
// BLOCK_M, BLOCK_N: the tile. SWAPPED: warpgroups divide its columns, each with all of its rows (swap-AB), else its rows.
// FP8 (e4m3) or INT8 (8-bit integers, summed in 32 bits): b is (n_cols, n_inner); without either operands have 16 bits.
#pragma once
#include "hopper.cuh"

#ifndef FP8
#define FP8 0
#endif
#ifndef INT8
#define INT8 0
#endif
#if INT8
using Sum = int;
#else
using Sum = float;
#endif

constexpr bool B_ROWS = FP8 || INT8;                     // b is (n_cols, n_inner), of one byte an element
constexpr int BLOCK_K = B_ROWS ? 128 : 64, CHUNKS = 4;
constexpr int GROUPS = (SWAPPED ? BLOCK_N : BLOCK_M) / 64;    // warpgroups that multiply
constexpr int ACC = (SWAPPED ? BLOCK_M : BLOCK_N) / 2;   // accumulators of a thread
constexpr int CONSUMERS = 4 * GROUPS;                    // warps

#if FP8
// Multiplies `left` steps, one and more, and adds their products to acc in fp32: wgmma keeps fewer bits of sums.
// TWO_STEPS: registers hold the sums of two steps beside those of the tile, so that the next is multiplied while one is
// added; elsewhere other warpgroups multiply meanwhile, and no step is allowed too. multiply(to): begins a step and
// returns the barrier of its stage, which release(barrier) gives back.
template <bool TWO_STEPS, class Multiply, class Release>
DEVICE void multiply_promoted(float (&acc)[ACC], int left, const Multiply& multiply, const Release& release) {
    auto add = [&](float (&of)[ACC], u32 used) {
        pin(of);
        release(used);
        UNROLL for (int i = 0; i < ACC; ++i) acc[i] += of[i];
    };
    float sums[ACC];
    if constexpr (!TWO_STEPS) {
        NO_UNROLL for (; left > 0; --left) {
            const u32 used = multiply(sums);
            wait_products<0>();
            add(sums, used);
        }
    } else {
        float next_sums[ACC];
        u32 used = multiply(sums), next_used;
        NO_UNROLL for (; left > 2; left -= 2) {
            next_used = multiply(next_sums);
            wait_products<1>();
            add(sums, used);
            used = multiply(sums);
            wait_products<1>();
            add(next_sums, next_used);
        }
        // ptxas lets no product overlap if one is in flight where branches meet.
        if (left == 2) {
            next_used = multiply(next_sums);
            wait_products<1>();
            add(sums, used);
            wait_products<0>();
            add(next_sums, next_used);
        } else {
            wait_products<0>();
            add(sums, used);
        }
    }
}
#endif

// Scaling of wgmma's A operand by the gain on its way into registers: x in cooperative.cu, the weights in ping_pong.cu.
#pragma once
#include "hopper.cuh"

constexpr int BLOCK_K = 64, CHUNKS = BLOCK_K / 16;   // one wgmma multiplies 16 inner positions
constexpr int FRAGMENT = 4 * CHUNKS;                 // registers of the A operand of a step

DEVICE u32 scaled(u32 a, u32 gain) {
    u32 product;
    asm("mul.rn." TWO " %0, %1, %2;" : "=r"(product) : "r"(a), "r"(gain));
    return product;
}
// The sum and the squares of two 16-bit values.
DEVICE float squared(u32 two, float sum) {
#if BF16
    const float lo = __uint_as_float(two << 16), hi = __uint_as_float(two & 0xffff0000u);
#else
    float lo, hi;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(lo), "=f"(hi) : "r"(two));
#endif
    return fmaf(hi, hi, fmaf(lo, lo, sum));
}
// Scales the registers of a step: each holds two elements, whose gains lie as [chunk of 16][half].
DEVICE void scale(u32 (&a)[FRAGMENT], const u32 (&gain)[2 * CHUNKS]) {
    UNROLL for (int k = 0; k < FRAGMENT; ++k) a[k] = scaled(a[k], gain[k / 4 * 2 + k / 2 % 2]);
}

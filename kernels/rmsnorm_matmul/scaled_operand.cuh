// CUDA C++ for sm_90: clusters, which Gluon cannot express in triton 3.6. wgmma's A operand is scaled by the gain on its
// way into registers: in the first kernel below that is x, in the second the weights.
#pragma once
#include "hopper.cuh"

constexpr int BLOCK_K = 64, CHUNKS = BLOCK_K / 16, FRAG = 4 * CHUNKS;
DEVICE u32 scaled(u32 a, u32 g) {
    u32 r;
    asm("mul.rn." TWO " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(g));
    return r;
}
DEVICE float squared(u32 a, float sum) {
#if BF16
    const float lo = __uint_as_float(a << 16), hi = __uint_as_float(a & 0xffff0000u);
#else
    float lo, hi;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(lo), "=f"(hi) : "r"(a));
#endif
    return fmaf(hi, hi, fmaf(lo, lo, sum));
}

// What the kernels that normalise rows before the product share: rows in vectors of eight 16-bit values.
#pragma once
#include "hopper.cuh"

// Hints that L2 fetch a row, by `threads` threads; nothing is read, so that the launch before may still write it.
DEVICE void prefetch_row(const void* row, int vectors, int thread, int threads) {
    NO_UNROLL for (int at = thread * 8; at < vectors; at += threads * 8)
        asm volatile("prefetch.global.L2 [%0];" :: "l"((const uint4*)row + at));
}
DEVICE float squared(u32 two, float sum) { return fmaf(high(two), high(two), fmaf(low(two), low(two), sum)); }
DEVICE float squares_of(const uint4& v, float sum) {
    return squared(v.w, squared(v.z, squared(v.y, squared(v.x, sum))));
}
DEVICE u32 normalised(u32 x, u32 gain, float r) { return packed(low(x) * r * low(gain), high(x) * r * high(gain)); }
DEVICE uint4 normalised(const uint4& x, const uint4& gain, float r) {
    return make_uint4(normalised(x.x, gain.x, r), normalised(x.y, gain.y, r), normalised(x.z, gain.z, r),
        normalised(x.w, gain.w, r));
}

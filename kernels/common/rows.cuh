// What row kernels in CUDA C++ share: vectors of 16 bytes, partial results of a row and how they are combined.
//
// OP: 0 rmsnorm, 1 softmax, 2 layernorm. ELEMENT: bytes of one, 2 (BF16: bf16 or fp16) or 4. CLUSTER, THREADS: CTAs of
// a cluster, which take one row, threads of a CTA.
#pragma once
#include "hopper.cuh"

constexpr int VECTOR = 16 / ELEMENT, WARPS = THREADS / 32;
constexpr int REDUCTIONS = OP == 2 ? 2 : 1, PARTIALS = CLUSTER * WARPS;
constexpr float LOG2_E = 1.4426950408889634f;

DEVICE void widen(float (&v)[VECTOR], uint4 raw) {
#if ELEMENT == 4
    v[0] = __uint_as_float(raw.x); v[1] = __uint_as_float(raw.y);
    v[2] = __uint_as_float(raw.z); v[3] = __uint_as_float(raw.w);
#else
    v[0] = low(raw.x); v[1] = high(raw.x); v[2] = low(raw.y); v[3] = high(raw.y);
    v[4] = low(raw.z); v[5] = high(raw.z); v[6] = low(raw.w); v[7] = high(raw.w);
#endif
}
DEVICE uint4 narrow(const float (&v)[VECTOR]) {
#if ELEMENT == 4
    return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
#else
    return make_uint4(packed(v[0], v[1]), packed(v[2], v[3]), packed(v[4], v[5]), packed(v[6], v[7]));
#endif
}

// Partial results: a sum in x; for softmax the maximum in x and the sum of exponentials of differences to it in y.
#if OP == 1
#define NOTHING (-INFINITY)
#else
#define NOTHING 0.0f
#endif
// What differences are taken to: a row that holds only minus infinity must not compute inf - inf before its end.
DEVICE float reference(float highest) { return highest == NOTHING ? 0.0f : highest; }
DEVICE float exp_of(float x) { return exp2_approx(x * LOG2_E); }
DEVICE float2 combine(float2 a, float2 b) {
#if OP == 1
    const float highest = fmaxf(a.x, b.x), to = reference(highest);
    return make_float2(highest, a.y * exp_of(a.x - to) + b.y * exp_of(b.x - to));
#else
    return make_float2(a.x + b.x, 0.0f);
#endif
}
DEVICE float2 combine_warp(float2 mine) {
#pragma unroll
    for (int apart = 16; apart; apart /= 2)
        mine = combine(mine, make_float2(__shfl_xor_sync(~0u, mine.x, apart), __shfl_xor_sync(~0u, mine.y, apart)));
    return mine;
}
// The result of the row. partials, bar: where the partial results of this reduction arrive, and their mbarrier.
DEVICE float2 combine_cluster(float2 mine, const float2* partials, u32 bar, int thread, int rank) {
    const int lane = thread % 32, warp = thread / 32;
    mine = combine_warp(mine);
    if (lane < CLUSTER) send(peer(shared(partials + rank * WARPS + warp), lane), mine, peer(bar, lane));
    wait(bar, 0);
    float2 all = make_float2(NOTHING, 0.0f);
#pragma unroll
    for (int at = 0; at < PARTIALS; at += 32)
        if (at + lane < PARTIALS) all = combine(all, partials[at + lane]);
    all = combine_warp(all);
    // Lanes add in orders of their own: all take the bits of the first.
    return make_float2(__shfl_sync(~0u, all.x, 0), __shfl_sync(~0u, all.y, 0));
}

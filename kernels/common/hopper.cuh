// Device functions that the CUDA C++ kernels share: PTX instructions of sm_90 that CUDA C++ has no function for.
// Addresses of shared memory are 32 bits wide. BF16 selects the 16-bit type: 1 bf16, 0 fp16 (the default).
// Source: PTX ISA, the sections on mbarrier, cp.async.bulk.tensor, wgmma, barrier.cluster, griddepcontrol.
#pragma once

#if BF16
#define TYPE "bf16"
#define TWO "bf16x2"
#else
#define TYPE "f16"
#define TWO "f16x2"
#endif
#define DEVICE __device__ __forceinline__
// Before a loop.
#define UNROLL _Pragma("unroll")
#define UNROLL_8 _Pragma("unroll 8")
#define NO_UNROLL _Pragma("unroll 1")
#define INFINITY __int_as_float(0x7f800000)
typedef unsigned int u32; typedef unsigned long long u64; typedef unsigned short u16; typedef long long i64;
// What cuTensorMapEncodeTiled writes.
struct __align__(64) TensorMap { u64 opaque[16]; };

DEVICE u32 shared(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// True in one lane of a warp, which ptxas then knows to be one.
DEVICE bool elected() {
    u32 one;
    asm volatile("{.reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p;}" : "=r"(one));
    return one;
}
// The same in all lanes, which the compiler does not see: descriptors belong in uniform registers.
DEVICE u32 uniform(u32 x) { return __shfl_sync(~0u, x, 0); }
// Read where they are used: ptxas would keep a value that several warp roles use in local memory.
DEVICE int cluster_id() {
    int id;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id));
    return id;
}
DEVICE u32 thread_id() {
    u32 id;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(id));
    return id;
}
DEVICE u32 block_id() {
    u32 id;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(id));
    return id;
}

// mbarriers. AT is added to the address as an immediate: a sum would take a register.
DEVICE void init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count));
}
template <u32 AT = 0> DEVICE void expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0 + %1], %2;"
        :: "r"(bar), "n"(AT), "r"(bytes) : "memory");
}
template <u32 AT = 0> DEVICE void arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0 + %1];" :: "r"(bar), "n"(AT) : "memory");
}
// At a barrier of another CTA of the cluster, whose address peer() gives.
template <u32 AT = 0> DEVICE void arrive_at(u32 bar_there) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0 + %1];" :: "r"(bar_there), "n"(AT) : "memory");
}
DEVICE void arrive_at_rank(u32 bar, u32 rank) {
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];}" :: "r"(bar), "r"(rank) : "memory");
}
template <u32 AT = 0> DEVICE void wait(u32 bar, u32 phase) {
    asm volatile("{\n.reg .pred done;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0 + %1], %2;\n"
        "@done bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(bar), "n"(AT), "r"(phase) : "memory");
}
DEVICE void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// The Tensor Memory Accelerator (TMA). policy: an L2 cache policy.
DEVICE u64 evict_first() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
DEVICE u64 evict_normal() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
DEVICE void prefetch(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }
DEVICE void load(u32 to, const TensorMap* map, int inner, int outer, u32 bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" :: "r"(to), "l"(map), "r"(inner), "r"(outer), "r"(bar) : "memory");
}
DEVICE void load(u32 to, const TensorMap* map, int inner, int outer, u32 bar, u64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%2, %3}], [%4], %5;"
        :: "r"(to), "l"(map), "r"(inner), "r"(outer), "r"(bar), "l"(policy) : "memory");
}
// Multicast: to the same address in each CTA of the mask, counted at the mbarrier of each.
DEVICE void load_for(u32 mask, u32 to, const TensorMap* map, int inner, int outer, u32 bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3}], [%4], %5;"
        :: "r"(to), "l"(map), "r"(inner), "r"(outer), "r"(bar), "h"((u16)mask) : "memory");
}
DEVICE void load_for(u32 mask, u32 to, const TensorMap* map, int inner, int outer, u32 bar, u64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;"
        :: "r"(to), "l"(map), "r"(inner), "r"(outer), "r"(bar), "h"((u16)mask), "l"(policy) : "memory");
}
// Of a tensor of three dimensions.
DEVICE void load_for(u32 mask, u32 to, const TensorMap* map, int inner, int middle, int outer, u32 bar) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3, %4}], [%5], %6;"
        :: "r"(to), "l"(map), "r"(inner), "r"(middle), "r"(outer), "r"(bar), "h"((u16)mask) : "memory");
}
DEVICE void store(const TensorMap* map, int inner, int outer, u32 from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
        :: "l"(map), "r"(inner), "r"(outer), "r"(from) : "memory");
}
DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most PENDING groups of stores have not yet read shared memory; until all have written global memory.
template <int PENDING> DEVICE void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory");
}
DEVICE void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// Orders writes to shared memory before reads of it by the TMA or by wgmma.
DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Clusters and programmatic dependent launch (PDL). peer() gives the address of the same place in another CTA.
DEVICE u32 peer(u32 address, int rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
// Writes to the shared memory of a CTA and counts the bytes at an mbarrier there.
DEVICE void send(u32 to, float a, float b, float c, float d, u32 bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
        :: "r"(to), "f"(a), "f"(b), "f"(c), "f"(d), "r"(bar) : "memory");
}
DEVICE void send(u32 to, float2 v, u32 bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
        :: "r"(to), "f"(v.x), "f"(v.y), "r"(bar) : "memory");
}
DEVICE void send(u32 to, float v, u32 bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
        :: "r"(to), "f"(v), "r"(bar) : "memory");
}
DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// The next launch may begin; the launch before has ended and its writes are visible.
DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEVICE void wait_for_launch_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Of a warpgroup (128 threads); named barrier 0 is __syncthreads().
DEVICE void group_barrier(int group) { asm volatile("bar.sync %0, 128;" :: "r"(group + 1) : "memory"); }

// Flags in global memory, and data that they guard.
DEVICE void store_release(int* flag, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(flag), "r"(value) : "memory");
}
DEVICE int load_acquire(const int* flag) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

// A warpgroup's registers, per thread, in a kernel whose warp roles need different numbers.
template <int N> DEVICE void decrease_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> DEVICE void increase_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }

// wgmma.
DEVICE void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}
// Keeps the compiler from moving reads or writes of accumulators across this point.
template <int N> DEVICE void pin(float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(v[i]) :: "memory");
}
// The same of 32-bit integers.
template <class Word, int N> DEVICE void pin(Word (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(v[i]) :: "memory");
}
// Matrix descriptors of tiles in 128-byte swizzle, 8 rows an atom, without their address: K-major, rows of 128 bytes;
// MN-major, boxes of 64 columns by 64 rows, 8192 bytes apart.
constexpr u64 K_MAJOR = (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
constexpr u64 MN_MAJOR = (u64)(8192 >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;

// Shared memory by its 32-bit address.
DEVICE u32 load_word(u32 from) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    return v;
}
DEVICE void load_words(u32* v, u32 from) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from) : "memory");
}
// Four 8 by 8 matrices from or to shared memory; a lane gives the address of one row.
template <u32 AT = 0> DEVICE void load_matrices(u32* a, u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
        : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from), "n"(AT) : "memory");
}
DEVICE void load_matrices_transposed(u32* a, u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from) : "memory");
}
template <u32 AT = 0> DEVICE void store_matrices(u32 to, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0 + %1], {%2, %3, %4, %5};"
        :: "r"(to), "n"(AT), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
DEVICE void store_matrices_transposed(u32 to, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
        :: "r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Two 16-bit values in one register, the first in the low half.
DEVICE u32 packed(float lo, float hi) {
    u32 r;
    asm("cvt.rn." TWO ".f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
#if BF16
DEVICE float low(u32 two) { return __uint_as_float(two << 16); }
DEVICE float high(u32 two) { return __uint_as_float(two & 0xffff0000u); }
#else
DEVICE float low(u32 two) {
    float f;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(f) : "r"(two));
    return f;
}
DEVICE float high(u32 two) {
    float f;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(two));
    return f;
}
#endif
// 2 ** x.
DEVICE float exp2_approx(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// A NaN that no arithmetic gives: a word of a workspace that has not been written yet.
constexpr u32 UNWRITTEN = 0x7fffdead;

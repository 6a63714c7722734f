// What kernels/common/hopper.cuh gives the CUDA C++ that runs on a CPU.
#define __global__ static
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) alignas(bytes)
#define DEVICE inline
#define UNROLL
#define UNROLL_8
#define NO_UNROLL
typedef unsigned int u32; typedef unsigned short u16; typedef long long i64;
constexpr u32 UNWRITTEN = 0x7fffdead;

DEVICE float exp2_approx(float x) { return exp2f(x); }
DEVICE u32 packed(float low, float high) { return emulated_packed(low, high); }
// The launches of a run follow one another; whether a thread has waited is known.
static thread_local bool waited;
DEVICE void launch_dependents() {}
DEVICE void wait_for_launch_before() { waited = true; }
DEVICE void need_launch_before() {
    if (waited) return;
    printf("a read that waits for no launch before\n");
    exit(2);
}
DEVICE void cluster_arrive_relaxed() { emulated_arrive(); }
DEVICE void cluster_wait() { emulated_wait(); }
DEVICE void cluster_barrier() { emulated_arrive_and_wait(); }

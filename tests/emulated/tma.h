// Mbarriers, the TMA's loads and wgmma on a CPU, in 128-byte swizzle. Addresses of shared memory begin at 0.
#include <atomic>
typedef unsigned long long u64;
struct TensorMap { const u16* from; int rows, columns; i64 pitch; int box_rows; };
struct Bar { std::mutex lock; int count = 0, left = 0, bytes = 0; std::atomic<int> phase{0}; };
static std::mutex bars_lock;
static std::map<std::pair<Program*, u32>, Bar> bars;
static Bar& bar_at(u32 at) {
    const std::lock_guard held(bars_lock);
    return bars[{program, at}];
}
static void settle(Bar& bar) {
    if (bar.left || bar.bytes) return;
    bar.left = bar.count;
    ++bar.phase;
}
static void init(u32 at, int count) {
    Bar& bar = bar_at(at);
    bar.count = bar.left = count;
    bar.bytes = bar.phase = 0;
}
static void changed(u32 at, int arrivals, int bytes) {
    Bar& bar = bar_at(at);
    const std::lock_guard held(bar.lock);
    bar.left -= arrivals;
    bar.bytes += bytes;
    settle(bar);
}
static void arrive(u32 at) { changed(at, 1, 0); }
static void expect(u32 at, u32 bytes) { changed(at, 1, bytes); }
static void wait(u32 at, u32 parity) {
    Bar& bar = bar_at(at);
    while ((bar.phase & 1) == (int)parity) std::this_thread::yield();
}
static void fence_barrier_init() {}
static u32 swizzled(u32 at) { return at ^ (at >> 7 & 7) << 4; }
static void load(u32 to, const TensorMap* map, int column, int row, u32 bar) {
    for (int r = 0; r < map->box_rows; ++r)
        for (int c = 0; c < 64; ++c) {
            const bool inside = row + r < map->rows && column + c < map->columns;
            const u16* const from = map->from + (row + r) * map->pitch + column + c;
            if (inside) need_readable(from, 2);
            const u16 element = inside ? *from : 0;
            memcpy(program->memory + swizzled(to + 128 * r + 2 * c), &element, 2);
        }
    changed(bar, 0, -128 * map->box_rows);
}
constexpr u64 K_MAJOR = 0, MN_MAJOR = 0;
static float element_at(u32 at) {
    u16 half;
    memcpy(&half, program->memory + swizzled(at), 2);
    return of_half(half);
}
// The first operand MN-major, the second K-major.
template <size_t N> static void mma(float (&d)[N], u64 a, u64 b, int accumulate) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    for (int j = 0; j < (int)N; ++j) {
        const int m = warp * 16 + lane / 4 + j / 2 % 2 * 8, n = j / 4 * 8 + lane % 4 * 2 + j % 2;
        if (!accumulate) d[j] = 0;
        for (int k = 0; k < 16; ++k)
            d[j] += element_at(((u32)a << 4) + 128 * k + 2 * m) * element_at(((u32)b << 4) + 128 * n + 2 * k);
    }
}
static void fence_products() {}
static void commit_products() {}
template <size_t N> static void pin(float (&)[N]) {}
static u32 uniform(u32 x) { return x; }
static bool elected() { return threadIdx.x % 32 == 0; }
static void __syncwarp() { warp_of_thread().bar.arrive_and_wait(); }
// A warp's lanes wait together.
template <int> static void wait_products() { __syncwarp(); }
static void barrier_of(int threads) {
    static std::map<Program*, std::unique_ptr<std::barrier<>>> made;
    std::barrier<>* bar;
    {
        const std::lock_guard held(bars_lock);
        auto& own = made[program];
        if (!own) own = std::make_unique<std::barrier<>>(threads);
        bar = own.get();
    }
    bar->arrive_and_wait();
}

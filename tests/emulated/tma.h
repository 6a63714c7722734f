// Mbarriers, the TMA's loads and wgmma on a CPU, in 128-byte swizzle. Addresses of shared memory begin at 0. Operands are
// fp16, or with FP8 e4m3 and with INT8 integers.
#include <atomic>
typedef unsigned long long u64;
#if INT8
using Element = unsigned char;
using Accumulator = int;
constexpr Element AROUND_INPUTS = 77;
static int value_of(Element e) { return (signed char)e; }
#elif FP8
using Element = unsigned char;
using Accumulator = float;
constexpr Element AROUND_INPUTS = 0x7f;
static float value_of(Element e) {
    const int exponent = e >> 3 & 15, fraction = e & 7;
    if ((e & 0x7f) == 0x7f) return NAN;
    const float size = exponent ? ldexpf(8 + fraction, exponent - 10) : ldexpf(fraction, -9);
    return e & 0x80 ? -size : size;
}
#else
using Element = u16;
using Accumulator = float;
constexpr Element AROUND_INPUTS = 0x7e00;
static float value_of(Element e) { return of_half(e); }
#endif
constexpr int BOX_COLUMNS = 128 / sizeof(Element), PRODUCT_DEPTH = 32 / sizeof(Element);
// waits: whether what it describes may only be read after the launch before.
struct TensorMap { const Element* from; int rows, columns; i64 pitch; int box_rows; bool waits = false; };
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
static void prefetch(const TensorMap*) {}
static void load(u32 to, const TensorMap* map, int column, int row, u32 bar) {
    if (map->waits) need_launch_before();
    for (int r = 0; r < map->box_rows; ++r)
        for (int c = 0; c < BOX_COLUMNS; ++c) {
            const bool inside = row + r < map->rows && column + c < map->columns;
            const Element* const from = map->from + (row + r) * map->pitch + column + c;
            if (inside) need_readable(from, sizeof(Element));
            const Element element = inside ? *from : 0;
            memcpy(program->memory + swizzled(to + 128 * r + sizeof(Element) * c), &element, sizeof(Element));
        }
    changed(bar, 0, -128 * map->box_rows);
}
// A bit of a descriptor above those of the address.
constexpr u64 K_MAJOR = 0, MN_MAJOR = (u64)1 << 62;
static Accumulator element_at(u64 descriptor, int mn, int k) {
    const u32 from = (u32)descriptor << 4;
    const u32 at = descriptor & MN_MAJOR ? mn / 64 * 8192 + 128 * k + 2 * (mn % 64) : 128 * mn + sizeof(Element) * k;
    Element element;
    memcpy(&element, program->memory + swizzled(from + at), sizeof(Element));
    return value_of(element);
}
// Products read and write as late as they may: where a wait asks for their end.
struct Products { Accumulator* d; int sums; u64 a, b; int accumulate; };
static thread_local std::vector<Products> issued;
static thread_local std::vector<std::vector<Products>> in_flight;
static void multiply(const Products& p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    for (int j = 0; j < p.sums; ++j) {
        const int m = warp * 16 + lane / 4 + j / 2 % 2 * 8, n = j / 4 * 8 + lane % 4 * 2 + j % 2;
        if (!p.accumulate) p.d[j] = 0;
        for (int k = 0; k < PRODUCT_DEPTH; ++k) p.d[j] += element_at(p.a, m, k) * element_at(p.b, n, k);
    }
}
template <size_t N> static void mma(Accumulator (&d)[N], u64 a, u64 b, int accumulate) {
    issued.push_back({d, N, a, b, accumulate});
}
static void fence_products() {}
static void commit_products() {
    in_flight.push_back(std::move(issued));
    issued.clear();
}
template <size_t N> static void pin(Accumulator (&)[N]) {}
static u32 uniform(u32 x) { return x; }
static bool elected() { return threadIdx.x % 32 == 0; }
static void __syncwarp() { warp_of_thread().bar.arrive_and_wait(); }
// A warp's lanes wait together.
template <int PENDING> static void wait_products() {
    while (in_flight.size() > PENDING) {
        for (const Products& each : in_flight.front()) multiply(each);
        in_flight.erase(in_flight.begin());
    }
    __syncwarp();
}
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

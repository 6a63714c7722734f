// Runs CUDA C++ on a CPU, a thread for each of its threads: what it uses of a GPU there.
// A cluster's programs run together; clusters run one after the other, so a wait for a later one never ends.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using std::max;
using std::min;
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static unsigned __float_as_uint(float x) { unsigned u; memcpy(&u, &x, 4); return u; }
static float __uint_as_float(unsigned u) { float x; memcpy(&x, &u, 4); return x; }
static float __int_as_float(int i) { return __uint_as_float(i); }
static float of_half(unsigned short u) { _Float16 h; memcpy(&h, &u, 2); return (float)h; }

struct Index { int x; };
static thread_local Index threadIdx, blockIdx;
static Index gridDim;
struct Warp { std::barrier<> bar{32}; unsigned fragments[32][6]; float words[32]; };
struct Cluster;
struct Program {
    unsigned char* memory;
    std::vector<std::unique_ptr<Warp>> warps;
    std::unique_ptr<std::barrier<>> bar;
    Cluster* cluster;
};
struct Cluster { std::vector<Program> programs; std::unique_ptr<std::barrier<>> bar; };
static thread_local Program* program;
static thread_local std::optional<std::barrier<>::arrival_token> arrived;
static Warp& warp_of_thread() { return *program->warps[threadIdx.x / 32]; }

static void emulated_arrive() { arrived.emplace(program->cluster->bar->arrive()); }
static void emulated_wait() { program->cluster->bar->wait(std::move(*arrived)); }
static void emulated_arrive_and_wait() { program->cluster->bar->arrive_and_wait(); }
static void __syncthreads() { program->bar->arrive_and_wait(); }
static float exchanged(float x, int from) {
    Warp& warp = warp_of_thread();
    warp.words[threadIdx.x % 32] = x;
    warp.bar.arrive_and_wait();
    const float got = warp.words[from];
    warp.bar.arrive_and_wait();
    return got;
}
static float __shfl_sync(unsigned, float x, int from) { return exchanged(x, from % 32); }
static float __shfl_xor_sync(unsigned, float x, int bit) { return exchanged(x, threadIdx.x % 32 ^ bit); }
static bool __any_sync(unsigned, bool mine) {
    bool any = false;
    for (int lane = 0; lane < 32; ++lane) any |= exchanged(mine, lane) != 0;
    return any;
}
static unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned char bytes[8];
    memcpy(bytes, &a, 4);
    memcpy(bytes + 4, &b, 4);
    unsigned made = 0;
    for (int i = 0; i < 4; ++i) made |= (unsigned)bytes[selector >> 4 * i & 7] << 8 * i;
    return made;
}

// The fragments of mma.m16n8k16, as the PTX manual lays them out.
static void emulated_mma(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    const unsigned mine[6] = {a0, a1, a2, a3, b0, b1};
    Warp& warp = warp_of_thread();
    const int lane = threadIdx.x % 32;
    memcpy(warp.fragments[lane], mine, sizeof mine);
    warp.bar.arrive_and_wait();
    auto half = [&](int from, int word, int k) { return of_half(warp.fragments[from][word] >> 16 * (k % 2) & 0xffff); };
    for (int c = 0; c < 4; ++c) {
        const int m = lane / 4 + c / 2 * 8, n = lane % 4 * 2 + c % 2;
        for (int k = 0; k < 16; ++k)
            d[c] += half(m % 8 * 4 + k % 8 / 2, m / 8 + k / 8 * 2, k) * half(n * 4 + k % 8 / 2, 4 + k / 8, k);
    }
    warp.bar.arrive_and_wait();
}
static unsigned emulated_packed(float low, float high) {
    const _Float16 halves[2] = {(_Float16)low, (_Float16)high};
    unsigned word;
    memcpy(&word, halves, 4);
    return word;
}

struct Span { const char *from, *to; };
static std::vector<Span> readable;
static void need_readable(const void* from, int bytes) {
    for (const Span& span : readable)
        if ((const char*)from >= span.from && (const char*)from + bytes <= span.to) return;
    printf("a read outside the inputs\n");
    exit(2);
}
// Words of which each is written once.
struct Once { char *from, *to; std::vector<char> written; };
static std::vector<Once> writable;
template <class T> static void __stcg(T* at, T value) {
    for (Once& once : writable) {
        if ((char*)at < once.from || (char*)(at + 1) > once.to || (size_t)at % sizeof(T)) continue;
        for (size_t i = 0; i < sizeof(T) / 4; ++i)
            if (once.written[((char*)at - once.from) / 4 + i]++) printf("a second write of a word\n"), exit(2);
        *at = value;
        return;
    }
    printf("a write outside of what is written\n");
    exit(2);
}
static void need_launch_before();
template <class T> static T __ldcg(const T* from) {
    need_launch_before();
    need_readable(from, (size_t)from % sizeof(T) ? 1 << 30 : sizeof(T));
    return *from;
}
static void emulated_read(void* to, const void* from) { need_readable(from, 16); memcpy(to, from, 16); }
static void emulated_prefetch(const void* from, int bytes) { need_readable(from, bytes); }
static unsigned emulated_peer(const void* p, int rank) {
    return (unsigned)rank << 24 | (unsigned)((const unsigned char*)p - program->memory);
}
static void emulated_send(unsigned at, float2 x) {
    memcpy(program->cluster->programs[at >> 24].memory + (at & 0xffffff), &x, sizeof x);
}

template <class Body> static void launch(int programs, int cluster_size, int threads, size_t bytes, Body body) {
    gridDim.x = programs;
    for (int first = 0; first < programs; first += cluster_size) {
        Cluster cluster;
        cluster.bar = std::make_unique<std::barrier<>>(cluster_size * threads);
        cluster.programs.resize(cluster_size);
        for (Program& each : cluster.programs) {
            each.memory = (unsigned char*)aligned_alloc(16, (bytes + 15) / 16 * 16);
            memset(each.memory, 0xff, bytes);
            each.cluster = &cluster;
            each.bar = std::make_unique<std::barrier<>>(threads);
            for (int i = 0; i < threads / 32; ++i) each.warps.push_back(std::make_unique<Warp>());
        }
        std::vector<std::thread> running;
        for (int i = 0; i < cluster_size * threads; ++i)
            running.emplace_back([&, i] {
                threadIdx.x = i % threads;
                blockIdx.x = first + i / threads;
                program = &cluster.programs[i / threads];
                body();
            });
        for (std::thread& each : running) each.join();
        for (Program& each : cluster.programs) free(each.memory);
    }
}

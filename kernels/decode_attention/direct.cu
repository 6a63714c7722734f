// CUDA C++ for sm_90. Keys and values go from memory straight to the registers of the tensor cores' plain products: no
// barrier stands between a warp's load and its use, and warps meet only at a head's end. Programs of a cluster (CLUSTER)
// share a head's keys and add up in shared memory, which Gluon cannot express in triton 3.6; or each program takes an
// equal share of all heads' keys (STREAM), and a head's parts meet in L2, the first long before the last: a program
// begins with the head that a program after it ends, so it waits only for lower ones. PDL says when the next launch may
// begin: at once (1), so that it fetches ahead, or at the end (2), so that it finds even places.
#include "hopper.cuh"

constexpr int THREADS = WARPS * 32, TILES = BLOCK_S / 8;       // tiles of 8 keys a step
constexpr int PAIRS = D / 32, HALVES = D / 64;
constexpr int ELEMENTS = GROUP * D, SHARE = ELEMENTS / CLUSTER;
constexpr int N_FLOATS = (ELEMENTS + 2 * GROUP + 3) / 4 * 4;   // that a program leaves behind
constexpr int BUFFERS = STREAM ? 2 : 1;
constexpr int WIDTH = ELEMENTS / THREADS > 2 ? 4 : 2;          // elements that a thread adds up at once
constexpr int AT_ONCE = 4;                                     // parts of a head that are read together
constexpr float SLACK = 8.f;                                   // powers stay below 2 ** 8
static_assert(BLOCK_S % 16 == 0 && D % 64 == 0 && GROUP <= 8 && SHARE % WIDTH == 0, "shapes of the products");

DEVICE uint4 fetched(const u16* p) {
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p));
    return x;
}
DEVICE void prefetch(const u16* p, int bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(p), "r"(bytes) : "memory");
}
DEVICE void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32"
        " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEVICE bool missing(float x) { return __float_as_uint(x) == UNWRITTEN; }
// What a result with this reference counts beside a higher one; nothing where no key was added.
DEVICE float weight(float high, float top) { return high == -INFINITY ? 0.f : power(high - top); }
DEVICE u32 peer(const void* p, int rank) {
    return peer(shared(p), rank);
}
DEVICE void send(u32 at, float2 x) {
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" :: "r"(at), "f"(x.x), "f"(x.y) : "memory");
}
struct __align__(4 * WIDTH) Run { float x[WIDTH]; };           // of neighbouring elements

// Sums of a group's heads: values not yet divided, and for each head its reference and the sum of its powers.
struct __align__(16) Sums { float values[ELEMENTS]; float2 stats[GROUP]; };

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(THREADS, RESIDENT) decode_attention_direct(
    const u16* q_ptr, const u16* k_ptr, const u16* v_ptr, u16* y_ptr, float* partial_ptr, int n_keys, int share,
    int longer, float scale_log2)
{
    extern __shared__ __align__(16) unsigned char memory[];
    Sums* const of_warps = (Sums*)memory;                      // [buffer][warp]
    Sums* const received = of_warps + BUFFERS * WARPS;         // [rank], of which a share of the values
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, row = lane / 4, quad = lane % 4;
    if (PDL == 1) launch_dependents();
    // Waited for before the first store to another program, which must have begun by then.
    if (CLUSTER > 1) cluster_arrive_relaxed();

    // A program's steps are neighbours among those of all heads; it takes the last of them first.
    const int steps = (n_keys + BLOCK_S - 1) / BLOCK_S;
    int head, end, count;                                      // the steps before `end` of a head, and how many in all
    // The first programs of a stream take one step more.
    auto start_of = [&](int program) { return program * share + min(program, longer); };
    if (STREAM) {
        const int last = start_of(blockIdx.x + 1);
        count = last - start_of(blockIdx.x);
        head = (last - 1) / steps;
        end = last - head * steps;
    } else {
        const int rank = blockIdx.x % CLUSTER;
        head = blockIdx.x / CLUSTER;
        end = (int)((i64)(rank + 1) * steps / CLUSTER);
        count = end - (int)((i64)rank * steps / CLUSTER);
    }
    // Of this warp: the step that is in registers or on its way, below zero in a head before, and how many there are.
    int left = count - warp, own_step = end - 1 - warp;

    // A lane's own share of the queries, which no other reads.
    uint4* const q = (uint4*)(received + (CLUSTER > 1 ? CLUSTER : 0)) + warp * PAIRS * 32 + lane;
#pragma unroll
    for (int p = 0; p < PAIRS; ++p)
        if (row >= GROUP) q[p * 32] = make_uint4(0, 0, 0, 0);
    uint4 k[TILES][PAIRS], v[TILES / 2][4][HALVES];
    struct Place { int head, step; };
    auto place = [&]() {
        Place at{head, own_step};
        if (STREAM)
            while (at.step < 0) { at.step += steps; --at.head; }
        return at;
    };
    auto fetch_q = [&]() {
        const u16* const from = q_ptr + ((i64)place().head * GROUP + row) * D + quad * 8;
#pragma unroll
        for (int p = 0; p < PAIRS; ++p)
            if (row < GROUP)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                    :: "r"((u32)__cvta_generic_to_shared(q + p * 32)), "l"(from + p * 32) : "memory");
    };
    auto fetch_k = [&]() {
        const Place at = place();
        const u16* const keys = k_ptr + (i64)at.head * n_keys * D + quad * 8;
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
            const u16* const from = keys + (i64)min(at.step * BLOCK_S + n * 8 + row, n_keys - 1) * D;
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) k[n][p] = fetched(from + p * 32);
        }
    };
    auto fetch_v = [&]() {
        const Place at = place();
        const u16* const values = v_ptr + (i64)at.head * n_keys * D + row * 8;
#pragma unroll
        for (int j = 0; j < TILES / 2; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int key = at.step * BLOCK_S + j * 16 + e / 2 * 8 + quad * 2 + e % 2;
                const u16* const from = values + (i64)min(key, n_keys - 1) * D;
#pragma unroll
                for (int h = 0; h < HALVES; ++h) v[j][e][h] = fetched(from + h * 64);
            }
    };
    // L2 may begin to fetch before the launch ahead of this one ends: what that one still writes, L2 gets as well.
    if (lane == 0 && left > 0) {
        const Place at = place();
        const i64 from = ((i64)at.head * n_keys + at.step * BLOCK_S) * D;
        const int bytes = min(BLOCK_S, n_keys - at.step * BLOCK_S) * D * 2;
        prefetch(k_ptr + from, bytes);
        prefetch(v_ptr + from, bytes);
    }
    // The launch before this one may have written everything.
    wait_for_launch_before();
    if (left > 0) {
        fetch_q();
        fetch_k();
        fetch_v();
    }

    auto stats_of = [&](const Sums* from, int parts, int member) {
        float top = -INFINITY, sum = 0.f;
        for (int w = 0; w < parts; ++w) top = fmaxf(top, from[w].stats[member].x);
        for (int w = 0; w < parts; ++w) sum += weight(from[w].stats[member].x, top) * from[w].stats[member].y;
        return make_float2(top, sum);
    };
    auto values_of = [&](const Sums* from, int parts, int member, int at, float top) {
        Run sum;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum.x[i] = 0.f;
#pragma unroll 8
        for (int w = 0; w < parts; ++w) {
            const float share = weight(from[w].stats[member].x, top);
            const Run part = *(const Run*)(from[w].values + at);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) sum.x[i] += share * part.x[i];
        }
        return sum;
    };
    auto store = [&](int element, Run run, float sum) {
        const float share = 1.f / sum;
#pragma unroll
        for (int i = 0; i < WIDTH; i += 2)
            *(u32*)(y_ptr + (i64)head * ELEMENTS + element + i) = packed(run.x[i] * share, run.x[i + 1] * share);
    };

    int buffer = 0;
    for (; STREAM ? count > 0 : buffer == 0; buffer ^= 1) {
        float acc[4 * HALVES][4], high = -INFINITY, total = 0.f;
#pragma unroll
        for (int i = 0; i < 4 * HALVES; ++i)
#pragma unroll
            for (int c = 0; c < 4; ++c) acc[i][c] = 0.f;
#pragma unroll 1
        while (left > 0 && (!STREAM || own_step >= 0)) {
            // Two chains of products a tile: each waits for the one before it.
            float scores[TILES][4], odd_scores[TILES][4];
#pragma unroll
            for (int n = 0; n < TILES; ++n)
#pragma unroll
                for (int c = 0; c < 4; ++c) scores[n][c] = odd_scores[n][c] = 0.f;
            // Query heads are the rows of this product, of which half stay empty; both operands mix columns alike.
            asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) {
                const uint4 x = q[p * 32];
#pragma unroll
                for (int n = 0; n < TILES; ++n) {
                    mma(scores[n], x.x, 0, x.y, 0, k[n][p].x, k[n][p].y);
                    mma(odd_scores[n], x.z, 0, x.w, 0, k[n][p].z, k[n][p].w);
                }
            }
#pragma unroll
            for (int n = 0; n < TILES; ++n)
#pragma unroll
                for (int c = 0; c < 2; ++c) scores[n][c] += odd_scores[n][c];
            const int at = own_step * BLOCK_S;
            own_step -= WARPS;
            left -= WARPS;
            // The next step's keys, and the queries where it begins another head, take the place of these.
            if (left > 0) {
                if (STREAM && own_step < 0) fetch_q();
                fetch_k();
            }
            if (at + BLOCK_S > n_keys) {
#pragma unroll
                for (int n = 0; n < TILES; ++n)
#pragma unroll
                    for (int c = 0; c < 2; ++c)
                        if (at + n * 8 + quad * 2 + c >= n_keys) scores[n][c] = -INFINITY;
            }
            float top = -INFINITY;
#pragma unroll
            for (int n = 0; n < TILES; ++n) top = fmaxf(top, fmaxf(scores[n][0], scores[n][1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale_log2;
            // A reference a little below the maximum serves as well, and while it stays no sum needs a correction.
            if (__any_sync(~0u, top > high + SLACK)) {
                const float risen = top > high + SLACK ? top : high;
                const float kept = power(high - risen);
                total *= kept;
                high = risen;
                const float even = __shfl_sync(~0u, kept, quad * 8), odd = __shfl_sync(~0u, kept, quad * 8 + 4);
#pragma unroll
                for (int i = 0; i < 4 * HALVES; ++i) {
                    acc[i][0] *= even; acc[i][1] *= odd; acc[i][2] *= even; acc[i][3] *= odd;
                }
            }
            u32 powers[TILES];
#pragma unroll
            for (int n = 0; n < TILES; ++n) {
                const float a = power(fmaf(scores[n][0], scale_log2, -high));
                const float b = power(fmaf(scores[n][1], scale_log2, -high));
                total += a + b;
                powers[n] = packed(a, b);
            }
            // Columns of the values are the rows of this one: two of a word go to two rows, two keys make a word.
#pragma unroll
            for (int j = 0; j < TILES / 2; ++j)
#pragma unroll
                for (int h = 0; h < HALVES; ++h)
#pragma unroll
                    for (int w = 0; w < 4; ++w) {
                        u32 word[4];
#pragma unroll
                        for (int e = 0; e < 4; ++e) word[e] = (&v[j][e][h].x)[w];
                        mma(acc[h * 4 + w], __byte_perm(word[0], word[1], 0x5410),
                            __byte_perm(word[0], word[1], 0x7632), __byte_perm(word[2], word[3], 0x5410),
                            __byte_perm(word[2], word[3], 0x7632), powers[2 * j], powers[2 * j + 1]);
                    }
            if (left > 0) fetch_v();
        }
        if (PDL == 2 && left <= 0) launch_dependents();
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        Sums* const sums = of_warps + buffer * WARPS;
        if (quad == 0 && row < GROUP) sums[warp].stats[row] = make_float2(high, total);
#pragma unroll
        for (int c = 0; c < 2; ++c)
            if (quad * 2 + c < GROUP) {
#pragma unroll
                for (int i = 0; i < 2 * HALVES; ++i)
                    *(float4*)(sums[warp].values + (quad * 2 + c) * D + i / 2 * 64 + row * 8 + i % 2 * 4) =
                        make_float4(acc[2 * i][c], acc[2 * i][c + 2], acc[2 * i + 1][c], acc[2 * i + 1][c + 2]);
            }
        __syncthreads();
        if (CLUSTER > 1) {
            const int rank = blockIdx.x % CLUSTER;
            cluster_wait();
            for (int i = thread; i < GROUP * CLUSTER; i += THREADS)
                send(peer(&received[rank].stats[i % GROUP], i / GROUP), stats_of(sums, WARPS, i % GROUP));
            for (int e = thread * WIDTH; e < ELEMENTS; e += THREADS * WIDTH) {
                const Run run = values_of(sums, WARPS, e / D, e, stats_of(sums, WARPS, e / D).x);
                const u32 to = peer(&received[rank].values[e % SHARE], e / SHARE);
#pragma unroll
                for (int i = 0; i < WIDTH; i += 2) send(to + 4 * i, make_float2(run.x[i], run.x[i + 1]));
            }
            cluster_barrier();
            for (int e = thread * WIDTH; e < SHARE; e += THREADS * WIDTH) {
                const int element = rank * SHARE + e;
                const float2 stats = stats_of(received, CLUSTER, element / D);
                store(element, values_of(received, CLUSTER, element / D, e, stats.x), stats.y);
            }
            break;
        }
        // Of the programs that share a head, the one with its end adds up; the others were done with it first of all.
        const bool ends = end == steps;
        if (STREAM && ends && count < steps) break;
        for (int e = thread * WIDTH; e < ELEMENTS; e += THREADS * WIDTH) {
            const float2 stats = stats_of(sums, WARPS, e / D);
            const Run run = values_of(sums, WARPS, e / D, e, stats.x);
            if (!STREAM || ends) {
                store(e, run, stats.y);
            } else {
                float* const to = partial_ptr + (i64)blockIdx.x * N_FLOATS;
                *(Run*)(to + e) = run;
                if (e % D == 0) *(float2*)(to + ELEMENTS + 2 * (e / D)) = stats;
            }
        }
        count -= end;
        end = steps;
        own_step += steps;
        --head;
    }
    if (!STREAM || count <= 0) return;

    const int begins = head * steps, of_longer = longer * (share + 1);
    const int writer = begins < of_longer ? begins / (share + 1) : longer + (begins - of_longer) / share; // the first
    for (int e = thread * WIDTH; e < ELEMENTS; e += THREADS * WIDTH) {
        const int member = e / D;
        float2 stats = stats_of(of_warps + buffer * WARPS, WARPS, member);
        Run run = values_of(of_warps + buffer * WARPS, WARPS, member, e, stats.x);
        // Several at once, since each comes from far; added in their order.
        for (int w = writer; w < (int)blockIdx.x; w += AT_ONCE) {
            float2 other[AT_ONCE];
            Run part[AT_ONCE];
            bool waiting;
            do {
                waiting = false;
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i) {
                    if (w + i >= (int)blockIdx.x) continue;
                    const volatile float* const from = partial_ptr + (i64)(w + i) * N_FLOATS;
                    other[i] = make_float2(from[ELEMENTS + 2 * member], from[ELEMENTS + 2 * member + 1]);
#pragma unroll
                    for (int j = 0; j < WIDTH; ++j) part[i].x[j] = from[e + j];
                }
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i) {
                    if (w + i >= (int)blockIdx.x) continue;
                    waiting |= missing(other[i].x) || missing(other[i].y);
#pragma unroll
                    for (int j = 0; j < WIDTH; ++j) waiting |= missing(part[i].x[j]);
                }
            } while (waiting);
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                if (w + i >= (int)blockIdx.x) continue;
                float* const from = partial_ptr + (i64)(w + i) * N_FLOATS;
                const float top = fmaxf(stats.x, other[i].x);
                const float a = weight(stats.x, top), b = weight(other[i].x, top);
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) {
                    from[e + j] = __uint_as_float(UNWRITTEN);
                    run.x[j] = a * run.x[j] + b * part[i].x[j];
                }
                stats = make_float2(top, a * stats.y + b * other[i].y);
            }
        }
        store(e, run, stats.y);
    }
    // Ready for the next launch, once every thread has read them.
    __syncthreads();
    for (int i = thread; i < ((int)blockIdx.x - writer) * 2 * GROUP; i += THREADS)
        partial_ptr[(i64)(writer + i / (2 * GROUP)) * N_FLOATS + ELEMENTS + i % (2 * GROUP)] = __uint_as_float(UNWRITTEN);
}

// CUDA C++ for sm_90. Keys and values are loaded from global memory straight to registers for mma.sync: no barrier
// stands between a warp's load and its use, and warps meet only at a head's end. With CLUSTER > 1 the CTAs of a cluster
// split a head's keys and reduce their partial sums in distributed shared memory, which Gluon of triton 3.6 lacks. With
// STREAM_K each CTA takes an equal share of the steps of all heads, and partial sums of a head are reduced through L2.
// A CTA starts with the head that a CTA of a higher number finishes, so it waits only for CTAs of lower numbers.
// LATE_TRIGGER: the next launch may begin (PDL) when the keys are consumed and not at once, so that its CTAs find
// evenly loaded SMs.
#include "hopper.cuh"

constexpr int THREADS = WARPS * 32, TILES = BLOCK_S / 8;       // tiles of 8 keys a step
constexpr int PAIRS = D / 32, HALVES = D / 64;
constexpr int ELEMENTS = GROUP * D, SHARE = ELEMENTS / CLUSTER;
constexpr int N_FLOATS = (ELEMENTS + 2 * GROUP + 3) / 4 * 4;   // partial sums that a CTA leaves for others
constexpr int BUFFERS = STREAM_K ? 2 : 1;
constexpr int WIDTH = ELEMENTS / THREADS > 2 ? 4 : 2;          // elements that a thread reduces at once
constexpr int PARTS_IN_FLIGHT = 4;                             // parts of a head that are loaded together
constexpr float SLACK = 8.f;                                   // exponentials stay below 2 ** 8
static_assert(BLOCK_S % 16 == 0 && D % 64 == 0 && GROUP <= 8 && SHARE % WIDTH == 0, "shapes of the products");

DEVICE uint4 load_streaming(const u16* p) {
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
DEVICE bool is_unwritten(float x) { return __float_as_uint(x) == UNWRITTEN; }
// The factor that refers sums with one reference to a higher one; 0 for sums without keys.
DEVICE float weight(float reference, float top) {
    return reference == -INFINITY ? 0.f : exp2_approx(reference - top);
}
DEVICE u32 peer(const void* p, int rank) {
    return peer(shared(p), rank);
}
DEVICE void send(u32 at, float2 x) {
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" :: "r"(at), "f"(x.x), "f"(x.y) : "memory");
}
struct __align__(4 * WIDTH) Vector { float x[WIDTH]; };        // consecutive elements

// Of a group's heads: sums of weighted values, and for each head its reference and the sum of its exponentials.
struct __align__(16) PartialSums { float values[ELEMENTS]; float2 stats[GROUP]; };

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(THREADS, RESIDENT) decode_attention_cuda(
    const u16* q_ptr, const u16* k_ptr, const u16* v_ptr, u16* y_ptr, float* partial_ptr, int n_keys,
    int steps_per_cta, int remainder, float scale_log2)
{
    extern __shared__ __align__(16) unsigned char memory[];
    PartialSums* const warp_sums = (PartialSums*)memory;        // [buffer][warp]
    PartialSums* const received = warp_sums + BUFFERS * WARPS; // [rank], a share of the values
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, row = lane / 4, quad = lane % 4;
    if (PDL && !LATE_TRIGGER) launch_dependents();
    // Waited for before the first store to another CTA, which must have started by then.
    if (CLUSTER > 1) cluster_arrive_relaxed();

    // A CTA's steps are consecutive among those of all heads; it takes the last of them first.
    const int steps = (n_keys + BLOCK_S - 1) / BLOCK_S;
    // From the step before `end` of `head` downwards, `count` steps in all.
    int head, end, count;
    // The first `remainder` CTAs take one step more.
    auto first_step = [&](int cta) { return cta * steps_per_cta + min(cta, remainder); };
    if (STREAM_K) {
        const int last = first_step(blockIdx.x + 1);
        count = last - first_step(blockIdx.x);
        head = (last - 1) / steps;
        end = last - head * steps;
    } else {
        const int rank = blockIdx.x % CLUSTER;
        head = blockIdx.x / CLUSTER;
        end = (int)((i64)(rank + 1) * steps / CLUSTER);
        count = end - (int)((i64)rank * steps / CLUSTER);
    }
    // This warp's step that is in registers or in flight (below zero: of an earlier head), and its steps left.
    int steps_left = count - warp, own_step = end - 1 - warp;

    // The queries that a lane multiplies; no other lane reads them.
    uint4* const q = (uint4*)(received + (CLUSTER > 1 ? CLUSTER : 0)) + warp * PAIRS * 32 + lane;
    UNROLL for (int p = 0; p < PAIRS; ++p)
        if (row >= GROUP) q[p * 32] = make_uint4(0, 0, 0, 0);
    uint4 k[TILES][PAIRS], v[TILES / 2][4][HALVES];
    struct Position { int head, step; };
    auto position = [&]() {
        Position at{head, own_step};
        if (STREAM_K)
            while (at.step < 0) { at.step += steps; --at.head; }
        return at;
    };
    auto load_q = [&]() {
        const u16* const from = q_ptr + ((i64)position().head * GROUP + row) * D + quad * 8;
        UNROLL for (int p = 0; p < PAIRS; ++p)
            if (row < GROUP)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                    :: "r"((u32)__cvta_generic_to_shared(q + p * 32)), "l"(from + p * 32) : "memory");
    };
    auto load_k = [&]() {
        const Position at = position();
        const u16* const keys = k_ptr + (i64)at.head * n_keys * D + quad * 8;
        UNROLL for (int n = 0; n < TILES; ++n) {
            const u16* const from = keys + (i64)min(at.step * BLOCK_S + n * 8 + row, n_keys - 1) * D;
            UNROLL for (int p = 0; p < PAIRS; ++p) k[n][p] = load_streaming(from + p * 32);
        }
    };
    auto load_v = [&]() {
        const Position at = position();
        const u16* const values = v_ptr + (i64)at.head * n_keys * D + row * 8;
        UNROLL for (int j = 0; j < TILES / 2; ++j)
            UNROLL for (int e = 0; e < 4; ++e) {
                const int key = at.step * BLOCK_S + j * 16 + e / 2 * 8 + quad * 2 + e % 2;
                const u16* const from = values + (i64)min(key, n_keys - 1) * D;
                UNROLL for (int h = 0; h < HALVES; ++h) v[j][e][h] = load_streaming(from + h * 64);
            }
    };
    // Prefetches to L2 may precede the end of the launch before: what it still writes goes to L2 as well.
    if (lane == 0 && steps_left > 0) {
        const Position at = position();
        const i64 from = ((i64)at.head * n_keys + at.step * BLOCK_S) * D;
        const int bytes = min(BLOCK_S, n_keys - at.step * BLOCK_S) * D * 2;
        prefetch(k_ptr + from, bytes);
        prefetch(v_ptr + from, bytes);
    }
    // The launch before this one may have written the operands.
    wait_for_launch_before();
    if (steps_left > 0) {
        load_q();
        load_k();
        load_v();
    }

    auto stats_of = [&](const PartialSums* from, int parts, int member) {
        float top = -INFINITY, sum = 0.f;
        for (int w = 0; w < parts; ++w) top = fmaxf(top, from[w].stats[member].x);
        for (int w = 0; w < parts; ++w) sum += weight(from[w].stats[member].x, top) * from[w].stats[member].y;
        return make_float2(top, sum);
    };
    auto values_of = [&](const PartialSums* from, int parts, int member, int at, float top) {
        Vector sum;
        UNROLL for (int i = 0; i < WIDTH; ++i) sum.x[i] = 0.f;
        UNROLL_8 for (int w = 0; w < parts; ++w) {
            const float share = weight(from[w].stats[member].x, top);
            const Vector part = *(const Vector*)(from[w].values + at);
            UNROLL for (int i = 0; i < WIDTH; ++i) sum.x[i] += share * part.x[i];
        }
        return sum;
    };
    auto store = [&](int element, Vector vector, float sum) {
        const float share = 1.f / sum;
        UNROLL for (int i = 0; i < WIDTH; i += 2)
            *(u32*)(y_ptr + (i64)head * ELEMENTS + element + i) = packed(vector.x[i] * share, vector.x[i + 1] * share);
    };

    int buffer = 0;
    for (; STREAM_K ? count > 0 : buffer == 0; buffer ^= 1) {
        float acc[4 * HALVES][4], reference = -INFINITY, total = 0.f;
        UNROLL for (int i = 0; i < 4 * HALVES; ++i)
            UNROLL for (int c = 0; c < 4; ++c) acc[i][c] = 0.f;
        NO_UNROLL while (steps_left > 0 && (!STREAM_K || own_step >= 0)) {
            // Two chains of dependent products per tile run in parallel.
            float scores[TILES][4], odd_scores[TILES][4];
            UNROLL for (int n = 0; n < TILES; ++n)
                UNROLL for (int c = 0; c < 4; ++c) scores[n][c] = odd_scores[n][c] = 0.f;
            // Query heads are the rows of this product, half of them empty; both operands permute columns alike.
            asm volatile("cp.async.wait_all;" ::: "memory");
            UNROLL for (int p = 0; p < PAIRS; ++p) {
                const uint4 x = q[p * 32];
                UNROLL for (int n = 0; n < TILES; ++n) {
                    mma(scores[n], x.x, 0, x.y, 0, k[n][p].x, k[n][p].y);
                    mma(odd_scores[n], x.z, 0, x.w, 0, k[n][p].z, k[n][p].w);
                }
            }
            UNROLL for (int n = 0; n < TILES; ++n)
                UNROLL for (int c = 0; c < 2; ++c) scores[n][c] += odd_scores[n][c];
            const int at = own_step * BLOCK_S;
            own_step -= WARPS;
            steps_left -= WARPS;
            // The next step's keys, and queries if it belongs to another head, overwrite these.
            if (steps_left > 0) {
                if (STREAM_K && own_step < 0) load_q();
                load_k();
            }
            if (at + BLOCK_S > n_keys) {
                UNROLL for (int n = 0; n < TILES; ++n)
                    UNROLL for (int c = 0; c < 2; ++c)
                        if (at + n * 8 + quad * 2 + c >= n_keys) scores[n][c] = -INFINITY;
            }
            float top = -INFINITY;
            UNROLL for (int n = 0; n < TILES; ++n) top = fmaxf(top, fmaxf(scores[n][0], scores[n][1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale_log2;
            // The reference may be up to SLACK below the maximum; while it stays, no sum needs a correction.
            if (__any_sync(~0u, top > reference + SLACK)) {
                const float new_reference = top > reference + SLACK ? top : reference;
                const float correction = exp2_approx(reference - new_reference);
                total *= correction;
                reference = new_reference;
                const float even = __shfl_sync(~0u, correction, quad * 8);
                const float odd = __shfl_sync(~0u, correction, quad * 8 + 4);
                UNROLL for (int i = 0; i < 4 * HALVES; ++i) {
                    acc[i][0] *= even; acc[i][1] *= odd; acc[i][2] *= even; acc[i][3] *= odd;
                }
            }
            u32 exponentials[TILES];
            UNROLL for (int n = 0; n < TILES; ++n) {
                const float a = exp2_approx(fmaf(scores[n][0], scale_log2, -reference));
                const float b = exp2_approx(fmaf(scores[n][1], scale_log2, -reference));
                total += a + b;
                exponentials[n] = packed(a, b);
            }
            // Columns of the values are the rows of this product: the two of a word go to two rows, and words are
            // assembled from two keys.
            UNROLL for (int j = 0; j < TILES / 2; ++j)
                UNROLL for (int h = 0; h < HALVES; ++h)
                    UNROLL for (int w = 0; w < 4; ++w) {
                        u32 word[4];
                        UNROLL for (int e = 0; e < 4; ++e) word[e] = (&v[j][e][h].x)[w];
                        mma(acc[h * 4 + w], __byte_perm(word[0], word[1], 0x5410),
                            __byte_perm(word[0], word[1], 0x7632), __byte_perm(word[2], word[3], 0x5410),
                            __byte_perm(word[2], word[3], 0x7632), exponentials[2 * j], exponentials[2 * j + 1]);
                    }
            if (steps_left > 0) load_v();
        }
        if (LATE_TRIGGER && steps_left <= 0) launch_dependents();
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        PartialSums* const sums = warp_sums + buffer * WARPS;
        if (quad == 0 && row < GROUP) sums[warp].stats[row] = make_float2(reference, total);
        UNROLL for (int c = 0; c < 2; ++c)
            if (quad * 2 + c < GROUP) {
                UNROLL for (int i = 0; i < 2 * HALVES; ++i)
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
                const Vector vector = values_of(sums, WARPS, e / D, e, stats_of(sums, WARPS, e / D).x);
                const u32 to = peer(&received[rank].values[e % SHARE], e / SHARE);
                UNROLL for (int i = 0; i < WIDTH; i += 2) send(to + 4 * i, make_float2(vector.x[i], vector.x[i + 1]));
            }
            cluster_barrier();
            for (int e = thread * WIDTH; e < SHARE; e += THREADS * WIDTH) {
                const int element = rank * SHARE + e;
                const float2 stats = stats_of(received, CLUSTER, element / D);
                store(element, values_of(received, CLUSTER, element / D, e, stats.x), stats.y);
            }
            break;
        }
        // Of the CTAs that share a head, the one with its last step reduces; the others processed it first.
        const bool ends = end == steps;
        if (STREAM_K && ends && count < steps) break;
        for (int e = thread * WIDTH; e < ELEMENTS; e += THREADS * WIDTH) {
            const float2 stats = stats_of(sums, WARPS, e / D);
            const Vector vector = values_of(sums, WARPS, e / D, e, stats.x);
            if (!STREAM_K || ends) {
                store(e, vector, stats.y);
            } else {
                float* const to = partial_ptr + (i64)blockIdx.x * N_FLOATS;
                *(Vector*)(to + e) = vector;
                if (e % D == 0) *(float2*)(to + ELEMENTS + 2 * (e / D)) = stats;
            }
        }
        count -= end;
        end = steps;
        own_step += steps;
        --head;
    }
    if (!STREAM_K || count <= 0) return;

    // The first CTA with steps of this head.
    const int start = head * steps, longer = remainder * (steps_per_cta + 1);
    const int writer = start < longer ? start / (steps_per_cta + 1) : remainder + (start - longer) / steps_per_cta;
    for (int e = thread * WIDTH; e < ELEMENTS; e += THREADS * WIDTH) {
        const int member = e / D;
        float2 stats = stats_of(warp_sums + buffer * WARPS, WARPS, member);
        Vector vector = values_of(warp_sums + buffer * WARPS, WARPS, member, e, stats.x);
        // Several loads in flight hide the latency of L2; the sums are added in their order.
        for (int w = writer; w < (int)blockIdx.x; w += PARTS_IN_FLIGHT) {
            float2 other[PARTS_IN_FLIGHT];
            Vector part[PARTS_IN_FLIGHT];
            bool waiting;
            do {
                waiting = false;
                UNROLL for (int i = 0; i < PARTS_IN_FLIGHT; ++i) {
                    if (w + i >= (int)blockIdx.x) continue;
                    const volatile float* const from = partial_ptr + (i64)(w + i) * N_FLOATS;
                    other[i] = make_float2(from[ELEMENTS + 2 * member], from[ELEMENTS + 2 * member + 1]);
                    UNROLL for (int j = 0; j < WIDTH; ++j) part[i].x[j] = from[e + j];
                }
                UNROLL for (int i = 0; i < PARTS_IN_FLIGHT; ++i) {
                    if (w + i >= (int)blockIdx.x) continue;
                    waiting |= is_unwritten(other[i].x) || is_unwritten(other[i].y);
                    UNROLL for (int j = 0; j < WIDTH; ++j) waiting |= is_unwritten(part[i].x[j]);
                }
            } while (waiting);
            UNROLL for (int i = 0; i < PARTS_IN_FLIGHT; ++i) {
                if (w + i >= (int)blockIdx.x) continue;
                float* const from = partial_ptr + (i64)(w + i) * N_FLOATS;
                const float top = fmaxf(stats.x, other[i].x);
                const float a = weight(stats.x, top), b = weight(other[i].x, top);
                UNROLL for (int j = 0; j < WIDTH; ++j) {
                    from[e + j] = __uint_as_float(UNWRITTEN);
                    vector.x[j] = a * vector.x[j] + b * part[i].x[j];
                }
                stats = make_float2(top, a * stats.y + b * other[i].y);
            }
        }
        store(e, vector, stats.y);
    }
    // The next launch needs them unwritten; every thread has read them after the barrier.
    __syncthreads();
    for (int i = thread; i < ((int)blockIdx.x - writer) * 2 * GROUP; i += THREADS)
        partial_ptr[(i64)(writer + i / (2 * GROUP)) * N_FLOATS + ELEMENTS + i % (2 * GROUP)] =
            __uint_as_float(UNWRITTEN);
}

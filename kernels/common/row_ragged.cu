// Row kernels whose rows start anywhere and lie in the registers of a cluster: one read and one write of global memory.
//
// A CTA has a part of PART vectors of 16 bytes, aligned in memory, of those in which the row lies: the first and the
// last also hold elements of the rows beside it, which count as nothing and are not written. Scales wait in shared
// memory, where those of a vector lie in two.
//
// OP: 0 rmsnorm, 1 softmax, 2 layernorm. N_COLS: columns, no whole vectors. ELEMENT: bytes of one, 2 (BF16: bf16 or
// fp16) or 4. CLUSTER, THREADS: CTAs of a cluster, threads of a CTA.
#include "rows.cuh"

// Elements by which rows start after a vector are multiples of STEP. VECTORS: that a row touches, at most.
constexpr int STEP = N_COLS % 4 == 0 && VECTOR == 8 ? 4 : N_COLS % 2 == 0 ? 2 : 1;
constexpr int VECTORS = (N_COLS + 2 * VECTOR - STEP - 1) / VECTOR;
constexpr int PART = (VECTORS + CLUSTER - 1) / CLUSTER, HELD = (PART + THREADS - 1) / THREADS;
constexpr int SCALES = OP == 1 ? 0 : OP == 0 ? 1 : 2;
// Of shared memory: partial results of 8 bytes, an mbarrier of each reduction, and scales from the vector before the
// part on.
constexpr u32 BARRIERS_AT = 8 * REDUCTIONS * PARTIALS, SCALES_AT = (BARRIERS_AT + 8 * REDUCTIONS + 15) / 16 * 16;
#if ELEMENT == 4
typedef u32 Element;
constexpr u32 LOWEST = 0xff800000u;
#else
typedef u16 Element;
constexpr u32 LOWEST = BF16 ? 0xff80u : 0xfc00u;
#endif
// The bits of an element that counts as nothing, and of a word of them.
constexpr u32 NONE = OP == 1 ? LOWEST : 0, NONES = ELEMENT == 4 ? NONE : NONE << 16 | NONE;

DEVICE void copy_vector(u32 to, const uint4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Where a row lies: its first vector, elements of that before the row, vectors.
struct Row {
    i64 at;
    int lead, count;
    DEVICE explicit Row(int row) {
        const i64 start = (i64)row * N_COLS;
        at = start / VECTOR;
        lead = (int)(start % VECTOR);
        count = (lead + N_COLS + VECTOR - 1) / VECTOR;
    }
    // Whether an element of a vector belongs to the row, and whether all do.
    DEVICE bool holds(int vector, int j) const { return (u32)(vector * VECTOR + j - lead) < (u32)N_COLS; }
    DEVICE bool whole(int vector) const { return holds(vector, 0) && holds(vector, VECTOR - 1); }
};

DEVICE void set_element(u32 (&words)[4], int j, u32 bits) {
    if (ELEMENT == 4) words[j] = bits;
    else words[j / 2] = j % 2 ? (words[j / 2] & 0xffff) | bits << 16 : (words[j / 2] & 0xffff0000u) | bits;
}
// A vector of a row, without elements of other rows. behind: where x ends within it, its elements are not read yet.
DEVICE uint4 own_elements(uint4 raw, const Row& row, int vector, const Element* behind) {
    u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
    UNROLL for (int j = 0; j < VECTOR; ++j) {
        if (!row.holds(vector, j)) set_element(words, j, NONE);
        else if (behind) set_element(words, j, __ldg(behind + j));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}
DEVICE void store_vector(uint4* y, const Row& row, int vector, uint4 raw) {
    uint4* const to = y + row.at + vector;
    if (row.whole(vector)) {
        __stcg(to, raw);
        return;
    }
    const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
    UNROLL for (int j = 0; j < VECTOR; j += STEP) {
        if (!row.holds(vector, j)) continue;
        // As many elements as rows begin and end with together.
        const u32* const word = words + j * ELEMENT / 4;
        if (STEP * ELEMENT == 8) __stcg((uint2*)to + j / STEP, make_uint2(word[0], word[STEP * ELEMENT == 8]));
        else if (STEP * ELEMENT == 4) __stcg((u32*)to + j / STEP, word[0]);
        else __stcg((u16*)to + j, (u16)(word[0] >> 16 * (j % 2)));
    }
}
// Scales of the columns of a vector. from: of the vector before them.
DEVICE uint4 load_scales(u32 from, const Row& row) {
    u32 w[8];
    load_words(w, from);
    load_words(w + 4, from + 16);
    // The first is the one before which VECTOR - lead lie: shifted by vectors, by two words, a word, half a word.
    const int apart = (VECTOR - row.lead) * ELEMENT;
    UNROLL for (int i = 0; i < 4; ++i) w[i] = apart == 16 ? w[i + 4] : w[i];
    UNROLL for (int i = 0; i < 6; ++i) w[i] = apart & 8 ? w[i + 2] : w[i];
    if (STEP * ELEMENT < 8) UNROLL for (int i = 0; i < 5; ++i) w[i] = apart & 4 ? w[i + 1] : w[i];
    if (STEP * ELEMENT < 4) UNROLL for (int i = 0; i < 4; ++i) w[i] = __funnelshift_r(w[i], w[i + 1], apart % 4 * 8);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

#if OP == 2
#define SCALE(s) (s ? bias : gain)
#else
#define SCALE(s) gain
#endif

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
row_ragged_kernel(const uint4* __restrict__ x,
#if OP != 1
    const uint4* __restrict__ gain,
#endif
#if OP == 2
    const uint4* __restrict__ bias,
#endif
    uint4* __restrict__ y, int n_rows, float eps)
{
    extern __shared__ __align__(16) unsigned char memory[];
    const int thread = threadIdx.x, rank = blockIdx.x % CLUSTER;
    const Row row(blockIdx.x / CLUSTER);
    const int first = rank * PART + thread, end = min(row.count, (rank + 1) * PART);
    const float2* const partials = (const float2*)memory;
    const u32 bars = shared(memory) + BARRIERS_AT, scales = shared(memory) + SCALES_AT;
    launch_dependents();
    if (thread == 0) {
        UNROLL for (int i = 0; i < REDUCTIONS; ++i) init(bars + 8 * i, 1);
        fence_barrier_init();
        UNROLL for (int i = 0; i < REDUCTIONS; ++i) expect(bars + 8 * i, 8 * PARTIALS);
    }
    __syncwarp();
    cluster_arrive_relaxed();
    wait_for_launch_before();
    // All loads of x are in flight before anything waits for one.
    const i64 n_whole = (i64)n_rows * N_COLS / VECTOR;
    uint4 raw[HELD];
    UNROLL for (int i = 0; i < HELD; ++i) {
        const int vector = first + i * THREADS;
        raw[i] = make_uint4(NONES, NONES, NONES, NONES);
        if (vector < end && row.at + vector < n_whole) raw[i] = __ldg(x + row.at + vector);
    }
#if OP != 1
    UNROLL for (int s = 0; s < SCALES; ++s)
        NO_UNROLL for (int i = thread; i <= PART; i += THREADS) {
            const int vector = rank * PART + i - 1, left = vector < 0 ? 0 : N_COLS - vector * VECTOR;
            const u32 at = (s * (PART + 1) + i) * 16;
            if (left >= VECTOR) {
                copy_vector(scales + at, SCALE(s) + vector);
                continue;
            }
            // The last elements by themselves: to copy a part of a vector is to name all of it.
            UNROLL for (int j = 0; j < VECTOR - 1; ++j)
                if (j < left)
                    ((Element*)(memory + SCALES_AT + at))[j] = __ldg((const Element*)(SCALE(s) + vector) + j);
        }
#endif
    UNROLL for (int i = 0; i < HELD; ++i) {
        const int vector = first + i * THREADS;
        if (vector < end && !row.whole(vector))
            raw[i] = own_elements(raw[i], row, vector,
                row.at + vector < n_whole ? 0 : (const Element*)(x + row.at + vector));
    }
    __syncwarp();
    // The mbarriers of all CTAs of the cluster are there before a partial result is sent to them.
    cluster_wait();

    float2 sum = make_float2(NOTHING, 0.0f);
#if OP == 1
    UNROLL for (int i = 0; i < HELD; ++i) {
        float v[VECTOR];
        widen(v, raw[i]);
        UNROLL for (int j = 0; j < VECTOR; ++j) sum.x = fmaxf(sum.x, v[j]);
    }
    const float to = reference(sum.x);
    UNROLL for (int i = 0; i < HELD; ++i) {
        float v[VECTOR];
        widen(v, raw[i]);
        UNROLL for (int j = 0; j < VECTOR; ++j) sum.y += exp_of(v[j] - to);
    }
#else
    UNROLL for (int i = 0; i < HELD; ++i) {
        float v[VECTOR];
        widen(v, raw[i]);
        UNROLL for (int j = 0; j < VECTOR; ++j) sum.x += OP == 0 ? v[j] * v[j] : v[j];
    }
#endif
    if (SCALES > 0) {
        wait_for_copies();
        __syncthreads();
    }
    sum = combine_cluster(sum, partials, bars, thread, rank);
#if OP == 1
    const float highest = reference(sum.x);
    // Dividing by the sum is taking its logarithm from the exponent.
    const float log_sum = __log2f(sum.y);
#elif OP == 2
    const float mean = sum.x * (1.0f / N_COLS);
    sum = make_float2(0.0f, 0.0f);
    UNROLL for (int i = 0; i < HELD; ++i) {
        float v[VECTOR];
        widen(v, raw[i]);
        UNROLL for (int j = 0; j < VECTOR; ++j) {
            const float apart = v[j] - mean;
            if (first + i * THREADS < end && row.holds(first + i * THREADS, j)) sum.x += apart * apart;
        }
    }
    sum = combine_cluster(sum, partials + PARTIALS, bars + 8, thread, rank);
#endif
#if OP != 1
    const float rstd = rsqrtf(sum.x * (1.0f / N_COLS) + eps);
#endif
    UNROLL for (int i = 0; i < HELD; ++i) {
        const int vector = first + i * THREADS;
        if (vector >= end) break;
        float v[VECTOR];
        widen(v, raw[i]);
#if OP != 1
        float g[VECTOR];
        widen(g, load_scales(scales + (thread + i * THREADS) * 16, row));
#endif
#if OP == 2
        float b[VECTOR];
        widen(b, load_scales(scales + (PART + 1 + thread + i * THREADS) * 16, row));
#endif
        UNROLL for (int j = 0; j < VECTOR; ++j) {
#if OP == 0
            v[j] = v[j] * rstd * g[j];
#elif OP == 1
            v[j] = exp2_approx(fmaf(v[j] - highest, LOG2_E, -log_sum));
#else
            v[j] = (v[j] - mean) * rstd * g[j] + b[j];
#endif
        }
        store_vector(y, row, vector, narrow(v));
    }
}

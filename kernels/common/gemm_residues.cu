// C (n_rows, n_cols) = A (n_rows, n_inner) times B (n_inner, n_cols) for few tiles, all row-major and of 16 bits, by TMA
// and wgmma without a copy of B, whatever its row pitch.
//
// Rows of B that lie CLASSES apart begin equally late in a vector of 16 bytes, and their pitch is a multiple of 16
// bytes. So each class, the rows with one residue modulo CLASSES, has a tensor map of its own, which begins at the
// vector in which its first row begins: up to 7 elements early. The columns of A lie class by class (gather_rows).
//
// A tile has tile_rows rows, at most BLOCK_M; the last begins early rather than end outside of A. A CTA has BLOCK_N
// columns that it loads, of which the first TILE are its own. One warp loads; each warpgroup multiplies 64 columns of B by
// all rows of the tile (swap-AB). At the end of a class it adds its sums to those in shared memory, as many
// columns earlier as the class begins late; the sums of a single class lie where the stages were. The SPLIT CTAs of a
// cluster divide the steps of all classes; each adds up a share of the sums of all, in the same order.
//
// GATHERED: 1 where gather_rows has written A. BIAS_RELU: 1 where the result is max(0, sum + bias).
#include "hopper.cuh"
#include "wgmma.h"

constexpr int GROUPS = BLOCK_N / 64, CONSUMERS = 4 * GROUPS, MULTIPLYING = 32 * CONSUMERS, THREADS = MULTIPLYING + 32;
constexpr int BLOCK_K = 64, CHUNKS = 4, ACC = BLOCK_M / 2, TILE = CLASSES > 1 ? BLOCK_N - 8 : BLOCK_N;
// Of a row of sums, in floats: the banks of four pairs of rows differ.
constexpr int SUMS = BLOCK_N + 4;
constexpr u32 B_BYTES = BLOCK_N * 128, STAGE_BYTES = B_BYTES + BLOCK_M * 128, RING_BYTES = STAGES * STAGE_BYTES;
constexpr u32 SUMS_AT = CLASSES > 1 ? RING_BYTES : 0, SUMS_END = SUMS_AT + BLOCK_M * SUMS * 4;
constexpr u32 BARRIERS_AT = SUMS_END > RING_BYTES ? SUMS_END : RING_BYTES;

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#define barrier_of_all cluster_barrier
#else
#define CLUSTER
#define barrier_of_all __syncthreads
#endif
#if BIAS_RELU
#define BIAS const u16* bias,
#else
#define BIAS
#endif

struct Maps { TensorMap of[CLASSES]; };

// Four neighbours.
DEVICE void load_sums(float (&v)[4], u32 from, int rank) {
    if (SPLIT > 1) asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(peer(from, rank)) : "memory");
    else asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory");
}
// Of all warps that multiply.
DEVICE void multiplying_barrier() { asm volatile("bar.sync 1, %0;" :: "n"(MULTIPLYING) : "memory"); }

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, 1) gemm_residues(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ Maps b_maps, BIAS u16* c,
    int n_rows, int n_cols, int steps_of_class, int tile_rows)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), rank = blockIdx.x % SPLIT;
    // Tiles of the same columns of B come one after the other, so that these are in L2.
    const int tiles_m = (n_rows + tile_rows - 1) / tile_rows, tile = blockIdx.x / SPLIT;
    const int own_row = tile % tiles_m * tile_rows, row = min(own_row, n_rows - tile_rows);
    const int col = tile / tiles_m * TILE, steps = CLASSES * steps_of_class;
    const int first = steps * rank / SPLIT, last = steps * (rank + 1) / SPLIT;
    auto full = [&](int s) { return ring + BARRIERS_AT + s * 16; };
    auto empty = [&](int s) { return ring + BARRIERS_AT + s * 16 + 8; };
    launch_dependents();
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) { init(full(s), 1); init(empty(s), CONSUMERS); }
        fence_barrier_init();
    }
    __syncthreads();
    float* const sums = (float*)(memory + SUMS_AT);

    if (warp == CONSUMERS) {
        if (elected()) {
            auto load_b = [&](int i, int s) {
                const int of_class = i / steps_of_class, inner = (i - of_class * steps_of_class) * BLOCK_K;
                expect(full(s), B_BYTES + tile_rows * 128);
                UNROLL for (int o = 0; o < GROUPS; ++o)
                    load(ring + s * STAGE_BYTES + o * 8192, &b_maps.of[of_class], col + o * 64, inner, full(s));
            };
            auto load_a = [&](int i, int s) {
                load(ring + s * STAGE_BYTES + B_BYTES, &a_map, i * BLOCK_K, row, full(s));
            };
            // gather_rows began after the launch before it had ended, so that only A may not be there yet.
            if (!GATHERED) wait_for_launch_before();
            const int ahead = min(last - first, STAGES);
            NO_UNROLL for (int i = 0; i < ahead; ++i) load_b(first + i, i);
            if (GATHERED) wait_for_launch_before();
            NO_UNROLL for (int i = 0; i < ahead; ++i) load_a(first + i, i);
            int s = 0, phase = 0;
            NO_UNROLL for (int i = first + STAGES; i < last; ++i) {
                wait(empty(s), phase);
                load_b(i, s);
                load_a(i, s);
                if (++s == STAGES) { s = 0; phase ^= 1; }
            }
        }
        __syncwarp();
    } else {
        const int group = warp / 4, lane = threadIdx.x % 32;
        // A single class has sums to store, unless it has no step.
        if (CLASSES > 1 || first == last)
            for (int e = threadIdx.x; e < BLOCK_M * SUMS; e += MULTIPLYING) sums[e] = 0.f;
        // The sums of a thread: of two columns, 8 apart, of two rows in each 8.
        const int column = warp * 16 + lane / 4;
        int s = 0, phase = 0, of_class = first / steps_of_class;
        NO_UNROLL for (int i = first; i < last; ++of_class) {
            const int end = min(last, (of_class + 1) * steps_of_class);
            float acc[ACC];
            int before = 0;
            NO_UNROLL for (int begin = i; i < end; ++i) {
                const u32 at = uniform((ring & 0x3ffff) + s * STAGE_BYTES);
                wait(full(s), phase);
                const u64 a = K_MAJOR | (at + B_BYTES) >> 4, b = MN_MAJOR | (at + group * 8192) >> 4;
                fence_products();
                UNROLL for (int k = 0; k < CHUNKS; ++k)
                    mma(acc, b + k * (2048 >> 4), a + k * (32 >> 4), k > 0 || i > begin);
                commit_products();
                // The products of the step before are done; those of this one are in flight.
                wait_products<1>();
                if (i > begin && lane == 0) arrive(empty(before));
                before = s;
                if (++s == STAGES) { s = 0; phase ^= 1; }
            }
            wait_products<0>();
            pin(acc);
            if (lane == 0) arrive(empty(before));
            // All have added the sums of the class before: warpgroups' columns then overlap no more. All have read the
            // last stage, where the sums of a single class may lie.
            multiplying_barrier();
            const int late = (int)((u32)of_class * (u32)n_cols % 8);
            UNROLL for (int j = 0; j < ACC; ++j) {
                const int to = column + j / 2 % 2 * 8 - (CLASSES > 1 ? late : 0);
                const int of_tile = j / 4 * 8 + lane % 4 * 2 + j % 2;
                float& sum = sums[of_tile * SUMS + max(to, 0)];
                if (to >= 0) sum = CLASSES > 1 ? sum + acc[j] : acc[j];
            }
        }
    }
    barrier_of_all();
    // Four columns at a time, of the rows that are no other tile's.
    constexpr int FOURS = TILE / 4;
    const int skipped = own_row - row;
    for (int e = rank * THREADS + threadIdx.x; e < (tile_rows - skipped) * FOURS; e += SPLIT * THREADS) {
        const int m = skipped + e / FOURS, n = e % FOURS * 4, to = col + n;
        if (to >= n_cols) continue;
        float sum[4] = {0.f, 0.f, 0.f, 0.f};
        UNROLL for (int r = 0; r < SPLIT; ++r) {
            float part[4];
            load_sums(part, ring + SUMS_AT + 4 * (m * SUMS + n), r);
            UNROLL for (int i = 0; i < 4; ++i) sum[i] += part[i];
        }
#if BIAS_RELU
        UNROLL for (int i = 0; i < 4; ++i) {
            if (to + i < n_cols) sum[i] += low(bias[to + i]);
            // Not a maximum, which would turn NaN into 0.
            sum[i] = sum[i] < 0.f ? 0.f : sum[i];
        }
#endif
        u16* const place = c + ((i64)(row + m) * n_cols + to);
        UNROLL for (int i = 0; i < 4 && to + i < n_cols; i += 2) {
            const u32 two = packed(sum[i], sum[i + 1]);
            if (n_cols % 2 == 0) *(u32*)(place + i) = two;
            else {
                place[i] = (u16)two;
                if (to + i + 1 < n_cols) place[i + 1] = (u16)(two >> 16);
            }
        }
    }
    // The other CTAs may still read the sums of this one.
    if (SPLIT > 1) cluster_barrier();
}

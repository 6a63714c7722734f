// CUDA C++ for sm_90: attention over whole sequences with rows of up to 64 columns. A CTA takes 192 queries of a head
// at a time; of its four warpgroups three hold 64 queries each and one loads. Three warps share the exponential unit of
// an SM's quarter, so that two compute a softmax while the products of the third run (FlashAttention-3, arXiv
// 2407.08608, section 3, has two, which alternate; three are no faster for it). Macros: BF16; CAUSAL; STAGES of the
// pipelines of keys and of values, in tiles of 128.
#include "hopper.cuh"
#include "wgmma.h"

constexpr int GROUPS = 3, ROWS = 64, BLOCK_M = GROUPS * ROWS, BLOCK_N = 128, WARPS = 4 * GROUPS;
constexpr u32 Q_BYTES = BLOCK_M * 128, TILE = BLOCK_N * 128, STEP = 16 * 128;
// Each product with values has 8 more columns, of ones: they add up the exponentials as they were rounded. A product
// reads a step of 16 keys, so one step of ones is enough.
constexpr u32 K_AT = 2 * Q_BYTES, V_AT = K_AT + STAGES * TILE, ONES_AT = V_AT + STAGES * TILE;
// The blocks of queries, 8 bytes each, and the addresses of mbarriers; of a pipeline, that of the first stage.
constexpr u32 BLOCKS_AT = ONES_AT + STEP, Q_FULL = BLOCKS_AT + 16, Q_EMPTY = Q_FULL + 16, K_FULL = Q_EMPTY + 16,
    K_EMPTY = K_FULL + 8 * STAGES, V_FULL = K_EMPTY + 8 * STAGES, V_EMPTY = V_FULL + 8 * STAGES;
// A descriptor of values has in bits 16 to 29 how far behind them the ones lie: less with each step.
constexpr u64 OF_VALUES = MN_MAJOR & ~((u64)0x3fff << 16);
constexpr i64 NEXT_STEP = (STEP >> 4) - (i64)(STEP >> 4 << 16);

// Of a tensor of three dimensions.
DEVICE void load(u32 to, const TensorMap* map, int inner, int middle, int outer, u32 bar) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4}], [%5];"
        :: "r"(to), "l"(map), "r"(inner), "r"(middle), "r"(outer), "r"(bar) : "memory");
}
DEVICE void store(const TensorMap* map, int inner, int middle, int outer, u32 from) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];"
        :: "l"(map), "r"(inner), "r"(middle), "r"(outer), "r"(from) : "memory");
}
DEVICE void store_word(u32 to, u32 v) { asm volatile("st.shared.u32 [%0], %1;" :: "r"(to), "r"(v) : "memory"); }

// A stage of a pipeline and the parity of the phase in which it is used.
struct Stage {
    int at = 0, phase = 0;
    DEVICE void advance() {
        if (++at == STAGES) { at = 0; phase ^= 1; }
    }
};

// Tiles of keys that queries of a block, from `row` up to `end`, see.
DEVICE int tiles_of_keys(int end, int n_rows) {
    return ((CAUSAL ? min(end, n_rows) : n_rows) + BLOCK_N - 1) / BLOCK_N;
}

DEVICE void load_tiles(const TensorMap* q_map, const TensorMap* k_map, const TensorMap* v_map, int* fetched_ptr,
    u32 ring, int n_rows, int n_heads, int group, int section)
{
    const int blocks = (n_rows + BLOCK_M - 1) / BLOCK_M, total = blocks * n_heads;
    Stage k, v;
    auto load_tile = [&](Stage& stage, u32 tiles, u32 full, u32 empty, const TensorMap* map, int row, int head) {
        wait(ring + empty + stage.at * 8, stage.phase ^ 1);
        expect(ring + full + stage.at * 8, TILE);
        load(ring + tiles + stage.at * TILE, map, 0, row, head, ring + full + stage.at * 8);
        stage.advance();
    };
    int index = block_id(), turn = 0;
    while (index < total) {
        // The heads of a section keep their keys and values in L2; the last queries, which see most, come first.
        const int first = index / (section * blocks) * section, width = min(section, n_heads - first);
        const int inside = index - first * blocks;
        const int head = first + (CAUSAL ? inside % width : inside / blocks);
        const int row = (CAUSAL ? blocks - 1 - inside / width : inside % blocks) * BLOCK_M;
        const u32 slot = turn % 2;
        wait(ring + Q_EMPTY + slot * 8, (turn / 2 & 1) ^ 1);
        store_word(ring + BLOCKS_AT + slot * 8, head);
        store_word(ring + BLOCKS_AT + slot * 8 + 4, row);
        expect(ring + Q_FULL + slot * 8, Q_BYTES);
        load(ring + slot * Q_BYTES, q_map, 0, row, head, ring + Q_FULL + slot * 8);
        const int kv_head = head / group, steps = tiles_of_keys(row + BLOCK_M, n_rows);
        // From the last tile, which may need a mask, to the first; in the order in which tiles are used.
        for (int i = steps - 1; i >= 0; --i) {
            load_tile(k, K_AT, K_FULL, K_EMPTY, k_map, i * BLOCK_N, kv_head);
            if (i + 1 < steps) load_tile(v, V_AT, V_FULL, V_EMPTY, v_map, (i + 1) * BLOCK_N, kv_head);
        }
        load_tile(v, V_AT, V_FULL, V_EMPTY, v_map, 0, kv_head);
        ++turn;
        const int fetched = atomicAdd(fetched_ptr, 1);
        index = gridDim.x + fetched;
        // Nobody fetches after the last: ready for the next launch.
        if (fetched == total - 1) *fetched_ptr = 0;
    }
    const u32 slot = turn % 2;
    wait(ring + Q_EMPTY + slot * 8, (turn / 2 & 1) ^ 1);
    store_word(ring + BLOCKS_AT + slot * 8, ~0u);
    arrive(ring + Q_FULL + slot * 8);
}

DEVICE void attend(const TensorMap* y_map, u32 ring, int group, int n_rows, float scale) {
    const u32 lane = thread_id() % 32, warp = thread_id() / 32 % 4;
    Stage k, v;
    int turn = 0;
    float s[64], o[36], reference[2], correction[2];
    u32 p[32];
    auto release = [&](u32 empty, Stage& stage) {
        if (lane == 0) arrive(ring + empty + stage.at * 8);
        stage.advance();
    };
    auto multiply_keys = [&]() {
        const u64 queries = K_MAJOR | uniform((ring & 0x3ffff) + turn % 2 * Q_BYTES + group * (ROWS * 128)) >> 4;
        const u64 keys = K_MAJOR | uniform((ring & 0x3ffff) + K_AT + k.at * TILE) >> 4;
        fence_products();
        UNROLL for (int i = 0; i < 4; ++i) score(s, queries + i * (32 >> 4), keys + i * (32 >> 4), i > 0);
        commit_products();
    };
    auto multiply_values = [&]() {
        const u32 at = uniform(v.at * TILE);
        const u64 values = OF_VALUES | ONES_AT - V_AT - at >> 4 << 16 | (ring & 0x3ffff) + V_AT + at >> 4;
        fence_products();
        UNROLL for (int i = 0; i < BLOCK_N / 16; ++i) accumulate(o, p + 4 * i, values + i * NEXT_STEP, 1);
        commit_products();
    };
    // Exponentials take the place of the scores. The scale is positive, so it may follow the maximum. The reference is
    // the maximum so far, whose exponential of 1 is exact in 16 bits: one below it would spare corrections and come
    // near the tolerance (docs/notes/attention.md). A thread has row lane / 4 and the eighth after it.
    auto exponentials = [&]() {
        UNROLL for (int h = 0; h < 2; ++h) {
            float top = fmaxf(s[2 * h], s[2 * h + 1]);
            UNROLL for (int j = 1; j < 16; ++j) top = fmaxf(top, fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale;
            const float new_reference = fmaxf(top, reference[h]);
            correction[h] = exp2_approx(reference[h] - new_reference);
            reference[h] = new_reference;
        }
        UNROLL for (int i = 0; i < 64; ++i) s[i] = exp2_approx(fmaf(s[i], scale, -reference[i / 2 % 2]));
    };
    auto round_exponentials = [&]() {
        UNROLL for (int i = 0; i < 32; ++i) p[i] = packed(s[2 * i], s[2 * i + 1]);
    };

    for (;; ++turn) {
        const u32 slot = turn % 2;
        wait(ring + Q_FULL + slot * 8, turn / 2 & 1);
        const int head = load_word(ring + BLOCKS_AT + slot * 8), row = load_word(ring + BLOCKS_AT + slot * 8 + 4);
        if (head < 0) break;
        const int own_row = row + group * ROWS, steps = tiles_of_keys(row + BLOCK_M, n_rows);
        const int own_steps = own_row < n_rows ? tiles_of_keys(own_row + ROWS, n_rows) : 0;
        // Tiles of which these queries see nothing; a stage is released in its turn only.
        for (int i = own_steps; i < steps; ++i) {
            wait(ring + K_FULL + k.at * 8, k.phase);
            release(K_EMPTY, k);
            wait(ring + V_FULL + v.at * 8, v.phase);
            release(V_EMPTY, v);
        }
        const u32 own_queries = ring + slot * Q_BYTES + group * (ROWS * 128) + warp * 2048;
        if (own_steps > 0) {
            UNROLL for (int h = 0; h < 2; ++h) reference[h] = -INFINITY;
            UNROLL for (int i = 0; i < 36; ++i) o[i] = 0.f;
            // Zeros written any later would stand among products in flight.
            pin(o);
            wait(ring + K_FULL + k.at * 8, k.phase);
            multiply_keys();
            wait_products<0>();
            pin(s);
            release(K_EMPTY, k);
            const int first = (own_steps - 1) * BLOCK_N + lane % 4 * 2, own = own_row + warp * 16 + lane / 4;
            if (CAUSAL || own_steps * BLOCK_N > n_rows) {
                UNROLL for (int i = 0; i < 64; ++i) {
                    const int last = (CAUSAL ? min(own + i / 2 % 2 * 8, n_rows - 1) : n_rows - 1) - first;
                    if (i / 4 * 8 + i % 2 > last) s[i] = -INFINITY;
                }
            }
            exponentials();
            round_exponentials();
            NO_UNROLL for (int i = 1; i < own_steps; ++i) {
                wait(ring + K_FULL + k.at * 8, k.phase);
                multiply_keys();
                wait(ring + V_FULL + v.at * 8, v.phase);
                multiply_values();
                // The product with the keys is done; that with the values runs beside the softmax.
                wait_products<1>();
                pin(s);
                release(K_EMPTY, k);
                exponentials();
                wait_products<0>();
                pin(o);
                pin(p);
                release(V_EMPTY, v);
                if (__any_sync(~0u, fminf(correction[0], correction[1]) < 1.f)) {
                    UNROLL for (int i = 0; i < 36; ++i) o[i] *= correction[i / 2 % 2];
                }
                round_exponentials();
            }
            wait(ring + V_FULL + v.at * 8, v.phase);
            multiply_values();
            wait_products<0>();
            pin(o);
            pin(p);
            release(V_EMPTY, v);
            // To 1 ulp: a division would call a function.
            float inverse[2];
            UNROLL for (int h = 0; h < 2; ++h)
                asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse[h]) : "f"(o[32 + 2 * h]));
            // All four warps have multiplied these queries: their buffer carries the result out.
            group_barrier(group);
            const u32 to = own_queries + lane % 16 * 128 + (lane / 16 ^ lane % 8) * 16;
            UNROLL for (int c = 0; c < 4; ++c) {
                float r[8];
                UNROLL for (int j = 0; j < 8; ++j) r[j] = o[8 * c + j] * inverse[j / 2 % 2];
                store_matrices(to ^ 32 * c, packed(r[0], r[1]), packed(r[2], r[3]), packed(r[4], r[5]),
                    packed(r[6], r[7]));
            }
            fence_async();
        }
        // One lane arrives for its warp: all have read the block's numbers and written the result.
        __syncwarp();
        if (lane == 0) {
            if (own_steps > 0) {
                store(y_map, 0, own_row + warp * 16, head, own_queries);
                commit_stores();
                wait_stores_read<0>();
            }
            arrive(ring + Q_EMPTY + slot * 8);
        }
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(512, 1) attention_cuda(
    const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
    const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap y_map, int* fetched_ptr, int n_rows,
    int n_heads, int heads_a_group, int section, float scale_log2)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 ring = shared(memory);
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        prefetch(&q_map); prefetch(&k_map); prefetch(&v_map); prefetch(&y_map);
        for (int i = 0; i < 2; ++i) { init(ring + Q_FULL + i * 8, 1); init(ring + Q_EMPTY + i * 8, WARPS); }
        for (int i = 0; i < STAGES; ++i) {
            init(ring + K_FULL + i * 8, 1); init(ring + K_EMPTY + i * 8, WARPS);
            init(ring + V_FULL + i * 8, 1); init(ring + V_EMPTY + i * 8, WARPS);
        }
        fence_barrier_init();
    }
    store_word(ring + ONES_AT + threadIdx.x * 4, BF16 ? 0x3f803f80 : 0x3c003c00);
    fence_async();
    __syncthreads();
    if (group == GROUPS) {
        decrease_registers<32>();
        if (thread_id() / 32 % 4 == 0 && elected())
            load_tiles(&q_map, &k_map, &v_map, fetched_ptr, ring, n_rows, n_heads, heads_a_group, section);
        __syncwarp();
    } else {
        increase_registers<160>();
        attend(&y_map, ring, group, n_rows, scale_log2);
    }
}

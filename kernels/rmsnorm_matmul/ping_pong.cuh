// Constants and helpers of ping_pong.cu, which describes the kernel and its macros.
#pragma once
#include "scaled_operand.cuh"
#include "wgmma.h"

constexpr int WARPGROUPS_O = BLOCK_O / 64;                      // warpgroups of a group, 64 columns each
constexpr int ACC = BLOCK_B / 2;                                // accumulators of a thread
constexpr int CONSUMERS = WARPGROUPS_O * GROUPS * 4;            // warps that multiply
constexpr int W_LOADER = CONSUMERS, X_LOADER = W_LOADER + 1, FIRST_SQUARE_WARP = X_LOADER + 1;
constexpr int SQUARE_WARPS = LOCAL_SQUARES ? 4 : 2, WARPS = FIRST_SQUARE_WARP + SQUARE_WARPS;
constexpr bool SHARED_STAGES = X_STAGES == 0;                   // x shares the stages and mbarriers of the weights
constexpr int X_DEPTH = SHARED_STAGES ? W_STAGES : X_STAGES;    // stages of x
// With many rows the consumers get registers of the warpgroup that loads and sums squares.
constexpr bool REALLOCATE = CONSUMERS == 16 ? BLOCK_B > 96 : GROUPS == 1 && BLOCK_B > 128;
constexpr int LOADS_IN_FLIGHT = REALLOCATE ? 2 : 8;             // of 16 bytes a lane, when rows are squared for all
// Weight stages loaded before the wait for the previous launch: behind all stages many rows of x would come late.
constexpr int EARLY_STAGES = BLOCK_B > 32 && BLOCK_O == 64 ? 6 : W_STAGES;

// A row block is 8 rows of a tile, the unit of the reductions. The ranks of split-K, and the groups of each, own some
// row blocks each: they add all accumulators of these, scale and store them.
constexpr int ROW_BLOCKS = BLOCK_B / 8, OWNERS = SPLIT_K * GROUPS;
constexpr int MAX_OWN_ROWS = (ROW_BLOCKS + SPLIT_K - 1) / SPLIT_K * 8;          // of a rank
DEVICE constexpr int owner_of(int block) { return (OWNERS * (block + 1) - 1) / ROW_BLOCKS; }
DEVICE constexpr int first_block(int owner) { return ROW_BLOCKS * owner / OWNERS; }
DEVICE constexpr int own_blocks(int rank) { return first_block((rank + 1) * GROUPS) - first_block(rank * GROUPS); }

// Shared memory: stages of the weights and of x, mbarriers, 1 / rms of the rows, sums of squares, the gain.
constexpr u32 W_BYTES = BLOCK_K * BLOCK_O * 2, X_BYTES = BLOCK_B * BLOCK_K * 2, X_AT = W_STAGES * W_BYTES;
constexpr u32 STAGES_END = X_AT + X_DEPTH * X_BYTES;
// Accumulators are exchanged in register layout: of a row block, four in each of these threads.
constexpr u32 BLOCK_BYTES = WARPGROUPS_O * 128 * 16, SENT_BYTES = MAX_OWN_ROWS / 8 * BLOCK_BYTES;
constexpr u32 GROUP_SUMS_BYTES = (GROUPS - 1) * ROW_BLOCKS * BLOCK_BYTES;
// What other ranks send has a buffer of its own, or reuses the stages once all wgmma is complete.
constexpr bool RECEIVE_APART = BLOCK_O == 64;
constexpr u32 ALL_SENT_BYTES = (SPLIT_K - 1) * SENT_BYTES;
constexpr u32 RECEIVED_AT = RECEIVE_APART ? STAGES_END : GROUP_SUMS_BYTES;
// 16 rows by 16 columns of each warp, transposed before they are stored. They reuse the stages.
constexpr u32 OUT_AT = GROUP_SUMS_BYTES + (RECEIVE_APART ? 0 : ALL_SENT_BYTES), OUT_BYTES = 512;
constexpr u32 BARRIERS_AT = STAGES_END + (RECEIVE_APART ? ALL_SENT_BYTES : 0);
constexpr u32 SINGLE_BARRIERS_AT = BARRIERS_AT + (W_STAGES + X_STAGES) * 16;
constexpr u32 RSTD_AT = SINGLE_BARRIERS_AT + 48;                              // [rank][own row], sums of squares first
constexpr u32 SQUARES_AT = RSTD_AT + SPLIT_K * MAX_OWN_ROWS * 4;              // [squaring warp][row]
constexpr u32 GAIN_AT = (SQUARES_AT + LOCAL_SQUARES * SQUARE_WARPS * BLOCK_B * 4 + 127) / 128 * 128;
static_assert(OUT_AT + CONSUMERS * OUT_BYTES <= STAGES_END, "the accumulators fit into the stages");
static_assert(CLUSTER_M == 1 || SPLIT_K == 1, "a cluster shares weights or the inner dimension");
static_assert(!LOCAL_SQUARES || BLOCK_B <= 32, "a lane squares one row");

// Addresses of the mbarriers.
struct Barriers {
    u32 base;
    DEVICE u32 w_full(int stage) const { return base + BARRIERS_AT + stage * 16; }
    DEVICE u32 w_empty(int stage) const { return w_full(stage) + 8; }
    DEVICE u32 x_full(int stage) const { return base + BARRIERS_AT + (SHARED_STAGES ? stage : W_STAGES + stage) * 16; }
    DEVICE u32 x_empty(int stage) const { return x_full(stage) + 8; }
    DEVICE u32 rstd_ready() const { return base + SINGLE_BARRIERS_AT; }
    DEVICE u32 squares_received() const { return base + SINGLE_BARRIERS_AT + 8; }
    DEVICE u32 sums_received() const { return base + SINGLE_BARRIERS_AT + 16; }
    DEVICE u32 peers_ready() const { return base + SINGLE_BARRIERS_AT + 24; }
    DEVICE u32 x_squared() const { return base + SINGLE_BARRIERS_AT + 32; }
};
DEVICE void init_barriers(const Barriers& barriers) {
    for (int s = 0; s < W_STAGES; ++s) {
        init(barriers.w_full(s), 1);
        init(barriers.w_empty(s), 4 * WARPGROUPS_O * CLUSTER_M + (SHARED_STAGES ? LOCAL_SQUARES : 0));
    }
    for (int s = 0; s < X_STAGES; ++s) {
        init(barriers.x_full(s), 1);
        init(barriers.x_empty(s), 4 * WARPGROUPS_O + LOCAL_SQUARES);
    }
    init(barriers.rstd_ready(), SQUARE_WARPS * 32);
    init(barriers.x_squared(), SQUARE_WARPS);
    init(barriers.squares_received(), 1);
    init(barriers.sums_received(), 1);
    init(barriers.peers_ready(), SPLIT_K > 1 ? SPLIT_K - 1 : 1);
    if (SPLIT_K > 1) {
        const int own = own_blocks(blockIdx.x % SPLIT_K);
        expect(barriers.squares_received(), (SPLIT_K - 1) * own * 32);
        expect(barriers.sums_received(), (SPLIT_K - 1) * own * BLOCK_BYTES);
    }
    fence_barrier_init();
}

// The step, stage and phase of one of STRIDE consumers that alternate on the steps. A stage always belongs to the same
// one: an mbarrier is waited for by the parity of its phase, and none may be skipped.
template <int STAGES, int STRIDE> struct PipelineState {
    static_assert(STRIDE <= STAGES && (SHARED_STAGES || STAGES % STRIDE == 0), "a stage belongs to one consumer");
    int step, stage, phase, first;
    DEVICE explicit PipelineState(int first) : step(first), stage(first), phase(0), first(first) {}
    DEVICE void advance() {
        stage += STRIDE;
        step += STRIDE;
        if (stage >= STAGES) {
            const int again = STAGES % STRIDE == 0 ? stage - STAGES : first;
            step += STAGES - stage + again;
            stage = again;
            phase ^= 1;
        }
    }
};

DEVICE void consumer_barrier() { asm volatile("bar.sync 1, %0;" :: "n"(CONSUMERS * 32) : "memory"); }
DEVICE void send(u32 to, float4 v, u32 bar) { send(to, v.x, v.y, v.z, v.w, bar); }
// Adds four accumulators of each of N owners: the own ones from registers, the others `distance` bytes apart in memory.
// The order is that of the owners, so the result is deterministic.
template <int N> DEVICE void reduce(float* own, int at, const unsigned char* others, u32 distance) {
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    UNROLL for (int n = 0; n < N; ++n) {
        const float4 v = n == at ? make_float4(own[0], own[1], own[2], own[3])
            : *(const float4*)(others + (n - (n > at)) * distance);
        sum.x += v.x; sum.y += v.y; sum.z += v.z; sum.w += v.w;
    }
    own[0] = sum.x; own[1] = sum.y; own[2] = sum.z; own[3] = sum.w;
}

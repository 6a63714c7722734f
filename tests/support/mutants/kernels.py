"""Lists wrong twins of the kernels: one edit each, which the checker must reject.

A twin is made by replacing one fragment of the kernel's source; the fragment must occur exactly once, so an edit of
the kernel that loses a twin fails the tests instead of silently testing nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class Mutant:
    """One wrong edit of a kernel's source. file: the file edited, relative to kernels/, or "" for its own module."""

    kernel: str
    name: str
    find: str
    replace: str
    file: str = ""

    def apply(self, source: str) -> str:
        """Return the source of the wrong twin."""
        count = source.count(self.find)
        assert count == 1, f"{self.kernel}/{self.name}: the fragment occurs {count} times; expected once"
        return source.replace(self.find, self.replace)


def promoted_mutants(variant: str) -> tuple[Mutant, ...]:
    """Return the wrong twins of the loop that adds fp8 sums in fp32, of a variant of matmul_fp8 that has it."""
    odd_step = "} else {\n            wait_products<0>();\n            "
    ends = "\n        }\n        // ptxas"
    edits = {
        "sums_replaced": ("acc[i] += of[i];", "acc[i] = of[i];"),
        "odd_step_lost": (f"{odd_step}add(sums, used);", f"{odd_step}release(used);"),
        "step_before_again": (f"add(next_sums, next_used);{ends}", f"add(sums, next_used);{ends}"),
    }
    file = "common/products.cuh"
    return tuple(Mutant("matmul_fp8", f"{variant}_promoted_{name}", *edit, file) for name, edit in edits.items())


# Of the loops in Triton and in Gluon that all products share.
_PRODUCT = partial(Mutant, "matmul", file="common/gemm_device.py")
_GENERIC = partial(Mutant, "rmsnorm_matmul", file="rmsnorm_matmul/generic.py")
MUTANTS: tuple[Mutant, ...] = (
    _GENERIC(
        "dropped_column_mask",
        "y_mask = row_mask[None, :] & col_mask[:, None]",
        "y_mask = row_mask[None, :] & (col_mask[:, None] | True)",
    ),
    _GENERIC(
        "dropped_row_mask",
        "y_mask = row_mask[None, :] & col_mask[:, None]",
        "y_mask = (row_mask[None, :] | True) & col_mask[:, None]",
    ),
    _GENERIC(
        "dropped_inner_mask",
        "mask=row_mask[:, None] & inner_mask[None, :], other=0.0",
        "mask=row_mask[:, None] & (inner_mask[None, :] | True), other=0.0",
    ),
    _GENERIC("fp16_sum_of_squares", "squares += x32 * x32", "squares += (x * x).to(tl.float32)"),
    _GENERIC(
        "unscaled_epilogue",
        "(acc * rstd[None, :]).to(y_ptr.dtype.element_ty)",
        "(acc + 0.0 * rstd[None, :]).to(y_ptr.dtype.element_ty)",
    ),
    _GENERIC(
        "unscaled_split_epilogue",
        "(total * rstd[None, :]).to(y_ptr.dtype.element_ty)",
        "(total + 0.0 * rstd[None, :]).to(y_ptr.dtype.element_ty)",
    ),
    _GENERIC("racy_split", "if arrived == SPLIT_K - 1:", "if pid_k == 0:"),
    _GENERIC("counter_not_reset", "tl.store(arrivals_ptr + tile_id, 0)", "pass"),
    _GENERIC("dropped_gain", "x32 * gain.to(tl.float32)[None, :]", "x32 + 0.0 * gain[None, :]"),
    _GENERIC("dropped_eps", "rstd = tl.rsqrt(row_squares / n_inner + eps)",
           "rstd = tl.rsqrt(row_squares / n_inner)"),
    _GENERIC("mean_over_padding", "rstd = tl.rsqrt(total_squares / n_inner + eps)",
           "rstd = tl.rsqrt(total_squares / (tiles * BLOCK_K) + eps)"),
    _GENERIC("lost_last_step", "last = tl.minimum(first + tiles_a_split, tiles)",
           "last = tl.minimum(first + tiles_a_split, tiles - 1)"),
    _PRODUCT("dropped_column_mask", "live = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]",
             "live = (rows < n_rows)[:, None] & ((cols < n_cols)[None, :] | True)"),
    _PRODUCT("dropped_inner_mask", "mask=(rows < n_rows)[:, None] & (inner < n_inner)[None, :]",
             "mask=(rows < n_rows)[:, None] & ((inner < n_inner)[None, :] | True)"),
    _PRODUCT("fp16_accumulator", 'acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee", out_dtype=ACC)',
             'acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee", out_dtype=ACC).to(tl.float16).to(tl.float32)'),
    _PRODUCT("short_last_group", "group_rows = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)", "group_rows = GROUP_M"),
    _PRODUCT("lost_last_step", "for step in tl.range(tiles_k):", "for step in tl.range(tiles_k - 1):"),
)  # fmt: skip

# Of the CUDA C++, which the interpreter cannot run.
_COOPERATIVE = partial(Mutant, "rmsnorm_matmul", file="rmsnorm_matmul/cooperative.cu")
_PING_PONG = partial(Mutant, "rmsnorm_matmul", file="rmsnorm_matmul/ping_pong.cu")
_NORMALISE = partial(Mutant, "rmsnorm_matmul", file="rmsnorm_matmul/normalise.cu")
_RAGGED = partial(Mutant, "rmsnorm_matmul", file="rmsnorm_matmul/normalise_ragged.cu")
_MATMUL = partial(Mutant, "matmul", file="common/cluster_gemm_kernel.cuh")
_GEMM = partial(Mutant, "matmul", file="common/cluster_gemm.cuh")
_MLA = partial(Mutant, "mla_decode", file="mla_decode/cluster.cu")
# Of the copy of unaligned rows, and of the result that is stored without TMA. A read before the matrix changes no
# result: memcheck finds it.
_COPY = partial(Mutant, "matmul", file="common/pad_rows.cu")
COPY_MUTANTS: tuple[Mutant, ...] = (
    _COPY("copy_forgets_the_second_vector", "two ? *(const uint4*)(aligned + 16) : first", "first"),
    _COPY("copy_not_shifted_by_half", "skipped & 8 ? w[i + 2] : w[i]", "w[i]"),
    _COPY("copy_not_shifted_by_a_word", "skipped & 4 ? w[i + 1] : w[i]", "w[i]"),
    _COPY("copy_not_shifted_by_bytes", "skipped % 4 * 8", "0"),
    _COPY("copy_of_the_first_vectors_alone", "(cta * UNROLLED + i) * THREADS", "cta * UNROLLED * THREADS"),
)
CLUSTER_MUTANTS: tuple[Mutant, ...] = (
    _COOPERATIVE("cooperative_dropped_gain", "scale(to, g);", "to[0] |= g[0] & 0u;"),
    _COOPERATIVE("cooperative_gain_of_the_neighbour", "load_word(gain + k * 16)", "load_word(gain + (k ^ 1) * 16)"),
    _COOPERATIVE("cooperative_half_of_the_squares",
           "squares[k % 4] = squared(to[k], squares[k % 4]);",
           "if (k < 8) squares[k % 4] = squared(to[k], squares[k % 4]);"),
    _COOPERATIVE("cooperative_squares_of_itself_alone",
           "r[h] = quad_sum(sum);", "r[h] = sum;"),
    _COOPERATIVE("cooperative_unscaled_epilogue", "rsqrtf(r[h] / n_inner + eps)", "1.f"),
    _COOPERATIVE("cooperative_lost_last_step",
           "return all_steps * (r + 1) / SPLIT_K - all_steps * r / SPLIT_K; };",
           "return max(all_steps * (r + 1) / SPLIT_K - all_steps * r / SPLIT_K - 1, 1); };"),
    _COOPERATIVE("cooperative_reads_before_the_copy", "wait(barriers.full(x_stage), x_phase & 1);", ""),
    _COOPERATIVE("cooperative_reads_before_the_other_rank", "if (SPLIT_K > 1) wait(barriers.received(), 0);", ""),
    _COOPERATIVE("cooperative_forgets_the_other_rank", "if (p == own) {", "if (p <= own) {"),
    _COOPERATIVE("cooperative_rows_of_the_first_tile",
           "const int row = row_tile * BLOCK_B + row_in + lane / 4,", "const int row = row_in + lane / 4,"),
    _PING_PONG("ping_pong_dropped_gain", "scale(a, g);", "a[0] |= g[0] & 0u;"),
    _PING_PONG("ping_pong_prefetch_gain_of_the_same_step",
           "load_gain(min(i + GROUPS, steps - 1), g);", "load_gain(i, g);"),
    _PING_PONG("ping_pong_prefetch_lost_last_weights",
           "if (i + GROUPS < steps) fetch(next);", "if (i + GROUPS + 1 < steps) fetch(next);"),
    _PING_PONG("ping_pong_half_of_the_squares",
           "sums[1] = squared(v[k].y, sums[1]);", ""),
    _PING_PONG("ping_pong_squares_of_half_the_lanes",
           "for (int bit = 16; bit > 0; bit /= 2) sum +=", "for (int bit = 8; bit > 0; bit /= 2) sum +="),
    _PING_PONG("ping_pong_forgets_a_group",
           "reduce<GROUPS>(acc + 4 * e, to,", "reduce<GROUPS - 1>(acc + 4 * e, to,"),
    _PING_PONG("ping_pong_forgets_the_other_ranks",
           "reduce<SPLIT_K>(acc + 4 * own, p,", "reduce<1>(acc + 4 * own, 0,"),
    _PING_PONG("ping_pong_sends_all_to_one_place",
           "from * SENT_BYTES + (e - first_block(to * GROUPS)) * BLOCK_BYTES", "from * SENT_BYTES"),
    _PING_PONG("ping_pong_unscaled_epilogue", "rsqrtf(sums[k] / n_inner + eps)", "1.f"),
    _PING_PONG("ping_pong_reads_before_the_squares", "    wait(barriers.rstd_ready(), 0);\n", ""),
    _PING_PONG("ping_pong_half_of_the_weights_twice",
           "(first + at.step) * BLOCK_K + rank_m * (BLOCK_K / CLUSTER_M),", "(first + at.step) * BLOCK_K,"),
    _PING_PONG("ping_pong_rows_of_the_first_tile",
           "const int to = row + e * 8 + lane / 2;", "const int to = e * 8 + lane / 2;"),
    _PING_PONG("few_rows_half_of_the_squares", "VECTORS = LANES / 4;", "VECTORS = LANES / 8;"),
    _PING_PONG("few_rows_forgets_a_warp",
           "for (int q = 1; q < SQUARE_WARPS; ++q) sum +=", "for (int q = 2; q < SQUARE_WARPS; ++q) sum +="),
    _PING_PONG("few_rows_forgets_the_other_ranks",
           "for (int p = 1; p < SPLIT_K; ++p) sum +=", "for (int p = 2; p < SPLIT_K; ++p) sum +="),
    _PING_PONG("few_rows_reads_before_the_other_ranks",
           "        if (SPLIT_K > 1) wait(barriers.squares_received(), 0);\n", ""),
    _NORMALISE("normed_dropped_gain", "packed(low(x) * r * low(gain), high(x) * r * high(gain))",
           "packed(low(x) * r, high(x) * r)"),
    _NORMALISE("normed_unscaled", "rsqrtf(sum / n_inner + eps)", "1.f"),
    _NORMALISE("normed_squares_of_half_the_lanes", "for (int bit = 16; bit > 0;", "for (int bit = 8; bit > 0;"),
    _NORMALISE("normed_forgets_a_warp", "for (int w = 0; w < WARPS; ++w)", "for (int w = 1; w < WARPS; ++w)"),
    _NORMALISE("normed_last_vector_of_all_threads", "(ends ? 0.f : last)", "last"),
    _NORMALISE("normed_squares_of_registers_alone",
           "at += THREADS) sum = squares_of(__ldcg(in + at), sum);", "at += THREADS) sum += 0.f;"),
    _NORMALISE("normed_rows_of_registers_alone",
           "for (int at = from + VECTORS * THREADS; at < vectors; at += THREADS)\n        out[at]",
           "for (int at = vectors; at < vectors; at += THREADS)\n        out[at]"),
    _NORMALISE("normed_first_row_alone", "(const uint4*)x + (i64)row * vectors", "(const uint4*)x"),
    _RAGGED("normed_ragged_dropped_gain", "r * (inside ? low(__ldg(gain + column)) : 0.f)", "r"),
    _RAGGED("normed_ragged_holds_half", "if (HELD) ((Vector*)held)[at]", "if (HELD && at % 2) ((Vector*)held)[at]"),
    _RAGGED("normed_ragged_unscaled", "rsqrtf(sum / n_inner + eps)", "1.f"),
    _RAGGED("normed_ragged_forgets_a_warp", "for (int w = 0; w < WARPS; ++w)", "for (int w = 1; w < WARPS; ++w)"),
    _RAGGED("normed_ragged_in_order", "at * CLASSES + of_class", "of_class * in_class + at"),
    _RAGGED("normed_ragged_first_row_alone", "x + (i64)blockIdx.x * n_inner", "x"),
    _GEMM("cluster_stores_behind_the_last_column", "if (col + 1 < n_cols) to[1]", "to[1]"),
    _MATMUL("cluster_stores_the_first_row_alone",
           "row + h, at, n_cols, buffer, h, lane", "row, at, n_cols, buffer, 0, lane"),
    _GEMM("cluster_lost_last_step",
           "last = steps * (part + 1) / SPLIT;", "last = max(steps * (part + 1) / SPLIT - 1, 1);"),
    _MATMUL("cluster_rows_of_the_first_program", "* ROWS + down) * tile_rows;", "* ROWS) * tile_rows;"),
    _MATMUL("cluster_steps_of_the_first_program", "&b_map, col + o * 64, i * BLOCK_K + first,",
           "&b_map, col + o * 64, i * BLOCK_K,"),
    _MATMUL("cluster_rows_of_the_program_beside", "row + share, full(s)", "row, full(s)"),
    _MATMUL("cluster_columns_of_the_program_beside", "* COLS + right) * BLOCK_N;", "* COLS) * BLOCK_N;"),
    _GEMM("cluster_forgets_the_other_half", "own[i] + sum_of<Sum>(r[i])", "own[i]"),
    _GEMM("cluster_both_parts_multiply_the_same", "first = steps * part / SPLIT;",
           "first = steps * part / SPLIT * 0;"),
    _MATMUL("cluster_ends_the_other_parts_rows", "row += part * 8;", "row += (1 - part) * 8;"),
    _MATMUL("cluster_columns_of_the_first_program", "&b_map, col + box * 64,", "&b_map, col + o * 64,"),
    _GEMM("cluster_forgets_the_other_parts", "acc[4 * k] += sum_of<Sum>(v.x);", ""),
    _GEMM("cluster_reads_before_the_other_parts",
           "while (!__all_sync(~0u, there));", "while (false);"),
    _GEMM("cluster_one_part_of_many", "if (walk.bound(other) <= start) break;", "break;"),
    _MATMUL("cluster_swapped_halves_of_a_store",
           "store(&c_map, at, row, buffer)", "store(&c_map, at ^ 64, row, buffer)"),
    _MATMUL("cluster_changed_over_and_not_back",
           "store_matrices_transposed(", "store_matrices("),
    _MATMUL("cluster_changed_over_first_rows_twice",
           "PACKED(acc[l], acc[l + 1])", "PACKED(acc[k], acc[k + 1])"),
    _MATMUL("cluster_changed_over_columns_of_the_first_group",
           "b_own = A_BYTES + (SWAPPED ? group * 8192 : 0)", "b_own = A_BYTES"),
    _MATMUL("cluster_changed_over_to_the_columns_of_the_first_group",
           "const int at = col + group * 64, mine", "const int at = col, mine"),
    _MATMUL("cluster_changed_over_ends_the_other_parts_rows",
           "row += part * ENDED;", "row += (1 - part) * ENDED;"),
    _MATMUL("cluster_changed_over_stores_the_rows_of_others",
           "(u32)(to - own_row) < (u32)tile_rows && to < n_rows;", "to < n_rows - tile_rows % 64;"),
    _MLA("cluster_missing_max_subtraction", "d[k] = exp2_approx(fmaf(d[k], scale, -reference[k / 2 % 2]));",
           "d[k] = exp2_approx(d[k] * scale) * exp2_approx(-reference[k / 2 % 2]);"),
    _MLA("cluster_powers_beyond_the_dtype", "SLACK = 8.f;", "SLACK = 200.f;"),
    _MLA("cluster_unmasked_keys", "lane % 4 * 2;", "lane % 4 * 2 + 99;"),
    _MLA("cluster_keys_of_the_lane_before", "lane % 4 * 2;", "lane % 4;"),
    _MLA("cluster_dropped_rope", "rope + n * (32 >> 4), n > 0);", "rope + n * (32 >> 4), 0);"),
    _MLA("cluster_uncorrected_output",
           "if (__any_sync(~0u, fminf(correction[0], correction[1]) < 1.f)) {", "if (i < 0) {"),
    _MLA("cluster_correction_of_another_row",
           "acc[k / 64][k % 64] *= correction[k / 2 % 2];", "acc[k / 64][k % 64] *= correction[0];"),
    _MLA("cluster_uncorrected_sum", "total[h] = fmaf(total[h], correction[h], sum);", "total[h] += sum;"),
    _MLA("cluster_sum_of_half_the_lanes", "total[h] += __shfl_xor_sync(~0u, total[h], 2);", ""),
    _MLA("cluster_undivided_result", " * share[j / 2 % 2];", ";"),
    _MLA("cluster_half_of_the_latent_twice", "p * 128 + rank * 64, first", "p * 128, first"),
    _MLA("cluster_half_of_the_rope_twice", "i * KEYS + rank * (KEYS / 2),", "i * KEYS,"),
    _MLA("cluster_heads_of_the_first_sequence", "ring, own.block * HEADS,", "ring, own.block % 2 * HEADS,"),
    _MLA("cluster_keys_of_the_first_sequence", " own.block / (n_heads / HEADS),", " 0,"),
    _MLA("cluster_keys_not_waited_for", "                wait<FULL>(ring + s * 8, phase);\n", ""),
    _MLA("cluster_values_of_the_piece_before", "(o ? values_next : values)", "values"),
    _MLA("cluster_splits_of_equal_weight", "exp2_approx(of_row[i].x - top);", "1.f;"),
    _MLA("cluster_sum_of_some_splits", "sum += __shfl_xor_sync(~0u, sum, bit);", ";"),
    _MLA("cluster_vectors_of_some_splits", "r[j] += __shfl_xor_sync(~0u, r[j], 16);", ""),
    _MLA("cluster_weights_of_another_row", "add_weighted(r + 2, v[m][i].y, weight[8]);",
           "add_weighted(r + 2, v[m][i].y, weight[0]);"),
    _MLA("cluster_one_split_too_few", "UNROLL for (int i = 0; i < EACH; ++i) {",
           "UNROLL for (int i = 0; i < EACH - (part == 3); ++i) {"),
    _MLA("cluster_keys_of_the_first_split", "own.first * KEYS, own.steps,", "0, own.steps,"),
    _MLA("cluster_share_that_begins_late", "half = first / (VECTORS * 128)", "half = (first + 512) / (VECTORS * 128)"),
    _MLA("cluster_half_of_the_vectors", "m * MEMBERS + member);", "m / 2 * MEMBERS + member);"),
    _MLA("cluster_fractions_of_the_other_half", "(2 * other + half) * HEADS", "(2 * other + 1 - half) * HEADS"),
    _MLA("cluster_fractions_of_another_row", "v[2] * inverse[1], v[3] * inverse[1]",
           "v[2] * inverse[0], v[3] * inverse[0]"),
    _MLA("cluster_greatest_of_half_the_lanes", "greatest[PART * HEADS + own_row / 4 + 8 * h] = top;",
           "greatest[PART * HEADS + own_row / 4] = top;"),
    *(
        Mutant(kernel, f"cuda_{name}", find, replace, file="common/attention.cu")
        for kernel in ("flash_attention", "flash_attention_causal")
        for name, find, replace in (
            ("missing_max_subtraction", "s[i] = exp2_approx(fmaf(s[i], scale, -reference[i / 2 % 2]));",
             "s[i] = exp2_approx(s[i] * scale) * exp2_approx(-reference[i / 2 % 2]);"),
            ("powers_beyond_the_dtype", "fmaxf(top, reference[h]);",
             "top > reference[h] + 200.f ? top : reference[h];"),
            ("unmasked_keys", "if (i / 4 * 8 + i % 2 > last)", "if (i / 4 * 8 + i % 2 > last + 99)"),
            ("strict_mask", "if (i / 4 * 8 + i % 2 > last)", "if (i / 4 * 8 + i % 2 >= last && last > 0)"),
            ("keys_of_the_lane_before", "BLOCK_N + lane % 4 * 2,", "BLOCK_N + lane % 4,"),
            ("uncorrected_output", "o[i] *= correction[i / 2 % 2];", "o[i] *= 1.f;"),
            ("correction_of_another_row", "o[i] *= correction[i / 2 % 2];", "o[i] *= correction[0];"),
            ("uncorrected_sum", "i < 36; ++i) o[i] *= correction", "i < 32; ++i) o[i] *= correction"),
            ("sum_of_half_the_keys", "BF16 ? 0x3f803f80 : 0x3c003c00);",
             "threadIdx.x < 256 ? 0 : BF16 ? 0x3f803f80 : 0x3c003c00);"),
            ("sum_of_values", "ONES_AT - V_AT - at >> 4 << 16", "TILE >> 4 << 16"),
            ("undivided_result", " * inverse[j / 2 % 2];", ";"),
            ("queries_of_the_first_group", "turn % 2 * Q_BYTES + group * (ROWS * 128)", "turn % 2 * Q_BYTES"),
            ("wrong_key_head", "kv_head = head / group,", "kv_head = head % (n_heads / group),"),
            ("values_of_the_next_tile", "v_map, (i + 1) * BLOCK_N, kv_head", "v_map, i * BLOCK_N, kv_head"),
            ("counter_not_reset", "if (fetched == total - 1) *fetched_ptr = 0;", ""),
        )
    ),
    # The last block would need keys that its queries do not see.
    Mutant("flash_attention_causal", "cuda_keys_of_the_whole_block",
           "tiles_of_keys(own_row + ROWS, n_rows) : 0;", "steps : 0;", file="common/attention.cu"),
)  # fmt: skip
# Of the warp-specialised kernels in Gluon, which the interpreter cannot run either.
_WARP_SPECIALISED = partial(Mutant, "rmsnorm_matmul", file="rmsnorm_matmul/warp_specialised.py")
PIPELINED_MUTANTS: tuple[Mutant, ...] = (
    _WARP_SPECIALISED("dropped_column_mask",
           "y_live = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]",
           "y_live = (rows < n_rows)[:, None] & (cols >= 0)[None, :]"),
    _WARP_SPECIALISED("dropped_gain",
           "x_buffers.index(stage).store(x * gain_buffers.index(stage).load(layout))",
           "x_buffers.index(stage).store(x)"),
    _WARP_SPECIALISED("fp16_sum_of_squares",
           "sums += gl.sum(x32 * x32, axis=2)", "sums += gl.sum((x32 * x32).to(x.dtype), axis=2).to(gl.float32)"),
    _WARP_SPECIALISED("unscaled_epilogue",
           "(acc * rstd[None, :]).to(y.dtype)", "(acc + 0.0 * rstd[None, :]).to(y.dtype)"),
    _WARP_SPECIALISED("racy_split", "while waiting != 0:", "while waiting > 1:"),
    _WARP_SPECIALISED("parts_not_emptied",
           "".join(f"    {line}\n" for line in (
               "empty = gl.full([SPLIT_K, BLOCK_B, COLS], UNWRITTEN, gl.int32, layout).to(gl.float32, bitcast=True)",
               "gl.store(partial_ptrs, empty, mask=partial_live)",
               "empty = gl.full([SPLIT_K, BLOCK_B], UNWRITTEN, gl.int32, pairs).to(gl.float32, bitcast=True)",
               "gl.store(squares_ptrs, empty, mask=squares_live)",
           )), ""),
    _WARP_SPECIALISED("lost_last_step",
           "steps = tiles * (pid_k + 1) // SPLIT_K - first",
           "steps = gl.maximum(tiles * (pid_k + 1) // SPLIT_K - first - 1, 1)"),
    _PRODUCT("pipelined_second_half_over_the_first", "_store_part(c, buffer, right, row + TOP, col + COLS)",
             "_store_part(c, buffer, right, row + TOP, col)"),
)  # fmt: skip

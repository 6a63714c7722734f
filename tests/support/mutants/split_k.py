"""Lists small trials of the CUDA C++ of few tiles whose CTAs divide K, and its wrong twins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from loaded_kernels import load_kernel
from mutants.checker import Trial
from mutants.kernels import Mutant, promoted_mutants

KERNELS = ("matmul", "matmul_bias_relu")
ONE_BYTE = {"matmul_fp8": "fp8_e4m3", "matmul_int8": "int8"}
FIXED = {
    "variant": "split_k", "block_k": 64, "subtiles": 1, "tma": 1, "cluster_m": 1, "cluster_n": 1, "stream_k": 0,
    "group_m": 1, "swap_ab": 0,
}  # fmt: skip
# M, N, K, split_k, block_m, block_n, whether warpgroups divide the columns of a tile: one row, tiles with rows and
# columns behind the last, ragged rows, last tiles that begin early, a last step of 8 of K, as many parts as steps and
# the most parts, fewer steps than stages and more, and 1, 2 and 3 warpgroups both ways.
SHAPES = (
    (1, 8, 72, 2, 8, 64, True), (5, 72, 200, 3, 8, 64, True), (13, 152, 520, 9, 16, 64, True),
    (33, 280, 392, 2, 40, 128, True), (100, 152, 328, 2, 40, 128, True), (24, 200, 1096, 2, 24, 192, True),
    (201, 72, 264, 5, 104, 192, True), (64, 64, 128, 2, 64, 64, True), (64, 72, 136, 2, 64, 8, False),
    (1, 8, 128, 2, 64, 8, False), (50, 152, 584, 10, 64, 72, False), (129, 280, 320, 2, 128, 120, False),
    (190, 88, 456, 3, 192, 200, False), (300, 40, 136, 2, 192, 24, False), (7, 264, 704, 4, 64, 256, False),
    (70, 136, 1032, 2, 64, 104, False), (256, 72, 192, 2, 256, 64, True), (31, 48, 2112, 32, 32, 64, True),
    (9, 16, 712, 2, 16, 64, True),
)  # fmt: skip
# Of one byte, beside those with twice the K: the largest tiles whose sums are promoted, and others that register hold
# the sums of one step or two beside.
ONE_BYTE_SHAPES = (
    (150, 152, 784, 3, 152, 64, True), (300, 152, 656, 2, 152, 128, True), (110, 200, 1040, 3, 112, 192, True),
    (60, 152, 912, 2, 64, 152, False), (130, 152, 400, 2, 128, 152, False), (190, 112, 784, 3, 192, 112, False),
    (90, 136, 912, 2, 96, 128, True), (61, 200, 1168, 3, 64, 192, True),
)  # fmt: skip
# The side that warpgroups divide -> the most of the other where sums of fp8 are promoted.
MOST_PROMOTED = {64: 152, 128: 152, 192: 112}


def dtypes_of(name: str) -> tuple[str, ...]:
    """Return the dtypes of a kernel."""
    return (ONE_BYTE[name],) if name in ONE_BYTE else ("fp16", "bf16")


def split_k_config(name: str, dtype: Any, block_m: int, block_n: int, parts: int, *, swap: bool) -> dict[str, Any]:
    """Return a configuration of a kernel with two stages; fp8 promotes the sums where registers hold them."""
    own = load_kernel(name).kernel.config({"M": 8, "N": 4097, "K": 4096}, dtype, "sm_90")
    side, other = (block_n, block_m) if swap else (block_m, block_n)
    tile = {"block_m": block_m, "block_n": block_n, "split_k": parts, "num_warps": side // 16}
    if name in ONE_BYTE:
        tile["block_k"] = 128
    if "promote" in own:
        tile["promote"] = int(other <= MOST_PROMOTED.get(side, 0))
    return {**own, **FIXED, **tile, "num_stages": 2, "pdl": 1}


def split_k_trials(name: str, dtype: str) -> tuple[Trial, ...]:
    """Return the trials of a kernel, with two stages and with three."""
    return tuple(_trials(name, dtype))


def _trials(name: str, dtype: str) -> Iterator[Trial]:
    shapes: tuple[tuple[int, int, int, int, int, int, bool], ...] = SHAPES
    if name in ONE_BYTE:
        shapes = (*((m, n, 2 * k, *tile) for m, n, k, *tile in SHAPES), *ONE_BYTE_SHAPES)  # type: ignore[misc]
    for at, (m, n, k, parts, block_m, block_n, swap) in enumerate(shapes):
        rows, cols = (_in_step(name, block_m), block_n) if swap else (block_m, _in_step(name, block_n))
        config = split_k_config(name, dtype, rows, cols, parts, swap=swap)
        yield Trial({"M": m, "N": n, "K": k}, dtype, {**config, "num_stages": 2 + at // 2 % 2, "pdl": at % 2})


def _in_step(name: str, side: int) -> int:
    """Return the columns of a wgmma, which of int8 come in sixteens, at most 192 with three warpgroups."""
    return side if name != "matmul_int8" else 192 if side == 200 else 16 * -(-side // 16)


_WRONG = partial(Mutant, "matmul", file="common/gemm_split_k.cu")
_FP8 = partial(Mutant, "matmul_fp8", file="common/gemm_split_k.cu")
_SUM = partial(Mutant, file="common/gemm_split_k_sum.cu")
MUTANTS: tuple[Mutant, ...] = (
    _WRONG("split_k_lost_last_step", "last = steps * (part + 1) / parts;", "last = steps * (part + 1) / parts - 1;"),
    _WRONG("split_k_of_whole_steps", "steps = (n_inner + BLOCK_K - 1) / BLOCK_K", "steps = n_inner / BLOCK_K"),
    _WRONG("split_k_lost_part_offset", "(i64)part * n_rows", "(i64)0 * n_rows"),
    _WRONG("split_k_kept_last_step", "k > 0 || more", "k > 0"),
    _WRONG("split_k_behind_the_last_row", "min(own_row + tile_rows, n_rows)", "own_row + tile_rows"),
    _WRONG("split_k_behind_the_last_column", " && c < n_cols", ""),
    _WRONG("split_k_of_the_first_rows", "own_row = tile % tiles_m * tile_rows", "own_row = 0"),
    _WRONG("split_k_columns_8_further", "col + o * 64", "col + 8 + o * 64"),
    _WRONG("split_k_of_the_first_box", "col + o * 64", "col"),
    _WRONG("split_k_of_one_group", "A_BYTES + (SWAPPED ? group * 8192 : 0)", "A_BYTES"),
    _WRONG("split_k_rows_of_one_group", "SWAPPED ? 0 : group * 8192,", "0,"),
    _WRONG("split_k_second_row_beside_the_first", "__stcg(place + n_cols, two)", "__stcg(place + 1, two)"),
    _WRONG("split_k_neighbours_together", "across = lane % 4 * 2", "across = lane % 4"),
    _WRONG("split_k_sums_of_the_other_half", "one = acc[4 * j + 2 * h]", "one = acc[4 * j + 2 - 2 * h]"),
    *promoted_mutants("split_k"),
    _FP8("split_k_promoted_sums_twice", "multiply(to, false);", "multiply(to, s + phase > 0);"),
    _FP8("split_k_rows_of_b_of_the_first_tile", "load(b, &b_map, i * BLOCK_K, col, full(s))",
         "load(b, &b_map, i * BLOCK_K, 0, full(s))"),
    _FP8("split_k_chunks_of_b_apart", "B_CHUNK = B_ROWS ? 32 : 2048", "B_CHUNK = B_ROWS ? 16 : 2048"),
    _SUM("matmul_fp8", "split_k_unscaled", "sum[i] *= scale;", ""),
    _SUM("matmul_int8", "split_k_scaled_neighbour", "sum[0] * scale, sum[1] * scale", "sum[0] * scale, sum[0] * scale"),
    _SUM("matmul_int8", "split_k_unscaled_last", "sum[3] * scale", "(float)sum[3]"),
    _SUM("matmul", "split_k_dropped_part", "for (int p = 0; p < PARTS; ++p) {", "for (int p = 1; p < PARTS; ++p) {"),
    _SUM("matmul", "split_k_sums_of_one_row", "(i64)p * fours + e", "(i64)p * fours_of_row + e"),
    _SUM("matmul_bias_relu", "split_k_dropped_bias", "sum[1] += high(more.x);", ""),
    _SUM("matmul_bias_relu", "split_k_bias_of_the_next_columns", "e % fours_of_row", "(e + 1) % fours_of_row"),
    _SUM("matmul_bias_relu", "split_k_without_relu", "sum[i] < 0.f ? 0.f : sum[i]", "sum[i]"),
)  # fmt: skip

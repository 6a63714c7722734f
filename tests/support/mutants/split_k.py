"""Lists small trials of the CUDA C++ of few tiles whose CTAs divide K, and its wrong twins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from loaded_kernels import load_kernel
from mutants.checker import Trial
from mutants.kernels import Mutant

KERNELS = ("matmul", "matmul_bias_relu")
FIXED = {
    "variant": "split_k", "block_k": 64, "subtiles": 1, "tma": 1, "cluster_m": 1, "cluster_n": 1, "stream_k": 0,
    "group_m": 1,
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


def split_k_config(name: str, dtype: Any, block_m: int, block_n: int, parts: int, *, swap: bool) -> dict[str, Any]:
    """Return a configuration of a kernel with two stages."""
    own = load_kernel(name).kernel.config({"M": 8, "N": 4097, "K": 4096}, dtype, "sm_90")
    warps = (block_n if swap else block_m) // 16
    tile = {"block_m": block_m, "block_n": block_n, "split_k": parts, "num_warps": warps}
    return {**own, **FIXED, **tile, "num_stages": 2, "pdl": 1}


def split_k_trials(name: str, dtype: str) -> tuple[Trial, ...]:
    """Return the trials of a kernel, with two stages and with three."""
    return tuple(_trials(name, dtype))


def _trials(name: str, dtype: str) -> Iterator[Trial]:
    for at, (m, n, k, parts, block_m, block_n, swap) in enumerate(SHAPES):
        config = split_k_config(name, dtype, block_m, block_n, parts, swap=swap)
        yield Trial({"M": m, "N": n, "K": k}, dtype, {**config, "num_stages": 2 + at // 2 % 2, "pdl": at % 2})


_WRONG = partial(Mutant, "matmul", file="common/gemm_split_k.cu")
_SUM = partial(Mutant, file="common/gemm_split_k_sum.cu")
MUTANTS: tuple[Mutant, ...] = (
    _WRONG("split_k_lost_last_step", "last = steps * (part + 1) / parts;", "last = steps * (part + 1) / parts - 1;"),
    _WRONG("split_k_of_whole_steps", "steps = (n_inner + BLOCK_K - 1) / BLOCK_K", "steps = n_inner / BLOCK_K"),
    _WRONG("split_k_lost_part_offset", "(i64)part * n_rows", "(i64)0 * n_rows"),
    _WRONG("split_k_kept_last_step", "k > 0 || i > first", "k > 0"),
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
    _SUM("matmul", "split_k_dropped_part", "for (int p = 0; p < PARTS; ++p) {", "for (int p = 1; p < PARTS; ++p) {"),
    _SUM("matmul", "split_k_sums_of_one_row", "(i64)p * fours + e", "(i64)p * fours_of_row + e"),
    _SUM("matmul_bias_relu", "split_k_dropped_bias", "sum[1] += high(more.x);", ""),
    _SUM("matmul_bias_relu", "split_k_bias_of_the_next_columns", "e % fours_of_row", "(e + 1) % fours_of_row"),
    _SUM("matmul_bias_relu", "split_k_without_relu", "sum[i] < 0.f ? 0.f : sum[i]", "sum[i]"),
)  # fmt: skip

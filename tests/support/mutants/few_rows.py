"""Lists small trials of the CUDA C++ for few unaligned rows, and its wrong twins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from loaded_kernels import load_kernel
from mutants.checker import Trial
from mutants.kernels import Mutant

KERNELS = ("matmul", "matmul_bias_relu")
# M, N, K, split_k: whole tiles and one element, rows of A that begin at whole vectors, even and odd elements, parts
# without a step, and more steps than stages.
SHAPES = (
    (1, 1, 1, 1), (5, 70, 131, 1), (13, 131, 200, 2), (64, 67, 198, 4), (33, 129, 1031, 4), (2, 63, 64, 1),
    (17, 1, 130, 2), (24, 67, 3001, 16), (64, 512, 2048, 8), (57, 1003, 777, 1),
    (128, 195, 1002, 4), (97, 70, 515, 2),
)  # fmt: skip


def few_rows_trials(name: str, dtype: str) -> tuple[Trial, ...]:
    """Return the trials of a kernel, with few stages and as many as fit."""
    return tuple(_trials(name, dtype))


def _trials(name: str, dtype: str) -> Iterator[Trial]:
    own = load_kernel(name).kernel.config({"M": 8, "N": 2049, "K": 1024}, dtype, "sm_90")
    for at, (m, n, k, split) in enumerate(SHAPES):
        stages = 3 if at % 2 else 5
        config = {**own, "block_m": -(-m // 8) * 8, "split_k": split, "num_stages": stages, "pdl": at % 2}
        yield Trial({"M": m, "N": n, "K": k}, dtype, config)


_WRONG = partial(Mutant, "matmul", file="common/gemm_few_rows.cu")
MUTANTS: tuple[Mutant, ...] = (
    _WRONG("few_rows_not_shifted", "(u32)(of_b(2 * pair) & 15)", "0"),
    _WRONG("few_rows_odd_not_shifted", "(u32)(of_b(2 * pair + 1) & 15)", "(u32)(of_b(2 * pair) & 15)"),
    _WRONG("few_rows_of_a_not_shifted", "(u32)(of_a(at) & 15)", "0"),
    _WRONG("few_rows_without_the_ninth_vector", "if (i < 2 || vector == 0)", "if (i < 2)"),
    _WRONG("few_rows_without_the_last_ninth_vector", "i < (vector ? 2 : 3)", "i < 2"),
    _WRONG("few_rows_of_a_row_too_many", "* BLOCK_K + row < n_inner", "* BLOCK_K + row <= n_inner"),
    _WRONG("few_rows_of_the_next_row", "left_a - BLOCK_K * to_load - 32 * i;", "8;"),
    _WRONG("few_rows_of_whole_words", "bytes == i + 2 ? load_element(from + i) : 0", "0"),
    _WRONG("few_rows_of_one_step_too_many", "inner_left / BLOCK_K + 1", "inner_left / BLOCK_K + 2"),
    _WRONG("few_rows_lost_last_step", "(rank + 1) / SPLIT) - first", "(rank + 1) / SPLIT) - first - 1"),
    _WRONG("few_rows_of_the_first_half", "for (int h = 0; h < 2; ++h)", "for (int h = 0; h < 1; ++h)"),
    _WRONG("few_rows_of_the_first_part", "for (int r = 0; r < SPLIT; ++r)", "for (int r = 0; r < 1; ++r)"),
    _WRONG("few_rows_swapped_halves_of_a", "of_rows[2 * k], of_rows[2 * k + 1]", "of_rows[2 * k + 1], of_rows[2 * k]"),
    Mutant("matmul_bias_relu", "few_rows_dropped_bias", "sum += low(bias[col + n]);", "",
           file="common/gemm_few_rows.cu"),
    Mutant("matmul_bias_relu", "few_rows_not_rectified", "sum = sum < 0.f ? 0.f : sum;", "",
           file="common/gemm_few_rows.cu"),
)  # fmt: skip
# Its results are right on a GPU: only a check of each access finds it.
BEYOND_THE_MATRIX = _WRONG("few_rows_beyond_the_matrix", "matrix_end - from >= 32 - bytes", "matrix_end - from >= 2")

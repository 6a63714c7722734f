"""Lists small trials of the CUDA C++ that reads B by residues of its rows, and its wrong twins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from loaded_kernels import load_kernel
from mutants.checker import Trial
from mutants.kernels import Mutant

KERNELS = ("matmul", "matmul_bias_relu")
# M, N, K, split_k, block_n: one column, rows that begin 1, 2, 4 and 0 elements late, classes without a whole step,
# parts without a step, and more steps than stages. Where tiles divide the rows, as many as follow.
SHAPES = (
    (5, 70, 131, 1, 64), (13, 131, 200, 2, 128), (33, 129, 1031, 4, 64), (64, 68, 398, 4, 128), (24, 72, 515, 2, 64),
    (17, 1, 130, 2, 64), (2, 192, 64, 1, 192), (9, 203, 1100, 1, 192), (1, 3, 8, 1, 64), (128, 190, 300, 2, 128),
    (24, 67, 2001, 8, 64), (40, 130, 1030, 16, 64), (130, 70, 512, 4, 64, 3), (53, 130, 515, 2, 128, 2),
    (257, 66, 400, 2, 64, 2), (21, 133, 700, 3, 64), (70, 66, 1200, 5, 128, 2), (12, 64, 900, 6, 64),
    (24, 72, 515, 16, 64),
)  # fmt: skip


def residues_trials(name: str, dtype: str) -> tuple[Trial, ...]:
    """Return the trials of a kernel, with few stages and more."""
    return tuple(_trials(name, dtype))


def _trials(name: str, dtype: str) -> Iterator[Trial]:
    own = load_kernel(name).kernel.config({"M": 8, "N": 4097, "K": 4096}, dtype, "sm_90")
    for at, (m, n, k, split, block_n, *tiles) in enumerate(SHAPES):
        rows = -(-m // (tiles[0] if tiles else 1))
        fixed = {"variant": "residues", "tma": 1, "block_k": 64, "num_warps": block_n // 16, "pdl": at % 2}
        config = {**own, **fixed, "block_m": -(-rows // 8) * 8, "block_n": block_n, "split_k": split}
        yield Trial({"M": m, "N": n, "K": k}, dtype, {**config, "num_stages": 2 if at % 2 else 3})


_WRONG = partial(Mutant, "matmul", file="common/gemm_residues.cu")
MUTANTS: tuple[Mutant, ...] = (
    _WRONG("residues_not_shifted", "(u32)of_class * (u32)n_cols % 8", "0"),
    _WRONG("residues_of_whole_tiles", "BLOCK_N - 8 : BLOCK_N", "BLOCK_N : BLOCK_N"),
    _WRONG("residues_lost_last_step", "(rank + 1) / SPLIT;", "(rank + 1) / SPLIT - 1;"),
    _WRONG("residues_of_one_class", "i / steps_of_class, inner", "0, inner"),
    _WRONG("residues_of_the_first_part", "for (int r = 0; r < SPLIT; ++r)", "for (int r = 0; r < 1; ++r)"),
    _WRONG("residues_of_unzeroed_sums", "if (CLASSES > 1 || first == last)", "if (CLASSES > 1)"),
    _WRONG("residues_kept_sums", "k > 0 || i > begin", "k > 0 || i > first"),
    _WRONG("residues_behind_the_last_row", "min(own_row, n_rows - tile_rows)", "own_row"),
    _WRONG("residues_of_the_first_rows", "tile % tiles_m * tile_rows", "0"),
    Mutant("matmul_bias_relu", "residues_dropped_bias", "sum[i] += low(bias[to + i]);", ";",
           file="common/gemm_residues.cu"),
)  # fmt: skip

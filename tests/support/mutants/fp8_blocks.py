"""Lists small trials of the fp8 product with scales of blocks, and its wrong twins."""

from __future__ import annotations

from functools import partial
from typing import Any

from mutants.checker import Trial
from mutants.kernels import Mutant

NAME = "matmul_fp8_blocks"
_CUDA_KEYS = {"cluster_m": 1, "cluster_n": 1, "split_k": 1, "stream_k": 0, "pdl": 0, "swap_ab": 0}
_GENERIC: dict[str, Any] = {
    "variant": "generic", "block_m": 64, "block_n": 64, "block_k": 128, "group_m": 2, "subtiles": 1, "num_warps": 4,
    "num_stages": 2, "tma": 0, "programs": 132, **_CUDA_KEYS,
}  # fmt: skip
_CLUSTER: dict[str, Any] = {
    **_GENERIC, "variant": "cuda", "block_m": 128, "block_n": 128, "group_m": 8, "num_warps": 8, "num_stages": 6,
    "tma": 1, "cluster_m": 2, "pdl": 1,
}  # fmt: skip
_FEW = {**_CLUSTER, "block_m": 64, "num_warps": 4, "num_stages": 8, "cluster_m": 1}
_NARROW = {**_FEW, "block_n": 64, "num_stages": 12}
_TALL = {**_CLUSTER, "block_m": 192, "num_warps": 12, "num_stages": 4, "cluster_m": 1}


def _shape(m: int, n: int, k: int) -> dict[str, int]:
    return {"M": m, "N": n, "K": k}


def generic_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of the variant in Triton: one element, several blocks of each side, ragged ones."""
    shapes = (_shape(1, 1, 1), _shape(67, 131, 97), _shape(66, 260, 300), _shape(70, 129, 513))
    return tuple(Trial(shape, dtype, _GENERIC) for shape in shapes)


def cuda_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of the CUDA C++: ragged edges, odd and even steps, whole and divided tiles of each size."""
    few = {"programs": 6, "group_m": 2, "num_stages": 3}
    stream = {"stream_k": 1}
    return (
        Trial(_shape(1, 16, 16), dtype, _CLUSTER),
        Trial(_shape(700, 272, 528), dtype, {**_CLUSTER, **few, "pdl": 0}),
        Trial(_shape(1000, 1512, 2064), dtype, {**_CLUSTER, **stream}),
        Trial(_shape(513, 784, 1040), dtype, {**_CLUSTER, **few, **stream}),
        Trial(_shape(700, 271, 529), dtype, _CLUSTER),
        Trial(_shape(1, 1, 1), dtype, _FEW),
        Trial(_shape(33, 1003, 515), dtype, _FEW),
        Trial(_shape(100, 384, 4096), dtype, {**_FEW, **stream}),
        Trial(_shape(64, 512, 1040), dtype, {**_FEW, **few, **stream}),
        Trial(_shape(33, 200, 1300), dtype, _NARROW),
        Trial(_shape(130, 336, 2064), dtype, {**_NARROW, **stream, "cluster_m": 2}),
        Trial(_shape(300, 1104, 1040), dtype, {**_CLUSTER, **few, "cluster_m": 1}),
        Trial(_shape(201, 1003, 515), dtype, {**_CLUSTER, "cluster_m": 1}),
        Trial(_shape(500, 656, 1040), dtype, {**_TALL, **few}),
        Trial(_shape(700, 400, 2064), dtype, {**_TALL, **few, **stream, "cluster_m": 2}),
    )


TRIALS = {NAME: generic_trials}

_DEVICE, _CUDA = (partial(Mutant, NAME, file=f"{NAME}/{file}") for file in ("device.py", "cluster.cu"))
MUTANTS: tuple[Mutant, ...] = (
    _DEVICE("scale_of_the_first_block_of_a", "a_scale + step * n_rows + rows", "a_scale + rows"),
    _DEVICE("scale_of_the_first_block_of_b", "(col // 128) * steps + step", "(col // 128) * steps"),
    _DEVICE("scale_of_the_first_columns", "b_scale + (col // 128) * steps + step", "b_scale + step"),
    _DEVICE("lost_last_step", "for step in tl.range(steps):", "for step in tl.range(steps - 1):"),
    _DEVICE("scale_of_a_alone", "(of_rows * of_columns)[:, None]", "of_rows[:, None]"),
)
CUDA_MUTANTS: tuple[Mutant, ...] = (
    _CUDA("cuda_scale_of_the_row_above", "from + (row + 8 * h) * 4", "from + row * 4"),
    _CUDA("cuda_scale_of_the_first_columns", "n_cols - 1) / 128) * walk.steps", "n_cols - 1) / 128) * 0"),
    _CUDA("cuda_scale_of_the_first_step", "of_rows += n_rows;", ""),
    _CUDA("cuda_scale_of_columns_of_the_first_step", "++of_columns;", ""),
    _CUDA("cuda_scale_of_the_first_64_columns", "(BLOCK_M + o) * 4", "BLOCK_M * 4"),
)

"""Lists small trials of gemv, for the interpreter and the GPU, and its wrong twins."""

from __future__ import annotations

import math
from typing import Any

from mutants.checker import Trial
from mutants.kernels import Mutant

_CONFIG = {"block_n": 4, "block_k": 64, "num_warps": 2, "interleave": 1, "pdl": 0}


def _interleaved(n: int, k: int, dtype: str, **changes: Any) -> Trial:
    """Return a trial whose programs take rows that start equally far from a multiple of 16 bytes."""
    vector = 4 if dtype == "fp32" else 8
    period = vector // math.gcd(k, vector)
    return Trial({"N": n, "K": k}, dtype, {**_CONFIG, "interleave": period, **changes})


def gemv_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials: one element, whole tiles, ragged rows and columns, one row a program, each period of the starts.

    Interleaved: fewer rows than a period, several groups of them; rows without a whole vector, in one block and a bit.
    """
    return (
        Trial({"N": 1, "K": 1}, dtype, _CONFIG),
        Trial({"N": 8, "K": 128}, dtype, _CONFIG),
        Trial({"N": 7, "K": 131}, dtype, _CONFIG),
        Trial({"N": 3, "K": 1031}, dtype, {**_CONFIG, "block_n": 1}),
        Trial({"N": 13, "K": 136}, dtype, _CONFIG),
        Trial({"N": 5, "K": 67}, dtype, _CONFIG, scale=64.0),
        _interleaved(1, 1, dtype),
        _interleaved(37, 3, dtype),
        _interleaved(3, 7, dtype),
        _interleaved(70, 131, dtype),
        _interleaved(70, 65, dtype, block_n=2, num_warps=1),
        _interleaved(41, 134, dtype),
        _interleaved(41, 1036 if dtype != "fp32" else 1034, dtype, block_k=256),
        _interleaved(19, 1031, dtype, block_n=1, block_k=512, num_warps=4),
    )


TRIALS = {"gemv": gemv_trials}

MUTANTS: tuple[Mutant, ...] = (
    Mutant("gemv", "dropped_inner_mask",
           "mask=row_mask[:, None] & inner_mask[None, :],\n            other",
           "mask=row_mask[:, None] & (inner_mask | True)[None, :],\n            other"),
    Mutant("gemv", "dropped_row_mask", "row_mask = rows < n_rows", "row_mask = (rows < n_rows) | True"),
    Mutant("gemv", "fp16_sum", "acc += sum_lanes(products, LANE)",
           "acc = (acc + sum_lanes(products, LANE)).to(tl.float16).to(tl.float32)"),
    Mutant("gemv", "lost_last_step", "tl.range(0, covered, BLOCK_K)",
           "tl.range(0, covered - BLOCK_K // 2, BLOCK_K)"),
    Mutant("gemv", "lost_last_rows", 'ceil_div(shape["N"], together * int(config["block_n"]))',
           'max(shape["N"] // (together * int(config["block_n"])), 1)'),
    Mutant("gemv", "wrong_stride", "rows.to(tl.int64)[:, None] * n_inner\n", "rows.to(tl.int64)[:, None] * BLOCK_K\n"),
    # Of interleaved rows.
    Mutant("gemv", "programs_of_one_residue", "return together * ceil_div(", "return ceil_div("),
    Mutant("gemv", "rows_of_the_first_residue", "* INTERLEAVE + residue\n", "* INTERLEAVE\n"),
    Mutant("gemv", "head_of_the_next_residue", "residue * (n_inner % LANE) % LANE) % LANE",
           "(residue + 1) * (n_inner % LANE) % LANE) % LANE"),
    Mutant("gemv", "dropped_head", "tl.where(lane < LANE, lane < head, inner < n_inner)",
           "(lane >= LANE) & (inner < n_inner)"),
    Mutant("gemv", "dropped_tail", "tl.where(lane < LANE, lane < head, inner < n_inner)", "lane < head"),
    Mutant("gemv", "head_of_a_whole_vector", "lane < LANE, lane < head,", "lane < LANE, inner < n_inner,"),
    Mutant("gemv", "tail_of_a_whole_vector", "lane < head, inner < n_inner)", "lane < head, inner < n_inner + LANE)"),
    Mutant("gemv", "tail_before_its_place", "head + covered + lane - LANE", "covered + lane - LANE"),
    Mutant("gemv", "vectors_of_the_row_before", "n_inner + (LANE - 1)) // LANE", "n_inner) // LANE"),
    Mutant("gemv", "vectors_of_the_next_row", "(n_inner - head) // LANE", "(n_inner + LANE - 1 - head) // LANE"),
    Mutant("gemv", "x_of_aligned_rows", "x_start = x_ptr + head", "x_start = x_ptr"),
    Mutant("gemv", "edges_of_the_next_row", "inner_mask[None, :],\n        other",
           "(inner >= 0)[None, :],\n        other"),
    Mutant("gemv", "dropped_edges", "sums += tl.sum(edge_w", "sums += 0.0 * tl.sum(edge_w"),
)  # fmt: skip

"""Lists small trials of gemv, for the interpreter and the GPU, and its wrong twins."""

from __future__ import annotations

from mutants.checker import Trial
from mutants.kernels import Mutant

_CONFIG = {"block_n": 4, "block_k": 64, "num_warps": 2, "pdl": 0}


def gemv_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials: one element, whole tiles, ragged rows and columns, one row a program."""
    return (
        Trial({"N": 1, "K": 1}, dtype, _CONFIG),
        Trial({"N": 8, "K": 128}, dtype, _CONFIG),
        Trial({"N": 7, "K": 131}, dtype, _CONFIG),
        Trial({"N": 3, "K": 1031}, dtype, {**_CONFIG, "block_n": 1}),
        Trial({"N": 13, "K": 136}, dtype, _CONFIG),
        Trial({"N": 5, "K": 67}, dtype, _CONFIG, scale=64.0),
    )


TRIALS = {"gemv": gemv_trials}

MUTANTS: tuple[Mutant, ...] = (
    Mutant("gemv", "dropped_inner_mask", "mask=row_mask[:, None] & inner_mask[None, :]",
           "mask=row_mask[:, None] & (inner_mask | True)[None, :]"),
    Mutant("gemv", "dropped_row_mask", "row_mask = rows < n_rows", "row_mask = (rows < n_rows) | True"),
    Mutant("gemv", "fp16_sum", "acc += sum_lanes(products, LANE)",
           "acc = (acc + sum_lanes(products, LANE)).to(tl.float16).to(tl.float32)"),
    Mutant("gemv", "lost_last_step", "tl.range(0, n_inner, BLOCK_K)",
           "tl.range(0, n_inner - BLOCK_K // 2, BLOCK_K)"),
    Mutant("gemv", "lost_last_rows", 'ceil_div(shape["N"], int(config["block_n"]))',
           'max(shape["N"] // int(config["block_n"]), 1)'),
    Mutant("gemv", "wrong_stride", "rows.to(tl.int64)[:, None] * n_inner", "rows.to(tl.int64)[:, None] * BLOCK_K"),
)  # fmt: skip

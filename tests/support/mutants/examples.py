"""Lists small trials of the kernels in examples/kernels, and their wrong twins, for the interpreter."""

from __future__ import annotations

from pathlib import Path

from mutants.checker import Trial
from mutants.kernels import Mutant

ROOT = Path(__file__).parents[3] / "examples"


def absmax_norm_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of one and several rows a program, of one and several blocks, aligned and ragged."""

    def trial(m: int, n: int, block_m: int, block_n: int) -> Trial:
        return Trial({"M": m, "N": n}, dtype, {"block_m": block_m, "block_n": block_n, "num_warps": 4, "pdl": 0})

    return (
        trial(1, 1, 1, 1),
        trial(19, 97, 8, 128),
        trial(16, 128, 8, 128),
        trial(11, 523, 4, 1024),
        trial(3, 160, 1, 64),
        trial(9, 97, 1, 128),
        trial(9, 141, 1, 32),
    )


def matmul_silu_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of one element, of primes, and of rows for TMA with the result stored whole and in halves."""
    square = {
        "block_m": 64, "block_n": 64, "block_k": 32, "group_m": 2, "subtiles": 1, "programs": 3, "num_warps": 4,
        "num_stages": 2, "tma": 0, "variant": "generic",
    }  # fmt: skip
    even = {"M": 67, "N": 144, "K": 112}
    return (
        Trial({"M": 1, "N": 1, "K": 1}, dtype, square),
        Trial({"M": 67, "N": 131, "K": 97}, dtype, square),
        Trial(even, dtype, {**square, "tma": 1}),
        Trial(even, dtype, {**square, "tma": 1, "subtiles": 2}),
    )


TRIALS = {"absmax_norm": absmax_norm_trials, "matmul_silu": matmul_silu_trials}
MUTANTS: tuple[Mutant, ...] = (
    Mutant("matmul_silu", "unscaled", "z = acc * scale", "z = acc + 0.0 * scale"),
    Mutant("matmul_silu", "sigmoid_alone", "return z * tl.sigmoid(z)", "return tl.sigmoid(z)"),
    Mutant("matmul_silu", "sigmoid_of_the_unscaled_sum", "return z * tl.sigmoid(z)", "return z * tl.sigmoid(acc)"),
)

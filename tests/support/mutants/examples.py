"""Lists small trials of the row kernel in examples/kernels, for the interpreter."""

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


TRIALS = {"absmax_norm": absmax_norm_trials}
MUTANTS: tuple[Mutant, ...] = ()

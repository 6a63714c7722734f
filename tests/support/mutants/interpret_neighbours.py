"""Put NaN and infinity at the ends of gemv's rows under Triton's interpreter; run by tests/kernels/test_kernel_gemv.py.

Prints a JSON document: for the kernel and for a wrong twin the trials in which one reached another row.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parents[1])]


def stays_in_its_row(kernel: Any, trial: Any) -> bool:
    """Tell whether each row has the result that it has in float64, NaN and infinities included."""
    import torch
    from mutants.checker import fill_inputs

    inputs = fill_inputs(kernel, trial, "cpu")
    weight = inputs["weight"]
    # Of three rows one stays finite, between a last element that is infinite and a first one that is NaN.
    weight[1::3, -1], weight[2::3, 0] = float("inf"), float("nan")
    out = torch.zeros(trial.shape["N"], dtype=weight.dtype)
    kernel.implementations["triton"](inputs, out, trial.config)()
    expected, bound = kernel.reference(inputs), kernel.tolerances[trial.dtype]
    return torch.allclose(out.double(), expected, rtol=bound.rtol, atol=bound.atol, equal_nan=True)


def main() -> None:
    """Judge all trials of at least three rows and print those that fail."""
    from mutants.gemv import MUTANTS, TRIALS
    from mutants.twin import load_twin

    from ledger.kernel_files import load_kernel

    trials = [trial for dtype in ("fp16", "fp32") for trial in TRIALS["gemv"](dtype) if trial.shape["N"] > 2]
    # What it reads of the next row it multiplies by zero, so that only NaN and infinity show.
    (mutant,) = (one for one in MUTANTS if one.name == "edges_of_the_next_row")
    with tempfile.TemporaryDirectory() as folder:
        judged = {"kernel": load_kernel("gemv", launch=True).kernel, "twin": load_twin(mutant, Path(folder))}
        wrong = {
            name: [trial.id for trial in trials if not stays_in_its_row(kernel, trial)]
            for name, kernel in judged.items()
        }
    json.dump(wrong, sys.stdout)


main()

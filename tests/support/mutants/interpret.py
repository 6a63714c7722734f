"""Judge the kernels and their wrong twins under Triton's interpreter; run by tests/kernels/test_kernel_interpreter.py.

The interpreter must be asked for before triton is imported, hence a process of its own. Prints one JSON document:
{"kernel/trial": what is wrong or null} for the kernels, {"kernel/mutant": why it is rejected, or null} for the twins.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parents[1])]


def main() -> None:
    """Judge everything and print the verdicts."""
    assert os.environ.get("TRITON_INTERPRET") == "1", "the interpreter must be asked for in the environment"
    from mutants.checker import judge, rejection
    from mutants.kernels import MUTANTS
    from mutants.trials import TRIALS
    from mutants.twin import load_twin

    from ledger.kernel_files import load_kernel

    kernels: dict[str, str | None] = {}
    mutants: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, trials in TRIALS.items():
            kernel = load_kernel(name, launch=True).kernel
            # No bf16: the interpreter's bf16 arithmetic is wrong.
            for trial in (*trials("fp16", tma=True), *trials("fp32", tma=False)):
                kernels[f"{name}/{trial.id}"] = judge(kernel, trial, "cpu")
            for mutant in MUTANTS:
                if mutant.kernel == name:
                    twin = load_twin(mutant, Path(folder))
                    mutants[f"{name}/{mutant.name}"] = rejection(twin, trials("fp16", tma=True), "cpu")
    json.dump({"kernels": kernels, "mutants": mutants}, sys.stdout)


main()

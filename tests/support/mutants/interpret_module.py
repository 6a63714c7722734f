"""Judge one module's kernels and wrong twins under Triton's interpreter; run by the tests of those kernels.

The interpreter must be asked for before triton is imported, hence a process of its own. The module, named on the
command line (`mutants.rowwise`), has TRIALS (kernel -> dtype -> trials) and MUTANTS, and ROOT where the kernels are
those of another repository. Standard input is a JSON list of what to judge, `KERNEL/trial/ID` and `KERNEL/mutant/NAME`.
Prints a JSON document: for each what is wrong with the trial, or why the twin is rejected, or null.
"""

from __future__ import annotations

import importlib
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
    from mutants.twin import load_twin

    from ledger.kernel_files import load_kernel

    module = importlib.import_module(sys.argv[1])
    root = getattr(module, "ROOT", None)
    asked, verdicts = set(json.load(sys.stdin)), dict[str, str | None]()
    with tempfile.TemporaryDirectory() as folder:
        for name, trials in module.TRIALS.items():
            kernel = load_kernel(name, root, launch=True).kernel
            # No bf16: the interpreter's bf16 arithmetic is wrong.
            dtypes = [dtype for dtype in kernel.dtypes if dtype != "bf16"]
            for trial in (trial for dtype in dtypes for trial in trials(dtype)):
                if (judged := f"{name}/trial/{trial.id}") in asked:
                    verdicts[judged] = judge(kernel, trial, "cpu")
            for mutant in module.MUTANTS:
                if mutant.kernel == name and (judged := f"{name}/mutant/{mutant.name}") in asked:
                    twin = load_twin(mutant, Path(folder), root)
                    verdicts[judged] = rejection(twin, trials(dtypes[0]), "cpu")
    json.dump(verdicts, sys.stdout)


main()

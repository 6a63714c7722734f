"""Runs in a process of its own and executes an author's sealed sources, at an auditor's request, on the CPU.

Usage: python -m ledger.measure.recompute_callable JOB RESULT, where JOB is the JSON that evidence.run_code wrote.
RESULT receives, for the sampled positions, the reference's values in float64, how far each may be off, and the values
that other inputs of the same run give. Imports torch, only when called.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ledger.callables.subject import subject_of
from ledger.callables.subject_files import load_subject
from ledger.canonical import validate
from ledger.kernel_files import shipped_folder
from ledger.measure.inputs import input_sets
from ledger.measure.result_check import as_list, as_numbers
from ledger.records import CaseV2, KernelSource
from ledger.sources.rebuild import rebuild


def main(job: Path, result: Path) -> int:
    """Compute the samples of one measurement."""
    import torch

    asked = json.loads(job.read_text(encoding="utf-8"))
    case = validate(CaseV2, asked["case"], what="job")
    manifest = validate(KernelSource, asked["manifest"], what="job")
    texts = {digest: text.encode() for digest, text in asked["files"].items()}
    closure = rebuild(manifest, texts, folder=job.parent / "sources", shipped=shipped_folder("kernels"))
    kernel = load_subject(subject_of(case), closure).kernel
    sets = input_sets(
        kernel.operation, case.shape, case.dtype, seal=asked["seal"], cell=asked["cell"], run=asked["run"],
        anchor=asked["anchor"], count=2, device="cpu",
    )  # fmt: skip
    first, other = (kernel.reference(one.inputs) for one in sets)
    tolerance = kernel.tolerances[case.dtype]
    positions = torch.tensor(asked["positions"])
    allowed = [_allowed(one, tolerance.atol, tolerance.rtol) for one in first]
    found: dict[str, Any] = {
        "elements": sum(one.numel() for one in map(as_numbers, first)),
        "values": as_list(first)[positions].tolist(),
        "allowed": torch.cat(allowed)[positions].tolist(),
        "others": as_list(other)[positions].tolist(),
    }
    result.write_text(json.dumps(found), encoding="utf-8")
    return 0


def _allowed(reference: Any, atol: float, rtol: float) -> Any:
    """Return how far each element of a result may be off. Shapes: (N,) float64."""
    numbers = as_numbers(reference).reshape(-1)
    if not (reference.is_floating_point() or reference.is_complex()):
        return numbers * 0 + (1.0 if reference.element_size() == 1 else 0.0)
    scale = float(numbers.square().mean().sqrt()) or 1.0
    return atol * scale + rtol * numbers.abs()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

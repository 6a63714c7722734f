"""Compares every element of an output with the float64 reference. Imports torch, only when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Tolerance
from ledger.philox_inputs import sample_positions
from ledger.records import Correctness, Dtype, Samples

if TYPE_CHECKING:
    import torch

_MAX_SAMPLED = 2**31


def compare(out: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance, *, name: str) -> Correctness:
    """Return how far an output is from its reference; NaN anywhere never passes.

    Shapes: both equal; reference in float64. `relative_error` is ‖out - reference‖ ÷ ‖reference‖.
    """
    import torch

    if out.shape != reference.shape:
        raise InputError(f"{name}: reference has shape {tuple(reference.shape)}; expected {tuple(out.shape)}")
    error = (out.double() - reference).abs()
    allowed = tolerance.atol + tolerance.rtol * reference.abs()
    norm = float(torch.linalg.vector_norm(reference))
    distance = float(torch.linalg.vector_norm(error))
    return Correctness(
        passed=bool((error <= allowed).all()),
        reference=name,
        elements=out.numel(),
        max_abs_error=f"{float(error.max()):.6e}",
        relative_error=f"{distance / norm if norm else distance:.6e}",
        atol=f"{tolerance.atol:.6e}",
        rtol=f"{tolerance.rtol:.6e}",
    )


def explain_failure(correctness: Correctness) -> str:
    """Return one line that says why an output is wrong."""
    return (
        f"output is wrong: largest absolute error {correctness.max_abs_error}, relative error "
        f"{correctness.relative_error} over {correctness.elements} elements against {correctness.reference}; "
        f"expected at most {correctness.atol} + {correctness.rtol} times the reference"
    )


def sample(out: torch.Tensor, *, dtype: Dtype, key: tuple[int, int], count: int) -> Samples:
    """Return output elements at positions drawn from the seal, as raw bits. Raises: InputError for a huge output."""
    import numpy as np
    import torch

    if out.numel() >= _MAX_SAMPLED:
        raise InputError(f"output has {out.numel()} elements; expected fewer than {_MAX_SAMPLED} to draw samples from")
    positions = [int(p) for p in sample_positions(np.arange(count, dtype=np.int64), key=key, size=out.numel())]
    chosen = out.reshape(-1)[torch.tensor(positions, device=out.device)].cpu().contiguous()
    width = chosen.element_size()
    raw = chosen.view(torch.uint8).numpy().tobytes()
    bits = [int.from_bytes(raw[start : start + width], "little") for start in range(0, len(raw), width)]
    return Samples(dtype=dtype, positions=tuple(positions), bits=tuple(f"{one:0{2 * width}x}" for one in bits))

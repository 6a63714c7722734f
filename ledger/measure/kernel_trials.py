"""Runs one implementation of a kernel on small inputs and says what is wrong with it. Imports torch, only when called.

Inputs and output lie between guards, so that a write outside the output and a read outside an input show. The output
starts as NaN, so that an element that is never written shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.analysis.formatting import shape_text
from ledger.kernel import MOST_TOLERANCE, Config, Kernel
from ledger.measure.correctness import compare, explain_failure
from ledger.measure.inputs import input_sets, torch_dtype
from ledger.operations import Shape
from ledger.records import Dtype

if TYPE_CHECKING:
    import torch

_GUARD = 1024
_SENTINEL = 77.0
_SEED = "0" * 64


@dataclass(frozen=True)
class Trial:
    """Name one run: an implementation with its configuration, a shape and a dtype."""

    implementation: str
    config: Config
    shape: Shape
    dtype: Dtype


def generated(kernel: Kernel, shape: Shape, dtype: Dtype, *, run: int, device: str) -> dict[str, torch.Tensor]:
    """Return inputs with the distribution of a measurement, the same in each process."""
    made = input_sets(
        kernel.operation, shape, dtype, seal=_SEED, cell=kernel.name, run=run, anchor=None, count=1, device=device
    )
    return dict(next(iter(made)).inputs)


def problem_of(kernel: Kernel, trial: Trial, device: str) -> str | None:
    """Return what is wrong with a trial, or None: called twice on the same inputs and once on others."""
    import torch

    first, second = (generated(kernel, trial.shape, trial.dtype, run=run, device=device) for run in (0, 1))
    inputs = {name: _guarded(tuple(one.shape), one.dtype, device, fill=math.nan)[1] for name, one in first.items()}
    written = torch_dtype(kernel.operation.output_dtype(trial.dtype))
    whole, out = _guarded(kernel.operation.output_dims(trial.shape), written, device, fill=_SENTINEL)
    guard = whole[:_GUARD].clone()
    launch = kernel.implementations[trial.implementation](inputs, out, trial.config)
    results = []
    for values in (first, first, second):
        for name, one in values.items():
            inputs[name].copy_(one)
        out.copy_(torch.full(out.shape, math.nan, device=device))
        launch()
        results.append(out.clone())
        changed = [name for name, one in values.items() if not torch.equal(_bits(inputs[name]), _bits(one))]
        if changed:
            return f"it changes its input {changed[0]}"
        if not (torch.equal(whole[:_GUARD], guard) and torch.equal(whole[-_GUARD:], guard)):
            return "it writes outside its output"
        found = compare(out, kernel.reference(values), kernel.tolerances[trial.dtype], name="its reference")
        if not found.passed:
            again = " in a later call, on other inputs" if len(results) == 3 else ""
            return explain_failure(found) + again
    return None if torch.equal(_bits(results[0]), _bits(results[1])) else "two calls on the same inputs differ"


def element_problem(kernel: Kernel, shape: Shape, dtype: Dtype) -> str | None:
    """Return where the operation's element and the reference differ, at up to 16 positions of a small shape."""
    inputs = generated(kernel, shape, dtype, run=0, device="cpu")
    flat = {name: one.double().numpy().reshape(-1) for name, one in inputs.items()}
    expected = kernel.reference(inputs).reshape(-1)
    size = expected.numel()
    if size != math.prod(kernel.operation.output_dims(shape)):
        return f"the reference has {size} elements; expected {math.prod(kernel.operation.output_dims(shape))}"

    def read(name: str, positions: Any) -> Any:
        return flat[name][positions]

    for position in sorted({number * (size - 1) // 15 for number in range(16)}):
        got, wanted = kernel.operation.element(shape, position, read), float(expected[position])
        if not abs(got - wanted) <= 1e-9 + 1e-9 * abs(wanted):
            return f"element {position} of the operation is {got:.9g}; the reference has {wanted:.9g}"
    return None


def tolerance_problem(kernel: Kernel, shape: Shape, dtype: Dtype) -> str | None:
    """Return why a tolerance is so wide that a wrong result would pass at a shape, or None."""
    reference = kernel.reference(generated(kernel, shape, dtype, run=0, device="cpu"))
    size, bound, most = float(reference.square().mean().sqrt()), kernel.tolerances[dtype], MOST_TOLERANCE[dtype]
    for name, value, limit in (("atol", bound.atol, most * size), ("rtol", bound.rtol, most)):
        if size > 0 and value > limit:
            return (
                f"at {shape_text(shape)} {name} of {dtype} is {value:g}; expected at most {limit:.3g}, {most:g} of the "
                "reference's root mean square: with more the result of another function passes"
            )
    return None


def _guarded(dims: tuple[int, ...], dtype: Any, device: str, *, fill: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return memory with guards at both ends, and the tensor between them."""
    import torch

    size = math.prod(dims)
    # Integers have no NaN: a read outside adds what no reference holds.
    value = fill if dtype.is_floating_point or math.isfinite(fill) else _SENTINEL
    whole = torch.full((size + 2 * _GUARD,), value, device=device).to(dtype)
    return whole, whole[_GUARD : _GUARD + size].view(dims)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes: NaN equals itself, and every dtype can be compared."""
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def described(trial: Mapping[str, Any]) -> Trial:
    """Return a trial from a JSON value."""
    return Trial(str(trial["implementation"]), trial["config"], trial["shape"], trial["dtype"])

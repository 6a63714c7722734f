"""Decides whether a kernel is right on one shape: what every mutant must be rejected by.

Inputs and output lie between guards, NaN around the inputs and a sentinel around the output, so that a read or a
write outside a tensor shows; the output starts as NaN, so that an element never written shows.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ledger.measure.inputs import torch_dtype
from ledger.philox_inputs import integers_of_bytes

# More than a row of any trial with several rows a program: a write beyond the last row must hit a guard.
GUARD = 1024
SENTINEL = 12345.0


@dataclass(frozen=True)
class Trial:
    """One run to judge: a shape, a dtype, the launch configuration and a scale for the first input."""

    shape: Mapping[str, int]
    dtype: str
    config: Mapping[str, Any]
    scale: float = 1.0

    @property
    def id(self) -> str:
        """Return the trial as a readable name."""
        shape = "-".join(f"{key}{value}" for key, value in self.shape.items())
        # The whole configuration: two trials of one shape must not share a name, or one hides the other's verdict.
        config = "-".join(f"{key}{value}" for key, value in self.config.items())
        return f"{shape}-{self.dtype}-{config}-x{self.scale:g}"


def source_file(kernel: str) -> Path:
    """Return the file of a kernel's own module: kernels/NAME.py, or the __init__.py of its folder."""
    folder = Path(__file__).parents[3] / "kernels"
    single = folder / f"{kernel}.py"
    return single if single.is_file() else folder / kernel / "__init__.py"


def load_source(name: str, source: str, folder: Path) -> ModuleType:
    """Load a kernel file from text; triton reads the source back from a file, so it is written to `folder`."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"trial_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _guarded(dims: tuple[int, ...], dtype: Any, device: str, *, fill: float) -> tuple[Any, Any]:
    import torch

    size = 1
    for dim in dims:
        size *= dim
    whole = torch.full((size + 2 * GUARD,), fill, dtype=dtype, device=device)
    return whole, whole[GUARD : GUARD + size].view(dims)


def fill_inputs(kernel: Any, trial: Trial, device: str) -> dict[str, Any]:
    """Return the operation's inputs with the distribution of a measurement, each between NaN guards."""
    import torch

    generator = torch.Generator().manual_seed(20)
    inputs = {}
    for number, spec in enumerate(kernel.operation.inputs(trial.shape)):
        random = torch.randint(0, 256, spec.dims, generator=generator)
        integers = integers_of_bytes(random, spec.generated.distribution)
        values = integers.double() * 2.0**spec.generated.exponent * (trial.scale if number == 0 else 1.0)
        kind = torch_dtype(spec.dtype or trial.dtype)
        # int8 has no NaN: a read outside adds what no reference holds.
        _, inputs[spec.name] = _guarded(spec.dims, kind, device, fill=float("nan") if kind.is_floating_point else 77)
        inputs[spec.name].copy_(values)
    return inputs


def rejection(kernel: Any, trials: Iterable[Trial], device: str) -> str | None:
    """Return why a wrong twin is rejected by the first trial that rejects it, the smallest first; None for a pass."""

    def elements(trial: Trial) -> int:
        return sum(math.prod(spec.dims) for spec in kernel.operation.inputs(trial.shape))

    reasons = (judge(kernel, trial, device) for trial in sorted(trials, key=elements))
    return next((reason for reason in reasons if reason), None)


def judge(kernel: Any, trial: Trial, device: str) -> str | None:
    """Run a kernel some times, last on the first input negated, and return what is wrong, or None when it is right.

    device: on a GPU three launches on the same inputs must agree; the interpreter runs one program after another, so
    there only what a launch leaves behind can change the next, which the last launch shows.
    """
    import torch

    inputs = fill_inputs(kernel, trial, device)
    dims = kernel.operation.output_dims(trial.shape)
    written = torch_dtype(kernel.operation.output_dtype(trial.dtype))
    whole, out = _guarded(dims, written, device, fill=SENTINEL)
    launch = kernel.implementations["triton"](inputs, out, trial.config)
    results = []
    for _ in range(1 if device == "cpu" else 3):
        out.fill_(float("nan"))
        launch()
        results.append(out.clone())
    expected = kernel.reference(inputs)
    # What a launch left behind for the next shows only when the next must give another result.
    first = inputs[next(iter(inputs))]
    first.copy_((-first.double()).clamp_(max=127.0) if first.dtype == torch.int8 else -first.double())
    launch()
    opposite, expected_opposite = out.clone(), kernel.reference(inputs)
    # Cast back: the sentinel itself is rounded in bf16.
    sentinel = torch.tensor(SENTINEL, dtype=whole.dtype, device=device)
    if not (torch.all(whole[:GUARD] == sentinel) and torch.all(whole[-GUARD:] == sentinel)):
        return "it wrote outside the output"
    if torch.isnan(results[0]).any():
        return "the output has NaN: an element never written or a read outside an input"
    for other in results[1:]:
        if not torch.equal(results[0], other):
            return "two launches on the same inputs differ"
    tolerance = kernel.tolerances[trial.dtype]
    bound = tolerance.atol + tolerance.rtol * expected.abs()
    excess = (results[0].double() - expected).abs() - bound
    if excess.max() > 0:
        return f"an element is off by {excess.max().item():.3g} beyond the tolerance"
    bound = tolerance.atol + tolerance.rtol * expected_opposite.abs()
    if not ((opposite.double() - expected_opposite).abs() <= bound).all():
        return "after a launch on other inputs, the result is not that of its own inputs"
    return None

"""Holds what the tests of every further kernel share: ids, interpreted verdicts, compiled code, small references."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from compiled import Compiled, compile_ahead
from covering import covering
from loaded_kernels import load_kernel

from ledger.device.facts import target_of
from ledger.measure.inputs import torch_dtype
from ledger.records import Target

KERNELS = Path(__file__).parents[2] / "kernels"
SCRIPT = Path(__file__).parent / "mutants" / "interpret_module.py"
TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100")


def shape_id(shape: Mapping[str, int]) -> str:
    return "-".join(f"{key}{value}" for key, value in shape.items())


def gpu_dtypes(target: str, dtypes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dtype for dtype in dtypes if (dtype, target) != ("bf16", "sm_75"))


def interpreted(module: str, judged: str) -> str | None:
    """Return what is wrong with a trial, or why a wrong twin is rejected, under Triton's interpreter.

    judged: `KERNEL/trial/ID` or `KERNEL/mutant/NAME`. Raises: KeyError where the module has none of that name.
    """
    return _interpreted(module, judged in _chosen(module))[judged]


@cache
def _interpreted(module: str, chosen: bool) -> dict[str, str | None]:
    """Judge what is chosen, or all else, in a process of its own, which the interpreter needs."""
    asked = [one for one in (*_trials(module), *_mutants(module)) if (one in _chosen(module)) == chosen]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), module],
        input=json.dumps(asked), capture_output=True, text=True, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    verdicts: dict[str, str | None] = json.loads(done.stdout)
    return verdicts


@cache
def _trials(module: str) -> dict[str, tuple[Any, ...]]:
    """Return the trials to interpret by name, each with what `make test` covers in pairs."""
    found: dict[str, tuple[Any, ...]] = {}
    listed = importlib.import_module(module)
    for name, trials in listed.TRIALS.items():
        for dtype in load_kernel(name, getattr(listed, "ROOT", None)).kernel.dtypes:
            for trial in trials(dtype) if dtype != "bf16" else ():
                key = f"{name}/trial/{trial.id}"
                assert key not in found, "two trials have the same id, so one would hide the other's verdict"
                found[key] = (name, dtype, trial.scale, *trial.config.values())
    return found


@cache
def _mutants(module: str) -> list[str]:
    return [f"{mutant.kernel}/mutant/{mutant.name}" for mutant in importlib.import_module(module).MUTANTS]


@cache
def _chosen(module: str) -> set[str]:
    """Return what `make test` judges: trials by pairs, and one wrong twin in twelve."""
    trials = _trials(module)
    chosen = set(_mutants(module)[::12])
    for name in {case[0] for case in trials.values()}:
        own = [trial for trial, case in trials.items() if case[0] == name]
        chosen |= {trial for trial, kept in zip(own, covering([trials[one][1:] for one in own]), strict=True) if kept}
    return chosen


def trials_of(module: str) -> list[Any]:
    """Return parameters for `interpreted`: each trial of a module."""
    return _parameters(module, _trials(module))


def mutants_of(module: str) -> list[Any]:
    """Return parameters for `interpreted`: each wrong twin of a module."""
    return _parameters(module, _mutants(module))


def _parameters(module: str, names: Iterable[str]) -> list[Any]:
    return [
        pytest.param(name, marks=() if name in _chosen(module) else pytest.mark.exhaustive, id=name) for name in names
    ]


@cache
def compiled(name: str, items: tuple[tuple[str, int], ...], dtype: str, target: str) -> Compiled:
    """Compile a kernel as its own rule configures it."""
    kernel, shape = load_kernel(name, launch=True).kernel, dict(items)
    config = kernel.config(shape, dtype, target)  # type: ignore[arg-type]
    kernel.check_config(config, shape, dtype, target)  # type: ignore[arg-type]
    return compile_ahead(kernel, config, shape, dtype, target)


def element_errors(name: str, shape: Mapping[str, int]) -> list[float]:
    """Return how far the operation's elements, computed one by one in NumPy, are from the kernel's reference."""
    import numpy as np
    from mutants.checker import Trial, fill_inputs

    kernel = load_kernel(name).kernel
    dtype = "fp32" if "fp32" in kernel.dtypes else kernel.dtypes[0]
    inputs = fill_inputs(kernel, Trial(shape, dtype, {}), "cpu")
    flat = {key: value.double().numpy().reshape(-1) for key, value in inputs.items()}
    reference = kernel.reference(inputs).numpy().reshape(-1)

    def read(tensor: str, positions: Any) -> Any:
        return flat[tensor][np.asarray(positions)]

    return [abs(kernel.operation.element(shape, at, read) - reference[at]) for at in range(0, reference.size, 7)]


def cpu_errors(name: str, shape: Mapping[str, int], dtype: str) -> float:
    """Return by how much the CPU implementation exceeds the kernel's tolerance; not above 0 when it is right."""
    import torch
    from mutants.checker import Trial, fill_inputs

    kernel = load_kernel(name).kernel
    inputs = fill_inputs(kernel, Trial(shape, dtype, {}), "cpu")
    written = torch_dtype(kernel.operation.output_dtype(dtype))  # type: ignore[arg-type]
    out = torch.full(kernel.operation.output_dims(shape), float("nan"), dtype=written)
    kernel.implementations["torch-cpu"](inputs, out, {})()
    expected, bound = kernel.reference(inputs), kernel.tolerances[dtype]  # type: ignore[index]
    assert not torch.isnan(out).any()
    return float(((out.double() - expected).abs() - bound.atol - bound.rtol * expected.abs()).max())


def gpu_target() -> Target:
    """Return the GPU's target with its SMs, or skip the test where there is none."""
    import pytest
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return target_of(torch.cuda.current_device())


def need_hopper() -> None:
    """Skip the test where there is no GPU of sm_90, for which alone some variants are."""
    if gpu_target() != "sm_90":
        pytest.skip("the variant is for sm_90")


def gpu_variants(trial: Any, target: str) -> list[Any]:
    """Return a trial as listed and, from sm_90 up, once more with early start and TMA where its rows allow it."""
    from dataclasses import replace

    variants = [trial]
    if target in ("sm_90", "sm_100") and "pdl" in trial.config:
        variants.append(replace(trial, config={**trial.config, "pdl": 1}))
        row_bytes = trial.shape.get("D", 8) * (4 if trial.dtype == "fp32" else 2)
        if "tma" in trial.config and row_bytes % 16 == 0:
            variants.append(replace(trial, config={**trial.config, "pdl": 1, "tma": 1}))
    return variants

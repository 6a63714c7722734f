"""Judges the kernels and their wrong twins on the CPU, under Triton's interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mutants.kernels import MUTANTS
from mutants.trials import TRIALS

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("torch and triton are not both installed", allow_module_level=True)

SCRIPT = Path(__file__).parents[1] / "support" / "mutants" / "interpret.py"
TRIAL_IDS = [
    f"{name}/{trial.id}"
    for name, trials in TRIALS.items()
    for trial in (*trials("fp16", tma=True), *trials("fp32", tma=False))
]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Any]:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("trial", TRIAL_IDS)
def test_kernel_is_right_when_interpreted(verdicts: dict[str, Any], trial: str) -> None:
    assert verdicts["kernels"][trial] is None


@pytest.mark.parametrize("mutant", [f"{mutant.kernel}/{mutant.name}" for mutant in MUTANTS])
def test_checker_rejects_mutant_when_interpreted(verdicts: dict[str, Any], mutant: str) -> None:
    assert verdicts["mutants"][mutant] is not None


@pytest.mark.parametrize("kernel", list(TRIALS))
def test_kernel_in_bf16_when_interpreted(kernel: str) -> None:
    pytest.skip(f"{kernel}: the interpreter's bf16 arithmetic is wrong; test_kernel_gpu.py judges bf16")

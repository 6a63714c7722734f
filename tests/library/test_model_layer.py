"""Tests the example of a model's layer, on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]


def test_example_layer_is_right_by_itself_and_compiled():
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "examples/model_layer.py", "--rounds", "1", "--backend", "aot_eager"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    # Outputs have a deviation near 1.5; fp32 on a CPU, fp16 on a GPU.
    bound = 2e-5 if found["device"] == "cpu" else 0.05
    errors = {name: layer["max_abs_error"] for name, layer in found["layers"].items()}
    assert set(errors) == {"ledger", "ledger, compiled around the kernels", "torch", "torch.compile"}
    assert all(error <= bound for error in errors.values()), errors

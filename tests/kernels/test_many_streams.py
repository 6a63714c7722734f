"""Tests that kernels on six streams at once give the same bits, and that no launch waits for itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kernel_suite import gpu_target

SCRIPT = Path(__file__).parents[1] / "gpu" / "many_streams.py"


@pytest.mark.gpu
def test_launches_of_six_streams_at_once_end_and_give_the_same_bits() -> None:
    gpu_target()
    # A launch that waits for itself never ends: in a process of its own, with a limit.
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

"""Finds a compiler that runs CUDA C++ on a CPU, with the headers of tests/emulated."""

from __future__ import annotations

import functools
import math
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutants.checker import Trial

EMULATED = Path(__file__).parents[1] / "emulated"
COMMAND = ("-std=c++20", "-O1", "-w", "-pthread")


@functools.cache
def compiler() -> str | None:
    """Return a compiler that has std::barrier and _Float16, or None."""
    found = shutil.which("g++")
    probe = [str(found), *COMMAND, f"-I{EMULATED}", "-x", "c++", "-fsyntax-only", "-"]
    text = '#include <barrier>\n#include "cuda.h"\nint main() {}\n'
    usable = found and subprocess.run(probe, input=text, capture_output=True, text=True, check=False).returncode == 0
    return found if usable else None


needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler with std::barrier and _Float16")


def product_error(
    kernel: Any, trial: Trial, text: str, numbers: Sequence[int], folder: Path, flags: Sequence[str], *, limit_s: float
) -> float:
    """Return the largest error of a product in fp16 over its tolerance; infinite where the program fails.

    text: of the program, whose arguments are the files of A, B and the bias, and of C, then M, N, K and the numbers.
    """
    m, n, k = (trial.shape[size] for size in "MNK")
    program, given, made = folder / "program", folder / "given", folder / "made"
    (folder / "kernel.cpp").write_text(text, encoding="utf-8")
    build = [str(compiler()), *COMMAND, *flags, f"-I{EMULATED}", str(folder / "kernel.cpp"), "-o", str(program)]
    subprocess.run(build, check=True)
    random = np.random.default_rng(m * n + k)
    a, b, bias = (random.standard_normal(dims).astype(np.float16) for dims in ((m, k), (k, n), (n,)))
    # What the last row and the first column hold is nobody else's.
    a[m - 1, 0], b[k - 1, 0] = np.nan if m > 1 else 1, np.nan if n > 1 else 1
    given.write_bytes(a.tobytes() + b.tobytes() + bias.tobytes())
    command = [str(program), str(given), str(made), *map(str, (m, n, k, *numbers))]
    try:
        if subprocess.run(command, timeout=limit_s, check=False, stdout=subprocess.DEVNULL).returncode != 0:
            return math.inf
    except subprocess.TimeoutExpired:
        return math.inf
    found, exact = np.fromfile(made, np.float16).reshape(m, n).astype(float), a.astype(float) @ b.astype(float)
    if kernel.name == "matmul_bias_relu":
        exact += bias.astype(float)
        exact = np.where(exact < 0, 0.0, exact)
    if not np.array_equal(np.isnan(found), np.isnan(exact)):
        return math.inf
    bound = kernel.tolerances["fp16"]
    error = np.abs(found - exact) / (bound.atol + 1e-4 + bound.rtol * np.abs(exact))
    return float(np.nanmax(error, initial=0.0))

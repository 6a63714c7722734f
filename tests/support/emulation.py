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


def made_on_a_cpu(
    text: str, given: bytes, numbers: Sequence[float], folder: Path, flags: Sequence[str], *, limit_s: float
) -> bytes | None:
    """Return what a program writes for what it is given; None where it fails or takes longer than the limit.

    text: of the program, whose arguments are a file of what is given, a file to write, and the numbers.
    """
    program, read, written = folder / "program", folder / "given", folder / "made"
    (folder / "kernel.cpp").write_text(text, encoding="utf-8")
    build = [str(compiler()), *COMMAND, *flags, f"-I{EMULATED}", str(folder / "kernel.cpp"), "-o", str(program)]
    subprocess.run(build, check=True)
    read.write_bytes(given)
    command = [str(program), str(read), str(written), *map(str, numbers)]
    try:
        done = subprocess.run(command, timeout=limit_s, check=False, stdout=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None
    return written.read_bytes() if done.returncode == 0 else None


def product_error(
    kernel: Any,
    trial: Trial,
    text: str,
    numbers: Sequence[float],
    folder: Path,
    flags: Sequence[str],
    *,
    limit_s: float,
) -> float:
    """Return the largest error of a product over its tolerance; infinite where the program fails.

    text: of the program, whose arguments are the files of A, B and the bias, and of C, then M, N, K and the numbers.
    """
    m, n, k = (trial.shape[size] for size in "MNK")
    operands, exact = _of_one_byte(trial) if trial.dtype in ("fp8_e4m3", "int8") else _of_16_bits(kernel, trial)
    made = made_on_a_cpu(text, operands, (m, n, k, *numbers), folder, flags, limit_s=limit_s)
    if made is None:
        return math.inf
    if trial.dtype != "fp16":
        exact = exact * numbers[-1]
    found = np.frombuffer(made, np.float32 if trial.dtype == "int8" else np.float16).reshape(m, n).astype(float)
    if not np.array_equal(np.isnan(found), np.isnan(exact)):
        return math.inf
    bound = kernel.tolerances[trial.dtype]
    error = np.abs(found - exact) / (bound.atol + 1e-4 + bound.rtol * np.abs(exact))
    return float(np.nanmax(error, initial=0.0))


def _of_16_bits(kernel: Any, trial: Trial) -> tuple[bytes, Any]:
    """Return A, B and the bias in fp16, and the exact result."""
    m, n, k = (trial.shape[size] for size in "MNK")
    random = np.random.default_rng(m * n + k)
    a, b, bias = (random.standard_normal(dims).astype(np.float16) for dims in ((m, k), (k, n), (n,)))
    # What the last row and the first column hold is nobody else's.
    a[m - 1, 0], b[k - 1, 0] = np.nan if m > 1 else 1, np.nan if n > 1 else 1
    exact = a.astype(float) @ b.astype(float)
    if kernel.name == "matmul_bias_relu":
        exact += bias.astype(float)
        exact = np.where(exact < 0, 0.0, exact)
    return a.tobytes() + b.tobytes() + bias.tobytes(), exact


def _of_one_byte(trial: Trial) -> tuple[bytes, Any]:
    """Return A, B by rows and as many bytes as a bias has, and the exact sums."""
    m, n, k = (trial.shape[size] for size in "MNK")
    random = np.random.default_rng(m * n + k)
    a, b = (random.integers(0, 256, dims, dtype=np.uint8) for dims in ((m, k), (n, k)))
    values = np.arange(256, dtype=np.uint8).view(np.int8).astype(float)
    if trial.dtype == "fp8_e4m3":
        # Up to 3.75: exponents of at most 8 of 15.
        a, b = (np.where((bits & 0x78) > 0x40, bits & 0xBF, bits).astype(np.uint8) for bits in (a, b))
        a[m - 1, 0], b[0, k - 1] = 0x7F if m > 1 else 0x38, 0x7F if n > 1 else 0x38
        values = np.array([_of_e4m3(bits) for bits in range(256)])
    return a.tobytes() + b.tobytes() + bytes(n), values[a] @ values[b].T


def _of_e4m3(bits: int) -> float:
    exponent, fraction = bits >> 3 & 15, bits & 7
    if bits & 0x7F == 0x7F:
        return math.nan
    size = (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0**-9
    return -size if bits & 0x80 else size

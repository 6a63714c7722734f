"""Runs decode_attention's CUDA C++ on a CPU: its own text, with the instructions that no CPU has put into C++.

What such a run cannot show (the memory model, fences) is tested on a GPU by tests/kernels/test_kernel_attention.py.
"""

from __future__ import annotations

import functools
import math
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covering import one_in
from loaded_kernels import load_kernel
from mutants.attention import CUDA_MUTANTS
from mutants.kernels import Mutant
from mutants.twin import load_twin

EMULATED = Path(__file__).parents[1] / "emulated"
EMPTY = 0x7FFFDEAD
# One rounding to fp16 of results below 4, and of exponentials up to 256 that weigh values below 5.
TOLERANCE = 4e-3
COMMAND = ("-std=c++20", "-O1", "-w", "-pthread")
_PROBE = '#include <barrier>\n#include "cuda.h"\nint main() {}\n'


@functools.cache
def _compiler() -> str | None:
    """Return a compiler that has std::barrier and _Float16, or None."""
    for name in ("g++", "clang++"):
        found = shutil.which(name)
        if found is None:
            continue
        probe = [found, *COMMAND, f"-I{EMULATED}", "-x", "c++", "-fsyntax-only", "-"]
        if subprocess.run(probe, input=_PROBE, capture_output=True, text=True, check=False).returncode == 0:
            return found
    return None


needs_compiler = pytest.mark.skipif(_compiler() is None, reason="no C++ compiler with std::barrier and _Float16")


def _once(pattern: str, replacement: str, text: str) -> str:
    text, count = re.subn(pattern, replacement, text, flags=re.DOTALL)
    assert count == 1, f"{pattern}: found {count} times; expected once"
    return text


def _for_cpu(text: str) -> str:
    """Return the kernel's text with its inline assembly replaced by the functions of emulated/cuda.h."""
    bodies = {
        r"uint4 load_streaming\(const u16\* p\)": "uint4 x; emulated_read(&x, p); return x;",
        r"void prefetch\(const u16\* p, int bytes\)": "emulated_prefetch(p, bytes);",
        r"void mma\(.*?u32 b1\)": "emulated_mma(d, a0, a1, a2, a3, b0, b1);",
        r"u32 peer\(const void\* p, int rank\)": "return emulated_peer(p, rank);",
        r"void send\(u32 at, float2 x\)": "emulated_send(at, x);",
    }
    for head, body in bodies.items():
        text = _once(rf"(DEVICE {head}) \{{.*?\n\}}\n", rf"\1 {{ {body} }}\n", text)
    assembly = {
        r'asm volatile\("cp.async.wait_all;" ::: "memory"\);': "",
        r'asm volatile\("cp.async.cg[^;]*;"\s*:: "r"\(\(u32\)__cvta_generic_to_shared\((.*?)\)\), "l"\((.*?)\)'
        r' : "memory"\);': r"emulated_read(\1, \2);",
        r'extern "C" __global__': "__global__",
        r"extern __shared__ __align__\(16\) unsigned char memory": "unsigned char* const memory = program->memory",
        r" = program->memory\[\];": " = program->memory;",
    }
    for pattern, replacement in assembly.items():
        text = _once(pattern, replacement, text)
    assert "asm" not in text
    return text


def _error(kernel: Any, run: Run, folder: Path, *, limit_s: float = 60) -> float:
    """Return the largest error of two launches, infinite when a launch fails or leaves its workspace unready."""
    shape = run.shape
    ahead = kernel.ahead(run.config, shape, "fp16", "sm_90")
    # The header hopper.cuh is the one in emulated/.
    text = '#include "cuda.h"\n' + _for_cpu(ahead.source.text) + '#include "decode_attention.h"\n'
    program, given, made = folder / "program", folder / "given", folder / "made"
    (folder / "kernel.cpp").write_text(text, encoding="utf-8")
    defines = [f"-D{name}={value}" for name, value in ahead.source.defines]
    build = [str(_compiler()), *COMMAND, *defines, f"-I{EMULATED}", str(folder / "kernel.cpp"), "-o", str(program)]
    subprocess.run(build, check=True)
    heads, group, s, d = shape["B"] * shape["HKV"], shape["HQ"] // shape["HKV"], shape["S"], shape["D"]
    random = np.random.default_rng(7)
    q, k, v = (random.standard_normal((heads, n, d)).astype(np.float16) for n in (group, s, s))
    q *= np.float16(run.gain)
    given.write_bytes(b"".join(each.tobytes() for each in (q, k, v)))
    ctas = run.ctas or heads * run.splits
    steps, remainder = divmod(heads * -(-s // run.block_s), ctas)
    sizes = (heads, s, ctas, steps, remainder, ahead.shared_bytes)
    try:
        done = subprocess.run([program, given, made, *map(str, sizes)], timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return math.inf
    if done.returncode != 0:
        return math.inf
    results = np.fromfile(made, np.float16, 2 * q.size).reshape(2, *q.shape)
    left = np.fromfile(made, np.int32, offset=results.nbytes)
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1) / math.sqrt(d)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    expected = exponentials / exponentials.sum(-1, keepdims=True) @ v.astype(float)
    if np.isnan(results).any() or (left != EMPTY).any():
        return math.inf
    return float(np.abs(results.astype(float) - expected).max())


@dataclass(frozen=True)
class Run:
    """Hold a shape, a configuration, the CTAs of stream-K (None: the clusters' variant) and a gain."""

    sizes: tuple[int, int, int, int, int]
    splits: int
    num_warps: int
    block_s: int = 16
    ctas: int | None = None
    gain: float = 1.0

    @property
    def shape(self) -> dict[str, int]:
        return dict(zip(("B", "HQ", "HKV", "S", "D"), self.sizes, strict=True))

    @property
    def config(self) -> dict[str, int | str]:
        return {
            "variant": "cuda_cluster" if self.ctas is None else "cuda_stream_k",
            "splits": self.splits,
            "num_warps": self.num_warps,
            "block_s": self.block_s,
            "num_stages": 1,
            "pdl": 1,
            "late_trigger": 0,
            "ctas_per_sm": int(self.ctas is not None),
        }

    @property
    def id(self) -> str:
        sizes = "-".join(map(str, self.sizes))
        return f"{sizes}-splits{self.splits}-warps{self.num_warps}-keys{self.block_s}-ctas{self.ctas}"


RUNS = (
    Run((1, 1, 1, 1, 64), 1, 1),
    Run((2, 6, 2, 37, 64), 1, 2),
    Run((1, 4, 1, 70, 128), 2, 2),
    # Six of eight CTAs have no key; scores rise by more than what is left uncorrected.
    Run((1, 8, 1, 31, 64), 8, 1, gain=16.0),
    Run((1, 3, 1, 131, 128), 4, 2, 32),
    # Heads of two and three CTAs, one that ends where a CTA does, and several within one.
    Run((3, 24, 3, 90, 64), 1, 2, ctas=7, gain=16.0),
    Run((2, 8, 2, 200, 64), 1, 2, ctas=9),
    Run((2, 8, 2, 128, 64), 1, 1, ctas=4),
    Run((1, 2, 1, 160, 64), 1, 1, ctas=10),
    Run((9, 9, 9, 33, 64), 1, 4, ctas=4),
    Run((5, 15, 5, 50, 64), 1, 1, 32, ctas=3),
)


@needs_compiler
@pytest.mark.parametrize("run", one_in(4, RUNS, lambda run: run.id))
def test_attention_in_cuda_is_right_on_a_cpu(run: Run, tmp_path: Path) -> None:
    kernel = load_kernel("decode_attention", launch=True).kernel
    # Hundreds of threads that wait for one another: seconds on idle cores, more than a minute on busy ones.
    assert _error(kernel, run, tmp_path, limit_s=600) < TOLERANCE


@needs_compiler
@pytest.mark.parametrize("case", one_in(8, CUDA_MUTANTS, lambda case: case[1].name))
def test_a_wrong_twin_of_attention_in_cuda_shows_on_a_cpu(case: tuple[str, Mutant], tmp_path: Path) -> None:
    run, mutant = RUNS[case[0]], case[1]
    assert _error(load_twin(mutant, tmp_path), run, tmp_path) > TOLERANCE

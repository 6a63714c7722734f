"""Tests products of few rows that read B by residues of its rows: on a CPU, as compiled ahead of time, and on a GPU.

A CPU runs the text of the CUDA C++ with the TMA, mbarriers and wgmma put into C++ (tests/emulated/tma.h).
"""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from compiled import compile_ahead
from covering import one_in
from emulation import COMMAND, compiler, needs_compiler, product_error
from kernel_suite import need_hopper, shape_id
from loaded_kernels import load_kernel
from mutants.checker import Trial, fill_inputs, judge
from mutants.kernels import Mutant
from mutants.residues import KERNELS, MUTANTS, residues_trials
from mutants.twin import load_twin

from ledger.errors import InputError
from ledger.kernels.common.gemm_residues import residues_bytes, tile_rows

HEADER = """#include <map>
#include <mutex>
#include "cuda.h"
#include "hopper.cuh"
#include "tma.h"
static float low(u32 two) { return of_half(two & 0xffff); }
"""
# What only assembly can say -> what does it on a CPU.
REPLACED = {
    r"(void load_sums\(.*?\)) \{.*?\n\}": r"\1 { memcpy(v, program->cluster->programs[rank].memory + from, 16); }",
    r"(void multiplying_barrier\(\)) \{.*?\}\n": r"\1 { barrier_of(MULTIPLYING); }\n",
    r"extern __shared__[^;]*;": "unsigned char* memory = program->memory;",
    r"shared\(memory\)": "0",
}
COPY = Path(__file__).parents[2] / "kernels" / "common" / "gather_rows.cu"


def _for_cpu(product: str, copy: str) -> str:
    """Return the text of both kernels with what no CPU has replaced."""
    for text, instead in REPLACED.items():
        product, count = re.subn(text, instead, product, flags=re.DOTALL)
        assert count == 1, f"{text}: found {count} times; expected once"
    assert "asm" not in product + copy
    product = product.replace("__grid_constant__", "")
    text = f"namespace gather {{\n{copy}\n}}\n{product}"
    text = re.sub(r'#include "(hopper.cuh|wgmma.h)"', "", text).replace('extern "C" __global__', "static")
    return HEADER + text + '#include "residues.h"\n'


def _maps(trial: Trial, classes: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return of each class the first element, rows, columns and pitch of its tensor map."""
    torch = pytest.importorskip("torch")
    residues = pytest.importorskip("ledger.kernels.common.gemm_residues")
    monkeypatch.setattr(residues, "tensor_map", lambda tensor, box, *, promotion: tensor)
    b = torch.empty(trial.shape["K"], trial.shape["N"], dtype=torch.float16)
    found = [(t.storage_offset(), *t.shape, t.stride(0)) for t in residues._maps_of_classes(b, classes)]
    assert all(first % 8 == 0 and pitch % 8 == 0 for first, *_, pitch in found)
    return [number for one in found for number in one]


def _error(
    kernel: Any, trial: Trial, folder: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...] = ()
) -> float:
    """Return the largest error in fp16 over its tolerance; infinite where the program fails."""
    ahead = kernel.ahead(trial.config, trial.shape, "fp16", "sm_90")
    defines = dict(ahead.source.defines)
    classes = int(defines["CLASSES"])
    steps = math.ceil(math.ceil(trial.shape["K"] / classes) / 64)
    rows = tile_rows(trial.config, trial.shape["M"])
    numbers = (ahead.shared_bytes, steps, rows, *_maps(trial, classes, monkeypatch))
    macros = [f"-D{name}={value}" for name, value in defines.items()]
    text = _for_cpu(ahead.source.text, COPY.read_text())
    return product_error(kernel, trial, text, numbers, folder, (*flags, *macros), limit_s=300 if flags else 60)


TRIALS = [
    pytest.param(name, at, id=f"{name}-{shape_id(trial.shape)}", marks=pytest.mark.exhaustive if at % 2 else ())
    for name in KERNELS
    for at, trial in enumerate(residues_trials(name, "fp16"))
    if name == "matmul" or at % 3 == 1
]


@needs_compiler
@pytest.mark.parametrize(("name", "at"), TRIALS)
def test_residues_are_right_on_a_cpu(name: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = residues_trials(name, "fp16")[at]
    assert _error(load_kernel(name, launch=True).kernel, trial, tmp_path, monkeypatch) <= 1


@needs_compiler
@pytest.mark.parametrize("mutant", one_in(6, MUTANTS, lambda mutant: mutant.name))
def test_a_wrong_twin_of_residues_shows_on_a_cpu(
    mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials, twin = residues_trials(mutant.kernel, "fp16"), load_twin(mutant, tmp_path)
    assert any(_error(twin, trials[at], tmp_path, monkeypatch) > 1 for at in (2, 1, 3, 4, 12, 18))


TSAN = ("-fsanitize=thread",)
# Takes the barrier away that stands between the sums of all warps and the result.
UNORDERED = Mutant(
    "matmul", "residues_without_a_barrier", "    barrier_of_all();\n    // Four", "    // Four",
    file="common/gemm_residues.cu",
)  # fmt: skip


def _need_thread_sanitizer(folder: Path) -> None:
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() {}", encoding="utf-8")
    build = [str(compiler()), *COMMAND, *TSAN, str(source), "-o", str(program)]
    if any(subprocess.run(command, check=False, capture_output=True).returncode for command in (build, [str(program)])):
        pytest.skip("this machine builds or runs nothing under ThreadSanitizer")


@needs_compiler
@pytest.mark.parametrize("at", one_in(5, (0, 2, 6, 7, 10, 13, 4, 8, 12, 14), str))
def test_threads_of_residues_do_not_race(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _need_thread_sanitizer(tmp_path)
    trial = residues_trials("matmul", "fp16")[at]
    assert _error(load_kernel("matmul", launch=True).kernel, trial, tmp_path, monkeypatch, TSAN) <= 1


@needs_compiler
def test_a_race_of_residues_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _need_thread_sanitizer(tmp_path)
    trial = residues_trials("matmul", "fp16")[7]
    assert _error(load_twin(UNORDERED, tmp_path), trial, tmp_path, monkeypatch, TSAN) == math.inf


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"block_m": 60}, "a multiple of 8 rows, at most 256 by 64, 192 by 128"),
        ({"block_n": 256}, "at most 256 by 64, 192 by 128, 128 by 192"), ({"block_m": 264}, "at most 256 by 64"),
        ({"split_k": 9}, "expected split_k 1, 2, 3, 4, 5, 6, 7, 8, 16"), ({"num_stages": 1}, "2 to 12 stages"),
        ({"num_warps": 2}, "num_warps"), ({"tma": 0}, "tma 1"), ({"pdl": 2}, "pdl is 2"), ({"num_stages": 3}, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", KERNELS)
def test_residues_config_is_refused(name: str, edit: dict[str, Any], says: str | None) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": 60, "N": 4097, "K": 4096}
    config = {**residues_trials(name, "bf16")[0].config, "block_m": 64, **edit}
    if says is None:
        kernel.check_config(config, shape, "bf16", "sm_90")
        return
    with pytest.raises(InputError, match=says):
        kernel.check_config(config, shape, "bf16", "sm_90")


@pytest.mark.parametrize(("columns", "nbytes"), [(512, 4 * 32768 + 64), (515, 4 * 32768 + 4 * 128 * 132 + 64)])
def test_sums_of_one_class_lie_where_the_stages_were(columns: int, nbytes: int) -> None:
    config = {"block_m": 128, "block_n": 128, "block_k": 64, "num_stages": 4}
    assert residues_bytes(config, columns) == nbytes


@pytest.mark.parametrize(("m", "k", "dtype"), [(60, 7, "bf16"), (60, 4096, "fp32")])
def test_residues_are_not_for_short_k_or_fp32(m: int, k: int, dtype: Any) -> None:
    kernel, config = load_kernel("matmul").kernel, residues_trials("matmul", "bf16")[0].config
    with pytest.raises(InputError, match="expected K at least 8 and fp16 or bf16"):
        kernel.check_config({**config, "block_m": 128}, {"M": m, "N": 4097, "K": k}, dtype, "sm_90")


@pytest.mark.parametrize("name", KERNELS)
def test_residues_multiply_by_wgmma_and_do_not_spill(name: str) -> None:
    pytest.importorskip("triton")
    kernel = load_kernel(name, launch=True).kernel
    for trial in residues_trials(name, "bf16")[::3]:
        made = compile_ahead(kernel, trial.config, trial.shape, "bf16", "sm_90")
        assert made.stack == 0
        assert "wgmma.mma_async" in made.ptx


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", KERNELS)
def test_residues_are_right_on_a_gpu(name: str, dtype: str) -> None:
    need_hopper()
    kernel = load_kernel(name, launch=True).kernel
    wrong = {trial.id: judge(kernel, trial, "cuda") for trial in residues_trials(name, dtype)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(7, 515, 1031), (64, 130, 512), (33, 777, 66), (128, 1026, 4100)])
def test_residues_keep_special_values_to_themselves(shape: tuple[int, int, int]) -> None:
    """The same as other ways to compute it: NaN and infinity reach only their own rows and columns."""
    need_hopper()
    import torch

    kernel = load_kernel("matmul", launch=True).kernel
    m, n, k = shape
    whole = {"M": m, "N": n, "K": k}
    inputs = fill_inputs(kernel, Trial(whole, "bf16", {}), "cuda")
    a, b = inputs["a"], inputs["b"]
    a[2, 0], a[4, k - 1], b[k // 2, n - 1], b[0, 0] = float("nan"), float("inf"), float("inf"), float("nan")
    a[5] = 0.0
    out = torch.full((m, n), 12.0, dtype=torch.bfloat16, device="cuda")
    config = {**residues_trials("matmul", "bf16")[2].config, "block_m": 8 * math.ceil(m / 8), "num_stages": 3}
    kernel.check_config(config, whole, "bf16", "sm_90")
    kernel.implementations["triton"]({"a": a, "b": b}, out, config)()
    out, exact = out.double(), a.double() @ b.double()
    assert torch.equal(out.isfinite(), exact.isfinite())
    kept = exact.isfinite()
    torch.testing.assert_close(out[kept], exact[kept], atol=1e-3, rtol=4e-3)

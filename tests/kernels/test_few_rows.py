"""Tests products of few rows whose rows TMA cannot address: on a CPU, as compiled ahead of time, and on a GPU.

A CPU runs the text of the CUDA C++ with the instructions that no CPU has put into C++.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from compiled import compile_ahead
from covering import one_in
from emulation import needs_compiler, product_error
from kernel_suite import need_hopper, shape_id
from loaded_kernels import load_kernel
from mutants.checker import Trial, fill_inputs, judge
from mutants.few_rows import BEYOND_THE_MATRIX, KERNELS, MUTANTS, few_rows_trials
from mutants.kernels import Mutant
from mutants.twin import load_twin

from ledger.errors import InputError

BODIES = {
    "void copy_vector": "need_readable((void*)from, 16); memcpy(program->memory + to, (void*)from, 16);",
    # The machine code names 16 bytes that end 16 behind those copied.
    "void copy_first": "need_readable((void*)from, 32 - bytes); memset(program->memory + to, 0, 16);"
    " memcpy(program->memory + to, (void*)from, bytes);",
    "void copy_word": "need_readable((void*)from, from % 4 ? 1 << 30 : 4);"
    " memcpy(program->memory + to, (void*)from, 4);",
    "void store_zeros": "memset(program->memory + to, 0, 16);",
    "void store_word": "memcpy(program->memory + to, &word, 4);",
    "u32 load_element": "need_readable((void*)from, 2); return *(const u16*)from;",
    "u32 load_two": "u16 two[2]; memcpy(two, program->memory + first, 2); memcpy(two + 1, program->memory + second, 2);"
    " return two[0] | two[1] << 16;",
    "void multiply": "emulated_mma(c, a[0], a[1], a[2], a[3], b0, b1);",
    "float load_sum": "float v; memcpy(&v, program->cluster->programs[rank].memory + from, 4); return v;",
}
HEADER = """#include "cuda.h"
#include "hopper.cuh"
typedef unsigned long long u64;
static u32 load_word(u32 from) { u32 v; memcpy(&v, program->memory + from, 4); return from % 4 ? 0x7e007e00 : v; }
static void load_matrices(u32* to, u32 from) {
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) {
        u32 row;
        for (int source = 0; source < 32; ++source) {
            const u32 at = __float_as_uint(exchanged(__uint_as_float(from), source));
            if (source == 8 * i + lane / 4) row = at;
        }
        memcpy(to + i, program->memory + row + 4 * (lane % 4), 4);
    }
}
static float low(u32 two) { return of_half(two & 0xffff); }
"""


def _for_cpu(text: str) -> str:
    """Return the kernel's text with its assembly replaced, and its header."""
    for head, body in BODIES.items():
        text, count = re.subn(rf"(DEVICE {head}\(.*?\)) \{{.*?\n\}}\n", rf"\1 {{ {body} }}\n", text, flags=re.DOTALL)
        assert count == 1, f"{head}: found {count} times; expected once"
    text = re.sub(r'asm volatile\("cp\.async[^;]*;"[^;]*;', "", text)
    assert "asm" not in text
    text = text.replace("extern __shared__ __align__(128) unsigned char memory[];", "u8* memory = program->memory;")
    text = (
        text.replace("shared(memory)", "0").replace('extern "C" __global__', "static").replace("u8*", "unsigned char*")
    )
    return HEADER + text.replace('#include "hopper.cuh"', "") + '#include "few_rows.h"\n'


def _error(kernel: Any, trial: Trial, folder: Path) -> float:
    """Return the largest error in fp16 over its tolerance; infinite where the program fails."""
    ahead = kernel.ahead(trial.config, trial.shape, "fp16", "sm_90")
    defines = dict(ahead.source.defines)
    macros = [f"-D{name}={value}" for name, value in {**defines, "SHIFT": int(defines["A_LOADS"] == "2")}.items()]
    text = _for_cpu(ahead.source.text)
    return product_error(kernel, trial, text, [ahead.shared_bytes], folder, macros, limit_s=120)


TRIALS = [
    pytest.param(name, at, id=f"{name}-{shape_id(trial.shape)}", marks=pytest.mark.exhaustive if at % 2 == 0 else ())
    for name in KERNELS
    for at, trial in enumerate(few_rows_trials(name, "fp16"))
    if trial.shape["N"] * trial.shape["K"] <= 100_000 and (name == "matmul" or at % 3 == 1)
]


@needs_compiler
@pytest.mark.parametrize(("name", "at"), TRIALS)
def test_few_rows_are_right_on_a_cpu(name: str, at: int, tmp_path: Path) -> None:
    assert _error(load_kernel(name, launch=True).kernel, few_rows_trials(name, "fp16")[at], tmp_path) <= 1


@needs_compiler
@pytest.mark.parametrize("mutant", one_in(8, (*MUTANTS, BEYOND_THE_MATRIX), lambda mutant: mutant.name))
def test_a_wrong_twin_of_few_rows_shows_on_a_cpu(mutant: Mutant, tmp_path: Path) -> None:
    trials = few_rows_trials(mutant.kernel, "fp16")
    twin = load_twin(mutant, tmp_path)
    assert any(_error(twin, trials[at], tmp_path) > 1 for at in (1, 2, 3))


@pytest.mark.parametrize(
    ("shape", "dtype", "variant"),
    [
        ((1, 2049, 1000), "fp16", "few_rows"), ((1, 4097, 1000), "fp16", "residues"),
        ((1, 4097, 4096), "fp16", "residues"), ((40, 567, 300), "bf16", "few_rows"),
        ((64, 4100, 1000), "bf16", "residues"), ((128, 4100, 4096), "bf16", "residues"),
        ((129, 4100, 4096), "bf16", "residues"), ((257, 4100, 4096), "bf16", "cuda"),
        ((400, 500, 4096), "bf16", "residues"), ((288, 12288, 66), "fp16", "residues"),
        ((288, 4096, 66), "fp16", "generic"), ((200, 1344, 9000), "fp16", "split_k"),
        ((200, 2048, 9000), "fp16", "split_k"), ((700, 2048, 9000), "fp16", "cuda"),
        ((64, 4100, 4096), "fp32", "generic"), ((40, 4104, 1001), "bf16", "residues"),
        ((8, 1024, 4096), "bf16", "split_k"), ((8, 1024, 512), "bf16", "cuda"),
    ],
)  # fmt: skip
def test_rule_takes_unaligned_rows_as_they_lie(shape: tuple[int, int, int], dtype: Any, variant: str) -> None:
    kernel = load_kernel("matmul").kernel
    config = kernel.config(dict(zip("MNK", shape, strict=True)), dtype, "sm_90")
    assert config["variant"] == variant
    kernel.check_config(config, dict(zip("MNK", shape, strict=True)), dtype, "sm_90")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"block_m": 56}, "a multiple of 8 from M to 128"), ({"block_m": 136}, "a multiple of 8"),
        ({"split_k": 3}, "expected split_k 1, 2, 4, 8, 16"), ({"num_stages": 2}, "3 to 10 stages"),
        ({"num_warps": 4}, "num_warps 8"), ({"tma": 1}, "tma 0"), ({"pdl": 2}, "pdl is 2"),
        ({"num_stages": 7, "block_m": 64}, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", KERNELS)
def test_few_rows_config_is_refused(name: str, edit: dict[str, Any], says: str | None) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": 60, "N": 4097, "K": 4096}
    config = {**few_rows_trials(name, "bf16")[3].config, **edit}
    if says is None:
        kernel.check_config(config, shape, "bf16", "sm_90")
        return
    with pytest.raises(InputError, match=says):
        kernel.check_config(config, shape, "bf16", "sm_90")


def test_few_rows_are_not_for_many_or_for_fp32() -> None:
    kernel = load_kernel("matmul").kernel
    config = few_rows_trials("matmul", "bf16")[3].config
    for m, dtype in ((129, "bf16"), (60, "fp32")):
        with pytest.raises(InputError, match="expected at most 128 rows in fp16 or bf16"):
            kernel.check_config(config, {"M": m, "N": 4097, "K": 4096}, dtype, "sm_90")


@pytest.mark.parametrize(
    ("dtype", "step"),
    [("fp16", 4), *(pytest.param(dtype, 1, marks=pytest.mark.exhaustive) for dtype in ("fp16", "bf16"))],
)
@pytest.mark.parametrize("name", KERNELS)
def test_few_rows_multiply_by_tensor_cores_and_do_not_spill(name: str, dtype: str, step: int) -> None:
    pytest.importorskip("triton")
    kernel = load_kernel(name, launch=True).kernel
    for trial in few_rows_trials(name, dtype)[2::step]:
        made = compile_ahead(kernel, trial.config, trial.shape, dtype, "sm_90")
        assert made.stack == 0 and made.registers <= (128 if trial.config["block_m"] <= 64 else 255)
        assert "mma.sync.aligned.m16n8k16" in made.ptx


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", KERNELS)
def test_few_rows_are_right_on_a_gpu(name: str, dtype: str) -> None:
    need_hopper()
    kernel = load_kernel(name, launch=True).kernel
    wrong = {trial.id: judge(kernel, trial, "cuda") for trial in few_rows_trials(name, dtype)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_twin_of_few_rows_shows_on_a_gpu(mutant: Mutant, tmp_path: Path) -> None:
    need_hopper()
    twin = load_twin(mutant, tmp_path)
    assert any(judge(twin, trial, "cuda") for trial in few_rows_trials(mutant.kernel, "fp16"))


@pytest.mark.gpu
@pytest.mark.parametrize("offset", [0, 1, 2, 8])
@pytest.mark.parametrize("shape", [(7, 515, 1031), (64, 130, 512), (33, 777, 66)])
def test_few_rows_of_tensors_at_any_element_keep_special_values_to_themselves(
    shape: tuple[int, int, int], offset: int
) -> None:
    """The same as other ways to compute it: NaN and infinity reach only their own rows and columns."""
    need_hopper()
    import torch

    kernel = load_kernel("matmul", launch=True).kernel
    m, n, k = shape
    whole = {"M": m, "N": n, "K": k}
    inputs = fill_inputs(kernel, Trial(whole, "bf16", {}), "cuda")
    a, b = (torch.empty(t.numel() + 8, dtype=t.dtype, device="cuda")[offset:][: t.numel()].view(t.shape).copy_(t)
            for t in (inputs["a"], inputs["b"]))  # fmt: skip
    a[2, 0], a[4, k - 1], b[k // 2, n - 1], b[0, 0] = float("nan"), float("inf"), float("inf"), float("nan")
    a[5] = 0.0
    out = torch.full((m, n), 12.0, dtype=torch.bfloat16, device="cuda")
    config = {**few_rows_trials("matmul", "bf16")[3].config, "block_m": 64, "split_k": 2}
    kernel.implementations["triton"]({"a": a, "b": b}, out, config)()
    out, exact = out.double(), a.double() @ b.double()
    assert torch.equal(out.isfinite(), exact.isfinite())
    kept = exact.isfinite()
    torch.testing.assert_close(out[kept], exact[kept], atol=1e-3, rtol=4e-3)

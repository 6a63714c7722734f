"""Tests the fp8 product with scales of blocks: its model, results, and what the compiler makes of it.

The interpreter rounds bf16 wrongly: results of the variant in Triton are judged on a GPU.
"""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from typing import Any

import pytest
from compiled import compile_ahead
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_suite import cpu_errors, element_errors, need_hopper
from loaded_kernels import load_kernel
from mutants.checker import Trial, fill_inputs, judge
from mutants.fp8_blocks import CUDA_MUTANTS, MUTANTS, NAME, cuda_trials, generic_trials
from mutants.kernels import Mutant
from mutants.twin import load_twin

from ledger.errors import InputError
from ledger.records import Work

DTYPE: Any = "fp8_e4m3"
SHAPE = {"M": 130, "N": 257, "K": 300}
needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="torch and triton are not both installed",
)


def test_work_is_as_worked_by_hand() -> None:
    # 2·130·257·300 operations; 130·300 + 257·300 bytes, 3·130 scales of A and 3·3 of B; 2 bytes an element of C.
    work = Work(flops=20_046_000, bytes_read=116_100 + 4 * (390 + 9), bytes_written=66_820)
    assert load_kernel(NAME).kernel.work(SHAPE, DTYPE) == work


@pytest.mark.parametrize("target", ["sm_89", "sm_90", "sm_100"])
@settings(max_examples=40)
@given(m=st.integers(1, 70_000), n=st.integers(1, 70_000), k=st.integers(1, 70_000))
def test_rule_gives_what_the_architecture_can_run(target: str, m: int, n: int, k: int) -> None:
    kernel, shape = load_kernel(NAME).kernel, {"M": m, "N": n, "K": k}
    kernel.check_config(kernel.config(shape, DTYPE, target), shape, DTYPE, target)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"block_n": 192}, "192 x 128"), ({"cluster_n": 2}, "cluster_n 1"), ({"num_stages": 9}, "shared memory"),
        ({"num_stages": 2}, "num_stages is 2; expected at least 3"),
        ({"variant": "portable"}, "variant is portable"), ({"variant": "generic"}, "generic with block_k 128, tma 0"),
        ({"programs": 0}, "at least 1"), ({"block_m": 96}, "64, 128 or 192"), ({"warps": 8}, "configuration keys"),
    ],
)  # fmt: skip
def test_config_is_refused(edit: dict[str, Any], says: str) -> None:
    kernel = load_kernel(NAME).kernel
    config = kernel.config({"M": 4096, "N": 4096, "K": 4096}, DTYPE, "sm_90")
    with pytest.raises(InputError, match=says):
        kernel.check_config({**config, **edit}, SHAPE, DTYPE, "sm_90")


@pytest.mark.parametrize("target", ["sm_75", "sm_80"])
def test_rule_refuses_a_target_without_the_instructions(target: str) -> None:
    with pytest.raises(InputError, match=target):
        load_kernel(NAME).kernel.config(SHAPE, DTYPE, target)


@needs_triton
def test_reference_is_the_operation_and_the_cpu_is_within_the_tolerance() -> None:
    assert max(element_errors(NAME, SHAPE)) < 1e-12
    assert cpu_errors(NAME, SHAPE, DTYPE) <= 1


@needs_triton
@pytest.mark.parametrize("target", ["sm_89", "sm_100"])
def test_generic_variant_compiles_and_does_not_spill(target: str) -> None:
    kernel = load_kernel(NAME, launch=True).kernel
    assert compile_ahead(kernel, kernel.config(SHAPE, DTYPE, target), SHAPE, DTYPE, target).stack == 0


@needs_triton
def test_cuda_cpp_multiplies_by_wgmma_and_does_not_spill() -> None:
    kernel = load_kernel(NAME, launch=True).kernel
    for trial in cuda_trials(DTYPE):
        kernel.check_config(trial.config, trial.shape, DTYPE, "sm_90")
        made = compile_ahead(kernel, trial.config, trial.shape, DTYPE, "sm_90")
        assert made.stack == 0
        assert re.search(
            rf"wgmma\.mma_async\.sync\.aligned\.m64n{trial.config['block_n']}k32\.f32\.e4m3\.e4m3", made.ptx
        )
        assert (".multicast::cluster" in made.ptx) == (trial.config["cluster_m"] > 1)


@needs_triton
@pytest.mark.parametrize("mutant", CUDA_MUTANTS, ids=lambda mutant: mutant.name)
def test_wrong_twin_of_the_cuda_cpp_compiles(mutant: Mutant, tmp_path: Path) -> None:
    # A twin whose edit no longer applies, or that cannot be compiled, shows nothing on a GPU.
    trial = cuda_trials(DTYPE)[0]
    assert compile_ahead(load_twin(mutant, tmp_path), trial.config, trial.shape, DTYPE, "sm_90").ptx


@pytest.mark.gpu
def test_kernel_is_right_on_a_gpu() -> None:
    need_hopper()
    kernel = load_kernel(NAME, launch=True).kernel
    own = [Trial(shape, DTYPE, kernel.config(shape, DTYPE, "sm_90")) for shape in kernel.cases if shape["M"] <= 4096]
    wrong = {one.id: judge(kernel, one, "cuda") for one in (*generic_trials(DTYPE), *cuda_trials(DTYPE), *own)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", (*MUTANTS, *CUDA_MUTANTS), ids=lambda mutant: mutant.name)
def test_checker_rejects_mutant(mutant: Mutant, tmp_path: Path) -> None:
    need_hopper()
    twin, trials = load_twin(mutant, tmp_path), generic_trials if mutant in MUTANTS else cuda_trials
    assert any(judge(twin, trial, "cuda") for trial in trials(DTYPE))


SPECIAL = {"M": 300, "N": 272, "K": 528}


def _special_values(device: str) -> dict[str, Any]:
    """Return inputs with NaN in A, B and the scales, infinite scales, and a row and a column of zeros."""
    inputs = fill_inputs(load_kernel(NAME).kernel, Trial(SPECIAL, DTYPE, {}), device)
    a, b, a_scale, b_scale = (inputs[name] for name in ("a", "b", "a_scale", "b_scale"))
    a_scale[2, 7], b_scale[2, 1], a[13, 3], b[100, 527] = math.nan, math.nan, math.nan, math.nan
    # Of a block with one product no rounding decides on which side of zero its sum is.
    a[9, :128], a[9, 5], a_scale[0, 9] = 0.0, 1.0, math.inf
    a[21, 512:], a[21, 520], a_scale[4, 21] = 0.0, -2.0, -math.inf
    a[11], b[17] = 0.0, 0.0
    return inputs


def _by_formula(inputs: dict[str, Any]) -> Any:
    """Return the result in float64, each element as the formula of the kernel's docstring reads."""
    import numpy as np

    a, b, a_scale, b_scale = (inputs[name].double().cpu().numpy() for name in ("a", "b", "a_scale", "b_scale"))
    total = np.zeros((SPECIAL["M"], SPECIAL["N"]))
    with np.errstate(invalid="ignore"):
        for j in range(a_scale.shape[0]):
            block = slice(128 * j, 128 * (j + 1))
            scales = a_scale[j][:, None] * b_scale[np.arange(SPECIAL["N"]) // 128, j][None, :]
            total += scales * np.einsum("mk,nk->mn", a[:, block], b[:, block])
    return total


def _places(values: Any) -> Any:
    """Return which elements are NaN, infinite above and below zero, and finite."""
    import torch

    found = torch.as_tensor(values).double().cpu()
    return torch.where(found.isfinite(), 1.0, found.nan_to_num(2.0, 3.0, 4.0))


@needs_triton
def test_special_values_follow_the_formula_on_a_cpu() -> None:
    import torch

    kernel, inputs = load_kernel(NAME).kernel, _special_values("cpu")
    wanted = _places(_by_formula(inputs))
    out = torch.empty((SPECIAL["M"], SPECIAL["N"]), dtype=torch.bfloat16)
    kernel.implementations["torch-cpu"](inputs, out, {})()
    for found in (kernel.reference(inputs), out):
        assert torch.equal(_places(found), wanted)
    # NaN fills its own rows and column; an infinite scale gives the sign of a block's sum, and NaN where that is zero.
    rest = [at for at in range(300) if at not in (7, 9, 13, 21)]
    assert (wanted[[7, 13]] == 2).all() and (wanted[:, [100, *range(256, 272)]] == 2).all()
    assert (wanted[rest][:, :100] == 1).all() and (wanted[rest][:, 101:256] == 1).all()
    assert wanted[9, 17] == wanted[21, 17] == 2 and {3.0, 4.0} <= set(wanted[9].tolist())
    assert (out[11, :100] == 0).all() and (out[rest][:, 17] == 0).all()


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["own", "few", "stream", "generic"])
def test_special_values_stay_in_their_rows_and_columns(variant: str) -> None:
    need_hopper()
    import torch

    kernel, inputs = load_kernel(NAME, launch=True).kernel, _special_values("cuda")
    cuda = cuda_trials(DTYPE)
    config = {
        "own": kernel.config(SPECIAL, DTYPE, "sm_90"), "few": cuda[6].config, "stream": cuda[3].config,
        "generic": generic_trials(DTYPE)[0].config,
    }[variant]  # fmt: skip
    out = torch.full((300, 272), 12.0, dtype=torch.bfloat16, device="cuda")
    kernel.implementations["triton"](inputs, out, config)()
    exact = kernel.reference(inputs)
    assert torch.equal(_places(out), _places(exact))
    kept = exact.isfinite()
    torch.testing.assert_close(out.double()[kept], exact[kept], atol=1e-3, rtol=4e-3)

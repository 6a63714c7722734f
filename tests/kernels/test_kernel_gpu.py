"""Judges the kernels and their wrong twins on a GPU, in every dtype it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mutants.checker import Trial, judge
from mutants.kernels import CLUSTER_MUTANTS, COPY_MUTANTS, MUTANTS, PIPELINED_MUTANTS, Mutant
from mutants.trials import CLUSTER_TRIALS, PIPELINED_TRIALS, TRIALS, many_tiles_trial
from mutants.twin import load_twin

from ledger.kernel_files import load_kernel

pytestmark = pytest.mark.gpu

DTYPES = ("fp16", "bf16", "fp32")
SHAPES = {name: load_kernel(name).kernel.cases for name in TRIALS}


def _target() -> str:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def _skip_absent(dtype: str, target: str) -> None:
    if dtype == "bf16" and target == "sm_75":
        pytest.skip("sm_75 has no bf16")


def _kernel(name: str) -> Any:
    return load_kernel(name, launch=True).kernel


def _shape_id(shape: Any) -> str:
    return "-".join(f"{key}{value}" for key, value in shape.items())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "shape"),
    [pytest.param(name, shape, id=f"{name}-{_shape_id(shape)}") for name, shapes in SHAPES.items() for shape in shapes],
)
def test_kernel_is_right_with_its_own_config(name: str, shape: Any, dtype: Any) -> None:
    target = _target()
    _skip_absent(dtype, target)
    kernel = _kernel(name)
    config = kernel.config(shape, dtype, target)
    kernel.check_config(config, shape, dtype, target)
    assert judge(kernel, Trial(shape, dtype, config), "cuda") is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(TRIALS))
def test_kernel_is_right_on_small_trials(name: str, dtype: str) -> None:
    target = _target()
    _skip_absent(dtype, target)
    tma = target in ("sm_90", "sm_100") and dtype != "fp32"
    wrong = {trial.id: judge(_kernel(name), trial, "cuda") for trial in TRIALS[name](dtype, tma=tma)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.parametrize("dtype", ("fp16", "bf16"))
@pytest.mark.parametrize("name", list(PIPELINED_TRIALS))
def test_pipelined_kernel_is_right_on_small_trials(name: str, dtype: str) -> None:
    if _target() != "sm_90":
        pytest.skip(f"{_target()}: the pipelined kernel is for sm_90")
    wrong = {trial.id: judge(_kernel(name), trial, "cuda") for trial in PIPELINED_TRIALS[name](dtype)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.parametrize("mutant", PIPELINED_MUTANTS, ids=lambda mutant: mutant.name)
def test_checker_rejects_mutant_of_pipelined_kernel(mutant: Mutant, tmp_path: Path) -> None:
    if _target() != "sm_90":
        pytest.skip(f"{_target()}: the pipelined kernel is for sm_90")
    twin = load_twin(mutant, tmp_path)
    assert any(judge(twin, trial, "cuda") for trial in PIPELINED_TRIALS[mutant.kernel]("fp16"))


@pytest.mark.parametrize("dtype", ("fp16", "bf16"))
@pytest.mark.parametrize("name", list(CLUSTER_TRIALS))
def test_cluster_kernel_is_right_on_small_trials(name: str, dtype: str) -> None:
    if _target() != "sm_90":
        pytest.skip(f"{_target()}: the cluster kernel is for sm_90")
    wrong = {trial.id: judge(_kernel(name), trial, "cuda") for trial in CLUSTER_TRIALS[name](dtype)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.parametrize(
    "mutant", (*CLUSTER_MUTANTS, *COPY_MUTANTS), ids=lambda mutant: f"{mutant.kernel}-{mutant.name}"
)
def test_checker_rejects_mutant_of_cluster_kernel(mutant: Mutant, tmp_path: Path) -> None:
    if _target() != "sm_90":
        pytest.skip(f"{_target()}: the cluster kernel is for sm_90")
    twin = load_twin(mutant, tmp_path)
    # Some ways are for bf16 alone.
    trials = (trial for dtype in ("fp16", "bf16") for trial in CLUSTER_TRIALS[mutant.kernel](dtype))
    assert any(judge(twin, trial, "cuda") for trial in trials)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.name}")
def test_checker_rejects_mutant(mutant: Mutant, tmp_path: Path) -> None:
    tma = _target() in ("sm_90", "sm_100")
    twin = load_twin(mutant, tmp_path)
    trials = TRIALS[mutant.kernel]("fp16", tma=tma)
    # A twin that does not wait may be lucky where all programs run at once.
    trials += (many_tiles_trial("fp16"),) if mutant.kernel == "rmsnorm_matmul" else ()
    assert any(judge(twin, trial, "cuda") for trial in trials)


def test_parts_of_more_tiles_than_run_at_once_are_added_up() -> None:
    assert not judge(_kernel("rmsnorm_matmul"), many_tiles_trial("fp16"), "cuda")


def test_rmsnorm_matmul_fp16_error_stays_below_a_thousandth() -> None:
    target, shape = _target(), {"B": 32, "H": 4096, "O": 4096}
    import torch
    from mutants.checker import fill_inputs

    kernel = _kernel("rmsnorm_matmul")
    config = kernel.config(shape, "fp16", target)
    inputs = fill_inputs(kernel, Trial(shape, "fp16", config), "cuda")
    out = torch.full((32, 4096), float("nan"), dtype=torch.float16, device="cuda")
    kernel.implementations["triton"](inputs, out, config)()
    assert (out.double() - kernel.reference(inputs)).abs().max() <= 1e-3

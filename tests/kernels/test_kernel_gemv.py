"""Tests gemv: its model, its results and what the compiler makes of it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from compiled import SHARED_LIMIT
from covering import builds
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_suite import (
    TARGETS,
    compiled,
    cpu_errors,
    element_errors,
    gpu_dtypes,
    gpu_target,
    gpu_variants,
    interpreted,
    mutants_of,
    shape_id,
    trials_of,
)
from loaded_kernels import load_kernel
from mutants.checker import Trial, judge
from mutants.gemv import MUTANTS, TRIALS
from mutants.twin import load_twin

from ledger.errors import InputError
from ledger.records import Work

DTYPES = ("fp16", "bf16", "fp32")
needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="torch and triton are not both installed",
)
_BUILDS = [
    (shape, dtype, target)
    for shape in ({"N": 7168, "K": 16384}, {"N": 1024, "K": 1024})
    for target in TARGETS
    for dtype in gpu_dtypes(target, DTYPES)
]
BUILDS = builds(_BUILDS, [f"{shape_id(shape)}-{dtype}-{target}" for shape, dtype, target in _BUILDS], together=1)


def test_gemv_work_is_as_worked_by_hand() -> None:
    # 2·3·5 operations; 3·5 + 5 elements in, 3 out.
    assert load_kernel("gemv").kernel.work({"N": 3, "K": 5}, "fp16") == Work(flops=30, bytes_read=40, bytes_written=6)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=60)
@given(n=st.integers(1, 70_000), k=st.integers(1, 70_000))
def test_gemv_rule_gives_what_the_architecture_can_run(target: str, n: int, k: int) -> None:
    kernel, shape = load_kernel("gemv").kernel, {"N": n, "K": k}
    for dtype in gpu_dtypes(target, DTYPES):
        kernel.check_config(kernel.config(shape, dtype, target), shape, dtype, target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"block_k": 48}, "power of two"),
        ({"block_n": 256}, "stay in registers"),
        ({"pdl": 2}, "expected 0, or 1"),
        ({"warps": 4}, "configuration keys"),
    ],
)
def test_gemv_refuses_config(edit: dict[str, int], says: str) -> None:
    kernel, shape = load_kernel("gemv").kernel, {"N": 7168, "K": 16384}
    with pytest.raises(InputError, match=says):
        kernel.check_config({**kernel.config(shape, "fp16", "sm_90"), **edit}, shape, "fp16", "sm_90")


def test_gemv_refuses_what_sm_75_lacks_and_unknown_targets() -> None:
    kernel, shape = load_kernel("gemv").kernel, {"N": 64, "K": 64}
    with pytest.raises(InputError, match="no bf16"):
        kernel.check_config(kernel.config(shape, "bf16", "sm_75"), shape, "bf16", "sm_75")
    with pytest.raises(InputError, match="from sm_90 up"):
        kernel.check_config({**kernel.config(shape, "fp16", "sm_75"), "pdl": 1}, shape, "fp16", "sm_75")
    with pytest.raises(InputError, match="gfx90a"):
        kernel.config(shape, "fp16", "gfx90a")


@needs_triton
def test_gemv_element_is_the_reference() -> None:
    assert max(element_errors("gemv", {"N": 19, "K": 131})) < 1e-12


@needs_triton
@pytest.mark.parametrize("dtype", DTYPES)
def test_gemv_cpu_implementation_is_right(dtype: str) -> None:
    assert cpu_errors("gemv", {"N": 19, "K": 131}, dtype) <= 0


@needs_triton
@pytest.mark.parametrize("trial", trials_of("mutants.gemv"))
def test_gemv_is_right_when_interpreted(trial: str) -> None:
    assert interpreted("mutants.gemv", trial) is None


@needs_triton
@pytest.mark.parametrize("mutant", mutants_of("mutants.gemv"))
def test_checker_rejects_gemv_mutant_when_interpreted(mutant: str) -> None:
    assert interpreted("mutants.gemv", mutant) is not None


@needs_triton
@pytest.mark.parametrize(("shape", "dtype", "target"), BUILDS)
def test_gemv_ahead_fits_does_not_spill_and_loads_16_bytes(shape: dict[str, int], dtype: str, target: str) -> None:
    made = compiled("gemv", tuple(shape.items()), dtype, target)
    assert made.stack == 0
    assert made.shared <= SHARED_LIMIT[target]
    assert not re.search(r"\bmma\.sync|wgmma|tcgen05", made.ptx)
    assert re.search(r"ld\.global\S*\.v4\.b32|cp\.async\.cg\.shared\.global \[[^]]*\], \[[^]]*\], 0x10", made.ptx)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gemv_is_right_on_the_gpu(dtype: Any) -> None:
    target = gpu_target()
    if dtype == "bf16" and target == "sm_75":
        pytest.skip("sm_75 has no bf16")
    kernel = load_kernel("gemv", launch=True).kernel
    own = [Trial(shape, dtype, kernel.config(shape, dtype, target)) for shape in kernel.cases]
    small = [variant for trial in TRIALS["gemv"](dtype) for variant in gpu_variants(trial, target)]
    wrong = {trial.id: judge(kernel, trial, "cuda") for trial in (*own, *small)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_checker_rejects_gemv_mutant_on_the_gpu(mutant: Any, tmp_path: Path) -> None:
    gpu_target()
    twin = load_twin(mutant, tmp_path)
    assert any(judge(twin, trial, "cuda") for trial in TRIALS["gemv"]("fp16"))

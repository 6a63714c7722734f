"""Tests gemv: its model, its results and what the compiler makes of it."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compiled import SHARED_LIMIT, compile_ahead
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
from mutants.checker import Trial, fill_inputs, judge
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
# Rows that start at 8, 4 and 2 places within 16 bytes in 16 bits, at 4, 2 and 1 in fp32.
_UNALIGNED = [
    ({"N": 15186, "K": k}, dtype, target)
    for k in (2179, 2178, 2180)
    for target in TARGETS
    for dtype in gpu_dtypes(target, DTYPES)
    if k % 4 or dtype != "fp32"
]
UNALIGNED = builds(
    _UNALIGNED, [f"{shape_id(shape)}-{dtype}-{target}" for shape, dtype, target in _UNALIGNED], together=1
)
NEIGHBOURS = Path(__file__).parents[1] / "support" / "mutants" / "interpret_neighbours.py"


def _period(k: int, dtype: str) -> int:
    vector = 4 if dtype == "fp32" else 8
    return vector // math.gcd(k, vector)


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
        ({"interleave": 2}, "interleave is 2 with K=16384 in fp16; expected 1:"),
        ({"interleave": 16}, "power of two from 1 to 8"),
        ({"interleave": 0}, "power of two from 1 to 8"),
    ],
)
def test_gemv_refuses_config(edit: dict[str, int], says: str) -> None:
    kernel, shape = load_kernel("gemv").kernel, {"N": 7168, "K": 16384}
    with pytest.raises(InputError, match=says):
        kernel.check_config({**kernel.config(shape, "fp16", "sm_90"), **edit}, shape, "fp16", "sm_90")


@pytest.mark.parametrize(
    ("k", "dtype", "period"), [(2179, "fp16", 8), (2178, "bf16", 4), (2180, "fp16", 2), (7, "fp32", 4)]
)
def test_gemv_rows_of_a_program_lie_side_by_side_or_a_period_apart(k: int, dtype: Any, period: int) -> None:
    kernel, shape = load_kernel("gemv").kernel, {"N": 100, "K": k}
    config = kernel.config(shape, dtype, "sm_90")
    for interleave in (1, 2, 4, 8):
        edited = {**config, "interleave": interleave}
        if interleave in (1, period):
            kernel.check_config(edited, shape, dtype, "sm_90")
        else:
            says = f"interleave is {interleave} with K={k} in {dtype}; expected 1 or {period}"
            with pytest.raises(InputError, match=says):
                kernel.check_config(edited, shape, dtype, "sm_90")


def test_gemv_interleaves_long_and_many_unaligned_rows() -> None:
    kernel = load_kernel("gemv").kernel
    chosen = (
        (15186, 2179, "fp16", 8), (15186, 2180, "bf16", 2), (15186, 2180, "fp32", 1), (15186, 16384, "fp16", 1),
        (3, 2179, "fp16", 8), (15186, 131, "fp16", 8), (15186, 132, "fp16", 1), (1000, 131, "fp16", 1),
        (15186, 13, "fp16", 1),
    )  # fmt: skip
    for n, k, dtype, interleave in chosen:
        assert kernel.config({"N": n, "K": k}, dtype, "sm_90")["interleave"] == interleave, (n, k)  # type: ignore[arg-type]


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


@needs_triton
@pytest.mark.parametrize(("shape", "dtype", "target"), UNALIGNED)
def test_gemv_ahead_loads_16_bytes_of_unaligned_rows(shape: dict[str, int], dtype: Any, target: str) -> None:
    kernel = load_kernel("gemv", launch=True).kernel
    rule = kernel.config(shape, dtype, target)
    vectors = 32 * rule["num_warps"] * (4 if dtype == "fp32" else 8)
    rule["interleave"] = _period(shape["K"], dtype)
    # What the rule says; a step of one vector and one of two of each of four rows in every thread.
    four = {**rule, "block_n": 4}
    for config in (rule, {**four, "block_k": vectors}, {**four, "block_k": 2 * vectors}):
        kernel.check_config(config, shape, dtype, target)
        made = compile_ahead(kernel, config, shape, dtype, target)
        assert made.stack == 0
        assert made.shared <= SHARED_LIMIT[target]
        loads = config["block_n"] * config["block_k"] // vectors
        assert len(re.findall(r"ld\.global\S*\.v4\.b32", made.ptx)) == loads
    beside = compile_ahead(kernel, {**rule, "interleave": 1}, shape, dtype, target)
    assert not re.search(r"ld\.global\S*\.v4\.b32", beside.ptx)


@needs_triton
def test_gemv_special_values_stay_in_their_row_when_interpreted() -> None:
    done = subprocess.run(
        [sys.executable, str(NEIGHBOURS)],
        capture_output=True, text=True, check=False, env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    wrong = json.loads(done.stdout)
    assert not wrong["kernel"] and wrong["twin"]


@pytest.mark.gpu
@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("k", [7, 131, 2178, 2179, 2180, 4099])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_gemv_of_a_matrix_that_starts_anywhere_is_right(dtype: Any, k: int, offset: int) -> None:
    import torch

    target = gpu_target()
    kernel, shape = load_kernel("gemv", launch=True).kernel, {"N": 203, "K": k}
    inputs = fill_inputs(kernel, Trial(shape, dtype, {}), "cuda")
    flat = torch.full((203 * k + offset,), float("nan"), dtype=inputs["x"].dtype, device="cuda")
    weight = flat[offset:].view(203, k).copy_(inputs["weight"])
    config = {**kernel.config(shape, dtype, target), "interleave": _period(k, dtype)}
    out = torch.full((203,), float("nan"), dtype=weight.dtype, device="cuda")
    kernel.implementations["triton"]({**inputs, "weight": weight}, out, config)()
    bound = kernel.tolerances[dtype]
    torch.testing.assert_close(out.double(), kernel.reference(inputs), rtol=bound.rtol, atol=bound.atol)


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

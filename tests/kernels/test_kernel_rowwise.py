"""Tests vector_add, rmsnorm, layernorm and softmax: their models, their results and what the compiler makes of them."""

from __future__ import annotations

import importlib.util
import re
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
from mutants.checker import Trial, judge
from mutants.rowwise import MUTANTS, TRIALS
from mutants.twin import load_twin

from ledger.errors import InputError
from ledger.operations import OPERATIONS, SAMPLE_TOLERANCES
from ledger.records import Work

NAMES = ("vector_add", "rmsnorm", "layernorm", "softmax")
ROWS = NAMES[1:]
DTYPES = ("fp16", "bf16", "fp32")
needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="torch and triton are not both installed",
)
SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "vector_add": ({"N": 1 << 20},),
    **{name: tuple({"M": 4096, "N": n} for n in (33, 768, 1001, 2048, 4096, 5001, 6144, 65_536)) for name in ROWS},
}
_BUILDS = [
    (name, shape, dtype, target)
    for name, shapes in SHAPES.items()
    for shape in shapes
    for target in TARGETS
    for dtype in gpu_dtypes(target, DTYPES)
]
BUILDS = builds(
    _BUILDS, [f"{name}-{shape_id(shape)}-{dtype}-{target}" for name, shape, dtype, target in _BUILDS], together=1
)


def _on_targets(*cases: tuple[str, dict[str, int]]) -> list[Any]:
    every = [(name, shape, target) for name, shape in cases for target in TARGETS]
    return builds(every, [f"{name}-{shape_id(shape)}-{target}" for name, shape, target in every], together=1)


VECTORS = _on_targets(
    ("vector_add", {"N": 1 << 20}),
    *((name, {"M": 4096, "N": n}) for name in ROWS for n in (6144, 8101)),
    # Enough bytes for shifted copies of the gain.
    *((name, {"M": 9000, "N": 1001}) for name in ROWS),
)
NO_BARRIER = _on_targets(
    *((name, shape) for name in ROWS for shape in ({"M": 60_000, "N": 200}, {"M": 8000, "N": 768}))
)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        # One addition an element; two elements in, one out.
        ("vector_add", {"N": 5}, Work(flops=5, bytes_read=20, bytes_written=10)),
        # 2·3 elements: a square, its sum and two products each; 6 + 3 elements in, 6 out.
        ("rmsnorm", {"M": 2, "N": 3}, Work(flops=24, bytes_read=18, bytes_written=12)),
        # Seven operations each; 6 + 2·3 in, 6 out.
        ("layernorm", {"M": 2, "N": 3}, Work(flops=42, bytes_read=24, bytes_written=12)),
        # Five operations each; 6 in, 6 out.
        ("softmax", {"M": 2, "N": 3}, Work(flops=30, bytes_read=12, bytes_written=12)),
    ],
)
def test_rowwise_work_is_as_worked_by_hand(name: str, shape: dict[str, int], expected: Work) -> None:
    assert load_kernel(name).kernel.work(shape, "fp16") == expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=60)
@given(m=st.integers(1, 65_536), n=st.integers(1, 70_000) | st.integers(1, 300_000).map(lambda n: 8 * n))
def test_rowwise_rule_gives_what_the_architecture_can_run(name: str, target: str, m: int, n: int) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": m, "N": n}
    for dtype in gpu_dtypes(target, DTYPES):
        kernel.check_config(kernel.config(shape, dtype, target), shape, dtype, target)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"block_n": 48}, "power of two"),
        ({"block_m": 64}, "stay in registers"),
        ({"pdl": 2}, "expected 0, or 1"),
        ({"warps": 4}, "configuration keys"),
    ],
)
@pytest.mark.parametrize("name", ROWS)
def test_rowwise_refuses_config(name: str, edit: dict[str, int], says: str) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": 4096, "N": 4096}
    with pytest.raises(InputError, match=says):
        kernel.check_config({**kernel.config(shape, "fp16", "sm_90"), **edit}, shape, "fp16", "sm_90")


@pytest.mark.parametrize("name", ROWS)
def test_rowwise_takes_several_rows_a_program_only_whole(name: str) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": 4096, "N": 5001}
    own = kernel.config(shape, "fp16", "sm_90")
    with pytest.raises(InputError, match="block holds less than a row"):
        kernel.check_config({**own, "block_m": 2, "block_n": 1024, "num_warps": 8}, shape, "fp16", "sm_90")


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm"])
def test_rowwise_takes_copies_for_ragged_rows_alone(name: str) -> None:
    kernel, ragged, even = load_kernel(name).kernel, {"M": 4096, "N": 5001}, {"M": 4096, "N": 5008}
    assert kernel.config(ragged, "fp16", "sm_90")["shifted_copies"] == 1
    assert kernel.config({"M": 8, "N": 3001}, "fp16", "sm_90")["shifted_copies"] == 0
    with pytest.raises(InputError, match="shifted_copies is 1"):
        kernel.check_config({**kernel.config(even, "fp16", "sm_90"), "shifted_copies": 1}, even, "fp16", "sm_90")
    with pytest.raises(InputError, match="bypass_l1 is 2"):
        kernel.check_config({**kernel.config(even, "fp16", "sm_90"), "bypass_l1": 2}, even, "fp16", "sm_90")


@pytest.mark.parametrize("name", NAMES)
def test_rowwise_refuses_bf16_on_sm_75_and_unknown_targets(name: str) -> None:
    kernel = load_kernel(name).kernel
    shape = kernel.cases[0]
    with pytest.raises(InputError, match="no bf16"):
        kernel.check_config(kernel.config(shape, "bf16", "sm_75"), shape, "bf16", "sm_75")
    with pytest.raises(InputError, match="gfx90a"):
        kernel.config(shape, "fp16", "gfx90a")


@pytest.mark.parametrize("name", ROWS)
def test_rowwise_refuses_early_start_where_there_is_none(name: str) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": 64, "N": 64}
    with pytest.raises(InputError, match="pdl is 1"):
        kernel.check_config({**kernel.config(shape, "fp16", "sm_80"), "pdl": 1}, shape, "fp16", "sm_80")


@needs_triton
@pytest.mark.parametrize("name", NAMES)
def test_rowwise_element_is_the_reference(name: str) -> None:
    shape = {"N": 131} if name == "vector_add" else {"M": 5, "N": 131}
    assert max(element_errors(name, shape)) < 1e-12


@pytest.mark.parametrize("n", [2, 4096, 65_536])
def test_softmax_samples_are_compared_at_the_size_of_its_outputs(n: int) -> None:
    # A sample of 0 must not pass for an average output; half a step of subnormal fp16 must.
    spread, (atol, rtol) = OPERATIONS["softmax/1"].spread({"M": 1, "N": n}), SAMPLE_TOLERANCES["fp16"]
    assert 2.0**-25 < atol * spread < 0.01 / n
    assert rtol < 0.01


@needs_triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_rowwise_cpu_implementation_is_right(name: str, dtype: str) -> None:
    shape = {"N": 131} if name == "vector_add" else {"M": 5, "N": 131}
    assert cpu_errors(name, shape, dtype) <= 0


@needs_triton
@pytest.mark.parametrize("trial", trials_of("mutants.rowwise"))
def test_rowwise_is_right_when_interpreted(trial: str) -> None:
    assert interpreted("mutants.rowwise", trial) is None


@needs_triton
@pytest.mark.parametrize("mutant", mutants_of("mutants.rowwise"))
def test_checker_rejects_rowwise_mutant_when_interpreted(mutant: str) -> None:
    assert interpreted("mutants.rowwise", mutant) is not None


@needs_triton
@pytest.mark.parametrize(("name", "shape", "dtype", "target"), BUILDS)
def test_rowwise_ahead_fits_does_not_spill_and_takes_plain_pipes(
    name: str, shape: dict[str, int], dtype: str, target: str
) -> None:
    made = compiled(name, tuple(shape.items()), dtype, target)
    assert made.stack == 0
    assert made.shared <= SHARED_LIMIT[target]
    assert not re.search(r"\bmma\.sync|wgmma|tcgen05", made.ptx)
    assert load_kernel(name).kernel.path(dtype, target, "triton") == "fp32"  # type: ignore[arg-type]


@needs_triton
@pytest.mark.parametrize(("name", "shape", "target"), VECTORS)
def test_rowwise_ahead_loads_and_stores_16_bytes_at_a_time(name: str, shape: dict[str, int], target: str) -> None:
    ptx = compiled(name, tuple(shape.items()), "fp16", target).ptx
    assert re.search(r"ld\.global\S*\.v4\.b32", ptx)
    assert re.search(r"st\.global\S*\.v4\.b32", ptx)
    if name in ROWS:
        # Ragged rows: the elements that no vector covers, at most one load of each tensor and one store.
        assert len(re.findall(r"ld\.global\S*\.b16", ptx)) <= 3
        assert len(re.findall(r"st\.global\S*\.b16", ptx)) <= 1


@needs_triton
@pytest.mark.parametrize(("name", "shape", "target"), NO_BARRIER)
def test_warps_with_rows_of_their_own_need_no_barrier(name: str, shape: dict[str, int], target: str) -> None:
    config = load_kernel(name).kernel.config(shape, "fp16", target)  # type: ignore[arg-type]
    assert 1 < config["num_warps"] <= config["block_m"]
    made = compiled(name, tuple(shape.items()), "fp16", target)
    assert "bar.sync" not in made.ptx
    assert made.shared == 0


@needs_triton
@pytest.mark.parametrize("target", TARGETS)
def test_softmax_ahead_takes_the_short_exponential(target: str) -> None:
    ptx = compiled("softmax", (("M", 4096), ("N", 6144)), "fp16", target).ptx
    assert re.search(r"ex2\.approx\.ftz\.f32", ptx)
    assert not re.search(r"ex2\.approx\.f32", ptx)


@pytest.mark.parametrize(
    ("shape", "block_n"), [({"M": 9, "N": 141}, 32), ({"M": 3, "N": 160}, 64)], ids=("ragged", "whole")
)
def test_layernorm_threads_that_hold_one_sum_hold_the_same_bits(shape: dict[str, int], block_n: int) -> None:
    kernel = load_kernel("layernorm", launch=True).kernel
    config = {**kernel.config(shape, "fp16", "sm_90"), "block_m": 1, "block_n": block_n, "num_warps": 4}
    kernel.check_config(config, shape, "fp16", "sm_90")
    ptx = compile_ahead(kernel, config, shape, "fp16", "sm_90").ptx
    shuffled = set(re.findall(r"shfl\.sync\.bfly\.b32\s+(%r\d+)", ptx))
    assert shuffled
    # An own square, not rounded, plus a neighbour's, which is: the neighbour adds them the other way round.
    assert not shuffled & set(re.findall(r"fma\.rn\.f32\s+%r\d+, %r\d+, %r\d+, (%r\d+)", ptx))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_rowwise_is_right_on_the_gpu(name: str, dtype: Any) -> None:
    target = gpu_target()
    if dtype == "bf16" and target == "sm_75":
        pytest.skip("sm_75 has no bf16")
    kernel = load_kernel(name, launch=True).kernel
    own = [Trial(shape, dtype, kernel.config(shape, dtype, target)) for shape in kernel.cases]
    small = [variant for trial in TRIALS[name](dtype) for variant in gpu_variants(trial, target)]
    wrong = {trial.id: judge(kernel, trial, "cuda") for trial in (*own, *small)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.name}")
def test_checker_rejects_rowwise_mutant_on_the_gpu(mutant: Any, tmp_path: Path) -> None:
    gpu_target()
    twin = load_twin(mutant, tmp_path)
    assert any(judge(twin, trial, "cuda") for trial in TRIALS[mutant.kernel]("fp16"))


@pytest.mark.gpu
@pytest.mark.parametrize("copies", [0, 1])
def test_early_start_waits_for_what_it_reads(copies: int) -> None:
    target = gpu_target()
    if target not in ("sm_90", "sm_100"):
        pytest.skip(f"{target} has no programmatic dependent launch")
    import torch
    from mutants.checker import fill_inputs

    # With copies a launch of its own shifts the gain, and the rows wait for that one too.
    kernel, shape = load_kernel("rmsnorm", launch=True).kernel, {"M": 300, "N": 1536 + copies}
    config = {**kernel.config(shape, "fp16", target), "shifted_copies": copies}
    assert config["pdl"] == 1
    inputs = fill_inputs(kernel, Trial(shape, "fp16", config), "cuda")
    buffers = [torch.empty_like(inputs["x"]) for _ in range(3)]

    def chain(*, apart: bool) -> Any:
        buffers[0].copy_(inputs["x"])
        for call in range(60):
            given = {"x": buffers[call % 3], "gain": inputs["gain"]}
            kernel.implementations["triton"](given, buffers[(call + 1) % 3], config)()
            if apart:
                torch.cuda.synchronize()
        return buffers[0].clone()

    expected = chain(apart=True)
    assert all(torch.equal(chain(apart=False), expected) for _ in range(20))

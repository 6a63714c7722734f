"""Tests the example kernels: they are small, load in a repository of their own, compile and are right."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from compiled import compile_ahead
from kernel_suite import gpu_dtypes, interpreted, mutants_of, trials_of
from loaded_kernels import load_kernel
from mutants.checker import Trial, fill_inputs
from mutants.examples import ROOT

NAME = "absmax_norm"
MOST_LINES = 150
TARGETS = ("sm_75", "sm_80", "sm_90")
needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="torch and triton are not both installed",
)


def test_example_row_kernel_is_under_150_lines() -> None:
    path = ROOT / "kernels" / f"{NAME}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < MOST_LINES


def test_example_row_kernel_is_sealed_with_the_shared_sources() -> None:
    loaded = load_kernel(NAME, ROOT)
    assert not loaded.shipped
    paths = {source.path for source in loaded.closure.files}
    assert {f"kernels/{NAME}.py", "ledger/kernels/common/row_reductions.py", "ledger/kernels/common/rows.py"} <= paths
    assert [source.path for source in loaded.closure.carried] == [f"kernels/{NAME}.py"]


@pytest.mark.parametrize("target", TARGETS)
def test_example_row_kernel_rule_gives_what_the_architecture_can_run(target: str) -> None:
    kernel = load_kernel(NAME, ROOT).kernel
    for dtype in gpu_dtypes(target, kernel.dtypes):
        for m in (1, 37, 5000):
            for n in (1, 2, 31, 32, 500, 513, 1000, 1024, 1025, 4097, 20_000, 65_536):
                shape: dict[str, int] = {"M": m, "N": n}
                kernel.check_config(kernel.config(shape, dtype, target), shape, dtype, target)  # type: ignore[arg-type]


@needs_triton
def test_example_row_kernel_element_is_the_reference() -> None:
    kernel, shape = load_kernel(NAME, ROOT).kernel, {"M": 3, "N": 37}
    inputs = fill_inputs(kernel, Trial(shape, "fp32", {}), "cpu")
    expected = kernel.reference(inputs).flatten()

    def read(name: str, positions: Any) -> Any:
        return inputs[name].double().flatten().numpy()[positions]

    for position in (0, 36, 37, 110):
        assert kernel.operation.element(shape, position, read) == pytest.approx(float(expected[position]), abs=1e-12)


@needs_triton
@pytest.mark.parametrize("trial", trials_of("mutants.examples"))
def test_example_is_right_when_interpreted(trial: str) -> None:
    assert interpreted("mutants.examples", trial) is None


@needs_triton
@pytest.mark.parametrize("mutant", mutants_of("mutants.examples"))
def test_checker_rejects_example_mutant_when_interpreted(mutant: str) -> None:
    assert interpreted("mutants.examples", mutant) is not None


@needs_triton
@pytest.mark.parametrize("n", [200, 1031, 6144])
@pytest.mark.parametrize("target", TARGETS)
def test_example_row_kernel_compiles_without_spilling(target: str, n: int) -> None:
    kernel, shape = load_kernel(NAME, ROOT, launch=True).kernel, {"M": 4096, "N": n}
    made = compile_ahead(kernel, kernel.config(shape, "fp16", target), shape, "fp16", target)  # type: ignore[arg-type]
    assert made.stack == 0


# The matrix product with an epilogue

PRODUCT = "matmul_silu"


def test_example_product_is_under_120_lines_and_sealed_with_the_shared_sources() -> None:
    assert len((ROOT / "kernels" / f"{PRODUCT}.py").read_text(encoding="utf-8").splitlines()) < 120
    paths = {source.path for source in load_kernel(PRODUCT, ROOT).closure.files}
    assert {f"kernels/{PRODUCT}.py", "ledger/kernels/common/gemm_device.py", "ledger/kernels/common/gemm.py"} <= paths


@pytest.mark.parametrize("target", TARGETS)
def test_example_product_rule_and_candidates_are_what_the_architecture_can_run(target: str) -> None:
    kernel = load_kernel(PRODUCT, ROOT).kernel
    for dtype in gpu_dtypes(target, kernel.dtypes):
        for case in kernel.cases:
            kernel.check_config(kernel.config(case, dtype, target), case, dtype, target)  # type: ignore[arg-type]
    assert kernel.candidates is not None
    offered = {one.config["variant"] for one in kernel.candidates(kernel.cases[0], "fp16", target)}
    assert offered == ({"generic", "warp_specialised"} if target == "sm_90" else {"generic"})


@needs_triton
def test_example_product_element_and_cpu_implementation_are_the_reference() -> None:
    import torch

    kernel, shape = load_kernel(PRODUCT, ROOT).kernel, {"M": 5, "N": 19, "K": 131}
    inputs = fill_inputs(kernel, Trial(shape, "fp32", {}), "cpu")
    expected = kernel.reference(inputs).flatten()

    def read(name: str, positions: Any) -> Any:
        return inputs[name].double().flatten().numpy()[positions]

    for position in (0, 18, 19, 94):
        assert kernel.operation.element(shape, position, read) == pytest.approx(float(expected[position]), abs=1e-12)
    out = torch.empty(kernel.operation.output_dims(shape), dtype=torch.float32)
    kernel.implementations["torch-cpu"](inputs, out, {})()
    assert (out.double().flatten() - expected).abs().max() < 1e-5


@needs_triton
@pytest.mark.parametrize(("target", "dtype"), [("sm_80", "fp16"), ("sm_90", "fp16"), ("sm_90", "bf16")])
@pytest.mark.parametrize("case", [0, 3])
def test_example_product_compiles_without_spilling(target: str, dtype: Any, case: int) -> None:
    kernel = load_kernel(PRODUCT, ROOT, launch=True).kernel
    shape = kernel.cases[case]
    config = kernel.config(shape, dtype, target)
    assert config["variant"] == ("warp_specialised" if (target, case) == ("sm_90", 0) else "generic")
    assert compile_ahead(kernel, config, shape, dtype, target).stack == 0

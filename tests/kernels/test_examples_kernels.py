"""Tests the example of a row kernel: it is small, loads in a repository of its own, compiles and is right."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from compiled import compile_ahead
from kernel_suite import gpu_dtypes, interpreted
from mutants.checker import Trial, fill_inputs
from mutants.examples import ROOT

from ledger.kernel_files import load_kernel

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
def test_example_row_kernel_is_right_when_interpreted() -> None:
    verdicts = interpreted("mutants.examples")["kernels"]
    assert len(verdicts) == 14
    assert not {trial: reason for trial, reason in verdicts.items() if reason}


@needs_triton
@pytest.mark.parametrize("n", [200, 1031, 6144])
@pytest.mark.parametrize("target", TARGETS)
def test_example_row_kernel_compiles_without_spilling(target: str, n: int) -> None:
    kernel, shape = load_kernel(NAME, ROOT, launch=True).kernel, {"M": 4096, "N": n}
    made = compile_ahead(kernel, kernel.config(shape, "fp16", target), shape, "fp16", target)  # type: ignore[arg-type]
    assert made.stack == 0

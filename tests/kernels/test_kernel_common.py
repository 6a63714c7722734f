"""Tests what the kernels share on the host: targets, checks of a configuration, launch options, baselines."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
from kernel_suite import KERNELS
from mutants import attention, gemv, kernels, products, rowwise
from mutants.checker import source_file
from mutants.kernels import Mutant

from ledger.errors import InputError
from ledger.kernels.common import baselines, configs, launches, targets

MUTANTS: tuple[Mutant, ...] = (
    *kernels.MUTANTS, *kernels.CLUSTER_MUTANTS, *kernels.COPY_MUTANTS, *kernels.PIPELINED_MUTANTS, *products.MUTANTS,
    *products.PIPELINED_MUTANTS, *attention.MUTANTS, *attention.GPU_MUTANTS, *rowwise.MUTANTS,
    *rowwise.CLUSTER_MUTANTS, *gemv.MUTANTS,
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.name}")
def test_every_wrong_twin_edits_what_a_file_has_once(mutant: Mutant) -> None:
    file = KERNELS / mutant.file if mutant.file else source_file(mutant.kernel)
    mutant.apply(file.read_text(encoding="utf-8"))


def test_every_target_has_all_limits() -> None:
    assert tuple(targets.SMS) == tuple(targets.SHARED_BYTES) == targets.TARGETS
    assert set(targets.TMA_TARGETS) | set(targets.PDL_TARGETS) <= set(targets.TARGETS)


@pytest.mark.parametrize(
    ("dtype", "target", "implementation", "matmul", "attention"),
    [
        ("fp16", "sm_90", "triton", "fp16_tensor", "fp16_tensor"),
        ("bf16", "sm_80", "triton", "bf16_tensor", "bf16_tensor"),
        ("fp16", "sm_75", "triton", "fp32", "fp32"),
        ("fp32", "sm_90", "triton", "fp32", "fp32"),
        ("fp16", "x86_64", "torch-cpu", "fp16", "fp32"),
        ("bf16", "x86_64", "torch-cpu", "bf16_tensor", "fp32"),
        ("fp32", "x86_64", "torch-cpu", "fp32", "fp32"),
    ],
)
def test_instruction_path(dtype: Any, target: str, implementation: str, matmul: str, attention: str) -> None:
    assert targets.matmul_path(dtype, target, implementation) == matmul
    assert targets.attention_path(dtype, target, implementation) == attention


def test_rounding() -> None:
    assert [targets.ceil_div(n, 4) for n in (1, 4, 5)] == [1, 1, 2]
    assert [targets.power_of_two(n) for n in (1, 2, 3, 64, 65)] == [1, 2, 4, 64, 128]


CONFIG = {"block_m": 64, "num_warps": 4, "num_stages": 2, "tma": 1, "pdl": 0}


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (lambda: configs.check_keys("k", CONFIG, ("block_m",)), "k: configuration keys are .*expected block_m"),
        (lambda: configs.check_target("k", "gfx90a"), "target gfx90a is unknown; expected one of: sm_75"),
        (lambda: configs.check_target("k", "sm_75", ("sm_90",), lacks="fp8"), "or has no fp8; expected one of: sm_90"),
        (lambda: configs.check_tuned("k", "sm_75", ("sm_90",)), "no launch configuration for sm_75"),
        (lambda: configs.check_bf16("k", "bf16", "sm_75"), "sm_75 has no bf16; expected fp16 or fp32"),
        (lambda: configs.check_16_bits("k", "fp32", "sm_90"), "fp32 is for CPUs"),
        (lambda: configs.check_powers("k", {"block_m": 48}, (("block_m", 16, 256),)), "power of two from 16 to 256"),
        (lambda: configs.check_ranges("k", CONFIG, (("num_stages", 3, 8),)), "num_stages is 2; expected 3 to 8"),
        (lambda: configs.check_positive("k", {"programs": 0}, "programs"), "programs is 0; expected at least 1"),
        (lambda: configs.check_flags("k", {"tma": 2}, "tma"), "tma is 2; expected 0 or 1"),
        (lambda: configs.check_pdl("k", {"pdl": 1}, "sm_80"), "pdl is 1; expected 0, or 1 from sm_90 up"),
        (lambda: configs.check_tma("k", CONFIG, "sm_80", rows={}, size=2), "no tensor memory accelerator"),
        (lambda: configs.check_tma("k", CONFIG, "sm_90", rows={"N": 12}, size=2, of="fp16"), "N=12 in fp16.*16 bytes"),
        (lambda: configs.check_wgmma("k", {**CONFIG, "num_warps": 2}, "sm_90"), "wgmma computes 64 rows"),
        (lambda: configs.check_groups("k", {"HQ": 7, "HKV": 2}), "HQ is 7 with HKV 2; expected a multiple"),
        (lambda: configs.check_shared("k", 300_000, "sm_90"), "need 300000 bytes of shared memory; sm_90 has 232448"),
        (
            lambda: configs.check_thread_elements("k", {"a": 64, "b": 64, "num_warps": 1}, tile=("a", "b"), most=64),
            "tile of 64 × 64 exceeds 1 warps; expected at most 64",
        ),
    ],
)
def test_shared_check_refuses(check: Callable[[], None], says: str) -> None:
    with pytest.raises(InputError, match=says):
        check()


def test_launch_options_leave_out_what_is_off() -> None:
    assert launches.options_of(CONFIG) == {"num_warps": 4, "num_stages": 2}
    assert launches.options_of({**CONFIG, "pdl": 1}, stages=False) == {"num_warps": 4, "launch_pdl": True}
    assert launches.constants_of(CONFIG, "block_m", "tma") == {"BLOCK_M": 64, "TMA": 1}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_library_call_writes_or_keeps_its_result() -> None:
    import torch

    inputs, out = {"a": torch.ones(3), "b": torch.ones(3)}, torch.zeros(3)
    baselines.library(lambda torch, out, a, b: torch.add(a, b, out=out), "a", "b")(inputs, out, {})()
    assert out.tolist() == [2.0] * 3
    with pytest.raises(InputError, match=r"k: dtype is torch\.int8"):
        baselines.dtype_name(torch.ones(1, dtype=torch.int8), "k")

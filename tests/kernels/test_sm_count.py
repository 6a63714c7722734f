"""Tests that launch rules follow the SMs of the chip, and that CTAs which wait for each other all run at once."""

from __future__ import annotations

import itertools
import pickle
import random
import sys
from typing import Any

import pytest
from loaded_kernels import load_kernel

from ledger.errors import InputError
from ledger.kernel_files import build_case, kernel_names
from ledger.kernels.common import configs, gemm_config, targets
from ledger.record_files import load_hardware
from ledger.records import Target

H200, PCIE, H20, SLICE = (Target("sm_90", sms) for sms in (132, 114, 78, 16))
MLA = {"B": 1, "H": 128, "S": 8192}


def test_a_chip_is_its_target_with_its_sms() -> None:
    chip = load_hardware("h100_pcie").chip
    assert (chip, chip.sms) == ("sm_90", 114)
    assert pickle.loads(pickle.dumps(chip)).sms == 114
    assert [targets.sms_of(target) for target in (chip, "sm_90", "sm_80")] == [114, 132, 108]


@pytest.mark.parametrize("name", kernel_names())
def test_rules_hold_on_chips_with_other_sms(name: str) -> None:
    kernel = load_kernel(name).kernel
    for shape in kernel.cases:
        for dtype in kernel.dtypes:
            try:
                tuned = kernel.config(shape, dtype, "sm_90")
            except InputError:
                continue
            assert kernel.config(shape, dtype, H200) == tuned
            for chip in (PCIE, H20, SLICE):
                config = kernel.config(shape, dtype, chip)
                kernel.check_config(config, shape, dtype, chip)
                assert int(config.get("programs", 0)) <= chip.sms


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "edit"),
    [
        ("decode_attention", {"B": 1, "HQ": 32, "HKV": 8, "S": 24576, "D": 128}, "fp16",
         {"variant": "cuda_stream_k", "block_s": 32, "splits": 1, "num_warps": 8, "num_stages": 1, "ctas_per_sm": 1,
          "tma": 0, "late_trigger": 0}),
        ("rmsnorm_matmul", {"B": 4096, "H": 4096, "O": 4096}, "fp16",
         {"variant": "cuda_cooperative", "block_b": 128, "block_o": 256, "split_k": 1, "num_warps": 8,
          "num_stages": 4, "x_stages": 0, "cluster_m": 1, "cluster_n": 1, "swap_ab": 0, "stream_k": 0}),
        ("rmsnorm_matmul", {"B": 4096, "H": 4096, "O": 4096}, "fp16",
         {"variant": "cuda_normed", "block_b": 128, "block_o": 256, "split_k": 1, "num_warps": 8, "num_stages": 4,
          "x_stages": 0, "cluster_m": 2, "cluster_n": 1, "swap_ab": 0, "stream_k": 0}),
    ],
    ids=["stream-k", "cooperative", "normed"],
)  # fmt: skip
def test_persistent_ctas_are_as_many_as_the_sms(name: str, shape: Any, dtype: Any, edit: dict[str, Any]) -> None:
    kernel = load_kernel(name, launch=True).kernel
    config = {**kernel.config(shape, dtype, "sm_90"), **edit}
    for chip in (H200, PCIE):
        kernel.check_config(config, shape, dtype, chip)
        ahead: Any = kernel.ahead(config, shape, dtype, chip)  # type: ignore[misc]
        assert ahead.programs == chip.sms


def test_products_run_on_a_chip_that_holds_no_cluster_of_four() -> None:
    kernel, few = load_kernel("matmul").kernel, Target("sm_90", 3)
    for shape in ({"M": 16, "N": 4096, "K": 4096}, {"M": 1000, "N": 1512, "K": 2056}, {"M": 333, "N": 7001, "K": 2500}):
        config = kernel.config(shape, "fp16", few)
        kernel.check_config(config, shape, "fp16", few)
        assert config["cluster_m"] * config["cluster_n"] <= 2


@pytest.mark.parametrize("sms", [3, 7])
def test_a_product_after_an_rmsnorm_runs_on_a_chip_that_holds_no_cluster_of_eight(sms: int) -> None:
    kernel, few = load_kernel("rmsnorm_matmul").kernel, Target("sm_90", sms)
    for shape in ({"B": 1, "H": 4096, "O": 4096}, {"B": 200, "H": 4096, "O": 1024}, {"B": 3000, "H": 512, "O": 512}):
        kernel.check_config(kernel.config(shape, "fp16", few), shape, "fp16", few)


@pytest.mark.parametrize(
    ("sms", "shape"),
    [
        (60, {"B": 3121, "H": 10392, "O": 80}),
        (46, {"B": 3143, "H": 8792, "O": 504}),
        (32, {"B": 2485, "H": 6392, "O": 504}),
        (16, {"B": 2485, "H": 6392, "O": 504}),
    ],
)
def test_a_product_after_an_rmsnorm_has_no_more_waiting_ctas_than_its_chip_runs(sms: int, shape: Any) -> None:
    kernel, few = load_kernel("rmsnorm_matmul").kernel, Target("sm_90", sms)
    kernel.check_config(kernel.config(shape, "bf16", few), shape, "bf16", few)


def test_a_product_after_an_rmsnorm_runs_on_every_part_of_a_chip() -> None:
    """Random shapes on 1 to 66 SMs, which MIG slices have."""
    kernel, draw = load_kernel("rmsnorm_matmul").kernel, random.Random(1)
    for sms in (*range(1, 9), *range(10, 67, 4)):
        for _ in range(16):
            b, h, o = (round(2 ** draw.uniform(0, most)) for most in (12.5, 11, 11))
            chip = Target("sm_90", sms)
            # Aligned rows, and unaligned ones.
            for shape in ({"B": b, "H": 8 * h, "O": 8 * o}, {"B": b, "H": 3 * h, "O": 8 * o}, {"B": b, "H": h, "O": o}):
                kernel.check_config(kernel.config(shape, "bf16", chip), shape, "bf16", chip)


@pytest.mark.parametrize("sms", [132, 16, 1])
def test_a_product_after_an_rmsnorm_has_a_configuration_of_the_shortest_unaligned_rows(sms: int) -> None:
    kernel, chip = load_kernel("rmsnorm_matmul").kernel, Target("sm_90", sms)
    for h, o, b in itertools.product(range(1, 12), (6, 15, 175, 2135, 9147), (1, 33, 1001)):
        shape = {"B": b, "H": h, "O": o}
        kernel.check_config(kernel.config(shape, "bf16", chip), shape, "bf16", chip)
        assert list(kernel.candidates(shape, "bf16", chip))


def test_clusters_of_four_leave_sms_idle() -> None:
    assert [gemm_config.resident(cluster, 132) for cluster in ((1, 1), (2, 1), (4, 1), (2, 2))] == [132, 132, 120, 120]
    assert [gemm_config.resident((4, 1), sms) for sms in (114, 78)] == [100, 68]


@pytest.mark.parametrize(
    ("name", "shape", "edit", "waiting"),
    [
        ("mla_decode", MLA, {"splits": 64}, 128),
        ("mla_decode", {"B": 1, "H": 5760, "S": 8192},
         {"variant": "warp_specialised", "num_warps": 4, "splits": 2}, 180),
        ("decode_attention", {"B": 1, "HQ": 32, "HKV": 8, "S": 24576, "D": 128},
         {"variant": "software_pipelined", "block_s": 64, "splits": 128, "num_warps": 4, "num_stages": 2,
          "ctas_per_sm": 0, "tma": 1, "late_trigger": 0}, 128),
        ("rmsnorm_matmul", {"B": 1024, "H": 4096, "O": 4096},
         {"variant": "cuda_cooperative", "block_b": 128, "block_o": 256, "split_k": 2, "num_warps": 8,
          "num_stages": 4, "x_stages": 0, "cluster_m": 1, "cluster_n": 1, "swap_ab": 0, "stream_k": 0}, 64),
        ("rmsnorm_matmul", {"B": 8, "H": 4096, "O": 4096},
         {"variant": "warp_specialised", "block_b": 8, "block_o": 64, "block_k": 128, "split_k": 8, "num_warps": 4,
          "num_stages": 4, "x_stages": 8, "scaling_warpgroups": 2, "cluster_m": 1, "cluster_n": 1, "swap_ab": 0,
          "stream_k": 0}, 8),
    ],
    ids=["mla-cuda", "mla-gluon", "decode", "cooperative", "warp-specialised"],
)  # fmt: skip
def test_a_chip_refuses_more_waiting_ctas_than_it_runs(
    name: str, shape: Any, edit: dict[str, Any], waiting: int
) -> None:
    kernel = load_kernel(name).kernel
    config = {**kernel.config(shape, "bf16", H200), **edit}
    kernel.check_config(config, shape, "bf16", Target("sm_90", max(waiting, 132)))
    with pytest.raises(InputError, match=f"{waiting} CTAs (wait for each other|in all)|at most {waiting - 1} CTAs"):
        kernel.check_config(config, shape, "bf16", Target("sm_90", waiting - 1))


def test_a_launch_refuses_more_waiting_ctas_than_the_device_runs() -> None:
    """A configuration that was sealed for a chip with more SMs comes to the launch unchecked."""
    kernel = load_kernel("mla_decode", launch=True).kernel
    sealed = build_case(kernel, load_hardware("h200"), shape=MLA, dtype="bf16").config
    launch: Any = sys.modules[kernel.config.__module__.replace(".rule", ".launch")]
    assert launch.plan(sealed, MLA, "bf16", H200).ctas == 128
    with pytest.raises(InputError, match="128 CTAs wait for each other, and sm_90 with 114 SMs"):
        launch.plan(sealed, MLA, "bf16", PCIE)


def test_check_together_takes_as_many_as_fit() -> None:
    configs.check_together("k", 114, PCIE)
    with pytest.raises(InputError, match="k: 115 CTAs wait for each other"):
        configs.check_together("k", 115, PCIE)


def test_no_rule_splits_a_sequence_beyond_the_chip() -> None:
    kernel = load_kernel("mla_decode").kernel
    assert [kernel.config(MLA, "bf16", chip)["splits"] for chip in (H200, PCIE, SLICE)] == [64, 32, 8]
    many_heads = {"B": 1, "H": 90 * 64 - 1, "S": 65536}
    assert kernel.config(many_heads, "bf16", H200)["splits"] == 1

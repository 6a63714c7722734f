"""Tests the attention kernels: their models, their results and what the compiler makes of them."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compiled import SHARED_LIMIT, TENSOR_CORE, compile_ahead
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
    need_hopper,
    shape_id,
    trials_of,
)
from loaded_kernels import load_kernel
from mutants.attention import GPU_MUTANTS, MUTANTS, ODD_SHAPES, TRIALS, cuda_trials
from mutants.checker import Trial, judge
from mutants.twin import load_twin

from ledger.errors import InputError
from ledger.kernel import Tolerance
from ledger.records import Work

NAMES = ("decode_attention", "flash_attention", "flash_attention_causal", "mla_decode")
FLASH = NAMES[1:3]
HEADS = {"B": 2, "HQ": 6, "HKV": 2, "S": 23, "D": 12}
SMALL = {**dict.fromkeys(NAMES[:3], HEADS), "mla_decode": {"B": 2, "H": 3, "S": 23}}
# Variants of decode_attention whose products are mma.sync, on sm_90 too.
CUDA = ("cuda_cluster", "cuda_stream_k")
# Bytes of local memory that a configuration may use, by the columns of attention: the reduction of splits, after the
# loop; beside the loop over keys.
KNOWN_STACK = {("mla_decode", "sm_90", None): 32, ("flash_attention", "sm_90", 192): 32}
needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="torch and triton are not both installed",
)
SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "decode_attention": (
        {"B": 8, "HQ": 32, "HKV": 8, "S": 512, "D": 128},
        {"B": 8, "HQ": 32, "HKV": 8, "S": 8192, "D": 128},
        {"B": 1, "HQ": 32, "HKV": 32, "S": 128, "D": 128},
    ),
    **{name: tuple({"B": 1, "HQ": 16, "HKV": 16, "S": 4096, "D": d} for d in (64, 128)) for name in FLASH},
    "mla_decode": ({"B": 64, "H": 128, "S": 8192},),
}
# On sm_90 also the generic variant, where the first shapes take others, and the warp-specialised variant of mla_decode,
# with splits and without, where the first shape takes CUDA C++.
ON_SM_90: dict[str, tuple[dict[str, int], ...]] = {
    "decode_attention": ({"B": 8, "HQ": 32, "HKV": 8, "S": 8192, "D": 32},),
    **{
        name: tuple(
            {"B": 4, "HQ": 16, "HKV": 16, "S": s, "D": d}
            for s, d in ((4096, 32), (512, 192), (4096, 192), (4096, 256), (1024, 256))
        )
        for name in FLASH
    },
    "mla_decode": ({"B": 4, "H": 64, "S": 6144}, {"B": 128, "H": 64, "S": 8192}),
}


def _dtypes(name: str, target: str) -> tuple[str, ...]:
    if name == "decode_attention":
        return gpu_dtypes(target, ("fp16", "bf16", "fp32"))
    return () if (name, target) == ("mla_decode", "sm_75") else gpu_dtypes(target, ("fp16", "bf16"))


_BUILDS = [
    (name, shape, dtype, target)
    for name, shapes in SHAPES.items()
    for shape in shapes
    for target in TARGETS
    for dtype in _dtypes(name, target)
] + [
    (name, shape, dtype, "sm_90") for name, shapes in ON_SM_90.items() for shape in shapes for dtype in ("fp16", "bf16")
]
BUILDS = builds(
    _BUILDS, [f"{name}-{shape_id(shape)}-{dtype}-{target}" for name, shape, dtype, target in _BUILDS], together=1
)

# Rows of a size that is no multiple of 16 bytes, and groups of query heads that several programs share.
_RAGGED = {"B": 3, "HQ": 14, "HKV": 2, "S": 1031, "D": 67}
_UNCOMMON = [
    ("decode_attention", _RAGGED, "fp32", "sm_90"),
    ("decode_attention", _RAGGED, "fp16", "sm_75"),
    ("decode_attention", {**_RAGGED, "HQ": 32, "D": 128}, "fp32", "sm_90"),
    ("decode_attention", {**_RAGGED, "HQ": 32, "D": 128}, "fp32", "sm_75"),
    ("flash_attention", _RAGGED, "fp16", "sm_90"),
    ("flash_attention_causal", _RAGGED, "bf16", "sm_80"),
    ("flash_attention_causal", {**_RAGGED, "D": 131}, "bf16", "sm_90"),
]
UNCOMMON = builds(
    _UNCOMMON,
    [f"{name}-{shape_id(shape)}-{dtype}-{target}" for name, shape, dtype, target in _UNCOMMON],
    together=1,
)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        # 2·4 query heads, 5 keys each: 4·3 + 5 operations; 2·4·3 + 2·2·2·5·3 elements in, 24 out.
        (
            "decode_attention",
            {"B": 2, "HQ": 4, "HKV": 2, "S": 5, "D": 3},
            Work(flops=680, bytes_read=288, bytes_written=48),
        ),
        # 2·4 heads, 25 scores each of 4·3 operations; (8 + 2·4) · 15 elements in, 120 out.
        (
            "flash_attention",
            {"B": 2, "HQ": 4, "HKV": 2, "S": 5, "D": 3},
            Work(flops=2400, bytes_read=480, bytes_written=240),
        ),
        # 15 scores instead of 25.
        (
            "flash_attention_causal",
            {"B": 2, "HQ": 4, "HKV": 2, "S": 5, "D": 3},
            Work(flops=1440, bytes_read=480, bytes_written=240),
        ),
        # 2·3·5 scores of 2·(576 + 512) operations; (2·3 + 2·5) · 576 elements in, 6 · 512 out.
        ("mla_decode", {"B": 2, "H": 3, "S": 5}, Work(flops=65_280, bytes_read=18_432, bytes_written=6_144)),
    ],
)
def test_attention_work_is_as_worked_by_hand(name: str, shape: dict[str, int], expected: Work) -> None:
    assert load_kernel(name).kernel.work(shape, "fp16") == expected


@pytest.mark.parametrize("d", [264, 320, 512, 1024])
def test_whole_sequences_of_wide_rows_have_a_configuration(d: int) -> None:
    kernel, shape = load_kernel("flash_attention").kernel, {"B": 2, "HQ": 8, "HKV": 8, "S": 512, "D": d}
    kernel.check_config(kernel.config(shape, "bf16", "sm_90"), shape, "bf16", "sm_90")
    with pytest.raises(InputError, match=r"D is 1040 on sm_75.*expected a smaller D"):
        kernel.config({**shape, "D": 1040}, "fp16", "sm_75")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES[:3])
@settings(max_examples=40)
@given(
    b=st.integers(1, 80),
    kv=st.integers(1, 16),
    group=st.integers(1, 16),
    s=st.integers(1, 140_000),
    d=st.integers(1, 256),
)
def test_attention_rule_gives_what_the_architecture_can_run(
    name: str, target: str, b: int, kv: int, group: int, s: int, d: int
) -> None:
    kernel, shape = load_kernel(name).kernel, {"B": b, "HQ": kv * group, "HKV": kv, "S": s, "D": d}
    for dtype in _dtypes(name, target):
        kernel.check_config(kernel.config(shape, dtype, target), shape, dtype, target)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", TARGETS[1:])
@settings(max_examples=40)
@given(b=st.integers(1, 200), h=st.integers(1, 200), s=st.integers(1, 140_000))
def test_mla_decode_rule_gives_what_the_architecture_can_run(target: str, b: int, h: int, s: int) -> None:
    kernel, shape = load_kernel("mla_decode").kernel, {"B": b, "H": h, "S": s}
    for dtype in _dtypes("mla_decode", target):
        kernel.check_config(kernel.config(shape, dtype, target), shape, dtype, target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("b", "h", "s", "variant", "splits"),
    # As measured: clusters wherever no sequence is split,
    [
        (64, 128, 8192, "cuda", 1), (64, 128, 64, "cuda", 1), (48, 128, 6144, "cuda", 1),
        (33, 128, 8192, "warp_specialised", 2), (128, 64, 8192, "warp_specialised", 1),
        # And where sequences are so few that 16 splits of each run at once.
        (1, 128, 8192, "cuda", 64), (1, 128, 6144, "cuda", 32), (2, 128, 2048, "cuda", 32), (4, 128, 8192, "cuda", 16),
        (1, 128, 1024, "cuda", 16), (8, 128, 4096, "warp_specialised", 8), (1, 128, 128, "cuda", 1),
        (17, 128, 8192, "warp_specialised", 2), (1, 64, 8192, "warp_specialised", 16),
    ],
)  # fmt: skip
def test_mla_decode_takes_clusters_for_whole_sequences_and_for_few_long_ones(
    b: int, h: int, s: int, variant: str, splits: int
) -> None:
    config = load_kernel("mla_decode").kernel.config({"B": b, "H": h, "S": s}, "bf16", "sm_90")
    assert (config["variant"], config["splits"]) == (variant, splits)


@pytest.mark.parametrize(
    ("name", "heads", "s", "d", "tile"),
    [
        # Keys and stages of a tile, ping-pong; several blocks a CTA from 132 blocks of queries on.
        ("flash_attention", 64, 4096, 192, (128, 3, 0)), ("flash_attention", 64, 768, 160, (64, 5, 0)),
        ("flash_attention", 64, 4096, 256, (64, 5, 0)), ("flash_attention", 64, 512, 208, (64, 5, 0)),
        ("flash_attention_causal", 64, 2048, 136, (128, 3, 1)), ("flash_attention_causal", 64, 1024, 192, (64, 5, 1)),
        ("flash_attention_causal", 8, 1024, 192, (128, 3, 1)), ("flash_attention_causal", 64, 3072, 256, (64, 3, 0)),
        ("flash_attention_causal", 64, 3073, 256, (64, 5, 0)), ("flash_attention", 64, 4096, 128, (128, 5, 1)),
    ],
)  # fmt: skip
def test_flash_attention_rule_takes_what_was_fastest(
    name: str, heads: int, s: int, d: int, tile: tuple[int, int, int]
) -> None:
    config = load_kernel(name).kernel.config({"B": 1, "HQ": heads, "HKV": heads, "S": s, "D": d}, "bf16", "sm_90")
    assert (config["variant"], config["block_n"], config["num_stages"], config["pingpong"]) == (
        "warp_specialised",
        *tile,
    )


STREAM_K: dict[str, int | str] = {"variant": "cuda_stream_k", "block_s": 32, "num_stages": 1}


@pytest.mark.parametrize(
    ("name", "edit", "says"),
    [
        ("decode_attention", {"block_s": 48}, "power of two"),
        ("decode_attention", {"splits": 1000}, "splits is 1000"),
        ("decode_attention", {"num_stages": 8}, "shared memory"),
        ("decode_attention", {"tensor_cores": 2}, "tensor_cores is 2"),
        ("decode_attention", {"warps": 4}, "configuration keys"),
        ("flash_attention", {"block_n": 100}, "power of two"),
        ("flash_attention", {"num_stages": 16}, "shared memory"),
        ("flash_attention", {"block_m": 64}, "block_m 192"),
        ("flash_attention", {"block_m": 128, "num_warps": 4, "variant": "warp_specialised"}, "expected D from 65"),
        ("flash_attention", {"num_stages": 2}, "variant is cuda; expected 3 stages"),
        ("flash_attention", {"pingpong": 1}, "pingpong 0"),
        ("flash_attention", {"programs": 0}, "programs from 1"),
        ("flash_attention", {"variant": "generic", "block_m": 128}, "pingpong are not for the generic"),
        ("flash_attention", {"variant": "cuda_cluster", "block_m": 128}, "variant is 'cuda_cluster'"),
        ("flash_attention_causal", {"tma": 2}, "tma is 2"),
        ("mla_decode", {"block_h": 24}, "power of two"),
        ("mla_decode", {"splits": 1000}, "splits is 1000"),
        ("mla_decode", {"num_stages": 8}, "variant is cuda; expected .*num_stages 2"),
        ("mla_decode", {"splits": 4}, "splits is 4 with variant cuda in fp16; expected 1, or 4, 8"),
        ("mla_decode", {"variant": "warp_specialised", "num_warps": 4, "splits": 3}, "expected 1, 2, 4, 8 or 16"),
        ("mla_decode", {"variant": "warp_specialised"}, "variant is warp_specialised; expected .*num_warps 4"),
        ("mla_decode", {"variant": "cuda_stream_k"}, "variant is 'cuda_stream_k' on sm_90"),
        ("mla_decode", {"variant": "generic", "num_stages": 8}, "shared memory"),
        ("decode_attention", {"tma": 0}, "variant is software_pipelined"),
        ("decode_attention", {"pdl": 2}, "pdl is 2"),
        ("decode_attention", {"late_trigger": 2}, "late_trigger is 2"),
        ("decode_attention", {"variant": "generic", "late_trigger": 1}, "late_trigger is 1"),
        ("decode_attention", {"pdl": 0, "late_trigger": 1}, "expected 0, or 1 with pdl 1"),
        ("decode_attention", {"variant": "cuda"}, "variant is 'cuda'; expected one of: generic"),
        ("decode_attention", {"ctas_per_sm": 2}, "ctas_per_sm is 2"),
        ("decode_attention", {"variant": "cuda_cluster"}, "block_s is 128 with variant cuda_cluster"),
        ("decode_attention", {**STREAM_K, "splits": 4}, "splits is 4 with variant cuda_stream_k"),
        ("decode_attention", {**STREAM_K, "ctas_per_sm": 4}, "ctas_per_sm is 4 with variant cuda_stream_k"),
    ],
)
def test_attention_refuses_config(name: str, edit: dict[str, int | str], says: str) -> None:
    kernel, shape = load_kernel(name).kernel, SHAPES[name][0]
    with pytest.raises(InputError, match=says):
        kernel.check_config({**kernel.config(shape, "fp16", "sm_90"), **edit}, shape, "fp16", "sm_90")


@pytest.mark.parametrize(
    ("edit", "dtype", "target"),
    [({"D": 96}, "fp16", "sm_90"), ({"HKV": 2}, "fp16", "sm_90"), ({}, "fp32", "sm_90"), ({}, "fp16", "sm_80")],
)
def test_decode_attention_refuses_cuda_where_it_has_none(edit: dict[str, int], dtype: Any, target: str) -> None:
    kernel, shape = load_kernel("decode_attention").kernel, {"B": 8, "HQ": 32, "HKV": 8, "S": 8192, "D": 128}
    config = kernel.config(shape, "fp16", "sm_90")
    assert config["variant"] in CUDA
    with pytest.raises(InputError, match="expected it on sm_90 alone"):
        kernel.check_config(config, {**shape, **edit}, dtype, target)


@pytest.mark.parametrize(
    ("b", "s", "taken"),
    [
        # As measured: variant, splits, warps, whether the next launch may begin only late.
        (1, 128, ("software_pipelined", 1, 4, 0)), (1, 512, ("cuda_cluster", 8, 8, 1)),
        (1, 24576, ("cuda_stream_k", 1, 8, 0)), (8, 512, ("software_pipelined", 1, 4, 0)),
        (8, 1024, ("cuda_cluster", 2, 8, 1)), (8, 8192, ("cuda_stream_k", 1, 8, 0)),
        (12, 768, ("software_pipelined", 1, 4, 1)), (32, 256, ("cuda_cluster", 1, 4, 0)),
        (64, 256, ("cuda_cluster", 1, 2, 0)), (64, 8192, ("cuda_stream_k", 1, 8, 0)),
    ],
)  # fmt: skip
def test_decode_attention_rule_takes_what_was_fastest(b: int, s: int, taken: tuple[int | str, ...]) -> None:
    config = load_kernel("decode_attention").kernel.config(
        {"B": b, "HQ": 32, "HKV": 8, "S": s, "D": 128}, "fp16", "sm_90"
    )
    assert tuple(config[key] for key in ("variant", "splits", "num_warps", "late_trigger")) == taken


@pytest.mark.parametrize("name", NAMES[:3])
def test_attention_refuses_heads_that_do_not_group(name: str) -> None:
    kernel, shape = load_kernel(name).kernel, {**HEADS, "HQ": 7}
    with pytest.raises(InputError, match="expected a multiple"):
        kernel.check_config(kernel.config(HEADS, "fp16", "sm_90"), shape, "fp16", "sm_90")


@pytest.mark.parametrize("name", (*FLASH, "mla_decode"))
def test_attention_of_many_scores_offers_fp32_on_cpus_only(name: str) -> None:
    with pytest.raises(InputError, match="fp32 is for CPUs"):
        load_kernel(name).kernel.config(SMALL[name], "fp32", "sm_90")


@pytest.mark.parametrize("name", NAMES)
def test_attention_refuses_bf16_on_sm_75_and_unknown_targets(name: str) -> None:
    kernel = load_kernel(name).kernel
    with pytest.raises(InputError, match="sm_75"):
        kernel.check_config(kernel.config(SMALL[name], "bf16", "sm_75"), SMALL[name], "bf16", "sm_75")
    with pytest.raises(InputError, match="gfx90a"):
        kernel.config(SMALL[name], "fp16", "gfx90a")


def test_decode_attention_keeps_ragged_rows_off_wgmma() -> None:
    # On an H200, triton 3.6.0: wrong results for D = 67 in tiles of 128 keys, right ones in tiles of 32.
    kernel, shape = load_kernel("decode_attention").kernel, {"B": 3, "HQ": 14, "HKV": 2, "S": 1031, "D": 67}
    config = kernel.config(shape, "fp16", "sm_90")
    assert config["block_s"] == 32
    with pytest.raises(InputError, match="miscompiles"):
        kernel.check_config({**config, "block_s": 64}, shape, "fp16", "sm_90")


@needs_triton
@pytest.mark.parametrize("name", NAMES)
def test_attention_element_is_the_reference(name: str) -> None:
    assert max(element_errors(name, SMALL[name])) < 1e-12


@needs_triton
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("name", NAMES)
def test_attention_cpu_implementation_is_right(name: str, dtype: str) -> None:
    assert cpu_errors(name, SMALL[name], dtype) <= 0


@needs_triton
@pytest.mark.parametrize("trial", trials_of("mutants.attention"))
def test_attention_is_right_when_interpreted(trial: str) -> None:
    assert interpreted("mutants.attention", trial) is None


@needs_triton
@pytest.mark.parametrize("mutant", mutants_of("mutants.attention"))
def test_checker_rejects_attention_mutant_when_interpreted(mutant: str) -> None:
    assert interpreted("mutants.attention", mutant) is not None


@needs_triton
@pytest.mark.parametrize(("name", "shape", "dtype", "target"), BUILDS)
def test_attention_ahead_takes_its_path_fits_and_does_not_spill(
    name: str, shape: dict[str, int], dtype: Any, target: str
) -> None:
    made = compiled(name, tuple(shape.items()), dtype, target)
    kernel = load_kernel(name, launch=True).kernel
    if kernel.path(dtype, target, "triton") == "fp32":
        assert not re.search(r"\bmma\.sync|wgmma|tcgen05", made.ptx)
    else:
        mma_sync = name == "decode_attention" and kernel.config(shape, dtype, target)["variant"] in CUDA
        assert re.search(TENSOR_CORE["sm_80" if mma_sync else target], made.ptx)
    assert made.stack <= KNOWN_STACK.get((name, target, shape.get("D")), 0)
    assert made.shared <= SHARED_LIMIT[target]
    config, bound = kernel.config(shape, dtype, target), sys.modules[kernel.config.__module__].shared_bytes
    assert made.shared <= (bound(config, dtype) if name == "mla_decode" else bound(config, shape, dtype))


@needs_triton
@pytest.mark.parametrize(("name", "shape", "dtype", "target"), UNCOMMON)
def test_uncommon_attention_ahead_fits_and_does_not_spill(
    name: str, shape: dict[str, int], dtype: Any, target: str
) -> None:
    made = compiled(name, tuple(shape.items()), dtype, target)
    kernel = load_kernel(name, launch=True).kernel
    assert made.stack == 0
    assert made.shared <= sys.modules[kernel.config.__module__].shared_bytes(
        kernel.config(shape, dtype, target), shape, dtype
    )
    if kernel.path(dtype, target, "triton") == "fp32":
        assert not re.search(r"\bmma\.sync|wgmma|tcgen05", made.ptx)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("name", NAMES)
def test_attention_is_right_on_the_gpu(name: str, dtype: Any) -> None:
    target = gpu_target()
    if dtype not in _dtypes(name, target):
        pytest.skip(f"{name} has no {dtype} on {target}")
    kernel = load_kernel(name, launch=True).kernel
    shapes = (*kernel.cases, *ODD_SHAPES[name])
    own = [Trial(shape, dtype, kernel.config(shape, dtype, target)) for shape in shapes]
    small = [variant for trial in TRIALS[name](dtype) for variant in gpu_variants(trial, target)]
    wrong = {f"{trial.id}-{trial.config}": judge(kernel, trial, "cuda") for trial in (*own, *small)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_mla_decode_is_right_on_the_gpu_where_references_rise(dtype: Any) -> None:
    target, kernel = gpu_target(), load_kernel("mla_decode", launch=True).kernel
    if dtype not in _dtypes("mla_decode", target):
        pytest.skip(f"mla_decode has no {dtype} on {target}")
    # Scores so far apart that a single key may decide: the rounding of its exponential, which is not 1 where a
    # reference is held back below it, weighs a value of up to 2, and no others average it out. In fp16 the kernel's own
    # bound holds.
    reason = "one rounding of an exponential that weighs a value of 2, one of the result"
    bound = Tolerance(2 * 2.0**-8, 2.0**-8, reason)
    held_back = replace(kernel, tolerances={**kernel.tolerances, "bf16": bound})
    trials = [Trial(shape, dtype, kernel.config(shape, dtype, target), 16.0) for shape in ODD_SHAPES["mla_decode"]]
    judged = [(trial, kernel if trial.config["variant"] == "generic" else held_back) for trial in trials]
    wrong = {f"{trial.id}-{trial.config}": judge(bounded, trial, "cuda") for trial, bounded in judged}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.name}")
def test_checker_rejects_attention_mutant_on_the_gpu(mutant: Any, tmp_path: Path) -> None:
    gpu_target()
    twin = load_twin(mutant, tmp_path)
    assert any(judge(twin, trial, "cuda") for trial in TRIALS[mutant.kernel]("fp16"))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_trial_in_cuda_has_a_configuration_that_the_kernel_allows(dtype: Any) -> None:
    kernel = load_kernel("decode_attention").kernel
    for trial in cuda_trials(dtype):
        kernel.check_config(trial.config, trial.shape, dtype, "sm_90")


@needs_triton
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.exhaustive
def test_attention_in_cuda_ahead_multiplies_on_tensor_cores_and_does_not_spill(dtype: Any) -> None:
    kernel = load_kernel("decode_attention", launch=True).kernel
    for trial in cuda_trials(dtype):
        made = compile_ahead(kernel, trial.config, trial.shape, dtype, "sm_90")
        bound = sys.modules[kernel.config.__module__].shared_bytes(trial.config, trial.shape, dtype)
        assert (made.stack, made.shared) == (0, bound)
        assert f"mma.sync.aligned.m16n8k16.row.col.f32.{'f16' if dtype == 'fp16' else dtype}" in made.ptx


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_attention_in_cuda_is_right_on_the_gpu(dtype: Any) -> None:
    need_hopper()
    kernel = load_kernel("decode_attention", launch=True).kernel
    wrong = {f"{trial.id}-{trial.config}": judge(kernel, trial, "cuda") for trial in cuda_trials(dtype)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", GPU_MUTANTS, ids=lambda mutant: mutant.name)
def test_checker_rejects_mutant_of_attention_in_cuda_on_the_gpu(mutant: Any, tmp_path: Path) -> None:
    need_hopper()
    twin = load_twin(mutant, tmp_path)
    assert any(judge(twin, trial, "cuda") for trial in cuda_trials("fp16"))

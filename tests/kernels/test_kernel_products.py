"""Tests the products with a bias, in fp8 and in int8: models, results and what the compiler makes of them."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from compiled import SHARED_LIMIT, compile_ahead
from covering import builds
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_suite import (
    TARGETS,
    cpu_errors,
    element_errors,
    gpu_target,
    interpreted,
    mutants_of,
    need_hopper,
    shape_id,
    trials_of,
)
from loaded_kernels import load_kernel
from mutants.checker import Trial, judge
from mutants.products import PIPELINED_MUTANTS, PIPELINED_TRIALS, TRIALS
from mutants.twin import load_twin

from ledger.errors import InputError
from ledger.record_files import load_hardware
from ledger.records import Work

PROFILES = {"sm_75": "t4", "sm_80": "a100_sxm", "sm_89": "l4", "sm_90": "h200", "sm_100": "b200"}
FAMILY = {"sm_75": "scalar FMA", "sm_80": "mma.sync", "sm_89": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05"}
LACKING = {"matmul_bias_relu": (), "matmul_fp8": ("sm_75", "sm_80"), "matmul_int8": ("sm_75",)}
CELLS = [
    (name, dtype, target)
    for name, lacking in LACKING.items()
    for dtype in load_kernel(name).kernel.dtypes
    for target in TARGETS
    if target not in lacking and (dtype, target) != ("bf16", "sm_75")
]
SHAPES = ({"M": 4096, "N": 4096, "K": 4096}, {"M": 64, "N": 512, "K": 512}, {"M": 127, "N": 129, "K": 131})
needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="torch and triton are not both installed",
)


# The model


@pytest.mark.parametrize(
    ("name", "dtype", "work"),
    [
        # 2·2·3·5 operations of the product and 2·2·3 of bias and maximum; 2·5 + 5·3 + 3 elements in, 2·3 out.
        ("matmul_bias_relu", "fp16", Work(flops=72, bytes_read=56, bytes_written=12)),
        # 2·5 + 3·5 bytes in; 2·3 elements of two bytes, and of four, out.
        ("matmul_fp8", "fp8_e4m3", Work(flops=60, bytes_read=25, bytes_written=12)),
        ("matmul_int8", "int8", Work(flops=60, bytes_read=25, bytes_written=24)),
    ],
)
def test_work_is_as_worked_by_hand(name: str, dtype: Any, work: Work) -> None:
    assert load_kernel(name).kernel.work({"M": 2, "N": 3, "K": 5}, dtype) == work


@pytest.mark.parametrize(("name", "dtype", "target"), CELLS)
@settings(max_examples=40)
@given(m=st.integers(1, 70_000), n=st.integers(1, 70_000), k=st.integers(1, 70_000))
def test_rule_gives_what_the_architecture_can_run(name: str, dtype: Any, target: str, m: int, n: int, k: int) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": m, "N": n, "K": k}
    kernel.check_config(kernel.config(shape, dtype, target), shape, dtype, target)


@pytest.mark.parametrize(
    ("name", "target"), [(name, target) for name, lacking in LACKING.items() for target in lacking]
)
def test_rule_refuses_a_target_without_the_instructions(name: str, target: str) -> None:
    kernel = load_kernel(name).kernel
    with pytest.raises(InputError, match=target):
        kernel.config(SHAPES[0], kernel.dtypes[0], target)
    config = kernel.config(SHAPES[0], kernel.dtypes[0], "sm_90")
    with pytest.raises(InputError, match=target):
        kernel.check_config(config, SHAPES[0], kernel.dtypes[0], target)


EDITS: list[tuple[dict[str, Any], str]] = [
    ({"block_m": 96}, "power of two"),
    ({"block_m": 32}, "wgmma"),
    ({"num_stages": 9}, "shared memory"),
    ({"programs": 0}, "at least 1"),
    ({"tma": 2}, "tma is 2"),
    ({"tma": 0}, "tma 1"),
    ({"variant": "cuda"}, "variant is '?cuda'?"),
    ({"variant": "portable"}, "variant is 'portable'"),
    ({"subtiles": 8}, "subtiles is 8"),
    ({"num_warps": 8}, "4 warps"),
    ({"warps": 8}, "configuration keys"),
]

TILE = ("variant", "block_m", "block_n", "cluster_m", "cluster_n", "swap_ab", "split_k", "stream_k")


# What the rule would take if it took the pipelined kernel.
PIPELINED = {
    "variant": "warp_specialised", "block_m": 128, "block_n": 128, "num_warps": 4, "num_stages": 3, "cluster_m": 1,
    "stream_k": 0, "pdl": 0, "swap_ab": 0,
}  # fmt: skip


def pipelined_config(kernel: Any) -> dict[str, Any]:
    config = kernel.config(SHAPES[0], kernel.dtypes[0], "sm_90")
    return {**config, **{key: value for key, value in PIPELINED.items() if key in config}}


@pytest.mark.parametrize("name", list(LACKING))
@pytest.mark.parametrize(("edit", "says"), EDITS)
def test_config_is_refused(name: str, edit: dict[str, Any], says: str) -> None:
    kernel = load_kernel(name).kernel
    kernel.check_config(pipelined_config(kernel), SHAPES[0], kernel.dtypes[0], "sm_90")
    config = {**pipelined_config(kernel), **edit}
    with pytest.raises(InputError, match=says):
        kernel.check_config(config, SHAPES[0], kernel.dtypes[0], "sm_90")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"block_n": 256}, "promote is 1 .* sums in its registers"),
        ({"promote": 2}, "promote is 2"),
        ({"variant": "generic", "subtiles": 4}, "subtiles is 4"),
    ],
)
def test_fp8_config_is_refused(edit: dict[str, Any], says: str) -> None:
    kernel = load_kernel("matmul_fp8").kernel
    config = {**pipelined_config(kernel), "num_stages": 2, **edit}
    with pytest.raises(InputError, match=says):
        kernel.check_config(config, SHAPES[0], "fp8_e4m3", "sm_90")


CLUSTERED = [("matmul_bias_relu", "fp16"), ("matmul_bias_relu", "bf16"), ("matmul_fp8", "fp8_e4m3")]


@pytest.mark.parametrize(("name", "dtype"), CLUSTERED)
@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"block_m": 256}, "expected (block_m 128|64, 128 or 192)"),
        ({"stream_k": 2}, "stream_k is 2"),
        ({"split_k": 3}, "split_k 1 or 2"),
        ({"split_k": 2}, "stream_k 1 and split_k 2"),
        ({"pdl": 2}, "pdl is 2"),
        ({"num_stages": 1}, "at least 2 stages"),
        ({"programs": 1}, "2 programs"),
        ({"num_stages": 9}, "shared memory"),
        ({"variant": "warp_specialised", "num_warps": 4, "block_n": 128, "num_stages": 2}, "expected cluster_m 1"),
    ],
)
def test_cluster_config_is_refused(name: str, dtype: Any, edit: dict[str, Any], says: str) -> None:
    kernel = load_kernel(name).kernel
    trial = next(one for one in PIPELINED_TRIALS[name](dtype) if one.config.get("stream_k") and one.config["pdl"])
    kernel.check_config(trial.config, trial.shape, dtype, "sm_90")
    with pytest.raises(InputError, match=says):
        kernel.check_config({**trial.config, **edit}, trial.shape, dtype, "sm_90")
    with pytest.raises(InputError, match="sm_100"):
        kernel.check_config(trial.config, trial.shape, dtype, "sm_100")


@pytest.mark.parametrize(
    ("name", "edit", "says"),
    [
        ("matmul_int8", {"swap_ab": 0, "block_m": 64}, "expected block_k 128, num_warps .* swap_ab 1"),
        ("matmul_int8", {"block_m": 72}, "steps of 16, at most 256 by 64"),
        # A TMA box has at most 256 rows of B.
        ("matmul_int8", {"block_n": 320, "num_warps": 20, "block_m": 96}, "at most .* 192 by 192, 128 by 256"),
        ("matmul_fp8", {"block_m": 208}, "steps of 8, at most 152 by 64, 200 by 128"),
        ("matmul_fp8", {"swap_ab": 0, "block_m": 192, "block_n": 192}, "192 x 192 in fp8_e4m3, whose sums registers"),
        # CTAs of a cluster load equal shares of a tile of B: 128 columns do not divide by three.
        ("matmul_fp8", {"cluster_m": 3}, "block_n 128 and cluster_m 3; expected a divisor of block_n"),
    ],
)
def test_swapped_config_of_one_byte_is_refused(name: str, edit: dict[str, Any], says: str) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": 3610, "N": 512, "K": 18944}
    (dtype,), config = kernel.dtypes, kernel.config(shape, kernel.dtypes[0], "sm_90")
    assert (config["variant"], config["swap_ab"], config["block_n"]) == ("cuda", 1, 128)
    kernel.check_config(config, shape, dtype, "sm_90")
    with pytest.raises(InputError, match=says):
        kernel.check_config({**config, **edit}, shape, dtype, "sm_90")


@pytest.mark.parametrize("name", ["matmul_fp8", "matmul_int8"])
def test_unaligned_columns_alone_are_no_copy(name: str) -> None:
    kernel = load_kernel(name).kernel
    tiles = [
        {key: kernel.config({"M": 300, "N": columns, "K": 8208}, kernel.dtypes[0], "sm_90")[key] for key in TILE}
        for columns in (1000, 999)
    ]
    assert tiles[0] == tiles[1]


@pytest.mark.parametrize("name", ["matmul_fp8", "matmul_int8"])
def test_offered_tiles_of_other_variants_use_the_whole_chip(name: str) -> None:
    kernel = load_kernel(name).kernel
    # Its own tile is in a cluster of four and more, of which fewer CTAs fit.
    shape = {"M": 300, "N": 1000, "K": 8208}
    configs = [one.config for one in kernel.candidates(shape, kernel.dtypes[0], "sm_90")]
    assert configs[0]["programs"] < 132
    assert {one["programs"] for one in configs if one["variant"] != "cuda"} == {132}


@pytest.mark.parametrize(
    ("name", "n", "block_n", "stream_k", "last"),
    [
        ("matmul_fp8", 144, 64, 0, 80), ("matmul_int8", 144, 64, 0, 80), ("matmul_fp8", 192, 64, 0, 128),
        ("matmul_fp8", 144, 192, 0, 0), ("matmul_fp8", 40, 64, 0, 0),
        # Sums that stream-K divides, and stores of rows that are no multiple of 16 bytes.
        ("matmul_fp8", 144, 64, 1, 128), ("matmul_fp8", 145, 64, 0, 128),
        ("matmul_bias_relu", 144, 64, 0, 128), ("matmul_fp8_blocks", 144, 64, 0, 128),
    ],
)  # fmt: skip
def test_last_tiles_of_one_byte_load_no_rows_outside(name: str, n: int, block_n: int, stream_k: int, last: int) -> None:
    cluster = load_kernel(name).kernel.config.__self__.cluster
    assert cluster.last_col({"block_n": block_n, "stream_k": stream_k}, n) == last


@pytest.mark.parametrize("name", ["matmul_bias_relu", "matmul_fp8", "matmul_int8"])
@pytest.mark.parametrize("rows", [1, 16, 72, 300])
def test_rule_swaps_few_rows(name: str, rows: int) -> None:
    kernel = load_kernel(name).kernel
    config = kernel.config({"M": rows, "N": 4096, "K": 4096}, kernel.dtypes[0], "sm_90")
    # Of a few rows a tile of 64 would be mostly empty.
    assert (config["variant"], config["swap_ab"]) == ("cuda", 1)
    assert config["block_m"] < rows + 16


@needs_triton
@pytest.mark.parametrize(("name", "dtype"), [*CLUSTERED, ("matmul_int8", "int8")])
@pytest.mark.exhaustive
def test_every_variant_of_the_cluster_kernels_multiplies_by_wgmma_and_does_not_spill(name: str, dtype: Any) -> None:
    kernel = load_kernel(name, launch=True).kernel
    bound = kernel.config.__self__.shared_bytes
    for trial in PIPELINED_TRIALS[name](dtype):
        if trial.config["variant"] == "cuda":
            made = compile_ahead(kernel, trial.config, trial.shape, dtype, "sm_90")
            assert (made.stack, made.shared) == (0, bound(trial.config, dtype))
            side = trial.config["block_m" if trial.config["swap_ab"] else "block_n"]
            assert f"wgmma.mma_async.sync.aligned.m64n{side}k" in made.ptx
            assert (".multicast::cluster" in made.ptx) == (trial.config["cluster_m"] * trial.config["cluster_n"] > 1)


@pytest.mark.parametrize(("name", "shape"), [("matmul_fp8", {"K": 4104}), ("matmul_int8", {"K": 4098})])
def test_ragged_rows_are_copied_on_sm_90_where_there_are_many(name: str, shape: dict[str, int]) -> None:
    kernel, ragged = load_kernel(name).kernel, {**SHAPES[0], **shape}
    dtype = kernel.dtypes[0]
    assert kernel.config(ragged, dtype, "sm_90")["tma"] == 1
    assert kernel.config({**ragged, "M": 64}, dtype, "sm_90")["tma"] == 0
    assert kernel.config(ragged, dtype, "sm_100")["tma"] == 0
    with pytest.raises(InputError, match="16 bytes"):
        kernel.check_config(kernel.config(SHAPES[0], dtype, "sm_100"), ragged, dtype, "sm_100")


@pytest.mark.parametrize("name", ["matmul", "matmul_bias_relu", "matmul_fp8", "matmul_int8"])
def test_rows_that_lie_unaligned_are_counted_for_the_operand_that_is_copied(name: str) -> None:
    kernel = load_kernel(name).kernel
    dtype, by_rows = kernel.dtypes[0], name in ("matmul_fp8", "matmul_int8")

    def tma(m: int, n: int, k: int) -> int:
        return int(kernel.config({"M": m, "N": n, "K": k}, dtype, "sm_90")["tma"])

    # An unaligned A is copied for any number of rows: it is small where they are few. B only for many.
    assert tma(8, 4096, 4098) == (0 if by_rows else 1)
    assert tma(8, 2051, 1008) == (1 if by_rows else 0)
    assert tma(65, 4099, 4098) == 1


# Results


@needs_triton
@pytest.mark.parametrize("name", list(LACKING))
def test_element_is_the_reference(name: str) -> None:
    assert max(element_errors(name, {"M": 9, "N": 19, "K": 131})) < 1e-12


@needs_triton
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in LACKING for dtype in load_kernel(name).kernel.dtypes]
)
def test_cpu_implementation_is_right(name: str, dtype: str) -> None:
    assert cpu_errors(name, {"M": 9, "N": 19, "K": 131}, dtype) <= 0


@needs_triton
@pytest.mark.parametrize("trial", trials_of("mutants.products"))
def test_kernel_is_right_when_interpreted(trial: str) -> None:
    assert interpreted("mutants.products", trial) is None


@needs_triton
@pytest.mark.parametrize("mutant", mutants_of("mutants.products"))
def test_checker_rejects_mutant_when_interpreted(mutant: str) -> None:
    assert interpreted("mutants.products", mutant) is not None


@needs_triton
def test_int8_sum_is_exact_at_the_ends_of_the_range() -> None:
    """Every product the largest there is: -128 · -128, whose sum over K = 1030 is 16,875,520, above 2**24."""
    import torch

    kernel = load_kernel("matmul_int8").kernel
    a, b = (torch.full((3, 1030), -128, dtype=torch.int8) for _ in range(2))
    out = torch.empty((3, 3), dtype=torch.float32)
    kernel.implementations["torch-cpu"]({"a": a, "b": b}, out, {})()
    assert torch.equal(out.double(), kernel.reference({"a": a, "b": b}))


# What the compiler makes of them


@cache
def inspected(name: str, index: int, dtype: Any, target: str) -> Any:
    from ledger.measure.inspection import inspect

    kernel = load_kernel(name, launch=True).kernel
    return inspect(kernel, load_hardware(PROFILES[target]), shape=SHAPES[index], dtype=dtype)


_BUILDS = [
    (name, index, dtype, target) for name, dtype, target in CELLS for index in range(len(SHAPES)) if dtype != "fp32"
]
BUILDS = builds(
    _BUILDS, [f"{name}-{shape_id(SHAPES[i])}-{dtype}-{target}" for name, i, dtype, target in _BUILDS], together=1
)


@needs_triton
@pytest.mark.parametrize(("name", "index", "dtype", "target"), BUILDS)
def test_ahead_takes_the_path_that_the_kernel_names_and_fits(name: str, index: int, dtype: Any, target: str) -> None:
    found = inspected(name, index, dtype, target)
    # Triton has no tcgen05 for int8, and few unaligned rows lie in shared memory as wgmma cannot read them.
    older = (name, target) == ("matmul_int8", "sm_100") or found.config.get("variant") == "few_rows"
    family = "mma.sync" if older else FAMILY[target]
    assert found.instructions.family == family
    assert found.agrees
    assert found.stack_bytes == 0
    assert found.shared_bytes <= SHARED_LIMIT[target]


@needs_triton
@pytest.mark.parametrize(("name", "index", "dtype", "target"), BUILDS)
def test_ahead_stays_within_the_bound_of_shared_memory(name: str, index: int, dtype: Any, target: str) -> None:
    # The bound is the kernel file's own; the contract does not carry it.
    bound = load_kernel(name, launch=True).kernel.config.__self__.shared_bytes
    found = inspected(name, index, dtype, target)
    assert found.shared_bytes <= bound(found.config, dtype)


@needs_triton
@pytest.mark.parametrize("name", list(LACKING))
def test_ahead_for_sm_90_is_the_pipelined_kernel_where_rows_allow_it(name: str) -> None:
    dtype = load_kernel(name).kernel.dtypes[0]
    large, ragged = inspected(name, 0, dtype, "sm_90"), inspected(name, 2, dtype, "sm_90")
    for found in (large, ragged):
        variant = found.config["variant"]
        # Few unaligned rows are read as they lie, which TMA cannot do, and so are those of a product with few steps.
        assert found.instructions.tma == (variant not in ("few_rows", "generic"))
    assert large.config["variant"] != "generic"


@needs_triton
@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_ahead_ragged_rows_of_matmul_do_not_spill(target: str) -> None:
    """With a tile of 128 × 128 × 64 and four warps they took 1,080 bytes of stack a thread on sm_90."""
    from ledger.measure.inspection import inspect

    kernel, shape = load_kernel("matmul", launch=True).kernel, {"M": 3583, "N": 3585, "K": 3587}
    found = inspect(kernel, load_hardware(PROFILES[target]), shape=shape, dtype="fp16")
    assert (found.stack_bytes, found.instructions.family) == (0, FAMILY[target])


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in LACKING for dtype in load_kernel(name).kernel.dtypes]
)
def test_kernel_is_right_on_the_gpu(name: str, dtype: Any) -> None:
    target = gpu_target()
    if target in LACKING[name] or (dtype, target) == ("bf16", "sm_75"):
        pytest.skip(f"{target} has no {dtype} instructions that this kernel takes")
    kernel = load_kernel(name, launch=True).kernel
    own = [Trial(shape, dtype, kernel.config(shape, dtype, target)) for shape in kernel.cases]
    small = [t for t in TRIALS[name](dtype) if target in ("sm_90", "sm_100") or not t.config["tma"]]
    pipelined = PIPELINED_TRIALS[name](dtype) if target == "sm_90" and dtype != "fp32" else ()
    trials = (*own, *(() if dtype == "fp32" else small), *pipelined)
    wrong = {trial.id: reason for trial in trials if not _fast_fp8(trial) and (reason := judge(kernel, trial, "cuda"))}
    assert not wrong


def _fast_fp8(trial: Trial) -> bool:
    """Tell whether a trial's sums stay in the tensor cores for longer than their bits are exact."""
    return trial.config.get("promote") == 0 and trial.shape["K"] > 1000


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", PIPELINED_MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.name}")
def test_checker_rejects_mutant_of_pipelined_kernel(mutant: Any, tmp_path: Path) -> None:
    need_hopper()
    twin = load_twin(mutant, tmp_path)
    dtype = twin.dtypes[0]
    assert any(judge(twin, trial, "cuda") for trial in PIPELINED_TRIALS[mutant.kernel](dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [{"M": 130, "N": 136, "K": 72}, {"M": 13, "N": 17, "K": 19}], ids=shape_id)
def test_bias_relu_keeps_nan(shape: dict[str, int]) -> None:
    target = gpu_target()
    import torch
    from mutants.checker import fill_inputs

    kernel = load_kernel("matmul_bias_relu", launch=True).kernel
    config = kernel.config(shape, "fp16", target)
    inputs = fill_inputs(kernel, Trial(shape, "fp16", config), "cuda")
    inputs["a"][5, 3] = float("nan")
    out = torch.zeros((shape["M"], shape["N"]), dtype=torch.float16, device="cuda")
    kernel.implementations["triton"](inputs, out, config)()
    assert out[5].isnan().all()
    assert not out[:5].isnan().any() and not out[6:].isnan().any()

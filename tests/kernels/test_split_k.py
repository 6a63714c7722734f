"""Tests products whose CTAs divide K and leave their sums to a second launch: on a CPU, as compiled, and on a GPU.

A CPU runs the text of both launches with the TMA, mbarriers and wgmma put into C++ (tests/emulated/tma.h).
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compiled import compile_ahead, instructions, resources
from covering import one_in
from emulation import COMMAND, compiler, needs_compiler, product_error
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_suite import need_hopper, shape_id
from loaded_kernels import load_kernel
from mutants.checker import Trial, fill_inputs, judge
from mutants.kernels import Mutant
from mutants.split_k import KERNELS, MUTANTS, ONE_BYTE, dtypes_of, split_k_config, split_k_trials
from mutants.twin import load_twin

from ledger.errors import InputError
from ledger.kernels.common.gemm_split_k import ENTRY, SUM, SplitK, ctas, split_k_bytes, swaps, tile_rows

HEADER = """#include <map>
#include <mutex>
#include "cuda.h"
#include "hopper.cuh"
#include "tma.h"
static float low(u32 two) { return of_half(two & 0xffff); }
static float high(u32 two) { return of_half(two >> 16); }
"""
# What only a GPU has -> what does it on a CPU.
REPLACED = {r"extern __shared__[^;]*;": "", r"shared\(memory\)": "0"}


def _variant(kernel: Any) -> SplitK:
    """Return the variant of a kernel."""
    variant: SplitK = kernel.ahead.__self__.split_k
    return variant


def _for_cpu(product: Any, add: Any) -> str:
    """Return the text of both launches, and of the program, with what no CPU has replaced."""
    text = product.text.replace('#include "products.cuh"', dict(product.headers)["products.cuh"])
    for what, instead in REPLACED.items():
        text, count = re.subn(what, instead, text)
        assert count == 1, f"{what}: found {count} times; expected once"
    macros = [[f"#define {name} {value}" for name, value in one.defines] for one in (product, add)]
    # Each text has its own macros, and both say THREADS.
    parts = [
        *macros[0], "namespace product {", text, "}", "constexpr int PRODUCT_THREADS = product::THREADS;",
        "#undef BF16", *macros[1], "namespace sum {", add.text, "}", "",
    ]  # fmt: skip
    whole = re.sub(r'#pragma once|#include "(hopper.cuh|wgmma.h)"|__grid_constant__', "", "\n".join(parts))
    assert "asm" not in whole
    kind = "".join(f"#define {name} 1\n" for name in ("FP8", "INT8") if (name, "1") in product.defines)
    return kind + HEADER + whole.replace('extern "C" __global__', "static") + '#include "split_k.h"\n'


def _error(kernel: Any, trial: Trial, folder: Path, flags: tuple[str, ...] = ()) -> float:
    """Return the largest error over its tolerance; infinite where the program fails."""
    dtype: Any = trial.dtype
    ahead = kernel.ahead(trial.config, trial.shape, dtype, "sm_90")
    text = _for_cpu(ahead.source, _variant(kernel).sum_source(trial.config, dtype))
    numbers = (ahead.programs, ahead.shared_bytes, tile_rows(trial.config, trial.shape["M"]), SCALE)
    return product_error(kernel, trial, text, numbers, folder, flags, limit_s=300 if flags else 60)


EVERY = (*KERNELS, *ONE_BYTE)
# Of results of one-byte operands.
SCALE = 0.125
# The trials of each kernel that a CPU runs, and which of them are not exhaustive.
ON_A_CPU = {
    "matmul": (range(19), (4, 10)), "matmul_bias_relu": (range(1, 19, 3), (7, 13)), "matmul_fp8": (range(27), (4, 22)),
    "matmul_int8": (range(0, 27, 2), (10,)),
}  # fmt: skip
TRIALS = [
    pytest.param(
        name,
        at,
        id=f"{name}-{shape_id(split_k_trials(name, dtypes_of(name)[0])[at].shape)}",
        marks=() if at in kept else pytest.mark.exhaustive,
    )
    for name, (tried, kept) in ON_A_CPU.items()
    for at in tried
]


@needs_compiler
@pytest.mark.parametrize(("name", "at"), TRIALS)
def test_split_k_is_right_on_a_cpu(name: str, at: int, tmp_path: Path) -> None:
    trial = split_k_trials(name, dtypes_of(name)[0])[at]
    assert _error(load_kernel(name, launch=True).kernel, trial, tmp_path) <= 1


# What a CPU shows and results on a GPU may not: words that two tiles write, reads that wait for no launch before, and
# a NaN that the rectifier takes for 0.
SHOWN_ON_A_CPU = (
    Mutant("matmul", "split_k_overlapping_tiles", "c >= own_col && ", "", file="common/gemm_split_k.cu"),
    Mutant("matmul", "split_k_rows_of_two_tiles", "r >= own_row && ", "", file="common/gemm_split_k.cu"),
    Mutant("matmul", "split_k_before_the_launch_before", "            wait_for_launch_before();\n", "",
           file="common/gemm_split_k.cu"),
    Mutant("matmul", "split_k_sum_before_the_product", "    wait_for_launch_before();\n", "",
           file="common/gemm_split_k_sum.cu"),
    Mutant("matmul_bias_relu", "split_k_nan_as_zero", "sum[i] < 0.f ? 0.f : sum[i]", "sum[i] > 0.f ? sum[i] : 0.f",
           file="common/gemm_split_k_sum.cu"),
)  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("mutant", one_in(8, (*MUTANTS, *SHOWN_ON_A_CPU), lambda mutant: mutant.name))
def test_a_wrong_twin_of_split_k_shows_on_a_cpu(mutant: Mutant, tmp_path: Path) -> None:
    trials, twin = split_k_trials(mutant.kernel, dtypes_of(mutant.kernel)[0]), load_twin(mutant, tmp_path)
    # Of one byte also a tile that a warpgroup alone has, with several steps, and one of two.
    tried = (22, 20, 4) if mutant.kernel in ONE_BYTE else (4, 11, 0, 8)
    assert any(_error(twin, trials[at], tmp_path) > 1 for at in tried)


TSAN = ("-fsanitize=thread",)
# Gives a stage back while products may still read it.
UNORDERED = Mutant(
    "matmul", "split_k_released_early", "if (i > first && lane == 0) arrive(empty(before));",
    "if (lane == 0) arrive(empty(s));", file="common/gemm_split_k.cu",
)  # fmt: skip


def _need_thread_sanitizer(folder: Path) -> None:
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() {}", encoding="utf-8")
    build = [str(compiler()), *COMMAND, *TSAN, str(source), "-o", str(program)]
    if any(subprocess.run(command, check=False, capture_output=True).returncode for command in (build, [str(program)])):
        pytest.skip("this machine builds or runs nothing under ThreadSanitizer")


RACING = [*(("matmul", at) for at in (18, 7, 1, 9, 14, 5, 10, 6)), *(("matmul_fp8", at) for at in (18, 22, 20))]


@needs_compiler
@pytest.mark.parametrize("case", one_in(8, RACING, lambda case: f"{case[0]}-{case[1]}"))
def test_threads_of_split_k_do_not_race(case: tuple[str, int], tmp_path: Path) -> None:
    _need_thread_sanitizer(tmp_path)
    name, at = case
    trial = split_k_trials(name, dtypes_of(name)[0])[at]
    assert _error(load_kernel(name, launch=True).kernel, trial, tmp_path, TSAN) <= 1


@needs_compiler
def test_a_race_of_split_k_shows(tmp_path: Path) -> None:
    _need_thread_sanitizer(tmp_path)
    trial, twin = split_k_trials("matmul", "fp16")[18], load_twin(UNORDERED, tmp_path)
    # ThreadSanitizer keeps some of the reads of a word: on a busy machine one run may miss the race.
    assert any(_error(twin, trial, tmp_path, TSAN) == math.inf for _ in range(5))


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"block_m": 60}, "of the other a multiple of 8, at most 256 by 64, 256 by 128, 200 by 192"),
        ({"block_m": 264}, "tiles of 264 x 64 and 4 warps"), ({"block_m": 208, "block_n": 192, "num_warps": 12}, "200"),
        ({"block_m": 64, "block_n": 4}, "64 x 4"), ({"block_m": 192, "block_n": 208, "num_warps": 12}, "192 x 208"),
        ({"num_warps": 8}, "and 8 warps; expected 4 warps for each 64 of one side"),
        ({"block_m": 256, "num_warps": 16}, "256 x 64 and 16 warps"), ({"split_k": 1}, "expected split_k 2 to 6"),
        ({"split_k": 7}, "split_k 7 and num_stages 2; expected split_k 2 to 6 and 2 to 12 stages"),
        ({"num_stages": 1}, "2 to 12 stages"), ({"num_stages": 13}, "2 to 12 stages"), ({"tma": 0}, "tma 1"),
        ({"stream_k": 1}, "stream_k 0"), ({"cluster_m": 2}, "cluster_m 1"), ({"block_k": 128}, "block_k 64"),
        ({"pdl": 2}, "pdl is 2"), ({"block_m": 256, "num_stages": 6}, "shared memory"),
        ({"variant": "split"}, "expected .*split_k"), ({"num_stages": 3}, None),
        ({"block_m": 128, "block_n": 256, "num_warps": 8}, None), ({"split_k": 6, "pdl": 0}, None),
        ({"block_m": 192, "block_n": 8, "num_warps": 12}, None), ({"block_m": 256}, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", KERNELS)
def test_split_k_config_is_refused(name: str, edit: dict[str, Any], says: str | None) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": 60, "N": 1000, "K": 328}
    config = {**split_k_config(name, "bf16", 64, 64, 2, swap=True), **edit}
    if says is None:
        kernel.check_config(config, shape, "bf16", "sm_90")
        return
    with pytest.raises(InputError, match=says):
        kernel.check_config(config, shape, "bf16", "sm_90")


def test_split_k_has_no_other_order_of_operands() -> None:
    config = {**split_k_config("matmul", "bf16", 64, 64, 2, swap=True), "swap_ab": 1}
    with pytest.raises(InputError, match="swap_ab 0"):
        load_kernel("matmul").kernel.check_config(config, {"M": 60, "N": 1000, "K": 328}, "bf16", "sm_90")


@pytest.mark.parametrize(
    ("n", "k", "dtype"), [(1001, 328, "bf16"), (1000, 330, "fp16"), (1000, 64, "bf16"), (1000, 328, "fp32")]
)
def test_split_k_is_for_aligned_rows_of_16_bits(n: int, k: int, dtype: Any) -> None:
    kernel, config = load_kernel("matmul").kernel, split_k_config("matmul", "bf16", 64, 64, 2, swap=True)
    with pytest.raises(InputError, match=f"N={n} and K={k} in {dtype} on sm_90; expected multiples of 8, K above 64"):
        kernel.check_config(config, {"M": 60, "N": n, "K": k}, dtype, "sm_90")


@pytest.mark.parametrize(
    ("name", "edit", "says"),
    [
        ("matmul_fp8", {"block_m": 160}, "of the other a multiple of 8, at most 152 by 64, 152 by 128, 112 by 192"),
        ("matmul_fp8", {"block_m": 120, "block_n": 192, "num_warps": 12}, "tiles of 120 x 192 and 12 warps"),
        ("matmul_fp8", {"block_m": 264, "promote": 0}, "at most 256 by 64, 256 by 128, 200 by 192"),
        ("matmul_fp8", {"block_m": 256, "promote": 0}, None), ("matmul_fp8", {"block_m": 152}, None),
        ("matmul_fp8", {"promote": 2}, "promote is 2"), ("matmul_fp8", {"block_k": 64}, "block_k 128"),
        ("matmul_fp8", {"swap_ab": 1}, "swap_ab 0"), ("matmul_fp8", {"split_k": 7}, "expected split_k 2 to 6"),
        ("matmul_int8", {"block_m": 72}, "a multiple of 16, at most 256 by 64, 256 by 128, 192 by 192"),
        ("matmul_int8", {"block_m": 8}, "tiles of 8 x 64"), ("matmul_int8", {"block_m": 256}, None),
        ("matmul_int8", {"block_m": 256, "num_stages": 6}, "shared memory"),
    ],
)  # fmt: skip
def test_split_k_config_of_one_byte_is_refused(name: str, edit: dict[str, Any], says: str | None) -> None:
    kernel, shape, dtype = load_kernel(name).kernel, {"M": 60, "N": 1000, "K": 656}, ONE_BYTE[name]
    config = {**split_k_config(name, dtype, 64, 64, 2, swap=True), **edit}
    if says is None:
        kernel.check_config(config, shape, dtype, "sm_90")
        return
    with pytest.raises(InputError, match=says):
        kernel.check_config(config, shape, dtype, "sm_90")


@pytest.mark.parametrize(("n", "k"), [(1004, 656), (1000, 648), (1000, 128)])
@pytest.mark.parametrize("name", ONE_BYTE)
def test_split_k_is_for_aligned_rows_of_one_byte(name: str, n: int, k: int) -> None:
    kernel, dtype = load_kernel(name).kernel, ONE_BYTE[name]
    config = split_k_config(name, dtype, 64, 64, 2, swap=True)
    says = f"N={n} and K={k} in {dtype} on sm_90; expected multiples of 8 and 16, K above 128, and {dtype} on sm_90"
    with pytest.raises(InputError, match=says):
        kernel.check_config(config, {"M": 60, "N": n, "K": k}, dtype, "sm_90")


def test_split_k_is_for_sm_90() -> None:
    config = split_k_config("matmul", "bf16", 64, 64, 2, swap=True)
    with pytest.raises(InputError, match="on sm_100; expected"):
        load_kernel("matmul").kernel.check_config(config, {"M": 60, "N": 1000, "K": 328}, "bf16", "sm_100")


@pytest.mark.parametrize(
    ("block_m", "block_n", "swapped", "nbytes", "rows", "programs"),
    [(40, 128, True, 2 * (40 * 128 + 2 * 8192 + 16), 34, 3 * 8 * 5), (64, 72, False, 2 * 24592, 50, 2 * 14 * 5)],
)
def test_tiles_of_split_k(block_m: int, block_n: int, swapped: bool, nbytes: int, rows: int, programs: int) -> None:
    config = split_k_config("matmul", "bf16", block_m, block_n, 5, swap=swapped)
    assert (swaps(config), split_k_bytes(config), tile_rows(config, 100)) == (swapped, nbytes, rows)
    assert ctas(config, {"M": 100, "N": 1000, "K": 328}) == programs


def test_launches_of_split_k_are_prepared_for_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    variant = _variant(load_kernel("matmul_bias_relu", launch=True).kernel)
    made = sys.modules[type(variant).__module__]
    prepared: list[Any] = []
    done: list[str] = []

    def recorded(entry: str, *given: Any) -> Any:
        prepared.append(given)
        return lambda: done.append(entry)

    monkeypatch.setattr(made, "tensor_map", lambda tensor, box, *, promotion: (tensor, box))
    monkeypatch.setattr(made, "prepare_ahead", lambda ahead, given, **more: recorded(ENTRY, ahead, given, more))
    monkeypatch.setattr(made, "prepare_cuda", lambda source, **more: recorded(SUM, source, more))
    a, b, bias, out = (torch.zeros(dims, dtype=torch.float16) for dims in ((100, 328), (328, 152), (152,), (100, 152)))
    config = split_k_config("matmul_bias_relu", "fp16", 40, 128, 2, swap=True)
    variant.prepare(a, b, bias, out, config, "fp16")()
    (ahead, (map_a, map_b, workspace, *numbers), product), (source, add) = prepared
    assert done == [ENTRY, SUM]
    assert (map_a[0] is a, map_a[1], map_b[0] is b, map_b[1]) == (True, (34, 64), True, (64, 64))
    assert (numbers, product, ahead.programs, ahead.threads) == ([100, 152, 328, 34, 2], {"overlap": True}, 12, 288)
    assert (workspace.dtype, workspace.numel()) == (torch.float32, 2 * 100 * 152)
    assert source.entry == SUM and add["overlap"]
    assert add["programs"] * add["threads"] >= 100 * 152 // 4 > (add["programs"] - 1) * add["threads"]
    first, second, third, *sizes = add["arguments"]
    assert first is workspace and second is bias and third is out and sizes == [100 * 152 // 4, 152 // 4]


def _prepared(name: str, config: dict[str, Any], tensors: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what both launches of a product of one byte are prepared with."""
    variant, prepared = _variant(load_kernel(name, launch=True).kernel), list[Any]()

    def recorded(*given: Any, **more: Any) -> Any:
        prepared.append((*given, more))

    made = sys.modules[type(variant).__module__]
    monkeypatch.setattr(made, "tensor_map", lambda tensor, box, *, promotion: (tensor, box, promotion))
    monkeypatch.setattr(made, "prepare_ahead", recorded)
    monkeypatch.setattr(made, "prepare_cuda", recorded)
    a, b, out = tensors
    variant.prepare(a, b, None, out, config, ONE_BYTE[name], scale=SCALE)
    return prepared


@pytest.mark.parametrize(("name", "sums"), [("matmul_fp8", "float32"), ("matmul_int8", "int32")])
def test_launches_of_one_byte_get_rows_of_b_and_the_scale(
    name: str, sums: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    a, b, out = (torch.zeros(dims, dtype=torch.int8) for dims in ((100, 656), (152, 656), (100, 152)))
    config = split_k_config(name, ONE_BYTE[name], 48, 128, 2, swap=True)
    (ahead, given, _), (source, add) = _prepared(name, config, (a, b, out), monkeypatch)
    assert given[0] == (a, (34, 128), 256) and given[1] == (b, (128, 128), 256)
    assert (ahead.programs, ahead.shared_bytes) == (12, 2 * (48 * 128 + 128 * 128 + 16))
    assert given[2].dtype == getattr(torch, sums) and given[2].numel() == 2 * 100 * 152
    assert add["arguments"][2:] == [100 * 152 // 4, 152 // 4, SCALE] and add["arguments"][0] is given[2]
    assert ("SCALED", "1") in source.defines


# Side that warpgroups divide, the other, promote (None: int8): the largest tiles, and the largest of fp8 whose next
# step is multiplied while sums are added.
FAMILIES = [
    *((64, 152, 1), (128, 152, 1), (128, 96, 1), (192, 112, 1), (192, 64, 1)),
    *((64, 256, 0), (128, 256, 0), (192, 200, 0), (64, 256, None), (128, 256, None), (192, 192, None)),
]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("family", one_in(3, FAMILIES, lambda case: "-".join(map(str, case))))
def test_split_k_of_one_byte_multiplies_by_wgmma_and_does_not_spill(
    family: tuple[int, int, int | None], swap: bool
) -> None:
    pytest.importorskip("triton")
    side, other, promote = family
    name = "matmul_int8" if promote is None else "matmul_fp8"
    tile = (other, side) if swap else (side, other)
    config = split_k_config(name, ONE_BYTE[name], *tile, 2, swap=swap)
    config = config if promote is None else {**config, "promote": promote}
    kernel, shape = load_kernel(name, launch=True).kernel, {"M": 600, "N": 600, "K": 8192}
    kernel.check_config(config, shape, ONE_BYTE[name], "sm_90")
    made = compile_ahead(kernel, config, shape, ONE_BYTE[name], "sm_90")
    assert made.stack == 0
    kind = "s32.s8.s8" if promote is None else "f32.e4m3.e4m3"
    assert set(re.findall(r"wgmma\.mma_async\.sync\.aligned\.(\S+) ", made.ptx)) == {f"m64n{other}k32.{kind}"}


@pytest.mark.parametrize(
    ("name", "tile", "overlapped"),
    [("matmul_fp8", (64, 144), True), ("matmul_fp8", (128, 144), False), ("matmul_int8", (128, 144), True)],
)
def test_a_step_is_multiplied_while_the_one_before_is_added(name: str, tile: tuple[int, int], overlapped: bool) -> None:
    """Where a wait lets no batch of products be in flight, none is multiplied meanwhile."""
    pytest.importorskip("triton")
    config, shape = split_k_config(name, ONE_BYTE[name], *tile, 2, swap=False), {"M": 600, "N": 600, "K": 8192}
    source = load_kernel(name, launch=True).kernel.ahead(config, shape, ONE_BYTE[name], "sm_90").source
    waits = [line for line in instructions(source.cubin("sm_90")) if line.startswith("WARPGROUP.DEPBAR")]
    assert any("0x1" in line for line in waits) == overlapped


@pytest.mark.parametrize("at", one_in(6, (12, *range(5), 16, *range(5, 10), 10, 11, 13, 14, 15, 17, 18), str))
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_split_k_multiplies_by_wgmma_and_does_not_spill(dtype: str, at: int) -> None:
    pytest.importorskip("triton")
    trial = split_k_trials("matmul", dtype)[at]
    made = compile_ahead(load_kernel("matmul", launch=True).kernel, trial.config, trial.shape, dtype, "sm_90")
    assert made.stack == 0
    swapped = swaps(trial.config)
    side, kind = trial.config["block_m" if swapped else "block_n"], "bf16" if dtype == "bf16" else "f16"
    # K-major operands are not transposed: A in its place, B in the other.
    majors = "1, 0" if swapped else "0, 1"
    found = re.findall(r"wgmma\.mma_async\.sync\.aligned\.(\S+) .*?(\d, \d);", made.ptx)
    assert set(found) == {(f"m64n{side}k16.f32.{kind}.{kind}", majors)}


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in EVERY for dtype in dtypes_of(name)])
def test_the_sum_of_split_k_compiles_and_does_not_spill(name: str, dtype: Any) -> None:
    pytest.importorskip("triton")
    config = split_k_config(name, dtype, 64, 64, 2, swap=True)
    for parts in (2, 7, 32):
        source = _variant(load_kernel(name, launch=True).kernel).sum_source({**config, "split_k": parts}, dtype)
        assert resources(source.cubin("sm_90"))[1] == 0


@settings(max_examples=60)
@given(m=st.integers(1, 5000), eights=st.integers(1, 2500), steps=st.integers(17, 500), of_step=st.integers(1, 8))
def test_the_rule_of_split_k_gives_what_an_h200_can_run(m: int, eights: int, steps: int, of_step: int) -> None:
    kernel, shape = load_kernel("matmul").kernel, {"M": m, "N": 8 * eights, "K": 64 * steps - 8 * (of_step - 1)}
    generic = {**kernel.config(shape, "fp16", "sm_80"), "programs": 132}
    found, offered = _variant(kernel).fastest(generic, shape), list(_variant(kernel).candidates(generic, shape))
    assert (found is None) == (not offered)
    for config in offered:
        kernel.check_config(config, shape, "fp16", "sm_90")
        assert ctas(config, shape) <= 2 * 132
        # No part is without a step, and no stage without one.
        assert config["num_stages"] <= max(2, -(-steps // config["split_k"])) and 2 * config["split_k"] <= steps
    if found:
        assert found[1] == offered[0] and 2000 < found[0] < 10_000_000


@pytest.mark.parametrize("name", ONE_BYTE)
@settings(max_examples=30)
@given(m=st.integers(1, 5000), eights=st.integers(1, 2500), steps=st.integers(17, 500), of_step=st.integers(1, 8))
def test_the_rule_of_one_byte_gives_what_an_h200_can_run(
    name: str, m: int, eights: int, steps: int, of_step: int
) -> None:
    kernel, dtype = load_kernel(name).kernel, ONE_BYTE[name]
    shape = {"M": m, "N": 8 * eights, "K": 128 * steps - 16 * (of_step - 1)}
    generic = {**split_k_config(name, dtype, 64, 64, 2, swap=True), "programs": 132}
    found, offered = _variant(kernel).fastest(generic, shape), list(_variant(kernel).candidates(generic, shape))
    assert (found is None) == (not offered)
    for config in offered:
        kernel.check_config(config, shape, dtype, "sm_90")
        assert ctas(config, shape) <= 2 * 132
        assert config["num_stages"] <= max(2, -(-steps // config["split_k"])) and 2 * config["split_k"] <= steps
        assert config.get("promote") == generic.get("promote")
    if found:
        assert found[1] == offered[0] and 2000 < found[0] < 10_000_000
        assert _variant(kernel).nanoseconds(found[1], shape, 132) == pytest.approx(found[0])


@pytest.mark.parametrize("name", ONE_BYTE)
def test_the_rule_of_one_byte_divides_few_tiles_of_many_steps(name: str) -> None:
    kernel, dtype = load_kernel(name).kernel, ONE_BYTE[name]
    divided = ((514, 160, 16384), (856, 336, 13184), (5, 80, 20480), (4, 128, 2064))
    # Large products, short sums, columns that no vector of the second launch ends with, and rows that are copied.
    whole = ((4096,) * 3, (8192,) * 3, (4, 128, 2048), (2801, 140, 8320), (2801, 144, 8321))
    for sizes in (*divided, *whole):
        config = kernel.config(dict(zip("MNK", sizes, strict=True)), dtype, "sm_90")
        assert config["variant"] == ("split_k" if sizes in divided else "cuda")


@pytest.mark.parametrize("name", ONE_BYTE)
@pytest.mark.parametrize(
    ("sizes", "block_n"), [((2000, 48, 16384), 48), ((400, 32, 4096), 32), ((7026, 144, 3584), 64)]
)
def test_tiles_of_one_byte_are_no_wider_than_the_matrix(name: str, sizes: tuple[int, int, int], block_n: int) -> None:
    shape = dict(zip("MNK", sizes, strict=True))
    assert load_kernel(name).kernel.config(shape, ONE_BYTE[name], "sm_90")["block_n"] == block_n


@pytest.mark.parametrize("name", ONE_BYTE)
@pytest.mark.parametrize("shape", [(2801, 144, 8320), (1000, 1512, 2064), (300, 1000, 8200)])
def test_split_k_of_one_byte_is_offered_beside_other_variants(name: str, shape: tuple[int, int, int]) -> None:
    kernel, dtype = load_kernel(name).kernel, ONE_BYTE[name]
    sizes = dict(zip("MNK", shape, strict=True))
    offered = [one.config for one in kernel.candidates(sizes, dtype, "sm_90")]
    for config in offered:
        if config["variant"] in ("split_k", "cuda"):
            kernel.check_config(config, sizes, dtype, "sm_90")
    assert ("split_k" in {config["variant"] for config in offered}) == (shape[2] % 16 == 0)
    assert {config["pdl"] for config in offered if config["variant"] in ("generic", "warp_specialised")} == {0}


def test_more_tiles_than_sms_are_not_divided() -> None:
    kernel, shape = load_kernel("matmul").kernel, {"M": 4096, "N": 4096, "K": 8192}
    generic = {**kernel.config(shape, "fp16", "sm_80"), "programs": 132}
    assert _variant(kernel).fastest(generic, shape) is None
    assert not list(_variant(kernel).candidates(generic, shape))


# Few rows; few steps; wide products, whose tiles occupy all SMs; tall ones.
@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        ((8, 512, 20480), "split_k"), ((9, 512, 20480), "split_k"), ((180, 512, 1024), "cuda"),
        ((180, 512, 2048), "split_k"), ((40, 12288, 4096), "cuda"), ((1684, 192, 20480), "split_k"),
        ((180, 512, 20481), "residues"), ((180, 515, 20480), "residues"),
    ],
)  # fmt: skip
def test_rule_divides_few_tiles_of_many_steps(shape: tuple[int, int, int], variant: str) -> None:
    config = load_kernel("matmul").kernel.config(dict(zip("MNK", shape, strict=True)), "bf16", "sm_90")
    assert config["variant"] == variant


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in EVERY for dtype in dtypes_of(name)])
def test_split_k_is_right_on_a_gpu(name: str, dtype: str) -> None:
    need_hopper()
    kernel = load_kernel(name, launch=True).kernel
    wrong = {trial.id: judge(kernel, trial, "cuda") for trial in split_k_trials(name, dtype)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_twin_of_split_k_is_rejected_on_a_gpu(mutant: Mutant, tmp_path: Path) -> None:
    need_hopper()
    twin = load_twin(mutant, tmp_path)
    dtype = dtypes_of(mutant.kernel)[-1]
    assert any(judge(twin, trial, "cuda") for trial in split_k_trials(mutant.kernel, dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(7, 520, 1032), (64, 136, 512), (33, 776, 72), (128, 1032, 4104)])
@pytest.mark.parametrize(("block_m", "block_n"), [(64, 128), (40, 64), (128, 72), (64, 192), (192, 104)])
def test_split_k_keeps_special_values_to_themselves(
    name: str, shape: tuple[int, int, int], block_m: int, block_n: int
) -> None:
    """The same as other ways to compute it: NaN and infinity reach only their own rows and columns."""
    need_hopper()
    import torch

    kernel = load_kernel(name, launch=True).kernel
    m, n, k = shape
    whole = {"M": m, "N": n, "K": k}
    inputs = fill_inputs(kernel, Trial(whole, "bf16", {}), "cuda")
    a, b = inputs["a"], inputs["b"]
    a[2, 0], a[4, k - 1], b[k // 2, n - 1], b[0, 0] = float("nan"), float("inf"), float("inf"), float("nan")
    a[5] = 0.0
    out = torch.full((m, n), 12.0, dtype=torch.bfloat16, device="cuda")
    swap = block_n in (64, 128, 192)
    config = split_k_config(name, "bf16", block_m, block_n, min(7, math.ceil(k / 64)), swap=swap)
    kernel.check_config(config, whole, "bf16", "sm_90")
    kernel.implementations["triton"](inputs, out, config)()
    out, exact = out.double(), kernel.reference(inputs)
    assert torch.equal(out.isnan(), exact.isnan()) and torch.equal(out.isfinite(), exact.isfinite())
    kept = exact.isfinite()
    torch.testing.assert_close(out[kept], exact[kept], atol=1e-3, rtol=4e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("promote", [0, 1])
@pytest.mark.parametrize(("block_m", "block_n", "swap"), [(40, 64, True), (64, 96, False), (128, 144, False)])
def test_split_k_of_fp8_keeps_nan_to_its_rows_and_columns(block_m: int, block_n: int, swap: bool, promote: int) -> None:
    need_hopper()
    import torch

    kernel, whole = load_kernel("matmul_fp8", launch=True).kernel, {"M": 129, "N": 520, "K": 1040}
    inputs = fill_inputs(kernel, Trial(whole, "fp8_e4m3", {}), "cuda")
    inputs["a"][2, 0], inputs["b"][519, 1039] = float("nan"), float("nan")
    out = torch.full((129, 520), 12.0, dtype=torch.float16, device="cuda")
    config = {**split_k_config("matmul_fp8", "fp8_e4m3", block_m, block_n, 4, swap=swap), "promote": promote}
    kernel.check_config(config, whole, "fp8_e4m3", "sm_90")
    kernel.implementations["triton"](inputs, out, config)()
    assert torch.equal(out.isnan(), kernel.reference(inputs).isnan())

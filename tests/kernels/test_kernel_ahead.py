"""Compiles the kernels ahead of time for each architecture and reads what the compiler made of them."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from compiled import SHARED_LIMIT, TENSOR_CORE, compile_ahead, counts, instructions, overwritten, resources
from covering import builds, one_in
from loaded_kernels import load_kernel
from mutants.checker import Trial
from mutants.kernels import CLUSTER_MUTANTS, Mutant
from mutants.trials import CLUSTER_TRIALS
from mutants.twin import load_twin

from ledger.errors import InputError
from ledger.kernel import AheadCuda
from ledger.kernels.common.cuda import CudaSource, compile_cuda
from ledger.kernels.common.gemm_config import cuda_threads
from ledger.kernels.common.gemm_residues import classes_of

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("torch and triton are not both installed", allow_module_level=True)

SHAPES = {
    "rmsnorm_matmul": tuple(
        {"B": b, "H": h, "O": o}
        for b, h, o in (
            (1, 4096, 4096), (16, 2048, 2048), (32, 4096, 4096), (64, 4096, 4096), (128, 2048, 2048),
            (128, 4096, 4096), (64, 8192, 8192), (128, 5120, 13824), (512, 8192, 8192),
        )
    ),
    "matmul": tuple(
        {"M": m, "N": n, "K": k}
        for m, n, k in (
            (4096, 4096, 4096), (64, 512, 512), (3840, 3840, 3840), (1000, 1512, 2056), (3000, 5000, 7000),
        )
    ),
}  # fmt: skip
_BUILDS = [
    (name, index, dtype, target)
    for name, shapes in SHAPES.items()
    for index in range(len(shapes))
    for target in SHARED_LIMIT
    for dtype in ("fp16", "bf16")
    if (dtype, target) != ("bf16", "sm_75")
]
BUILDS = builds(_BUILDS, [f"{name}-{index}-{dtype}-{target}" for name, index, dtype, target in _BUILDS], together=1)
FLASH = [(name, dtype) for name in ("flash_attention", "flash_attention_causal") for dtype in ("fp16", "bf16")]
# The second number: one in how many configurations.
PARTS = [("bf16", 16), *(pytest.param(dtype, 1, marks=pytest.mark.exhaustive) for dtype in ("fp16", "bf16"))]


class Build(NamedTuple):
    ptx: str
    shared: int
    stack: int
    bound: int


@cache
def build(name: str, index: int, dtype: Any, target: str) -> Build:
    kernel = load_kernel(name, launch=True).kernel
    shape = SHAPES[name][index]
    config = kernel.config(shape, dtype, target)
    kernel.check_config(config, shape, dtype, target)
    assert kernel.ahead is not None
    # A launch tells the compiler which pointers and sizes are multiples of 16; so must we.
    multiples = {"n_inner", "n_cols"} | ({"n_rows"} if name == "matmul" else set())
    made = compile_ahead(kernel, config, shape, dtype, target, multiples=multiples)
    return Build(made.ptx, made.shared, made.stack, _bound(name, config, shape, dtype))


def _bound(name: str, config: Any, shape: Any, dtype: str) -> int:
    # The bound is the kernel file's own; the contract does not carry it.
    rule = load_kernel(name, launch=True).kernel.config
    if name == "matmul":
        return rule.__self__.shared_bytes(config, dtype)
    return sys.modules[rule.__module__].shared_bytes(config, shape, dtype)


@pytest.mark.parametrize(("name", "index", "dtype", "target"), BUILDS)
def test_ahead_takes_the_instruction_path_that_the_kernel_names(name: str, index: int, dtype: Any, target: str) -> None:
    ptx = build(name, index, dtype, target).ptx
    path = load_kernel(name).kernel.path(dtype, target, "triton")
    if target == "sm_75":
        # No tensor-core instruction: Triton 3.4 to 3.9 compile a dot for sm_75 to scalar multiply-adds.
        assert path == "fp32"
        assert not re.search(r"\bmma\.sync|wmma\.", ptx)
        assert len(re.findall(r"fma\.rn\.f32", ptx)) >= 64
    else:
        assert path == f"{dtype}_tensor"
        assert re.search(TENSOR_CORE[target], ptx)


@pytest.mark.parametrize(("name", "index", "dtype", "target"), BUILDS)
def test_ahead_fits_in_shared_memory_and_within_the_bound(name: str, index: int, dtype: Any, target: str) -> None:
    made = build(name, index, dtype, target)
    assert made.shared <= SHARED_LIMIT[target]
    assert made.shared <= made.bound


@pytest.mark.parametrize(("name", "index", "dtype", "target"), BUILDS)
def test_ahead_does_not_spill(name: str, index: int, dtype: Any, target: str) -> None:
    assert build(name, index, dtype, target).stack == 0


@pytest.mark.parametrize(("dtype", "step"), PARTS)
def test_every_variant_of_the_cluster_matmul_multiplies_by_wgmma_and_does_not_spill(dtype: Any, step: int) -> None:
    kernel = load_kernel("matmul", launch=True).kernel
    for trial in CLUSTER_TRIALS["matmul"](dtype)[::step]:
        made = compile_ahead(kernel, trial.config, trial.shape, dtype, "sm_90")
        assert (made.stack, made.shared) == (0, _bound("matmul", trial.config, trial.shape, dtype))
        if trial.config["num_warps"] > 4:
            # As many as the warps that multiply and those that load then share: with fewer they would wait for ever.
            assert made.registers == 65_536 // cuda_threads(trial.config) // 8 * 8
        # Swapped, a tile's rows are wgmma's columns, and what does not lie along k is its A operand.
        swapped = trial.config["swap_ab"] == 1
        columns = trial.config["block_m" if swapped else "block_n"]
        assert re.search(rf"wgmma\.mma_async\.sync\.aligned\.m64n{columns}k16\.f32\.", made.ptx)
        assert re.search(rf" p, 1, 1, {'1, 0' if swapped else '0, 1'};", made.ptx)
        assert (".multicast::cluster" in made.ptx) == (trial.config["cluster_m"] * trial.config["cluster_n"] > 1)


def test_a_register_that_a_product_under_way_reads_is_seen_to_be_overwritten() -> None:
    product, wait = "HGMMA.64x128x16.F32 R24, R{}, gdesc[UR12], R24, gsb0 ;", "WARPGROUP.DEPBAR.LE gsb0, 0x1 ;"
    load = "LDSM.16.MT88.4 R104, [R18] ;"
    assert overwritten([product.format(104), wait, load, product.format(88)]) == [load]
    assert overwritten([product.format(104), product.format(88), wait, load]) == []
    assert overwritten([product.format(104), "HMUL2 R107, R3, R4 ;"]) == ["HMUL2 R107, R3, R4 ;"]
    assert overwritten([product.format(104), "HMUL2 R108, R107, R104 ;", "STS.128 [R3], R104 ;"]) == []


@pytest.mark.parametrize("variant", ["cuda_cooperative", "cuda_ping_pong", "cuda_normed"])
@pytest.mark.parametrize(("dtype", "step"), PARTS)
def test_every_variant_of_rmsnorm_matmuls_cuda_cpp_multiplies_by_wgmma_and_does_not_spill(
    dtype: Any, step: int, variant: str
) -> None:
    kernel = load_kernel("rmsnorm_matmul", launch=True).kernel
    seen = set()
    for trial in [t for t in CLUSTER_TRIALS["rmsnorm_matmul"](dtype) if t.config["variant"] == variant][::step]:
        source = kernel.ahead(trial.config, trial.shape, dtype, "sm_90").source
        if source in seen:
            continue
        seen.add(source)
        made = compile_ahead(kernel, trial.config, trial.shape, dtype, "sm_90")
        assert (made.stack, made.shared) == (0, _bound("rmsnorm_matmul", trial.config, trial.shape, dtype))
        # With ping-pong warpgroups x is the B operand, one row a column.
        columns = trial.config["block_o"] // (2 if trial.config["block_b"] == 64 else 1)
        if variant != "cuda_cooperative":
            swapped = variant == "cuda_ping_pong" or trial.config["swap_ab"]
            columns = trial.config["block_b" if swapped else "block_o"]
        assert f"wgmma.mma_async.sync.aligned.m64n{columns}k16" in made.ptx
        code = instructions(compile_cuda(source, "sm_90"))
        assert not overwritten(code)
        # Four products a batch, none waited for alone.
        products, batches = counts(code, "HGMMA", "WARPGROUP.ARRIVE")
        assert products == 4 * batches
        assert (".multicast::cluster" in made.ptx) == (trial.config["cluster_m"] * trial.config["cluster_n"] > 1)
    assert seen


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_launch_that_normalises_rows_does_not_spill(dtype: Any) -> None:
    normed = sys.modules[load_kernel("rmsnorm_matmul", launch=True).kernel.ahead.__module__].normed
    # Rows of 1 to 8 vectors a thread; a longer row is compiled as one of 8.
    sources = [normed.normalise_ahead({"B": 1, "H": 2048 * vectors}, dtype).source for vectors in range(1, 10)]
    assert len(set(sources)) == 8 and sources[8] == sources[7]
    sources += [normed.normalise_ahead({"B": 1, "H": 1001}, dtype, classes=classes).source for classes in (1, 2, 4, 8)]
    assert [resources(compile_cuda(source, "sm_90"))[1] for source in sources] == [0] * 13


@pytest.mark.parametrize(
    ("dtype", "split"),
    [*(pytest.param(dtype, False, marks=pytest.mark.exhaustive) for dtype in ("fp16", "bf16")), ("bf16", True)],
)
def test_mla_decodes_cuda_cpp_multiplies_by_wgmma_in_batches_and_does_not_spill(dtype: Any, split: bool) -> None:
    kernel = load_kernel("mla_decode", launch=True).kernel
    trial = CLUSTER_TRIALS["mla_decode"](dtype)[-1 if split else 0]
    assert (trial.config["splits"] > 1) == split
    source = kernel.ahead(trial.config, trial.shape, dtype, "sm_90").source
    made = compile_ahead(kernel, trial.config, trial.shape, dtype, "sm_90")
    assert (made.stack, made.shared) == (0, sys.modules[kernel.config.__module__].shared_bytes(trial.config, dtype))
    assert {"m64n64k16", "m64n128k16"} == set(re.findall(r"wgmma\.mma_async\.sync\.aligned\.(\w+)", made.ptx))
    assert ".multicast::cluster" in made.ptx
    code = instructions(compile_cuda(source, "sm_90"))
    assert not overwritten(code)
    # Four times the 36 of a tile's scores, and 8 of each half; none waited for alone.
    assert counts(code, "HGMMA", "WARPGROUP.DEPBAR") == [4 * 36 + 2 * 8, 4 + 2 * 2]


@pytest.mark.parametrize(
    ("name", "dtype"),
    builds(FLASH, ["-".join(case) for case in FLASH], together=1),
)
def test_attentions_cuda_cpp_multiplies_by_wgmma_in_batches_and_does_not_spill(name: str, dtype: Any) -> None:
    kernel = load_kernel(name, launch=True).kernel
    trial = CLUSTER_TRIALS[name](dtype)[0]
    source = kernel.ahead(trial.config, trial.shape, dtype, "sm_90").source
    made = compile_ahead(kernel, trial.config, trial.shape, dtype, "sm_90")
    assert (made.stack, made.shared) == (
        0, sys.modules[kernel.config.__module__].shared_bytes(trial.config, trial.shape, dtype)
    )  # fmt: skip
    assert {"m64n128k16", "m64n72k16"} == set(re.findall(r"wgmma\.mma_async\.sync\.aligned\.(\w+)", made.ptx))
    code = instructions(compile_cuda(source, "sm_90"))
    assert not overwritten(code)
    # Twice the 4 of a tile's scores and the 8 of its values, first and last apart; none waited for alone.
    assert counts(code, "HGMMA", "WARPGROUP.DEPBAR") == [2 * (4 + 8), 4]


@pytest.mark.parametrize("name", list(SHAPES))
def test_ahead_for_sm_90_loads_through_tma_unless_rows_are_ragged(name: str) -> None:
    kernel = load_kernel(name).kernel
    # Of few steps: with more, unaligned weights are read by classes of rows, through TMA.
    even, odd = ({"B": 8, "H": 72, "O": o} for o in (4096, 4097))
    if name == "matmul":
        even, odd = ({"M": 16, "N": n, "K": 512} for n in (2048, 2049))
    assert kernel.config(even, "fp16", "sm_90")["tma"] == 1
    assert kernel.config(odd, "fp16", "sm_90")["tma"] == 0
    assert "cp.async.bulk.tensor" in build(name, 0, "fp16", "sm_90").ptx


@pytest.mark.parametrize("mutant", one_in(60, CLUSTER_MUTANTS, lambda mutant: f"{mutant.kernel}-{mutant.name}"))
def test_a_wrong_twin_of_cuda_cpp_compiles_and_is_another_kernel(mutant: Mutant, tmp_path: Path) -> None:
    kernel = load_kernel(mutant.kernel, launch=True)
    twin = load_twin(mutant, tmp_path)
    # The splits of mla_decode are for bf16 alone.
    trials = CLUSTER_TRIALS[mutant.kernel]("bf16" if mutant.kernel == "mla_decode" else "fp16")
    if mutant.name.startswith(("ping_pong", "few_rows")):
        few = mutant.name.startswith("few_rows")
        ping_pong = (trial for trial in trials if trial.config["variant"] == "cuda_ping_pong")
        trials = tuple(trial for trial in ping_pong if (trial.shape["B"] <= 32 if few else trial.shape["B"] > 64))

    if mutant.file == "rmsnorm_matmul/normalise_ragged.cu":
        trials = tuple(trial for trial in trials if trial.config["variant"] == "normed_residues")
    if mutant.file == "rmsnorm_matmul/product.cu":
        trials = tuple(trial for trial in trials if trial.config["variant"] == "cuda_normed")
    if "changed_over" in mutant.name:
        trials = tuple(trial for trial in trials if trial.config["swap_ab"])

    def compiled(k: Any, trial: Trial) -> Any:
        if mutant.name.startswith("normed"):
            # The launch ahead of the product.
            classes = classes_of(trial.shape["O"]) if trial.config["variant"] == "normed_residues" else 1
            normed = sys.modules[k.ahead.__module__].normed
            return normed.normalise_ahead(trial.shape, trial.dtype, classes=classes)
        return k.ahead(trial.config, trial.shape, trial.dtype, "sm_90")

    def differs(trial: Trial) -> bool:
        right, wrong = (compiled(k, trial) for k in (kernel.kernel, twin))
        assert isinstance(right, AheadCuda) and isinstance(wrong, AheadCuda)
        return compile_cuda(right.source, "sm_90") != compile_cuda(wrong.source, "sm_90")

    assert any(differs(trial) for trial in trials[3:] + trials[:3])


def test_cuda_cpp_that_does_not_compile_is_said_with_the_compilers_words() -> None:
    with pytest.raises(InputError, match=r"(?s)nonsense: the CUDA C\+\+ does not compile for sm_90: .*undefined"):
        compile_cuda(CudaSource('extern "C" __global__ void nonsense() { absent(); }', "nonsense"), "sm_90")


def test_compiling_without_a_word_leaves_the_constants_of_the_program_alone() -> None:
    text = 'extern "C" __global__ void silent(int* out) { *out = 1; }'
    assert compile_cuda(CudaSource(text, "silent"), "sm_80").startswith(b"\x7fELF")
    # Python keeps one object for each single byte: a compiler that wrote its empty log there changed every b" ".
    assert [bytes([number])[0] for number in range(256)] == list(range(256))


def test_every_cluster_trial_has_a_configuration_that_the_kernel_allows() -> None:
    for name, trials in CLUSTER_TRIALS.items():
        kernel = load_kernel(name).kernel
        for trial in (*trials("fp16"), *trials("bf16")):
            kernel.check_config(trial.config, trial.shape, trial.dtype, "sm_90")

"""Tests the variant of row kernels that keeps rows in the shared memory of a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from compiled import needs_nvrtc, resources
from covering import one_in
from kernel_suite import need_hopper
from loaded_kernels import load_kernel
from mutants.checker import judge
from mutants.kernels import Mutant
from mutants.rowwise import CLUSTER_MUTANTS, cluster_trials
from mutants.twin import load_twin

from ledger.errors import InputError

NAMES = ("rmsnorm", "layernorm", "softmax")
TIMES = Path(__file__).parents[2] / "benchmarks" / "rows-h200.json"
DTYPES = ("fp16", "bf16", "fp32")
CONFIG = {"variant": "cuda_cluster", "cluster": 8, "num_warps": 8, "pdl": 1}
LONG = {"M": 2048, "N": 131_072}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("edit", "shape", "target", "says"),
    [
        ({"variant": "cuda_grid"}, LONG, "sm_90", "expected cuda_cluster or cuda_ragged"),
        ({"cluster": 3}, LONG, "sm_90", "power of two"),
        ({"cluster": 32}, LONG, "sm_90", "from 2 to 16"),
        ({"cluster": 2}, {"M": 9, "N": 262_144}, "sm_90", "bytes of shared memory"),
        ({"block_n": 8}, LONG, "sm_90", "configuration keys"),
        ({}, {"M": 4, "N": 131_071}, "sm_90", "expected a multiple of 16"),
        ({}, LONG, "sm_80", "no row clusters"),
    ],
)
def test_cluster_refuses_config(name: str, edit: Any, shape: Any, target: str, says: str) -> None:
    kernel = load_kernel(name).kernel
    kernel.check_config(CONFIG, LONG, "bf16", "sm_90")
    with pytest.raises(InputError, match=says):
        kernel.check_config({**CONFIG, **edit}, shape, "bf16", target)


@pytest.mark.parametrize("name", NAMES)
def test_other_rows_and_other_targets_take_the_triton_function(name: str) -> None:
    kernel = load_kernel(name).kernel
    for shape, target in (({"M": 2048, "N": 6001}, "sm_90"), (LONG, "sm_80"), (LONG, "sm_100")):
        assert "variant" not in kernel.config(shape, "bf16", target)


def _is_cluster(config: Any) -> bool:
    return bool(config.get("variant") == CONFIG["variant"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_cluster_trial_and_candidate_is_allowed(name: str, dtype: Any) -> None:
    kernel = load_kernel(name).kernel
    for trial in cluster_trials(name, dtype):
        kernel.check_config(trial.config, trial.shape, dtype, "sm_90")
    clusters = [one.config for one in kernel.candidates(LONG, dtype, "sm_90") if _is_cluster(one.config)]
    assert len(clusters) > 5
    for config in clusters:
        kernel.check_config(config, LONG, dtype, "sm_90")
    assert not any(_is_cluster(one.config) for one in kernel.candidates({"M": 4, "N": 9001}, dtype, "sm_90"))


def _cluster(name: str, m: int, n: int, dtype: Any = "bf16") -> int | None:
    found = load_kernel(name).kernel.config({"M": m, "N": n}, dtype, "sm_90").get("cluster")
    return None if found is None else int(found)


def test_long_rows_and_few_rows_take_clusters_where_they_were_faster() -> None:
    # benchmarks/rows-h200.json has the times.
    assert [_cluster("softmax", 2048, n) for n in (28_664, 28_672, 65_536, 131_072, 262_144)] == [None, 2, 4, 8, 16]
    assert [_cluster("softmax", 400, n) for n in (57_336, 57_344)] == [None, 4]
    assert [_cluster("rmsnorm", 2048, n) for n in (65_528, 65_536, 131_072, 262_144)] == [None, 4, 8, 16]
    assert [_cluster("rmsnorm", 2048, n, "fp32") for n in (32_760, 32_768, 131_072)] == [None, 4, 16]
    assert [_cluster("layernorm", 2048, n) for n in (131_072, 196_608, 262_144)] == [None, 8, 16]
    assert [_cluster("rmsnorm", m, 32_768) for m in (1, 32, 64, 128, 256)] == [16, 16, 8, 8, None]
    assert [_cluster("layernorm", m, 32_768) for m in (64, 128)] == [8, None]
    assert [_cluster("softmax", m, 16_384) for m in (8, 16, 64, 128)] == [16, None, 8, None]
    # Longer rows were not timed, or were slower.
    assert [_cluster("softmax", 1, n) for n in (1 << 20, 1 << 21)] == [16, None]
    assert [_cluster("layernorm", 1, n) for n in (1 << 19, 1 << 20)] == [16, None]


def test_the_rule_takes_no_cluster_that_was_measured_more_than_2_percent_slower() -> None:
    kernels = {name: load_kernel(name).kernel for name in NAMES}
    chosen = []
    for row in json.loads(TIMES.read_text(encoding="utf-8"))["rows"]:
        config = kernels[row["kernel"]].config(row["shape"], row["dtype"], "sm_90")
        assert row["chosen"] == (config == row["config"]), row
        chosen += [row["triton_us"] / row["cluster_us"]] if row["chosen"] else []
    assert len(chosen) > 105 and min(chosen) > 0.98 and sum(gain > 1.01 for gain in chosen) > 100


@needs_nvrtc
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_cluster_ahead_reads_once_by_bulk_copies_and_does_not_spill(name: str, dtype: Any) -> None:
    kernel = load_kernel(name).kernel
    source = kernel.ahead(CONFIG, LONG, dtype, "sm_90").source
    registers, stack = resources(source.cubin("sm_90"))
    assert stack == 0
    # Enough CTAs on an SM for its shared memory to be full of rows in flight.
    assert registers <= 80
    ptx = source.ptx("sm_90")
    assert "cp.async.bulk.shared::cluster.global" in ptx
    assert len(re.findall(r"st\.async\S*\.v2\.f32", ptx)) == (2 if name == "layernorm" else 1)
    # x comes by the bulk copies alone. Threads read a chunk of the gain, the first one ahead, or of gain and bias.
    assert len(re.findall(r"ld\.global\S*\.v4", ptx)) == (0 if name == "softmax" else 2 * 4)
    assert re.search(r"st\.global\.cg\.v4", ptx)


@needs_nvrtc
@pytest.mark.parametrize("mutant", one_in(4, CLUSTER_MUTANTS, lambda mutant: f"{mutant.kernel}-{mutant.name}"))
def test_a_wrong_twin_of_the_cluster_compiles_and_is_another_kernel(mutant: Mutant, tmp_path: Path) -> None:
    kernels = load_kernel(mutant.kernel, launch=True).kernel, load_twin(mutant, tmp_path)
    # Several chunks.
    made = [
        [kernel.ahead(trial.config, trial.shape, "fp16", "sm_90").source.cubin("sm_90") for kernel in kernels]
        for trial in cluster_trials(mutant.kernel, "fp16")[2:4]
    ]
    assert any(right != wrong for right, wrong in made)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_cluster_is_right_on_the_gpu(name: str, dtype: str) -> None:
    need_hopper()
    kernel = load_kernel(name, launch=True).kernel
    wrong = {trial.id: judge(kernel, trial, "cuda") for trial in cluster_trials(name, dtype)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", CLUSTER_MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.name}")
def test_checker_rejects_mutant_of_the_cluster(mutant: Mutant, tmp_path: Path) -> None:
    need_hopper()
    twin = load_twin(mutant, tmp_path)
    assert any(judge(twin, trial, "cuda") for trial in cluster_trials(mutant.kernel, "fp16"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_rows_at_an_address_that_no_bulk_copy_reads_are_right(name: str) -> None:
    need_hopper()
    import torch

    from ledger import kernels

    n = 131_072
    x = torch.randn(8 * n + 1, device="cuda").bfloat16()[1:].view(8, n)
    scales = [torch.rand(n, device="cuda").bfloat16() for _ in range(NAMES.index(name) + 1 if name != "softmax" else 0)]
    kernel = load_kernel(name).kernel
    expected = kernel.reference({"x": x, **dict(zip(("gain", "bias"), scales, strict=False))})
    found = getattr(kernels, name)(x, *scales)
    bound = kernel.tolerances["bf16"]
    assert ((found.double() - expected).abs() <= bound.atol + bound.rtol * expected.abs()).all()

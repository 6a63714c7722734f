"""Tests the variant of row kernels for long rows that start anywhere: on a CPU, as compiled ahead, and on a GPU.

A CPU runs the text of the CUDA C++ with the instructions that no CPU has put into C++. Copies there are done at once
and waits at an mbarrier are barriers of the cluster: what such a run cannot show is tested on a GPU.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import needs_nvrtc, resources
from covering import one_in
from emulation import made_on_a_cpu, needs_compiler
from kernel_suite import need_hopper
from loaded_kernels import load_kernel
from mutants.checker import Trial, judge
from mutants.kernels import Mutant
from mutants.row_ragged import CONFIG, MUTANTS, SAME_RESULTS, ragged_trials
from mutants.twin import load_twin

from ledger.errors import InputError

NAMES = ("rmsnorm", "layernorm", "softmax")
DTYPES = ("fp16", "bf16", "fp32")
TIMES = Path(__file__).parents[2] / "benchmarks" / "rows-ragged-h200.json"
FEW = {"M": 14, "N": 68_846}
BODIES = {
    "copy_vector": "need_launch_before(); emulated_read(program->memory + to, from);",
    "wait_for_copies": "",
}
HEADER = """#include "cuda.h"
#include "hopper.cuh"
#include <mutex>
typedef unsigned long long u64;
DEVICE float low(u32 two) { return of_half(two & 0xffff); }
DEVICE float high(u32 two) { return of_half(two >> 16); }
DEVICE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
#define __log2f log2f
DEVICE u32 __funnelshift_r(u32 low, u32 high, int bits) { return ((u64)high << 32 | low) >> bits; }
template <class T> static T __ldg(const T* from) { return __ldcg(from); }
// Stores reach memory when the launch ends at the earliest: of each byte there is one.
static char* result;
static std::vector<char> written;
static std::mutex writing;
#define __stcg store_later
template <class T> static void store_later(T* to, T value) {
    const std::lock_guard<std::mutex> guard(writing);
    const size_t at = (char*)to - result;
    if (at + sizeof(T) > written.size() || at % sizeof(T)) printf("a write outside of the result\\n"), exit(2);
    for (size_t i = 0; i < sizeof(T); ++i)
        if (written[at + i]++) printf("a second write of a byte\\n"), exit(2);
    memcpy(to, &value, sizeof(T));
}
// An mbarrier that counts the bytes sent to it: everyone waits once for each, and has sent before.
DEVICE u32 shared(const void* at) { return (u32)((const unsigned char*)at - program->memory); }
DEVICE void send(u32 to, float2 v, u32) { emulated_send(to, v); }
DEVICE u32 peer(u32 at, int rank) { return (u32)rank << 24 | at; }
DEVICE void load_words(u32* v, u32 from) { memcpy(v, program->memory + from, 16); }
DEVICE void init(u32, u32) {}
DEVICE void expect(u32, u32) {}
DEVICE void fence_barrier_init() {}
DEVICE void __syncwarp() { exchanged(0, 0); }
DEVICE void wait(u32, u32) { emulated_arrive_and_wait(); }
"""


def _for_cpu(source: Any) -> str:
    """Return the kernel's text with its header, and with its assembly replaced."""
    text = source.text.replace('#include "rows.cuh"', dict(source.headers)["rows.cuh"])
    for head, body in BODIES.items():
        text, count = re.subn(rf"(DEVICE void {head}\(.*?\)) \{{.*?\}}\n", rf"\1 {{ {body} }}\n", text, flags=re.DOTALL)
        assert count == 1, f"{head}: found {count} times; expected once"
    assert "asm" not in text
    text = text.replace("extern __shared__ __align__(16) unsigned char memory[];", "auto memory = program->memory;")
    text = text.replace('extern "C" __global__', "static").replace('#include "hopper.cuh"', "")
    return HEADER + text.replace("#pragma once", "") + '#include "row_ragged.h"\n'


def _error(kernel: Any, trial: Trial, folder: Path) -> float:
    """Return the largest error over the tolerance of fp16 or fp32; infinite where the program fails."""
    ahead = kernel.ahead(trial.config, trial.shape, trial.dtype, "sm_90")
    macros = [f"-D{name}={value}" for name, value in dict(ahead.source.defines).items()]
    m, n = trial.shape["M"], trial.shape["N"]
    kind = np.float32 if trial.dtype == "fp32" else np.float16
    random = np.random.default_rng(m * n)
    x, gain, bias = (random.standard_normal(dims).astype(kind) for dims in ((m, n), (n,), (n,)))
    # What a row holds is nobody else's.
    x[m // 2] = np.nan if m > 1 else 1
    x[m - 1, n - 1] = 8
    x *= kind(trial.scale)
    given = x.tobytes() + gain.tobytes() * (kernel.name != "softmax") + bias.tobytes()
    numbers = (m, ahead.programs, ahead.shared_bytes)
    made = made_on_a_cpu(_for_cpu(ahead.source), given, numbers, folder, macros, limit_s=120)
    if made is None:
        return math.inf
    found, exact = np.frombuffer(made, kind).reshape(m, n).astype(float), _exact(kernel.name, x, gain, bias)
    if not np.array_equal(np.isnan(found), np.isnan(exact)):
        return math.inf
    bound = kernel.tolerances[trial.dtype]
    # A subtracted mean leaves the error of fp32 beside results near zero.
    apart = 1e-6 if kernel.name == "layernorm" else 0.0
    return float(np.nanmax(np.abs(found - exact) / (bound.atol + apart + bound.rtol * np.abs(exact)), initial=0.0))


def _exact(name: str, x: Any, gain: Any, bias: Any) -> Any:
    x, gain, bias = x.astype(float), gain.astype(float), bias.astype(float)
    if name == "softmax":
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
    if name == "layernorm":
        x = x - x.mean(axis=1, keepdims=True)
    scaled = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * gain
    return scaled + bias if name == "layernorm" else scaled


@needs_compiler
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("name", NAMES)
def test_ragged_rows_are_right_on_a_cpu(name: str, dtype: Any, tmp_path: Path) -> None:
    kernel = load_kernel(name, launch=True).kernel
    for trial in ragged_trials(name, dtype):
        if trial.shape["M"] * trial.shape["N"] <= 20_000:
            assert _error(kernel, trial, tmp_path) <= 1, trial


@needs_compiler
@pytest.mark.parametrize("mutant", one_in(8, MUTANTS, lambda mutant: f"{mutant.kernel}-{mutant.name}"))
def test_a_wrong_twin_of_ragged_rows_shows_on_a_cpu(mutant: Mutant, tmp_path: Path) -> None:
    twin = load_twin(mutant, tmp_path)
    trials = [one for one in ragged_trials(mutant.kernel, "fp16") if one.shape["M"] * one.shape["N"] <= 10_000]
    assert any(_error(twin, trial, tmp_path) > 1 for trial in trials)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("edit", "shape", "target", "says"),
    [
        ({"variant": "cuda_grid"}, FEW, "sm_90", "expected cuda_cluster or cuda_ragged"),
        ({"cluster": 3}, FEW, "sm_90", "power of two"),
        ({"cluster": 1}, FEW, "sm_90", "from 2 to 16"),
        ({"num_warps": 1}, FEW, "sm_90", "34 vectors of 16 bytes to a thread; expected at most 8"),
        ({"block_n": 8}, FEW, "sm_90", "configuration keys"),
        ({}, {"M": 4, "N": 65_536}, "sm_90", "expected no multiple of 16"),
        ({}, FEW, "sm_80", "no row clusters"),
    ],
)
def test_ragged_rows_refuse_a_config(name: str, edit: Any, shape: Any, target: str, says: str) -> None:
    kernel = load_kernel(name).kernel
    kernel.check_config(CONFIG, FEW, "bf16", "sm_90")
    with pytest.raises(InputError, match=says):
        kernel.check_config({**CONFIG, **edit}, shape, "bf16", target)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_trial_and_candidate_of_ragged_rows_is_allowed(name: str, dtype: Any) -> None:
    kernel = load_kernel(name).kernel
    for trial in ragged_trials(name, dtype):
        kernel.check_config(trial.config, trial.shape, dtype, "sm_90")
    tried = [one.config for one in kernel.candidates(FEW, dtype, "sm_90") if one.config.get("variant") == "cuda_ragged"]
    assert len(tried) >= 3
    for config in tried:
        kernel.check_config(config, FEW, dtype, "sm_90")


@needs_nvrtc
@pytest.mark.parametrize("n", [5003, 30_001, 260_001])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_ragged_rows_read_vectors_and_hardly_spill(name: str, dtype: Any, n: int) -> None:
    kernel, shape = load_kernel(name).kernel, {"M": 14, "N": n}
    config, element = kernel.config(shape, dtype, "sm_90"), 4 if dtype == "fp32" else 2
    source = kernel.ahead(config, shape, dtype, "sm_90").source
    registers, stack = resources(source.cubin("sm_90"))
    assert config["variant"] == "cuda_ragged"
    # The compiler keeps a few words apart where all threads of an SM would not fit otherwise.
    assert registers * 32 * config["num_warps"] <= 1 << 16 and stack <= 32
    ptx, vector = source.ptx("sm_90"), 16 // element
    part = -(-((n + 2 * vector - 2) // vector) // config["cluster"])
    assert len(re.findall(r"ld\.global\.nc\.v4", ptx)) == -(-part // (32 * config["num_warps"]))
    assert len(re.findall(r"cp\.async\.cg\.shared\.global", ptx)) == {"softmax": 0, "rmsnorm": 1, "layernorm": 2}[name]
    assert re.search(r"st\.global\.cg\.v4", ptx)


def _taken(name: str, m: int, n: int, dtype: Any = "bf16") -> tuple[int, int] | None:
    kernel = load_kernel(name).kernel
    config = kernel.config({"M": m, "N": n}, dtype, "sm_90")
    kernel.check_config(config, {"M": m, "N": n}, dtype, "sm_90")
    return (config["cluster"], config["num_warps"]) if config.get("variant") == "cuda_ragged" else None


def test_ragged_rows_take_clusters_where_they_were_faster() -> None:
    # benchmarks/rows-ragged-h200.json has the times.
    assert [_taken("rmsnorm", m, 9001) for m in (4, 32, 128, 129)] == [(8, 4), (8, 4), (2, 8), None]
    assert [_taken("softmax", m, 32_769) for m in (10, 64, 300)] == [(16, 4), (8, 4), (4, 8)]
    assert [_taken("layernorm", m, 65_537) for m in (2, 32, 64, 400)] == [(16, 8), (8, 8), None, None]
    assert [_taken("rmsnorm", 16, n) for n in (5003, 4097, 4096, 4001)] == [(8, 4), (4, 4), None, None]
    assert _taken("rmsnorm", 24, 16_385, "fp32") == (8, 8) and _taken("rmsnorm", 24, 16_384, "fp32") is None
    # Rows that the registers of a cluster do not hold.
    assert [_taken("softmax", 2, n) for n in (524_280, 524_281, 1_000_001)] == [None, (16, 16), None]


def test_the_rule_takes_no_ragged_rows_that_were_measured_much_slower() -> None:
    kernels = {name: load_kernel(name).kernel for name in NAMES}
    ratios: dict[str, list[float]] = {"fit": [], "unseen": []}
    for row in json.loads(TIMES.read_text(encoding="utf-8"))["rows"]:
        config = kernels[row["kernel"]].config(row["shape"], row["dtype"], "sm_90")
        if config.get("variant") != "cuda_ragged":
            continue
        chosen = f"{config['cluster']}x{config['num_warps']}"
        if row["part"] == "unseen":
            assert chosen == row["rule"]
            chosen = "rule"
        ratios[row["part"]].append(row["chain_us"]["triton"] / row["chain_us"][chosen])
    for part, least, mean in (("fit", 0.93, 1.4), ("unseen", 0.99, 1.6)):
        assert min(ratios[part]) > least and statistics.geometric_mean(ratios[part]) > mean
    assert [len(found) for found in ratios.values()] == [101, 24]


def test_the_rule_is_among_the_candidates() -> None:
    for name, m, n in (("rmsnorm", 4, 5001), ("softmax", 300, 32_769), ("layernorm", 2, 65_537)):
        kernel, shape = load_kernel(name).kernel, {"M": m, "N": n}
        own = kernel.config(shape, "bf16", "sm_90")
        assert own in [one.config for one in kernel.candidates(shape, "bf16", "sm_90")]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_ragged_rows_are_right_on_the_gpu(name: str, dtype: Any) -> None:
    need_hopper()
    kernel = load_kernel(name, launch=True).kernel
    wrong = {trial.id: judge(kernel, trial, "cuda") for trial in ragged_trials(name, dtype)}
    assert not {trial: reason for trial, reason in wrong.items() if reason}


@pytest.mark.gpu
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.name}")
def test_checker_rejects_a_wrong_twin_of_ragged_rows(mutant: Mutant, tmp_path: Path) -> None:
    need_hopper()
    if mutant.name in SAME_RESULTS:
        pytest.skip("its results are right: only a check of each access finds it")
    twin = load_twin(mutant, tmp_path)
    assert any(judge(twin, trial, "cuda") for trial in ragged_trials(mutant.kernel, "fp16"))

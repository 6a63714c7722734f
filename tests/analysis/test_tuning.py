"""Tests what tune drops untimed, how its log goes on where it stopped, and what it writes for review."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ledger_process import run_ledger
from loaded_kernels import load_kernel
from product_configs import config_name
from samples import TOY

from ledger.analysis.tuning import (
    LOG_SCHEMA,
    SHOWN,
    Entry,
    Kept,
    bound_s,
    cell_of,
    choose,
    drifted,
    left_to_time,
    log_line,
    merged,
    ranked,
    read_log,
    row_of,
)
from ledger.errors import InputError, MachineError
from ledger.kernel import Candidate, Kernel, variations
from ledger.kernel_files import kernel_names
from ledger.record_files import load_hardware
from ledger.records import Work
from ledger.roofline import roof_of

ROOT = Path(__file__).parents[2]
SHAPE = {"M": 3584, "N": 3584, "K": 3584}
ROOF = roof_of(TOY, "fp16_tensor")
ODD = {"M": 1000, "N": 1512, "K": 2056}
REVIEWED = sorted((ROOT / "benchmarks" / "tuning").glob("*.json"))
TUNED = [name for name in kernel_names() if load_kernel(name).kernel.candidates is not None]


@cache
def later_runs() -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Return rows of later runs of matmul, each with its times by configuration."""
    draws, times = (
        json.loads((ROOT / "benchmarks" / name).read_text(encoding="utf-8"))["rows"]
        for name in ("matmul-draws-3.json", "matmul-times-h200.json")
    )
    runs = [(row, {one["config"]: one["chain"] for one in (row.get("before"), row["now"]) if one}) for row in draws]
    stages = json.loads((ROOT / "benchmarks" / "matmul-stages-h200.json").read_text(encoding="utf-8"))["draws"]
    runs += [(row, {one["config"]: one["chain"] for one in (row["before"], row["tried"])}) for row in stages]
    return [*runs, *((row, row["us"]) for row in times)]


def reviewed(path: Path) -> dict[str, Any]:
    """Return a reviewed file without shapes of which a later run found the rule's choice level, or the fastest."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["kernel"] != "matmul":
        return document

    def is_level(row: dict[str, Any]) -> bool:
        own = config_name(load_kernel("matmul").kernel.config(row["shape"], row["dtype"], "sm_90"))
        best = config_name(row["fastest"][0]["config"])
        same = [taken for run, taken in later_runs() if all(run[key] == row[key] for key in ("shape", "dtype"))]
        # Beside that choice, or beside what the rule took until then.
        runs = [taken for taken in same if {own, best} <= taken.keys()] or [
            taken for taken in same if own in taken and len(taken) > 1
        ]
        return own != best and bool(runs) and all(run[own] <= 1.005 * run.get(best, min(run.values())) for run in runs)

    return {**document, "rows": [row for row in document["rows"] if not is_level(row)]}


def candidate(**changes: Any) -> Candidate:
    fields: dict[str, Any] = {
        "config": {"block": 64}, "tiles": 20, "tile_flops": 10**9, "tile_bytes": 10**5, "warps": 8, "registers": 100,
        "shared_bytes": 40_000,
    }  # fmt: skip
    return Candidate(**{**fields, **changes})


# The bound. The toy has 10 SMs at 1 GHz, 100 TFLOP/s (10 TFLOP/s an SM) and 1 TB/s.


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        # Two tiles of 1 GFLOP on the busiest SM, at 10 TFLOP/s.
        ({}, 200e-6),
        # 21 tiles: three of them on one SM.
        ({"tiles": 21}, 300e-6),
        # Two tiles of 64 MB through a port of 64 GB/s.
        ({"tile_bytes": 64_000_000}, 2e-3),
        # Compulsory traffic: 50 MB at 1 TB/s.
        ({"tile_flops": 1}, 50e-6),
        # 5 blocks an SM fit (100 registers: 18 resident warps, then 5 · 40 KB of shared memory), but 20 programs in all
        # keep 1 kB each in flight: 50 MB ÷ 20 kB a latency of 0.5 µs.
        ({"bytes_under_way": 1000}, 1.25e-3),
        # 50,000 clocks of 1 ns beside the tiles.
        ({"extra_clocks": 50_000}, 250e-6),
        ({"bytes_under_way": 1000, "extra_clocks": 50_000}, 1.3e-3),
    ],
)
def test_bound_is_as_worked_by_hand(changes: dict[str, Any], bound: float) -> None:
    work = Work(flops=2 * 10**10, bytes_read=40_000_000, bytes_written=10_000_000)
    assert bound_s(candidate(**changes), work, ROOF, TOY) == pytest.approx(bound)


# Pruning


def toy_kernel(*candidates: Candidate) -> Kernel:
    def check(config: Mapping[str, int], *_: Any) -> None:
        if config["block"] > 128:
            raise InputError("toy: block is too large")

    return replace(
        load_kernel("matmul").kernel,
        name="toy",
        candidates=lambda _shape, _dtype, _target: candidates,
        check_config=check,
        work=lambda _shape, _dtype: Work(flops=2 * 10**10, bytes_read=10**7, bytes_written=10**6),
    )


def test_candidates_are_dropped_with_the_reason() -> None:
    kernel = toy_kernel(
        candidate(),
        candidate(),
        candidate(config={"block": 256}),
        candidate(config={"block": 1}, registers=300),
        candidate(config={"block": 2}, shared_bytes=300_000),
        candidate(config={"block": 3}, tile_flops=2 * 10**9),
        candidate(config={"block": 4}, tile_flops=9 * 10**8),
    )
    choice = choose(kernel, TOY, shape=SHAPE, dtype="fp16")
    assert [(kept.config["block"], round(1e6 * kept.bound_s)) for kept in choice.kept] == [(4, 180), (64, 200)]
    assert {dropped.config["block"]: dropped.why for dropped in choice.dropped} == {
        256: "toy: block is too large",
        1: "it needs about 300 registers a thread; toy has 255",
        2: "no block of it fits on an SM: smem",
        3: "its time lower bound is 2.22 times the best one's",
    }


def test_what_is_as_good_as_the_own_configuration_is_kept_however_low_another_bound_is() -> None:
    optimistic, own = candidate(config={"block": 1}, tile_flops=5 * 10**8), candidate()
    beside, above = candidate(config={"block": 2}, tile_flops=12 * 10**8), candidate(config={"block": 3}, tiles=40)
    kernel = toy_kernel(optimistic, own, beside, above)

    def kept(block: int) -> list[int]:
        rule = replace(kernel, config=lambda *_: {"block": block})
        return [one.config["block"] for one in choose(rule, TOY, shape=SHAPE, dtype="fp16").kept]

    assert kept(64) == [1, 64, 2]
    assert kept(1) == [1]


def test_the_fastest_is_kept_though_a_bound_that_nothing_reaches_is_a_third_lower() -> None:
    # benchmarks/tuning/matmul-h200.json: whole tiles in clusters of four; halves of tiles took 1.2 times as long.
    choice = choose(load_kernel("matmul").kernel, load_hardware("h200"), shape=ODD, dtype="fp16")
    whole = {"block_m": 128, "block_n": 128, "cluster_m": 2, "cluster_n": 2, "split_k": 1, "stream_k": 0}
    (bound,) = {one.bound_s for one in choice.kept if whole.items() <= one.config.items()}
    assert bound > 1.3 * choice.kept[0].bound_s
    assert choice.kept[0].config["split_k"] == 2


def tuned(name: str) -> Kernel:
    """Return a kernel as it was tuned: back to back, where early launches gain."""
    kernel = load_kernel(name).kernel
    if name != "matmul":
        return kernel
    gemm = kernel.config.__self__  # type: ignore[attr-defined]

    def config(*case: Any) -> dict[str, Any]:
        own = gemm.config(*case)
        return {**own, "pdl": 1} if own["variant"] == "cuda" else own

    return replace(kernel, config=config, candidates=gemm.candidates)


@pytest.mark.parametrize("path", REVIEWED, ids=lambda path: path.stem)
def test_what_a_reviewed_file_found_fastest_is_kept(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    kernel, profile = tuned(document["kernel"]), load_hardware(document["hardware"])
    for one in document["rows"]:
        choice = choose(kernel, profile, shape=one["shape"], dtype=one["dtype"])
        # Of matmul early launches and groups of rows are offered for the rule's own tile alone; more stages fit now.
        beside = {"pdl": 0, "group_m": 0, "num_stages": 0} if document["kernel"] == "matmul" else {}
        fastest = {**one["fastest"][0]["config"], **beside}
        assert fastest in [{**kept.config, **beside} for kept in choice.kept]


def test_a_kernel_without_candidates_is_refused() -> None:
    with pytest.raises(InputError, match="mla_decode: offers no candidates"):
        choose(load_kernel("mla_decode").kernel, TOY, shape={"M": 1, "N": 1}, dtype="fp16")
    with pytest.raises(InputError, match="shape keys"):
        choose(toy_kernel(), TOY, shape={"M": 1}, dtype="fp16")
    with pytest.raises(InputError, match="int8 is not offered"):
        choose(toy_kernel(), TOY, shape=SHAPE, dtype="int8")


def test_variations_are_all_combinations() -> None:
    made = list(variations({"a": 0, "b": 9, "c": 5}, {"a": (1, 2), "b": (3, 4)}))
    assert made == [{"a": a, "b": b, "c": 5} for a in (1, 2) for b in (3, 4)]


SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "gemv": ({"N": 6656, "K": 15360}, {"N": 1, "K": 1}),
    **dict.fromkeys(
        ("rmsnorm", "layernorm", "softmax"), ({"M": 8000, "N": 768}, {"M": 3000, "N": 9001}, {"M": 1, "N": 1})
    ),
    "vector_add": ({"N": 3_000_001}, {"N": 1}),
    "rmsnorm_matmul": ({"B": 24, "H": 3840, "O": 3840}, {"B": 512, "H": 1003, "O": 1001}),
}
PRODUCTS = (SHAPE, {"M": 16, "N": 14336, "K": 4096}, {"M": 127, "N": 129, "K": 131})


@pytest.mark.parametrize("hardware", ["h200", "a100_sxm", "b200"])
@pytest.mark.parametrize("name", TUNED)
def test_every_kernel_keeps_its_own_configuration_or_says_why_not(name: str, hardware: str) -> None:
    kernel, profile = load_kernel(name).kernel, load_hardware(hardware)
    if name.startswith("matmul_fp8") and hardware == "a100_sxm":
        pytest.skip("an A100 has no fp8")
    for shape in SHAPES.get(name, PRODUCTS):
        choice = choose(kernel, profile, shape=shape, dtype=kernel.dtypes[0])
        assert 1 <= len(choice.kept) <= 200
        for kept in choice.kept:
            kernel.check_config(kept.config, shape, kernel.dtypes[0], profile.target)
        assert [kept.bound_s for kept in choice.kept] == sorted(kept.bound_s for kept in choice.kept)


def test_the_brief_list_of_kernels_can_be_tuned() -> None:
    assert {"matmul", "rmsnorm_matmul", "gemv", "matmul_fp8", "matmul_int8", "matmul_bias_relu"} <= set(TUNED)
    assert {"rmsnorm", "layernorm", "softmax", "vector_add"} <= set(TUNED)


# The log


def entry(block: int, median_ps: int | None = 100, **changes: Any) -> Entry:
    fields: dict[str, Any] = {"cell": "c", "config": {"block": block}, "status": "timed", "own_ps": 100}
    return Entry(**{**fields, "median_ps": median_ps, **changes})


def test_log_is_read_as_written_and_a_cut_short_line_is_left_out() -> None:
    entries = [entry(1), entry(2, None, status="wrong", why="off by 3", own_ps=None), entry(1, 90, final=True)]
    text = "".join(map(log_line, entries))
    assert read_log(text, name="log") == entries
    assert read_log(text[:-5], name="log") == entries[:2]
    assert read_log("", name="log") == []


@pytest.mark.parametrize(
    "line", ["nonsense", "[]", json.dumps({"schema": "other/1"}), json.dumps({"schema": LOG_SCHEMA, "cell": "c"})]
)
def test_a_line_that_is_no_entry_is_refused(line: str) -> None:
    with pytest.raises(InputError, match="line 2 is no entry"):
        read_log(log_line(entry(1)) + line + "\n", name="log")


def test_what_the_log_has_is_not_timed_again() -> None:
    kept = [Kept({"block": block}, 1.0) for block in (1, 2, 3, 4)]
    log = [entry(1), entry(2, cell="another"), entry(3, None, status="failed", why="no", own_ps=None)]
    assert [one.config["block"] for one in left_to_time(kept, log, "c")] == [2, 4]


def test_cell_changes_with_device_software_kernel_shape_and_dtype() -> None:
    conditions = {"device": "A", "driver": "1", "software": {"triton": "3"}, "kernel_sha256": "00"}
    cells = {cell_of(conditions, SHAPE, "fp16"), cell_of(conditions, SHAPE, "bf16")}
    cells.add(cell_of(conditions, {**SHAPE, "K": 1}, "fp16"))
    cells |= {cell_of({**conditions, key: "other"}, SHAPE, "fp16") for key in conditions}
    assert len(cells) == 7


def test_those_timed_again_rank_first_and_by_their_last_time() -> None:
    log = [
        entry(1, 90),
        entry(2, 80),
        entry(3, 70),
        entry(4, None, status="wrong", own_ps=None),
        entry(5, 60, cell="x"),
    ]
    log += [entry(3, 99, final=True), entry(2, 85, final=True)]
    assert [(one.config["block"], one.ratio) for one in ranked(log, "c")] == [(2, 0.85), (3, 0.99), (1, 0.9)]


# The reviewed file


def row(entries: list[Entry], own: int = 1, shape: Mapping[str, int] = SHAPE) -> dict[str, Any]:
    return row_of(entries, shape=shape, dtype="fp16", own={"block": own}, conditions={"device": "A"})


def test_row_shows_the_fastest_and_the_own_configuration() -> None:
    made = row(ranked([entry(block, 100 + block) for block in range(1, SHOWN + 5)], "c"), own=SHOWN + 3)
    assert [one["config"]["block"] for one in made["fastest"]] == [*range(1, SHOWN + 1), SHOWN + 3]
    assert made["fastest"][0] == {"config": {"block": 1}, "ratio": 1.01, "again": False}
    assert (made["timed"], made["own_us"]) == (SHOWN + 4, 0.0001)
    assert row([])["own_us"] is None


def test_a_run_replaces_its_own_rows_and_keeps_the_others() -> None:
    def document(*rows: Any, **changes: str) -> dict[str, Any]:
        return {"schema": "ledger/tune/1", "kernel": "toy", "hardware": "h200", "rows": list(rows), **changes}

    other = {**SHAPE, "M": 1}
    first = merged(None, document(row([entry(1)]), row([entry(2)], shape=other)))
    second = merged(first, document(row([entry(3)])))
    assert [one["fastest"][0]["config"]["block"] for one in second["rows"]] == [2, 3]
    with pytest.raises(InputError, match="kernel is 'toy'"):
        merged(first, document(kernel="another"))


def test_a_rule_that_left_what_was_tuned_is_named() -> None:
    made = row([entry(1, 100), entry(2, 102), entry(3, 110)])

    def says(block: int) -> str | None:
        kernel = replace(toy_kernel(), config=lambda *_: {"block": block})
        return drifted(kernel, made, "sm_90")

    assert says(1) is None and says(2) is None
    assert "1.100 times the best" in str(says(3))
    assert "not among the fastest" in str(says(4))


@pytest.mark.parametrize("path", REVIEWED, ids=lambda path: path.stem)
def test_rules_take_what_the_reviewed_files_found_fast(path: Path) -> None:
    document = reviewed(path)
    kernel, target = tuned(document["kernel"]), load_hardware(document["hardware"]).target
    assert not [words for one in document["rows"] if (words := drifted(kernel, one, target))]


# The command


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return run_ledger("tune", *arguments, cwd=folder, env=environment)


def test_dry_run_lists_candidates_without_a_gpu(tmp_path: Path) -> None:
    done = run("matmul", "--hw", "h200", "--shape", "M=3584,N=3584,K=3584", "--dry-run", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert list(found) == ["kernel", "shape", "dtype", "kept", "dropped"]
    choice = choose(load_kernel("matmul").kernel, load_hardware("h200"), shape=SHAPE, dtype="fp16")
    assert [one["config"] for one in found["kept"]] == [one.config for one in choice.kept]
    assert [one["why"] for one in found["dropped"]] == [one.why for one in choice.dropped]
    assert not list(tmp_path.iterdir())
    plain = run("matmul", "--hw", "h200", "--shape", "M=3584,N=3584,K=3584", "--dry-run", folder=tmp_path)
    assert plain.stdout.count(" µs at least ") == len(choice.kept)
    assert plain.stdout.count("  dropped  ") == len(choice.dropped)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["matmul", "--hw", "h200"], "--shape: none given; expected one, with M,N,K"),
        (["matmul", "--hw", "h200", "--shape", "M=1", "--dry-run"], "shape keys are M"),
        (["mla_decode", "--hw", "h200", "--shape", "B=1,H=16,S=64", "--dry-run"], "offers no candidates"),
        (["nothing", "--hw", "h200", "--shape", "M=1,N=1,K=1", "--dry-run"], "is not known"),
    ],
)
def test_command_refuses_bad_input(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_command_refuses_a_machine_without_a_gpu(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = run("matmul", "--hw", "h200", "--shape", "M=64,N=64,K=64", folder=tmp_path)
    assert done.returncode == 2
    assert "torch sees no CUDA device" in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_profile_of_a_cpu_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from ledger.measure.tune import tune

    profile = TOY.model_copy(update={"target": "x86_64"})
    with pytest.raises(MachineError, match="is no GPU"):
        tune(load_kernel("matmul"), hardware=profile, shape=SHAPE, dtype="fp16", log=tmp_path / "log")


def test_cuda_cpp_of_candidates_is_compiled_once_each_and_a_broken_one_is_left_to_its_launch() -> None:
    pytest.importorskip("cuda.bindings", reason="cuda.bindings is not installed")
    from ledger.kernel import AheadCuda
    from ledger.kernel_files import build_case
    from ledger.kernels.common.cuda import CudaSource, compile_cuda
    from ledger.measure.tune import compile_together

    texts = {0: 'extern "C" __global__ void one() {}', 1: 'extern "C" __global__ void one() { absent(); }'}

    def ahead(config: Mapping[str, int], *_: Any) -> AheadCuda:
        return AheadCuda(CudaSource(texts[config["block"] % 2], "one"), programs=1, threads=32, shared_bytes=0)

    kernel, matmul = replace(toy_kernel(), ahead=ahead), load_kernel("matmul").kernel
    case = build_case(matmul, load_hardware("h200"), shape=SHAPE, dtype="fp16")
    before = compile_cuda.cache_info().currsize
    assert compile_together(kernel, [{"block": block} for block in range(6)], case, "sm_90") == 2
    assert compile_cuda.cache_info().currsize == before + 1
    assert compile_together(replace(kernel, ahead=None), [{"block": 0}], case, "sm_90") == 0


@pytest.mark.gpu
def test_tune_times_logs_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    arguments = ["gemv", "--shape", "N=512,K=512", "--limit", "3", "--json", "--log", "log", "--output", "out.json"]
    first = run(*arguments, folder=tmp_path)
    assert first.returncode == 0, first.stderr
    lines = (tmp_path / "log").read_text(encoding="utf-8")
    assert len(read_log(lines, name="log")) == 6
    (made,) = json.loads(first.stdout)["rows"]
    assert made["timed"] == 3 and all(0.2 < one["ratio"] < 5 for one in made["fastest"])
    again = run(*arguments, folder=tmp_path)
    assert again.returncode == 0 and "3 were in the log already" in again.stderr
    assert (tmp_path / "log").read_text(encoding="utf-8") == lines
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["rows"] == [made]

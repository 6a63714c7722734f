"""Runs benches on this machine."""

from dataclasses import replace

import pytest
from measuring import kernel_file, this_cpu, this_gpu, with_small_rotation
from mutants.checker import Trial, fill_inputs

from ledger.cli.cells import baseline_set
from ledger.errors import InputError, MachineError
from ledger.kernel_files import load_kernel
from ledger.measure.bench import Bench, Conditions, bench
from ledger.measure.correctness import compare
from ledger.measure.peers import Peer, peers_of
from ledger.render.bench_page import render_markdown

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be timed")
CELL = ({"M": 64, "N": 96, "K": 128}, "fp32")
ISSUE_KEYS = {
    "kernel", "shape", "dtype", "ours_us", "torch_compile_us", "torch_eager_us", "torch_matmul_us", "baseline",
    "baseline_us", "floor_us", "pct_of_roof", "rel_error",
}  # fmt: skip


def test_bench_gives_a_row_a_cell_with_the_best_baseline(monkeypatch):
    with_small_rotation(monkeypatch)
    document = bench(kernel_file(), [CELL], hardware=this_cpu()).document()
    (row,) = document["rows"]
    assert set(row) >= ISSUE_KEYS and row["shape"] == CELL[0]
    assert row["baseline"] in ("torch_eager", "torch_matmul")
    assert row["baseline_us"] == min(row["torch_eager_us"], row["torch_matmul_us"])
    assert row["torch_compile_us"] is None and row["missing"] == {}
    # 98304 bytes at 10 GB/s against 1572864 operations at 0.1 TFLOP/s: 9.83 and 15.7 us
    assert row["floor_us"] == pytest.approx(15.729, rel=1e-3)
    assert row["pct_of_roof"] == pytest.approx(100 * row["floor_us"] / row["ours_us"], rel=1e-3)
    assert row["rel_error"] < 1e-5
    assert row["context"] == "loop" and row["contexts_us"] == {"loop": row["all_us"]}


def test_bench_hands_on_the_rows_so_far_after_each(monkeypatch):
    with_small_rotation(monkeypatch)
    seen = []
    found = bench(kernel_file(), [CELL, CELL], hardware=this_cpu(), only=frozenset(), on_row=seen.append)
    assert [len(part.rows) for part in seen] == [1, 2] and seen[-1] == found


def test_bench_renders_every_row_and_dashes_for_missing_baselines(monkeypatch):
    with_small_rotation(monkeypatch)
    found = bench(kernel_file(), [CELL], hardware=this_cpu(), only=frozenset({"torch_matmul"}))
    text = render_markdown(found.document())
    (line,) = [line for line in text.splitlines() if line.startswith("| small_matmul")]
    assert "M=64 N=96 K=128" in line and "–" in line


def test_a_rendered_row_names_its_fastest_baseline_and_its_ratio_to_ours():
    row = {
        "kernel": "matmul", "shape": {"M": 1, "N": 2, "K": 3}, "dtype": "fp16", "ours_us": 2.0,
        "torch_compile_us": None, "torch_eager_us": None, "torch_matmul_us": None,
        "baseline": "sdpa_cudnn", "baseline_us": 12.5, "floor_us": 1.0,
        "pct_of_roof": 50.0, "rel_error": 1e-4,
    }  # fmt: skip
    alone = {**row, "baseline": None, "baseline_us": None}
    text = render_markdown({"device": "D", "conditions": {}, "rows": [row, alone]})
    assert [line.split(" | ")[-1] for line in text.splitlines()[-2:]] == ["sdpa_cudnn 12.5, 6.25 |", "– |"]
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_bench_never_times_a_wrong_kernel(monkeypatch):
    with_small_rotation(monkeypatch)
    file = kernel_file()
    implementations = {"torch-cpu": file.kernel.implementations["wrong"]}
    wrong = type(file.kernel)(**{**vars(file.kernel), "implementations": implementations})
    with pytest.raises(MachineError, match="output is wrong"):
        bench(replace(file, kernel=wrong), [CELL], hardware=this_cpu())


def test_bench_names_the_baseline_that_does_not_run(monkeypatch):
    with_small_rotation(monkeypatch)
    file = kernel_file()
    baselines = {**file.kernel.baselines, "torch_compile_default": file.kernel.implementations["raising"]}
    kernel = type(file.kernel)(**{**vars(file.kernel), "baselines": baselines})
    (row,) = bench(replace(file, kernel=kernel), [CELL], hardware=this_cpu()).document()["rows"]
    assert row["missing"] == {"torch_compile_default": "RuntimeError: no such instruction"}


def _wasteful(inputs):
    return lambda: sum(inputs["a"] @ inputs["b"] for _ in range(200)) / 200


def _wrong(inputs):
    return lambda: inputs["a"] @ inputs["b"] + 1.0


def _refusing(inputs):
    raise ValueError("fp32 is not supported")


# Distributions that are installed here: a peer without one is not called.
PEERS = (
    Peer("wasteful", "torch", _wasteful),
    Peer("wrong", "torch", _wrong),
    Peer("refusing", "torch", _refusing),
    Peer("absent", "no-such-distribution", _wasteful),
)


def test_bench_times_peers_that_are_right_and_names_the_others(monkeypatch):
    with_small_rotation(monkeypatch)
    found = bench(kernel_file(), [CELL], hardware=this_cpu(), peers=PEERS).document()
    (row,) = found["rows"]
    assert row["peers"] == {"wasteful": f"torch {torch.__version__}"}
    assert {"ours", "wasteful"} <= set(row["all_us"]) and not {"wrong", "refusing", "absent"} & set(row["all_us"])
    assert row["missing"]["wrong"].startswith("MachineError: output is wrong: largest absolute error 1.0")
    assert row["missing"]["refusing"] == "ValueError: fp32 is not supported"
    assert row["missing"]["absent"] == "MachineError: not installed; pip install no-such-distribution"
    assert row["fastest"] == min(row["all_us"], key=row["all_us"].get) != "wasteful"
    assert row["ratio_to_fastest"] == pytest.approx(row["all_us"][row["fastest"]] / row["ours_us"], rel=1e-3)
    assert row["baseline"] in ("torch_eager", "torch_matmul")
    text = render_markdown(found)
    assert "- small_matmul: absent not timed: MachineError: not installed" in text


def test_a_peer_can_be_the_fastest():
    row = {
        "kernel": "softmax", "shape": {"M": 1, "N": 2}, "dtype": "fp16", "ours_us": 2.0, "torch_compile_us": 5.0,
        "torch_eager_us": None, "torch_matmul_us": None, "baseline": "torch_compile", "baseline_us": 5.0,
        "floor_us": 1.0, "pct_of_roof": 50.0, "rel_error": 1e-4, "peers": {"quick": "quick 1.0"},
        "all_us": {"ours": 2.0, "torch_compile": 5.0, "quick": 1.0},
    }  # fmt: skip
    line = render_markdown({"device": "D", "conditions": {}, "rows": [row]}).splitlines()[-1]
    assert line.endswith("| quick 1.00, 0.50 |") and "**" not in line


def test_every_peer_can_be_chosen_by_name_and_runs_alone(monkeypatch):
    with_small_rotation(monkeypatch)
    assert baseline_set(["liger"], [load_kernel("softmax")]) == {"liger"}
    only = frozenset({"wasteful"})
    (row,) = bench(kernel_file(), [CELL], hardware=this_cpu(), only=only, peers=PEERS).document()["rows"]
    assert set(row["all_us"]) == {"ours", "wasteful"} and row["missing"] == {} and row["fastest"] == "ours"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((name, {"M": 512, "N": 4096}) for name in ("rmsnorm", "layernorm", "softmax")),
        *(
            (name, {"B": 2, "HQ": 4, "HKV": 2, "S": 300, "D": 64})
            for name in ("decode_attention", "flash_attention", "flash_attention_causal")
        ),
        ("mla_decode", {"B": 2, "H": 128, "S": 300}),
    ],
)
def test_installed_peers_are_right(name, shape):
    kernel = load_kernel(name).kernel
    installed = [peer for peer in peers_of(kernel.operation.name) if peer.release]
    if not installed:
        pytest.skip("no peer is installed: pip install liger-kernel")
    inputs = fill_inputs(kernel, Trial(shape, "bf16", {}), "cuda")
    expected = kernel.reference(inputs)
    for peer in installed:
        assert compare(peer.call(inputs)(), expected, kernel.tolerances["bf16"], name=peer.name).passed, peer.release


def test_a_rendered_row_shows_the_other_contexts_with_the_same_baseline():
    row = {
        "kernel": "matmul", "shape": {"M": 1}, "dtype": "fp16", "ours_us": 13.7, "torch_compile_us": 18.0,
        "torch_eager_us": None, "torch_matmul_us": None, "baseline": "torch_compile", "baseline_us": 18.0,
        "floor_us": 1.0, "pct_of_roof": 50.0, "rel_error": 1e-4,
        "contexts_us": {"back-to-back": {"ours": 10.3, "torch_compile": 16.3, "quick": 1.0}, "idle": {"ours": 40.0}},
    }  # fmt: skip
    lines = render_markdown({"device": "D", "conditions": {}, "rows": [row]}).splitlines()
    assert lines[-3].split(" | ")[-2:] == ["back to back: ours, that baseline", "after idle: ours, that baseline |"]
    assert lines[-1].split(" | ")[-2:] == ["10.3, 16.3", "40.0 |"]
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


@pytest.mark.gpu
def test_a_chain_takes_off_the_time_of_the_kernel_between():
    from ledger.measure.cuda_graphs import GraphRounds
    from ledger.measure.launch_contexts import ChainRounds, IdleRounds, between_launch

    values = torch.randn(1 << 26, device="cuda")
    launches = [lambda: torch.mul(values, 2.0, out=values)]
    alone = GraphRounds(launches, watch=False).take(5)
    chained = ChainRounds(launches, between_launch(), watch=False).take(5)
    assert sorted(chained)[2] == pytest.approx(sorted(alone)[2], rel=0.05)
    assert min(IdleRounds(launches).take(2)) > 0.9 * min(alone)


@pytest.mark.gpu
def test_bench_on_a_gpu_excludes_what_computes_less_from_the_baselines():
    from ledger.kernel_files import load_kernel

    shape = {"B": 16, "H": 1536, "O": 1536}
    only = frozenset({"torch_eager", "torch_matmul"})
    file = load_kernel("rmsnorm_matmul", launch=True)
    (row,) = bench(file, [(shape, "fp16")], hardware=this_gpu_profile(), only=only).document()["rows"]
    assert row["baseline"] == "torch_eager" and row["torch_matmul_us"] and row["sm_clock_mhz"]
    assert row["context"] == "chain" and list(row["contexts_us"]) == ["chain", "back-to-back", "idle"]
    assert row["contexts_us"]["idle"]["ours"] > row["ours_us"]


def this_gpu_profile():
    profile = this_gpu()
    burst = profile.ceilings["burst"]
    peaks = {"fp16_tensor": burst.peaks["fp32"], "fp32": burst.peaks["fp32"]}
    return profile.model_copy(update={"ceilings": {"burst": burst.model_copy(update={"peaks": peaks})}})


def conditions(kernel: str, digest: str, overlap: str | None) -> Conditions:
    return Conditions(
        date="2026-01-01", driver=None, kernel_sha256={kernel: digest}, protocol="cold-graph/1", overlap=overlap,
        fp32_products="tf32 off", software={}, threads=None,
    )  # fmt: skip


def test_joined_benches_keep_the_digest_and_the_overlap_of_each_kernel():
    one = Bench("Toy", conditions("a", "1", None), rows=())
    two = Bench("Toy", conditions("b", "2", "b overlaps"), rows=())
    found = one.joined(two).document()["conditions"]
    assert (found["kernel_sha256"], found["overlap"]) == ({"a": "1", "b": "2"}, "b overlaps")
    assert two.joined(replace(two, conditions=conditions("c", "3", "c overlaps"))).conditions.overlap == (
        "b overlaps; c overlaps"
    )


def test_a_baseline_is_named_with_hyphens_or_underscores_and_an_unknown_one_is_refused():
    files = [load_kernel("gemv"), load_kernel("matmul")]
    assert baseline_set(["torch-eager", "torch_matmul"], files) == {"torch_eager", "torch_matmul"}
    with pytest.raises(InputError, match=r"cublas is no baseline of gemv, matmul; expected some of: .*torch_eager"):
        baseline_set(["cublas"], files)

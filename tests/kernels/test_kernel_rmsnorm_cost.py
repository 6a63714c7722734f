"""Tests how rmsnorm_matmul describes launches to the cost model, by hand, and the regret of its picks, from data."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loaded_kernels import load_kernel

from ledger.analysis.model_shapes import TIMES_SCHEMA, cells, drawn
from ledger.errors import InputError
from ledger.kernels.common.gemm_cluster import DIVIDED_CLOCKS
from ledger.kernels.common.gemm_frames import Frame, cluster_frames, nanoseconds
from ledger.kernels.common.targets import Target
from ledger.kernels.rmsnorm_matmul.candidates import candidate, candidates
from ledger.kernels.rmsnorm_matmul.cost import (
    FIRST_BYTES,
    FIRST_BYTES_PER_S,
    NORMALISED_BYTES_PER_S,
    NORMALISING_S,
    RATES,
    Clocks,
    Tile,
    behind_normed_s,
    chain_s,
    launch_of,
    normed_s,
    product_shape,
    rates_of,
    resident_ctas,
)
from ledger.kernels.rmsnorm_matmul.normed import product_settings
from ledger.kernels.rmsnorm_matmul.search import (
    cheapest,
    cheapest_fused,
    frame_of,
    normed_config,
    normed_configs,
    predicted_s,
    staged,
    tiles,
)
from ledger.kernels.rmsnorm_matmul.variants import NEUTRAL
from ledger.record_files import hardware_names, load_hardware, parse_yaml
from ledger.records import Dtype

ROOT = Path(__file__).parents[2]
TIMED, SETTLED = (
    json.loads((ROOT / "benchmarks" / f"model-shapes-{name}-h200.json").read_text(encoding="utf-8"))
    for name in ("promoted", "settled")
)
NOTES = (ROOT / "docs" / "notes" / "launch_rule.md").read_text(encoding="utf-8")
MODELS = parse_yaml((ROOT / "benchmarks" / "model_shapes.yaml").read_bytes(), what="model_shapes.yaml")
CLOCKS = Clocks(
    issue_64=100, issue_128=200, issue_128_wide=150, row_128=2, shared_row_64=3, separate=5, scale_64=300,
    scale_128=350, step=400, ping_pong=1000, cooperative=1100, warp_specialised=1200, published_squares=50,
    late_weights=60, tile=8000, groups=4000, sent=6000, ping_pong_split=70, cooperative_split=80,
    warp_specialised_split=90, other_lines=0.5, fetched=1.25,
)  # fmt: skip
SHAPE = {"B": 256, "H": 4096, "O": 6144}
PAIR = Tile("cuda_ping_pong", 128, 128, 1, 2, 8, 64, shared=False)


def test_ping_pong_in_pairs_of_row_tiles_shares_the_weights() -> None:
    found = launch_of(PAIR, SHAPE, "fp16", 1, CLOCKS)
    # 2 row tiles by 48 column tiles; 64 steps of 64; 16 KB of each operand a step, half of the weights requested.
    assert (found.ctas, found.cluster, found.steps) == (96, 2, 64)
    assert found.request_bytes == 8192 + 16_384
    assert found.step_flops == 2 * 128 * 128 * 64
    assert (found.hidden_clocks, found.exposed_clocks, found.serial_clocks) == (200, 256, 5)
    # Half a tile of 128 x 256, one group, squares that another CTA sums.
    assert found.fixed_clocks == 1000 + 4000 + 50


def test_four_groups_add_their_accumulators_and_a_shared_pipeline_begins_late() -> None:
    tile = PAIR._replace(block_o=64, cluster_m=1, num_warps=16, shared=True)
    found = launch_of(tile, SHAPE, "fp16", 1, CLOCKS)
    # A quarter of 128 x 256, and three more groups of that size; 64 of the rows lie beyond 64.
    assert found.fixed_clocks == 1000 + 2000 + 3 * 1000 + 50 + 60
    assert (found.hidden_clocks, found.exposed_clocks, found.serial_clocks) == (100, 0, 64 * 3)


def test_split_k_divides_the_steps_and_reads_other_lines_of_x() -> None:
    found = launch_of(Tile("cuda_cooperative", 128, 256, 2, 1, 8, 64, shared=False), SHAPE, "fp16", 1, CLOCKS)
    # 2 · 24 tiles by two CTAs, half of 64 steps; each CTA sends half of its sums.
    assert (found.ctas, found.cluster, found.steps) == (96, 2, 32)
    assert found.fixed_clocks == 3000 + 1100 + 80
    assert (found.hidden_clocks, found.exposed_clocks) == (350, 128 * 256 / 32)
    # 32 KB of weights, and 16 KB of x of which other K ranges add a quarter.
    assert found.request_bytes == 32_768 + 16_384 * 1.25


def test_warp_specialised_steps_are_longer_and_its_ctas_are_no_cluster() -> None:
    found = launch_of(Tile("warp_specialised", 8, 64, 4, 1, 4, 256, shared=False), SHAPE, "bf16", 1, CLOCKS)
    assert (found.cluster, found.steps, found.hidden_clocks) == (1, 16, 100)
    # 8 x 64 is 1/64 of 128 x 256; three quarters of the sums are sent.
    assert found.fixed_clocks == pytest.approx(1200 + 125 + 90 + 6000 / 64 * 3 / 4)


def test_rows_beyond_64_that_share_stages_take_longer_with_each_cta_that_shares_weights() -> None:
    tile = Tile("cuda_ping_pong", 104, 64, 1, 2, 8, 64, shared=True)
    assert launch_of(tile, SHAPE, "fp16", 1, CLOCKS).serial_clocks == 40 * 3 * 2
    assert launch_of(tile._replace(block_b=64), SHAPE, "fp16", 1, CLOCKS).serial_clocks == 0
    assert launch_of(tile._replace(block_o=128), SHAPE, "fp16", 1, CLOCKS).serial_clocks == 0


FRAME = Frame(128, 192, 2, 1)


def test_rows_normalised_first_take_a_launch_and_their_bytes_beside_the_product() -> None:
    product_s = 1e-9 * nanoseconds(FRAME, {"M": 256, "N": 6144, "K": 4096}, 132, copied=True)
    # 256 rows of 8 KiB; four times as many take the later rate for what exceeds the first bytes.
    expected = product_s + NORMALISING_S + 256 * 8192 / FIRST_BYTES_PER_S
    assert normed_s(FRAME, SHAPE, "bf16", 132) == pytest.approx(expected)
    first_s, x = FIRST_BYTES / FIRST_BYTES_PER_S, 1024 * 8192
    expected = NORMALISING_S + first_s + (x - FIRST_BYTES) / NORMALISED_BYTES_PER_S
    assert behind_normed_s(0.0, {**SHAPE, "B": 1024}, "bf16") == pytest.approx(expected)
    # What clusters wait for is hidden behind the launch that normalises.
    assert product_s < 1e-9 * nanoseconds(FRAME, {"M": 256, "N": 6144, "K": 4096}, 132)


@pytest.mark.parametrize("sms", [132, 114, 3])
def test_every_frame_of_the_product_is_a_configuration_that_its_chip_can_run(sms: int) -> None:
    kernel = load_kernel("rmsnorm_matmul").kernel
    for shape in ({"B": 8, "H": 2048, "O": 1024}, {"B": 200, "H": 4096, "O": 5128}, {"B": 96, "H": 7168, "O": 36864}):
        found = list(normed_configs(shape, "fp16", sms))
        frames = list(cluster_frames(product_shape(shape), sms, copied=True))
        assert {frame_of(config) for config in found} <= set(frames) and len(found) > 0.9 * len(frames)
        for config in found:
            kernel.check_config(config, shape, "fp16", Target("sm_90", sms))
        times = [predicted_s(config, shape, "fp16", rates=rates_of(sms)) for config in found]
        assert times == sorted(times)


def test_results_leave_through_the_stages_where_a_cta_has_one_tile_on_its_chip() -> None:
    kernel, shape = load_kernel("rmsnorm_matmul").kernel, {"B": 139, "H": 3584, "O": 10240}
    config = normed_config(Frame(144, 128, swap_ab=1), shape, "fp16", 132)
    assert config is not None
    config |= {"num_stages": 6}
    kernel.check_config(config, shape, "fp16", Target("sm_90", 132))
    with pytest.raises(InputError, match="expected fewer, or no more tiles than programs"):
        kernel.check_config(config, shape, "fp16", Target("sm_90", 78))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_compulsory_bytes_are_those_of_the_work_model(dtype: Dtype) -> None:
    work = load_kernel("rmsnorm_matmul").kernel.work(SHAPE, dtype)
    moved = work.bytes_read + work.bytes_written
    assert launch_of(PAIR, SHAPE, dtype, 1).dram_bytes == moved
    # Of misses that fetch 256 bytes at once more comes.
    assert launch_of(PAIR._replace(variant="cuda_cooperative"), SHAPE, dtype, 1, CLOCKS).dram_bytes == 1.25 * moved


@pytest.mark.parametrize(
    ("tile", "shared_kib", "fit"),
    [
        # 14 warps of 46 registers; 22 of them need 33,792 of 65,536.
        (Tile("cuda_ping_pong", 8, 64, 4, 1, 8, 64, shared=True), 64, 2),
        (Tile("cuda_ping_pong", 8, 64, 4, 1, 16, 64, shared=True), 64, 1),
        (Tile("cuda_ping_pong", 8, 64, 4, 1, 8, 64, shared=True), 120, 1),
        (Tile("cuda_ping_pong", 128, 128, 1, 1, 8, 64, shared=True), 64, 1),
        (Tile("cuda_cooperative", 64, 64, 1, 1, 8, 64, shared=False), 10, 1),
    ],
)
def test_ctas_of_an_sm_are_limited_by_registers_and_shared_memory(tile: Tile, shared_kib: int, fit: int) -> None:
    assert resident_ctas(tile, shared_kib * 1024) == fit


# What the rule takes


def test_the_cheapest_is_the_least_of_all_that_fit() -> None:
    taken = set()
    for shape in (
        SHAPE,
        {"B": 4, "H": 576, "O": 960},
        {"B": 40, "H": 6144, "O": 1024},
        {"B": 300, "H": 4096, "O": 8192},
    ):
        fused = [one for tile in tiles(shape) if (one := staged(tile, shape, "fp16")) is not None]
        offered = [*fused, *normed_configs(shape, "fp16", 132)]
        best = cheapest(shape, "fp16")
        assert best is not None
        taken.add(best["variant"])
        assert predicted_s(best, shape, "fp16") == min(predicted_s(one, shape, "fp16") for one in offered)
        least = min(predicted_s(one, shape, "fp16") for one in fused)
        best = cheapest_fused(shape, "fp16")
        assert best is not None and predicted_s(best, shape, "fp16") == least
        assert cheapest_fused(shape, "fp16", below_s=least) is None
    assert {"cuda_ping_pong", "cuda_normed"} <= taken


@pytest.mark.parametrize("b", [4, 192])
def test_candidates_of_tune_are_of_every_fast_variant(b: int) -> None:
    shape = {"B": b, "H": 4096, "O": 4352}
    kernel = load_kernel("rmsnorm_matmul").kernel
    found = list(candidates(shape, "fp16", "sm_90"))
    assert found[0].config == kernel.config(shape, "fp16", "sm_90")
    assert {"cuda_ping_pong", "cuda_normed", "cuda_cooperative"} <= {one.config["variant"] for one in found}


def test_candidates_of_rows_normalised_first_count_whole_clusters_shares_and_stream_k() -> None:
    shape = {"B": 99, "H": 1000, "O": 520}
    config = normed_config(Frame(104, 64, cluster_n=4, swap_ab=1), shape, "fp16", 132)
    assert config is not None
    found = candidate(config, shape, "fp16")
    # 9 column tiles fill three clusters of 4; 16 steps of 64 inner positions.
    assert (found.tiles, found.tile_flops) == (12, 2 * 104 * 64 * 1024)
    # A quarter of 104 rows of x, and 64 columns; neither operand's rows begin at lines of L2.
    assert found.tile_bytes == 2 * (26 + 64) * 2 * 1024
    # Of four warps that multiply and four others.
    assert (found.warps, found.registers, found.extra_clocks) == (8, 168, 0)
    divided = candidate({**config, "stream_k": 1}, shape, "fp16")
    assert (divided.tiles, divided.tile_flops, divided.extra_clocks) == (12 * 16, 2 * 104 * 64 * 64, DIVIDED_CLOCKS)
    assert divided.tile_bytes == 2 * (26 + 64) * 2 * 64


def test_candidates_of_rows_normalised_first_are_counted_as_those_of_matmul() -> None:
    gemm: Any = load_kernel("matmul").kernel.config
    shape, seen = {"B": 512, "H": 4104, "O": 5128}, 0
    for config in normed_configs(shape, "bf16", 132):
        # Tiles whose rows divide those of x.
        if 512 % (config["cluster_m"] * config["block_b"]) == 0:
            settings, found = product_settings(config, 512, 132), candidate(config, shape, "bf16")
            product = gemm.__self__.candidate(settings, product_shape(shape), "bf16")
            assert found == replace(product, config=config, bytes_under_way=found.bytes_under_way)
            seen += 1
    assert seen > 20


def test_a_gain_that_does_not_fit_leaves_no_cuda_variant() -> None:
    best = cheapest({"B": 64, "H": 200_000, "O": 128}, "fp16")
    assert best is None or best["split_k"] > 1


def test_the_rule_counts_the_sms_of_the_chip() -> None:
    kernel, shape = load_kernel("rmsnorm_matmul").kernel, {"B": 64, "H": 4096, "O": 132 * 64}
    full, fewer = (kernel.config(shape, "fp16", Target("sm_90", sms)) for sms in (132, 114))
    assert full == cheapest(shape, "fp16")
    assert fewer == cheapest(shape, "fp16", rates=rates_of(114)) != full


def test_fewer_sms_hold_fewer_clusters() -> None:
    assert rates_of(132) == RATES
    assert rates_of(114).slots == {1: 114, 2: 114, 4: 100, 8: 80}
    full = {"B": 128, "H": 4096, "O": 132 * 64}
    tile = Tile("cuda_ping_pong", 128, 64, 1, 1, 8, 64, shared=True)
    assert chain_s(tile, full, "fp16", 1, rates=rates_of(114)) > chain_s(tile, full, "fp16", 1)


def test_the_rule_takes_a_few_milliseconds() -> None:
    """1.7 ms on an idle core; the bound leaves room for a slow or busy machine."""
    kernel = load_kernel("rmsnorm_matmul").kernel
    drawn_cells = list(drawn(cells(MODELS, "fit"), 40, seed="time"))
    taken = [min(_cpu_seconds(kernel, shape, dtype) for _ in range(3)) for shape, dtype in drawn_cells]
    assert statistics.median(taken) < 5e-3


def _cpu_seconds(kernel: Any, shape: dict[str, int], dtype: Dtype) -> float:
    begun = time.process_time()
    kernel.config(shape, dtype, "sm_90")
    return time.process_time() - begun


# The committed timings


def configurations(document: dict[str, Any], row: dict[str, Any]) -> list[tuple[dict[str, Any], float]]:
    """Return the configurations of a row with their microseconds, without the library that was timed beside them."""
    made = []
    for values in row["configs"]:
        named = dict(zip(document["columns"], values, strict=True))
        variant, chain_us = document["variants"][named.pop("variant")], named.pop("chain_us")
        named.pop("back_to_back_us", None)
        if variant in NEUTRAL:
            made.append(({**NEUTRAL[variant], "variant": variant, **document["fixed"], **named}, chain_us))
    return made


def regret(document: dict[str, Any], row: dict[str, Any]) -> float:
    """Return the time of the model's pick over the least."""
    shape, timed = {key: row[key] for key in "BHO"}, configurations(document, row)
    _, pick_us = min(timed, key=lambda one: predicted_s(one[0], shape, row["dtype"]))
    return pick_us / min(us for _, us in timed)


@pytest.mark.parametrize("document", [TIMED, SETTLED], ids=["promoted", "settled"])
def test_regret_of_the_picks_is_as_the_notes_say(document: dict[str, Any]) -> None:
    found = [regret(document, row) for row in document["rows"]]
    within = [sum(one <= limit for one in found) / len(found) for limit in (1.05, 1.1)]
    words = f"{len(found)} cells: mean {statistics.fmean(found) - 1:.1%}, within 5% in {within[0]:.0%}, "
    words += f"within 10% in {within[1]:.1%}, worst {max(found):.2f}"
    assert words in " ".join(NOTES.split())


def test_the_rule_takes_what_settled_times_compare_it_by() -> None:
    kernel = load_kernel("rmsnorm_matmul").kernel
    for row in SETTLED["rows"]:
        taken = kernel.config({key: row[key] for key in "BHO"}, row["dtype"], "sm_90")
        assert taken in [config for config, _ in configurations(SETTLED, row)]
    firsts = [
        timed[0][1] / min(us for _, us in timed) for timed in (configurations(SETTLED, row) for row in SETTLED["rows"])
    ]
    assert f"before {statistics.fmean(firsts) - 1:.1%}, {max(firsts):.2f}." in NOTES
    kept = [
        timed[0][1] / min(timed, key=lambda one: predicted_s(one[0], shape, "fp16"))[1]
        for row in SETTLED["rows"]
        if list((shape := {key: row[key] for key in "BHO"}).values()) in SETTLED["kept"]
        for timed in [configurations(SETTLED, row)]
    ]
    more = statistics.geometric_mean(kept) - 1
    assert f"Tiles kept for {len(kept)} shapes took {more:.1%} more than the model's." in NOTES
    faster = [one["us"]["before"] / one["us"]["now"] for one in SETTLED["unseen"]]
    words = f"differs in {len(faster)} of them: {statistics.geometric_mean(faster):.2f} times as fast, "
    words += f"from {min(faster):.2f} to {max(faster):.2f}"
    assert words in " ".join(NOTES.split())


def test_the_notes_name_how_many_timings_were_fitted() -> None:
    for document in (TIMED, SETTLED):
        timings = sum(len(configurations(document, row)) for row in document["rows"])
        assert f"{timings:,} timings of {len(document['rows'])} cells" in " ".join(NOTES.split())


def test_every_timed_configuration_is_of_a_fit_cell_and_can_run() -> None:
    kernel = load_kernel("rmsnorm_matmul").kernel
    unseen = {(shape["H"], shape["O"]) for shape, _ in cells(MODELS, "unseen")}
    # Cells of the benchmark table beside those of models.
    bench = json.loads((ROOT / "benchmarks" / "h200.json").read_text(encoding="utf-8"))["rows"]
    table = {(row["shape"]["H"], row["shape"]["O"]) for row in bench if row["kernel"] == "rmsnorm_matmul"}
    for document in (TIMED, SETTLED):
        for row in document["rows"]:
            shape = {key: row[key] for key in "BHO"}
            assert (row["H"], row["O"]) not in unseen - table
            for config, _ in configurations(document, row):
                kernel.check_config(config, shape, row["dtype"], "sm_90")


def test_only_fused_tiles_that_were_timed_are_offered() -> None:
    earlier = json.loads((ROOT / "benchmarks" / "model-shapes-fit-h200.json").read_text(encoding="utf-8"))
    timed = set()
    for document in (TIMED, earlier):
        variant, *tile = (document["columns"].index(key) for key in ("variant", "block_b", "block_o"))
        for values in (values for row in document["rows"] for values in row["configs"]):
            timed.add((document["variants"][values[variant]], *(values[at] for at in tile)))
    for b in range(1, 601, 7):
        for tile in tiles({"B": b, "H": 8192, "O": 8192}):
            assert (tile.variant, tile.block_b, tile.block_o) in timed


@pytest.mark.parametrize("half", ["fit", "unseen"])
def test_the_rule_gives_what_sm_90_can_run_for_published_models(half: Any) -> None:
    kernel = load_kernel("rmsnorm_matmul").kernel
    for shape, dtype in drawn(cells(MODELS, half), 400, seed="rule"):
        config = kernel.config(shape, dtype, "sm_90")
        assert set(NEUTRAL[config["variant"]].items()) <= set(config.items())
        kernel.check_config(config, shape, dtype, "sm_90")


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("model_shapes-*.json")), ids=lambda path: path.stem)
def test_times_by_which_the_rule_is_judged_are_of_unseen_cells_and_of_its_own_choices(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    kernel = load_kernel("rmsnorm_matmul").kernel
    (chip,) = {one.chip for name in hardware_names() if document["device"] in (one := load_hardware(name)).device_names}
    unseen = {(*(shape[key] for key in "BHO"), dtype) for shape, dtype in cells(MODELS, "unseen")}
    assert document["schema"] == TIMES_SCHEMA and document["rows"]
    for row in document["rows"]:
        assert (*(row["shape"][key] for key in "BHO"), row["dtype"]) in unseen
        assert {"kernel", "ours_us", "torch_compile_us", "torch_matmul_us"} <= set(row)
        assert row["ours_us"] == row["contexts_us"]["chain"]["ours"] and row["worst"] < 1
    before = {(*row["shape"].values(), row["dtype"]): row["config"] for row in document["rows"]}
    now = {(b, h, o, dtype): kernel.config({"B": b, "H": h, "O": o}, dtype, chip) for b, h, o, dtype in before}
    other = {cell for cell, config in before.items() if now[cell] != config}
    # Those of the other GPU are of an earlier rule.
    if document["device"] == SETTLED["device"]:
        changed = {(*(row[key] for key in "BHO"), row["dtype"]): row["now"] for row in SETTLED["unseen"]}
        assert other == set(changed) and all(now[cell] == config for cell, config in changed.items())


def test_unseen_cells_are_as_the_notes_say() -> None:
    document = json.loads((ROOT / "benchmarks" / "model_shapes-h200.json").read_text(encoding="utf-8"))
    drawn_cells = drawn(cells(MODELS, "unseen"), 96, seed="")
    timed = {(*row["shape"].values(), row["dtype"]) for row in document["rows"]}
    assert timed == {(*shape.values(), dtype) for shape, dtype in drawn_cells}
    for label, column, least, most in (
        ("torch.compile, all", "torch_compile_us", 1, 512),
        ("torch.matmul without the norm, to B = 64", "torch_matmul_us", 1, 64),
        ("torch.matmul without the norm, beyond", "torch_matmul_us", 65, 512),
    ):
        rows = [row for row in document["rows"] if least <= row["shape"]["B"] <= most]
        ratios = [row[column] / row["ours_us"] for row in rows]
        near = sum(one >= 0.95 for one in ratios) / len(rows)
        ahead = sum(row[column] > row["ours_us"] for row in rows) / len(rows)
        geomean = statistics.geometric_mean(ratios)
        assert f"| {label} | {len(rows)} | {geomean:.2f} | {min(ratios):.2f} | {near:.0%} | {ahead:.0%} |" in NOTES

"""Tests how rmsnorm_matmul describes launches to the cost model, by hand, and the regret of its picks, from data."""

from __future__ import annotations

import json
import re
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.analysis.model_shapes import FIT_SCHEMA, TIMES_SCHEMA, cells, drawn
from ledger.cost_model import cost
from ledger.kernel_files import load_kernel
from ledger.kernels.rmsnorm_matmul.cost import RATES, Clocks, Tile, chain_s, launch_of, resident_ctas, tile_of
from ledger.kernels.rmsnorm_matmul.search import cheapest, chosen, staged, tiles
from ledger.kernels.rmsnorm_matmul.variants import NEUTRAL, shared_bytes
from ledger.record_files import parse_yaml
from ledger.records import Dtype

ROOT = Path(__file__).parents[2]
NORMED = json.loads((ROOT / "benchmarks" / "model-shapes-normed-h200.json").read_text(encoding="utf-8"))
FIT = json.loads((ROOT / "benchmarks" / "model-shapes-fit-h200.json").read_text(encoding="utf-8"))
MODELS = parse_yaml((ROOT / "benchmarks" / "model_shapes.yaml").read_bytes(), what="model_shapes.yaml")
CLOCKS = Clocks(
    issue_64=100, issue_128=200, issue_128_wide=150, row_128=2, separate=5, scale_64=300, scale_128=350, step=400,
    ping_pong=1000, cooperative=1100, warp_specialised=1200, published_squares=50, late_weights=60, tile=8000,
    groups=4000, sent=6000, ping_pong_split=70, cooperative_split=80, warp_specialised_split=90, other_lines=0.5,
    shared_bytes=100, cluster=1300, cluster_split=110, stream_k=5000, normalised=700, normalised_bytes=64,
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
    # A quarter of 128 x 256, and three more groups of that size.
    assert found.fixed_clocks == 1000 + 2000 + 3 * 1000 + 50 + 60
    assert (found.hidden_clocks, found.exposed_clocks, found.serial_clocks) == (100, 0, 0)


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


NORMED_FIRST = Tile("cuda_cluster", 128, 192, 1, 2, 8, 64, shared=False)


def test_rows_are_normalised_once_before_the_cluster_gemm() -> None:
    found = launch_of(NORMED_FIRST, SHAPE, "fp16", 1, CLOCKS)
    # 32 column tiles by a pair of row tiles; 64 steps; half of 192 columns of the weights and 128 rows of x requested.
    assert (found.ctas, found.cluster, found.steps) == (64, 2, 64)
    assert found.request_bytes == 128 * (96 + 128)
    # Two warpgroups read 64 rows and 192 columns each; 128 rows and 192 columns are written: 832 times 128 bytes.
    assert found.hidden_clocks == pytest.approx(832 * 128 / 100)
    assert (found.exposed_clocks, found.serial_clocks, found.resident) == (0, 0, 1)
    assert found.fixed_clocks == 1300 + 0.75 * 8000
    # Each of 64 CTAs normalises 4 rows of 8 KiB.
    assert found.once_clocks == 700 + 4 * 8192 / 64


def test_clocks_before_the_first_step_count_once_a_launch() -> None:
    found = launch_of(NORMED_FIRST, {**SHAPE, "O": 28672}, "fp16", 1, CLOCKS)
    rates = replace(RATES, overlap=1.0)
    without = cost(found._replace(once_clocks=0.0), rates, state="chain")
    assert without.waves == 3
    assert cost(found, rates, state="chain").total_s - without.total_s == pytest.approx(found.once_clocks / 1.755e9)


def test_stream_k_gives_all_clusters_equal_steps() -> None:
    found = launch_of(NORMED_FIRST._replace(block_o=256, stream_k=1), SHAPE, "fp16", 1, CLOCKS)
    # 24 pairs of tiles by 64 steps, divided among 66 pairs of CTAs.
    assert (found.ctas, found.steps) == (132, 24)
    assert found.fixed_clocks == pytest.approx(1300 + 8000 * 24 / 66 + 5000)
    # 66 pairs of tiles are whole: nothing is divided.
    whole = launch_of(NORMED_FIRST._replace(block_o=256, stream_k=1), {**SHAPE, "O": 66 * 256}, "fp16", 1, CLOCKS)
    assert (whole.ctas, whole.steps) == (132, 64)


def test_two_halves_of_a_swapped_tile_exchange_half_of_the_sums() -> None:
    tile = Tile("cuda_cluster", 128, 128, 2, 1, 8, 64, shared=False, swap_ab=1)
    found = launch_of(tile, SHAPE, "bf16", 1, CLOCKS)
    assert (found.ctas, found.cluster, found.steps) == (192, 2, 32)
    assert found.fixed_clocks == 1300 + 4000 + 110 + 6000 / 4
    # Even shares of 200 rows: 104 of the 128 are loaded.
    fewer = launch_of(tile, {**SHAPE, "B": 200}, "bf16", 1, CLOCKS)
    assert found.request_bytes - fewer.request_bytes == 128 * 24


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_compulsory_bytes_are_those_of_the_work_model(dtype: Dtype) -> None:
    work = load_kernel("rmsnorm_matmul").kernel.work(SHAPE, dtype)
    assert launch_of(PAIR, SHAPE, dtype, 1).dram_bytes == work.bytes_read + work.bytes_written


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


def predicted_s(config: dict[str, Any], shape: dict[str, int], dtype: Dtype) -> float:
    tile = tile_of(config)
    return chain_s(tile, shape, dtype, resident_ctas(tile, shared_bytes(config, dtype, shape["H"])))


def test_the_cheapest_is_the_least_of_all_that_fit() -> None:
    for shape in (SHAPE, {"B": 4, "H": 576, "O": 960}, {"B": 40, "H": 6144, "O": 1024}):
        offered = [one for tile in tiles(shape) if (one := staged(tile, shape, "fp16")) is not None]
        least = min(predicted_s(one, shape, "fp16") for one in offered)
        best = cheapest(shape, "fp16")
        assert best is not None and predicted_s(best, shape, "fp16") == least


def test_a_gain_that_does_not_fit_leaves_no_cuda_variant() -> None:
    best = cheapest({"B": 64, "H": 200_000, "O": 128}, "fp16")
    assert best is None or best["split_k"] > 1


def test_a_tuned_tile_is_taken_and_a_neighbour_is_not() -> None:
    tuned = chosen({"B": 72, "H": 4096, "O": 4096}, "fp16")
    assert tuned is not None and tuned["block_b"] == 72
    near = chosen({"B": 72, "H": 4096, "O": 4160}, "fp16")
    assert near is not None and near["block_b"] != 72


def test_the_rule_takes_under_two_milliseconds() -> None:
    kernel = load_kernel("rmsnorm_matmul").kernel
    taken = []
    for shape, dtype in drawn(cells(MODELS, "fit"), 40, seed="time"):
        begun = time.process_time()
        kernel.config(shape, dtype, "sm_90")
        taken.append(time.process_time() - begun)
    assert statistics.median(taken) < 2e-3


# The committed timings


def configurations(row: dict[str, Any], data: dict[str, Any] = FIT) -> list[dict[str, Any]]:
    """Return the configurations of a row, with net times and errors."""
    made = []
    for values in row["configs"]:
        named = dict(zip(data["columns"], values, strict=True))
        variant = data["variants"][named.pop("variant")]
        net_us, worst = named.pop("chain_us") - row.get("elementwise_us", 0.0), named.pop("worst")
        named.pop("back_to_back_us", None)
        made.append(
            {
                "config": {**NEUTRAL[variant], "variant": variant, **data["fixed"], **named},
                "net_us": net_us,
                "worst": worst,
            }
        )
    return made


def regrets(row: dict[str, Any]) -> tuple[float, float]:
    """Return the times of the model's pick and of the earlier rule's, over the least."""
    shape, timed = {key: row[key] for key in "BHO"}, configurations(row)
    pick = min(timed, key=lambda one: predicted_s(one["config"], shape, row["dtype"]))
    least = min(one["net_us"] for one in timed)
    return pick["net_us"] / least, timed[row["own"]]["net_us"] / least


def test_regret_of_the_picks_is_as_the_notes_say() -> None:
    model, earlier = zip(*map(regrets, FIT["rows"]), strict=True)

    def within(found: tuple[float, ...], limit: float) -> float:
        return sum(one <= limit for one in found) / len(found)

    assert len(model) == 196
    assert within(model, 1.05) >= 0.94 and within(model, 1.10) >= 0.98
    assert statistics.median(model) < 1.006 and max(model) < 1.28
    # The rule before, on the same cells.
    assert round(within(earlier, 1.05), 2) == 0.71 and round(max(earlier), 2) == 1.60


def picked_us(timed: list[dict[str, Any]], row: dict[str, Any]) -> float:
    """Return the time of the configuration that is predicted to be the fastest."""
    shape = {key: row[key] for key in "BHO"}
    best = min(timed, key=lambda one: predicted_s(one["config"], shape, row["dtype"]))
    return float(best["net_us"])


def test_picks_with_rows_normalised_first_are_as_the_notes_say() -> None:
    before, after, within = [], [], []
    for row in NORMED["rows"]:
        shape = {key: row[key] for key in "BHO"}
        offered = set(tiles(shape))
        timed = [one for one in configurations(row, NORMED) if tile_of(one["config"]) in offered]
        others = [one for one in timed if one["config"]["variant"] != "cuda_cluster"]

        before.append(picked_us(others, row) / row["torch_matmul_us"])
        after.append(picked_us(timed, row) / row["torch_matmul_us"])
        within.append(picked_us(timed, row) / min(one["net_us"] for one in timed))
    assert round(1 / statistics.geometric_mean(before), 2) == 0.89
    assert round(1 / statistics.geometric_mean(after), 2) == 0.94
    assert round(sum(one <= 1.05 for one in within) / len(within), 2) == 0.88 and max(within) <= 1.10
    gains = [old / new for old, new in zip(before, after, strict=True)]
    assert round(min(gains), 2) == 0.96 and round(max(gains), 2) == 1.43


def test_the_notes_name_every_constant() -> None:
    notes = (ROOT / "docs" / "notes" / "launch_rule.md").read_text(encoding="utf-8")
    table = notes.partition("Regret is")[0]
    numbers = {float(one.replace(",", "")) for one in re.findall(r"[\d,]*\d(?:\.\d+)?", table)}
    rates = (RATES.dram_bytes_per_s / 1e12, RATES.l2_bytes, RATES.request_bytes, RATES.idle_share, RATES.overlap)
    rates += (RATES.resident_share, RATES.launch_s["chain"] * 1e6, *RATES.slots.values())
    assert {round(one, 6) for one in (*rates, *Clocks())} <= numbers
    assert sum(len(row["configs"]) for row in FIT["rows"]) in numbers


@pytest.mark.parametrize("data", [FIT, NORMED], ids=["all", "normed"])
def test_every_timed_configuration_was_right_and_is_of_its_cell(data: dict[str, Any]) -> None:
    kernel = load_kernel("rmsnorm_matmul").kernel
    fitted = {(*(shape[key] for key in "BHO"), dtype) for shape, dtype in cells(MODELS, "fit")}
    unseen = {(shape["H"], shape["O"]) for shape, _ in cells(MODELS, "unseen")}
    for row in data["rows"]:
        shape = {key: row[key] for key in "BHO"}
        assert (*shape.values(), row["dtype"]) in fitted or row["H"] == row["O"] in (2048, 8192)
        assert (row["H"], row["O"]) not in unseen
        for one in configurations(row, data):
            assert one["worst"] < 1
            kernel.check_config(one["config"], shape, row["dtype"], "sm_90")


def test_only_tiles_that_were_timed_are_offered() -> None:
    timed = set()
    for row, data in ((row, given) for given in (FIT, NORMED) for row in given["rows"]):
        for one in configurations(row, data):
            config = one["config"]
            timed.add((config["variant"], config["block_b"], config["block_o"], config["split_k"]))
    # Timed by `ledger tune`: benchmarks/tuning/rmsnorm_matmul-h200.json.
    heights = {("cuda_ping_pong", rows, 128) for rows in (24, 136)}
    heights |= {one[:3] for one in timed}
    for b in range(1, 601, 7):
        for tile in tiles({"B": b, "H": 8192, "O": 8192}):
            assert (tile.variant, tile.block_b, tile.block_o) in heights


@pytest.mark.parametrize("half", ["fit", "unseen"])
def test_the_rule_gives_what_sm_90_can_run_for_published_models(half: Any) -> None:
    kernel = load_kernel("rmsnorm_matmul").kernel
    for shape, dtype in drawn(cells(MODELS, half), 400, seed="rule"):
        config = kernel.config(shape, dtype, "sm_90")
        assert set(NEUTRAL[config["variant"]].items()) <= set(config.items())
        kernel.check_config(config, shape, dtype, "sm_90")


def test_the_schema_of_the_timings_is_the_one_that_the_site_leaves_out() -> None:
    assert FIT["schema"] == FIT_SCHEMA


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("model_shapes-*.json")), ids=lambda path: path.stem)
def test_times_by_which_the_rule_is_judged_are_of_unseen_cells_and_of_its_own_choices(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    kernel = load_kernel("rmsnorm_matmul").kernel
    unseen = {(*(shape[key] for key in "BHO"), dtype) for shape, dtype in cells(MODELS, "unseen")}
    assert document["schema"] == TIMES_SCHEMA and document["rows"]
    for row in document["rows"]:
        assert (*(row["shape"][key] for key in "BHO"), row["dtype"]) in unseen
        assert {"kernel", "ours_us", "torch_compile_us", "torch_matmul_us"} <= set(row)
        assert row["ours_us"] == row["contexts_us"]["chain"]["ours"] and row["worst"] < 1
        assert kernel.config(row["shape"], row["dtype"], "sm_90") == row["config"]

"""Tests ledger.metrics: the table against ncu's own list, sums by hand, and recorded kernels of every regime."""

import csv
import json
from pathlib import Path

import pytest

from ledger.analysis.metric_readings import readings, totals
from ledger.analysis.metrics import CAPABILITIES, ROWS, TABLE, TENSOR_ROWS, capability_of, metric_names
from ledger.analysis.regime import decide, loads_of
from ledger.device.ncu_csv import parse_raw
from ledger.errors import InputError, RecordError
from ledger.records import Counters, Metric, ProfiledKernel

ASSETS = Path(__file__).parents[1] / "assets" / "ncu"
LISTED = json.loads((ASSETS / "query-metrics.json").read_text())["capabilities"]

# name -> (instruction path, on the memory-bound side, regime)
RECORDED = {
    "streaming_read": ("fp32", True, "hbm-bound"),
    "big_gemm": ("bf16_tensor", False, "compute-bound"),
    "conflicted_transpose": ("fp32", True, "smem-bound"),
    "empty": ("fp32", True, "launch-bound"),
    "l2_loop": ("fp32", True, "l2-bound"),
    "pointer_chase": ("fp32", True, "latency-bound"),
}


def counters(*kernels: ProfiledKernel) -> Counters:
    return Counters(tool="ncu", command="ncu", cache_control="all", clock_control="none", kernels=kernels)


def recorded(name: str) -> Counters:
    text = (ASSETS / f"{name}.csv").read_text()
    return counters(*parse_raw(text, wanted=metric_names("9.0"), what=name))


def kernel(**metrics: tuple[str, str]) -> ProfiledKernel:
    """Return a kernel with readings by our names; (value, unit) each."""
    named = {ROWS[name].metrics["9.0"]: Metric(value=value, unit=unit) for name, (value, unit) in metrics.items()}
    return ProfiledKernel(name="k", metrics=named)


# The table


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_metric_of_the_table_is_listed_by_ncu_for_the_chip(capability):
    units = {name.split(".")[0] for name in metric_names(capability)}
    unlisted = {unit for unit in units if not unit.startswith("launch__")} - set(LISTED[capability]["of_the_table"])
    assert unlisted == set()


def test_every_row_says_what_it_leaves_out_and_stands_once():
    assert len({row.name for row in TABLE}) == len(TABLE)
    for capability in CAPABILITIES:
        assert len(set(metric_names(capability))) == len(metric_names(capability))
    assert all(row.leaves_out and row.units for row in TABLE)


def test_capability_of_knows_targets_and_refuses_others():
    assert [capability_of(target) for target in ("sm_75", "sm_90", "sm_100")] == ["7.5", "9.0", "10.0"]
    with pytest.raises(InputError, match="gfx942 has no row"):
        capability_of("gfx942")


# Several kernels of one call, worked by hand


def test_readings_sum_bytes_and_weight_percentages_by_duration():
    first = kernel(
        duration=("1,000", "ns"), dram_bytes=("1,000,000", "byte"), dram_percent=("90", "%"), waves=("1", "")
    )
    second = kernel(duration=("3000", "ns"), dram_bytes=("5", "byte"), dram_percent=("10", "%"), waves=("2", ""))
    values = readings(counters(first, second), "sm_90").values
    assert values["duration"] == 4000
    assert values["dram_bytes"] == 1_000_005
    assert values["dram_percent"] == pytest.approx(30)  # (90 x 1 + 10 x 3) / 4
    assert values["waves"] == 2  # the longest kernel's


def test_readings_leave_out_what_one_kernel_lacks():
    first = kernel(duration=("10", "ns"), dram_bytes=("1", "byte"))
    values = readings(counters(first, kernel(duration=("10", "ns"))), "sm_90").values
    assert "dram_bytes" not in values


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"duration": ("10", "us")}, "unit is 'us'; expected 'ns'"),
        ({"duration": ("10", "ns"), "dram_bytes": ("10", "Mbyte")}, "unit is 'Mbyte'"),
        ({"duration": ("1.234.567", "ns")}, "value is '1.234.567'"),
        ({"duration": ("0", "ns")}, "no duration"),
        ({"dram_bytes": ("10", "byte")}, "no duration"),
    ],
)
def test_readings_refuse_another_unit_or_no_number(metrics, said):
    with pytest.raises(RecordError, match=said):
        readings(counters(kernel(**metrics)), "sm_90")


# Recorded kernels


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_kernels_are_named_by_the_rule(name):
    path, left, expected = RECORDED[name]
    timing = json.loads((ASSETS / f"{name}.json").read_text())
    regime, grade, _ = decide(
        loads_of(totals(recorded(name), "sm_90"), path),
        call_ps=timing["call_ps"],
        launch_ps=timing["launch_ps"],
        left_of_ridge=left,
    )
    assert (regime, grade) == (expected, "A")


@pytest.mark.parametrize("name", ["streaming_read", "big_gemm", "conflicted_transpose", "l2_loop"])
def test_the_timer_agrees_with_ncu_within_3_percent_above_20_us(name):
    timing = json.loads((ASSETS / f"{name}.json").read_text())
    assert timing["call_ps"] == pytest.approx(totals(recorded(name), "sm_90").duration_ps, rel=0.03)


def test_a_streaming_read_moves_what_it_reads():
    seen = totals(recorded("streaming_read"), "sm_90")
    assert seen.dram_bytes_read == pytest.approx(2**30, rel=0.001)  # 2**28 floats


def test_a_gemm_counts_its_tensor_operations_with_the_padding_of_its_tiles():
    # 8192 columns in tiles of 320 are padded to 8320.
    assert totals(recorded("big_gemm"), "sm_90").tensor_ops == pytest.approx(2 * 8192 * 8192 * 8320, rel=1e-4)
    assert totals(recorded("streaming_read"), "sm_90").tensor_ops == 0


def test_a_gemm_counts_them_under_its_own_dtype():
    seen = totals(recorded("big_gemm"), "sm_90").tensor_ops_by_path
    assert {path for path, count in seen.items() if count} == {"bf16_tensor"}
    assert set(seen) == set(TENSOR_ROWS)


@pytest.mark.parametrize(
    ("capability", "paths"),
    [
        ("7.5", {"fp16_tensor", "int8_tensor"}),
        ("8.0", set(TENSOR_ROWS) - {"fp8_tensor"}),
        ("9.0", set(TENSOR_ROWS)),
        ("10.0", set(TENSOR_ROWS)),
    ],
)
def test_tensor_operations_need_every_row_that_a_chip_lists(capability, paths):
    named = {row.metrics[capability]: Metric(value="3", unit="") for row in TABLE if capability in row.metrics}
    units = {row.metrics[capability]: row.units[0] for row in TABLE if capability in row.metrics}
    whole = {name: metric.model_copy(update={"unit": units[name]}) for name, metric in named.items()}
    target = f"sm_{capability.replace('.', '')}"

    def counted(metrics):
        return totals(counters(ProfiledKernel(name="k", metrics=metrics)), target).tensor_ops_by_path

    rows = [name for name in TENSOR_ROWS["fp16_tensor"] if capability in ROWS[name].metrics]
    assert set(counted(whole)) == paths
    assert counted(whole)["fp16_tensor"] == 3 * len(rows)
    for name in rows:
        fewer = {key: metric for key, metric in whole.items() if key != ROWS[name].metrics[capability]}
        assert set(counted(fewer)) == paths - {"fp16_tensor"}


def test_a_column_read_of_a_32_wide_tile_costs_32_wavefronts():
    # 31 of 32 load wavefronts are conflicts, and one store wavefront goes with each 32 loads: 31 / 33.
    assert readings(recorded("conflicted_transpose"), "sm_90").bank_conflict_share == pytest.approx(31 / 33, rel=1e-4)


def test_readings_name_the_limiter_and_the_top_stall():
    seen = readings(recorded("conflicted_transpose"), "sm_90")
    assert seen.occupancy_limiters == ("warps",)
    assert readings(recorded("pointer_chase"), "sm_90").top_stall[0] == "long_scoreboard"


def test_values_agree_with_ncu_s_own_details_page():
    seen = readings(recorded("transpose_raw"), "sm_90")
    with (ASSETS / "transpose_details.csv").open() as stream:
        page = {row["Metric Name"]: row for row in csv.DictReader(stream)}
    pairs = {
        "duration": "Duration",
        "dram_percent": "DRAM Throughput",
        "l2_percent": "L2 Cache Throughput",
        "compute_memory_percent": "Memory Throughput",
        "sm_percent": "Compute (SM) Throughput",
        "sm_clock_hz": "SM Frequency",
        "dram_clock_hz": "DRAM Frequency",
        "registers_per_thread": "Registers Per Thread",
        "grid_blocks": "Grid Size",
        "waves": "Waves Per SM",
        "warps_active_percent": "Achieved Occupancy",
        "limit_registers": "Block Limit Registers",
        "limit_smem": "Block Limit Shared Mem",
        "limit_warps": "Block Limit Warps",
    }
    for name, title in pairs.items():
        shown = float(page[title]["Metric Value"].replace(",", ""))
        # The page derives the clock from another pass than the metric: they differ in the sixth digit.
        assert seen.get(name) == pytest.approx(shown, rel=1e-5, abs=0.01), title


def test_readings_refuse_a_name_that_is_no_row():
    with pytest.raises(InputError, match="'dram' is not in the metric table"):
        readings(recorded("empty"), "sm_90").get("dram")

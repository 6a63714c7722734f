"""Compares what docs/measurement.md says of the timer, interventions and benches with the recorded data."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from gpu.agreement import CASES

from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware
from ledger.render.timer_page import cupti_lines, ncu_lines, steady_lines

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "measurement.md").read_text(encoding="utf-8").split())


def timer_rows(name: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / "benchmarks" / "timer" / f"{name}-h200.json").read_text(encoding="utf-8"))["rows"]


def within(rows: list[dict[str, Any]], ours: str, base: str) -> int:
    """Count rows within 3%. base: `launches` compares the same launches, anything else the timer alone."""
    values = [(row[ours]["us"], row["cupti"]["timer_us"] if base == "launches" else row["timer"]["us"]) for row in rows]
    return sum(abs(one / other - 1) <= 0.03 for one, other in values)


def test_the_page_counts_the_calls_that_agree_with_cupti_and_ncu():
    cupti, ncu = timer_rows("cupti"), timer_rows("ncu")
    assert len(cupti) == len(ncu) == 13 and "13 calls above 20 µs" in PAGE
    assert min(row["cupti"]["timer_us"] for row in cupti) > 20
    assert f"| CUPTI, the same launches | {within(cupti, 'cupti', 'launches')} of 13 |" in PAGE
    assert f"| CUPTI, timer alone | {within(cupti, 'cupti', 'alone')} of 13 |" in PAGE
    cycles = [row["ncu"]["us"] * row["ncu"]["mhz"] / row["timer"]["us"] / row["timer"]["mhz"] for row in ncu]
    near = sum(abs(one - 1) <= 0.03 for one in cycles)
    assert f"| {within(ncu, 'ncu', 'alone')} of 13; {near} of 13 in SM cycles |" in PAGE


def test_the_page_names_the_calls_that_do_not_agree():
    cupti, ncu = timer_rows("cupti"), timer_rows("ncu")
    (apart,) = [row for row in cupti if abs(row["cupti"]["us"] / row["cupti"]["timer_us"] - 1) > 0.03]
    assert apart["case"] == "matmul M=3584 N=3584 K=3584 fp16, torch_matmul"
    assert f"{100 * (apart['cupti']['us'] / apart['cupti']['timer_us'] - 1):.2f}%".replace("-", "−") in PAGE
    (clock,) = [row for row in ncu if abs(row["ncu"]["us"] / row["timer"]["us"] - 1) > 0.03]
    assert clock["case"] == "matmul M=3584 N=3584 K=3584 fp16"
    assert f"{clock['timer']['mhz']} MHz under the timer, {clock['ncu']['mhz']} MHz under NCU" in PAGE
    (limited,) = [row for row in cupti if row["case"] == "matmul M=5120 N=5120 K=5120 fp16"]
    assert f"{limited['timer']['mhz']} MHz and, after the trace, at {limited['timer_again']['mhz']} MHz" in PAGE
    assert f"{100 * (limited['timer_again']['us'] / limited['timer']['us'] - 1):.1f}% slower" in PAGE


def test_the_timer_agrees_with_cupti_within_3_percent_for_the_same_launches():
    for row in timer_rows("cupti"):
        cupti = row["cupti"]
        # The timer's call also holds what lies between a library's two kernels.
        between_us = cupti["gap_us"] if len(cupti["kernels"]) > 1 else 0
        assert cupti["us"] + between_us == pytest.approx(cupti["timer_us"], rel=0.03), row["case"]


def test_the_page_says_what_compare_finds_of_a_cache_hint():
    path = ROOT / "benchmarks" / "model-shapes-settled-h200.json"
    few, many = (
        [f"{row[caches]:.2f}" for row in json.loads(path.read_text(encoding="utf-8"))["hint"]]
        for caches in ("caches_5", "caches_64")
    )
    said = f"{' and '.join(many)} times as fast by `ledger compare`, over 5 caches {' and '.join(few)}."
    assert f"32 and 128 × 4096 × 4096 in bf16 {said}" in PAGE


def test_the_page_says_how_boost_and_steady_states_differ():
    rows = {row["case"]: row for row in timer_rows("steady")}
    apart = [row for row in rows.values() if row["steady"]["us"] > 1.02 * row["boost"]["us"]]
    assert f"{len(apart)} of {len(rows)} calls have a steady state more than 2% slower than their boost" in PAGE
    large, small = rows["matmul-K4096-M4096-N4096-bf16"], rows["matmul-K4096-M2048-N4096-bf16"]
    assert f"{large['boost']['us']:.1f} µs at {large['boost']['mhz']} MHz in its first 20 ms" in PAGE
    assert f"{large['steady']['us']:.1f} µs at {large['steady']['mhz']} MHz in its steady state" in PAGE
    assert f"takes {small['boost']['us']:.1f} and {small['steady']['us']:.1f} µs" in PAGE
    again = [100 * abs(row["again_us"] / row["steady"]["us"] - 1) for row in rows.values()]
    assert f"within {statistics.median(again):.1f}% in the median, {max(again):.1f}% at most" in PAGE
    assert len(steady_lines({"rows": list(rows.values())})) == len(rows)


@pytest.mark.parametrize(("name", "render"), [("cupti", cupti_lines), ("ncu", ncu_lines)])
def test_the_recorded_comparisons_render_a_line_for_each_call(name: str, render: Any):
    lines = render({"rows": timer_rows(name)})
    assert len(lines) == 13 and all(line.startswith("| ") for line in lines)


def test_the_page_gives_the_launches_of_the_measured_profile():
    burst = load_hardware("h200", ROOT).ceilings["burst"]
    assert burst.launch_stream is not None and burst.launch_graph_node is not None
    said = f"{burst.launch_stream.value:.2f} µs on a stream and {burst.launch_graph_node.value:.2f} µs as a graph node"
    assert said in PAGE


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_a_case_is_no_case_of_its_kernel(case):
    kernel = load_kernel(case.kernel).kernel
    kernel.check_shape(case.shape)
    assert case.shape not in [dict(shape) for shape in kernel.cases]
    assert case.contestant == "ours" or case.contestant.replace("_", "-") in [
        n.replace("_", "-") for n in kernel.baselines
    ]


def test_the_page_tells_the_states_of_cublas():
    rows = timer_rows("cublas-states")
    at = {(row["operands"], row["input_sets"], row["state"]): row for row in rows if "state" in row}
    texts = {"zeros": "zeros", "bell": "small integers, as in the bench", "normal": "normal deviates"}
    for operands, text in texts.items():
        boost, steady = (at[operands, 6, state] for state in ("boost", "steady"))
        columns = [f"{row['us']:.1f} at {row['sm_clock_mhz']} MHz" for row in (boost, steady)]
        assert f"| {text} | {columns[0]} | {columns[1]} |" in PAGE
        assert all(
            row["us"] == pytest.approx(at[operands, 1, state]["us"], rel=0.01)
            for state, row in (("boost", boost), ("steady", steady))
        )
    timed = {row["timer"].rsplit(".", 1)[1]: row["us"] for row in rows if "timer" in row}
    assert f"`triton.testing.do_bench` gives {timed['do_bench']:.1f} with normal" in PAGE
    assert f"`do_bench_cudagraph` {timed['do_bench_cudagraph']:.1f}." in PAGE

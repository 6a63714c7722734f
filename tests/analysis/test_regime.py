"""Tests rule regime/1 cell by cell: every row of docs/regimes.md and every boundary."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import COMPUTE_WORK, MS, make_forecast, make_totals

from ledger.analysis.regime import ResourceLoads, decide, loads_of, loads_text, regime_of
from ledger.records import Regime

ROOT = Path(__file__).parents[2]
LEFT, RIGHT = True, False


def loads(dram: int | None = 0, l2: int | None = 0, smem: int | None = 0, pipe: int | None = 0) -> ResourceLoads:
    return ResourceLoads(dram_milli=dram, l2_milli=l2, smem_milli=smem, arithmetic_milli=pipe)


def regime(
    readings: ResourceLoads | None, *, left: bool = LEFT, launch_ps: int | None = 1, call_ps: int = 100
) -> str | None:
    return decide(readings, call_ps=call_ps, launch_ps=launch_ps, left_of_ridge=left)[0]


# Row 1: no counters


@pytest.mark.parametrize("launch_ps", [None, 1, 100])
def test_no_counters_is_not_determined_whatever_the_launch(launch_ps: int | None) -> None:
    assert decide(None, call_ps=100, launch_ps=launch_ps, left_of_ridge=LEFT) == (None, "C", "no counters")


# Row 2: launch-bound


@pytest.mark.parametrize(
    ("launch_ps", "expected"), [(49, "hbm-bound"), (50, "launch-bound"), (51, "launch-bound"), (None, "hbm-bound")]
)
def test_launch_takes_half_of_the_call(launch_ps: int | None, expected: str) -> None:
    assert regime(loads(dram=90_000), launch_ps=launch_ps) == expected


def test_launch_row_needs_no_complete_loads() -> None:
    assert regime(loads(dram=None), launch_ps=50) == "launch-bound"


# Row 3: a reading is lacking


@pytest.mark.parametrize(
    ("readings", "lacking"),
    [
        (loads(dram=None, pipe=90_000), "DRAM"),
        (loads(l2=None, dram=90_000), "L2"),
        (loads(smem=None, dram=90_000), "SMEM"),
        (loads(pipe=None, dram=90_000), "arithmetic pipe"),
    ],
)
def test_a_lacking_reading_is_not_determined(readings: ResourceLoads, lacking: str) -> None:
    verdict, grade, reason = decide(readings, call_ps=100, launch_ps=1, left_of_ridge=LEFT)
    assert (verdict, grade) == (None, "C")
    assert reason == f"the counters do not tell {lacking}"


# Row 4: nothing reaches 60%


@pytest.mark.parametrize("side", [LEFT, RIGHT], ids=["left", "right"])
@pytest.mark.parametrize("name", ["dram", "l2", "smem", "pipe"])
def test_below_sixty_percent_is_latency_bound(name: str, side: bool) -> None:
    assert regime(loads(**{name: 59_999}), left=side) == "latency-bound"


# Row 5: one resource leads


@pytest.mark.parametrize("side", [LEFT, RIGHT], ids=["left", "right"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [("dram", "hbm-bound"), ("l2", "l2-bound"), ("smem", "smem-bound"), ("pipe", "compute-bound")],
)
def test_sixty_percent_names_the_highest_on_either_side(name: str, expected: str, side: bool) -> None:
    assert regime(loads(**{name: 60_000}), left=side) == expected


@pytest.mark.parametrize("side", [LEFT, RIGHT], ids=["left", "right"])
def test_more_than_five_points_is_no_tie(side: bool) -> None:
    assert regime(loads(dram=75_000, pipe=80_001), left=side) == "compute-bound"
    assert regime(loads(dram=80_001, pipe=75_000), left=side) == "hbm-bound"


# Row 6: ties within five points


@pytest.mark.parametrize(
    ("readings", "left", "right"),
    [
        (loads(dram=75_000, pipe=80_000), "hbm-bound", "compute-bound"),
        (loads(dram=80_000, pipe=75_000), "hbm-bound", "compute-bound"),
        (loads(l2=75_000, pipe=80_000), "l2-bound", "compute-bound"),
        (loads(smem=75_000, pipe=80_000), "smem-bound", "compute-bound"),
        (loads(dram=75_000, l2=80_000), "hbm-bound", "hbm-bound"),
        (loads(l2=75_000, smem=80_000), "l2-bound", "l2-bound"),
        (loads(dram=76_000, l2=77_000, smem=78_000, pipe=80_000), "hbm-bound", "compute-bound"),
        (loads(dram=74_000, l2=77_000, smem=78_000, pipe=80_000), "l2-bound", "compute-bound"),
    ],
)
def test_tie_goes_to_the_side_of_the_ridge(readings: ResourceLoads, left: str, right: str) -> None:
    assert regime(readings, left=LEFT) == left
    assert regime(readings, left=RIGHT) == right


def test_tie_counts_what_lies_just_under_sixty_percent_too() -> None:
    assert regime(loads(dram=56_999, l2=62_000), left=LEFT) == "l2-bound"
    assert regime(loads(dram=57_000, l2=62_000), left=LEFT) == "hbm-bound"
    assert regime(loads(dram=57_000, l2=59_999), left=LEFT) == "latency-bound"


@pytest.mark.parametrize(
    ("readings", "launch_ps", "reason"),
    [
        (loads(dram=90_000), 55, "an empty launch takes 55% of the call"),
        (
            loads(dram=52_400, l2=30_000, smem=12_000, pipe=8_000),
            1,
            "nothing reaches 60% of its peak (DRAM 52%, L2 30%, SMEM 12%, arithmetic pipe 8%)",
        ),
        (
            loads(dram=90_000, l2=40_000),
            1,
            "DRAM is the busiest (DRAM 90%, L2 40%, SMEM 0%, arithmetic pipe 0%)",
        ),
        (
            loads(dram=90_000, l2=92_000),
            1,
            "DRAM by the tie-break on the memory-bound side (DRAM 90%, L2 92%, SMEM 0%, arithmetic pipe 0%)",
        ),
        (
            loads(dram=92_000, l2=90_000),
            1,
            "DRAM is the busiest (DRAM 92%, L2 90%, SMEM 0%, arithmetic pipe 0%)",
        ),
        (
            loads(dram=70_000, pipe=89_000),
            1,
            "the arithmetic pipe is the busiest (DRAM 70%, L2 0%, SMEM 0%, arithmetic pipe 89%)",
        ),
    ],
)
def test_reason_tells_the_numbers(readings: ResourceLoads, launch_ps: int, reason: str) -> None:
    assert decide(readings, call_ps=100, launch_ps=launch_ps, left_of_ridge=LEFT)[2] == reason


def test_unknown_readings_are_said_to_be_unknown() -> None:
    assert loads_text(loads(l2=None)) == "DRAM 0%, L2 unknown, SMEM 0%, arithmetic pipe 0%"


percent = st.one_of(st.none(), st.integers(min_value=0, max_value=130_000))


@given(
    dram=percent,
    l2=percent,
    smem=percent,
    pipe=percent,
    left=st.booleans(),
    call_ps=st.integers(min_value=1, max_value=10**15),
    launch_ps=st.one_of(st.none(), st.integers(min_value=0, max_value=10**15)),
)
def test_table_is_total(
    dram: int | None,
    l2: int | None,
    smem: int | None,
    pipe: int | None,
    left: bool,
    call_ps: int,
    launch_ps: int | None,
) -> None:
    verdict, grade, reason = decide(
        ResourceLoads(dram, l2, smem, pipe), call_ps=call_ps, launch_ps=launch_ps, left_of_ridge=left
    )
    assert verdict is None or verdict in get_args(Regime)
    assert (grade == "A") == (verdict is not None)
    assert reason


# Counters to loads


def test_loads_arithmetic_is_the_busiest_pipe() -> None:
    totals = make_totals(tensor_pct=12.3456, fma_pct=7.0, alu_pct=31.0)
    assert loads_of(totals, "fp16_tensor").arithmetic_milli == 31_000


@pytest.mark.parametrize(
    ("path", "missing"), [("fp16_tensor", "tensor_pct"), ("fp32", "fma_pct"), ("fp64", "fp64_pct")]
)
def test_loads_unknown_while_the_sealed_pipe_is(path: str, missing: str) -> None:
    assert loads_of(make_totals(**{missing: None}), path).arithmetic_milli is None  # type: ignore[arg-type]


def test_loads_are_rounded_to_thousandths_before_comparison() -> None:
    # 65.1 - 60.1 is 4.999999999999993 and 64.9 - 59.9 is 5.000000000000007 in binary; both are five points here.
    assert loads_of(make_totals(dram_pct=59.9995), "fp16_tensor").dram_milli == 60_000
    assert regime(loads(dram=64_900, pipe=69_900), left=LEFT) == "hbm-bound"


def test_regime_of_takes_the_side_from_the_sealed_roof() -> None:
    tied = make_totals(dram_pct=70.0, tensor_pct=72.0)
    memory, compute = make_forecast(), make_forecast(work=COMPUTE_WORK)
    assert regime_of(memory, tied, call_ps=2 * MS, launch_ps=None)[0] == "hbm-bound"
    assert regime_of(compute, tied, call_ps=2 * MS, launch_ps=None)[0] == "compute-bound"

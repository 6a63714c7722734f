"""Tests rule regime/2 cell by cell: every row of its table in docs/regimes.md, every boundary, the loads by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.analysis.metric_readings import readings
from ledger.analysis.metrics import metric_names
from ledger.analysis.reconcile import profile_of
from ledger.analysis.regime_v2 import Profile, TimedCall, Verdict, decide, loads_text, timed_loads
from ledger.device.ncu_csv import parse_raw
from ledger.errors import RecordError
from ledger.records import Counters, Regime

CALL = TimedCall(call_ps=10_000_000, clock_hz=1.8e9, launch_ps=500_000)


def loads(dram: float | None = 10, l2: float | None = 10, smem: float | None = 10, arithmetic: float | None = 10):
    values = {"dram": dram, "l2": l2, "smem": smem, "arithmetic": arithmetic}
    return {name: None if value is None else round(1000 * value) for name, value in values.items()}


def verdict(values, *, on_memory_side: bool = True, call: TimedCall = CALL, stall: str | None = None) -> Verdict:
    return decide(values, call, on_memory_side=on_memory_side, stall=stall)


def test_half_a_call_of_launch_is_launch_bound_whatever_the_loads_say():
    call = TimedCall(call_ps=1_000_000, clock_hz=1.8e9, launch_ps=500_000)
    found = verdict(loads(dram=None, arithmetic=99), call=call)
    assert (found.regimes, found.grade) == (("launch-bound",), "A")
    shorter = TimedCall(call_ps=1_000_001, clock_hz=1.8e9, launch_ps=500_000)
    assert verdict(loads(arithmetic=99), call=shorter).regimes == ("compute-bound",)


@pytest.mark.parametrize("name", ["dram", "l2", "smem", "arithmetic"])
def test_an_absent_reading_is_not_guessed(name: str):
    found = verdict(loads(**{"dram": 90, name: None}))
    assert found.regimes == () and found.grade == "C"


@pytest.mark.parametrize(
    ("values", "memory", "compute"),
    [
        # No load near the threshold.
        (loads(dram=57.9), ("latency-bound",), ("latency-bound",)),
        # Within 2 points below it: latency first.
        (loads(dram=58), ("latency-bound", "hbm-bound"), ("latency-bound", "hbm-bound")),
        (loads(l2=59.9), ("latency-bound", "l2-bound"), ("latency-bound", "l2-bound")),
        # Within 2 points above it: the resource first.
        (loads(dram=60), ("hbm-bound", "latency-bound"), ("hbm-bound", "latency-bound")),
        (loads(smem=61.9), ("smem-bound", "latency-bound"), ("smem-bound", "latency-bound")),
        # One load alone.
        (loads(dram=62), ("hbm-bound",), ("hbm-bound",)),
        (loads(l2=70), ("l2-bound",), ("l2-bound",)),
        (loads(smem=95), ("smem-bound",), ("smem-bound",)),
        (loads(arithmetic=93), ("compute-bound",), ("compute-bound",)),
        # Two within 5 points: both, the one of the case's side first.
        (loads(dram=93, l2=95), ("hbm-bound", "l2-bound"), ("hbm-bound", "l2-bound")),
        (loads(dram=90, l2=95), ("hbm-bound", "l2-bound"), ("hbm-bound", "l2-bound")),
        (loads(dram=89.9, l2=95), ("l2-bound",), ("l2-bound",)),
        (loads(dram=70, arithmetic=72), ("hbm-bound", "compute-bound"), ("compute-bound", "hbm-bound")),
        (loads(smem=94.5, arithmetic=93.3), ("smem-bound", "compute-bound"), ("compute-bound", "smem-bound")),
        # Three: the first two of the side's order.
        (loads(dram=80, l2=80, arithmetic=80), ("hbm-bound", "l2-bound"), ("compute-bound", "hbm-bound")),
        # Up to 105% is the spread of the readings; beyond it the counters are of another call.
        (loads(dram=105), ("hbm-bound",), ("hbm-bound",)),
        (loads(dram=105.001), (), ()),
    ],
    ids=lambda value: loads_text(value) if isinstance(value, dict) else None,
)
def test_row(values, memory, compute):
    assert verdict(values).regimes == memory
    assert verdict(values, on_memory_side=False).regimes == compute


def test_latency_bound_names_the_stall_and_a_launch_from_an_idle_stream():
    idle = TimedCall(call_ps=3_000_000, clock_hz=1.8e9, launch_ps=500_000, idle_launch_ps=3_000_000)
    found = verdict(loads(), call=idle, stall="long_scoreboard")
    assert found.regimes == ("latency-bound",)
    assert "stall most on long scoreboard" in found.reason
    assert "launch-bound from an idle stream, where the launch is 50%" in found.reason
    shorter = TimedCall(call_ps=3_000_001, clock_hz=1.8e9, launch_ps=500_000, idle_launch_ps=3_000_000)
    assert "idle stream" not in verdict(loads(), call=shorter).reason


SHARES = {
    "dram_percent": 40.0, "l2_read_percent": 30.0, "l2_write_percent": 10.0, "l2_sector_percent": 20.0,
    "smem_percent": 25.0, "tensor_percent": 35.0, "fma_percent": 5.0, "alu_percent": 12.0, "fp64_percent": 0.0,
    "xu_percent": 38.0,
}  # fmt: skip


def test_loads_are_counts_over_the_timed_call():
    # 15 µs profiled at 1.5 GHz, 10 µs timed at 1.8 GHz: 1.5 times the share for DRAM and L2, whose clocks are fixed;
    # 1.5 × 1.5 / 1.8 = 1.25 times for what is counted in SM cycles. The busiest pipe is the special-function unit.
    profile = Profile(SHARES, duration_ps=15_000_000, clock_hz=1.5e9)
    found = timed_loads(profile, CALL, "fp16_tensor")
    assert found == {"dram": 60_000, "l2": 45_000, "smem": 31_250, "arithmetic": 47_500}


def test_writes_left_in_l2_count_as_dram_traffic_of_a_timed_call():
    # 30 MB read and 10 MB of 30 MB written were counted: in the rotation 60 MB move, 1.5 times as many.
    values = {**SHARES, "dram_read_bytes": 30e6, "dram_write_bytes": 10e6}
    profile = Profile(values, duration_ps=10_000_000, clock_hz=1.8e9)
    rotating = TimedCall(call_ps=10_000_000, clock_hz=1.8e9, launch_ps=None, written_bytes=30_000_000)
    assert timed_loads(profile, rotating, "fp16_tensor")["dram"] == 60_000
    # Where more was written than the output, or the sets fit the L2, nothing is added.
    assert timed_loads(profile, CALL, "fp16_tensor")["dram"] == 40_000
    less = TimedCall(call_ps=10_000_000, clock_hz=1.8e9, launch_ps=None, written_bytes=9_000_000)
    assert timed_loads(profile, less, "fp16_tensor")["dram"] == 40_000


@pytest.mark.parametrize("absent", ["xu_percent", "tensor_percent"])
def test_an_absent_pipe_leaves_the_arithmetic_unknown(absent: str):
    values = {name: share for name, share in SHARES.items() if name != absent}
    assert timed_loads(Profile(values, 10_000_000, 1.8e9), CALL, "fp16_tensor")["arithmetic"] is None


def test_an_unknown_clock_leaves_what_sm_cycles_count_unknown():
    found = timed_loads(Profile(SHARES, 10_000_000, None), CALL, "fp16_tensor")
    assert found == {"dram": 40_000, "l2": 30_000, "smem": None, "arithmetic": None}


@pytest.mark.parametrize(
    ("changes", "duration_ps"),
    [({"dram_percent": math.inf}, 10_000_000), ({"dram_percent": math.inf}, 0), ({"smem_percent": math.inf}, 0)],
    ids=["infinite", "infinite-in-no-time", "infinite-in-no-cycles"],
)
def test_readings_that_give_no_finite_load_are_an_error_of_the_record(changes, duration_ps):
    with pytest.raises(RecordError, match="expected a finite number"):
        timed_loads(Profile({**SHARES, **changes}, duration_ps, 1.8e9), CALL, "fp16_tensor")


share = st.none() | st.integers(min_value=0, max_value=200_000)


@given(
    st.fixed_dictionaries(dict.fromkeys(("dram", "l2", "smem", "arithmetic"), share)),
    st.integers(min_value=1, max_value=10**12),
    st.none() | st.integers(min_value=0, max_value=10**12),
    st.booleans(),
)
def test_the_table_is_total(values, call_ps, launch_ps, on_memory_side):
    found = decide(values, TimedCall(call_ps, None, launch_ps), on_memory_side=on_memory_side)
    assert len(found.regimes) <= 2 and set(found.regimes) <= set(get_args(Regime))
    assert (found.grade == "C") == (not found.regimes) and found.reason


PUBLISHED = json.loads(
    (Path(__file__).parents[1] / "assets" / "regimes" / "published.json").read_text(encoding="utf-8")
)


def published(case) -> Verdict:
    values = loads(case["dram_percent"], case["l2_percent"], case["smem_percent"], case["arithmetic_percent"])
    launch_us, duration_us = case["launch_us"], case["duration_us"] or 1000
    call = TimedCall(round(1e6 * duration_us), None, None if launch_us is None else round(1e6 * launch_us))
    return verdict(values, call=call, on_memory_side=case["side"] == "memory")


@pytest.mark.parametrize("case", PUBLISHED["agree"], ids=lambda case: case["case"])
def test_published_profiles_get_the_name_that_their_authors_give(case):
    assert published(case).regimes == (case["stated"],)


@pytest.mark.parametrize("case", PUBLISHED["disagree"], ids=lambda case: case["case"])
def test_published_profiles_whose_authors_contradict_their_own_readings(case):
    assert case["stated"] not in published(case).regimes


# Kernels built to be each regime (tests/gpu/regimes.py), recorded on an H200


BUILT = {
    "streaming_read": ("hbm-bound",),
    "big_gemm": ("compute-bound", "smem-bound"),
    "conflicted_transpose": ("smem-bound",),
    "empty": ("launch-bound",),
    "l2_loop": ("l2-bound",),
    "pointer_chase": ("latency-bound",),
}


@pytest.mark.parametrize("name", BUILT)
def test_kernels_built_to_be_a_regime_get_its_name(name: str):
    folder = Path(__file__).parents[1] / "assets" / "regimes"
    kernels = parse_raw((folder / f"{name}.csv").read_text(encoding="utf-8"), wanted=metric_names("9.0"), what=name)
    counters = Counters(tool="ncu", command="", cache_control="all", clock_control="none", kernels=kernels)
    profile = profile_of(readings(counters, "sm_90"))
    times = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    call = TimedCall(times["call_ps"], profile.clock_hz, times["launch_ps"])
    found = decide(timed_loads(profile, call, "fp16_tensor"), call, on_memory_side=name != "big_gemm")
    assert (found.regimes, found.grade) == (BUILT[name], "A"), found.reason

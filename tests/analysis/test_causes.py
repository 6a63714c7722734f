"""Tests the causes of a gap that have a number of their own; every number is worked out here."""

from __future__ import annotations

from typing import Any

import pytest
from samples import COMPUTE_WORK, MEMORY_WORK, TOY, hardware_value, make_forecast, make_hardware, make_totals

from ledger.analysis.causes import Call, named_causes
from ledger.records import Cause


def make_call(*, compute: bool = False, **changes: Any) -> Call:
    """Return a call of 2 ms (memory-bound side) or 20 ms for a roof of 1 or 10 ms, forecast at 80%."""
    fields: dict[str, Any] = {
        "forecast": make_forecast(work=COMPUTE_WORK if compute else MEMORY_WORK),
        "hardware": TOY,
        "totals": make_totals(),
        "time_s": 20e-3 if compute else 2e-3,
        "launch_s": None,
        "after_clock_hz": None,
        "rounds_clock_hz": None,
        "on_memory_side": not compute,
    }
    return Call(**{**fields, **changes})


def found(call: Call) -> dict[str, Cause]:
    return {cause.name: cause for cause in named_causes(call)}


def test_ratio_is_measured_over_predicted_time() -> None:
    # 1 ms ÷ 80% is 1.25 ms; 2 ÷ 1.25 is 1.6.
    assert make_call().ratio == pytest.approx(1.6)


def test_work_counts_writes_that_the_profiled_launch_left_in_l2() -> None:
    # Read 0.9 GB, written 0.02 GB; the sealed case writes 0.1 GB, so 0.08 GB go back to DRAM later: 1.0 GB in all.
    totals = make_totals(dram_bytes_read=900_000_000, dram_bytes_written=20_000_000)
    work = found(make_call(totals=totals, written_bytes=100_000_000))["work"]
    assert work.factor == pytest.approx(1.0)
    assert work.note == "DRAM moved 1.00 GB, 80.0 MB of it written back from L2 later, where the model counts 1.00 GB"
    assert work.counter == "dram_bytes"
    assert found(make_call(totals=totals))["work"].factor == pytest.approx(0.92)


def test_implausible_work_is_no_cause() -> None:
    assert "work" not in found(make_call(totals=make_totals(dram_bytes_read=-1, dram_bytes_written=0)))
    assert "work" not in found(make_call(totals=make_totals(dram_bytes_read=10**16, dram_bytes_written=0)))
    assert "work" in found(make_call(totals=make_totals(dram_bytes_read=10**9, dram_bytes_written=0)))


@pytest.mark.parametrize(
    ("loads", "named"),
    [
        ({"dram": 50_000, "l2": 40_000, "smem": 80_000, "arithmetic": 10_000}, True),
        ({"dram": 50_000, "l2": 40_000, "smem": 10_000, "arithmetic": 80_000}, True),
        # DRAM and L2 have clocks of their own.
        ({"dram": 80_000, "l2": 40_000, "smem": 10_000, "arithmetic": 10_000}, False),
        ({"dram": 50_000, "l2": 80_000, "smem": 78_000, "arithmetic": 10_000}, False),
        # DRAM is within 5 points of the highest; nothing reaches 60%; a load is unknown.
        ({"dram": 76_000, "l2": 40_000, "smem": 80_000, "arithmetic": 10_000}, False),
        ({"dram": 50_000, "l2": 40_000, "smem": 59_000, "arithmetic": 10_000}, False),
        ({"dram": 50_000, "l2": None, "smem": 80_000, "arithmetic": 10_000}, False),
        ({}, False),
    ],
)
def test_clock_is_a_cause_on_the_memory_side_only_where_what_binds_runs_at_it(loads: Any, named: bool) -> None:
    causes = found(make_call(loads=loads, totals=make_totals(sm_clock_hz=8e8)))
    assert ("clock" in causes) is named
    assert not named or causes["clock"].factor == pytest.approx(1.25)


def test_clock_is_a_cause_on_the_compute_side_whatever_binds() -> None:
    assert found(make_call(compute=True, rounds_clock_hz=5e8))["clock"].factor == pytest.approx(2.0)


@pytest.mark.parametrize("rated_mhz", [1e-3, 1e300])
def test_an_implausible_rated_clock_is_no_cause(rated_mhz: float) -> None:
    ceilings = hardware_value()["ceilings"]
    ceilings["datasheet"]["peaks"]["fp16_tensor"]["clock_mhz"] = rated_mhz
    call = make_call(compute=True, rounds_clock_hz=5e8, hardware=make_hardware(ceilings=ceilings))
    assert "clock" not in found(call)


@pytest.mark.parametrize(
    ("loads", "busiest"),
    [
        ({"dram": 70_000, "l2": 74_000, "smem": 0, "arithmetic": 0}, "dram"),
        ({"dram": 60_000, "l2": 74_000, "smem": 75_000, "arithmetic": 0}, "l2"),
        ({"dram": 59_999, "l2": 0, "smem": 0, "arithmetic": 0}, None),
        # Counters of another call, and a negative reading, say nothing.
        ({"dram": 106_000, "l2": 0, "smem": 0, "arithmetic": 0}, None),
        ({"dram": 90_000, "l2": -1, "smem": 0, "arithmetic": 0}, None),
    ],
)
def test_busiest_prefers_the_roofs_own_resource_within_five_points(loads: Any, busiest: str | None) -> None:
    assert make_call(loads=loads).busiest == busiest

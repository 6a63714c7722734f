"""Tests the causes of a gap on the toy device of tests/support/samples.py; every number is worked out here."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import (
    COMPUTE_WORK,
    MEMORY_WORK,
    MS,
    TOY,
    burst,
    hardware_value,
    make_forecast,
    make_hardware,
    make_measurement,
    make_timing,
    make_totals,
    state,
)

from ledger.analysis.counters import CounterTotals
from ledger.analysis.gap import gap, verdict_text
from ledger.analysis.regime_v2 import REGIME_OF, Resource
from ledger.records import REGIMES, Forecast, Gap, Hardware, Measurement, Regime


def explain(
    forecast: Forecast,
    measurement: Measurement,
    totals: CounterTotals | None = None,
    *,
    hardware: Hardware = TOY,
    regime: Regime | None = None,
    reason: str = "r",
) -> Gap:
    return gap(
        forecast, measurement, hardware, totals=totals, regimes=() if regime is None else (regime,), reason=reason
    )


def factors(found: Gap) -> dict[str, float]:
    return {cause.name: cause.factor for cause in found.causes}


def measured(median_ps: int, *, launch_ps: int | None = None, **changes: Any) -> Measurement:
    return make_measurement(make_forecast(), timing=make_timing(median_ps, launch_ps=launch_ps), **changes)


def test_percent_is_measured_minus_predicted() -> None:
    # The roof is 1 ms: 2 ms is 50% of it, forecast 80%.
    assert explain(make_forecast(), measured(2 * MS)).percent == pytest.approx(-30.0)


def test_memory_side_factors() -> None:
    # Predicted 1 ms / 0.8 = 1.25 ms; measured 2 ms: ×1.6 in all. DRAM moved 1.2 GB for 1.0 (×1.2). An empty launch of
    # 0.2 ms leaves 1.8 ms (×2/1.8). 1.2 GB in 1.8 ms are 0.667 TB/s where 0.8 were needed (×1.2).
    totals = make_totals(dram_bytes_read=1_000_000_000, dram_bytes_written=200_000_000)
    found = explain(make_forecast(), measured(2 * MS, launch_ps=MS // 5), totals, regime="hbm-bound")
    assert factors(found) == pytest.approx({"work": 1.2, "launch": 2 / 1.8, "unexplained": 1.2})


def test_compute_side_factors() -> None:
    # Roof 10 ms, forecast 80%: 12.5 ms; measured 25 ms: ×2. The tensor pipe did 1.25 TFLOP for 1 (×1.25), at 800 MHz
    # for a peak rated at 1000 (×1.25), in 1.6 waves (×2/1.6 = 1.25). The rest: 2 / 1.25³ = 1.024.
    totals = make_totals(tensor_ops=1_250_000_000_000, sm_clock_hz=8e8, waves=1.6)
    found = explain(make_forecast(work=COMPUTE_WORK), measured(25 * MS), totals, regime="compute-bound")
    assert factors(found) == pytest.approx({"work": 1.25, "clock": 1.25, "waves": 1.25, "unexplained": 1.024})


@pytest.mark.parametrize("regime", [None, *REGIMES])
def test_a_rest_that_no_counter_explains_is_unexplained_whatever_binds(regime: Regime | None) -> None:
    for work, median_ps in ((MEMORY_WORK, 2 * MS), (COMPUTE_WORK, 20 * MS)):
        found = explain(make_forecast(work=work), measured(median_ps), make_totals(), regime=regime)
        assert found.causes[-1].name == "unexplained"
        assert "achieved_share" not in factors(found)


def test_clock_falls_back_on_the_reading_after_timing() -> None:
    found = explain(make_forecast(work=COMPUTE_WORK), measured(20 * MS, after=state(500)))
    assert factors(found)["clock"] == pytest.approx(2.0)


def test_without_counters_work_and_rate_stay_unexplained() -> None:
    found = explain(make_forecast(), measured(2 * MS, launch_ps=MS // 5))
    assert factors(found) == pytest.approx({"launch": 2 / 1.8, "unexplained": 1.6 * 0.9})
    # 1 GB in 1.8 ms is 556 GB/s.
    assert found.causes[-1].note == ("the modelled 1.00 GB went at 556 GB/s where the forecast needs 800 GB/s")


def notes(found: Gap) -> dict[str, str]:
    return {cause.name: cause.note for cause in found.causes}


def test_memory_side_notes_tell_the_numbers() -> None:
    totals = make_totals(dram_bytes_read=1_000_000_000, dram_bytes_written=200_000_000)
    assert notes(explain(make_forecast(), measured(2 * MS, launch_ps=MS // 5), totals, regime="hbm-bound")) == {
        "work": "DRAM moved 1.20 GB where the model counts 1.00 GB",
        "launch": "an empty launch is 10% of the call",
        "unexplained": "while moving, DRAM delivered 667 GB/s where the forecast needs 800 GB/s",
    }


def test_compute_side_notes_tell_the_numbers() -> None:
    # 1.25 TFLOP in 25 ms is 50 TFLOP/s; 100 TFLOP/s ÷ 1.25 of clock ÷ 1.25 of waves is 64, of which 80% is 51.2.
    totals = make_totals(tensor_ops=1_250_000_000_000, sm_clock_hz=8e8, waves=1.6)
    assert notes(explain(make_forecast(work=COMPUTE_WORK), measured(25 * MS), totals, regime="compute-bound")) == {
        "work": "the tensor pipe did 1.25 TFLOP where the model counts 1.00 TFLOP",
        "clock": "the SM clock was 800 MHz and the peak is rated at 1.00 GHz",
        "waves": "1.60 waves leave SMs empty at the end",
        "unexplained": "the arithmetic ran at 50.0 TFLOP/s where the forecast needs 51.2 TFLOP/s of what that "
        "clock and those waves leave",
    }


def test_compute_side_without_counters_tells_the_modelled_rate() -> None:
    # 1 TFLOP in 20 ms, without a clock reading.
    found = explain(make_forecast(work=COMPUTE_WORK), measured(20 * MS, after=state(None)))
    assert notes(found) == {
        "unexplained": "the modelled 1.00 TFLOP went at 50.0 TFLOP/s where the forecast needs 80.0 TFLOP/s"
    }


def test_counters_without_bytes_tell_the_modelled_rate() -> None:
    found = explain(make_forecast(), measured(2 * MS), make_totals(dram_bytes_read=None), regime="latency-bound")
    assert notes(found) == {"unexplained": "the modelled 1.00 GB went at 500 GB/s where the forecast needs 800 GB/s"}


def test_sentence_leaves_out_what_is_worth_less_than_three_percent_or_pushes_the_other_way() -> None:
    # Work ×0.9 pushes up, the launch ×1.02 is small; the rate is what is left of ×1.6: 1.6 ÷ 0.9 ÷ 1.0204 = 1.742.
    totals = make_totals(dram_bytes_read=800_000_000)
    found = explain(make_forecast(), measured(2 * MS, launch_ps=MS // 25), totals, regime="hbm-bound")
    assert factors(found) == pytest.approx({"work": 0.9, "launch": 2 / 1.96, "unexplained": 1.742}, rel=1e-3)
    assert "DRAM delivered" in found.sentence
    assert "DRAM moved" not in found.sentence
    assert "an empty launch" not in found.sentence


@pytest.mark.parametrize("change", [{"sm_clock_hz": 9e6}, {"sm_clock_hz": 1.1e10}, {"waves": 9e-4}, {"waves": 1.1e7}])
def test_implausible_readings_are_no_cause(change: dict[str, float]) -> None:
    forecast, plain = make_forecast(work=COMPUTE_WORK), {"sm_clock_hz": 1e9, "waves": 1.5}
    named = factors(explain(forecast, measured(20 * MS, after=state(None)), make_totals(**{**plain, **change})))
    lost = "clock" if "sm_clock_hz" in change else "waves"
    assert lost not in named
    assert len({"clock", "waves"} & set(named)) == 1


@pytest.mark.parametrize("launch_ps", [2 * MS, 3 * MS, 0, None])
def test_a_launch_as_long_as_the_call_is_no_cause(launch_ps: int | None) -> None:
    assert "launch" not in factors(explain(make_forecast(), measured(2 * MS, launch_ps=launch_ps)))


amount = st.one_of(st.none(), st.integers(min_value=-(10**15), max_value=10**15))
reading = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(min_value=0, max_value=2000))
load = st.one_of(st.none(), st.integers(min_value=-1000, max_value=120_000), st.integers())


@given(
    percent_milli=st.integers(min_value=1, max_value=100_000),
    median_ps=st.integers(min_value=2, max_value=10**15),
    launch_ps=st.one_of(st.none(), st.integers(min_value=0, max_value=10**15)),
    written_bytes=st.integers(min_value=0, max_value=10**12),
    compute=st.booleans(),
    ceilings=st.booleans(),
    regimes=st.lists(st.sampled_from(REGIMES), max_size=2, unique=True),
    forecast_regime=st.sampled_from(REGIMES),
    loads=st.one_of(st.none(), st.fixed_dictionaries(dict.fromkeys(REGIME_OF, load))),
    totals=st.one_of(
        st.none(),
        st.builds(
            CounterTotals,
            duration_ps=amount,
            dram_bytes_read=amount,
            dram_bytes_written=amount,
            tensor_ops=amount,
            l2_pct=reading,
            sm_clock_hz=st.one_of(reading, st.floats(min_value=1e8, max_value=1e10)),
            waves=reading,
            grid_blocks=reading,
            occupancy_pct=reading,
            bank_conflict_share=reading,
        ),
    ),
)
def test_product_of_causes_is_measured_over_predicted_time_for_any_counters(
    percent_milli: int,
    median_ps: int,
    launch_ps: int | None,
    written_bytes: int,
    compute: bool,
    ceilings: bool,
    regimes: list[Regime],
    forecast_regime: Regime,
    loads: dict[Resource, int | None] | None,
    totals: CounterTotals | None,
) -> None:
    forecast = make_forecast(
        percent_milli=percent_milli, regime=forecast_regime, **({"work": COMPUTE_WORK} if compute else {})
    )
    hardware = make_hardware(ceilings={**hardware_value()["ceilings"], "burst": burst(0.9, 90.0)}) if ceilings else TOY
    found = gap(
        forecast,
        measured(median_ps, launch_ps=launch_ps),
        hardware,
        totals=totals,
        regimes=tuple(regimes),
        reason="r",
        loads=loads,
        written_bytes=written_bytes,
    )
    predicted_ps = (10 if compute else 1) * MS * 100_000 / percent_milli
    assert all(math.isfinite(cause.factor) and cause.factor > 0 for cause in found.causes)
    assert math.prod(cause.factor for cause in found.causes) == pytest.approx(median_ps / predicted_ps, rel=1e-12)
    assert found.sentence.endswith(".")
    assert "\n" not in found.sentence


def test_sentence_of_a_miss_names_the_largest_causes_that_push_its_way() -> None:
    totals = make_totals(dram_bytes_read=1_000_000_000, dram_bytes_written=200_000_000)
    found = explain(make_forecast(), measured(2 * MS), totals, regime="l2-bound", reason="L2 is the busiest")
    # 1.2 GB in 2 ms is 600 GB/s; 80% of 1 TB/s is 800.
    assert found.sentence == (
        "30.0 points below the forecast (50.0% for 80%): while moving, DRAM delivered 600 GB/s where the forecast "
        "needs 800 GB/s (×1.33, unexplained), and DRAM moved 1.20 GB where the model counts 1.00 GB (×1.20); l2-bound, "
        "not hbm-bound: L2 is the busiest."
    )


def test_sentence_of_a_pleasant_miss_names_what_was_faster() -> None:
    totals = make_totals(dram_bytes_read=500_000_000, duration_ps=MS)
    found = explain(make_forecast(percent_milli=50_000), measured(MS), totals, regime="hbm-bound")
    # 0.6 GB moved where 1.0 was modelled: half the time in all is ×0.6 of work and ×0.83 of rate.
    assert found.sentence.startswith(
        "50.0 points above the forecast (100.0% for 50%): DRAM moved 600 MB where the model counts 1.00 GB (×0.60)"
    )
    assert factors(found)["unexplained"] == pytest.approx(0.5 / 0.6)


@pytest.mark.parametrize(
    ("percent_milli", "lead"),
    [(55_000, "As forecast to 5.0 points (50.0% for 55%)"), (55_001, "5.0 points below the forecast")],
)
def test_sentence_calls_five_points_a_hit(percent_milli: int, lead: str) -> None:
    assert explain(make_forecast(percent_milli=percent_milli), measured(2 * MS)).sentence.startswith(lead)


def test_rate_note_tells_when_the_forecast_asks_more_than_the_device_reaches() -> None:
    hardware = make_hardware(ceilings={**hardware_value()["ceilings"], "burst": burst(0.7, 80.0)})
    found = explain(make_forecast(), measured(2 * MS), make_totals(), hardware=hardware)
    assert found.causes[-1].note.endswith("needs 800 GB/s and the best measured here is 700 GB/s")


def test_verdict_text() -> None:
    assert verdict_text("hbm-bound", ("hbm-bound",), "r") == "hbm-bound, as forecast: r"
    assert verdict_text("hbm-bound", ("l2-bound",), "r") == "l2-bound, not hbm-bound: r"
    assert verdict_text("hbm-bound", (), "no counters") == "regime not determined (no counters)"


@pytest.mark.parametrize(
    ("regime", "totals", "words"),
    [
        ("latency-bound", {"waves": 0.97, "occupancy_pct": 12.4}, ", with 0.97 waves and 12% of the warps active."),
        ("latency-bound", {"waves": None, "occupancy_pct": None}, ": r."),
        ("hbm-bound", {"waves": 0.97}, ": r."),
        # The timed call takes 2 ms.
        ("hbm-bound", {"duration_ps": 2_090_000_000}, ": r."),
        ("hbm-bound", {"duration_ps": 2_200_000_000}, ", with the profiled launch 1.10 times as long as the timed."),
        ("hbm-bound", {"duration_ps": 1_800_000_000}, ", with the profiled launch 0.90 times as long as the timed."),
        ("hbm-bound", {"duration_ps": None}, ": r."),
    ],
)
def test_sentence_ends_with_what_the_profile_shows(regime: Regime, totals: dict[str, Any], words: str) -> None:
    assert explain(make_forecast(), measured(2 * MS), make_totals(**totals), regime=regime).sentence.endswith(words)

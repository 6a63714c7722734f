"""Tests grade B: every row of its table in docs/regimes.md, its boundaries, and records that are not what they say.

A toy device: 1 TB/s and 100 TFLOP/s, ridge 100 FLOP/byte. The memory case moves 1 MB (1 us) and does 10 MFLOP
(0.1 us); the arithmetic case moves 0.1 MB and does 100 MFLOP (1 us). Times are in ps; a call of 1.25 us uses 80%.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from samples import TOY, make_forecast, make_measurement, make_timing

from ledger.analysis.interventions import Half, InterventionReadings, decide, readings_of, stored_of
from ledger.analysis.reconcile import measured_regime, verify_cell
from ledger.records import Roof, Work

ROOF = Roof(ceilings="datasheet", path="fp16_tensor", peak_flop_per_s=10**14, bandwidth_bytes_per_s=10**12)
MEMORY = Work(flops=10**7, bytes_read=10**6, bytes_written=0)
ARITHMETIC = Work(flops=10**8, bytes_read=10**5, bytes_written=0)
CALL = 1_250_000
SLOW = 10_000_000  # uses 10% of the roof


def half(ps: int, work: Work, *, flops: float = 0.5, bytes: float = 0.5, axis: str = "O") -> Half:
    return Half(axis, ps, int(work.flops * flops), int(work.bytes * bytes))


def said(work: Work, cold: int, warm: int | None, *halves: Half, **changes: Any) -> tuple[Any, str]:
    fields = {"launch_ps": None, "set_bytes": work.bytes, "cache_bytes": 10 * work.bytes, **changes}
    double = fields.pop("double_ps", None)
    readings = InterventionReadings(cold, warm, double, halves)
    regime, grade, _ = decide(readings, work=work, roof=ROOF, **fields)
    return regime, grade


def test_row_1_wants_the_warm_run_and_a_halved_shape():
    assert said(MEMORY, CALL, None, half(CALL // 2, MEMORY)) == (None, "C")
    assert said(MEMORY, CALL, CALL // 2) == (None, "C")


@pytest.mark.parametrize(
    ("milliseconds", "sets", "told"),
    [(129, 1, "a call of 129 ms exceeds"), (22, 112, "22 ms on 112 input sets exceeds"), (22, 1, ""), (49, 1, "")],
)
def test_a_variant_that_there_was_no_time_for_is_said_to_be_one(milliseconds: int, sets: int, told: str):
    readings = InterventionReadings(milliseconds * 10**9, None, None, ())
    reason = decide(readings, work=MEMORY, roof=ROOF, launch_ps=None, set_bytes=1, cache_bytes=None, input_sets=sets)[2]
    assert reason.startswith("the interventions lack the warm run") and told in reason
    assert ("exceeds the time" in reason) == bool(told)


@pytest.mark.parametrize(("double", "grade"), [(1_500_000, "B"), (1_500_001, "C"), (1_000_000, "B"), (999_999, "C")])
def test_row_2_refuses_a_time_that_moves_by_more_than_a_fifth_with_the_number_of_calls(double, grade):
    assert said(MEMORY, CALL, CALL // 2, half(CALL // 2, MEMORY), double_ps=double)[1] == grade


@pytest.mark.parametrize(("launch", "regime"), [(CALL // 2, "launch-bound"), (CALL // 2 - 1, "hbm-bound")])
def test_row_3_names_the_launch_from_half_of_the_call_on(launch, regime):
    assert said(MEMORY, CALL, CALL // 2, half(CALL // 2, MEMORY), launch_ps=launch) == (regime, "B")


def test_row_4_names_a_resource_whose_use_is_proved_by_the_work_alone():
    # 100 MFLOP at 100 TFLOP/s are 1 us: 60% of 1.666666 us; nothing that moved can take that back.
    assert said(ARITHMETIC, 1_666_666, 1_666_666, half(1_666_666, ARITHMETIC)) == ("compute-bound", "B")
    assert said(ARITHMETIC, 1_666_667, 1_666_667, half(1_666_667, ARITHMETIC)) == ("latency-bound", "B")
    assert said(MEMORY, 1_666_666, CALL, half(1_666_666, MEMORY)) == ("hbm-bound", "B")
    assert said(MEMORY, 1_666_667, CALL, half(1_666_667, MEMORY)) == ("latency-bound", "B")


def test_row_4_believes_no_dram_use_of_data_that_may_have_been_in_the_cache():
    assert said(MEMORY, CALL, CALL, half(CALL // 2, MEMORY)) == ("l2-bound", "B")
    assert said(MEMORY, CALL, CALL, half(CALL // 2, MEMORY), cache_bytes=None) == ("hbm-bound", "B")


@pytest.mark.parametrize(
    ("half_ps", "regime"),
    [(SLOW, "latency-bound"), (7_000_001, "latency-bound"), (7_000_000, "hbm-bound"), (SLOW // 2, "hbm-bound")],
)
def test_row_5_names_latency_when_less_work_saves_little_time(half_ps, regime):
    # Half of the bytes: the time must fall by 60% of a half, 3 us of 10.
    assert said(MEMORY, SLOW, SLOW // 2, half(half_ps, MEMORY)) == (regime, "B")


def test_row_5_leaves_the_launch_out_of_what_can_fall():
    # 10 us of which 4 are launch: of the other 6 a half can go, and 60% of that is 1.8 us.
    assert said(MEMORY, SLOW, SLOW // 2, half(8_200_000, MEMORY), launch_ps=4_000_000) == ("hbm-bound", "B")
    assert said(MEMORY, SLOW, SLOW // 2, half(8_200_001, MEMORY), launch_ps=4_000_000) == ("latency-bound", "B")


@pytest.mark.parametrize(("warm", "regime"), [(8_000_000, "hbm-bound"), (8_000_001, "l2-bound")])
def test_row_6_names_main_memory_when_a_cold_call_is_a_quarter_slower(warm, regime):
    assert said(MEMORY, SLOW, warm, half(SLOW // 2, MEMORY)) == (regime, "B")


def batch(fell: float) -> Half:
    """Return a call at half the batch: half the operations, all but a tenth of the bytes."""
    return half(int(SLOW * (1 - fell)), ARITHMETIC, bytes=0.9, axis="B")


@pytest.mark.parametrize(("fell", "regime"), [(0.5, "compute-bound"), (0.31, "compute-bound"), (0.29, "l2-bound")])
def test_rows_7_and_8_ask_whether_the_time_follows_operations_or_bytes(fell, regime):
    assert said(ARITHMETIC, SLOW, SLOW, half(SLOW // 2, ARITHMETIC), batch(fell)) == (regime, "B")


def test_row_8_names_main_memory_where_a_warm_run_could_not_tell():
    for cache, regime in ((200_000, "l2-bound"), (199_999, "hbm-bound"), (None, "hbm-bound")):
        found = said(ARITHMETIC, SLOW, SLOW, half(SLOW // 2, ARITHMETIC), batch(0.1), cache_bytes=cache)
        assert found == (regime, "B")


def test_row_9_goes_by_the_side_of_the_ridge_where_no_axis_tells_the_two_apart():
    assert said(ARITHMETIC, SLOW, SLOW, half(SLOW // 2, ARITHMETIC)) == ("compute-bound", "B")
    assert said(MEMORY, SLOW, SLOW, half(SLOW // 2, MEMORY)) == ("l2-bound", "B")
    assert said(MEMORY, SLOW, SLOW, half(SLOW // 2, MEMORY), cache_bytes=None) == ("hbm-bound", "B")


def test_decide_is_total():
    empty = Work(flops=0, bytes_read=0, bytes_written=0)
    for work in (MEMORY, ARITHMETIC, empty):
        for cold in (1, CALL, 2**53):
            for warm in (1, cold, 2**53):
                for other in (1, cold, 2**53):
                    for launch in (None, 0, cold, 2**53):
                        found = said(work, cold, warm, half(other, work), launch_ps=launch, cache_bytes=None)
                        assert found[1] in ("B", "C")


READINGS = InterventionReadings(CALL, CALL // 2, CALL, (Half("B", 3, 2, 1), Half("O", 6, 5, 4)))


def test_readings_survive_being_stored():
    stored = stored_of(READINGS)
    assert set(map(type, stored.values())) == {int}
    assert readings_of(stored) == READINGS
    cold_alone = InterventionReadings(1)
    assert readings_of(stored_of(cold_alone)) == cold_alone


@pytest.mark.parametrize(
    "change",
    [
        {"cold_ps": 0}, {"cold_ps": -1}, {"cold_ps": 1.5}, {"cold_ps": True}, {"cold_ps": "1"}, {"cold_ps": 2**60},
        {"warm_ps": None}, {"half_B_ps": []}, {"half_C_ps": 1}, {"half__ps": 1}, {"regime": 1}, {"half_B_flop": 1},
        {"half_B_ps": 0}, {"half_B_bytes": 0}, {"half_B_flops": -1},
    ],
)  # fmt: skip
def test_readings_of_refuses_what_is_not_a_positive_integer_under_a_known_name(change):
    assert readings_of({**stored_of(READINGS), **change}) is None


def test_a_callable_without_products_has_a_regime():
    copied = Work(flops=0, bytes_read=10**6, bytes_written=0)
    readings = InterventionReadings(SLOW, SLOW // 2, SLOW, (half(SLOW // 2, copied),))
    assert readings_of(stored_of(readings)) == readings
    assert said(copied, SLOW, SLOW // 2, half(SLOW // 2, copied)) == ("hbm-bound", "B")


def test_readings_of_wants_the_cold_time():
    assert readings_of({"warm_ps": 1}) is None


# In a verdict


FORECAST = make_forecast()
WORK = FORECAST.work
STORED = stored_of(InterventionReadings(2_000_000_000, 10**9, None, (half(10**9, WORK),)))


def verdict(**changes: Any):
    measurement = make_measurement(FORECAST, **changes)
    return verify_cell(forecast=FORECAST, measurement=measurement, hardware=TOY, blind=True, findings=())


def test_a_record_with_interventions_only_is_of_grade_b():
    found = verdict(interventions=STORED)
    assert (found.measured_regime, found.grade) == ("hbm-bound", "B")
    assert "hbm-bound, as forecast: with its data in the cache a call takes 50% of the time" in found.gap.sentence
    # Nothing counted the bytes, so work and rate are not told apart.
    assert [cause.name for cause in found.gap.causes] == ["unexplained"]


def test_a_record_with_neither_stays_undetermined_and_one_that_lies_becomes_so():
    assert (verdict().measured_regime, verdict().grade) == (None, "C")
    forged = verdict(interventions={"regime": "compute-bound", "grade": "A"})
    assert (forged.measured_regime, forged.grade) == (None, "C")
    assert "docs/measurement.md" in forged.gap.sentence


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cold_ps": 40_000_000, "warm_ps": 1}, "cold_ps is 40000000; the same call took"),
        ({"half_ZZ_ps": 1, "half_ZZ_flops": 2**52, "half_ZZ_bytes": 1}, "half_ZZ_ps: the sealed shape has no axis ZZ"),
        ({"half_O_flops": 2**52}, "half_O_flops is 4503599627370496; the whole shape has"),
    ],
)
def test_readings_that_contradict_the_record_name_no_regime(changes: dict[str, int], reason: str):
    found = verdict(interventions={**STORED, **changes})
    assert (found.measured_regime, found.grade) == (None, "C")
    assert reason in found.gap.sentence


def test_interventions_change_no_verdict_that_rests_on_counters():
    from profiled import counters

    changes: dict[str, Any] = {"counters": counters(), "counters_missing": None, "timing": make_timing()}
    plain = measured_regime(FORECAST, make_measurement(FORECAST, **changes), TOY)
    assert plain.grade == "A"
    slow = stored_of(InterventionReadings(9, 9, 9, (half(9, WORK),)))
    assert measured_regime(FORECAST, make_measurement(FORECAST, **changes, interventions=slow), TOY) == plain


# Against counters, on cells recorded on an H200


RECORDED = json.loads((Path(__file__).parents[1] / "assets" / "interventions" / "h200.json").read_text())["cells"]


def by_interventions(row: dict[str, Any]) -> str | None:
    readings = readings_of(row["interventions"])
    assert readings is not None
    return decide(
        readings,
        work=Work(**row["work"]),
        roof=Roof(**row["roof"]),
        launch_ps=row["launch_ps"],
        set_bytes=row["set_bytes"],
        cache_bytes=row["l2_bytes"],
    )[0]


def test_grade_b_agrees_with_grade_a_on_the_recorded_cells_as_the_docs_say():
    page = " ".join((Path(__file__).parents[2] / "docs" / "measurement.md").read_text(encoding="utf-8").split())
    apart = [row for row in RECORDED if by_interventions(row) != row["regime_by_counters"]]
    assert f"On nine cells measured both ways {len(RECORDED) - len(apart)} of {len(RECORDED)} agree" in page
    (one,) = apart
    assert one["cell"] == "rmsnorm_matmul-B64-H6144-O6144-bf16"
    assert f"{one['regime_by_counters']} by counters (61%), {by_interventions(one)} by interventions" in page

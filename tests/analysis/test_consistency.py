"""Plants one wrong input for every check of analysis.consistency, and a valid input just inside the bound."""

from __future__ import annotations

from typing import Any

import pytest
from samples import (
    COMPUTE_WORK,
    MS,
    TOY,
    burst,
    callable_case,
    failed,
    hardware_value,
    make_forecast,
    make_hardware,
    make_measurement,
    make_timing,
    make_totals,
    state,
)

from ledger.analysis.consistency import EXAMPLE_PROFILE, check_all, settled, tensor_operations, warm
from ledger.analysis.counters import CounterTotals
from ledger.analysis.protocols import COLD_CPU, COLD_GRAPH, STEADY_GRAPH
from ledger.records import Case, DeviceFacts, Forecast, Hardware, Measurement, Protocol, Work

FORECAST = make_forecast()
PARAMETERS = FORECAST.protocol.parameters
FEW_ROUNDS = make_forecast(
    protocol=FORECAST.protocol.model_copy(update={"parameters": {**PARAMETERS, "min_rounds": 1}})
)


def codes(
    measurement: Measurement,
    *,
    forecast: Forecast = FORECAST,
    hardware: Hardware = TOY,
    totals: CounterTotals | None = None,
) -> list[tuple[str, str]]:
    found = check_all(forecast=forecast, measurement=measurement, hardware=hardware, totals=totals)
    return [(finding.code, finding.severity) for finding in found]


def at(median_ps: int, **changes: Any) -> Measurement:
    return make_measurement(FORECAST, timing=make_timing(median_ps), **changes)


def test_honest_measurement_has_no_finding() -> None:
    assert codes(make_measurement(FORECAST), totals=make_totals()) == []


def test_failed_measurement_has_no_finding_of_time() -> None:
    assert codes(failed(FORECAST)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "matmul"},
        {"shape": {"B": 8, "H": 64, "O": 65}},
        {"dtype": "bf16"},
        {"hardware": "toy2"},
        {"implementation": "torch-cpu"},
        {"config": {"block_m": 128}},
        {"config": {}},
        {"threads": 2},
    ],
    ids=lambda change: "-".join(change),
)
def test_changed_case_is_refused(change: dict[str, Any]) -> None:
    case = Case(**{**FORECAST.case.model_dump(), **change})
    assert codes(make_measurement(FORECAST, case=case)) == [("case-changed", "refused")]


def test_changed_cell_is_refused() -> None:
    assert codes(make_measurement(FORECAST, cell="other")) == [("case-changed", "refused")]


@pytest.mark.parametrize(
    ("field", "code"), [("kernel_sha256", "kernel-changed"), ("hardware_sha256", "profile-changed")]
)
def test_changed_kernel_or_profile_is_refused(field: str, code: str) -> None:
    assert codes(make_measurement(FORECAST, **{field: "dd" * 32})) == [(code, "refused")]


@pytest.mark.parametrize("change", [{"name": "Toy 2"}, {"target": "sm_80"}, {"sms": 11}], ids=lambda c: "-".join(c))
def test_other_device_is_refused(change: dict[str, Any]) -> None:
    facts = make_measurement(FORECAST).device.model_dump()
    measurement = make_measurement(FORECAST, device=DeviceFacts(**{**facts, **change}))
    assert codes(measurement) == [("device-mismatch", "refused")]


def test_any_of_the_profiles_names_is_the_device() -> None:
    facts = make_measurement(FORECAST).device.model_dump()
    assert codes(make_measurement(FORECAST, device=DeviceFacts(**{**facts, "name": "Toy 1 rev B"}))) == []


@pytest.mark.parametrize(
    ("rounds", "median", "honest"),
    [
        ((10, 20, 30), 20, True),
        ((10, 20, 30), 21, False),
        ((30, 10, 20), 20, True),
        ((10, 20, 31, 40), 25, True),  # exactly 25.5: either neighbour
        ((10, 20, 31, 40), 26, True),
        ((10, 20, 31, 40), 27, False),
    ],
)
def test_median_is_that_of_the_rounds(rounds: tuple[int, ...], median: int, honest: bool) -> None:
    timing = make_timing(rounds_ps=rounds, median_ps=median, low_ps=min(rounds), high_ps=max(rounds))
    found = [code for code, _ in codes(make_measurement(FEW_ROUNDS, timing=timing), forecast=FEW_ROUNDS)]
    found = [code for code in found if code == "timing-inconsistent"]
    assert found == ([] if honest else ["timing-inconsistent"])


@pytest.mark.parametrize(
    ("low", "high"), [(2 * MS + 1, 2 * MS + 1), (2 * MS - 1, 2 * MS - 1), (1, 2 * MS), (2 * MS, 3 * MS)]
)
def test_interval_holds_the_median_and_lies_within_the_rounds(low: int, high: int) -> None:
    timing = make_timing(2 * MS, low_ps=low, high_ps=high)
    assert codes(make_measurement(FORECAST, timing=timing)) == [("timing-inconsistent", "refused")]


def with_rounds(forecast: Forecast, count: int) -> list[tuple[str, str]]:
    timing = make_timing(rounds_ps=(2 * MS,) * count, low_ps=2 * MS, high_ps=2 * MS)
    return [one for one in codes(make_measurement(forecast, timing=timing), forecast=forecast) if one[1] == "refused"]


@pytest.mark.parametrize(
    ("protocol", "least", "most"), [(COLD_GRAPH, 25, 400), (COLD_CPU, 9, 101), (STEADY_GRAPH, 20, 10_000)]
)
def test_rounds_are_as_many_as_the_protocol_takes(protocol: Protocol, least: int, most: int) -> None:
    forecast = make_forecast(protocol=protocol)
    refused = [("timing-inconsistent", "refused")]
    assert with_rounds(forecast, least) == with_rounds(forecast, most) == []
    assert with_rounds(forecast, least - 1) == with_rounds(forecast, 1) == refused
    assert with_rounds(forecast, most + 1) == ([] if protocol is STEADY_GRAPH else refused)


def test_rounds_of_an_unknown_protocol_or_of_the_golden_ledgers_profile_are_not_counted() -> None:
    unknown = make_forecast(protocol=Protocol(name="cold-cpu/9", parameters={"min_rounds": 9}))
    golden = make_forecast(hardware_sha256=EXAMPLE_PROFILE)
    assert with_rounds(unknown, 1) == with_rounds(golden, 1) == []


@pytest.mark.parametrize(("extensions", "factor"), [({}, 4), ({"stream_timing/1": {}}, 20)], ids=["graph", "stream"])
def test_an_empty_launch_takes_no_longer_than_the_call(extensions: dict[str, Any], factor: int) -> None:
    def launched(launch_ps: int) -> list[tuple[str, str]]:
        return codes(make_measurement(FORECAST, timing=make_timing(launch_ps=launch_ps), extensions=extensions))

    assert launched(factor * 2 * MS) == []
    assert launched(factor * 2 * MS + 1) == launched(10**14) == [("timing-inconsistent", "refused")]


# A call of 2 ms moves 1 GB and does 10 GFLOP: 1 ms and 0.1 ms at the datasheet's rates, over 1.05 with the margin.
HALF = {"half_B_ps": MS, "half_B_flops": 5 * 10**9, "half_B_bytes": 10**9 // 2}
VARIED = {"cold_ps": 2 * MS, "warm_ps": MS, "double_ps": 2 * MS, **HALF}


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, []),
        ({"cold_ps": 952_380_953}, []),
        ({"cold_ps": 952_380_900}, ["cold_ps is 952380900; the datasheet of toy allows 1000000000 or more"]),
        ({"double_ps": 952_380_900}, ["double_ps is 952380900; the datasheet"]),
        ({"warm_ps": 95_238_096}, []),
        ({"warm_ps": 95_238_000}, ["warm_ps is 95238000; the datasheet of toy allows 100000000 or more"]),
        ({"half_B_ps": 476_190_477}, []),
        ({"half_B_ps": 476_190_000}, ["half_B_ps is 476190000; the datasheet of toy allows 500000000 or more"]),
        ({"cold_ps": 20 * MS + 10}, []),
        ({"cold_ps": 20 * MS + 11}, ["cold_ps is 20000000011; the same call took 1999999999 to 2000000001 ps"]),
        ({"half_B_flops": 10**10, "half_B_bytes": 10**9, "half_B_ps": 2 * MS}, []),
        ({"half_B_flops": 10**10 + 1}, ["half_B_flops is 10000000001; the whole shape has 10000000000"]),
        ({"half_B_bytes": 10**9 + 1}, ["half_B_bytes is 1000000001; the whole shape has 1000000000"]),
    ],
)
def test_interventions_agree_with_rounds_work_and_roof(changes: dict[str, int], reasons: list[str]) -> None:
    measurement = make_measurement(FORECAST, interventions={**VARIED, **changes})
    found = check_all(forecast=FORECAST, measurement=measurement, hardware=TOY, totals=None)
    assert [(one.code, one.severity) for one in found] == [("interventions-inconsistent", "refused")] * len(reasons)
    for one, reason in zip(found, reasons, strict=True):
        assert one.message.startswith(reason)


def test_without_a_datasheet_the_times_alone_are_compared() -> None:
    measured_only = make_hardware(ceilings={"burst": burst(100.0, 80_000.0)})

    def varied(**changes: int) -> list[tuple[str, str]]:
        return codes(make_measurement(FORECAST, interventions={**VARIED, **changes}), hardware=measured_only)

    refused = [("interventions-inconsistent", "refused")]
    assert varied() == varied(cold_ps=199_999_999 + 1, warm_ps=200_000) == varied(warm_ps=2_000_000) == []
    assert varied(cold_ps=199_999_999) == varied(warm_ps=1_999_999) == refused


def test_half_of_an_axis_that_is_absent_or_odd_is_refused() -> None:
    odd = make_forecast(shape={"B": 7, "H": 64, "O": 64})
    absent = {**VARIED, **{name.replace("_B_", "_ZZ_"): value for name, value in HALF.items()}}
    for forecast, stored in ((odd, VARIED), (FORECAST, absent)):
        found = codes(make_measurement(forecast, interventions=stored), forecast=forecast)
        assert found == [("interventions-inconsistent", "refused")]


@pytest.mark.parametrize(
    ("work", "flops", "refused"), [("counted", 4, False), ("counted", 5, True), ("given", 9, False)]
)
def test_a_callable_may_choose_another_algorithm_at_half_a_shape(work: str, flops: int, refused: bool) -> None:
    stored = {**VARIED, "half_B_flops": flops * 10**10, "half_B_ps": MS}
    changes = {"case": FORECAST.case.model_copy(update={"kernel": "mypkg.ops:norm", "config": {"work": work}})}
    measurement = make_measurement(FORECAST, interventions=stored).model_copy(update=changes)
    roomy = make_hardware(ceilings={"burst": burst(1.0, 100.0)})
    found = codes(measurement, forecast=FORECAST.model_copy(update=changes), hardware=roomy)
    assert found == ([("interventions-inconsistent", "refused")] if refused else [])


def test_a_comparison_that_cannot_have_passed_is_refused() -> None:
    honest = make_measurement(FORECAST)
    assert honest.correctness is not None
    wrong = honest.correctness.model_copy(update={"max_abs_error": "1e9"})
    assert codes(honest.model_copy(update={"correctness": wrong})) == [("correctness-inconsistent", "refused")]


# The datasheet allows 1 ms; five percent more is 1 ms / 1.05 = 952,380,953 ps.


def test_faster_than_the_data_sheet_is_refused() -> None:
    assert codes(at(952_380_953)) == []
    assert codes(at(952_380_900)) == [("above-roof", "refused")]


def test_boost_above_the_rated_clock_is_physical() -> None:
    # Rated 1000 MHz, boost 1200: 120 TFLOP/s, so 1 TFLOP takes 8.333 ms at least, 7.937 ms with the margin.
    limits = {**hardware_value()["limits"], "max_clock_mhz": 1200.0}
    boosting, forecast = make_hardware(limits=limits), make_forecast(work=COMPUTE_WORK)
    assert codes(at(8 * MS), forecast=forecast, hardware=boosting) == []
    assert codes(at(79 * MS // 10), forecast=forecast, hardware=boosting) == [("above-roof", "refused")]
    assert codes(at(9 * MS), forecast=forecast) == [("above-roof", "refused")]


def test_above_a_measured_ceiling_is_flagged() -> None:
    # Burst 0.8 TB/s: 1 GB takes 1.25 ms.
    both = make_hardware(ceilings={**hardware_value()["ceilings"], "burst": burst(0.8, 80.0)})
    assert codes(at(1_250_000_000), hardware=both) == []
    assert codes(at(1_249_000_000), hardware=both) == [("above-ceiling", "flag")]


def test_profile_without_data_sheet_is_never_refused() -> None:
    measured_only = make_hardware(ceilings={"burst": burst(0.5, 80.0)})
    assert codes(at(MS // 2), hardware=measured_only) == [("above-ceiling", "flag")]


# The protocol seals a tolerance of 5%.


@pytest.mark.parametrize(
    ("before", "after", "flagged"),
    [(1000, 950, False), (1000, 949, True), (1000, 1051, True), (None, 949, False), (1000, None, False), (0, 5, False)],
)
def test_clock_that_moved_is_flagged(before: int | None, after: int | None, flagged: bool) -> None:
    measurement = make_measurement(FORECAST, before=state(before), after=state(after))
    assert codes(measurement) == ([("clock-moved", "flag")] if flagged else [])


STEADY_FORECAST = make_forecast(protocol=STEADY_GRAPH)


def steadily(rounds: int, *, low: int, high: int) -> Measurement:
    """Return a measurement by cold-graph/2 with a median of 2 ms."""
    timing = make_timing(rounds_ps=(2 * MS,) * rounds, median_ps=2 * MS, low_ps=low, high_ps=high)
    return make_measurement(STEADY_FORECAST, timing=timing)


def test_a_timing_that_had_not_settled_is_flagged() -> None:
    # Sealed: 5 batches of 20 rounds, and an interval of ± 0.5%: 1.99 to 2.01 ms.
    narrow = {"low": 1_990_000_000, "high": 2_010_000_000}
    assert list(settled(STEADY_FORECAST, steadily(100, **narrow))) == []
    assert [one.code for one in settled(STEADY_FORECAST, steadily(99, **narrow))] == ["not-settled"]
    (wide,) = settled(STEADY_FORECAST, steadily(100, low=1_990_000_000, high=2_010_000_001))
    assert (wide.code, wide.severity) == ("not-settled", "flag")
    assert list(settled(FORECAST, make_measurement(FORECAST))) == []


def test_a_seal_that_lacks_the_bounds_of_its_protocol_is_flagged_and_no_error() -> None:
    bare = make_forecast(protocol=STEADY_GRAPH.model_copy(update={"parameters": {}}))
    (found,) = settled(bare, steadily(1, low=1_990_000_000, high=2_010_000_000))
    assert (found.code, found.message) == ("not-settled", "the interval of the median is ± 0.50%; sealed: 0%")


def test_small_input_sets_are_flagged() -> None:
    # The protocol asks for 268,435,456 bytes.
    def sets(size: int) -> Measurement:
        return make_measurement(FORECAST, timing=make_timing(input_sets=4, bytes_per_set=size))

    assert codes(sets(67_108_864)) == []
    assert codes(sets(67_108_863)) == [("maybe-warm", "flag")]


@pytest.mark.parametrize(
    ("by_path", "refused"),
    [
        ({"fp16_tensor": 7_500_000_000}, False),
        ({"fp16_tensor": 7_499_999_999}, True),
        ({"fp16_tensor": 0}, True),
        ({}, False),  # not counted: an older record, or a report that somebody cut
        ({"bf16_tensor": 10**10}, False),
        ({"fp16_tensor": 10**11}, False),  # padding: more is honest
        ({"fp16_tensor": 0, "bf16_tensor": 10**10}, True),  # another dtype's operations
        ({"fp16_tensor": 10**10, "bf16_tensor": 10**9}, False),
    ],
)
def test_tensor_operations_cover_the_work(by_path: dict[str, int], refused: bool) -> None:
    totals = make_totals(tensor_ops=sum(by_path.values()) if by_path else None, tensor_ops_by_path=by_path)
    assert codes(make_measurement(FORECAST), totals=totals) == ([("dtype-contradicted", "refused")] if refused else [])


@pytest.mark.parametrize(
    ("kernel", "fma_pct", "operations", "code"),
    [
        ("mypkg.ops:linear", 5.0, 0, "tensor-cores-idle"),
        ("mypkg.ops:linear", 0.0, 0, "dtype-contradicted"),
        ("mypkg.ops:linear", 5.0, 10**9, "dtype-contradicted"),
        ("matmul", 5.0, 0, "dtype-contradicted"),
    ],
)
def test_a_callable_may_use_cuda_cores(kernel: str, fma_pct: float, operations: int, code: str) -> None:
    """A library chooses its kernel for a shape: cuBLAS takes CUDA cores for 11 x 101 x 147 in bf16."""
    forecast = make_forecast(case=FORECAST.case.model_copy(update={"kernel": kernel}))
    totals = make_totals(tensor_ops=operations, tensor_ops_by_path={"fp16_tensor": operations}, fma_pct=fma_pct)
    assert [one.code for one in tensor_operations(forecast, totals)] == [code]


def test_tensor_operations_on_a_cuda_core_path_are_refused() -> None:
    from ledger.roofline import roof_of

    forecast = make_forecast(roof=roof_of(TOY, "fp32"))
    assert codes(at(2 * MS), forecast=forecast, totals=make_totals(tensor_ops=0)) == []
    assert codes(at(2 * MS), forecast=forecast, totals=make_totals()) == [("dtype-contradicted", "refused")]


def test_empty_work_is_refused() -> None:
    forecast = make_forecast(work=Work(flops=0, bytes_read=0, bytes_written=0))
    assert codes(make_measurement(forecast), forecast=forecast) == [("work-empty", "refused")]


@pytest.mark.parametrize("work", [{"flops": 1}, {"bytes_read": 1}, {"bytes_written": 1}], ids=lambda w: next(iter(w)))
def test_a_little_work_is_some(work: dict[str, int]) -> None:
    forecast = make_forecast(work=Work(**{"flops": 0, "bytes_read": 0, "bytes_written": 0, **work}))
    assert codes(make_measurement(forecast), forecast=forecast) == []


def test_path_without_a_data_sheet_peak_has_no_physical_roof() -> None:
    forecast = make_forecast(roof=make_forecast().roof.model_copy(update={"path": "fp64"}))
    assert codes(at(MS // 2), forecast=forecast) == []


def test_peak_without_a_width_is_taken_as_rated() -> None:
    # fp32: 10 TFLOP/s and no width; 1 TFLOP takes 100 ms, 95.2 ms with the margin.
    forecast = make_forecast(work=COMPUTE_WORK, roof=make_forecast().roof.model_copy(update={"path": "fp32"}))
    assert codes(at(96 * MS), forecast=forecast) == []
    assert codes(at(95 * MS), forecast=forecast) == [("above-roof", "refused")]


def test_protocol_without_a_footprint_flags_nothing() -> None:
    forecast = make_forecast(protocol=FORECAST.protocol.model_copy(update={"parameters": {}}))
    timing = make_timing(input_sets=1, bytes_per_set=1)
    assert codes(make_measurement(forecast, timing=timing), forecast=forecast) == []


def test_messages_tell_got_and_expected() -> None:
    measurement = make_measurement(
        FEW_ROUNDS,
        kernel_sha256="ef" * 32,
        before=state(1000),
        after=state(900),
        timing=make_timing(rounds_ps=(10, 21, 30, 41), median_ps=20, low_ps=10, high_ps=41, bytes_per_set=10**9),
    )
    told = {
        f.code: f.message for f in check_all(forecast=FEW_ROUNDS, measurement=measurement, hardware=TOY, totals=None)
    }
    assert told["kernel-changed"] == "kernel source was efefefefefef when measured; sealed is aaaaaaaaaaaa"
    assert told["clock-moved"] == "the SM clock went from 1000 to 900 MHz (-10.0%; sealed: 5%)"
    assert told["timing-inconsistent"] == "median is 20 ps; its rounds give 25.5 ps"
    assert told["above-roof"].endswith(
        "expected at most 105% (the work was not all done, or its data came from a cache)"
    )


def test_the_results_of_a_callable_are_part_of_its_rotation() -> None:
    """Older records hold the bytes of its inputs alone; of work that was given the timer knew no more."""
    case, work = callable_case("x=fp16[B,64]", B=8), Work(flops=0, bytes_read=50_000_000, bytes_written=50_000_000)
    given = case.model_copy(update={"config": {**case.config, "work": "given"}})
    for size, sets, flagged in ((50_000_000, 3, False), (50_000_000, 2, True), (100_000_000, 3, False)):
        timing = make_timing(input_sets=sets, bytes_per_set=size)
        assert bool([*warm(make_forecast(case=case, work=work), timing)]) is flagged
    assert [*warm(make_forecast(case=given, work=work), make_timing(input_sets=3, bytes_per_set=50_000_000))]

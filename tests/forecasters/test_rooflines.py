"""Tests the forecasters that know ceilings alone, on the toy device of tests/support/samples.py and by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import COMPUTE_WORK, MEMORY_WORK, TOY, burst, hardware_value, make_forecast, make_hardware, quantity

from ledger.errors import InputError
from ledger.forecasters import measured_roofline, naive_roofline, no_overlap, rule_of_thumb
from ledger.forecasters.answer import Answer, NoAnswer, Question, answer_document
from ledger.forecasters.lookup import TABLES
from ledger.forecasters.matmul_heuristics import GPUS
from ledger.forecasters.registry import FORECASTERS, answers, forecasters_named
from ledger.record_files import load_hardware
from ledger.records import Hardware, Roof, Work
from ledger.roofline import roof_of

ROOF = roof_of(TOY, "fp16_tensor")
CASE = make_forecast().case


def asked(work: Work = MEMORY_WORK, hardware: Hardware = TOY, roof: Roof = ROOF) -> Question:
    return Question(CASE, work, roof, hardware)


def said(forecast: Callable[[Question], Answer | NoAnswer], question: Question) -> Answer:
    answer = forecast(question)
    assert isinstance(answer, Answer), answer
    return answer


def calibrated(launch_us: float | None = 100.0, **sets: object) -> Hardware:
    """Return the toy with 0.8 TB/s, 50 TFLOP/s and 0.1 ms of launch as measured in bursts."""
    more = burst(0.8, 50.0)
    if launch_us is not None:
        more["launch_graph_node"] = quantity(launch_us, "us", kind="measured")
    return make_hardware(ceilings={**hardware_value()["ceilings"], "burst": more, **sets})


def test_naive_reaches_the_roof() -> None:
    memory, compute = (said(naive_roofline.forecast, asked(work)) for work in (MEMORY_WORK, COMPUTE_WORK))
    assert (memory.regime, memory.percent, memory.time_s) == ("hbm-bound", pytest.approx(100), pytest.approx(1e-3))
    assert (compute.regime, compute.percent) == ("compute-bound", pytest.approx(100))
    assert compute.time_s == pytest.approx(1e-2)


def test_thumb_takes_its_shares() -> None:
    # 1 ms ÷ 0.9 + 1 µs = 1112.1 µs: 89.9%. 10 ms ÷ 0.7 + 1 µs: 70.0%.
    memory, compute = (said(rule_of_thumb.forecast, asked(work)) for work in (MEMORY_WORK, COMPUTE_WORK))
    assert memory.percent == pytest.approx(100 / (1 / 0.9 + 0.001))
    assert compute.percent == pytest.approx(70, abs=0.01)
    assert (memory.regime, compute.regime) == ("hbm-bound", "compute-bound")


def test_thumb_calls_a_short_kernel_what_it_is() -> None:
    h200 = load_hardware("h200")
    roof = roof_of(h200, "fp16_tensor")

    def bytes_only(count: int) -> str | None:
        work = Work(flops=1, bytes_read=count, bytes_written=0)
        return said(rule_of_thumb.forecast, asked(work, h200, roof)).regime

    # 4.32 TB/s is reached: 4.32 MB take the 1 µs that a launch takes.
    assert bytes_only(4_310_000) == "launch-bound"
    assert bytes_only(4_330_000) == "latency-bound"
    # 60% of 4.8 TB/s: n / (1 µs + n / 4.32 TB/s) = 2.88 TB/s at n = 8.64 MB.
    assert bytes_only(8_630_000) == "latency-bound"
    assert bytes_only(8_650_000) == "hbm-bound"


def test_thumb_is_for_gpus_with_a_datasheet() -> None:
    assert isinstance(rule_of_thumb.forecast(asked(hardware=make_hardware(target="x86_64"))), NoAnswer)
    measured = roof_of(calibrated(), "fp16_tensor", "burst")
    assert isinstance(rule_of_thumb.forecast(asked(hardware=calibrated(), roof=measured)), NoAnswer)


def test_measured_ceilings_with_and_without_overlap() -> None:
    # Traffic 1 GB ÷ 0.8 TB/s = 1.25 ms, arithmetic 10 GFLOP ÷ 50 TFLOP/s = 0.2 ms, launch 0.1 ms.
    question = asked(hardware=calibrated())
    one, two = said(measured_roofline.forecast, question), said(no_overlap.forecast, question)
    assert (one.time_s, one.percent) == (pytest.approx(1.35e-3), pytest.approx(100 / 1.35))
    assert two.time_s == pytest.approx(1.55e-3)
    assert (one.regime, two.regime) == ("hbm-bound", "hbm-bound")  # 74% and 65% of DRAM
    terms = {term.name: (pytest.approx(term.value), term.unit) for term in one.terms}
    assert terms == {
        "arithmetic": (2e-4, "s"),
        "traffic": (1.25e-3, "s"),
        "launch": (1e-4, "s"),
        "peak": (5e13, "FLOP/s"),
        "DRAM": (8e11, "B/s"),
    }


def test_sustained_ceilings_are_a_term_or_stand_in_for_bursts() -> None:
    # 1 GB ÷ 0.5 TB/s = 2 ms.
    both = said(measured_roofline.forecast, asked(hardware=calibrated(sustained=burst(0.5, 50.0))))
    assert both.time_s == pytest.approx(1.35e-3)
    assert (both.terms[-1].name, both.terms[-1].value) == ("at sustained ceilings", pytest.approx(2.1e-3))
    only = make_hardware(ceilings={**hardware_value()["ceilings"], "sustained": burst(0.5, 50.0)})
    alone = said(measured_roofline.forecast, asked(hardware=only))
    assert alone.time_s == pytest.approx(2e-3)
    assert alone.assumes[0] == "sustained ceilings as measured"


def test_missing_launch_is_said() -> None:
    answer = said(measured_roofline.forecast, asked(hardware=calibrated(launch_us=None)))
    assert answer.time_s == pytest.approx(1.25e-3)
    assert "a launch costs nothing (none was measured)" in answer.assumes


def test_launch_bound_when_the_launch_is_half() -> None:
    answer = said(measured_roofline.forecast, asked(hardware=calibrated(launch_us=1250.0)))
    assert answer.regime == "launch-bound"


def test_a_forecaster_says_what_it_lacks() -> None:
    given_ = {one.forecaster: one for one in answers(asked(), tuple(FORECASTERS))}
    assert tuple(given_) == tuple(FORECASTERS)
    silent = {name: one.reason for name, one in given_.items() if isinstance(one, NoAnswer)}
    why = "profile toy has no measured fp16_tensor peak; on that device run: ledger calibrate"
    assert silent == {
        "measured-roofline": why,
        "no-overlap": why,
        "persistence": "no fp16 cell of rmsnorm_matmul on toy is measured here",
        "learned": "0 measured GPU cells here; expected at least 20",
        "matmul-heuristics": "nvidia-matmul-heuristics does not know toy; expected: " + ", ".join(GPUS),
        "lookup": "no published table of toy; expected: " + ", ".join(TABLES),
    }
    with pytest.raises(InputError, match="its work is 0 FLOP and 0 bytes"):
        answers(asked(Work(flops=0, bytes_read=0, bytes_written=0)), ("naive-roofline",))


def test_forecasters_are_chosen_by_name() -> None:
    assert forecasters_named(None) == tuple(FORECASTERS)
    assert forecasters_named("persistence, naive-roofline") == ("persistence", "naive-roofline")
    with pytest.raises(InputError, match=r"--by: forecaster 'naive' is not known \(did you mean naive-roofline\?\)"):
        forecasters_named("naive")
    with pytest.raises(InputError, match="duplicate forecaster 'persistence'"):
        forecasters_named("persistence,persistence")


def test_an_answer_as_json_has_every_field() -> None:
    told = answer_document(said(naive_roofline.forecast, asked()))
    assert (told["forecaster"], told["version"], told["regime"]) == ("naive-roofline", "1", "hbm-bound")
    assert (told["probabilities"], told["low"], told["high"]) == (None, None, None)
    assert told["time_us"] == pytest.approx(1000)
    assert told["terms"][1] == {"name": "traffic", "value": pytest.approx(1e-3), "unit": "s"}


amount = st.integers(min_value=0, max_value=2**53 - 1)


@given(
    flops=amount, read=amount, written=amount, peak=st.integers(10**9, 9 * 10**15), bandwidth=st.integers(10**9, 10**14)
)
def test_models_are_ordered_and_never_above_the_roof(
    flops: int, read: int, written: int, peak: int, bandwidth: int
) -> None:
    work = Work(flops=flops, bytes_read=read, bytes_written=written)
    if not (work.flops or work.bytes):
        return
    roof = Roof(ceilings="datasheet", path="fp16_tensor", peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth)
    question = asked(work, calibrated(), roof)
    assert said(naive_roofline.forecast, question).percent == pytest.approx(100)
    assert 0 < said(rule_of_thumb.forecast, question).percent < 100
    first, second = (said(one.forecast, question).time_s for one in (measured_roofline, no_overlap))
    assert first <= second * (1 + 1e-12)
    assert second <= 2 * first * (1 + 1e-12)


def test_fused_kernel_on_h200_by_hand() -> None:
    # B=32, H=O=4096, fp16: 33.8 MB; 33.8 ÷ 4.32 TB/s = 7.83 µs, and 1 µs of launch: 8.83; the roof is 7.05 µs.
    h200 = load_hardware("h200")
    work = Work(flops=1_074_000_000, bytes_read=33_564_672 + 262_144, bytes_written=262_144)
    answer = said(rule_of_thumb.forecast, asked(work, h200, roof_of(h200, "fp16_tensor")))
    total = 33_564_672 + 2 * 262_144
    assert answer.time_s == pytest.approx(1e-6 + total / 4.32e12)
    assert answer.percent == pytest.approx(79.9, abs=0.2)
    assert answer.regime == "hbm-bound"

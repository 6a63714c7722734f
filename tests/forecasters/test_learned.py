"""Tests the learned forecaster: what it is taught it says, and what it is not taught falls back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from ledger.analysis.regime_v2 import Resource
from ledger.forecasters import analytic, learned
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware
from ledger.records import CaseV2
from ledger.workflow.question import make_question

H200 = load_hardware("h200")


def asked(kernel: str, dtype: Any = "fp16", **shape: int) -> Question:
    return make_question(load_kernel(kernel).kernel, H200, shape=shape, dtype=dtype)


def ran(question: Question, ratio: float, name: int, loads: dict[Resource, int] | None = None) -> Measured:
    """Return a run that took so many times the analytic model's time."""
    time_s = ratio * analytic.cost(question).total
    case, work, roof, hardware = question.case, question.work, question.roof, question.hardware
    return Measured(case, work, roof, hardware, time_s, ("hbm-bound",), f"{name}", loads, 0.48e-6)


SIZES = [64 * number for number in range(8, 40)]
RUNS = tuple(ran(asked("matmul", M=size, N=4096, K=4096), 1.3, size) for size in SIZES)


def said(question: Question, runs: tuple[Measured, ...]) -> Answer:
    answer = learned.forecast(replace(question, earlier=runs))
    assert isinstance(answer, Answer), answer
    return answer


def correction(question: Question, runs: tuple[Measured, ...] = RUNS) -> float:
    return said(question, runs).time_s / analytic.cost(question).total


def test_what_every_cell_shows_is_learned() -> None:
    assert correction(asked("matmul", M=1000, N=4096, K=4096)) == pytest.approx(1.3, rel=0.01)
    assert correction(asked("vector_add", "fp32", N=2**28)) == pytest.approx(1.3, rel=0.01)


def test_a_kernels_own_cells_count_most() -> None:
    slow = tuple(ran(asked("softmax", M=size, N=8192), 2.0, 10_000 + size) for size in (1024, 4096, 16384))
    runs = (*RUNS, *slow)
    own, other = (
        correction(asked("softmax", M=8192, N=8192), runs),
        correction(asked("matmul", M=1056, N=4096, K=4096), runs),
    )
    assert own == pytest.approx(2.0, rel=0.1)
    assert other == pytest.approx(1.3, rel=0.05)


def test_the_process_solves_its_own_equations() -> None:
    """At a training cell the mean of the process is y minus noise² times its weight (Rasmussen, Williams, 2.25)."""
    import numpy as np

    runs = (*RUNS[:25], ran(asked("matmul", M=520, N=4096, K=4096), 1.8, 1))
    fit = learned._taught_by(runs).times.without(())
    weights, mean = fit.weights[:, 0], fit.mean[0]
    errors = np.array([math.log(1.3)] * 25 + [math.log(1.8)])
    assert mean == pytest.approx(errors.mean())
    for one, error, weight in zip(runs, errors, weights, strict=True):
        told = math.log(correction(one.question, runs))
        assert told == pytest.approx(error - learned.TIMES.noise**2 * weight, abs=1e-9)


def test_leaving_cases_out_of_one_matrix_answers_as_a_fit_without_them() -> None:
    other = tuple(ran(asked("softmax", M=size, N=8192), 2.0 + size / 9000, size) for size in (1024, 4096, 16384))
    runs = (*RUNS[:22], *other)
    ask = learned.asked_without(runs)
    for out in ((0,), (22,), (3, 23, 24), ()):
        kept = tuple(one for number, one in enumerate(runs) if number not in out)
        question = replace(runs[out[0] if out else 5].question, earlier=kept)
        quick, slow = ask(question), said(question, kept)
        assert isinstance(quick, Answer) and quick.time_s == pytest.approx(slow.time_s, rel=1e-9)
        assert quick.regime == slow.regime and quick.deviation == pytest.approx(slow.deviation, rel=1e-6)
    assert isinstance(ask(replace(runs[0].question, earlier=runs[:19])), NoAnswer)


def test_a_far_cell_is_less_certain_than_a_near_one() -> None:
    near, far = (said(asked("matmul", M=size, N=4096, K=4096), RUNS).deviation for size in (1024, 30_000))
    other = said(asked("vector_add", "fp32", N=2**28), RUNS).deviation
    assert near is not None and far is not None and other is not None
    assert learned.TIMES.noise <= near < far < other < 1


def test_the_regime_follows_from_loads_that_counters_showed() -> None:
    """Runs whose L2 is busiest teach that the next one's is, though the analytic model counts DRAM alone."""
    loads: dict[Resource, int] = {"dram": 70_000, "l2": 90_000, "smem": 30_000, "arithmetic": 40_000}
    runs = tuple(ran(asked("softmax", M=64 * n, N=8192), 1.1, n, loads) for n in range(30, 60))
    question = asked("softmax", M=2840, N=8192)
    answer = said(question, runs)
    assert answer.regime == "l2-bound"
    assert {term.name: round(term.value, 1) for term in answer.terms if "load" in term.name} == {
        "load of dram": 0.7, "load of l2": 0.9, "load of smem": 0.3, "load of arithmetic": 0.4,
    }  # fmt: skip
    assert said(question, tuple(replace(one, loads=None) for one in runs)).regime == "hbm-bound"


def test_an_empty_launch_that_takes_half_of_the_call_binds() -> None:
    loads: dict[Resource, int] = {"dram": 9_000, "l2": 9_000, "smem": 1_000, "arithmetic": 1_000}
    small = tuple(asked("vector_add", "fp32", N=size) for size in range(4096, 4096 * 31, 4096))
    runs = tuple(ran(one, 1.0, number, loads) for number, one in enumerate(small))
    question = asked("vector_add", "fp32", N=5000)
    assert said(question, runs).regime == "latency-bound"
    slow = tuple(replace(one, launch_s=1.5e-6) for one in runs)
    assert said(question, slow).regime == "launch-bound"


def called(name: str, ratio: float, number: int) -> Measured:
    """Return a run of a callable that adds vectors."""
    one = ran(asked("vector_add", "fp32", N=2**20 + 4096 * number), 1.0, number)
    case = CaseV2(
        kernel=f"module:{name}", shape=dict(one.case.shape), dtype="fp32", hardware="h200", implementation="cuda",
        config={}, threads=None, arguments=(),
    )  # fmt: skip
    found = analytic.cost(replace(one.question, case=case))
    assert found.kind is not None
    return replace(one, case=case, time_s=ratio * found.total * found.kind.median)


def test_callables_teach_by_kind_and_one_far_off_counts_little() -> None:
    runs = tuple(called(f"rows_{number}", 1.3, number) for number in range(25))
    new = replace(called("another", 1.0, 30).question, earlier=(*RUNS, *runs))
    usual = said(new, (*RUNS, *runs)).time_s / called("another", 1.0, 30).time_s
    assert usual == pytest.approx(1.3, rel=0.05), "not by the runs of kernels"
    odd = said(new, (*RUNS, *runs, called("odd", 50.0, 26))).time_s / called("another", 1.0, 30).time_s
    assert odd == pytest.approx(usual * (10 / usual) ** (1 / 26), rel=0.01), "one of 26, as ten times the analytic time"


def test_a_callable_teaches_about_its_other_sizes() -> None:
    runs = tuple(called(f"rows_{number}", 1.0, number) for number in range(25))
    known = (*RUNS, *runs, called("slow", 4.0, 26))

    def ratio(name: str, number: int) -> float:
        """Return the forecast time over the analytic one."""
        asked = called(name, 1.0, number)
        return float(said(replace(asked.question, earlier=known), known).time_s / asked.time_s)

    assert ratio("slow", 30) > 2.5 and ratio("other", 30) < 1.2
    assert ratio("slow", 100_000) < ratio("slow", 30)


def test_few_cells_teach_nothing_and_a_cpu_has_no_answer() -> None:
    few = learned.forecast(replace(asked("matmul", M=512, N=512, K=512), earlier=RUNS[:19]))
    assert few == NoAnswer("learned", "7", "19 measured GPU cells here; expected at least 20")


def test_the_model_names_every_record_that_taught_it() -> None:
    held = json.loads(learned.model_bytes(RUNS))
    assert set(held["kernels"]["times"]["weights"]) == {one.record for one in RUNS}
    assert learned.model_bytes(RUNS[:5]) == b"{}"
    assert learned.model_bytes(RUNS) == learned.model_bytes(tuple(RUNS)), "the same measurements give the same model"

"""Tests the learned forecaster: what it is taught it says, and what it is not taught falls back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from ledger.forecasters import analytic, learned
from ledger.forecasters.analytic_constants import DECLARED
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware
from ledger.workflow.question import make_question

H200 = load_hardware("h200")


def asked(kernel: str, dtype: Any = "fp16", **shape: int) -> Question:
    return make_question(load_kernel(kernel).kernel, H200, shape=shape, dtype=dtype)


def ran(question: Question, ratio: float, name: int) -> Measured:
    """Return a run that took so many times the analytic model's time."""
    time_s = ratio * analytic.cost(question, DECLARED).total
    return Measured(question.case, question.work, question.roof, question.hardware, time_s, ("hbm-bound",), f"{name}")


SIZES = [64 * number for number in range(8, 40)]
RUNS = tuple(ran(asked("matmul", M=size, N=4096, K=4096), 1.3, size) for size in SIZES)


def said(question: Question, runs: tuple[Measured, ...]) -> Answer:
    answer = learned.forecast(replace(question, earlier=runs))
    assert isinstance(answer, Answer), answer
    return answer


def correction(question: Question, runs: tuple[Measured, ...] = RUNS) -> float:
    return said(question, runs).time_s / analytic.cost(question, DECLARED).total


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
    fit = learned._fitted(runs)
    weights, mean = fit.weights, fit.mean
    errors = np.array([math.log(1.3)] * 25 + [math.log(1.8)])
    assert mean == pytest.approx(errors.mean())
    for one, error, weight in zip(runs, errors, weights, strict=True):
        told = math.log(correction(one.question, runs))
        assert told == pytest.approx(error - learned.NOISE**2 * weight, abs=1e-9)


def test_leaving_cases_out_of_one_matrix_answers_as_a_fit_without_them() -> None:
    other = tuple(ran(asked("softmax", M=size, N=8192), 2.0 + size / 9000, size) for size in (1024, 4096, 16384))
    runs = (*RUNS[:22], *other)
    ask = learned.asked_without(runs)
    for out in ((0,), (22,), (3, 23, 24), ()):
        kept = tuple(one for number, one in enumerate(runs) if number not in out)
        question = replace(runs[out[0] if out else 5].question, earlier=kept)
        quick, slow = ask(question), said(question, kept)
        assert isinstance(quick, Answer) and quick.time_s == pytest.approx(slow.time_s, rel=1e-9)
        assert quick.regime == slow.regime and quick.terms[3:] == slow.terms[3:]
    assert isinstance(ask(replace(runs[0].question, earlier=runs[:19])), NoAnswer)


def test_few_cells_teach_nothing_and_a_cpu_has_no_answer() -> None:
    few = learned.forecast(replace(asked("matmul", M=512, N=512, K=512), earlier=RUNS[:19]))
    assert few == NoAnswer("learned", "1", "19 measured GPU cells here; expected at least 20")


def test_the_model_names_every_record_that_taught_it() -> None:
    held = json.loads(learned.model_bytes(RUNS))
    assert set(held["kernels"]["weights"]) == {one.record for one in RUNS}
    assert learned.model_bytes(RUNS[:5]) == b"{}"
    assert learned.model_bytes(RUNS) == learned.model_bytes(tuple(RUNS)), "the same measurements give the same model"

"""Tests what measured cases tell of a forecaster: what each is asked without, intervals, and who learns from whom."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
from ledger.forecasters.track import (
    LEAST,
    Outcome,
    Outcomes,
    blind_outcomes,
    is_blind,
    outcomes,
    ratios,
    with_uncertainty,
)
from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware
from ledger.workflow.question import make_question

H200 = load_hardware("h200")


def ran(kernel: str, size: int, time_s: float = 1e-5) -> Measured:
    sizes = {"M": size, "N": 1024} if kernel == "softmax" else {"N": size}
    dtype = "fp16" if kernel == "softmax" else "fp32"
    q = make_question(load_kernel(kernel).kernel, H200, shape=sizes, dtype=dtype)
    return Measured(q.case, q.work, q.roof, q.hardware, time_s, ("hbm-bound",), f"{kernel}{size}")


RUNS = (*(ran("softmax", size) for size in (1000, 1500, 8000)), ran("vector_add", 10_000))


def test_each_case_is_asked_without_itself_or_without_its_neighbours() -> None:
    asked: list[set[str]] = []

    def ask(question: Question) -> NoAnswer:
        asked.append({one.record for one in question.earlier})
        return NoAnswer("test", "1", "none")

    assert outcomes(ask, RUNS).found == ()
    every = {one.record for one in RUNS}
    assert asked == [every - {one.record} for one in RUNS]
    asked.clear()
    assert blind_outcomes(ask, RUNS).found == ()
    both = {"softmax1000", "softmax1500"}
    assert asked == [every - both, every - both, every - {"softmax8000"}, every - {"vector_add10000"}]


def test_a_case_is_blind_where_its_device_has_no_neighbour() -> None:
    assert not is_blind(ran("softmax", 1999).case, RUNS)
    assert is_blind(ran("softmax", 3500).case, RUNS)
    elsewhere = ran("softmax", 1000).case.model_copy(update={"hardware": "h100_sxm"})
    assert is_blind(elsewhere, RUNS)


def test_the_interval_holds_the_share_that_it_says() -> None:
    known = tuple(Outcome("k", math.log(1 + number / 100), None, ()) for number in range(-10, 10))
    fast, slow = ratios(known)
    inside = [fast <= math.exp(one.log_ratio) <= slow for one in known]
    assert (fast, slow) == pytest.approx((0.91, 1.08))
    assert sum(inside) / (len(known) + 1) > 0.8


def test_an_interval_scales_with_the_deviation_that_an_answer_states() -> None:
    found = tuple(Outcome("k", 0.1 * sign, None, (), 0.1) for sign in (-1, 1) for _ in range(LEAST))
    assert [math.log(one) for one in ratios(found, 0.3)] == pytest.approx([-0.3, 0.3])
    assert [math.log(one) for one in ratios(found)] == pytest.approx([-0.1, 0.1]), "an answer that states none"


def test_callables_and_kernels_do_not_learn_from_one_another() -> None:
    answer = Answer(forecaster="test", version="1", regime="hbm-bound", percent=50.0, time_s=1e-5, terms=(), assumes=())
    kernels = Outcomes(tuple(Outcome("matmul", 0.1, "hbm-bound", ("l2-bound",)) for _ in range(2 * LEAST)))
    told, how = with_uncertainty(answer, "mine.ops:f", kernels)
    assert told == answer and "no interval" in how
    told, how = with_uncertainty(answer, "gemv", kernels)
    assert told.low == pytest.approx(50 / math.exp(0.1)) and told.probabilities is not None
    assert "without itself;" in how
    few = replace(kernels, found=kernels.found[: LEAST - 1])
    assert with_uncertainty(answer, "gemv", few)[0].low is None

"""Tests the forecaster that repeats what a ledger measured, on the toy memory case: 1 ms at its roof."""

from __future__ import annotations

from typing import Any

import pytest
from samples import (
    MEMORY_WORK,
    MS,
    TOY,
    callable_case,
    make_book,
    make_forecast,
    make_measurement,
    make_sealed,
    make_timing,
    make_view,
)

from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
from ledger.forecasters.persistence import distance, forecast
from ledger.forecasters.track import measured_runs
from ledger.records import Work
from ledger.roofline import roof_of

ROOF = roof_of(TOY, "fp16_tensor")
TWICE = Work(flops=10**10, bytes_read=1_800_000_000, bytes_written=200_000_000)


def ran(time_ms: float, regime: Any = "hbm-bound", **case: Any) -> Measured:
    return Measured(make_forecast(**case).case, MEMORY_WORK, ROOF, TOY, time_ms / 1e3, (regime,), "0" * 64)


def ask(*earlier: Measured, work: Work = MEMORY_WORK, **case: Any) -> Answer | NoAnswer:
    return forecast(Question(make_forecast(**case).case, work, ROOF, TOY, earlier))


def test_the_last_run_of_the_cell_is_repeated_with_the_range_of_all() -> None:
    answer = ask(ran(4.0, "l2-bound"), ran(1.25), ran(2.0, "latency-bound"))
    assert isinstance(answer, Answer)
    assert (answer.regime, answer.percent, answer.time_s) == ("latency-bound", 50.0, pytest.approx(2e-3))
    assert (answer.low, answer.high) == (25.0, 80.0)
    alone = ask(ran(2.0))
    assert isinstance(alone, Answer)
    assert (alone.low, alone.high) == (None, None)


def test_a_neighbour_lends_its_percent_and_its_regime() -> None:
    near = ran(1.25, "l2-bound", shape={"B": 16, "H": 64, "O": 64})
    far = ran(2.0, shape={"B": 8, "H": 64, "O": 1024})
    # 80% of a roof of 2 ms is 2.5 ms.
    answer = ask(near, far, work=TWICE)
    assert isinstance(answer, Answer)
    assert (answer.regime, answer.percent, answer.time_s) == ("l2-bound", 80.0, pytest.approx(2.5e-3))
    assert (answer.low, answer.high) == (None, None)
    assert [(term.name, term.value) for term in answer.terms] == [
        ("measured B=16 H=O=64", 1.25e-3),
        ("distance", 1.0),
        ("runs of this cell", 0),
    ]


def test_other_kernels_dtypes_and_shape_keys_lend_nothing() -> None:
    answer = ask(ran(2.0, dtype="bf16"), ran(2.0, shape={"M": 8}))
    assert answer == NoAnswer("persistence", "2", "no fp16 cell of rmsnorm_matmul on toy is measured here")


def test_other_arguments_of_a_callable_lend_nothing() -> None:
    own = {"case": callable_case("x=fp16[B,64]", B=256)}
    wider = ran(2.0, case=callable_case("x=fp16[B,1024]", B=256))
    backward = ran(2.0, case=callable_case("x=fp16[B,64]", "backward", B=256))
    reason = "no fp16 cell of ops:swiglu with these arguments on toy is measured here"
    assert ask(wider, backward, **own) == NoAnswer("persistence", "2", reason)
    answer = ask(wider, ran(1.25, case=callable_case("x=fp16[B,64]", B=128)), **own)
    assert isinstance(answer, Answer) and (answer.percent, answer.terms[1].value) == (80.0, 1.0)


def test_distance_counts_doublings_of_every_size() -> None:
    assert distance({"B": 8, "H": 64}, {"B": 8, "H": 64}) == 0
    assert distance({"B": 8, "H": 64}, {"B": 32, "H": 32}) == 3


def test_runs_of_a_book_are_its_finished_ones_oldest_first() -> None:
    timed, open_ = make_forecast(), make_forecast(shape={"B": 1, "H": 64, "O": 64})
    runs = [make_measurement(timed, run=number, timing=make_timing(time * MS)) for number, time in enumerate((2, 3))]
    sealed = make_sealed(timed, open_)
    book = make_book(make_view(sealed, timed, *runs), make_view(sealed, open_))
    assert [(one.case, one.time_s) for one in measured_runs(book)] == [(timed.case, 2e-3), (timed.case, 3e-3)]
    voided = make_book(make_view(sealed, timed, *runs, state="void"))
    assert measured_runs(voided) == ()

"""Tests what a run of the same call tells, on the same device and on another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.analysis.regime_v2 import Resource
from ledger.forecasters import analytic, learned
from ledger.forecasters.analytic_constants import DECLARED
from ledger.forecasters.answer import Answer, Measured, Question
from ledger.forecasters.transfer import ELSEWHERE, HERE, transferred
from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware
from ledger.records import CaseV2, Regime
from ledger.workflow.question import make_question

LOADS: dict[Resource, int] = {"dram": 80_000, "l2": 40_000, "smem": 8_000, "arithmetic": 20_000}


def asked(hardware: str, rows: int = 2**24) -> Question:
    made = make_question(load_kernel("vector_add").kernel, load_hardware(hardware), shape={"N": rows}, dtype="fp32")
    case = CaseV2(
        kernel="module:add", shape={"N": rows}, dtype="fp32", hardware=hardware, implementation="cuda", config={},
        threads=None, arguments=(),
    )  # fmt: skip
    return replace(made, case=case)


def ran(hardware: str, time_s: float, *regimes: Regime, rows: int = 2**24) -> Measured:
    q = asked(hardware, rows)
    return Measured(q.case, q.work, q.roof, q.hardware, time_s, regimes, "run", LOADS, 0.5e-6)


def test_a_call_measured_here_takes_what_it_took_the_last_time() -> None:
    seen = transferred(asked("h200"), (ran("h200", 9e-5), ran("h100_sxm", 5e-5), ran("h200", 7e-5)))
    assert seen is not None
    assert (seen.time_s, seen.deviation, seen.loads) == (7e-5, HERE, LOADS)


def test_dram_gives_the_ratio_of_bandwidths_beside_the_launch() -> None:
    seen = transferred(asked("h200"), (ran("h100_sxm", 8e-5, "hbm-bound"),))
    assert seen is not None and seen.loads is not None
    there, here = (analytic.cost(asked(name), DECLARED).fixed for name in ("h100_sxm", "h200"))
    assert seen.time_s == pytest.approx(here + (8e-5 - there) * 3.35 / 4.8)
    assert seen.deviation == ELSEWHERE
    # The same bytes at a higher peak in a shorter time.
    assert seen.loads["dram"] == pytest.approx(80_000 * (3.35 / 4.8) * 8e-5 / seen.time_s, rel=1e-3)


def test_any_other_call_takes_as_much_longer_than_the_model_says() -> None:
    there, here = (analytic.expected_s(analytic.cost(asked(name), DECLARED)) for name in ("h100_sxm", "h200"))
    slow = transferred(asked("h200"), (ran("h100_sxm", there + 5e-4, "latency-bound"),))
    quick = transferred(asked("h200"), (ran("h100_sxm", 0.9 * there, "latency-bound"),))
    assert slow is not None and slow.time_s == pytest.approx(here + 5e-4)
    assert quick is not None and quick.time_s == pytest.approx(0.9 * here)


def test_another_size_is_another_call() -> None:
    assert transferred(asked("h200"), (ran("h100_sxm", 1e-4, rows=2**25),)) is None


def test_another_pass_is_another_call() -> None:
    question, run = asked("h200"), ran("h100_sxm", 1e-4)
    backward = run.case.model_copy(update={"config": {"pass": "backward"}})
    assert transferred(question, (replace(run, case=backward),)) is None


def test_the_learned_forecaster_says_so() -> None:
    answer = learned.forecast(replace(asked("h200"), earlier=(ran("h100_sxm", 8e-5, "hbm-bound"),)))
    assert isinstance(answer, Answer) and answer.terms[0].name == "the same call on h100_sxm"
    assert answer.regime == "hbm-bound" and answer.deviation == ELSEWHERE

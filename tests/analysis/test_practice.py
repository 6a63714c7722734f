"""Tests practice: even draws, estimates, facts of GPUs, what is kept between sittings, and what comes again when."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ledger_process import run_ledger
from samples import MS, make_book, make_forecast, make_hardware, make_measurement, make_sealed, make_timing, make_view

from ledger.analysis.campaign import Guess
from ledger.analysis.drill import Drill, answer, choose, drill_of, estimates_of, question_document, question_key
from ledger.analysis.estimate import Estimate
from ledger.analysis.hardware_quiz import choose_facts, facts_of, has_sparse_figures
from ledger.analysis.practice import calibration_text, review_of_cell, review_of_fact
from ledger.errors import InputError, LedgerError
from ledger.record_files import hardware_names, load_hardware
from ledger.records import Case
from ledger.workflow.practice import Practice
from ledger.workflow.seal import TOOL

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def cell(kernel: str, size: int, device: str = "toy"):
    case = Case(
        kernel=kernel, shape={"B": size, "H": 64, "O": 64}, dtype="fp16", hardware=device, implementation="triton",
        config={}, threads=None,
    )  # fmt: skip
    return make_forecast(case=case)


def drill_on(*forecasts) -> Drill:
    from samples import COUNTERS

    measured = {"timing": make_timing(2 * MS), "counters": COUNTERS, "counters_missing": None}
    views = [
        make_view(make_sealed(one, identity=f"{number:064x}"), one, make_measurement(one, **measured))
        for number, one in enumerate(forecasts, start=1 << 240)
    ]
    return drill_of(make_book(*views), TOOL)


def test_no_fact_of_a_gpu_is_0():
    # An estimate is judged by a factor.
    assert all(fact.truth > 0 for name in hardware_names(None) for fact in facts_of(load_hardware(name)))


def test_kernels_and_gpus_come_in_turn_however_many_cells_one_has():
    often = [cell("rmsnorm_matmul", size) for size in range(1, 31)]
    elsewhere = [cell("rmsnorm_matmul", size, "other") for size in range(1, 4)]
    drill = drill_on(*often, *elsewhere, cell("softmax", 1), cell("gemv", 1), cell("gemv", 2))
    for seed in range(5):
        drawn = choose(drill, count=6, seed=seed)
        kernels = Counter(question.forecast.case.kernel for question in drawn)
        assert sorted(kernels.values()) == [1, 2, 3], kernels
        devices = [q.forecast.case.hardware for q in drawn if q.forecast.case.kernel == "rmsnorm_matmul"]
        assert Counter(devices)["other"] >= 1


def test_a_kernel_with_most_of_the_cells_is_not_asked_about_in_every_sitting():
    many = [cell("rmsnorm_matmul", size) for size in range(1, 31)]
    drill = drill_on(*many, cell("gemv", 1), cell("softmax", 1))
    asked = Counter(choose(drill, count=1, seed=seed)[0].forecast.case.kernel for seed in range(300))
    # A third each; 60 and 140 are five standard deviations away.
    assert len(asked) == 3 and all(60 <= count <= 140 for count in asked.values()), asked


def test_questions_that_are_due_come_first_and_those_that_are_not_last():
    drill = drill_on(*(cell("softmax", size) for size in range(1, 5)))
    drawn = choose(drill, count=4, seed=1)
    first, second = question_key(drawn[0]), question_key(drawn[1])
    again = choose(drill, count=4, seed=1, rank={first: 2, second: 0})
    assert (question_key(again[0]), question_key(again[-1])) == (second, first)


def test_a_question_gives_neither_work_nor_roof_and_both_are_estimated():
    drill = drill_on(cell("softmax", 1))
    (question,) = drill.questions
    shown = question_document(question)
    assert not {"flops", "bytes", "roof", "floor_us"} & set(shown)
    assert not any("flop_per_byte" in key for key in shown)
    # By hand: 10 GFLOP over 1 GB are 10 FLOP/byte; 100 TFLOP/s over 1 TB/s 100.
    intensity, ridge = estimates_of(question, 8.0, 126.0)
    assert (intensity.truth, intensity.is_near) == (10.0, True)
    assert (ridge.truth, ridge.is_near, ridge.text) == (
        100.0, False, "ridge 100 FLOP/byte; you said 126, 1.26 times that",
    )  # fmt: skip


@pytest.mark.parametrize(("guess", "near"), [(80.0, True), (79.9, False), (125.0, True), (125.1, False), (None, False)])
def test_an_estimate_is_near_within_a_factor_of_1_25(guess: float | None, near: bool):
    assert Estimate("ridge", "FLOP/byte", guess, 100.0).is_near == near


def test_facts_of_a_gpu_are_those_of_its_profile():
    facts = {fact.key.removeprefix("card h200 "): fact for fact in facts_of(load_hardware("h200"))}
    # By hand: 989.4 TFLOP/s over 4.8 TB/s; 65,536 registers of 4 bytes.
    assert facts["ridge fp16_tensor"].truth == pytest.approx(989.4e12 / 4.8e12)
    assert (facts["registers"].truth, facts["sms"].truth, facts["bandwidth"].truth) == (256.0, 132.0, 4.8)
    trap = facts["sparse fp16_tensor"]
    assert "1978.8 TFLOP/s with sparsity" in trap.question and trap.truth == 989.4
    assert not any("989" in fact.question for fact in facts.values())
    caches = {fact.key: fact.truth for fact in facts_of(load_hardware("mi300x"))}
    assert caches["card mi300x l3"] == load_hardware("mi300x").memory.l3_capacity.value


def test_the_sparse_trap_is_set_for_gpus_whose_tables_have_it():
    assert has_sparse_figures(load_hardware("a100_sxm")) and not has_sparse_figures(load_hardware("t4"))
    assert not [fact for fact in facts_of(load_hardware("t4")) if " sparse " in fact.key]
    assert not has_sparse_figures(load_hardware("mi300x"))


def test_profiles_come_in_turn_and_a_quantity_that_is_missing_is_not_asked():
    profiles = [load_hardware(name) for name in ("t4", "h200", "l4")]
    drawn = choose_facts(profiles, count=6, seed=3)
    assert set(Counter(fact.hardware for fact in drawn).values()) == {2}
    assert drawn == choose_facts(profiles, count=6, seed=3)
    without = make_hardware(ceilings={"burst": make_hardware().ceilings["datasheet"].model_dump(mode="json")})
    assert {fact.key.removeprefix("card toy ") for fact in facts_of(without)} == {"l2", "smem", "sms", "registers"}


def judged(pct: float, **guess):
    drill = drill_on(cell("softmax", 1))
    return answer(drill, drill.questions[0], Guess(regime="hbm-bound", pct=pct, **guess))


@pytest.mark.parametrize(("pct", "grade"), [(50, "good"), (55, "good"), (56, "hard")])
def test_an_answer_is_graded_by_its_regime_and_its_gap(pct: float, grade: str):
    # The toy cell takes 2 ms of a roof of 1 ms: 50%, with DRAM at 85% of its peak.
    review = review_of_cell(judged(pct), key="k", at="a", sitting="s")
    assert (review.grade, review.right, review.gap) == (grade, True, pytest.approx(50 - pct))


def test_calibration_counts_intervals_and_probabilities_over_all_sittings():
    wide, narrow = judged(60, low=40, high=80, prob={"hbm-bound": 0.6, "l2-bound": 0.4}), judged(60, low=55, high=65)
    reviews = [review_of_cell(one, key="k", at="a", sitting=sitting) for one, sitting in ((wide, "1"), (narrow, "2"))]
    reviews.append(review_of_fact(Estimate("it is", "TB/s", 4.0, 4.8), key="card x", at="a", sitting="2"))
    assert calibration_text(reviews) == (
        "3 answers in 2 sittings",
        "2 of 2 regimes right",
        "error 10.0 points on average",
        "1 of 2 percents in their interval; meant are 80%",
        "of 1 regime you were 60% sure, and right in 100%",
        "1 of 1 facts of GPUs right",
    )
    assert calibration_text([]) == ()


def test_what_was_answered_well_comes_later_than_what_was_not(tmp_path: Path):
    pytest.importorskip("fsrs", reason="repetition in time needs fsrs")
    practice = Practice(tmp_path / "p.json", NOON)
    good = review_of_fact(Estimate("it is", "", 1.0, 1.0), key="card good", at="a", sitting="s")
    bad = review_of_fact(Estimate("it is", "", 9.0, 1.0), key="card bad", at="a", sitting="s")
    for one in (good, bad):
        practice.add(one, NOON)
        practice.add(one, NOON + timedelta(minutes=11))
    later = NOON + timedelta(minutes=13)
    assert practice.ranks(later) == {"card good": 2, "card bad": 0}
    assert practice.due(later) == 1
    held = Practice(tmp_path / "p.json", later)
    assert held.ranks(later) == practice.ranks(later) and len(held.history.reviews) == 4
    assert held.ranks(NOON + timedelta(days=60)) == {"card good": 0, "card bad": 0}


@pytest.mark.parametrize(
    "text",
    ["[1", "{}", '{"schema":"ledger/practice/2","cards":{},"reviews":[]}',
     '{"schema":"ledger/practice/1","cards":{"a":{"due":"soon"}},"reviews":[]}'],
)  # fmt: skip
def test_a_file_that_is_no_practice_is_named(tmp_path: Path, text: str):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(LedgerError, match=r"p\.json"):
        Practice(tmp_path / "p.json").ranks()


def test_a_broken_state_is_an_error_and_not_a_traceback(tmp_path: Path):
    pytest.importorskip("fsrs", reason="repetition in time needs fsrs")
    due = '{"due":"2026-01-01T00:00:00+00:00"}'
    (tmp_path / "p.json").write_text(f'{{"schema":"ledger/practice/1","cards":{{"a":{due}}},"reviews":[]}}')
    review = review_of_fact(Estimate("it is", "", 1.0, 1.0), key="a", at="a", sitting="s")
    with pytest.raises(InputError, match="no state of fsrs"):
        Practice(tmp_path / "p.json").add(review)


def ledger(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_ledger("drill", *arguments, cwd=folder)


def test_facts_are_answered_from_a_file_and_kept(tmp_path: Path):
    draw = ("--cards", "--hw", "h200", "--hw", "t4", "--seed", "1", "--count", "4", "--history", "p.json")
    asked = json.loads(ledger(*draw, "--json", folder=tmp_path).stdout)["questions"]
    assert [one["hardware"] for one in asked].count("h200") == 2
    (tmp_path / "a.json").write_text(json.dumps({one["key"]: 1 for one in asked}))
    done = ledger(*draw, "--answers", "a.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "of 4 within a factor of 1.25" in done.stdout and "4 answers in 1 sitting" in done.stdout
    assert len(json.loads((tmp_path / "p.json").read_text())["reviews"]) == 4
    (tmp_path / "a.json").write_text(json.dumps({one["key"]: True for one in asked}))
    refused = ledger(*draw, "--answers", "a.json", folder=tmp_path)
    assert refused.returncode == 2 and "expected a number above 0" in refused.stderr
    for wrong in (["--cards", "--hw", "h201"], ["--hw", "h200"], ["--cards"]):
        assert ledger(*wrong, folder=tmp_path).returncode == 2

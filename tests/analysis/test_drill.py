"""Drills as a student does: by a file of answers, on a terminal, and on a machine where no ledger is."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from ledger_process import run_ledger
from rich.console import Console
from samples import COUNTERS, failed, make_book, make_forecast, make_measurement, make_sealed, make_view, second

from ledger.analysis import score
from ledger.analysis.campaign import Guess
from ledger.analysis.drill import (
    answer,
    book_of,
    choose,
    drill_of,
    parse_estimates,
    question_document,
    result_document,
)
from ledger.analysis.practice import review_of_cell
from ledger.cli import drill as drill_command
from ledger.cli import drill_prompts, prompts
from ledger.errors import InputError, LedgerError
from ledger.records import CaseV2, ForecastV2, MeasurementV2
from ledger.render.score_table import render_scores
from ledger.workflow.drill_files import read_drill, write_drill
from ledger.workflow.drills import read_book, remembered_drill, shipped_drill
from ledger.workflow.seal import TOOL

ROOT = Path(__file__).parents[2]
if not (ROOT / ".git").exists():
    pytest.skip("this copy has no git history to make a drill of", allow_module_level=True)
shipped = cache(shipped_drill)
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    "COLUMNS": "100", "TERM": "dumb",
}  # fmt: skip


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_ledger("drill", *arguments, cwd=folder, env=ENVIRONMENT)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a drill file of two cells."""
    path = tmp_path_factory.mktemp("few") / "few.json"
    write_drill(path, shipped().model_copy(update={"questions": shipped().questions[:2]}))
    return path


def guesses(questions, **changes):
    return {q["cell"]: {"regime": "hbm-bound", "pct": 50.0, **changes} for q in questions}


def test_shipped_cells_cover_several_regimes_and_show_no_answer():
    regimes = {answer(shipped(), q, Guess(regime="hbm-bound", pct=50)).view.runs[0].verification.measured_regime
               for q in shipped().questions}  # fmt: skip
    assert {"hbm-bound", "latency-bound", "compute-bound"} <= regimes
    for question in shipped().questions:
        shown = json.dumps(question_document(question))
        assert "measured" not in shown and "regime" not in shown and "percent" not in shown


def test_a_guess_is_judged_like_a_forecast():
    question = next(q for q in shipped().questions if q.forecast.cell == "matmul-K4096-M4096-N4096-fp16")
    told = result_document(answer(shipped(), question, Guess(regime="compute-bound", pct=90, low=80, high=95)))
    # By hand: 2 · 4096³ operations over 989.4 TFLOP/s are 138.91 µs.
    assert told["measured_percent"] == pytest.approx(100 * 138.91 / told["measured_us"], abs=0.01)
    assert told["gap_points"] == pytest.approx(told["measured_percent"] - 90)
    assert told["regime_right"] and "SM clock" in told["explanation"]


def test_score_is_that_of_ledger_score():
    questions = choose(shipped(), count=3, seed=1)
    answered = [answer(shipped(), q, Guess(regime="hbm-bound", pct=50, prob={"hbm-bound": 1.0})) for q in questions]
    (scored,) = score.score_book(book_of(answered))
    gaps = [result_document(one)["gap_points"] for one in answered]
    hits = [result_document(one)["regime_right"] for one in answered]
    assert scored.measured == 3
    assert scored.bias == pytest.approx(sum(gaps) / 3)
    assert scored.error == pytest.approx(sum(map(abs, gaps)) / 3)
    assert scored.regime_right == pytest.approx(sum(hits) / 3)
    assert scored.brier == pytest.approx(2 * (3 - sum(hits)) / 3)


def test_same_seed_asks_the_same_and_each_shape_once_first():
    assert choose(shipped(), count=6, seed=7) == choose(shipped(), count=6, seed=7)
    cases = [q.forecast.case for q in choose(shipped(), count=13, seed=7)]
    assert len({(case.kernel, tuple(case.shape.items())) for case in cases}) == 13
    every = len(shipped().questions)
    assert len(choose(shipped(), count=every + 1, seed=7)) == every


def test_a_ledger_gives_its_measured_cells_only(tmp_path: Path):
    good, open_one, bad = (make_forecast(shape={"B": b, "H": 64, "O": 64}) for b in (1, 2, 3))
    sealed = make_sealed(good, open_one, bad)
    book = make_book(
        make_view(sealed, good, make_measurement(good, counters=COUNTERS, counters_missing=None)),
        make_view(sealed, open_one),
        make_view(sealed, bad, failed(bad)),
    )
    found = drill_of(book, TOOL)
    assert [q.forecast.cell for q in found.questions] == [good.cell]
    write_drill(tmp_path / "d.json", found)
    assert read_drill(tmp_path / "d.json") == found


def test_a_cell_of_format_2_with_text_in_its_configuration_is_drilled_from_a_file(tmp_path: Path):
    first = make_forecast()
    case = CaseV2(**{**second(CaseV2, dict(first.case)), "config": {"variant": "cuda"}})
    sealed = ForecastV2(**second(ForecastV2, {**dict(first), "case": case}))
    fields = dict(make_measurement(sealed, counters=COUNTERS, counters_missing=None))
    del fields["schema_"]
    measured = MeasurementV2(**second(MeasurementV2, fields))
    write_drill(tmp_path / "d.json", drill_of(make_book(make_view(make_sealed(sealed), sealed, measured)), TOOL))
    found = read_drill(tmp_path / "d.json")
    told = result_document(answer(found, found.questions[0], Guess(regime="hbm-bound", pct=50)))
    assert (found.questions[0].forecast, told["measured_percent"]) == (sealed, pytest.approx(50.0))


def test_a_ledger_without_measured_cells_is_told():
    with pytest.raises(InputError, match="no cell of this ledger is measured"):
        drill_of(make_book(), TOOL)


def test_shipped_cells_are_those_verified_in_this_repository():
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history")
    book = read_book(ROOT)
    assert remembered_drill(ROOT) == drill_of(book, TOOL)
    verified = {(c.sealed.id, c.forecast.cell): c.counted for c in book.cells if c.counted}
    for question in shipped().questions:
        run = verified[question.seal, question.forecast.cell]
        mine = result_document(answer(shipped(), question, Guess(regime="hbm-bound", pct=50)))
        assert mine["measured_percent"] == run.verification.measured_percent
        assert mine["measured_regime"] == run.verification.measured_regime


def test_a_ledger_is_judged_once_a_commit(monkeypatch: pytest.MonkeyPatch):
    first = remembered_drill(ROOT)
    monkeypatch.setattr("ledger.workflow.drills.judged_ledger", lambda *_: pytest.fail("judged again"))
    assert remembered_drill(ROOT) == first


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "d.json"), ("{}", "d.json"), ('{"schema":"ledger/drill/1","questions":[]}', "d.json"), ("[1", "d.json")],
)
def test_a_foreign_drill_file_is_told(tmp_path: Path, text: str, words: str):
    (tmp_path / "d.json").write_text(text)
    with pytest.raises(LedgerError, match=words):
        read_drill(tmp_path / "d.json")


# The command


def test_answers_in_a_file_are_scored_outside_any_repository(tmp_path: Path):
    asked = run("--seed", "5", "--count", "3", "--json", folder=tmp_path)
    assert asked.returncode == 0, asked.stderr
    document = json.loads(asked.stdout)
    assert document["from"] == "the cells that ship with ledger" and len(document["questions"]) == 3
    (tmp_path / "a.json").write_text(json.dumps(guesses(document["questions"], low=40.0, high=60.0, ridge=206.0)))
    done = run("--seed", "5", "--count", "3", "--answers", "a.json", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [r["cell"] for r in told["results"]] == [q["cell"] for q in document["questions"]]
    assert told["score"]["measured"] == 3 and told["score"]["intervals"] == 3
    words = run("--seed", "5", "--count", "3", "--answers", "a.json", folder=tmp_path).stdout
    assert "bias, points" in words and "its sealed forecast" in words and "you said 206" in words
    assert [one["what"] for one in told["results"][0]["estimates"]] == ["intensity", "ridge"]
    assert "why" not in told["results"][0]["sealed_forecast"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"regime": "dram"}, "regime"),
        ({"pct": 0}, "pct"),
        ({"pct": 120}, "pct"),
        ({"low": 60.0, "high": 70.0}, "interval"),
        ({"low": 60.0}, "interval"),
        ({"prob": {"hbm-bound": 0.5}}, "probabilities"),
        ({"colour": "red"}, "colour"),
        ({"intensity": -1}, "intensity is -1; expected FLOP/byte, 0 or more"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_wrong_answer_file_is_named(tmp_path: Path, few: Path, change: dict, words: str):
    questions = json.loads(run("--from", str(few), "--json", folder=tmp_path).stdout)["questions"]
    (tmp_path / "a.json").write_text(json.dumps(guesses(questions, **change)))
    done = run("--from", str(few), "--answers", "a.json", folder=tmp_path)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_a_missing_answer_and_no_terminal_are_told(tmp_path: Path, few: Path):
    (tmp_path / "a.json").write_text("{}")
    assert "no answer for" in run("--from", str(few), "--answers", "a.json", folder=tmp_path).stderr
    # Both are told before cells are read.
    assert "no terminal" in run("--from", "nowhere", folder=tmp_path).stderr
    assert "nobody.json: cannot be read" in run("--from", "nowhere", "--answers", "nobody.json", folder=tmp_path).stderr
    assert run("--from", "nowhere", "--json", folder=tmp_path).returncode == 2


@cache
def without_operations() -> tuple:
    return tuple(one for one in shipped().questions if one.forecast.work.flops == 0)


ANSWERS = {"Arithmetic": "12", "Ridge": "200", "Which": "hbm-bound", "Percent": "50", "No": "", "How": "60"}
"""What a student types, by the first word of the question."""


def test_every_shipped_question_is_asked_judged_and_scored_in_every_mode(monkeypatch: pytest.MonkeyPatch, capsys):
    asked = []
    monkeypatch.setattr(prompts, "line", lambda text: asked.append(text.split()[0]) or ANSWERS[asked[-1]])
    found, without = shipped(), len(without_operations())
    typed = drill_prompts.ask_questions(found, found.questions, "here")
    assert capsys.readouterr().err.count("makes no counted operations") == without > 0
    assert asked.count("Arithmetic") == len(found.questions) - without
    assert asked.count("Ridge") == len(typed) == len(found.questions)
    given = {"regime": "hbm-bound", "pct": 50.0, "intensity": 12.0, "ridge": 200.0}
    for question in found.questions:
        (one,) = drill_command._judged(found, [question], {question.forecast.cell: given}, what="a")
        drill_prompts.show_result(one)
        json.dumps([question_document(question), result_document(one)], allow_nan=False)
        review_of_cell(one, key="k", at="", sitting="")
    for some in (typed, [one for one in typed if one.question.forecast.work.flops == 0]):
        render_scores(score.score_book(book_of(some)), Console(file=io.StringIO()))


def test_of_a_call_without_operations_no_intensity_is_asked_and_0_is_right():
    question = without_operations()[0]
    assert question_document(question)["estimates"] == ["ridge"]
    for intensity, is_near, words in ((0, True, "right"), (12.0, False, "not 0"), (None, False, "FLOP/byte")):
        (estimate, *_) = parse_estimates(
            {question.forecast.cell: {"intensity": intensity, "ridge": 206.0}}, question, what="a"
        )
        assert estimate.is_near == is_near and estimate.text.endswith(words)


def test_a_callable_is_asked_with_its_arguments_and_the_work_that_they_do_not_tell(monkeypatch, capsys):
    named = {one.forecast.case.kernel.rpartition(".")[2]: one for one in shipped().questions}
    paged, products = named["conch:paged_attention"], named["matmul"]
    shown = question_document(paged)
    assert shown["arguments"][-2:] == ["table=int32[B,L]<16384", "lengths=int32[B]<2048"]
    assert shown["work"] == {"flops": paged.forecast.work.flops, "bytes": paged.forecast.work.bytes}
    assert (question_document(products)["arguments"], question_document(products)["work"]) == (None, None)
    (counted, *_) = (one for one in shipped().questions if one.forecast.case.config.get("work") == "counted")
    assert question_document(counted)["work"] is None and question_document(counted)["arguments"]
    monkeypatch.setattr(prompts, "line", lambda text: ANSWERS[text.split()[0]])
    drill_prompts.ask_questions(shipped(), [paged], "here")
    words = " ".join(capsys.readouterr().err.split())
    assert "lengths=int32[B]<2048" in words and "work, as its forecaster gave it: 537 MFLOP over 135 MB" in words


@pytest.fixture(scope="module")
def products_of_an_h200(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a drill file of products in fp16 and bf16 on an H200, whose ridge point is 206.1."""
    path = tmp_path_factory.mktemp("products") / "products.json"
    wanted = [("h200", "matmul", dtype) for dtype in ("fp16", "bf16")]
    cases = [(one, one.forecast.case) for one in shipped().questions]
    chosen = tuple(one for one, case in cases if (case.hardware, case.kernel, case.dtype) in wanted)
    write_drill(path, shipped().model_copy(update={"questions": chosen}))
    return path


def test_a_student_at_a_terminal(tmp_path: Path, products_of_an_h200: Path):
    pexpect = pytest.importorskip("pexpect", reason="a terminal needs pexpect")
    child = pexpect.spawn(
        sys.executable, ["-m", "ledger", "drill", "--from", str(products_of_an_h200), "--seed", "12", "--count", "2"],
        cwd=str(tmp_path), env={**ENVIRONMENT, "XDG_DATA_HOME": str(tmp_path / "data")},
        encoding="utf-8", timeout=120, dimensions=(40, 100),
        # A test run started in the background inherits an ignored SIGINT; a terminal never does.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    child.expect("1 of 2")
    child.expect("Arithmetic intensity")
    assert "the ridge is at" not in child.before
    child.sendline("many")
    child.expect("expected a number")
    child.expect("Arithmetic intensity")
    child.sendline("1")
    child.expect("Ridge point")
    child.sendline("206.1")
    child.expect("you said 206.1, right")
    child.expect("the ridge is at")
    child.expect("Which resource bound it")
    assert "measured" not in child.before
    child.sendline("nothing")
    child.expect("expected one of those above")
    child.expect("Which resource bound it")
    child.sendline("hbm")
    child.expect("Percent of the roof")
    child.sendline("300")
    child.expect("above 0 and at most 100")
    child.sendline("50")
    child.expect("No lower than")
    child.sendline("")
    child.expect("How sure of the regime")
    child.sendline("80")
    child.expect("measured [a-z0-9]+-bound")
    child.expect("2 of 2")
    child.expect("Arithmetic intensity")
    child.sendline("")
    child.expect("Ridge point")
    child.sendline("")
    child.expect("Which resource bound it")
    child.sendline("lat")
    child.expect("Percent of the roof")
    child.sendline("30")
    child.expect("No lower than")
    child.sendline("60")
    child.expect("No higher than")
    child.sendline("80")
    child.expect("does not hold 30")
    child.expect("No lower than")
    # A signal that comes just before the read begins waits for the next key: ask again.
    for _ in range(8):
        child.sendintr()
        if child.expect(["1 of 1", pexpect.TIMEOUT], timeout=10) == 0:
            break
    else:
        pytest.fail("an interrupted drill did not score what was answered")
    child.expect("1 answer in 1 sitting")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    kept = json.loads((tmp_path / "data" / "roofline-ledger" / "practice.json").read_text())["reviews"]
    assert [(one["sure"], len(one["estimates"])) for one in kept] == [(0.8, 2)]


def test_the_score_is_readable_at_80_columns():
    answered = [answer(shipped(), q, Guess(regime="hbm-bound", pct=50)) for q in choose(shipped(), count=2, seed=1)]
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    render_scores(score.score_book(book_of(answered)), console)
    assert "you, blind" in console.export_text()

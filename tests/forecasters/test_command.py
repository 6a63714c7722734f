"""Tests programs as forecasters, with real processes: what they are asked, and every way in which they may fail."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from samples import MEMORY_WORK, TOY, make_forecast

from ledger.errors import InputError
from ledger.forecasters.answer import Answer, NoAnswer, Question
from ledger.forecasters.command import MAX_OUTPUT_BYTES, Program, participant
from ledger.forecasters.registry import participants_named
from ledger.roofline import roof_of

ROOF = roof_of(TOY, "fp16_tensor")
QUESTION = Question(make_forecast().case, MEMORY_WORK, ROOF, TOY)
GOOD = {"regime": "hbm-bound", "percent": 80, "low": 70, "high": 90, "why": "as its neighbour"}


def program(folder: Path, text: str, limit_s: float = 30.0) -> Program:
    file = folder / "ask.py"
    file.write_text(text)
    return Program("mine", (sys.executable, str(file)), limit_s)


def printing(value: object) -> str:
    return f"import sys; sys.stdin.read(); print({json.dumps(value)!r})"


def reason(folder: Path, text: str, limit_s: float = 30.0) -> str:
    said = program(folder, text, limit_s).forecast(QUESTION)
    assert isinstance(said, NoAnswer), said
    return said.reason


def test_a_program_reads_its_question_and_its_answer_is_taken(tmp_path: Path) -> None:
    text = (
        "import json, sys\nq = json.load(sys.stdin)\n"
        "assert q['schema'] == 'ledger/question/1' and q['hardware']['name'] == 'toy'\n"
        "print(json.dumps({'regime': q['regimes'][0], 'percent': 1e3 / q['time_lower_bound_us'] * 50}))\n"
    )
    said = program(tmp_path, text).forecast(QUESTION)
    assert isinstance(said, Answer)
    # 1 ms at the roof, so 50% of it is 2 ms.
    assert (said.regime, said.percent, said.time_s) == ("hbm-bound", 50.0, pytest.approx(2e-3))
    transcript = json.loads(said.transcript or b"")
    assert transcript["asked"]["work"]["flops"] == MEMORY_WORK.flops
    assert json.loads(transcript["printed"])["percent"] == 50.0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"regime": "slow", "percent": 5}, "regime: got 'slow'; expected hbm-bound, "),
        ({"regime": "hbm-bound", "percent": 101}, "percent: got 101; expected at most 100"),
        ({"regime": "hbm-bound"}, "percent: not given"),
        ({**GOOD, "low": None}, "one end of an interval"),
        ({**GOOD, "low": 85}, "does not hold 80"),
        ({**GOOD, "probabilities": {"hbm-bound": 0.5}}, "probabilities sum to 0.5"),
        ({**GOOD, "time": 3}, "key 'time' (did you mean regime?) is not known; expected one of: high, low, percent, "),
        ([1], "got a list; expected an object"),
        ({**GOOD, "percent": 1e-320}, "expected at least 0.001"),
        ({**GOOD, "terms": [{"name": "x", "value": 1e308, "unit": "s"}]}, "expected at most 1e+24"),
    ],
    ids=[
        "regime",
        "percent",
        "missing",
        "half-interval",
        "outside",
        "probabilities",
        "unknown",
        "list",
        "no-percent",
        "endless",
    ],
)
def test_an_answer_of_another_form_is_none(tmp_path: Path, answer: object, words: str) -> None:
    assert words in reason(tmp_path, printing(answer))


def test_what_is_no_json_and_what_fails_is_told(tmp_path: Path) -> None:
    assert "not JSON" in reason(tmp_path, "print('about 80%')")
    assert "ended with 3: quota exceeded" in reason(
        tmp_path, "import sys; print('quota exceeded', file=sys.stderr); sys.exit(3)"
    )
    missing = Program("mine", ("/nonexistent/program",)).forecast(QUESTION)
    assert isinstance(missing, NoAnswer) and "cannot be run" in missing.reason


def test_time_is_bounded_and_so_is_that_of_what_it_starts(tmp_path: Path) -> None:
    late = tmp_path / "late"
    child = f"import time; time.sleep(3); open({str(late)!r}, 'w')"
    text = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {child!r}])\ntime.sleep(60)\n"
    start = time.monotonic()
    assert "no answer within 1 s" in reason(tmp_path, text, limit_s=1.0)
    assert time.monotonic() - start < 20
    time.sleep(3.5)
    assert not late.exists()


def test_output_is_bounded(tmp_path: Path) -> None:
    endless = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    assert f"more than {MAX_OUTPUT_BYTES} bytes" in reason(tmp_path, endless)


def test_a_program_that_does_not_read_may_answer(tmp_path: Path) -> None:
    assert isinstance(program(tmp_path, f"print({json.dumps(GOOD)!r})").forecast(QUESTION), Answer)


def test_the_seal_names_the_program_without_folders_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text("print(1)\r\n")
    one = participant(f"gpt=python {tmp_path / 'ask.py'} --model x")
    assert one.command == ("python", "ask.py", "--model", "x")
    assert one.sources is not None and one.sources() == {"ask.py": b"print(1)\n"}
    assert not one.repeatable


@pytest.mark.parametrize("text", ["gpt", "gpt=", "=python", "g t=python", "analytic=python", "gpt='python"])
def test_another_form_of_a_program_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--program"):
        participant(text)


def test_programs_take_part_beside_built_in_forecasters() -> None:
    one = participant("gpt=python ask.py")
    assert [each.name for each in participants_named("naive-roofline,gpt", [one])] == ["naive-roofline", "gpt"]
    assert [each.name for each in participants_named(None, [one])] == ["gpt"]
    with pytest.raises(InputError, match="duplicate name"):
        participants_named(None, [one, one])

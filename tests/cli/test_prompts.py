"""Tests the questions that a person is asked about what had been timed before."""

from __future__ import annotations

import io
import json
import sys
from typing import get_args

import pytest
from desk import ENVIRONMENT, Desk

from ledger.cli.prompts import REGIMES, ask, percent, probability, sight
from ledger.errors import InputError
from ledger.records import Regime


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("\n", {"sight": None, "known": ""}),
        ("blind\n", {"sight": "blind", "known": ""}),
        ("half\nnear\n\nM=48 took 90 µs\n", {"sight": "near", "known": "M=48 took 90 µs"}),
    ],
    ids=["undeclared", "blind", "asked again"],
)
def test_what_had_been_timed_is_asked_for(answers, said, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    assert sight() == said


def test_a_callable_is_answered_with_its_command(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("mypkg.ops:swiglu\n"))
    with pytest.raises(InputError, match="the input ended"):
        ask(tmp_path)
    assert "of a callable: ledger predict mypkg.ops:swiglu --args" in " ".join(capsys.readouterr().err.split())


def test_every_regime_is_explained():
    assert set(REGIMES) == set(get_args(Regime))


def test_a_percent_may_have_its_sign():
    assert percent("60%") == percent("60") == 60
    for text in ("", "sixty", "%", "600%", "nan"):
        with pytest.raises(InputError, match="expected a percent"):
            percent(text)


@pytest.mark.parametrize("text", ["80", "80%", "100", "33.3333", "0.0001%"])
def test_a_percent_leaves_the_rest_to_the_other_regimes(text: str):
    found = probability(text, "l2-bound")
    assert found is not None
    millionths = {name: round(share * 1_000_000) for name, share in found.items()}
    assert sum(millionths.values()) == 1_000_000
    assert millionths["l2-bound"] == round(float(text.rstrip("%")) * 10_000)
    others = [share for name, share in millionths.items() if name != "l2-bound"]
    assert max(others) - min(others) <= 1


def test_probabilities_of_regimes_are_taken_as_an_option_has_them():
    assert probability("", "l2-bound") is None
    assert probability("l2-bound=0.8,hbm-bound=0.2", "l2-bound") == {"l2-bound": 0.8, "hbm-bound": 0.2}
    for text in ("0", "101", "maybe", "0.8", "1"):
        with pytest.raises(InputError, match="expected a percent"):
            probability(text, "l2-bound")


DIALOGUE = (
    ("Kernel", "vec"), ("Hardware", "h200"), ("Data type", "fp16"), (r"Shape \(N=…\)", "N=4096"), ("Ceilings", "data"),
    ("the ridge is at", None), ("main memory: bytes", None),
    ("Which resource binds it", "memory"), (r"did you mean\s+hbm-bound", "hbm"),
    ("Percent of the roof", "?"), ("time lower bound", "60%"), ("No lower than", "70"), ("No higher than", "80"),
    ("does not hold 60", ""), ("Probability of that regime", "80"), ("Why", "it streams"), ("Timed before", "blind"),
    ("vector_add", None), (r"Seal this forecast.*\[y/N\]: ", None),
)  # fmt: skip


@pytest.mark.parametrize(("answer", "sealed"), [("", 0), ("yes", 1)])
def test_a_person_is_shown_the_forecast_and_asked_before_it_is_sealed(tmp_path, answer, sealed):
    pexpect = pytest.importorskip("pexpect", reason="a terminal needs pexpect")
    desk = Desk(tmp_path / "ledger")
    child = pexpect.spawn(
        sys.executable, ["-m", "ledger", "predict"], cwd=str(desk.root),
        env={**ENVIRONMENT, "TERM": "dumb"}, encoding="utf-8", timeout=20, dimensions=(50, 140),
    )  # fmt: skip
    for expected, reply in DIALOGUE:
        child.expect(expected)
        if reply is not None:
            child.sendline(reply)
    child.sendline(answer)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    cells = json.loads(desk.ledger("status", "--json"))["cells"]
    assert len(cells) == sealed


def test_an_input_that_ends_seals_nothing(tmp_path):
    pexpect = pytest.importorskip("pexpect", reason="a terminal needs pexpect")
    desk = Desk(tmp_path / "ledger")
    child = pexpect.spawn(
        sys.executable, ["-m", "ledger", "predict"], cwd=str(desk.root), env=ENVIRONMENT, encoding="utf-8", timeout=60
    )
    child.expect("Kernel")
    child.sendeof()
    child.expect("the input ended before the last answer; nothing is sealed")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2

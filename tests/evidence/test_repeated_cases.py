"""Tests that every forecast of one case is scored, whatever its name and whichever of them was measured."""

from __future__ import annotations

import pytest
from attacks import twenty
from builders import Ledger, forecast

from ledger.analysis.score import score_book
from ledger.evidence.audit import audit
from ledger.evidence.repeated_cases import REPEATED


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger")
    made.write("README.md", b"a project\n")
    made.commit("begin")
    return made


def test_twenty_percents_of_one_case_are_twenty_forecasts(ledger):
    """The run reaches 0.2496%; the forecasts are 0.25% to 5%, so that their mean error is 2.625 - 0.2496."""
    sealed = ledger.seal(*twenty())
    ledger.measure(sealed, cell=0)
    book = ledger.book()
    (score,) = score_book(book)
    assert (score.sealed, score.measured) == (20, 20)
    assert score.error == pytest.approx(2.625 - 0.2496, abs=1e-3)
    (finding,) = [found for found in book.findings if found.code == REPEATED]
    assert finding.message.startswith("20 cells are one case, and each is scored: ")
    assert sealed.prediction.cells[19].cell in finding.message
    assert [cell.state for cell in book.cells] == ["measured"] + 19 * ["open"]
    assert book.cells[19].scored is not None and book.cells[19].counted is None


def test_the_verdict_of_an_audit_tells_forecasts_that_another_run_scores_from_open_ones(ledger):
    sealed = ledger.seal(*twenty()[:3])
    ledger.measure(sealed, cell=0)
    other = ledger.seal(forecast(B=8))
    assert audit(str(ledger.root)).reason == "4 forecasts: 1 measured, 2 scored by their runs, 1 open"
    ledger.measure(other)
    ledger.seal(forecast(B=2), forecast(B=4))
    assert audit(str(ledger.root)).reason == "6 forecasts: 2 measured, 2 scored by their runs, 2 open"


def test_a_withdrawn_repeat_is_scored_too(ledger):
    sealed = ledger.seal(*twenty()[:3])
    ledger.void(sealed, sealed.prediction.cells[2].cell)
    ledger.measure(sealed, cell=0)
    (score,) = score_book(ledger.book())
    assert score.measured == 3


def test_a_revised_forecast_is_scored_by_the_run_of_its_revision(ledger):
    first, second = ledger.seal(), ledger.seal(forecast(percent_milli=250))
    ledger.measure(second)
    ledger.seal(forecast(percent_milli=240))
    cells = ledger.book().cells
    assert [cell.scored is not None for cell in cells] == [True, True, False], "the last one knew the run"
    assert cells[0].answer is not None and cells[0].answer.verification.predicted_percent == 1.0
    ledger.void(first)
    assert ledger.book().cells[0].scored is None, "withdrawn: counted as missing"


def test_another_configuration_is_another_case(ledger):
    case = forecast().case.model_copy(update={"config": {"block_m": 128}})
    other = forecast().model_copy(update={"case": case, "cell": f"{forecast().cell}-wide"})
    ledger.measure(ledger.seal(forecast(), other))
    book = ledger.book()
    assert not book.findings
    assert [cell.scored is not None for cell in book.cells] == [True, False]

"""Tests the page for an interviewer: what it says of sight, order, scores and gaps in the record, and hostile text."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest
from samples import MS, make_book, make_forecast, make_measurement, make_sealed, make_timing, make_view
from scored import view

from ledger.analysis.book import Commit, Voided
from ledger.analysis.seal_lines import seal_lines
from ledger.evidence.audit_result import NOT_PROVEN, Audit
from ledger.records import Finding, Void
from ledger.render.audit_page import audit_page

FIRST = make_forecast(shape={"B": 1, "H": 64, "O": 64}, percent_milli=60_000)
SECOND = make_forecast(shape={"B": 2, "H": 64, "O": 64})
SEALED = make_sealed(FIRST, SECOND, campaign="grid")


def book(**changes):
    """Return a seal of two cells, one measured a day later, 10 points below its forecast, and one withdrawn."""
    measured = make_view(SEALED, FIRST, make_measurement(FIRST, timing=make_timing(2 * MS)))
    commit = Commit(sha="3" * 40, when="2026-01-03T00:00:00+00:00", author="Ada", position=10)
    void = Void(
        schema="ledger/void/1", tool=SEALED.prediction.tool, seal=SEALED.id, cell=SECOND.cell,
        why="a typing mistake", extensions={},
    )  # fmt: skip
    voided = Voided("e" * 64, "predictions/ee/e.json", commit, void)
    return make_book(measured, make_view(SEALED, SECOND, state="void", sight="near"), voids=(voided,), **changes)


def text_of(result: Audit) -> str:
    page = re.sub(r"<style>.*?</style>", "", audit_page(result), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def audited(held, **changes) -> Audit:
    fields = {"source": "https://example.org/a", "verdict": "holds", "reason": "1 of 2", "notes": (), **changes}
    return Audit(book=held, findings=held.findings if held else (), **fields)


def test_a_brier_score_is_shown_only_where_a_forecast_states_probabilities():
    for stated, shown in ((None, "–"), ({"hbm-bound": 800_000, "l2-bound": 200_000}, "0.08")):
        one = view(percent=50, measured=50, regime="hbm-bound", probabilities_ppm=stated)
        assert f"ada blind 1 of 1 100% 0.0 0.0 – {shown}" in text_of(audited(make_book(one)))


def test_a_seal_is_summed_up_with_its_dates_and_its_sights():
    (line,) = seal_lines(book())
    assert (line.cells, dict(line.sights), line.outcome.measured) == (2, {"blind": 1, "near": 1}, 1)
    assert (line.hours, line.outcome.error) == (24.0, pytest.approx(10.0))
    assert line.measured == ("2026-01-02T00:00:00+00:00", "2026-01-02T00:00:00+00:00")


@pytest.mark.parametrize("when", ["", "yesterday", "2026-01-01T00:00:00"])
def test_a_date_that_is_none_gives_no_hours(when: str):
    held = book()
    sealed = dataclasses.replace(SEALED, commit=dataclasses.replace(SEALED.commit, when=when))
    (line,) = seal_lines(make_book(dataclasses.replace(held.cells[0], sealed=sealed)))
    assert line.hours is None


def test_the_page_says_what_was_blind_when_what_was_left_out_and_what_it_does_not_prove():
    text = text_of(audited(book()))
    assert "holds: 1 of 2" in text
    assert "ada blind 1 of 1" in text and "ada near 0 of 1" in text
    assert "2026-01-01 00:00 grid 1 blind, 1 near 2026-01-02 00:00 24 h 1 of 2 " in text
    assert "1 void: withdrawn in the open" in text and text.count("a typing mistake") == 2
    assert "10.0 points below the forecast (50.0% for 60%)" in text
    assert all(sentence in text for sentence in NOT_PROVEN)


def test_a_refused_or_empty_audit_shows_its_reasons_and_no_scores():
    refusal = Finding(code="edited", severity="refused", path="predictions/x.json", message="changed in a commit")
    text = text_of(audited(book(findings=(refusal,)), verdict="refused", reason="1 finding"))
    assert "refused edited: predictions/x.json: changed in a commit" in text
    assert "Timeline" not in text and NOT_PROVEN[0] in text
    assert "no repository" in text_of(audited(None, verdict="undetermined", reason="no repository"))


def test_hostile_text_is_shown_and_never_run():
    held = book()
    named = dataclasses.replace(
        SEALED, prediction=SEALED.prediction.model_copy(update={"campaign": "<script>x</script>\u202e"})
    )
    page = audit_page(audited(make_book(dataclasses.replace(held.cells[0], sealed=named)), source="<img src=x>"))
    assert "<script" not in page and "<img" not in page and "\u202e" not in page
    assert "&lt;script&gt;x&lt;/script&gt;&lt;U+202E&gt;" in page
    assert "default-src 'none'" in page and "src=" not in page.replace("&lt;img src=x&gt;", "")

"""Tests that tables on a terminal of 80 columns cut off no words: numbers, levels and grades stay readable."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from samples import make_book, make_forecast, make_measurement, make_sealed, make_view

from ledger.analysis.cell_history import histories
from ledger.analysis.report_rows import rows
from ledger.evidence.audit_result import NOT_PROVEN, Audit
from ledger.render import report_text as lines
from ledger.render.audit_text import render_audit
from ledger.render.cell_history_text import render_histories
from ledger.render.report import fit, render
from ledger.render.tables import print_rows

FORECAST = make_forecast()


def printed(render_book, subject, width: int) -> str:
    screen = io.StringIO()
    render_book(subject, Console(file=screen, width=width, color_system=None))
    return screen.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_an_audit_shows_levels_sight_and_grade_whole(width):
    view = make_view(make_sealed(FORECAST), FORECAST, make_measurement(FORECAST))
    view = replace(view, sight=None, binding="positions only", levels=(0,))
    words = printed(render_audit, Audit("here", "holds", "for a test", make_book(view), ()), width)
    (heading,) = [line for line in words.splitlines() if line.startswith("cell ")]
    assert heading.split() == ["cell", "state", "levels", "sight", "predicted", "measured", "grade"]
    assert "undeclared" in words and "…" not in words


@pytest.mark.parametrize("width", [60, 80])
def test_what_an_audit_proves_is_wrapped_at_words(width):
    view = make_view(make_sealed(FORECAST), FORECAST, make_measurement(FORECAST))
    words = printed(render_audit, Audit("here", "holds", "for a test", make_book(view), ()), width)
    proven = words[words.index("level 0") : words.index("verdict:")]
    assert max(map(len, proven.splitlines())) <= width
    assert all(sentence in " ".join(proven.split()) for sentence in NOT_PROVEN)


def test_an_audit_of_every_level_keeps_to_80_columns():
    sealed = make_sealed(FORECAST, campaign="a_campaign_with_a_rather_long_name")
    view = make_view(sealed, FORECAST, make_measurement(FORECAST))
    view = replace(view, sight=None, levels=(0, 1, 2, 3))
    words = printed(render_audit, Audit("here", "holds", "for a test", make_book(view), ()), 80)
    assert "compute-bound" in words or "hbm-bound" in words
    assert "(its own date)" in " ".join(words.split())
    assert max(map(len, words.splitlines())) <= 80


@pytest.mark.parametrize("width", range(20, 40))
def test_what_follows_a_broken_word_is_not_indented(width):
    screen = io.StringIO()
    words = "rmsnorm_matmul-B1-H2048-O2048-fp16 (1 cell)"
    print_rows(Console(file=screen, width=width), ("what", "b"), [(words, "two")], folding=("what",))
    told = screen.getvalue().splitlines()[1:]
    assert not any(line.startswith(" ") for line in told)
    assert "".join("".join(told).replace("two", "").split()) == words.replace(" ", "")


@pytest.mark.parametrize("width", [80, 100])
def test_a_history_explains_the_columns_that_it_has(width):
    view = make_view(make_sealed(FORECAST), FORECAST, make_measurement(FORECAST))
    words = printed(render_histories, histories(rows(make_book(view))), width)
    words = " ".join(words.split())
    assert ("gap cause 1" in words) == ("Cause: the largest" in words) == (width == 100)


def test_a_report_keeps_its_gap_beside_a_long_sight():
    sealed = make_sealed(FORECAST)
    view = make_view(sealed, FORECAST, make_measurement(FORECAST))
    words = printed(render, make_book(replace(view, sight=None, revises=("an earlier one",))), 80)
    assert "…" not in words and "undeclared," in words


def test_columns_fold_down_to_their_longest_words():
    assert fit([3, 46, 30, 40, 6, 5, 19], 79) == [3, 14, 14, 14, 6, 5, 11]
    assert fit([3, 46, 30, 40, 6, 5, 19], 200) == [3, 46, 30, 40, 6, 5, 19]


@pytest.mark.parametrize("width", [40, 60, 78, 79, 100])
def test_a_report_of_any_width_shows_gap_and_grade(width):
    view = make_view(make_sealed(FORECAST), FORECAST, make_measurement(FORECAST))
    words = " ".join(printed(render, make_book(view), width).split())
    gap = lines.gap_text(rows(make_book(view))[0])
    assert gap and gap in words and "…" not in words
    assert ("grade" in words) and ("measured" in words)

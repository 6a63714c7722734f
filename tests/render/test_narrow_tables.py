"""Tests that tables on a terminal of 80 columns cut off no words: numbers, levels and grades stay readable."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from samples import make_book, make_forecast, make_measurement, make_sealed, make_view

from ledger.analysis.report_rows import rows
from ledger.evidence.audit_result import NOT_PROVEN, Audit
from ledger.render import report_text as lines
from ledger.render.audit_text import render_audit
from ledger.render.report import fit, render

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

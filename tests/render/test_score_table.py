"""Tests the table of scores on ledgers small enough to score by hand."""

from __future__ import annotations

import io

from rich.console import Console
from samples import make_book
from scored import view

from ledger.analysis.score import score_book
from ledger.render.score_table import render_scores


def test_table_shows_a_dash_for_what_cannot_be_scored() -> None:
    stream = io.StringIO()
    book = make_book(view(percent=80, measured=None, forecaster="e\u202eve"), view(percent=60, measured=50))
    render_scores(score_book(book), Console(file=stream, width=140))
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert lines[0] == ["ada,", "blind", "e<U+202E>ve,", "blind"]
    assert lines[1] == ["cells", "measured", "1", "of", "1", "0", "of", "1"]
    assert lines[2] == ["bias,", "points", "\u221210.0", "–"]
    assert lines[3] == ["error,", "points", "10.0", "–"]
    assert [line[-2:] for line in lines[4:6] + lines[7:10]] == [["–", "–"]] * 5


def test_table_shows_what_is_scored() -> None:
    book = make_book(
        view(percent=50, measured=50, regime="hbm-bound", low_milli=40_000, high_milli=60_000),
        view(percent=50, measured=80, regime="l2-bound", low_milli=40_000, high_milli=60_000),
        view(percent=50, measured=50, low_milli=0, high_milli=100_000),
    )
    stream = io.StringIO()
    render_scores(score_book(book), Console(file=stream, width=80))
    shown = dict(line.rsplit("  ", 1) for line in stream.getvalue().splitlines() if "  " in line)
    values = {label.strip(): value.strip() for label, value in shown.items()}
    # Interval scores 20, 20 + 10 · 20 and 100; Brier 0 and 2; log 0 and 13.82.
    assert values == {
        "": "ada, blind",
        "cells measured": "3 of 3",
        "bias, points": "+10.0",
        "error, points": "10.0",
        "in interval": "50% of 2",
        "interval score, points": "113.3",
        "vacuous intervals": "1",
        "regime right": "50% of 2",
        "Brier score": "1.00",
        "log score, nats": "6.91",
    }

"""Tests that long lists and long documents are printed plainly, and say the same as short ones."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from samples import make_book, make_forecast, make_measurement, make_sealed, make_view

from ledger.analysis.formatting import case_text
from ledger.cli.output import emit
from ledger.evidence.audit import Audit
from ledger.render.audit_text import render_audit
from ledger.render.status_table import render_status, status_of

FORECAST = make_forecast()


def book_of(count: int):
    sealed = make_sealed(FORECAST, forecaster="ada \u202e evil")
    view = make_view(sealed, FORECAST, make_measurement(FORECAST))
    return make_book(*[view] * count)


def printed(render, subject) -> list[str]:
    screen = io.StringIO()
    render(subject, Console(file=screen, width=60, color_system=None))
    return screen.getvalue().splitlines()


@pytest.mark.parametrize("count", [500, 501], ids=["table", "lines"])
def test_status_names_every_cell(count):
    lines = printed(render_status, status_of(book_of(count)))
    assert sum(line.startswith("measured") for line in lines) == count
    assert lines[-1] == f"0 open, 0 stale, {count} measured, 0 void"


def test_a_long_list_is_one_aligned_line_a_row():
    head, *rows, _ = printed(render_status, status_of(book_of(501)))
    words = case_text(FORECAST.case)
    assert len(rows) == 501
    assert {row.index(words) for row in rows} == {head.index("cell")}
    assert {row.index("blind") for row in rows} == {head.index("sight")}


def test_a_long_audit_spells_out_what_could_act_on_a_terminal():
    book = book_of(501)
    lines = printed(render_audit, Audit("here", "holds", "for a test", book, ()))
    assert sum("ada <U+202E> evil" in line for line in lines) == 501 + len(book.seals) + len(book.records)
    assert not any("\u202e" in line for line in lines)
    assert lines[-1] == "verdict: holds: for a test"


@pytest.mark.parametrize(("size", "lines"), [(10, 6), (1_000_000, 1)], ids=["short", "long"])
def test_a_document_is_indented_unless_it_is_long(size, lines, capsys):
    document = {"rows": ["x" * size, 1.5]}
    emit(document)
    out = capsys.readouterr().out
    assert json.loads(out) == document
    assert len(out.splitlines()) == lines

"""Tests that long lists and long documents are printed plainly, and say the same as short ones."""

from __future__ import annotations

import io
import json
from functools import partial

import pytest
from rich.console import Console
from samples import make_book, make_forecast, make_measurement, make_sealed, make_view
from shared_cases import shared_case

from ledger.analysis.formatting import case_text
from ledger.cli.output import emit
from ledger.errors import UnknownName
from ledger.evidence.audit_result import Audit
from ledger.records import Finding
from ledger.render.audit_text import render_audit
from ledger.render.kept_cells import cells_table
from ledger.render.status_table import of_campaigns, render_status, status_document

FORECAST = make_forecast()


def book_of(count: int):
    sealed = make_sealed(FORECAST, forecaster="ada \u202e evil")
    view = make_view(sealed, FORECAST, make_measurement(FORECAST))
    return make_book(*[view] * count)


every_cell = partial(render_status, listed=True)


def printed(render, subject) -> list[str]:
    screen = io.StringIO()
    render(subject, Console(file=screen, width=60, color_system=None))
    return screen.getvalue().splitlines()


def test_status_counts_what_is_refused():
    status = cells_table(book_of(2))
    status.columns["state"][0] = "refused"
    assert printed(every_cell, status)[-1].endswith(", 1 refused")


@pytest.mark.parametrize("count", [500, 501], ids=["table", "lines"])
def test_status_names_every_cell(count):
    lines = printed(every_cell, cells_table(book_of(count)))
    assert sum(line.startswith("measured") for line in lines) == count
    assert lines[-1] == f"forecasts: 0 open, 0 stale, {count} measured, 0 void"


def test_a_long_list_is_one_aligned_line_a_row():
    head, *rows, _ = printed(every_cell, cells_table(book_of(501)))
    words = case_text(FORECAST.case)
    assert len(rows) == 501
    assert {row.index(words) for row in rows} == {head.index("cell")}
    assert {row.index("blind") for row in rows} == {head.index("sight")}


def test_a_long_audit_is_a_line_a_forecaster_and_spells_out_what_could_act_on_a_terminal():
    lines = printed(render_audit, Audit("here", "holds", "for a test", book_of(501), ()))
    (line,) = (line for line in lines if "ada <U+202E> evil" in line)
    assert "501" in line.split()
    assert not any("\u202e" in line for line in lines)
    assert lines[-1] == "verdict: holds: for a test"


def test_an_audit_lists_all_that_refuses_and_the_first_of_many_flags():
    def found(severity, count):
        return [Finding(code=severity, severity=severity, path=f"{n}.json", message="is odd") for n in range(count)]

    result = Audit("here", "refused", "for a test", None, (), (*found("refused", 60), *found("flag", 60)))
    lines = printed(render_audit, result)
    assert sum(line.startswith("refused refused") for line in lines) == 60
    assert sum(line.startswith("flag flag ") for line in lines) == 10
    assert "flag flag: 50 more (ledger audit --json)" in lines


def test_a_note_on_many_seals_stands_once():
    notes = ("aaaaaaaaaa: no level 5", "a word: no seal", "bbbbbbbbbb: no level 5")
    lines = printed(render_audit, Audit("here", "holds", "for a test", book_of(1), notes))
    assert [line for line in lines if line.startswith("note")] == [
        "note: aaaaaaaaaa and 1 more seal: no level 5", "note: a word: no seal"
    ]  # fmt: skip


def test_many_forecasts_are_a_line_a_campaign():
    books = [shared_case("learned", "rule-of-thumb"), shared_case("learned", measured=False), book_of(51)]
    views = [view for book in books for view in book.cells]
    status = cells_table(make_book(*views))
    for number in range(len(views)):
        group = (number > 2) + (number > 4)
        status.columns["campaign"][number], status.columns["case"][number] = ("one", "two", None)[group], group
    lines = printed(render_status, status)
    assert lines[0].split() == ["campaign", "cases", "measured", "open", "stale", "forecasts"]
    assert [line.split() for line in lines[1:4]] == [
        ["one", "1", "1", "·", "·", "3"], ["two", "1", "·", "1", "·", "2"],
        ["none", "1", "1", "·", "·", "51"],
    ]  # fmt: skip
    assert " ".join(" ".join(lines[4:]).split()) == (
        "Columns up to stale count cases, measured by any seal's run; a case in two campaigns counts in both. "
        "Each forecast: ledger status --cells, or --campaign NAME "
        "forecasts: 2 open, 0 stale, 52 measured, 0 void, 2 scored by another seal's run"
    )


def test_the_document_counts_forecasts_as_the_text_does_and_claims_apart():
    status = cells_table(make_book(*shared_case("learned", "rule-of-thumb").cells))
    status.more.update(claims=[{"state": "measured"}], claim_lines=[["measured", "a", "b", "c", "1"]])
    told = status_document(status, "")
    assert [(one["state"], one["standing"]) for one in told["cells"]] == [
        ("open", "scored"), ("open", "scored"), ("measured", "measured")
    ]  # fmt: skip
    assert told["counts"] == {
        "forecasts": {"open": 0, "stale": 0, "measured": 1, "void": 0, "scored": 2}, "claims": {"measured": 1}
    }  # fmt: skip
    assert " ".join(" ".join(printed(every_cell, status)[-3:]).split()) == (
        "forecasts: 0 open, 0 stale, 1 measured, 0 void, 2 scored by another seal's run claims: 1 measured"
    )


def test_a_forecast_that_another_run_scores_stays_open_and_names_the_record():
    status = cells_table(shared_case("learned"))
    learned, ada = status_document(status, "")["cells"]
    assert (learned["state"], ada["state"]) == ("open", "measured")
    assert learned["scored_by"] == ada["scored_by"] == "0" * 64
    assert learned["forecaster"] == "learned" and "case" not in learned
    words = printed(render_status, status)
    assert [line.split()[0] for line in words if "near" in line or "blind" in line] == ["scored", "measured"]


def test_a_campaign_is_chosen_by_name():
    status = cells_table(shared_case("learned"))
    status.columns["campaign"][0] = "grid"
    assert of_campaigns(status, ["grid"]).columns["forecaster"] == ["learned"]
    with pytest.raises(UnknownName, match="did you mean grid"):
        of_campaigns(status, ["gird"])


@pytest.mark.parametrize(("size", "lines"), [(10, 6), (1_000_000, 1)], ids=["short", "long"])
def test_a_document_is_indented_unless_it_is_long(size, lines, capsys):
    document = {"rows": ["x" * size, 1.5]}
    emit(document)
    out = capsys.readouterr().out
    assert json.loads(out) == document
    assert len(out.splitlines()) == lines

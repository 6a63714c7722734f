"""Tests that log, report and score show who forecast and who measured where two people share a cell."""

from __future__ import annotations

import io

import builders
import pytest
from builders import Ledger, forecast, timing
from rich.console import Console

from ledger.analysis.report_rows import document
from ledger.analysis.score import score_book
from ledger.render.history_events import timeline, timeline_table
from ledger.render.history_table import render_timeline

GRACE = {f"GIT_{role}_{field}": "Grace" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Ada seals and measures a cell; Grace, on a branch, forecasts and measures it too; both are merged."""
    monkeypatch.setattr(builders, "VERSION", 2)
    ledger = Ledger(tmp_path / "ledger")
    ledger.write("README.md", b"a project\n")
    ledger.commit("begin")
    ledger.switch("grace", ledger.head)
    monkeypatch.setattr(builders, "EMPTY_GIT", {**builders.EMPTY_GIT, **GRACE})
    ledger.measure(ledger.seal(forecast(percent_milli=2_000), forecaster="Grace"), timing=timing(2_500_000))
    monkeypatch.undo()
    monkeypatch.setattr(builders, "VERSION", 2)
    ledger.switch("main")
    ledger.measure(ledger.seal())
    ledger.merge("grace")
    return ledger.book()


def test_log_names_who_committed_and_who_forecast(book):
    told = {(event["kind"], event["author"], event["forecaster"]) for event in timeline(book)}
    assert told == {(kind, name, name) for kind in ("seal", "measurement") for name in ("Ada", "Grace")}


def test_log_prints_the_forecaster_where_somebody_else_committed(book):
    def printed(events) -> str:
        screen = io.StringIO()
        render_timeline(timeline_table(events).columns, Console(file=screen, width=160, color_system=None))
        return screen.getvalue()

    events = timeline(book)
    assert "forecaster" not in printed(events)
    assert "learned 3 (model)" in printed([{**events[0], "forecaster": "learned 3 (model)"}, *events[1:]])


def test_report_and_score_hold_the_forecast_and_the_measurement_of_each(book):
    rows = document(book)["rows"]
    assert sorted((row["forecaster"], row["measured"]["duration_us"]) for row in rows) == [("Ada", 2.0), ("Grace", 2.5)]
    assert all(row["counts"] for row in rows) and rows[0]["cell"] == rows[1]["cell"]
    assert {(one.forecaster, one.measured) for one in score_book(book)} == {("Ada", 1), ("Grace", 1)}


def test_a_long_log_keeps_its_lines_on_a_narrow_terminal(book):
    screen = io.StringIO()
    render_timeline(timeline_table(timeline(book) * 200).columns, Console(file=screen, width=80, color_system=None))
    lines = screen.getvalue().splitlines()
    assert len(lines) == 801
    assert lines[0].split() == ["commit", "self-declared", "date", "kind", "what"]

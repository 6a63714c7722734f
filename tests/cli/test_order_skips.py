"""Tests what `ledger order` says of cells that it skips: few by name, many as counts, none where cells are named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ledger.cli.order import report_stale
from ledger.records import ForecastV2
from ledger.workflow.select import CHANGED


def opened(stale: int, seals: int = 2, hidden: int = 0) -> Any:
    forecast = ForecastV2.model_construct()
    cells = [
        SimpleNamespace(
            state="open" if number == stale else "stale",
            forecast=forecast,
            short_name=f"cell-{number}",
            sealed=SimpleNamespace(id=f"{number % seals:064x}"),
        )
        for number in range(stale + 1)
    ]
    kept = [
        SimpleNamespace(sealed=SimpleNamespace(id="h"), forecast=SimpleNamespace(cell=str(n))) for n in range(hidden)
    ]
    records = [SimpleNamespace(measurement=SimpleNamespace(seal="h", cell="0"))]
    return SimpleNamespace(book=SimpleNamespace(cells=cells, hidden=kept, records=records))


def test_few_stale_cells_are_named(capsys: pytest.CaptureFixture[str]):
    report_stale(opened(3), [])
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"skipped cell-{n}: stale, {CHANGED}" for n in range(3)]


def test_many_stale_cells_are_counted(capsys: pytest.CaptureFixture[str]):
    report_stale(opened(40), [])
    text = " ".join(capsys.readouterr().err.split())
    assert text == f"skipped 40 cells of 2 seals: stale, {CHANGED} (ledger status)"


def test_hidden_cells_that_are_not_measured_are_counted(capsys: pytest.CaptureFixture[str]):
    report_stale(opened(0, hidden=3), [])
    assert capsys.readouterr().err == "skipped 2 hidden cells: name their seals, or open them: ledger reveal\n"
    report_stale(opened(0, hidden=1), [])
    assert capsys.readouterr().err == ""


def test_nothing_is_said_of_stale_cells_that_nobody_named(capsys: pytest.CaptureFixture[str]):
    report_stale(opened(40), ["0000"])
    assert capsys.readouterr().err == ""

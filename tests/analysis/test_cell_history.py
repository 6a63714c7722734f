"""Tests the history of a cell: its order, ratios of times, what changed, and the choice of shapes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from samples import MS, failed, make_book, make_forecast, make_measurement, make_sealed, make_timing, make_view
from shared_cases import shared_case

from ledger.analysis.cell_history import histories, history_document, of_shape
from ledger.analysis.forecast_changes import Change, changes
from ledger.analysis.report_rows import rows
from ledger.errors import UnknownName
from ledger.records import Case, Forecast
from ledger.render.cell_history_text import render_histories
from ledger.workflow.select import same_cells


def forecast(block: int, *, sources: str = "aa", rows_of_x: int = 8, **changed: object) -> Forecast:
    case = Case(
        kernel="rmsnorm_matmul", shape={"B": rows_of_x, "H": 64, "O": 64}, dtype="fp16", hardware="toy",
        implementation="triton", config={"block_m": block}, threads=None,
    )  # fmt: skip
    return make_forecast(case=case, kernel_sha256=sources * 32, **changed)


FIRST, SECOND, OTHER = forecast(64), forecast(128, sources="ab"), forecast(64, rows_of_x=9)


def timed(of: Forecast, milliseconds: int):
    return make_measurement(of, timing=make_timing(milliseconds * MS))


def book():
    """Return a cell sealed three times, measured in 4 and 5 ms, in 2 ms and not at all, beside another cell."""
    first, other = make_sealed(FIRST, OTHER), make_sealed(SECOND, identity="dd" * 32, position=1)
    last = make_sealed(SECOND, identity="ee" * 32, position=2)
    return make_book(
        make_view(first, FIRST, timed(FIRST, 4), timed(FIRST, 5)),
        make_view(first, OTHER, failed(OTHER)),
        make_view(other, SECOND, timed(SECOND, 2)),
        make_view(last, SECOND),
    )


def test_a_history_holds_every_forecast_and_run_of_a_cell_with_the_change_of_time():
    cell, other = histories(rows(book()))
    assert (cell.forecasts, cell.measured, len(cell.steps)) == (3, 3, 4)
    assert [step.time_ratio for step in cell.steps] == [None, 1.25, 0.4, None]
    assert [bool(step.changed) for step in cell.steps] == [False, False, True, False]
    assert (other.forecasts, other.measured, other.steps[0].cause) == (1, 0, None)


def test_changes_name_sources_and_configuration_and_not_the_expectation():
    found = changes(FIRST, forecast(128, sources="ab", percent_milli=1000, regime="latency-bound"))
    assert found == (Change("kernel sources", "aaaaaaaa", "abababab"), Change("block_m", "64", "128"))
    assert found[1].text == "block_m 64 → 128"
    assert changes(FIRST, forecast(64, percent_milli=1000)) == ()


def test_the_cause_named_is_the_largest_that_pushes_the_way_of_the_gap():
    cell, _ = histories(rows(book()))
    slow = cell.steps[1]
    found = slow.row.run.verification.gap
    assert found.percent < 0 and slow.cause.factor > 1
    assert slow.cause.factor == max(cause.factor for cause in found.causes)


def test_a_name_is_of_a_kernel_a_seal_or_one_cell():
    held = book()
    assert len(same_cells(held, "rmsnorm_matmul")) == 4
    assert [view.sealed.id[:2] for view in same_cells(held, f"dddd#{SECOND.cell}")] == ["cc", "dd", "ee"]
    assert len(same_cells(held, "cccc")) == 4
    with pytest.raises(UnknownName, match="did you mean rmsnorm_matmul"):
        same_cells(held, "rmsnorm_matmull")
    with pytest.raises(UnknownName, match="names 0 seals"):
        same_cells(held, "ffff")


def test_a_shape_may_be_given_in_part_and_an_unknown_one_lists_those_there():
    listed = rows(book())
    assert len(of_shape(listed, {"H": 64})) == 5
    assert len(of_shape(listed, {"B": 9, "H": 64})) == 1
    with pytest.raises(UnknownName, match="no cell has B=7; expected sizes of one of: B=8 H=O=64; B=9 H=O=64"):
        of_shape(listed, {"B": 7})


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_text_names_seals_times_and_changes_at_any_width(width: int):
    console = Console(file=io.StringIO(), width=width)
    render_histories(histories(rows(book())), console)
    text = " ".join(console.file.getvalue().split())
    assert "3 forecasts, 3 measured runs" in text
    assert "cccccccccc" in text and "×1.25" in text and "×0.40" in text and "open" in text
    assert "#3 changed: kernel sources aaaaaaaa → abababab, block_m 64 → 128" in text
    assert "#2 changed" not in text
    assert "sealed by ada" in text and "measured by Ada" in text
    assert max(map(len, console.file.getvalue().splitlines())) <= width


def test_forecasts_that_one_run_scores_are_one_line():
    console = Console(file=io.StringIO(), width=100)
    found = histories(rows(shared_case("learned", "rule-of-thumb")))
    render_histories(found, console)
    text = console.file.getvalue()
    assert "3 forecasts, 1 measured run" in text and "sealed by ada" in text
    assert "#3 also learned 40.0% +10.0 l2; rule-of-thumb 40.0% +10.0 l2" in text
    assert len(history_document(found)[0]["steps"]) == 3


def test_names_in_records_do_not_act_on_the_terminal():
    sealed = make_sealed(FIRST, forecaster="mallory\u202e[bold]")
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    render_histories(histories(rows(make_book(make_view(sealed, FIRST)))), console)
    assert "mallory<U+202E>[bold]" in console.file.getvalue()


def test_the_document_has_dates_versions_and_changes():
    cell, _ = history_document(histories(rows(book())))
    step = cell["steps"][2]
    assert (step["kernel_version"], step["time_ratio"], step["sealed_self_declared"][:4]) == ("abababab", 0.4, "2026")
    assert step["changed"][1] == {"what": "block_m", "before": "64", "after": "128"}
    assert step["measured"]["duration_us"] == 2000.0 and step["counts"]
    assert cell["steps"][3]["measured_self_declared"] is None

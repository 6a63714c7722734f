"""Tests what a comparison of two sides says: which cells, which ratio, and what stands for a cell sealed twice."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from samples import MS, TOY, make_book, make_forecast, make_measurement, make_sealed, make_timing, make_view

from ledger.analysis.ledger_diff import Side, diff_document, ledger_diff
from ledger.analysis.report_rows import rows
from ledger.records import Case, Forecast
from ledger.render.ledger_diff_text import render_diff
from ledger.render.markdown_page import added_page


def forecast(size: int, device: str = "toy", **changed: object) -> Forecast:
    case = Case(
        kernel="rmsnorm_matmul", shape={"B": size, "H": 64, "O": 64}, dtype="fp16", hardware=device,
        implementation="triton", config={"block_m": 64}, threads=None,
    )  # fmt: skip
    return make_forecast(case=case, **changed)


def view(of: Forecast, milliseconds: int | None, seal: str):
    sealed = make_sealed(of, identity=seal * 32, position=int(seal, 16))
    if milliseconds is None:
        return make_view(sealed, of, hardware=TOY)
    return make_view(sealed, of, make_measurement(of, timing=make_timing(milliseconds * MS)), hardware=TOY)


def side(name: str, *views, kind="campaign") -> Side:
    return Side(kind, name, rows(make_book(*views)))


A = side("a", view(forecast(1), 4, "01"), view(forecast(2), 4, "02"), view(forecast(3), 4, "03"))
B = side("b", view(forecast(1), 5, "11"), view(forecast(2), 1, "12"), view(forecast(4), 3, "14"))


def sizes(listed) -> list[int]:
    return [row.view.forecast.case.shape["B"] for row in listed]


def test_the_largest_change_of_time_comes_first_and_cells_of_one_side_stand_apart():
    found = ledger_diff(A, B)
    assert [pair.time_ratio for pair in found.pairs] == [0.25, 1.25]
    assert (sizes(found.only_a), sizes(found.only_b), found.same) == ([3], [4], 0)
    assert found.mean_ratio == pytest.approx((0.25 * 1.25) ** 0.5)


def test_a_side_beside_itself_is_the_same():
    found = ledger_diff(A, A)
    assert (found.pairs, found.same, found.mean_ratio) == ((), 3, None)


def test_the_newest_measured_forecast_stands_for_a_cell():
    twice = side("b", view(forecast(1), 5, "11"), view(forecast(1), 2, "12"), view(forecast(1), None, "13"))
    (pair,) = ledger_diff(side("a", view(forecast(1), 4, "01")), twice).pairs
    assert pair.time_ratio == 0.5
    unmeasured = side("b", view(forecast(1), None, "13"))
    (pair,) = ledger_diff(side("a", view(forecast(1), 4, "01")), unmeasured).pairs
    assert pair.time_ratio is None and not pair.regime_changed


def test_gpus_are_compared_by_kernel_shape_and_dtype_and_campaigns_by_device_as_well():
    here, there = view(forecast(1), 4, "01"), view(forecast(1, "other"), 2, "02")
    found = ledger_diff(side("toy", here, kind="GPU"), side("other", there, kind="GPU"))
    assert [pair.time_ratio for pair in found.pairs] == [0.5]
    assert ledger_diff(side("a", here), side("b", there)).pairs == ()


def test_the_text_shows_both_sides_of_a_cell_the_sum_and_hostile_names_as_text():
    console = Console(file=io.StringIO(), width=100)
    named = Side("campaign", "b\x1b[2J[red]", B.rows)
    render_diff(ledger_diff(A, named), console, repeats="times differ by 0.1%")
    text = " ".join(console.file.getvalue().split())
    assert "\x1b" not in text and "[red]" in text
    assert "×0.250" in text and "4.00 ms; forecast hbm-bound 80%" in text
    assert "1 faster, 1 slower" in text and "another regime in 0" in text
    assert "Only in a" in text and "repeats: times differ by 0.1%" in text


def test_of_many_cells_of_one_side_the_first_are_listed():
    alone = side("a", *(view(forecast(size), 1, f"{size:02}" * 32) for size in range(1, 31)))
    console = Console(file=io.StringIO(), width=80)
    render_diff(ledger_diff(alone, side("b")), console, repeats=None)
    text = console.file.getvalue()
    assert text.count(" toy: ") == 20 and "and 10 more (ledger diff --json)" in text


def test_the_document_has_both_rows_of_a_cell():
    found = diff_document(ledger_diff(A, B))
    assert found["cells"][0]["a"]["measured"]["duration_us"] == 4000.0
    assert found["cells"][0]["b"]["measured"]["duration_us"] == 1000.0
    assert (found["a"], len(found["only_a"])) == ({"kind": "campaign", "name": "a"}, 1)


def by(author: str, shown):
    """Return a view whose seal and runs another author committed."""
    sealed = replace(shown.sealed, commit=replace(shown.sealed.commit, author=author))
    runs = tuple(
        replace(run, recorded=replace(run.recorded, commit=replace(run.recorded.commit, author=author)))
        for run in shown.runs
    )
    return replace(shown, sealed=sealed, runs=runs)


ADA = side("main", view(forecast(1), 4, "01"), kind="commit")
BOTH = side("side", *(row.view for row in ADA.rows), by("Grace|", view(forecast(1), 5, "11")), kind="commit")


def test_what_two_authors_measured_of_a_cell_is_shown_of_both():
    console = Console(file=io.StringIO(), width=200)
    render_diff(ledger_diff(ADA, BOTH), console, repeats=None)
    text = console.file.getvalue()
    assert text.count("4.00 ms by Ada") == 2 and text.count("5.00 ms by Grace|") == 1
    (cell,) = diff_document(ledger_diff(ADA, BOTH))["cells"]
    assert (cell["a_by_others"], [row["measured_by"] for row in cell["b_by_others"]]) == ([], ["Ada"])
    assert cell["b"]["measured_by"] == cell["b"]["sealed_by"] == "Grace|"
    text = " ".join(shown(ledger_diff(side("none", kind="commit"), BOTH)).split())
    assert "4.00 ms by Ada" in text and "5.00 ms by Grace|" in text


def shown(found) -> str:
    console = Console(file=io.StringIO(), width=200)
    render_diff(found, console, repeats=None)
    return console.file.getvalue()


def test_the_markdown_has_what_the_second_side_adds_and_who_made_it():
    text = added_page(ledger_diff(ADA, BOTH))
    assert text.startswith("### `side` adds 1 seal and 1 measurement to `main`\n")
    (row,) = [line for line in text.splitlines() if line.startswith("| rmsnorm")]
    assert r"| ada | Grace\| |" in row and "5.00 ms" in row and "4.00 ms" not in row
    assert "## Measured by others too" in text and "4.00 ms by Ada, beside" in text
    assert added_page(ledger_diff(BOTH, BOTH)) == "### `side` adds 0 seals and 0 measurements to `side`\n"


def test_a_cell_that_is_withdrawn_on_a_branch_is_added():
    voided = side("side", replace(view(forecast(1), None, "01"), state="void"), kind="commit")
    text = added_page(ledger_diff(side("main", view(forecast(1), None, "01"), kind="commit"), voided))
    assert "adds 0 seals and 0 measurements" in text and "| void |" in text

"""Tests which rows of a report a choice keeps, their order, and their sums."""

from __future__ import annotations

import pytest
from samples import (
    COUNTERS,
    MS,
    failed,
    make_book,
    make_forecast,
    make_measurement,
    make_sealed,
    make_timing,
    make_view,
)

from ledger.analysis.report_rows import rows
from ledger.analysis.row_choice import BY, RowChoice, chosen, groups, name_of
from ledger.errors import UnknownName

SMALL = make_forecast(shape={"B": 1, "H": 64, "O": 64}, percent_milli=50_000)
WIDE = make_forecast(shape={"B": 8, "H": 64, "O": 64}, percent_milli=20_000)
OTHER = make_forecast(shape={"B": 9, "H": 64, "O": 64}, dtype="bf16", percent_milli=90_000)
GRID = make_sealed(SMALL, WIDE, campaign="grid", why="a first look")
LATER = make_sealed(OTHER, identity="dd" * 32, sequence=2, previous=("cc" * 32,), position=3)


def listed():
    def measured(sealed, forecast, **changes):
        timing = make_timing(2 * MS)
        return make_view(sealed, forecast, make_measurement(forecast, timing=timing, **changes))

    views = (
        measured(GRID, SMALL, counters=COUNTERS, counters_missing=None),
        make_view(GRID, WIDE, failed(WIDE)),
        measured(LATER, OTHER),
    )
    return rows(make_book(*views))


def gap(row) -> float:
    return row.run.verification.gap.percent


def test_without_a_choice_every_row_is_kept_in_its_order():
    assert chosen(listed(), RowChoice()) == listed()
    assert RowChoice().is_all and not RowChoice(worst=1).is_all


@pytest.mark.parametrize("what", BY)
def test_rows_of_a_name_are_those_that_have_it(what):
    for name in {name_of(row, what) for row in listed()} - {""}:
        kept = chosen(listed(), RowChoice({what: (name,)}))
        assert kept == tuple(row for row in listed() if name_of(row, what) == name)
        assert kept


def test_choices_narrow_each_other():
    kept = chosen(listed(), RowChoice({"dtype": ("fp16",), "campaign": ("grid",)}, worst=1))
    assert [row.view.forecast for row in kept] == [SMALL]
    assert not chosen(listed(), RowChoice({"dtype": ("bf16",), "campaign": ("grid",)}))


def test_the_worst_come_first_and_have_a_gap():
    kept = chosen(listed(), RowChoice(worst=10))
    assert [row.view.forecast for row in kept] == sorted([SMALL, OTHER], key=lambda one: one.percent_milli != 90_000)
    assert [abs(gap(row)) for row in kept] == sorted((abs(gap(row)) for row in kept), reverse=True)


def test_a_date_keeps_what_was_committed_since():
    dates = {row.run.recorded.commit.when[:10] for row in listed()}
    assert chosen(listed(), RowChoice(since=min(dates))) == listed()
    assert chosen(listed(), RowChoice(since="9999-01-01")) == ()


def test_a_name_that_no_row_has_is_an_error_with_those_that_there_are():
    with pytest.raises(UnknownName, match=r"dtype 'float16' is not known \(did you mean fp16\?\)"):
        chosen(listed(), RowChoice({"dtype": ("float16",)}))


def test_groups_count_what_counts_and_average_gaps():
    found = {group.name: group for group in groups(listed(), "dtype")}
    half, brain = found["fp16"], found["bf16"]
    assert (half.rows, half.measured, brain.rows, brain.measured) == (2, 1, 1, 1)
    first, _, last = listed()
    assert half.bias == pytest.approx(gap(first)) and half.error == pytest.approx(abs(gap(first)))
    assert brain.error == pytest.approx(abs(gap(last)))
    assert next(iter(groups(listed(), "dtype"))).error == max(half.error, brain.error)
    assert {group.name for group in groups(listed(), "campaign")} == {"grid", "none"}

"""Tests what the baselines would have scored: on the sealed roof, and knowing only what came before the seal."""

from __future__ import annotations

import dataclasses
import math

import pytest
from samples import callable_case, make_book
from scored import view

from ledger.analysis.book import Book, CellView
from ledger.analysis.results import results_of
from ledger.forecasters.baselines import FIELDS, NAMES, PREFIX, compared, compared_cells, rankings, skills


def at(shown: CellView, *, sealed: int, measured: int) -> CellView:
    """Return a cell with its seal and its record at positions of the history."""
    seal = dataclasses.replace(shown.sealed, commit=dataclasses.replace(shown.sealed.commit, position=sealed))
    runs = tuple(
        dataclasses.replace(
            run,
            recorded=dataclasses.replace(
                run.recorded, commit=dataclasses.replace(run.recorded.commit, position=measured)
            ),
        )
        for run in shown.runs
    )
    return dataclasses.replace(shown, sealed=seal, runs=runs)


def book(*, later: bool) -> Book:
    """Return two shapes of a kernel at 50 and 60%; the second sealed before or after the first was measured."""
    first = at(view(percent=40, measured=50), sealed=0, measured=1 if later else 3)
    second = at(view(percent=55, measured=60, shape={"B": 16, "H": 64, "O": 64}), sealed=2, measured=4)
    return make_book(first, second)


def answers(made: Book, name: str) -> list[float | None]:
    """Return what a baseline answers for the cells of a book, in percent."""
    return [getattr(cell, FIELDS[name]) for cell in compared_cells(made)]


def test_the_naive_baseline_reaches_the_roof():
    made = book(later=True)
    assert answers(made, "naive-roofline") == pytest.approx([100, 100])
    losses = compared(results_of(compared_cells(made))).baselines[:, NAMES.index("naive-roofline")]
    assert losses.tolist() == pytest.approx([math.log(2), math.log(100 / 60)])
    # The toy profile has no measured ceilings.
    assert answers(made, "measured-roofline") == [None, None]


def test_persistence_knows_only_what_was_measured_before_the_seal():
    assert answers(book(later=True), "persistence") == [None, pytest.approx(50)]
    assert answers(book(later=False), "persistence") == [None, None]


def test_persistence_knows_nothing_of_other_arguments_of_a_callable():
    wide, narrow = (callable_case(f"x=fp16[B,{size}]", B=256) for size in (1024, 64))
    cells = [(wide, 50), (narrow, 60), (narrow.model_copy(update={"shape": {"B": 128}}), 70)]
    views = (view(percent=40, measured=measured, case=case) for case, measured in cells)
    made = make_book(*(at(one, sealed=2 * place, measured=2 * place + 1) for place, one in enumerate(views)))
    assert answers(made, "persistence") == [None, None, pytest.approx(60)]
    assert len({cell.case for cell in compared_cells(made)}) == 3


def test_skill_compares_errors_on_the_cells_that_both_answer():
    by_name = {one.baseline: one for one in skills(compared(results_of(compared_cells(book(later=True)))))}
    own = (math.log(50 / 40) + math.log(60 / 55)) / 2
    naive = (math.log(100 / 50) + math.log(100 / 60)) / 2
    assert by_name["naive-roofline"].skill == pytest.approx(1 - own / naive)
    assert by_name["persistence"].cells == 1
    assert by_name["persistence"].error == pytest.approx(math.log(60 / 55))
    assert by_name["naive-roofline"].low is None
    assert "measured-roofline" not in by_name


def test_a_forecaster_named_as_a_baseline_is_not_taken_for_it():
    shown = view(percent=50, measured=50, forecaster="naive-roofline")
    (ranking,) = rankings(compared(results_of(compared_cells(make_book(shown))))).values()
    assert {row.forecaster for row in ranking.rows} >= {"naive-roofline", f"{PREFIX}naive-roofline"}

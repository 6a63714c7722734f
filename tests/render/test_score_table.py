"""Tests the table of scores on ledgers small enough to score by hand."""

from __future__ import annotations

import dataclasses
import io
import math
import re

import pytest
from rich.console import Console
from samples import make_book
from scored import view

from ledger.analysis.book import CellView
from ledger.analysis.formatting import kernel_tail
from ledger.analysis.results import results_of
from ledger.analysis.score import score_book
from ledger.errors import UnknownName
from ledger.forecasters.baselines import PREFIX, compared, compared_cells, rankings, skills
from ledger.records import Participant, PredictionV2
from ledger.render.score_sheet import only, score_sheet
from ledger.render.score_table import render_calibration, render_rankings, render_scores, render_skills


def test_table_shows_a_dash_for_what_cannot_be_scored() -> None:
    stream = io.StringIO()
    book = make_book(view(percent=80, measured=None, forecaster="e\u202eve"), view(percent=60, measured=50))
    render_scores(score_book(book), Console(file=stream, width=140))
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert lines[0] == ["ada,", "blind", "e<U+202E>ve,", "blind"]
    assert lines[1] == ["cells", "measured", "1", "of", "1", "0", "of", "1"]
    assert lines[2] == ["bias,", "points", "\u221210.0", "–"]
    assert lines[3] == ["error,", "points", "10.0", "–"]
    assert [lines[n][-2:] for n in (6, 7, 9, 10, 13, 14, 15)] == [["–", "–"]] * 7


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
    # Interval scores 20, 20 + 10 · 20 and 100. No forecast states probabilities.
    assert values == {
        "": "ada, blind",
        "cells measured": "3 of 3",
        "bias, points": "+10.0",
        "error, points": "10.0",
        # ln(50 ÷ 80) in one of three: a third of -0.470 is -0.157.
        "bias of time": "−14.5 %",
        "error of time": "17.0 %",
        "repeats differ by": "–",
        "machines differ by": "–",
        "timing interval": "±0.00 %",
        "in interval": "50% of 2",
        "interval score, points": "113.3",
        "vacuous intervals": "1",
        # (0.027 + 0.375 + 0.768) ÷ 3; an end at 0 counts as 0.001%.
        "WIS of ln time": "0.390",
        "regime right": "50% of 2",
        "Brier score": "–",
        "log score, nats": "–",
    }
    assert score_book(book)[0].brier == 1.0, "the document counts a regime alone as certain"


def test_intervals_skill_ranking_and_calibration_are_shown() -> None:
    ppm = {"hbm-bound": 800_000, "l2-bound": 200_000}
    views = [
        view(percent=50, measured=40 + n, regime="hbm-bound", probabilities_ppm=ppm, shape={"B": n, "H": 64, "O": 64})
        for n in range(1, 10)
    ]
    book, stream = make_book(*views), io.StringIO()
    console = Console(file=stream, width=160)
    found = compared(results_of(compared_cells(book)))
    render_scores(score_book(book), console)
    render_skills(skills(found), console)
    render_rankings(rankings(found), console)
    render_calibration(score_book(book), console)
    shown = stream.getvalue()
    (error,) = (line for line in shown.splitlines() if line.startswith("error, points"))
    # By hand: 0.2² + 0.2², and -ln 0.8.
    assert re.search(r"^Brier score +0\.08 .*^log score, nats +0\.22 ", shown, re.MULTILINE | re.DOTALL)
    assert error.split()[2] == "5.0" and error.endswith("]")
    assert "Skill, ada, blind" in shown and "Ranking, blind, 9 shared cells; 100% that all" in shown
    assert "1  ada" in shown and "2  baseline rule-of-thumb" in shown
    assert "said  80%  measured 100% of    9" in shown and "said  20%  measured   0% of    9" in shown


def test_groups_are_a_line_each() -> None:
    stream = io.StringIO()
    book = make_book(
        view(percent=50, measured=50, regime="l2-bound"), view(percent=50, measured=40, regime="hbm-bound")
    )
    render_scores(score_book(book, "regime"), Console(file=stream, width=200))
    first, _, *lines = [line.split()[0] for line in stream.getvalue().splitlines()[:5]]
    assert [first, *lines] == ["ada,", "group", "hbm-bound", "l2-bound"]


def many(count: int = 15) -> tuple[str, list[str]]:
    """Return what is printed on 80 columns of forecasters, the later the worse, and their names."""
    names = [f"forecaster number {count - n}" for n in range(count)]
    views = [
        view(percent=50, measured=40 - n + size, forecaster=name, shape={"B": size, "H": 64, "O": 64})
        for n, name in enumerate(names)
        for size in range(1, 10)
    ]
    stream, book = io.StringIO(), make_book(*views)
    console = Console(file=stream, width=80)
    render_scores(score_book(book), console)
    render_skills(skills(compared(results_of(compared_cells(book)))), console)
    render_rankings(rankings(compared(results_of(compared_cells(book)))), console)
    return stream.getvalue(), names


def test_many_forecasters_have_a_line_each_the_best_first_and_nothing_is_cut() -> None:
    shown, names = many()
    lines = shown.splitlines()
    assert all(len(line) <= 80 for line in lines) and "…" not in shown
    scored = [line for line in lines[: lines.index("blind") + 16] if line.startswith("forecaster number")]
    assert [line[:20].strip() for line in scored] == names
    # Measured 41 to 49 of 50: 50 is 11.3% above their geometric mean, 44.93.
    assert scored[0].split()[3:5] == ["9", "11.3%"]
    assert "A wider terminal also shows: " in shown and "Brier score" in shown
    assert sum(line.startswith(names[0]) for line in lines) == 2


def test_a_long_callable_keeps_its_end_in_a_group() -> None:
    assert kernel_tail("examples.third_party.liger:linear_cross_entropy", 30) == "…liger:linear_cross_entropy"
    assert kernel_tail("a" * 40, 30) == "…" + "a" * 29
    assert kernel_tail("matmul", 30) == "matmul"


def test_one_forecaster_is_chosen_by_name() -> None:
    book = make_book(view(percent=50, measured=50), view(percent=50, measured=40, forecaster="eve"))
    sheet = score_sheet(book, None)
    assert [one.forecaster for one in only(sheet, "eve").scores] == ["eve"]
    assert {one.forecaster for one in only(sheet, "eve").skills} == {"eve"}
    with pytest.raises(UnknownName, match="did you mean eve"):
        only(sheet, "ev")


def test_a_program_that_sealed_and_its_baseline_are_one_row_of_the_ranking() -> None:
    def by_program(shown: CellView, **fields: object) -> CellView:
        participant = Participant(kind="program", version="1", sha256="ab" * 32)
        seal = PredictionV2.model_construct(**{**dict(shown.sealed.prediction), "participant": participant})
        return dataclasses.replace(shown, sealed=dataclasses.replace(shown.sealed, prediction=seal), **fields)

    other = {"shape": {"B": 16, "H": 64, "O": 64}}
    person = (view(percent=40, measured=50), view(percent=50, measured=60, **other))
    # 90% was sealed for the first cell, where the baseline of today would say 100%.
    naive = by_program(view(percent=90, measured=50, forecaster="naive-roofline"))
    (ranking,) = score_sheet(make_book(*person, naive), None).rankings.values()
    rows = {one.forecaster: one for one in ranking.rows}
    assert sorted(name for name in rows if "naive" in name) == ["naive-roofline"]
    assert rows["naive-roofline"].cells == 2
    assert rows["naive-roofline"].loss == pytest.approx((math.log(90 / 50) + math.log(100 / 60)) / 2)
    # A person who has the name of a built-in forecaster is not taken for it, nor is one of another sight.
    namesake = view(percent=90, measured=50, forecaster="naive-roofline")
    for shown in (make_book(*person, namesake), make_book(*person, by_program(namesake, sight="informed"))):
        ranking = score_sheet(shown, None).rankings["blind"]
        assert f"{PREFIX}naive-roofline" in {one.forecaster for one in ranking.rows}

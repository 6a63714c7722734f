"""Renders the scores of the forecasters, their skill, their ranking and their calibration. Writes to the console given.

Errors of time are means of logarithms, shown as the percent that they stand for: 100 · (exp(mean) - 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.analysis.formatting import count_text, harmless, signed
from ledger.analysis.ranking import Ranking
from ledger.analysis.repeats import RepeatSpread
from ledger.analysis.score import Score
from ledger.analysis.sight_names import sight_name
from ledger.forecasters.baselines import PREFIX, Skill
from ledger.render.fitted_table import Column, print_fitted
from ledger.render.score_rows import LONGEST_NAME, print_group_rows, print_score_rows, print_skill_rows
from ledger.render.score_values import percent_of, value_of
from ledger.render.tables import print_rows

_LABELS = (
    "cells measured",
    "bias, points",
    "error, points",
    "bias of time",
    "error of time",
    "repeats differ by",
    "machines differ by",
    "timing interval",
    "in interval",
    "interval score, points",
    "vacuous intervals",
    "WIS of ln time",
    "regime right",
    "Brier score",
    "log score, nats",
)
_LEGEND = (
    "Bias is signed, error is not; bias of time is above 0 where kernels were slower than forecast; of interval score, "
    "WIS, Brier and log score the lower the better; intervals are read as 80%. [ ]: 95% by a bootstrap, kernels whole "
    "where there are 5. Near: a neighbour or another version had been timed; informed: the cell had been. Undeclared "
    "counts as neither. Cells never measured are not scored. A vacuous interval (90 points or more) counts in no "
    "coverage."
)
_BAR = 20


def render_scores(
    scores: Sequence[Score], console: Console, *, repeats: RepeatSpread | None = None, machines: Iterable[str] = ()
) -> None:
    """Print the scores, a column for each forecaster and sight where all fit, else a line; a dash: cannot be scored.

    Scores of groups are printed one a line. machines: lines on the chips of one kind.
    """
    if not scores:
        console.print("Nothing to score: no forecast is sealed, or the ledger is refused.")
        return
    if scores[0].group is not None:
        print_group_rows(scores, console)
    elif side_by_side(scores, console):
        _print_columns(scores, console)
    else:
        print_score_rows(scores, console)
    console.print(Text(_LEGEND, style="dim"))
    if repeats is not None:
        console.print(Text(f"Repeats: {repeats.text}; an error below that shows no skill.", style="dim"))
    for line in machines:
        console.print(Text(line[:1].upper() + line[1:], style="dim"))


def _heading(score: Score) -> str:
    return f"{harmless(score.forecaster, LONGEST_NAME)}, {sight_name(score.sight)}"


def side_by_side(scores: Sequence[Score], console: Console) -> bool:
    """Tell whether the scores of all forecasters fit beside each other, with every interval."""
    columns = [(_heading(score), *_column(score)) for score in scores]
    widths = [max(map(len, ("", *_LABELS))), *(max(map(len, column)) for column in columns)]
    return len(scores) == 1 or sum(widths) + 2 * len(scores) <= console.width


def _print_columns(scores: Sequence[Score], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for score in scores:
        table.add_column(Text(_heading(score)), justify="right")
    for label, *values in zip(_LABELS, *(_column(score) for score in scores), strict=True):
        table.add_row(Text(label), *(Text(value) for value in values))
    console.print(table)


def _column(score: Score) -> tuple[str, ...]:
    """Return the values of one forecaster in the order of the labels."""

    def number(key: str, digits: int, shown: Callable[[float], float] = float, *, sign: bool = False) -> str:
        value = value_of(score, key)
        if value is None:
            return "–"
        found = score.ci95.get(key)

        def text(one: float) -> str:
            return signed(shown(one), digits) if sign else f"{shown(one):.{digits}f}"

        return text(value) if found is None else f"{text(value)} [{text(found[0])}, {text(found[1])}]"

    def of_time(key: str, *, sign: bool = False) -> str:
        text = number(key, 1, percent_of, sign=sign)
        return text if text == "–" else f"{text} %"

    spread = score.repeat_percent
    return (
        f"{score.measured} of {score.sealed}",
        number("bias", 1, sign=True),
        number("error", 1),
        of_time("log_bias", sign=True),
        of_time("log_error"),
        "–" if spread is None else f"{spread:.1f} % in {score.repeats}",
        "–" if score.machine_percent is None else f"{score.machine_percent:.1f} % in {score.machines}",
        "–" if score.timing_percent is None else f"±{score.timing_percent:.2f} %",
        _share(score.coverage, score.intervals - score.vacuous),
        number("interval_score", 1),
        str(score.vacuous),
        number("wis", 3),
        _share(score.regime_right, score.regimes),
        number("brier", 2),
        number("log_score", 2),
    )


def _share(value: float | None, count: int) -> str:
    return "–" if value is None else f"{100 * value:.0f}% of {count}"


# Baselines and ranking


_MOST_APART = 3
"""Forecasters, each sight for itself, up to which each has its table of skill."""


def render_skills(skills: Sequence[Skill], console: Console) -> None:
    """Print how the forecasters compare with the baselines on the same cells; of many the skill alone."""
    told = "Skill is 1 - error ÷ baseline's error, of ln time, on the cells that both answer."
    if len({(one.forecaster, one.sight) for one in skills}) > _MOST_APART:
        console.print()
        print_skill_rows(skills, console)
        console.print(Text(told, style="dim"))
        return
    for (forecaster, sight), members in groupby(skills, key=lambda one: (one.forecaster, one.sight)):
        rows = [
            (
                one.baseline,
                str(one.cells),
                f"{percent_of(one.error):.1f} %",
                f"{percent_of(one.baseline_error):.1f} %",
                "–" if one.skill is None else f"{signed(one.skill, 2)}{_interval(one.low, one.high)}",
            )
            for one in members
        ]
        console.print()
        console.print(Text(f"Skill, {harmless(forecaster, LONGEST_NAME)}, {sight}", style="bold"))
        print_rows(console, ("baseline", "cells", "error of time", "baseline's", "skill"), rows, folding=())
    if skills:
        console.print(Text(told, style="dim"))


def _interval(low: float | None, high: float | None, digits: int = 2) -> str:
    return "" if low is None or high is None else f" [{signed(low, digits)}, {signed(high, digits)}]"


RANKING_NOTE = (
    "Peer score: how much lower the error of ln time is than the others' on the same cells, corrected for how hard "
    "the cells of each are. "
    "Ahead: probability of being ahead of the next, by a paired bootstrap. "
    "Built-in forecasters also answer, unsealed, the cells for which they sealed nothing; a baseline sealed nothing."
)


def render_rankings(rankings: Mapping[str, Ranking], console: Console) -> None:
    """Print the ranking of each sight, with the probability that its order is right."""
    for sight, ranking in rankings.items():
        rows = ranking.rows
        intervals = [f"{signed(one.peer_score, 3)}{_interval(one.low, one.high, 3)}" for one in rows]
        ahead = ["–" if one.ahead_of_next is None else f"{100 * one.ahead_of_next:.0f}%" for one in rows]
        names = [harmless(one.forecaster, LONGEST_NAME + len(PREFIX)) for one in rows]
        console.print()
        order = "" if ranking.order is None else f"; {100 * ranking.order:.0f}% that all of the order is right"
        console.print(Text(f"Ranking, {sight}, {count_text(ranking.cells, 'shared cell')}{order}", style="bold"))
        columns = (
            Column("", [str(one.rank) for one in rows]),
            Column("forecaster", names, right=False),
            Column("cells", [str(one.cells) for one in rows]),
            Column("error\nof time", [f"{percent_of(one.loss):.1f}%" for one in rows]),
            Column("peer score", intervals, right=False),
            Column("ahead", ahead),
        )
        print_fitted(console, columns)
        if ranking.alone:
            alone = ", ".join(harmless(name, LONGEST_NAME) for name in ranking.alone)
            console.print(Text(f"Not compared, for want of shared cells: {alone}"))
    if rankings:
        console.print(Text(RANKING_NOTE, style="dim"))


def ranking_document(rankings: Mapping[str, Ranking]) -> list[dict[str, Any]]:
    """Return the rankings as JSON values, a row each forecaster and sight."""
    return [
        {
            "forecaster": row.forecaster.removeprefix(PREFIX),
            "baseline": row.forecaster.startswith(PREFIX),
            "sight": sight,
            **{key: value for key, value in asdict(row).items() if key != "forecaster"},
            "shared_cells": ranking.cells,
            "order_probability": ranking.order,
            "resampled": ranking.resampled,
        }
        for sight, ranking in rankings.items()
        for row in ranking.rows
    ]


def with_skills(scores: list[dict[str, Any]], skills: Sequence[Skill]) -> list[dict[str, Any]]:
    """Return score documents, each with its forecaster's skill against the baselines."""
    for score in scores:
        key = (score["forecaster"], sight_name(score["sight"]))
        own = [asdict(one) for one in skills if (one.forecaster, one.sight) == key]
        score["skill"] = [{name: one[name] for name in one if name not in ("forecaster", "sight")} for one in own]
    return scores


# Calibration


def render_calibration(scores: Sequence[Score], console: Console) -> None:
    """Print stated probabilities of regimes against how often they came true, each as a bar with its interval."""
    for score in scores:
        if not score.calibration:
            continue
        console.print()
        console.print(Text(f"Calibration of regimes, {_heading(score)}", style="bold"))
        for one in score.calibration:
            bar = "".join(_mark(place / _BAR, one.stated, one.low, one.high) for place in range(_BAR + 1))
            told = f"said {100 * one.stated:3.0f}%  measured {100 * one.observed:3.0f}% of {one.count:4}"
            console.print(Text(f"{told}  |{bar}|"), soft_wrap=True)
    if any(score.calibration for score in scores):
        console.print(Text("| | is 0 to 100%; +: as said, -: 95% interval of the measured share", style="dim"))


def _mark(share: float, stated: float, low: float, high: float) -> str:
    half = 0.5 / _BAR
    if abs(share - stated) <= half:
        return "+"
    return "-" if low - half <= share <= high + half else " "

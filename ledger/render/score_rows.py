"""Renders the scores of many forecasters, a line each, or of many groups, in as many columns as a terminal holds.

Within a sight the forecaster of the least error of time comes first. Writes to the console given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from ledger.analysis.formatting import count_text, harmless, kernel_tail
from ledger.analysis.score import Score
from ledger.analysis.sight_names import SIGHTS, sight_name
from ledger.forecasters.baselines import Skill
from ledger.render.fitted_table import Column, print_fitted
from ledger.render.score_values import interval_text, number_text, percent_of_time, share_text, value_of

LONGEST_NAME = 30


def print_score_rows(scores: Sequence[Score], console: Console) -> None:
    """Print a line for each forecaster, under its sight."""
    ordered = sorted(scores, key=_place)
    groups = [(name, len(list(found))) for name, found in groupby(ordered, key=lambda one: sight_name(one.sight))]
    columns = [
        _column("forecaster", ordered, lambda one: harmless(one.forecaster, LONGEST_NAME), right=False),
        *_value_columns(ordered),
    ]
    left_out = print_fitted(console, columns, groups)
    console.print(Text("Each is scored on its own cells; ledger score --ranking compares shared ones.", style="dim"))
    if left_out:
        words = f"A wider terminal also shows: {'; '.join(left_out)}. "
        console.print(Text(words + "All of one: ledger score --forecaster NAME, or --json.", style="dim"))


def print_group_rows(scores: Sequence[Score], console: Console) -> None:
    """Print a line for each group of a forecaster; groups without a result are counted."""
    left_out: list[str] = []
    for (name, sight), found in groupby(
        sorted(scores, key=_place_of_group), key=lambda one: (one.forecaster, one.sight)
    ):
        members = list(found)
        measured = [one for one in members if one.measured]
        console.print(Text(f"{harmless(name, LONGEST_NAME)}, {sight_name(sight)}", style="bold"))
        if measured:
            names = _column("group", measured, lambda one: kernel_tail(one.group or "", LONGEST_NAME), right=False)
            left_out = print_fitted(console, [names, *_value_columns(measured)]) or left_out
        if unmeasured := [one for one in members if not one.measured]:
            sealed = count_text(sum(one.sealed for one in unmeasured), "forecast")
            console.print(Text(f"{count_text(len(unmeasured), 'group')} without a result: {sealed}", style="dim"))
    if left_out:
        console.print(Text(f"A wider terminal also shows: {'; '.join(left_out)}.", style="dim"))


def print_skill_rows(skills: Sequence[Skill], console: Console) -> None:
    """Print the skill of each forecaster, a line each, against each baseline, a column each."""
    names = list(dict.fromkeys(one.baseline for one in skills))
    found = {(one.forecaster, one.sight, one.baseline): one for one in skills}
    order = [sight_name(sight) for sight in (*SIGHTS, None)]
    rows = {(order.index(one.sight), one.forecaster): -(one.skill or 0.0) for one in reversed(skills)}
    ordered = sorted(rows, key=lambda row: (row[0], rows[row], row[1]))
    columns = [Column("skill against", [harmless(name, LONGEST_NAME) for _, name in ordered], right=False)]
    for baseline in names:
        several = [found.get((name, order[place], baseline)) for place, name in ordered]
        values = [number_text(None if one is None else one.skill, 2, sign=True) for one in several]
        columns.append(Column(baseline.replace("-", "-\n"), values, rank=len(columns)))
    print_fitted(
        console, columns, [(order[place], len(list(same))) for place, same in groupby(row[0] for row in ordered)]
    )


def _place(score: Score) -> tuple[int, bool, float, str]:
    missing = score.log_error is None
    return (*SIGHTS, None).index(score.sight), missing, score.log_error or 0.0, score.forecaster


def _place_of_group(score: Score) -> tuple[str, int, str]:
    return score.forecaster, (*SIGHTS, None).index(score.sight), score.group or ""


def _column(
    heading: str, scores: Iterable[Score], value: Callable[[Score], str], *, rank: int = 0, right: bool = True
) -> Column:
    return Column(heading, [value(one) for one in scores], rank, right)


def _value_columns(scores: Sequence[Score]) -> list[Column]:
    """Return the columns of numbers, the error of time first."""

    def mean(heading: str, key: str, digits: int, rank: int, *, sign: bool = False) -> Column:
        values = [number_text(value_of(one, key), digits, sign=sign) for one in scores]
        return Column(heading, values, rank)

    def time(heading: str, key: str, rank: int) -> Column:
        sign = key == "log_bias"
        return _column(heading, scores, lambda one: percent_of_time(getattr(one, key), sign=sign), rank=rank)

    def share(heading: str, key: str, rank: int) -> Column:
        return _column(heading, scores, lambda one: share_text(getattr(one, key)), rank=rank)

    return [
        _column("sealed", scores, lambda one: str(one.sealed), rank=4),
        _column("cells", scores, lambda one: str(one.measured)),
        time("error\nof time", "log_error", 0),
        _column("95%", scores, lambda one: interval_text(one.ci95.get("log_error"), percent_of_time), rank=2),
        time("bias\nof time", "log_bias", 3),
        share("in\ninterval", "coverage", 1),
        share("regime\nright", "regime_right", 1),
        mean("WIS of\nln time", "wis", 3, 5),
        mean("Brier\nscore", "brier", 2, 6),
        mean("log score,\nnats", "log_score", 2, 8),
        mean("error,\npoints", "error", 1, 7),
        mean("bias,\npoints", "bias", 1, 9, sign=True),
        mean("interval\nscore", "interval_score", 1, 10),
        _column("vacuous\nintervals", scores, lambda one: str(one.vacuous), rank=11),
        mean("repeats\ndiffer, %", "repeat_percent", 1, 12),
        mean("machines\ndiffer, %", "machine_percent", 1, 13),
    ]

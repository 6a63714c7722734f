"""Renders the scores of the forecasters as one table. Writes to the console given."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.analysis.formatting import harmless, signed
from ledger.analysis.repeats import RepeatSpread
from ledger.analysis.score import Score
from ledger.analysis.sight import sight_name

_LABELS = (
    "cells measured",
    "bias, points",
    "error, points",
    "in interval",
    "interval score, points",
    "vacuous intervals",
    "regime right",
    "Brier score",
    "log score, nats",
)
_LEGEND = (
    "Bias is signed, error is not; of interval, Brier and log score the lower the better; intervals are read as 80%. "
    "Near: a neighbour or another version had been timed; informed: the cell had been. Undeclared counts as neither. "
    "Cells never measured are not scored. A vacuous interval (90 points or more) counts in no coverage."
)
_LONGEST_NAME = 30


def render_scores(scores: Sequence[Score], console: Console, *, repeats: RepeatSpread | None = None) -> None:
    """Print the scores, one column for each forecaster and sight; a dash stands for what cannot be scored."""
    if not scores:
        console.print("Nothing to score: no forecast is sealed, or the ledger is refused.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for score in scores:
        heading = f"{harmless(score.forecaster, _LONGEST_NAME)}, {sight_name(score.sight)}"
        table.add_column(Text(heading), justify="right")
    for label, *values in zip(_LABELS, *(_column(score) for score in scores), strict=True):
        table.add_row(Text(label), *(Text(value) for value in values))
    console.print(table)
    console.print(Text(_LEGEND, style="dim"))
    if repeats is not None:
        console.print(Text(f"Repeats: {repeats.text}; an error below that shows no skill.", style="dim"))


def _column(score: Score) -> tuple[str, ...]:
    """Return the values of one forecaster in the order of the labels."""
    return (
        f"{score.measured} of {score.sealed}",
        "–" if score.bias is None else signed(score.bias),
        _number(score.error, 1),
        _share(score.coverage, score.intervals - score.vacuous),
        _number(score.interval_score, 1),
        str(score.vacuous),
        _share(score.regime_right, score.regimes),
        _number(score.brier, 2),
        _number(score.log_score, 2),
    )


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _share(value: float | None, count: int) -> str:
    return "–" if value is None else f"{100 * value:.0f}% of {count}"

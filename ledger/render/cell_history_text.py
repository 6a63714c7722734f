"""Renders the history of cells: a line for each forecast and run, then what changed from one to the next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ledger.analysis.cell_history import CellHistory, Step
from ledger.analysis.formatting import count_text, harmless
from ledger.analysis.report_rows import case_rows
from ledger.render.report_text import cell_text, gap_text, measured_text, others_text, predicted_text, sight_text
from ledger.render.tables import print_rows

HISTORY_LEGEND = (
    "Sealed: the date that the commit claims, which proves nothing. Time: against the run before.",
    "Cause: the largest; all of them: ledger report SEAL#CELL.",
)
"""What the columns mean: those of any width, and the cause."""
_HEADINGS = ("#", "sealed", "seal", "sight", "predicted", "measured", "time", "gap", "cause")
_FOLDING = ("sight", "predicted", "measured", "cause")
_WIDE = 100
_INDENT = (0, 0, 0, 2)


def render_histories(found: Sequence[CellHistory], console: Console) -> None:
    """Print the history of each cell: its forecasts with their runs, who sealed and measured, and what changed."""
    for history in found:
        title = f"{cell_text(history.steps[0].row.view)}: {count_text(history.forecasts, 'forecast')}"
        console.print(Text(f"{title}, {count_text(history.measured, 'measured run')}", style="bold"))
        # A narrow terminal has no room for the cause.
        shown = len(_HEADINGS) if console.width >= _WIDE else len(_HEADINGS) - 1
        cases = case_rows(step.row for step in history.steps)
        leads = {id(case.lead): case for case in cases}
        # Forecasts that one run scores stand beside the one that leads them.
        steps = [(number, step) for number, step in enumerate(history.steps, start=1) if id(step.row) in leads]
        rows = [_words(number, step)[:shown] for number, step in steps]
        print_rows(console, _HEADINGS[:shown], rows, folding=_FOLDING)
        others = [f"#{number} {words}" for number, step in steps if (words := others_text(leads[id(step.row)]))]
        for line in (*others, *_who(steps), *_changed(steps)):
            console.print(Padding(Text(line, style="dim"), _INDENT, expand=False))
        console.print()
    legend = HISTORY_LEGEND if console.width >= _WIDE else HISTORY_LEGEND[:1]
    console.print(Text(" ".join(legend), style="dim"))


def _words(number: int, step: Step) -> tuple[str, ...]:
    view, cause = step.row.view, step.cause
    return (
        str(number),
        view.sealed.commit.when[:10],
        view.sealed.id[:10],
        sight_text(view).removesuffix(", revised"),
        predicted_text(view.forecast, digits=3),
        measured_text(step.row, timed=True),
        "" if step.time_ratio is None else f"×{step.time_ratio:.2f}",
        gap_text(step.row),
        "" if cause is None else f"{cause.name.replace('_', ' ')} ×{cause.factor:.2f}",
    )


def _who(steps: Sequence[tuple[int, Step]]) -> list[str]:
    """Return who sealed and who measured, each with the numbers of the steps where they differ."""
    lines = []
    for what, names in (
        ("sealed", {number: step.row.view.sealed.prediction.forecaster for number, step in steps}),
        ("measured", {number: step.row.run.recorded.commit.author for number, step in steps if step.row.run}),
    ):
        said: dict[str, list[str]] = {}
        for number, name in names.items():
            said.setdefault(harmless(name, 80), []).append(f"#{number}")
        parts = [name if len(said) == 1 else f"{name} ({', '.join(numbers)})" for name, numbers in said.items()]
        lines += [f"{what} by {'; '.join(parts)}"] if parts else []
    return lines


def _changed(steps: Sequence[tuple[int, Step]]) -> list[str]:
    """Return what changed at each step, in words."""
    return [
        f"#{number} changed: {harmless(', '.join(change.text for change in step.changed), 600)}"
        for number, step in steps
        if step.changed
    ]

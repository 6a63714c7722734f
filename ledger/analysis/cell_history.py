"""Gathers what happened to each cell over time: its forecasts, their runs, and what changed between them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ledger.analysis.forecast_changes import Change, changes, version_of
from ledger.analysis.formatting import shape_text
from ledger.analysis.gap import main_cause
from ledger.analysis.report_rows import ReportRow, row_document
from ledger.errors import UnknownName
from ledger.records import Case, Cause

_LISTED_SHAPES = 12


@dataclass(frozen=True)
class Step:
    """Hold one run of a forecast, or a forecast without a run, in the history of its cell.

    changed: against the forecast before it; empty for the first, and for later runs of a forecast. time_ratio: the
    measured time over that of the run before it; None without one of them.
    """

    row: ReportRow
    changed: tuple[Change, ...]
    time_ratio: float | None

    @property
    def time_ps(self) -> int | None:
        """Return the measured time, None where there is none."""
        timing = self.row.run.recorded.measurement.timing if self.row.run else None
        return None if timing is None else timing.median_ps

    @property
    def cause(self) -> Cause | None:
        """Return the largest cause of the gap; None where nothing was measured, or no cause is large."""
        found = self.row.run.verification.gap if self.row.run else None
        return None if found is None else main_cause(found)


@dataclass(frozen=True)
class CellHistory:
    """Hold the steps of one cell, oldest seal first."""

    case: Case
    steps: tuple[Step, ...]

    @property
    def forecasts(self) -> int:
        """Return how many forecasts of the cell were sealed."""
        return len({step.row.view.name for step in self.steps})

    @property
    def measured(self) -> int:
        """Return how many runs have a time."""
        return sum(step.time_ps is not None for step in self.steps)


def histories(listed: Sequence[ReportRow]) -> tuple[CellHistory, ...]:
    """Return the history of each cell that has rows, in the order of their first seals."""
    found: dict[object, list[ReportRow]] = {}
    for row in listed:
        found.setdefault(row.view.forecast.case.cell, []).append(row)
    return tuple(CellHistory(rows[0].view.forecast.case, _steps(rows)) for rows in found.values())


def _steps(listed: Sequence[ReportRow]) -> tuple[Step, ...]:
    steps: list[Step] = []
    time_before: int | None = None
    for row in listed:
        last = steps[-1].row.view if steps else row.view
        step = Step(row, changes(last.forecast, row.view.forecast), None)
        if (now := step.time_ps) is not None:
            ratio = None if time_before is None else now / time_before
            step, time_before = Step(row, step.changed, ratio), now
        steps.append(step)
    return tuple(steps)


def of_shape(listed: Sequence[ReportRow], shape: Mapping[str, int]) -> tuple[ReportRow, ...]:
    """Return the rows whose shapes hold the given sizes. Raises: UnknownName where none does."""
    kept = tuple(row for row in listed if shape.items() <= row.view.forecast.case.shape.items())
    if kept or not listed:
        return kept
    known = list(dict.fromkeys(shape_text(row.view.forecast.case.shape) for row in listed))
    shown = "; ".join(known[:_LISTED_SHAPES]) + ("; …" if len(known) > _LISTED_SHAPES else "")
    raise UnknownName(f"--shape: no cell has {shape_text(shape)}; expected sizes of one of: {shown}")


def history_document(found: Sequence[CellHistory]) -> list[dict[str, Any]]:
    """Return histories as one JSON value; a step is a row of the report with what its history adds."""
    return [
        {
            "kernel": history.case.kernel,
            "shape": dict(history.case.shape),
            "dtype": history.case.dtype,
            "hardware": history.case.hardware,
            "forecasts": history.forecasts,
            "measured": history.measured,
            "steps": [_step_document(step) for step in history.steps],
        }
        for history in found
    ]


def _step_document(step: Step) -> dict[str, Any]:
    view, run, cause = step.row.view, step.row.run, step.cause
    return {
        **row_document(step.row),
        "sealed_self_declared": view.sealed.commit.when,
        "measured_self_declared": run.recorded.commit.when if run else None,
        "measured_by": run.recorded.commit.author if run else None,
        "kernel_version": version_of(view.forecast),
        "changed": [asdict(change) for change in step.changed],
        "time_ratio": step.time_ratio,
        "cause": None if cause is None else cause.model_dump(mode="json"),
    }

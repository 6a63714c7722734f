"""Turns a judged ledger into rows and into the JSON document of `ledger report --json`. Pure.

A row is one run of one sealed cell, or a cell that has no run. Every revision and every run has its row; a run beyond
the first finished one is shown and does not count. A ledger that is refused has no rows: it does not open. Rows of one
case that one run scores have one number, and `case_rows` puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ledger.analysis.above_roof import above_roof_reason
from ledger.analysis.book import Book, CellView, Run, State
from ledger.analysis.clock_state import BoostState, boost_state
from ledger.analysis.cpu_noise import BUSY_PERCENT, others_percent
from ledger.analysis.machines import machine_document
from ledger.analysis.reconcile import totals_of
from ledger.analysis.repeats import chip_of, spread_percent
from ledger.analysis.results import case_key
from ledger.analysis.stream_timing import stream_text, timing_method
from ledger.records import Finding

STATE_TEXT: dict[State, str] = {
    "open": "sealed and not yet measured",
    "stale": "open, and its kernel or hardware profile has changed since",
    "void": "withdrawn in the open",
    "failed": "its kernel did not give a right result, or did not run",
    "measured": "measured",
    "refused": "its evidence is refused",
    "hidden": "sealed by digest and not revealed",
    "missed": "drawn, and measured after its deadline",
}


@dataclass(frozen=True)
class ReportRow:
    """Hold one forecast with one run. `number` is that of its case, from 1: forecasts that one run scores share it."""

    number: int
    view: CellView
    run: Run | None

    @property
    def result(self) -> Run | None:
        """Return the run that the row shows: its own, else that of another forecast of its case."""
        return self.run or self.view.scored

    @property
    def scored(self) -> Run | None:
        """Return the run that the forecast is scored by; None in further rows of the forecast."""
        if self.counts:
            return self.run
        first = self.run is (self.view.runs or (None,))[0]
        return self.view.scored if first and self.view.counted is None else None

    @property
    def counts(self) -> bool:
        """Tell whether this row's run is the one that counts."""
        return self.run is not None and self.run is self.view.counted


@dataclass(frozen=True)
class CaseRow:
    """Hold the rows of one case that one run scores; the first one leads: a person's before a program's."""

    rows: tuple[ReportRow, ...]

    @property
    def lead(self) -> ReportRow:
        """Return the row whose forecast stands for the case."""
        return self.rows[0]

    @property
    def others(self) -> tuple[ReportRow, ...]:
        """Return the rows of the other forecasts."""
        return self.rows[1:]


def case_rows(listed: Iterable[ReportRow]) -> tuple[CaseRow, ...]:
    """Return rows by case, in the order of the first row of each."""
    found: dict[int, list[ReportRow]] = {}
    for row in listed:
        found.setdefault(row.number, []).append(row)
    return tuple(CaseRow(tuple(sorted(members, key=_lead_order))) for members in found.values())


def _lead_order(row: ReportRow) -> tuple[bool, bool]:
    """Order rows by who forecast, a person first, and then by whether the run is the forecast's own."""
    participant = getattr(row.view.sealed.prediction, "participant", None)
    return participant is not None and participant.kind != "person", row.run is None


def boost_of(row: ReportRow) -> BoostState | None:
    """Return the boost state of a row whose percent is of a steady state that differs from it; None elsewhere."""
    return boost_state(row.view.forecast, row.result.recorded.measurement) if row.result else None


def conditions(row: ReportRow) -> Iterator[str]:
    """Yield what to know of a row's percent: its clock state, other load on a CPU, and why it is above 100."""
    if row.result is None or row.result.recorded.measurement.timing is None:
        return
    measurement = row.result.recorded.measurement
    if (boost := boost_of(row)) is not None:
        yield boost.sentence
    if (text := stream_text(measurement)) is not None:
        yield text
    share = others_percent(measurement)
    if share is not None and share >= BUSY_PERCENT:
        yield f"Other processes used {share:.0f}% of the processors during the timing."
    if row.view.hardware and (why := above_roof_reason(row.view.forecast, measurement, row.view.hardware)):
        yield f"Above 100%: {why}."


def rows(book: Book) -> tuple[ReportRow, ...]:
    """Return every row of a book, in the order of its seals; none when the ledger is refused."""
    if book.refused:
        return ()
    # A book is frozen, and its rows are asked for again and again.
    held = book.__dict__
    if "_rows" not in held:
        numbers: dict[object, int] = {}
        pairs = [(view, run) for view in book.cells for run in (view.runs or (None,))]
        held["_rows"] = tuple(
            ReportRow(numbers.setdefault(_what(view, run), len(numbers) + 1), view, run) for view, run in pairs
        )
    found: tuple[ReportRow, ...] = held["_rows"]
    return found


def _what(view: CellView, run: Run | None) -> object:
    """Return what rows with one number share: the run that they show, or the case of open forecasts."""
    shown = run or view.scored
    if shown is not None:
        return case_key(view), shown.recorded.id
    return view.name if view.state == "void" else (case_key(view), view.state == "missed")


def missing(book: Book) -> tuple[CellView, ...]:
    """Return the cells that have no finished run, and those still hidden; none when the ledger is refused."""
    without = tuple(view for view in book.cells if view.counted is None)
    return () if book.refused else (*without, *book.hidden)


def void_reasons(book: Book) -> dict[str, str]:
    """Return why cells were withdrawn, by SEAL#CELL; of several reasons the first."""
    first: dict[tuple[str, str | None], tuple[int, str]] = {}
    for number, voided in enumerate(book.voids):
        first.setdefault((voided.void.seal, voided.void.cell), (number, voided.void.why))
    found: dict[str, str] = {}
    for view in book.cells:
        named = [first[key] for key in ((view.sealed.id, None), (view.sealed.id, view.forecast.cell)) if key in first]
        if named:
            found[view.name] = min(named)[1]
    return found


def document(book: Book) -> dict[str, Any]:
    """Return the report as one JSON value. Units: as the keys say; percent of the roof from 0 to 100."""
    reasons = void_reasons(book)
    return {
        "head": book.head,
        "rows": [row_document(row) for row in rows(book)],
        "missing": [_missing(reasons, view) for view in missing(book)],
        "refused": [_finding(finding) for finding in book.refused],
        "findings": [_finding(finding) for finding in book.findings if finding.severity != "refused"],
        "machines": machine_document(book),
    }


def row_document(row: ReportRow) -> dict[str, Any]:
    """Return a row as one JSON value."""
    view, run = row.view, row.run
    case, verdict = view.forecast.case, run.verification if run else None
    return {
        "seal": view.sealed.id,
        "cell": view.forecast.cell,
        "name": view.name,
        "kernel": case.kernel,
        "shape": dict(case.shape),
        "dtype": case.dtype,
        "hardware": case.hardware,
        "implementation": case.implementation,
        "forecaster": view.sealed.prediction.forecaster,
        "sealed_by": view.sealed.commit.author,
        "measured_by": run.recorded.commit.author if run else None,
        "campaign": view.sealed.prediction.campaign,
        "state": view.state,
        "blind": view.blind,
        **sight_document(view),
        "revises": list(view.revises),
        "run": run.recorded.measurement.run if run else None,
        "counts": row.counts,
        "scored_by": None if view.scored is None else view.scored.recorded.id,
        "record": run.recorded.id if run else None,
        "failure": run.recorded.measurement.failure if run else None,
        "timed": timing_method(run.recorded.measurement) if run else None,
        "predicted": _predicted(view),
        "measured": _measured(row, run) if run else None,
        "gap": verdict.gap.model_dump(mode="json") if verdict and verdict.gap else None,
        "grade": verdict.grade if verdict else None,
        "levels": list(view.levels),
        "samples": view.binding,
        "reference": checked.reference if run and (checked := run.recorded.measurement.correctness) else None,
        "tolerance": case.config.get("tolerance"),
        "findings": [_finding(finding) for finding in verdict.findings] if verdict else [],
    }


def sight_document(view: CellView) -> dict[str, Any]:
    """Return what had been timed before a forecast; null where nothing was declared, and no record shows it."""
    return {
        "sight": view.sight,
        "declared": view.declared,
        "known": view.known,
        "corrections": [{"quote": quote, "source": source} for quote, source in view.corrections],
    }


def _predicted(view: CellView) -> dict[str, Any]:
    forecast = view.forecast
    ppm = forecast.probabilities_ppm
    return {
        "regime": forecast.regime,
        "percent": forecast.percent_milli / 1000,
        "low": None if forecast.low_milli is None else forecast.low_milli / 1000,
        "high": None if forecast.high_milli is None else forecast.high_milli / 1000,
        "probabilities": None if ppm is None else {regime: share / 1e6 for regime, share in ppm.items()},
        "why": forecast.why,
    }


def view_spread(view: CellView) -> float | None:
    """Return the spread of a cell's repeats, computed once for all of its rows."""
    # A view is frozen: what is computed from it lies beside its fields, as a cached property would.
    held = view.__dict__
    if "_spread" not in held:
        held["_spread"] = spread_percent(view)
    found: float | None = held["_spread"]
    return found


def _measured(row: ReportRow, run: Run) -> dict[str, Any] | None:
    view, measurement = row.view, run.recorded.measurement
    timing = measurement.timing
    if timing is None:
        return None
    totals = totals_of(measurement, view.hardware) if view.hardware else None
    boost, hardware = boost_of(row), view.hardware
    return {
        "regime": run.verification.measured_regime,
        "also": run.verification.also_regime,
        "percent": run.verification.measured_percent,
        "chip": chip_of(measurement),
        "node": getattr(measurement, "node", None),
        "duration_us": timing.median_ps / 1e6,
        "ci_low_us": timing.low_ps / 1e6,
        "ci_high_us": timing.high_ps / 1e6,
        "repeat_spread_percent": view_spread(view),
        "launch_us": None if timing.launch_ps is None else timing.launch_ps / 1e6,
        "clock_state": None if boost is None else boost.name,
        "boost_percent": None if boost is None else boost.percent,
        "boost_us": None if boost is None else boost.time_ps / 1e6,
        "others_percent": others_percent(measurement),
        "above_100": None if hardware is None else above_roof_reason(view.forecast, measurement, hardware),
        "counters": None if totals is None else asdict(totals),
    }


def _missing(reasons: Mapping[str, str], view: CellView) -> dict[str, Any]:
    return {
        "seal": view.sealed.id,
        "cell": view.forecast.cell,
        "name": view.name,
        "state": view.state,
        "why": reasons.get(view.name) if view.state == "void" else STATE_TEXT[view.state],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return finding.model_dump(mode="json")


def counted(book: Book) -> Iterator[tuple[CellView, Run]]:
    """Yield every cell that counts as measured, with its run, or with the run of its case that it is scored by."""
    for row in rows(book):
        if (run := row.scored) is not None:
            yield row.view, run

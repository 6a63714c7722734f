"""Formats the parts of a report line, the same for terminal, Markdown and HTML. Pure.

Every text returned is safe to print: fields of records pass through formatting.harmless, and each renderer adds its own
escaping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import fmean
from typing import Literal

from ledger.analysis.book import Book, CellView, Run, State
from ledger.analysis.formatting import count_text, duration, harmless, si, signed, sizes_text
from ledger.analysis.gap import HIT_POINTS
from ledger.analysis.machines import chip_times, machine_lines
from ledger.analysis.reconcile import totals_of
from ledger.analysis.repeats import repeat_spread_of
from ledger.analysis.report_rows import (
    STATE_TEXT,
    CaseRow,
    ReportRow,
    boost_of,
    case_rows,
    conditions,
    rows,
    void_reasons,
)
from ledger.analysis.results import case_key
from ledger.analysis.sight_names import SIGHTS, sight_name
from ledger.callables.subject import SELF_CONSISTENT, is_callable, recompute_command
from ledger.records import Forecast, Measurement, Verification

LEGEND = (
    "Percent is of the roof: 100 × time lower bound ÷ measured time. Gap is measured minus predicted, in points. "
    "Grade: A hardware counters, B timing and an intervention, C timing only. "
    "Sight is what had been timed before the seal, by declaration and records. Blind: nothing like it; near: a "
    "neighbouring shape or another version; informed: this cell; *: corrected by quoted texts. Revised: an earlier "
    "forecast of the cell exists; again: a later run, which does not count."
)

MOST_OF_A_CODE = 10
"""Messages of one code that are listed for files."""

SCORED = "scored by another seal's run"
"""What is said of a forecast without a run of its own whose case was measured."""

COUNTER_HEADINGS = (
    "DRAM",
    "of modelled",
    "DRAM %",
    "L2 %",
    "SMEM %",
    "tensor %",
    "waves",
    "occupancy %",
    "SM clock",
)
HEADINGS = ("#", "cell", "predicted", "measured", "gap", "grade", "sight")


def standing(view: CellView) -> str:
    """Return the state of a cell, or that the run of another forecast of its case scores it."""
    return SCORED if view.counted is None and view.scored is not None else view.state


def cell_text(view: CellView) -> str:
    """Return kernel, shape, dtype, hardware and, where it is not the usual, the implementation."""
    case = view.forecast.case
    words = f"{case.kernel} {sizes_text(case)} {case.dtype} {case.hardware}"
    return harmless(words if case.implementation == "triton" else f"{words} {case.implementation}")


def predicted_text(forecast: Forecast, *, digits: int = 6) -> str:
    """Return regime and percent as forecast, with the interval: hbm-bound 78% (70–86). digits: how many at most."""

    def percent(milli: int) -> str:
        return f"{milli / 1000:.{digits}g}"

    words = f"{forecast.regime} {percent(forecast.percent_milli)}%"
    if forecast.low_milli is None or forecast.high_milli is None:
        return words
    return f"{words} ({percent(forecast.low_milli)}–{percent(forecast.high_milli)})"


def measured_text(row: ReportRow, *, timed: bool = False) -> str:
    """Return regime and percent as measured, or the state of a cell without a result. timed: the time behind it."""
    if row.result is None:
        return row.view.state
    verdict = row.result.verification
    if verdict.measured_percent is None:
        return "failed"
    boost, again = boost_of(row), "" if row.counts or row.run is None else " (again)"
    state = "" if boost is None else f" {boost.name}"
    timing = row.result.recorded.measurement.timing
    took = f", {duration(timing.median_ps)}" if timed and timing is not None else ""
    return f"{verdict.regimes_text} {verdict.measured_percent:.1f}%{state}{took}{again}"


def gap_text(row: ReportRow) -> str:
    """Return the signed gap in points, empty where nothing was measured."""
    found = row.result.verification.gap if row.result else None
    return "" if found is None else signed(found.percent)


def outcome(row: ReportRow) -> Literal["hit", "miss"] | None:
    """Return whether a forecast held: its gap is small and its regime not wrong. None where nothing was measured."""
    verdict = row.result.verification if row.result else None
    if verdict is None or verdict.gap is None:
        return None
    return "miss" if regime_is_wrong(row) or abs(verdict.gap.percent) > HIT_POINTS else "hit"


def regime_is_wrong(row: ReportRow) -> bool:
    """Tell whether a regime was measured and another one was forecast."""
    verdict = row.result.verification if row.result else None
    return verdict is not None and bool(verdict.regimes) and not verdict.regime_is_right


def grade_text(row: ReportRow) -> str:
    """Return the grade of the evidence, empty where nothing was measured."""
    return (row.result.verification.grade or "") if row.result else ""


def sight_text(view: CellView) -> str:
    """Return the sight, starred where texts correct it, and whether the forecast revises an earlier one."""
    words = f"{sight_name(view.sight)}{'*' if view.corrections else ''}"
    return f"{words}, revised" if view.revises else words


def sentence(row: ReportRow) -> str:
    """Return the sentences that explain a row: the gap's and the conditions of its percent, or why a cell failed."""
    if row.result is None:
        return ""
    found, measurement = row.result.verification.gap, row.result.recorded.measurement
    if found is not None:
        return harmless(" ".join([found.sentence, *conditions(row), *_checked(measurement)]))
    return harmless(f"Failed: {measurement.failure or 'no reason was recorded'}", 400)


def sentence_of(book: Book, seal: str, cell: str) -> str:
    """Return the sentences of one cell of a book, empty where it has none."""
    listed = (row for row in rows(book) if (row.view.sealed.id, row.view.forecast.cell) == (seal, cell))
    return next((sentence(row) for row in listed), "")


def _checked(measurement: Measurement) -> Iterator[str]:
    """Yield with what tolerance the result of a callable was compared, and whether with itself alone."""
    checked, tolerance = measurement.correctness, measurement.case.config.get("tolerance")
    if is_callable(measurement.case.kernel) and tolerance is not None:
        yield f"Errors up to {harmless(str(tolerance), 20)} of each result's root mean square passed, as sealed."
    if checked is not None and checked.reference.startswith(SELF_CONSISTENT):
        yield "Its result is self-consistent (with itself in float64), not compared with another reference."


def table_rows(row: ReportRow, *, timed: bool = False) -> tuple[str, ...]:
    """Return the cells of a row under HEADINGS. timed: the measured time stands beside the percent."""
    return (
        str(row.number),
        cell_text(row.view),
        predicted_text(row.view.forecast, digits=3),
        measured_text(row, timed=timed),
        gap_text(row),
        grade_text(row),
        sight_text(row.view),
    )


def other_text(row: ReportRow) -> str:
    """Return another forecast of a row's case in a few words: learned 78.2% −3.1, l2-bound is wrong."""
    view = row.view
    words = f"{harmless(view.sealed.prediction.forecaster, 30)} {view.forecast.percent_milli / 1000:.1f}%"
    if row.result is None:
        return f"{words} {view.forecast.regime}"
    wrong = f" {view.forecast.regime.removesuffix('-bound')}" if regime_is_wrong(row) else ""
    return f"{words} {gap_text(row)}{wrong}"


def others_text(case: CaseRow) -> str:
    """Return the other forecasts of a case on one line; empty where there is none."""
    return f"also {'; '.join(map(other_text, case.others))}" if case.others else ""


def seal_text(view: CellView) -> str:
    """Return a seal in a few words: its id, campaign, forecaster and the commit's own date."""
    prediction, commit = view.sealed.prediction, view.sealed.commit
    parts = [f"seal {view.sealed.id[:10]}"]
    parts += [f"campaign {prediction.campaign}"] if prediction.campaign else []
    parts += [prediction.forecaster, f"commit {commit.sha[:10]} of {commit.when[:10]} (its own date)"]
    return harmless(" · ".join(parts), 200)


def missing_text(book: Book) -> list[str]:
    """Return the cells without a result by state, named by their row; a withdrawn one with its author's reason."""
    by_state: dict[State, list[int]] = {}
    words = []
    reasons = void_reasons(book)
    for row in rows(book):
        if row.view.scored is not None:
            continue
        if row.view.state == "void":
            reason = reasons.get(row.view.name) or "no reason was recorded"
            words.append(harmless(f"void ({STATE_TEXT['void']}): #{row.number}, because: {reason}", 400))
        else:
            by_state.setdefault(row.view.state, []).append(row.number)
    if book.hidden and not book.refused:
        words.append(f"hidden ({STATE_TEXT['hidden']}): {count_text(len(book.hidden), 'cell')}")
    return [f"{state} ({STATE_TEXT[state]}): {_ranges(numbers)}" for state, numbers in by_state.items()] + words


def _ranges(numbers: list[int]) -> str:
    """Return numbers in order with neighbours joined: #1 to #3, #5."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"#{run[0]}" if len(run) == 1 else f"#{run[0]} to #{run[-1]}" for run in runs)


def known_text(listed: Sequence[ReportRow]) -> list[str]:
    """Return what had been timed before: in the author's words, and as the texts of seals and files correct it."""
    said: dict[str, list[int]] = {}
    for row in listed:
        view = row.view
        words = [f"{view.declared}: {view.known}"] if view.declared and view.known else []
        words += [f"{quote!r} ({source})" for quote, source in view.corrections]
        for text in words:
            said.setdefault(text, []).append(row.number)
    return [harmless(f"{_ranges(numbers)}: {text}", 600) for text, numbers in said.items()]


def finding_text(book: Book) -> list[str]:
    """Return what is disclosed: first the findings about rows, by their number, then the others with their file.

    Of a code with many findings about files each message stands once, and the last ones are counted.
    """
    listed, words = set(), []
    for row in rows(book):
        for finding in row.run.verification.findings if row.run else ():
            listed.add(finding)
            words.append(harmless(f"#{row.number} {finding.code}: {finding.message}", 600))
    paths: dict[str, dict[str, list[str]]] = {}
    for finding in book.findings:
        if finding not in listed:
            paths.setdefault(finding.code, {}).setdefault(finding.message, []).append(finding.place)
    for code, messages in paths.items():
        for message, found in islice(messages.items(), MOST_OF_A_CODE):
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            words.append(harmless(f"{code}: {found[0]}{more}: {message}", 600))
        if len(messages) > MOST_OF_A_CODE:
            rest = sum(map(len, list(messages.values())[MOST_OF_A_CODE:]))
            words.append(f"{code}: {rest} more (ledger report --json)")
    return words


def summary_text(book: Book) -> tuple[str, ...]:
    """Return the head and the result of a book in five lines, and a few on the chips of one kind."""
    states = Counter(standing(view) for view in book.cells)
    parts = [f"{states[state]} {state}" for state in states]
    told = count_text(len(book.cells), "cell")
    if SCORED in states:
        told = f"{count_text(len(book.cells), 'forecast')} of {count_text(len(set(map(case_key, book.cells))), 'case')}"
    head = f"{count_text(len(book.seals), 'seal')}, {told}: {', '.join(parts) or 'none'}"
    results = [(view, run.verification) for view, run in _standing_for_cases(book)]
    gaps = [verdict.gap.percent for _, verdict in results if verdict.gap is not None]
    if not gaps:
        return (head,)
    known = [verdict for _, verdict in results if verdict.regimes]
    right = sum(verdict.regime_is_right for verdict in known)
    sights = Counter(view.sight for view, _ in results)
    seen = ", ".join(f"{sights[sight]} {sight_name(sight)}" for sight in (*SIGHTS, None) if sights[sight])
    error = fmean(abs(points) for points in gaps)
    regime = f"regime right in {right} of {len(known)}" if known else "no regime determined"
    of = "first forecast of each case: " if SCORED in states else ""
    return (
        head,
        f"{of}{regime}; gap {error:.1f} points on average, {signed(fmean(gaps))} signed",
        f"sight: {seen}",
        _evidence_text(results),
        *((f"repeats: {spread.text}",) if (spread := repeat_spread_of(book)) is not None else ()),
        *machine_lines(chip_times(book)),
    )


def _standing_for_cases(book: Book) -> Iterator[tuple[CellView, Run]]:
    """Yield the forecast that stands for each case, with the run that scores it."""
    for case in case_rows(rows(book)):
        if (run := case.lead.scored) is not None:
            yield case.lead.view, run


def _evidence_text(results: list[tuple[CellView, Verification]]) -> str:
    grades = Counter(verdict.grade for _, verdict in results)
    graded = ", ".join(f"{grade} in {grades[grade]}" for grade in ("A", "B", "C") if grades[grade])
    levels = Counter(level for view, _ in results for level in view.levels)
    reached = ", ".join(f"{level} in {levels[level]}" for level in sorted(levels))
    held = [view.forecast.case.kernel for view, _ in results if view.binding == "positions only"]
    samples = f"; samples: positions only in {len(held)} (level 1: {recompute_command(held)})" if held else ""
    return f"grade {graded}; evidence level {reached or 'none'} (what each proves: ledger audit){samples}"


def time_text(row: ReportRow) -> str:
    """Return the measured time with its confidence interval: 12.4 µs (12.3–12.6)."""
    timing = row.result.recorded.measurement.timing if row.result else None
    if timing is None:
        return ""
    return duration(timing.median_ps, timing.low_ps, timing.high_ps)


def counter_text(row: ReportRow) -> tuple[str, ...]:
    """Return what the counters said of a row under COUNTER_HEADINGS; empty for a row without counters."""
    view = row.view
    totals = totals_of(row.result.recorded.measurement, view.hardware) if row.result and view.hardware else None
    if totals is None:
        return ()
    moved, modelled = totals.dram_bytes, view.forecast.work.bytes
    shares = (totals.dram_pct, totals.l2_pct, totals.smem_pct, totals.tensor_pct)
    return (
        "" if moved is None else si(moved, "B"),
        f"{moved / modelled:.2f}" if moved is not None and modelled else "",
        *("" if share is None else f"{share:.0f}" for share in shares),
        "" if totals.waves is None else f"{totals.waves:.2f}",
        "" if totals.occupancy_pct is None else f"{totals.occupancy_pct:.0f}",
        "" if totals.sm_clock_hz is None else si(totals.sm_clock_hz, "Hz"),
    )

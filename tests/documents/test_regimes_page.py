"""Compares what docs/regimes.md says of both rules with every record of this ledger."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.analysis.metric_readings import readings
from ledger.evidence.judge import judge
from ledger.evidence.record_checks import record_blobs
from ledger.git.history import read_history
from ledger.git.reader import Reader, quiet_environment
from ledger.records import PredictionV2
from ledger.render.rules_page import ComparedCell, compared_cells, rules_page

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "regimes.md").read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def book():
    reader = Reader(ROOT / ".git", quiet_environment())
    history = read_history(reader, wait=False)
    with reader.blobs() as blobs:
        blobs.plan(record_blobs(history.tree))
        book = judge(history, blobs.read)
    # The page speaks of the cells of version 1.
    of_version_1 = [view for view in book.cells if not isinstance(view.sealed.prediction, PredictionV2)]
    return replace(book, cells=tuple(of_version_1))


@pytest.fixture(scope="module")
def cells(book) -> list[ComparedCell]:
    return list(compared_cells(book))


def test_the_page_counts_what_regime_2_changes(book, cells):
    determined = [cell for cell in cells if cell.preview.regimes]
    two = [cell for cell in determined if len(cell.preview.regimes) > 1]
    differ = [cell for cell in determined if not cell.agrees]
    said = (
        f"{len(determined)} of {len(cells)} cells are determined, {len(two)} with two regimes, and {len(differ)} get "
        "another regime"
    )
    assert said in PAGE
    to_hbm = [cell for cell in differ if cell.preview.regimes == ("hbm-bound",)]
    assert len(to_hbm) > len(differ) / 2
    assert said.split(" cells")[0].split(" of ")[0] in rules_page(book)


def test_the_page_says_how_profiled_and_timed_durations_differ(cells):
    ratios = []
    for cell in cells:
        assert cell.view.counted is not None and cell.view.hardware is not None
        record = cell.view.counted.recorded.measurement
        assert record.counters is not None and record.timing is not None
        profiled_ns = readings(record.counters, cell.view.hardware.target).values["duration"]
        ratios.append(1000 * profiled_ns / record.timing.median_ps)
    longer = sum(ratio > 1.2 for ratio in ratios)
    said = f"in {longer} of the first ten campaigns' {len(ratios)} cells, {max(ratios):.2f} at most"
    assert f"over 1.2 times the timed call {said}" in PAGE


def test_no_load_of_a_recorded_cell_is_above_its_peak(cells):
    assert not [cell for cell in cells if "above 105%" in cell.preview.reason]


def test_the_page_counts_the_published_profiles():
    published = json.loads((ROOT / "tests/assets/regimes/published.json").read_text(encoding="utf-8"))
    agree = len(published["agree"])
    assert f"On {agree} of {agree + len(published['disagree'])} published profiles" in PAGE


def test_the_verdict_of_record_is_that_of_the_sealed_rule(book, cells):
    assert len(cells) == sum(view.counted is not None for view in book.cells)
    assert {view.sealed.prediction.rule for view in book.cells} == {"regime/1"}
    assert all(view.counted.verification.also_regime is None for view in book.cells if view.counted is not None)


def test_the_page_counts_what_the_causes_explain(book):
    measured = [(view.forecast, view.counted.verification) for view in book.cells if view.counted is not None]
    gaps = [(forecast, verdict.gap, verdict.measured_percent) for forecast, verdict in measured]
    misses = [gap for _, gap, _ in gaps if abs(gap.percent) > 5]
    hits = [gap for _, gap, _ in gaps if abs(gap.percent) <= 2]
    outside = [
        gap
        for forecast, gap, percent in gaps
        if forecast.low_milli is not None and not forecast.low_milli <= 1000 * percent <= forecast.high_milli
    ]

    def unexplained(found) -> str:
        largest = [max(gap.causes, key=lambda cause: abs(math.log(cause.factor))).name for gap in found]
        return f"{largest.count('unexplained')} of {len(found)}"

    def granted(found) -> str:
        return f"{sum(any(cause.name == 'achieved_share' for cause in gap.causes) for gap in found)} of {len(found)}"

    assert (
        f"the largest factor in {unexplained(misses)} misses by more than 5 points and in {unexplained(outside)} "
        "measurements outside the sealed interval"
    ) in PAGE
    assert f"granted in {granted(misses)}, {granted(outside)}, and in {granted(hits)} cells within 2 points" in PAGE


def test_the_factors_of_every_record_multiply_to_measured_over_predicted_time(book):
    for view in book.cells:
        if view.counted is not None:
            verdict = view.counted.verification
            ratio = verdict.predicted_percent / verdict.measured_percent
            assert math.prod(cause.factor for cause in verdict.gap.causes) == pytest.approx(ratio, rel=1e-12)

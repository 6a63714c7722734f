"""Puts cells of one commit, campaign or GPU beside those of another. Pure.

Of several forecasts of a cell on one side the newest one with a counted run stands for it, or else the newest. GPUs are
compared by kernel, shape and dtype; commits and campaigns by the device as well. What other authors measured of the
cell stands beside it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import geometric_mean
from typing import Any, Literal

from ledger.analysis.forecast_changes import Change, changes
from ledger.analysis.report_rows import ReportRow, row_document

Kind = Literal["campaign", "GPU", "commit"]
KINDS: tuple[Kind, ...] = ("campaign", "GPU", "commit")


@dataclass(frozen=True)
class Side:
    """Hold what a user named, and its rows."""

    kind: Kind
    name: str
    rows: tuple[ReportRow, ...]

    def cell_of(self, row: ReportRow) -> object:
        """Return what rows of both sides are compared by."""
        cell = row.view.forecast.case.cell
        return cell[:3] if self.kind == "GPU" else cell

    @cached_property
    def _measured(self) -> dict[object, list[ReportRow]]:
        found: dict[object, list[ReportRow]] = {}
        for row in self.rows:
            if row.run is not None and row.run.recorded.measurement.status == "measured":
                found.setdefault(self.cell_of(row), []).append(row)
        return found

    def by_others(self, row: ReportRow) -> tuple[ReportRow, ...]:
        """Return what other authors measured of the cell of a row, the newest of each, oldest first."""
        newest = {author_of(other): other for other in self._measured.get(self.cell_of(row), ())}
        newest.pop(author_of(row), None)
        return tuple(sorted(newest.values(), key=lambda other: other.number))


@dataclass(frozen=True)
class Pair:
    """Hold one cell on both sides."""

    a: ReportRow
    b: ReportRow

    @cached_property
    def time_ratio(self) -> float | None:
        """Return the time of b over that of a; None where one of them has no time."""
        before, after = time_ps(self.a), time_ps(self.b)
        return None if before is None or after is None else after / before

    @cached_property
    def changed(self) -> tuple[Change, ...]:
        """Return what differs in how the cell runs and in its roof."""
        return changes(self.a.view.forecast, self.b.view.forecast)

    @property
    def is_same(self) -> bool:
        """Tell whether both sides are one forecast with one result."""
        return self.a.view.name == self.b.view.name and _record(self.a) == _record(self.b)

    @property
    def regime_changed(self) -> bool:
        """Tell whether both sides have a measured regime, and no regime in common."""
        before, after = (row.run.verification.regimes if row.run else () for row in (self.a, self.b))
        return bool(before and after) and not set(before) & set(after)


@dataclass(frozen=True)
class LedgerDiff:
    """Hold two sides: the cells of both that differ, the largest change of time first, those of one, and the same."""

    a: Side
    b: Side
    pairs: tuple[Pair, ...]
    only_a: tuple[ReportRow, ...]
    only_b: tuple[ReportRow, ...]
    same: int

    @property
    def ratios(self) -> tuple[float, ...]:
        """Return the ratios of times, b over a, of the cells that both sides measured."""
        return tuple(pair.time_ratio for pair in self.pairs if pair.time_ratio is not None)

    @property
    def mean_ratio(self) -> float | None:
        """Return the geometric mean of the ratios, None without any."""
        return geometric_mean(self.ratios) if self.ratios else None


def ledger_diff(a: Side, b: Side) -> LedgerDiff:
    """Return what differs between two sides of one kind."""
    left, right = _by_cell(a), _by_cell(b)
    both = [Pair(row, right[cell]) for cell, row in left.items() if cell in right]
    pairs = sorted((pair for pair in both if not pair.is_same), key=_size, reverse=True)
    only_a, only_b = _only(left, right), _only(right, left)
    return LedgerDiff(a, b, tuple(pairs), only_a, only_b, same=len(both) - len(pairs))


def time_ps(row: ReportRow) -> int | None:
    """Return the measured time of a row, None where it has none."""
    timing = row.run.recorded.measurement.timing if row.run else None
    return None if timing is None else timing.median_ps


def author_of(row: ReportRow) -> str:
    """Return who committed the measurement of a row, or the seal of one without."""
    return (row.view.sealed if row.run is None else row.run.recorded).commit.author


def added(found: LedgerDiff) -> tuple[ReportRow, ...]:
    """Return the rows of the second side that the first has not: new forecasts and runs, and another state."""
    known = {(row.view.name, _record(row), row.view.state) for row in found.a.rows}
    measured = {(name, record) for name, record, _ in known if record is not None}
    return tuple(
        row
        for row in found.b.rows
        if (row.view.name, _record(row), row.view.state) not in known and (row.view.name, _record(row)) not in measured
    )


def _by_cell(side: Side) -> dict[object, ReportRow]:
    found: dict[object, ReportRow] = {}
    for row in side.rows:
        key = side.cell_of(row)
        if key not in found or row.counts or not found[key].counts:
            found[key] = row
    return found


def _only(held: dict[object, ReportRow], other: dict[object, ReportRow]) -> tuple[ReportRow, ...]:
    return tuple(row for cell, row in held.items() if cell not in other)


def _record(row: ReportRow) -> str | None:
    return row.run.recorded.id if row.run else None


def _size(pair: Pair) -> float:
    return -1.0 if pair.time_ratio is None else abs(math.log(pair.time_ratio))


def diff_document(found: LedgerDiff) -> dict[str, Any]:
    """Return a comparison as one JSON value; ratios are b over a."""
    return {
        "a": {"kind": found.a.kind, "name": found.a.name},
        "b": {"kind": found.b.kind, "name": found.b.name},
        "mean_time_ratio": found.mean_ratio,
        "cells": [
            {
                "a": row_document(pair.a),
                "b": row_document(pair.b),
                "time_ratio": pair.time_ratio,
                "changed": [asdict(change) for change in pair.changed],
                "a_by_others": [row_document(row) for row in found.a.by_others(pair.a)],
                "b_by_others": [row_document(row) for row in found.b.by_others(pair.b)],
            }
            for pair in found.pairs
        ],
        "only_a": [row_document(row) for row in found.only_a],
        "only_b": [row_document(row) for row in found.only_b],
        "same": found.same,
    }

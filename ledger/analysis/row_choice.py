"""Chooses rows of a report by what they are of, orders them by their gaps and sums them up in groups. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ledger.analysis.report_rows import ReportRow
from ledger.errors import UnknownName
from ledger.suggestions import unknown

BY = ("kernel", "hw", "dtype", "regime", "campaign", "forecaster")
"""What rows are chosen by and grouped by. A regime is the measured one; of a cell without a result the forecast one."""


@dataclass(frozen=True)
class RowChoice:
    """Hold which rows a user asked for. names: by a name of BY; none of them: all. since: an ISO date.

    worst: how many rows of the largest gaps, the largest first; None keeps the order of the seals.
    """

    names: Mapping[str, Collection[str]] = field(default_factory=dict)
    since: str | None = None
    worst: int | None = None

    @property
    def is_all(self) -> bool:
        """Tell whether every row is chosen, in its usual order."""
        return not any(self.names.values()) and self.since is None and self.worst is None


@dataclass(frozen=True)
class Group:
    """Hold the sums of rows that count. Units: points of percent-of-roof, None where nothing was measured."""

    name: str
    rows: int
    measured: int
    error: float | None
    bias: float | None
    regimes: int
    regimes_right: int


def name_of(row: ReportRow, what: str) -> str:
    """Return what a row is of, by a name of BY; empty where it has none."""
    case = row.view.forecast.case
    match what:
        case "kernel":
            return case.kernel
        case "hw":
            return case.hardware
        case "dtype":
            return case.dtype
        case "campaign":
            return row.view.sealed.prediction.campaign or ""
        case "forecaster":
            return row.view.sealed.prediction.forecaster
        case _:
            measured = row.result.verification.measured_regime if row.result else None
            return measured or row.view.forecast.regime


def chosen(listed: Sequence[ReportRow], choice: RowChoice) -> tuple[ReportRow, ...]:
    """Return the rows that a choice names. Raises: UnknownName for a name that no row has."""
    for what, names in choice.names.items():
        known = sorted({name_of(row, what) for row in listed} - {""})
        for name in names:
            if name not in known:
                raise UnknownName(unknown(what, name, known))
    kept = [row for row in listed if _fits(row, choice)]
    if choice.worst is not None:
        kept = sorted(
            (row for row in kept if row.run and gap_of(row) is not None), key=lambda row: -abs(gap_of(row) or 0.0)
        )
        kept = kept[: choice.worst]
    return tuple(kept)


def _fits(row: ReportRow, choice: RowChoice) -> bool:
    if any(names and name_of(row, what) not in names for what, names in choice.names.items()):
        return False
    return choice.since is None or _date(row) >= choice.since


def _date(row: ReportRow) -> str:
    """Return the date that the commit of a row's result claims, or that of its seal."""
    recorded = row.run.recorded if row.run else row.view.sealed
    return recorded.commit.when[:10]


def gap_of(row: ReportRow) -> float | None:
    """Return the gap that a row shows, in points; None without one."""
    found = row.result.verification.gap if row.result else None
    return None if found is None else found.percent


def groups(listed: Sequence[ReportRow], what: str) -> tuple[Group, ...]:
    """Return the sums of each group, the largest mean error first."""
    found: dict[str, list[ReportRow]] = {}
    for row in listed:
        found.setdefault(name_of(row, what) or "none", []).append(row)
    made = [_group(name, members) for name, members in found.items()]
    return tuple(sorted(made, key=lambda group: (-(group.error or 0.0), group.name)))


def _group(name: str, members: Sequence[ReportRow]) -> Group:
    scored = [run.verification for row in members if (run := row.scored) is not None]
    gaps = [verdict.gap.percent for verdict in scored if verdict.gap is not None]
    verdicts = [verdict for verdict in scored if verdict.regimes]
    return Group(
        name=name,
        rows=len(members),
        measured=len(gaps),
        error=fmean(map(abs, gaps)) if gaps else None,
        bias=fmean(gaps) if gaps else None,
        regimes=len(verdicts),
        regimes_right=sum(bool(verdict.regime_is_right) for verdict in verdicts),
    )

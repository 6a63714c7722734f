"""Defines what a whole ledger says once it has been read and judged. Pure data; nothing here does I/O.

evidence.judge builds a Book from a history that git.history has read. report, score, plot, status and audit render it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ledger.analysis.sight import counts_as_blind, declared
from ledger.records import (
    Domain,
    Finding,
    Forecast,
    Hardware,
    Measurement,
    Prediction,
    Pulse,
    Ratio,
    RatioMeasurement,
    Reveal,
    Sight,
    Verification,
    Void,
)

Binding = Literal["none", "positions only", "recomputed"]
"""What is known of the samples of the run that counts: too few of them to tell, their positions, or their values."""
State = Literal["open", "stale", "void", "measured", "failed", "refused", "hidden", "missed"]


def short_name(seal: str, cell: str) -> str:
    """Return SEAL#CELL with the first ten digits of the seal's id, as the commands print and take it."""
    return f"{seal[:10]}#{cell}"


@dataclass(frozen=True, slots=True)
class Commit:
    """Identify a commit.

    when: the date that the commit claims (ISO 8601); it proves nothing. position: index in a topological order of the
    history, oldest first.
    """

    sha: str
    when: str
    author: str
    position: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """Hold a seal with the commit that introduced it."""

    id: str
    path: str
    commit: Commit
    prediction: Prediction


@dataclass(frozen=True)
class Drawn:
    """Hold a seal whose cells were drawn: the seal of the domain, the domain, and the pulse."""

    sealed: Sealed
    origin: Sealed
    domain: Domain
    pulse: Pulse


@dataclass(frozen=True, slots=True)
class Recorded:
    """Hold a measurement with the commit that introduced it."""

    id: str
    path: str
    commit: Commit
    measurement: Measurement


@dataclass(frozen=True)
class RecordedRatio:
    """Hold a measured ratio with the commit that introduced it."""

    id: str
    path: str
    commit: Commit
    measurement: RatioMeasurement


@dataclass(frozen=True)
class Voided:
    """Hold a withdrawal with the commit that introduced it."""

    id: str
    path: str
    commit: Commit
    void: Void


@dataclass(frozen=True)
class Revealed:
    """Hold the reveal of hidden forecasts with the commit that introduced it."""

    id: str
    path: str
    commit: Commit
    reveal: Reveal


@dataclass(frozen=True, slots=True)
class Run:
    """Hold one measured run of a cell and the verdict computed from it."""

    recorded: Recorded
    verification: Verification


@dataclass(frozen=True)
class CellView:
    """Hold one sealed cell with all that happened to it.

    sight: what had been timed before, the most of what is declared, noted and shown by records; None: undeclared, and
    no record of the cell comes before it. corrections: what its own texts, or files, say of that, with where they
    stand. revises: earlier SEAL#CELL names for the same cell. levels: evidence levels reached (0 git order, 1 chained
    and bound, ...); empty while open. binding: what was checked of the samples of the run that counts; level 1 needs
    them recomputed. answer: the run by which a cell without one of its own is scored, that of another forecast of the
    same case.
    """

    sealed: Sealed
    forecast: Forecast
    hardware: Hardware | None
    state: State
    sight: Sight | None
    revises: tuple[str, ...]
    runs: tuple[Run, ...]
    levels: tuple[int, ...]
    binding: Binding = "none"
    corrections: tuple[tuple[str, str], ...] = ()
    answer: Run | None = None

    @property
    def blind(self) -> bool:
        """Tell whether neither the author nor a record says that more was known."""
        return counts_as_blind(self.sight)

    @property
    def declared(self) -> Sight | None:
        """Return the sight that the author declared."""
        return declared(self.forecast)[0]

    @property
    def known(self) -> str:
        """Return what had been timed before, in the author's words."""
        return declared(self.forecast)[1]

    @property
    def name(self) -> str:
        """Return SEAL#CELL with the seal's full id."""
        return f"{self.sealed.id}#{self.forecast.cell}"

    @property
    def short_name(self) -> str:
        """Return SEAL#CELL with the first ten digits of the seal's id."""
        return short_name(self.sealed.id, self.forecast.cell)

    @cached_property
    def counted(self) -> Run | None:
        """Return the run that counts under the sealed policy first-run/1: the first one that finished, if in time."""
        if self.state == "missed":
            return None
        finished = [run for run in self.runs if run.recorded.measurement.status == "measured"]
        return finished[0] if finished else None

    @property
    def scored(self) -> Run | None:
        """Return the run by which the forecast is scored: its own, or that of another forecast of the same case."""
        return None if self.state == "missed" else self.counted or self.answer


@dataclass(frozen=True)
class ClaimView:
    """Hold one claim of a ratio with all that happened to it. levels, binding: as of a cell."""

    sealed: Sealed
    claim: Ratio
    hardware: Hardware | None
    state: State
    runs: tuple[RecordedRatio, ...]
    levels: tuple[int, ...]
    binding: Binding = "none"

    @property
    def name(self) -> str:
        """Return SEAL#CELL with the seal's full id."""
        return f"{self.sealed.id}#{self.claim.cell}"

    @property
    def short_name(self) -> str:
        """Return SEAL#CELL with the first ten digits of the seal's id."""
        return short_name(self.sealed.id, self.claim.cell)

    @property
    def counted(self) -> RecordedRatio | None:
        """Return the run that counts: the first one that finished."""
        return next((run for run in self.runs if run.measurement.status == "measured"), None)


@dataclass(frozen=True)
class Book:
    """Hold a judged ledger at one commit.

    A seal's prediction has the revealed forecasts among its cells, and as commitments those still hidden. hidden: a
    view of each of these, without a run; its forecast is true in what is public, and says nothing in the rest.
    """

    head: str
    cells: tuple[CellView, ...]
    seals: tuple[Sealed, ...]
    records: tuple[Recorded, ...]
    voids: tuple[Voided, ...]
    findings: tuple[Finding, ...]
    reveals: tuple[Revealed, ...] = ()
    hidden: tuple[CellView, ...] = ()
    drawn: tuple[Drawn, ...] = ()
    claims: tuple[ClaimView, ...] = ()
    ratios: tuple[RecordedRatio, ...] = ()

    @property
    def refused(self) -> tuple[Finding, ...]:
        """Return the findings that refuse the evidence."""
        return tuple(finding for finding in self.findings if finding.severity == "refused")

"""Defines what is computed from evidence and never stored: findings, gaps, verdicts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from ledger.records.base import CellKey, Count, Digest, Grade, Record, Regime


class Cause(Record):
    """Hold one factor of a gap: measured over predicted time is the product of all of them.

    counter: the reading that the factor comes from; None where it comes from the timer alone.
    """

    name: Literal["work", "clock", "waves", "launch", "achieved_share", "unexplained"]
    factor: float
    note: str
    counter: str | None = None


class Gap(Record):
    """Hold measured minus predicted percent of roof (signed, percentage points) and its causes."""

    percent: float
    causes: tuple[Cause, ...]
    sentence: str


class Finding(Record):
    """Hold one thing that a check found; `severity` refuses the evidence or only discloses."""

    code: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
    severity: Literal["refused", "flag", "note"]
    path: str
    message: str

    @property
    def text(self) -> str:
        """Return it as one line."""
        return f"{self.place}: {self.code}: {self.message}"

    @property
    def place(self) -> str:
        """Return what it is about: a file, or the whole ledger."""
        return self.path or "the ledger"


class Verification(Record):
    """Hold the verdict on one measured cell.

    also_regime: the second regime where rule regime/2 names two; a forecast of either is right.
    """

    seal: Digest
    cell: CellKey
    run: Count
    predicted_regime: Regime
    measured_regime: Regime | None
    also_regime: Regime | None = None
    predicted_percent: float
    measured_percent: float | None
    grade: Grade | None
    gap: Gap | None
    blind: bool
    findings: tuple[Finding, ...]

    @property
    def regimes(self) -> tuple[Regime, ...]:
        """Return the regimes that the verdict names; none where it is not determined."""
        return tuple(regime for regime in (self.measured_regime, self.also_regime) if regime is not None)

    @property
    def regimes_text(self) -> str:
        """Return the regimes as text: l2-bound, hbm-bound or l2-bound, not determined."""
        return " or ".join(self.regimes) or "not determined"

    @property
    def regime_is_right(self) -> bool:
        """Tell whether the forecast named a regime of the verdict."""
        return self.predicted_regime in self.regimes

"""Defines what a forecaster is asked and answers, and makes an answer of a time. Pure.

A forecaster knows the work, the roof, the profile and what this ledger has measured, and nothing of the kernel's code.
Where it forecasts a time alone, the regime follows from rule regime/1 applied to the loads that this time implies, so
that the rule that judges an answer also makes its regime. L2 and shared memory are not modelled and count as idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.analysis.regime import ResourceLoads, decide
from ledger.analysis.regime_v2 import Resource
from ledger.records import Case, Hardware, Regime, Roof, Work
from ledger.roofline import memory_side, percent_of_roof


@dataclass(frozen=True, eq=False)
class Measured:
    """Hold one measured run of a cell, equal to itself alone. Units: seconds.

    regimes: those that the verdict names; none where it was not determined. record: id of the measurement. loads: of
    each resource by rule regime/2, in thousandths of a percent, None without counters. launch_s: an empty graph node.
    """

    case: Case
    work: Work
    roof: Roof
    hardware: Hardware
    time_s: float
    regimes: tuple[Regime, ...]
    record: str
    loads: Mapping[Resource, int] | None = None
    launch_s: float | None = None

    @property
    def regime(self) -> Regime | None:
        """Return the regime that the verdict names first."""
        return self.regimes[0] if self.regimes else None

    @property
    def question(self) -> Question:
        """Return the question that this run answered, with nothing known before it."""
        return Question(self.case, self.work, self.roof, self.hardware)


@dataclass(frozen=True)
class Question:
    """Hold a cell to forecast. earlier: what this ledger has measured, oldest first."""

    case: Case
    work: Work
    roof: Roof
    hardware: Hardware
    earlier: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class Term:
    """Hold one number that explains an answer. unit: a base unit, such as s, B/s or FLOP/s; 1 for a count."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Hold what a forecaster says of a cell. Units: seconds; percent of the question's roof; probabilities from 0 to 1.

    regime, probabilities, low and high: None where the forecaster names none. transcript: what was asked and answered
    of a program outside. deviation: of ln time, by which an interval from earlier outcomes scales. instead: which other
    forecaster's answer this is, and why; also the last of `assumes`.
    """

    forecaster: str
    version: str
    regime: Regime | None
    percent: float
    time_s: float
    terms: tuple[Term, ...]
    assumes: tuple[str, ...]
    probabilities: Mapping[Regime, float] | None = None
    low: float | None = None
    high: float | None = None
    transcript: bytes | None = None
    deviation: float | None = None
    instead: str = ""


@dataclass(frozen=True)
class NoAnswer:
    """Say why a forecaster does not answer."""

    forecaster: str
    version: str
    reason: str


def answer_of_time(
    question: Question,
    *,
    forecaster: str,
    version: str,
    time_s: float,
    launch_s: float,
    terms: tuple[Term, ...],
    assumes: tuple[str, ...],
) -> Answer:
    """Return the answer that a time in seconds implies, of which `launch_s` is the launch."""
    work, roof = question.work, question.roof
    loads = ResourceLoads(
        dram_milli=round(1e5 * work.bytes / roof.bandwidth_bytes_per_s / time_s),
        l2_milli=0,
        smem_milli=0,
        arithmetic_milli=round(1e5 * work.flops / roof.peak_flop_per_s / time_s),
    )
    regime, _, _ = decide(
        loads,
        call_ps=max(1, round(time_s * 1e12)),
        launch_ps=round(launch_s * 1e12),
        left_of_ridge=memory_side(work, roof),
    )
    return Answer(
        forecaster=forecaster,
        version=version,
        regime=regime,
        percent=percent_of_roof(work, roof, time_s),
        time_s=time_s,
        terms=terms,
        assumes=assumes,
    )


def answer_document(answer: Answer) -> dict[str, Any]:
    """Return an answer as one JSON value."""
    return {
        "forecaster": answer.forecaster,
        "version": answer.version,
        "regime": answer.regime,
        "probabilities": None if answer.probabilities is None else dict(answer.probabilities),
        "percent": answer.percent,
        "low": answer.low,
        "high": answer.high,
        "time_us": answer.time_s * 1e6,
        "terms": [{"name": term.name, "value": term.value, "unit": term.unit} for term in answer.terms],
        "assumes": list(answer.assumes),
    }

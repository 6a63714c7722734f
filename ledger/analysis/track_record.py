"""Computes how forecasts fared: confusion of regimes, calibration of probabilities, and each seal in turn. Pure.

Only cells that count as measured are counted (report_rows.counted); of a refused ledger there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ledger.analysis.book import Book, CellView, Run
from ledger.analysis.report_rows import counted
from ledger.analysis.score import probabilities_of
from ledger.records import Regime

BINS = 10


@dataclass(frozen=True)
class Calibration:
    """Hold the forecast probabilities of one bin: their mean, and how often what they were given to was measured."""

    count: int
    stated: float
    observed: float


@dataclass(frozen=True)
class Outcome:
    """Hold how some forecasts fared. Units: points of percent-of-roof; shares from 0 to 1. None: nothing to count.

    error, bias: mean of |gap| and of the gap.
    """

    measured: int
    error: float | None
    bias: float | None
    intervals: int
    in_interval: float | None
    regimes: int
    regime_right: float | None


@dataclass(frozen=True)
class SealRecord:
    """Hold how the forecasts of one seal fared. date: what the seal's commit claims (ISO 8601)."""

    seal: str
    campaign: str | None
    date: str
    outcome: Outcome


def confusion(book: Book) -> Mapping[tuple[Regime, Regime], int]:
    """Return how many cells were forecast in one regime and measured in another, by (forecast, measured).

    A verdict that names the forecast regime beside another counts as that regime.
    """
    found: Counter[tuple[Regime, Regime]] = Counter()
    for view, run in counted(book):
        verdict, said = run.verification, view.forecast.regime
        if verdict.regimes:
            found[said, said if verdict.regime_is_right else verdict.regimes[0]] += 1
    return found


def calibration(book: Book) -> tuple[Calibration, ...]:
    """Return the bins that hold a probability, by stated probability; forecasts without probabilities are left out."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for view, run in counted(book):
        named = run.verification.regimes
        if not named or view.forecast.probabilities_ppm is None:
            continue
        for regime, share in probabilities_of(view.forecast).items():
            bins.setdefault(min(int(share * BINS), BINS - 1), []).append((share, regime in named))
    return tuple(
        Calibration(len(found), fmean(share for share, _ in found), fmean(hit for _, hit in found))
        for _, found in sorted(bins.items())
    )


def outcome_of(results: Sequence[tuple[CellView, Run]]) -> Outcome:
    """Return how the forecasts of measured cells fared."""
    gaps = [gap.percent for _, run in results if (gap := run.verification.gap) is not None]
    inside = [
        view.forecast.low_milli <= 1000 * percent <= view.forecast.high_milli
        for view, run in results
        if view.forecast.low_milli is not None
        and view.forecast.high_milli is not None
        and (percent := run.verification.measured_percent) is not None
    ]
    right = [run.verification.regime_is_right for _, run in results if run.verification.regimes]
    return Outcome(
        measured=len(gaps),
        error=fmean(map(abs, gaps)) if gaps else None,
        bias=fmean(gaps) if gaps else None,
        intervals=len(inside),
        in_interval=fmean(inside) if inside else None,
        regimes=len(right),
        regime_right=fmean(right) if right else None,
    )


def track_record(book: Book) -> tuple[SealRecord, ...]:
    """Return the record of each seal with a measured cell, in the order in which they were sealed."""
    by_seal: dict[str, list[tuple[CellView, Run]]] = {}
    for view, run in counted(book):
        by_seal.setdefault(view.sealed.id, []).append((view, run))
    return tuple(
        SealRecord(sealed.id, sealed.prediction.campaign, sealed.commit.when, outcome_of(by_seal[sealed.id]))
        for sealed in sorted(book.seals, key=lambda sealed: sealed.commit.position)
        if sealed.id in by_seal
    )

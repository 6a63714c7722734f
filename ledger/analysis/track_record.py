"""Computes how forecasts fared: confusion of regimes, calibration of probabilities, and each seal in turn. Pure.

Only cells that count as measured are counted (report_rows.counted); of a refused ledger there are none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ledger.analysis.book import Book, CellView, Run
from ledger.analysis.regime_probabilities import stated_shares
from ledger.analysis.report_rows import counted
from ledger.records import Regime

BINS = 10


@dataclass(frozen=True)
class Calibration:
    """Hold the forecast probabilities of one bin: their mean, and how often what they were given to was measured.

    low, high: the Wilson interval of `observed`, at 95%, as if the outcomes were independent.
    """

    count: int
    stated: float
    observed: float
    low: float
    high: float


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
    pairs = ((view.forecast, run.verification.regimes) for view, run in counted(book))
    return calibration_of(stated_shares(forecast, regimes) for forecast, regimes in pairs if regimes)


def calibration_of(forecasts: Iterable[Sequence[tuple[float, bool]]]) -> tuple[Calibration, ...]:
    """Return the bins of the probabilities that forecasts state, each with whether it came true."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for stated in forecasts:
        for share, hit in stated:
            bins.setdefault(min(int(share * BINS), BINS - 1), []).append((share, hit))
    return tuple(
        Calibration(len(found), fmean(share for share, _ in found), *_wilson(sum(hit for _, hit in found), len(found)))
        for _, found in sorted(bins.items())
    )


def _wilson(hits: int, count: int) -> tuple[float, float, float]:
    """Return a share with its interval at 95%. Source: Wilson, JASA 22(158), 1927."""
    z, share = 1.959964, hits / count
    scale = 1 + z * z / count
    middle = (share + z * z / (2 * count)) / scale
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / scale
    return share, max(0.0, middle - half), min(1.0, middle + half)


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

"""Judges claims: what is measured of a ratio beside what was claimed of it. Pure.

A claim holds where the measured interval lies within the claimed one; it fails where the measured interval lies
outside, by more than the noise of base against base; between these the measurement does not decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from ledger.analysis.paired_ratio import FAMILY_ERROR, Judged, judge_rounds, least_rounds
from ledger.records import Protocol, Ratio, RatioMeasurement

ClaimVerdict = Literal["holds", "fails", "undecided"]
INTERLEAVED = "interleaved/2"
"""The protocol that new claims seal."""
COPY_PARAMETERS = frozenset({"copies_l2_multiple", "copies_rotation_ms"})
_SHARED = {"footprint_min_bytes", "footprint_l2_multiple", "sample_elements", "warmup_rounds", "min_rounds"}
_ROUNDS = {*_SHARED, "max_rounds", "target_ppm", "budget_ms", "least_ppm", "most_ppm", "fold", "error_ppm"}
PARAMETERS = {"interleaved/1": frozenset(_ROUNDS), INTERLEAVED: frozenset(_ROUNDS) | COPY_PARAMETERS}
"""What the parameters of each protocol of a claim are; docs/format.md says what each means."""
MAX_FOLD = 1000
MAX_LEAST_PPM = 100_000
"""Largest noise, in millionths, that a claim may ask to be counted at least: of more it could hardly fail."""
MAX_COPIES_L2_MULTIPLE, MAX_COPIES_ROTATION_MS = 1024, 100
"""Largest rotation over copies that a claim may ask for: timing it must end and leave memory."""
_MOST_NOISE = 100.0


def error_ppm(claims: int) -> int:
    """Return the chance, in millionths, that the interval of one of some claims misses the true ratio."""
    return max(1, round(1e6 * FAMILY_ERROR) // max(claims, 1))


def protocol_problem(protocol: Protocol) -> str | None:
    """Return why this version cannot follow a protocol of a claim, or why it could settle nothing; None: it can."""
    values = protocol.parameters
    if protocol.name not in PARAMETERS or set(values) != PARAMETERS[protocol.name]:
        return f"protocol {protocol.name} with these parameters cannot be judged by this version: use a newer ledger"
    bounds: dict[str, tuple[int, float]] = {
        "copies_l2_multiple": (0, MAX_COPIES_L2_MULTIPLE),
        "copies_rotation_ms": (0, MAX_COPIES_ROTATION_MS),
        "error_ppm": (1, error_ppm(1)),
        "fold": (1, MAX_FOLD),
        "least_ppm": (0, MAX_LEAST_PPM),
    }
    for name in sorted(values):
        least, most = bounds.get(name, (0, math.inf))
        if not least <= values[name] <= most:
            return f"{name} is {values[name]}; expected {least} to {most:g}, or the claim could not be settled"
    counted, needed = values["max_rounds"] // values["fold"], least_rounds(values["error_ppm"] / 1e6)
    if counted < needed:
        return (
            f"max_rounds is {values['max_rounds']}, of which {counted} count by fold {values['fold']}; expected "
            f"{needed} at least, or no interval ends and nothing is settled"
        )
    return None


def known_protocol(protocol: Protocol) -> bool:
    """Tell whether this version can follow a protocol of a claim, and whether it can settle anything."""
    return protocol_problem(protocol) is None


def seldom_holds(protocol: Protocol, low: float, high: float) -> str | None:
    """Return why a claim of low to high can hardly hold: its interval is narrower than a measured one; else None."""
    width = (1 + protocol.parameters["target_ppm"] / 1e6) ** 2
    if high / low >= width * (1 - 1e-6):
        return None
    return (
        f"{low:g} to {high:g} is narrower than what is measured, about {100 * (width - 1):.1f}% wide: it can fail and "
        "will seldom hold"
    )


def judged(protocol: Protocol, base: Sequence[int], head: Sequence[int], again: Sequence[int]) -> Judged:
    """Return what rounds of base, head and base again say by a protocol of a claim, which must be known."""
    values = protocol.parameters
    return judge_rounds(
        base,
        head,
        again,
        fold=values["fold"],
        error=values["error_ppm"] / 1e6,
        least=values["least_ppm"] / 1e6,
        most=values["most_ppm"] / 1e6,
    )


def stored(found: Judged | None) -> dict[str, int | None]:
    """Return a judged ratio as a record stores it, in millionths; None for all where there is none."""
    if found is None:
        return dict.fromkeys(("ratio_ppm", "low_ppm", "high_ppm", "noise_ppm"))
    return {
        "ratio_ppm": max(1, _ppm(found.ratio) or 1),
        "low_ppm": _ppm(found.low),
        "high_ppm": _ppm(found.high),
        "noise_ppm": _ppm(min(found.noise, _MOST_NOISE)),
    }


def _ppm(value: float) -> int | None:
    return round(1e6 * value) if math.isfinite(value) and value < 1e9 else None


def verdict_of(claim: Ratio, measured: RatioMeasurement) -> ClaimVerdict | None:
    """Return whether a claim holds; None where nothing was measured."""
    if measured.low_ppm is None or measured.noise_ppm is None:
        return None
    high = None if measured.high_ppm is None else measured.high_ppm / 1e6
    return verdict(
        (claim.low_ppm / 1e6, claim.high_ppm / 1e6), (measured.low_ppm / 1e6, high), measured.noise_ppm / 1e6
    )


def verdict(claimed: tuple[float, float], measured: tuple[float, float | None], noise: float) -> ClaimVerdict:
    """Return how a measured interval of a ratio lies to a claimed one. noise: as a share."""
    low, high = measured[0], math.inf if measured[1] is None else measured[1]
    if claimed[0] <= low and high <= claimed[1]:
        return "holds"
    if high * (1 + noise) < claimed[0] or low > claimed[1] * (1 + noise):
        return "fails"
    return "undecided"


@dataclass(frozen=True)
class ClaimScore:
    """Hold how the claims of one forecaster came out. error_percent: mean of |measured ÷ claimed - 1|, None of none."""

    forecaster: str
    sealed: int
    settled: int
    holds: int
    fails: int
    undecided: int
    error_percent: float | None


def claim_scores(claims: Iterable[tuple[str, Ratio, RatioMeasurement | None]]) -> tuple[ClaimScore, ...]:
    """Return the scores of claims, each given with its forecaster and what settled it, by forecaster."""
    groups: dict[str, list[tuple[Ratio, RatioMeasurement | None]]] = {}
    for name, claim, measured in claims:
        groups.setdefault(name, []).append((claim, measured))
    return tuple(_score(name, groups[name]) for name in sorted(groups))


def _score(name: str, claims: Sequence[tuple[Ratio, RatioMeasurement | None]]) -> ClaimScore:
    settled = [(claim, one) for claim, one in claims if one is not None and one.ratio_ppm is not None]
    verdicts = [verdict_of(claim, one) for claim, one in settled]
    errors = [100 * abs((one.ratio_ppm or 0) / claim.ratio_ppm - 1) for claim, one in settled]
    return ClaimScore(
        forecaster=name,
        sealed=len(claims),
        settled=len(settled),
        holds=verdicts.count("holds"),
        fails=verdicts.count("fails"),
        undecided=verdicts.count("undecided"),
        error_percent=fmean(errors) if errors else None,
    )


def claim_document(claim: Ratio) -> Mapping[str, Any]:
    """Return a claim as JSON values."""
    return {
        "base": claim.base.commit,
        "head": claim.head.commit,
        "ratio": claim.ratio_ppm / 1e6,
        "low": claim.low_ppm / 1e6,
        "high": claim.high_ppm / 1e6,
        "why": claim.why,
    }

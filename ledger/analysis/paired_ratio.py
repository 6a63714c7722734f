"""Judges a ratio of two times from rounds taken in turn: an interval without a distribution, and what noise allows.

Base, head and base once more run in turn, so that a drift of the clock affects them alike. A pair of neighbouring
rounds gives one logarithm of base ÷ head; the same of base ÷ base again is the noise. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FAMILY_ERROR = 0.01
"""The chance that one comparison of two commits, all its cases together, calls an equal case different."""
Call = Literal["faster", "slower", "same", "unclear"]


@dataclass(frozen=True)
class Spread:
    """Hold a median of logarithms with its confidence interval; the ends are infinite where samples are too few."""

    median: float
    low: float
    high: float

    @property
    def reach(self) -> float:
        """Return the largest magnitude in the interval."""
        return max(abs(self.low), abs(self.high))

    @property
    def half_width(self) -> float:
        """Return half the interval's width."""
        return (self.high - self.low) / 2


def spread_of(logs: Sequence[float], error: float) -> Spread:
    """Return the median of independent samples and its interval, which misses the true one with at most `error`.

    Source: order statistics, as of the sign test (Conover, Practical Nonparametric Statistics, section 3.2); no
    distribution is assumed.
    """
    ordered, count = sorted(logs), len(logs)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    below = _ranks_below(count, error)
    if below == 0:
        return Spread(middle, -math.inf, math.inf)
    return Spread(middle, ordered[below - 1], ordered[count - below])


def _ranks_below(count: int, error: float) -> int:
    """Return the largest k for which twice the chance of fewer than k of `count` fair coins is at most `error`."""
    log_term, total, below = -count * math.log(2), 0.0, 0
    for k in range(count // 2):
        total += math.exp(log_term)
        if 2 * total > error:
            break
        below = k + 1
        log_term += math.log((count - k) / (k + 1))
    return below


def least_rounds(error: float) -> int:
    """Return how many samples an interval that misses with at most `error` needs to have ends."""
    return max(1, math.ceil(math.log2(2 / error)))


def error_of_case(cases: int) -> float:
    """Return the error of one of `cases` that keeps that of all together at FAMILY_ERROR. Source: Bonferroni."""
    return FAMILY_ERROR / max(cases, 1)


@dataclass(frozen=True)
class Judged:
    """Hold one case: the ratio of base ÷ head with its interval, and the noise of base ÷ base, as a share.

    call: faster or slower where the whole interval lies beyond the noise; same where the noise is small enough to see
    what matters; unclear elsewhere.
    """

    ratio: float
    low: float
    high: float
    noise: float
    call: Call


def judge(head: Sequence[float], again: Sequence[float], *, error: float, least: float, most: float) -> Judged:
    """Return what the logarithms of base ÷ head say, beside those of base ÷ base again.

    least: the smallest change that is called, as a share. most: the noise beyond which an equal case is unclear.
    """
    found, control = spread_of(head, error), spread_of(again, error)
    noise = max(math.log1p(least), control.reach)
    call: Call = "same"
    if found.low > noise:
        call = "faster"
    elif found.high < -noise:
        call = "slower"
    elif max(noise, found.half_width) > math.log1p(most):
        call = "unclear"
    return Judged(
        math.exp(found.median), math.exp(found.low), _exp(found.high), math.expm1(noise) if noise < 700 else math.inf,
        call,
    )  # fmt: skip


def folded(rounds: Sequence[int], fold: int) -> list[int]:
    """Return the fastest of every `fold` rounds in a row."""
    return [min(rounds[start : start + fold]) for start in range(0, len(rounds) - fold + 1, fold)]


def logs_of(base: Sequence[int], other: Sequence[int], fold: int) -> list[float]:
    """Return the logarithms of base ÷ other, of rounds that were folded."""
    return [math.log(first / one) for first, one in zip(folded(base, fold), folded(other, fold), strict=True)]


def judge_rounds(
    base: Sequence[int],
    head: Sequence[int],
    again: Sequence[int],
    *,
    fold: int,
    error: float,
    least: float,
    most: float,
) -> Judged:
    """Return what the rounds of base, head and base again say. Units: any, of time. fold: as for `folded`."""
    return judge(logs_of(base, head, fold), logs_of(base, again, fold), error=error, least=least, most=most)


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)

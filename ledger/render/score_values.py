"""Formats the numbers of a score. Errors of time are means of logarithms, shown as the percent that they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ledger.analysis.formatting import signed

if TYPE_CHECKING:
    from ledger.analysis.score import Score

_OF_PROBABILITIES = ("brier", "log_score")
ABSENT = "–"
"""Stands for what cannot be scored."""


def value_of(score: Score, key: str) -> float | None:
    """Return a value of a score; of the scores of probabilities none where no forecast states any.

    They then take each regime for certain, and say no more than how many were right.
    """
    if key in _OF_PROBABILITIES and not score.calibration:
        return None
    value: float | None = getattr(score, key)
    return value


def percent_of(log: float) -> float:
    """Return the percent that a mean of logarithms of time stands for: 100 · (exp(mean) - 1)."""
    return 100 * math.expm1(min(log, 50.0))


def percent_of_time(log: float | None, *, sign: bool = False) -> str:
    """Return a mean of logarithms of time as a percent, from 1,000 on without a decimal."""
    if log is None:
        return ABSENT
    value = percent_of(log)
    return f"{number_text(value, 0 if abs(value) >= 1000 else 1, sign=sign)}%"


def number_text(value: float | None, digits: int, *, sign: bool = False) -> str:
    """Return a number, or a dash."""
    if value is None:
        return ABSENT
    return signed(value, digits) if sign else f"{value:.{digits}f}"


def share_text(value: float | None) -> str:
    """Return a share as a whole percent, or a dash."""
    return ABSENT if value is None else f"{100 * value:.0f}%"


def interval_text(ends: tuple[float, float] | None, text: Callable[[float], str]) -> str:
    """Return an interval in brackets, or nothing."""
    return "" if ends is None else f"[{text(ends[0])}, {text(ends[1])}]"

"""Computes how steady a timing was: rounds far from the median, and drift over time. Pure; drops no round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

# A round this many scaled median deviations away is an outlier; a deviation under 0.1% of the median counts as that.
_FAR = 5.0
_SCALE = 1.4826
_LEAST = 1e-3


@dataclass(frozen=True)
class Steadiness:
    """Hold the indices of a timing's outliers, and its drift: the last third's median ÷ the first third's, minus 1."""

    outliers: tuple[int, ...]
    drift: float

    @property
    def words(self) -> str:
        """Return it as text, for a table."""
        return f"{len(self.outliers)} outliers, drift {100 * self.drift:+.1f}%"


def steadiness(rounds_ps: Sequence[int]) -> Steadiness:
    """Return the outliers and the drift of rounds in the order they were taken. Units: drift as a fraction of one."""
    middle = median(rounds_ps)
    spread = max(_SCALE * median([abs(one - middle) for one in rounds_ps]), _LEAST * middle)
    third = max(len(rounds_ps) // 3, 1)
    return Steadiness(
        outliers=tuple(index for index, one in enumerate(rounds_ps) if abs(one - middle) > _FAR * spread),
        drift=median(rounds_ps[-third:]) / median(rounds_ps[:third]) - 1,
    )

"""Judges a number that a person estimated in the head. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NEAR_FACTOR = 1.25
"""An estimate counts as right up to this factor off: enough to tell the sides of a ridge point apart in the head."""


@dataclass(frozen=True)
class Estimate:
    """Hold an estimate beside the truth; guess: None where a person asked for the answer. unit: of both."""

    what: str
    unit: str
    guess: float | None
    truth: float

    @property
    def is_near(self) -> bool:
        """Tell whether the estimate is within NEAR_FACTOR of the truth."""
        return self.guess is not None and self.truth <= NEAR_FACTOR * self.guess <= NEAR_FACTOR**2 * self.truth

    @property
    def text(self) -> str:
        """Return the verdict in words: ridge 206 FLOP/byte; you said 400, 1.94 times that."""
        truth = f"{self.what} {self.truth:.4g} {self.unit}"
        if self.guess is None:
            return truth
        return f"{truth}; you said {self.guess:.4g}, " + ("right" if self.is_near else self._off)

    @property
    def _off(self) -> str:
        assert self.guess is not None
        if self.truth == 0:
            return "not 0"
        return f"{self.guess / self.truth:.3g} times that"


def estimate_document(one: Estimate) -> dict[str, Any]:
    """Return an estimate as one JSON value."""
    return {"what": one.what, "unit": one.unit, "guess": one.guess, "truth": one.truth, "near": one.is_near}

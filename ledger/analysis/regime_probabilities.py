"""Scores the probabilities that a forecast gives to the regimes. Pure.

Where a verdict names two regimes they count as one event, with the sum of their probabilities. A probability of zero
counts as one millionth, the resolution of the record, so that one certain mistake costs 13.8 and not infinity.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from ledger.records import REGIMES, Forecast, Regime

LEAST_PROBABILITY = 1e-6


def probabilities_of(forecast: Forecast) -> dict[Regime, float]:
    """Return the probability of every regime; all on the forecast regime where none were given."""
    if forecast.probabilities_ppm is None:
        return {regime: float(regime == forecast.regime) for regime in REGIMES}
    return {regime: forecast.probabilities_ppm.get(regime, 0) / 1e6 for regime in REGIMES}


def stated_shares(forecast: Forecast, measured: Collection[Regime]) -> tuple[tuple[float, bool], ...]:
    """Return each stated probability with whether its regime was measured; none where a forecast states none."""
    if forecast.probabilities_ppm is None:
        return ()
    return tuple((share, regime in measured) for regime, share in probabilities_of(forecast).items())


def brier_score(probabilities: Mapping[Regime, float], *outcomes: Regime) -> float:
    """Return the Brier score over all regimes, from 0 (certain and right) to 2 (certain and wrong)."""
    right = math.fsum(probabilities.get(regime, 0.0) for regime in outcomes)
    others = (share**2 for regime, share in probabilities.items() if regime not in outcomes)
    return math.fsum([(1 - right) ** 2, *others])


def log_score(probabilities: Mapping[Regime, float], *outcomes: Regime) -> float:
    """Return -ln of the probability given to what happened, in nats."""
    right = math.fsum(probabilities.get(regime, 0.0) for regime in outcomes)
    return -math.log(max(right, LEAST_PROBABILITY))

"""Resamples cells, or whole kernels, to give means and ratios of means an interval. Pure; numpy when called.

Every statistic here is a mean or a ratio of means, so one matrix of resampling weights serves all of them, and all
forecasters that are compared: the bootstrap is paired. Cells of one kernel share causes of error, so kernels are
resampled whole where there are at least LEAST_UNITS of them, and single cells otherwise. Fewer cells than that get no
interval. More than MOST_UNITS are dealt at random to as many hands, which are resampled whole: sums of equal numbers of
independent units have the same spread, and the cost stays bounded. The generator is seeded: the same ledger gives the
same interval.

Source: Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, sections 8.3 and 13.3 (percentile intervals);
Cameron, Gelbach, Miller, Review of Economics and Statistics 90(3), 2008 (resampling whole clusters).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Unit = Literal["kernel", "cell"]
DRAWS = 1_000
LEAST_UNITS = 5
CONFIDENCE = 0.95
MOST_UNITS = 2_000


@dataclass(frozen=True, eq=False)
class Resampling:
    """Hold how some results are resampled. unit_of: the unit of each result, by number; units: how many there are."""

    unit: Unit
    unit_of: NDArray[np.intp]
    units: int

    @property
    def enough(self) -> bool:
        """Tell whether there are units enough for an interval."""
        return self.units >= LEAST_UNITS

    def sums(self, values: Array) -> Array:
        """Return the sum of values over each unit. Shapes: values (results, k) -> (units, k)."""
        import numpy as np

        if self.units == len(values):
            return values
        columns = [np.bincount(self.unit_of, column, self.units) for column in values.T]
        return np.stack(columns, axis=1) if columns else np.zeros((self.units, 0))

    def resampled(self, values: Array) -> Array:
        """Return the sum of values over each draw. Shapes: values (results, k) -> (DRAWS, k)."""
        import numpy as np

        weights = _weights(self.units)
        # Not the product of BLAS, whose threads wait for each other on a busy machine; column by column it is fastest.
        drawn = [np.einsum("du,u->d", weights, column) for column in np.ascontiguousarray(self.sums(values).T)]
        return np.stack(drawn, axis=1) if drawn else np.zeros((DRAWS, 0))


def resampling_of(kernels: Sequence[str]) -> Resampling:
    """Return how results are resampled, given the kernel of each."""
    import numpy as np

    names = {name: number for number, name in enumerate(dict.fromkeys(kernels))}
    unit: Unit = "kernel" if len(names) >= LEAST_UNITS else "cell"
    unit_of = np.array([names[name] for name in kernels]) if unit == "kernel" else np.arange(len(kernels))
    units = len(names) if unit == "kernel" else len(kernels)
    if units > MOST_UNITS:
        hands = np.random.Generator(np.random.PCG64(units)).permutation(units) % MOST_UNITS
        unit_of, units = hands[unit_of], MOST_UNITS
    return Resampling(unit, unit_of, units)


@lru_cache(maxsize=16)
def _weights(units: int) -> Array:
    """Return how often each unit is drawn, DRAWS times. Shapes: (DRAWS, units)."""
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(units))
    return generator.multinomial(units, [1 / units] * units, size=DRAWS).astype(float)


def interval_of(drawn: Array) -> tuple[float, float] | None:
    """Return the central interval of a statistic's draws; draws that are not finite are left out."""
    import numpy as np

    finite = drawn[np.isfinite(drawn)]
    if not len(finite):
        return None
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(finite, (tail, 1 - tail))
    return float(low), float(high)


def mean_interval(values: Sequence[float | None], kernels: Sequence[str]) -> tuple[float, float] | None:
    """Return the interval of the mean of the values that are not None; None where there are too few units."""
    if None in values:
        kernels = [kernel for value, kernel in zip(values, kernels, strict=True) if value is not None]
        values = [value for value in values if value is not None]
    return ratio_interval(values, None, resampling_of(kernels))


def ratio_interval(
    above: Sequence[float | None], below: Sequence[float] | None, how: Resampling
) -> tuple[float, float] | None:
    """Return the interval of Σ above ÷ Σ below, or of the mean where below is None; None with too few units."""
    import numpy as np

    if not how.enough:
        return None
    values = np.array(above, dtype=np.float64)
    others = np.ones(len(values)) if below is None else np.array(below, dtype=np.float64)
    numerators, denominators = how.resampled(np.stack((values, others), axis=1)).T
    with np.errstate(divide="ignore", invalid="ignore"):
        return interval_of(numerators / denominators)

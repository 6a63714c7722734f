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

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

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

    @cached_property
    def counts(self) -> Array:
        """Return the number of results in each draw. Shapes: (DRAWS,)."""
        import numpy as np

        return self.resampled(np.ones((len(self.unit_of), 1)))[:, 0]

    def resampled(self, values: Array) -> Array:
        """Return the sum of values over each draw. Shapes: values (results, k) -> (DRAWS, k)."""
        import numpy as np

        weights = _weights(self.units)
        # Not the product of BLAS, whose threads wait for each other on a busy machine; column by column it is fastest.
        drawn = [np.einsum("du,u->d", weights, column) for column in np.ascontiguousarray(self.sums(values).T)]
        return np.stack(drawn, axis=1) if drawn else np.zeros((DRAWS, 0))


def resampling_of(kernels: ArrayLike) -> Resampling:
    """Return how results are resampled, given the kernel of each by its name or a number."""
    import numpy as np

    unit_of, first = numbered(np.asarray(kernels))
    units = len(first)
    unit: Unit = "kernel" if units >= LEAST_UNITS else "cell"
    if unit == "cell":
        units = len(unit_of)
        unit_of = np.arange(units)
    if units > MOST_UNITS:
        hands = np.random.Generator(np.random.PCG64(units)).permutation(units) % MOST_UNITS
        unit_of, units = hands[unit_of], MOST_UNITS
    return Resampling(unit, unit_of, units)


def numbered(values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the number of each value, equal ones alike in the order in which they come, and the place of each first.

    Shapes: (values,) -> (values,), (unlike values,).
    """
    import numpy as np

    _, first, place = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[place], first[order]


@lru_cache(maxsize=16)
def _weights(units: int) -> Array:
    """Return how often each unit is drawn, DRAWS times. Shapes: (DRAWS, units)."""
    import numpy as np

    drawn = np.random.Generator(np.random.PCG64(units)).integers(0, units, (DRAWS, units))
    drawn += units * np.arange(DRAWS)[:, None]
    return np.bincount(drawn.ravel(), minlength=DRAWS * units).reshape(DRAWS, units).astype(float)


def interval_of(drawn: Array) -> tuple[float, float] | None:
    """Return the central interval of a statistic's draws; draws that are not finite are left out."""
    import numpy as np

    finite = drawn[np.isfinite(drawn)]
    if not len(finite):
        return None
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(finite, (tail, 1 - tail))
    return float(low), float(high)


def ratio_interval(above: Array, below: Array | None, how: Resampling) -> tuple[float, float] | None:
    """Return the interval of Σ above ÷ Σ below, or of the mean where below is None; None with too few units."""
    import numpy as np

    if not how.enough:
        return None
    numerators = how.resampled(above[:, None])[:, 0]
    denominators = how.counts if below is None else how.resampled(below[:, None])[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return interval_of(numerators / denominators)

"""Predicts several quantities of a cell from those of measured ones: Gaussian processes that share a covariance. Pure.

The covariance of two cells has five parts: what all cells share, those of one family, those of one kernel, and two
that fall with the distance of their inputs, of which one counts between cells of one kernel alone and falls sooner.

Source: Rasmussen, Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1 and section 5.4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Group(NamedTuple):
    """Name what a cell is of: a family of kernels, and a kernel."""

    family: str
    kernel: str


@dataclass(frozen=True)
class Deviations:
    """Hold how far, in ln, a quantity deviates: by inputs, within a kernel, of a kernel, of all; noise of a run.

    sooner: by how much the squared distance within a kernel counts more. family: of a family of kernels.
    """

    inputs: float
    within: float
    kernel: float
    every: float
    noise: float
    sooner: float
    family: float = 0.0


@dataclass(frozen=True)
class Predicted:
    """Hold mean and standard deviation of each quantity. closest: row of the run that counts most; near: how much."""

    means: tuple[float, ...]
    deviation: float
    closest: int
    near: float


@dataclass(frozen=True, eq=False)
class Process:
    """Hold what runs teach. inputs: (N, D), scaled so that 1 is notable; targets: (N, M); inverse: of the covariance.

    The mean of a target is that of its kernels' means; it is no part of the process.
    """

    inputs: NDArray[Any]
    groups: tuple[Group, ...]
    targets: NDArray[Any]
    deviations: Deviations
    inverse: NDArray[Any]

    @classmethod
    def of(
        cls,
        inputs: Sequence[Sequence[float]],
        groups: Sequence[Group],
        targets: Sequence[Sequence[float]],
        deviations: Deviations,
    ) -> Process:
        """Return the process that some runs teach."""
        import numpy as np

        rows = np.array(inputs, dtype=float)
        covariance = _covariance(rows, groups, rows, groups, deviations)
        noisy = covariance + deviations.noise**2 * np.eye(len(rows))
        return cls(rows, tuple(groups), np.array(targets, dtype=float), deviations, np.linalg.inv(noisy))

    @cached_property
    def _products(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.inverse @ self.targets, self.inverse.sum(axis=1)

    def without(self, left: Sequence[int]) -> Fit:
        """Return the fit of all runs but those of some rows, by Schur complement of the inverse."""
        import numpy as np

        out = np.array(left, dtype=int)
        kept = np.setdiff1d(np.arange(len(self.groups)), out)
        mean = _mean(self.targets[kept], [self.groups[row].kernel for row in kept])
        of_targets, of_ones = self._products
        full = of_targets - of_ones[:, None] * mean[None, :]
        weights, lost = full[kept], None
        if len(left):
            block = np.linalg.inv(self.inverse[np.ix_(out, out)])
            lost = self.inverse[np.ix_(kept, out)], block
            weights = weights - lost[0] @ (block @ full[out])
        return Fit(self, kept, weights, mean, lost)


@dataclass(frozen=True, eq=False)
class Fit:
    """Hold a process of which some rows are known. weights: of the known rows; mean: of each target."""

    process: Process
    kept: NDArray[Any]
    weights: NDArray[Any]
    mean: NDArray[Any]
    lost: tuple[NDArray[Any], NDArray[Any]] | None

    def at(self, inputs: Sequence[float], group: Group) -> Predicted:
        """Return what the known runs say of a cell."""
        import numpy as np

        process = self.process
        groups = [process.groups[row] for row in self.kept]
        row = np.array(inputs, dtype=float)[None, :]
        near = _covariance(row, (group,), process.inputs[self.kept], groups, process.deviations)[0]
        own = _covariance(row, (group,), row, (group,), process.deviations)[0, 0] + process.deviations.noise**2
        spread = np.zeros(len(process.groups))
        spread[self.kept] = near
        explained = spread @ process.inverse @ spread
        if self.lost is not None:
            part = near @ self.lost[0]
            explained -= part @ self.lost[1] @ part
        closest = int(np.argmax(near))
        return Predicted(
            tuple(float(one) for one in self.mean + near @ self.weights),
            float(np.sqrt(max(own - explained, process.deviations.noise**2))),
            int(self.kept[closest]),
            float(near[closest] / own),
        )


def _mean(targets: NDArray[Any], kernels: Sequence[str]) -> NDArray[Any]:
    """Return the mean of each target; kernels count alike, however many runs each has."""
    import numpy as np

    names = np.array(kernels)
    found: NDArray[Any] = np.mean([targets[names == name].mean(axis=0) for name in sorted(set(kernels))], axis=0)
    return found


def _covariance(
    a: NDArray[Any], groups_a: Sequence[Group], b: NDArray[Any], groups_b: Sequence[Group], of: Deviations
) -> NDArray[Any]:
    import numpy as np

    squared = np.maximum((a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T, 0)
    alike, same = (
        np.array([one[place] for one in groups_a])[:, None] == np.array([one[place] for one in groups_b])[None, :]
        for place in (0, 1)
    )
    covariance: NDArray[Any] = (
        of.every**2
        + of.family**2 * alike
        + of.inputs**2 * np.exp(-0.5 * squared)
        + same * (of.kernel**2 + of.within**2 * np.exp(-0.5 * of.sooner * squared))
    )
    return covariance

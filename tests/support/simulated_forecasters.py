"""Simulates forecasters of known skill on shared cells, and counts how often the ranking orders them right."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ledger.analysis.ranking import Loss, Ranking, rank

MEDIANS = (0.04, 0.05, 0.07, 0.10, 0.15)
NAMES = tuple(f"{100 * median:g}%" for median in MEDIANS)
Kind = Literal["normal", "laplace", "common", "kernels", "two thirds"]


def losses(kind: Kind, cells: int, generator: np.random.Generator, medians: Sequence[float] = MEDIANS) -> list[Loss]:
    """Return losses of forecasters whose |error| of log time has the medians given.

    normal, laplace: the distribution of independent errors. common: normal, half of the variance is the cell's own
    and shared by all, scaled by each one's skill. kernels: normal, 12 kernels, half of a forecaster's variance is the
    same in all cells of a kernel. two thirds: normal, each forecasts two thirds of the cells, which differ in
    difficulty by a factor with a standard deviation of 0.5 in its logarithm.
    """
    half_normal, half_laplace = 0.67449, np.log(2)
    shape = (cells, len(medians))
    kernel_of = np.arange(cells) % 12 if kind == "kernels" else np.zeros(cells, dtype=int)
    if kind == "laplace":
        unit = generator.laplace(size=shape) / half_laplace
    else:
        unit = generator.standard_normal(shape) / half_normal
    if kind == "common":
        unit = (unit + generator.standard_normal((cells, 1)) / half_normal) / np.sqrt(2)
    if kind == "kernels":
        unit = (unit + (generator.standard_normal((12, len(medians))) / half_normal)[kernel_of]) / np.sqrt(2)
    found = np.abs(unit * np.array(medians))
    there = np.ones(shape, dtype=bool)
    if kind == "two thirds":
        found *= np.exp(0.5 * generator.standard_normal((cells, 1)))
        there = generator.random(shape) < 2 / 3
    return [
        Loss(f"{100 * median:g}%", f"c{cell}", f"k{kernel_of[cell]}", float(found[cell, number]))
        for cell in range(cells)
        for number, median in enumerate(medians)
        if there[cell, number]
    ]


@dataclass(frozen=True)
class Trials:
    """Hold what came of trials: the share ordered right, the mean stated probability, and seconds taken.

    stated: by stated probability that all of the order is right (five bins): how many trials, and the share right.
    """

    right: float
    said: float
    seconds: float
    stated: tuple[tuple[float, int, float], ...]


def trials(kind: Kind, *, count: int = 1000, cells: int = 120, seed: int = 26) -> Trials:
    """Rank simulated forecasters `count` times."""
    generator = np.random.default_rng(seed)
    begun = time.perf_counter()
    found: list[Ranking] = [rank(losses(kind, cells, generator)) for _ in range(count)]
    seconds = time.perf_counter() - begun
    right = np.array([tuple(row.forecaster for row in one.rows) == NAMES for one in found])
    said = np.array([one.order for one in found])
    bins = np.minimum((said * 5).astype(int), 4)
    stated = tuple((float(said[bins == b].mean()), int((bins == b).sum()), float(right[bins == b].mean()))
                   for b in range(5) if (bins == b).any())  # fmt: skip
    return Trials(float(right.mean()), float(said.mean()), seconds, stated)


def main() -> None:
    """Print the share of right orders by kind of error and number of cells."""
    for kind in ("normal", "laplace", "common", "kernels", "two thirds"):
        for cells in (60, 120, 240):
            one = trials(kind, cells=cells)
            bins = ", ".join(f"{100 * said:.0f}% said, {100 * share:.0f}% of {n}" for said, n, share in one.stated)
            print(f"{kind:10} {cells:4} cells: {100 * one.right:5.1f}% right, {one.seconds:.1f} s; {bins}", flush=True)


if __name__ == "__main__":
    main()

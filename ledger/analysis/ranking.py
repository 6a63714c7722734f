"""Ranks forecasters on the cells that they share, and says how sure the order is. Pure; numpy when called.

The loss of a forecast is |ln(measured ÷ predicted time)|. Not everybody forecasts every cell, and cells differ in how
hard they are, so losses are fitted as forecaster + cell (two-way fixed effects, least squares): a forecaster's effect
is what it loses more or less than the others on the same cells. Its peer score is that effect with the sign turned, so
higher is better and the mean of all is 0; on cells that all share it is the difference of mean losses. Cells of one
forecaster alone say nothing. Forecasters that no chain of shared cells joins are not compared: the largest such
group is ranked.

`ahead_of_next` is the share of bootstrap draws (resampling.py, paired: one draw serves all) in which a forecaster is
ahead of the one ranked next; `order` that of draws with the very same order. Both take the cells, or kernels, for a
sample of those that could have been asked.

Source: two-way fixed effects for difficulty as in ForecastBench (Karger et al., ICLR 2025).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ledger.analysis.resampling import DRAWS, Resampling, Unit, interval_of, resampling_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.analysis.resampling import Array


class Loss(NamedTuple):
    """Hold the loss of one forecaster on one cell of one kernel."""

    forecaster: str
    cell: str
    kernel: str
    loss: float


@dataclass(frozen=True)
class Ranked:
    """Hold one forecaster in a ranking. Units: nats of time; 0.05 is about 5% of the time.

    cells: those shared with another. loss: the mean on them. low, high: the interval of the peer score. ahead_of_next:
    probability of being ahead of the next one; None for the last, and where no interval is given.
    """

    forecaster: str
    rank: int
    cells: int
    loss: float
    peer_score: float
    low: float | None
    high: float | None
    ahead_of_next: float | None


@dataclass(frozen=True)
class Ranking:
    """Hold a ranking, best first. cells: shared by two or more. order: probability that all of it is right.

    alone: forecasters that share no cell with those ranked.
    """

    rows: tuple[Ranked, ...]
    cells: int
    resampled: Unit | None
    order: float | None
    alone: tuple[str, ...]


def rank(losses: Iterable[Loss]) -> Ranking:
    """Return the ranking of forecasters; without rows where no two of them share a cell."""
    shared, alone = _joined(_means(losses))
    if not shared:
        return Ranking((), 0, None, None, alone)
    import numpy as np

    names = sorted({name for held in shared.values() for name in held[1]})
    kernels = [kernel for kernel, _ in shared.values()]
    table = np.full((len(shared), len(names)), np.nan)
    for row, (_, held) in enumerate(shared.values()):
        for name, loss in held.items():
            table[row, names.index(name)] = loss
    how = resampling_of(kernels)
    effects = _effects(*(part.sum(axis=0, keepdims=True) for part in _equations(table)))[0]
    drawn = _drawn(table, how) if how.enough else None
    order = np.argsort(effects, kind="stable")
    rows = []
    for place, index in enumerate(order):
        after = order[place + 1] if place + 1 < len(order) else None
        found = None if drawn is None else interval_of(-drawn[:, index])
        known = table[:, index][~np.isnan(table[:, index])]
        rows.append(
            Ranked(
                forecaster=names[index],
                rank=place + 1,
                cells=len(known),
                loss=float(known.mean()),
                peer_score=float(-effects[index]),
                low=None if found is None else found[0],
                high=None if found is None else found[1],
                ahead_of_next=None if drawn is None or after is None else _ahead(drawn[:, index], drawn[:, after]),
            )
        )
    same = None if drawn is None else float((np.diff(drawn[:, order], axis=1) > 0).all(axis=1).mean())
    return Ranking(tuple(rows), len(shared), how.unit if drawn is not None else None, same, alone)


def _ahead(one: Array, other: Array) -> float:
    """Return the share of draws in which one effect is below another; equal ones count half."""
    return float((one < other).mean() + (one == other).mean() / 2)


_Cells = dict[str, tuple[str, dict[str, float]]]
"""Losses by forecaster of each cell, with its kernel, by the cell's name."""


def _means(losses: Iterable[Loss]) -> _Cells:
    """Return the mean loss of each forecaster on each cell: one who revised a forecast has several."""
    found: dict[str, tuple[str, dict[str, list[float]]]] = {}
    for name, cell, kernel, loss in losses:
        found.setdefault(cell, (kernel, {}))[1].setdefault(name, []).append(loss)
    return {
        cell: (kernel, {name: sum(several) / len(several) for name, several in held.items()})
        for cell, (kernel, held) in found.items()
    }


def _joined(cells: _Cells) -> tuple[_Cells, tuple[str, ...]]:
    """Return the cells shared within the largest group of forecasters that shared cells join, and the others' names."""
    groups: list[set[str]] = []
    for names in {frozenset(held) for _, held in cells.values()}:
        touched = [group for group in groups if group & names]
        groups = [group for group in groups if group not in touched] + [set(names).union(*touched)]
    sizes = Counter(next(iter(held)) for _, held in cells.values())
    largest = max(
        groups, key=lambda group: (len(group), sum(sizes[name] for name in group), sorted(group)), default=set()
    )
    if len(largest) < 2:
        return {}, tuple(sorted(set().union(*groups)))
    shared = {cell: found for cell, found in cells.items() if len(found[1]) > 1 and not largest.isdisjoint(found[1])}
    return shared, tuple(sorted(set().union(*groups) - largest))


def _equations(table: Array) -> tuple[Array, Array]:
    """Return each cell's share of the normal equations, the cells' own effects eliminated.

    Shapes: table (cells, forecasters), NaN where there is no forecast -> (cells, forecasters, forecasters) and
    (cells, forecasters).
    """
    import numpy as np

    there = ~np.isnan(table)
    count = there.sum(axis=1, keepdims=True)
    filled = np.where(there, table, 0.0)
    centred = np.where(there, filled - filled.sum(axis=1, keepdims=True) / count, 0.0)
    mask = there.astype(float)
    matrix = (
        np.einsum("ci,ij->cij", mask, np.eye(table.shape[1])) - np.einsum("ci,cj->cij", mask, mask) / count[..., None]
    )
    return matrix, centred


def _effects(matrix: Array, right: Array) -> Array:
    """Return the forecasters' effects, their mean 0. Shapes: (draws, n, n) and (draws, n) -> (draws, n)."""
    import numpy as np

    # The all-ones direction is free: adding it to the matrix fixes the mean of the effects at 0.
    size = matrix.shape[-1]
    scale = np.trace(matrix, axis1=1, axis2=2)[:, None, None] / size
    fixed = matrix + scale * np.ones((size, size)) / size
    found: Array = np.full(right.shape, np.nan)
    # A draw that joins not all of them says nothing.
    sound = np.linalg.cond(fixed) < 1e9
    found[sound] = np.linalg.solve(fixed[sound], right[sound][..., None])[..., 0]
    return found


def _drawn(table: Array, how: Resampling) -> Array:
    """Return the effects of every bootstrap draw that joins all forecasters. Shapes: (draws, forecasters)."""
    import numpy as np

    if not np.isnan(table).any():
        # All share every cell: the equations have the same matrix, and effects are centred mean losses.
        centred = table - table.mean(axis=1, keepdims=True)
        sums = how.resampled(np.column_stack((centred, np.ones(len(table)))))
        effects = sums[:, :-1] / sums[:, -1:]
    else:
        matrix, right = _equations(table)
        effects = _effects(how.resampled(matrix), how.resampled(right))
    kept: Array = effects[np.isfinite(effects).all(axis=1)]
    assert len(kept) <= DRAWS
    return kept

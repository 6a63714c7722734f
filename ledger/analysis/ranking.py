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

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ledger.analysis.resampling import DRAWS, Resampling, Unit, interval_of, resampling_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

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
    import numpy as np

    listed = list(losses)
    names = {name: number for number, name in enumerate(sorted({one.forecaster for one in listed}))}
    kernels: dict[str, str] = {}
    for one in listed:
        kernels.setdefault(one.cell, one.kernel)
    cells = {cell: number for number, cell in enumerate(kernels)}
    table = table_of(
        np.array([cells[one.cell] for one in listed], dtype=np.intp),
        np.array([names[one.forecaster] for one in listed], dtype=np.intp),
        np.array([one.loss for one in listed], dtype=np.float64),
        (len(cells), len(names)),
    )
    return rank_table(list(names), list(kernels.values()), table)


def table_of(cells: NDArray[np.intp], forecasters: NDArray[np.intp], losses: Array, shape: tuple[int, int]) -> Array:
    """Return mean losses by cell and forecaster, NaN without any: one who revised a forecast has several.

    Shapes: (losses,) each -> shape.
    """
    import numpy as np

    place = cells * shape[1] + forecasters
    count = np.bincount(place, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore"):
        means: Array = np.bincount(place, losses, minlength=len(count)) / count
    return means.reshape(shape)


def rank_table(names: Sequence[str], kernels: ArrayLike, table: Array) -> Ranking:
    """Return the ranking of forecasters by name, given their losses on the cells and the kernel of each cell.

    Shapes: kernels (cells,), names or numbers; table (cells, forecasters), NaN where there is no forecast.
    """
    import numpy as np

    cells, ranked = _joined(names, table)
    alone = tuple(name for number, name in enumerate(names) if number not in ranked)
    if not ranked:
        return Ranking((), 0, None, None, tuple(sorted(alone)))
    table = table[np.ix_(cells, np.array(ranked))]
    names = [names[number] for number in ranked]
    how = resampling_of(np.asarray(kernels)[cells])
    equations = _equations(table)
    sums = (part.sum(axis=0, keepdims=True) for part in (equations.kinds, equations.right))
    effects = _effects(*equations.of(*sums))[0]
    drawn = _drawn(table, equations, how) if how.enough else None
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
    return Ranking(tuple(rows), len(cells), how.unit if drawn is not None else None, same, tuple(sorted(alone)))


def _ahead(one: Array, other: Array) -> float:
    """Return the share of draws in which one effect is below another; equal ones count half."""
    return float((one < other).mean() + (one == other).mean() / 2)


def _sets(there: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return which forecasters answer together, each set once, and the number of the set of each cell."""
    import numpy as np

    # Of up to 64 forecasters a set is one integer, which is sorted fastest.
    width = 8 * -(-max(there.shape[1], 1) // 64)
    packed = np.zeros((len(there), width), np.uint8)
    packed[:, : -(-there.shape[1] // 8)] = np.packbits(there, axis=1)
    words = packed.view(np.uint64)
    axis = None if words.shape[1] == 1 else 0
    _, first, number = np.unique(words, axis=axis, return_index=True, return_inverse=True)
    return there[first], number.reshape(-1)


def _joined(names: Sequence[str], table: Array) -> tuple[NDArray[np.intp], list[int]]:
    """Return the cells shared within the largest group of forecasters that shared cells join, and its members."""
    import numpy as np

    there = ~np.isnan(table)
    sets, number = _sets(there)
    sizes = np.bincount(number, minlength=len(sets))
    groups: list[tuple[set[int], int]] = []
    for held, size in zip((set(np.flatnonzero(one).tolist()) for one in sets), sizes.tolist(), strict=True):
        touched = [group for group in groups if group[0] & held]
        groups = [group for group in groups if group not in touched]
        groups.append((held.union(*(one for one, _ in touched)), size + sum(count for _, count in touched)))
    largest, _ = max(
        groups, key=lambda group: (len(group[0]), group[1], sorted(names[one] for one in group[0])), default=(set(), 0)
    )
    if len(largest) < 2:
        return np.zeros(0, np.intp), []
    ranked = sorted(largest)
    return np.flatnonzero((there.sum(axis=1) > 1) & there[:, ranked].any(axis=1)), ranked


@dataclass(frozen=True)
class _Equations:
    """Hold the normal equations of a table, the cells' own effects eliminated. All cells of one kind have one matrix.

    Shapes: kinds (cells, kinds), matrices (kinds, n, n), right (cells, n), of n forecasters.
    """

    kinds: Array
    matrices: Array
    right: Array

    def of(self, counts: Array, right: Array) -> tuple[Array, Array]:
        """Return the equations of sums over cells. Shapes: (draws, kinds) and (draws, n) -> (draws, n, n), the same."""
        import numpy as np

        return np.einsum("dk,kij->dij", counts, self.matrices), right


def _equations(table: Array) -> _Equations:
    """Return the equations of a table. Shapes: (cells, forecasters), NaN where there is no forecast."""
    import numpy as np

    there = ~np.isnan(table)
    filled = np.where(there, table, 0.0)
    centred = np.where(there, filled - filled.sum(axis=1, keepdims=True) / there.sum(axis=1, keepdims=True), 0.0)
    sets, number = _sets(there)
    mask = sets.astype(float)
    matrices = np.einsum("ki,ij->kij", mask, np.eye(table.shape[1]))
    matrices -= np.einsum("ki,kj->kij", mask, mask) / mask.sum(axis=1)[:, None, None]
    size = table.shape[1] ** 2
    if len(sets) <= size:
        return _Equations(np.eye(len(sets))[number], matrices, centred)
    # The cells are of more kinds than a matrix has elements: rather these are summed.
    return _Equations(matrices.reshape(-1, size)[number], np.eye(size).reshape(size, *matrices.shape[1:]), centred)


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


def _drawn(table: Array, equations: _Equations, how: Resampling) -> Array:
    """Return the effects of every bootstrap draw that joins all forecasters. Shapes: (draws, forecasters)."""
    import numpy as np

    if not np.isnan(table).any():
        # All share every cell: the equations have the same matrix, and effects are centred mean losses.
        centred = table - table.mean(axis=1, keepdims=True)
        sums = how.resampled(np.column_stack((centred, np.ones(len(table)))))
        effects = sums[:, :-1] / sums[:, -1:]
    else:
        effects = _effects(*equations.of(how.resampled(equations.kinds), how.resampled(equations.right)))
    kept: Array = effects[np.isfinite(effects).all(axis=1)]
    assert len(kept) <= DRAWS
    return kept

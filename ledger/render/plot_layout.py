"""Computes the axis limits, the positions of names, and the labels of a roofline plot. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ledger.analysis.formatting import harmless
from ledger.records import CeilingKind
from ledger.render.plot_model import Ceiling, Dot, RooflinePlot, Slope

RowKey = tuple[str, str, tuple[tuple[str, int], ...]]
"""Kernel, dtype and sizes of a row."""


def bounds(plot: RooflinePlot) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the limits of both axes: ridges and dots well inside, the highest ceiling just below the top."""
    peaks = [line.flop_per_s for line in plot.ceilings]
    bandwidths = [line.bytes_per_s for line in plot.slopes]
    dots = plot.dots
    xs = [dot.intensity_flop_per_byte for dot in dots]
    ys = [value for dot in dots for value in (dot.flop_per_s, dot.predicted_flop_per_s) if value is not None]
    left = min([1.0, *xs]) / 3
    ridges = [highest(plot, slope.device, slope.kind) / slope.bytes_per_s for slope in plot.slopes]
    right = max([*ridges, *xs]) * 4
    low = min([min(bandwidths) * left * 2, *(y / 3 for y in ys)])
    return (left, right), (low, max([*peaks, *ys]) * 2)


def highest(plot: RooflinePlot, device: str, kind: CeilingKind) -> float:
    """Return the highest peak of a device in one set of ceilings; the highest of all where that set has none."""
    peaks = [line.flop_per_s for line in plot.ceilings if line.device == device and line.kind == kind]
    return max(peaks, default=max(line.flop_per_s for line in plot.ceilings))


def push_apart(
    wanted: Sequence[float], apart: float, within: tuple[float, float] = (-math.inf, math.inf)
) -> list[float]:
    """Return positions in the order of `wanted` (ascending), at least `apart` from each other, each near its own.

    within: least and greatest position, which leave room for all.
    """
    groups: list[tuple[float, int]] = []
    for want in wanted:
        centre, count = want, 1
        # A group that touches the one below joins it; both then share the mean of the wanted positions.
        while groups and groups[-1][0] + (groups[-1][1] + count) * apart / 2 > centre:
            below, number = groups.pop()
            centre = (below * number + centre * count) / (number + count)
            count += number
        groups.append((centre, count))
    found = [centre + (index - (count - 1) / 2) * apart for centre, count in groups for index in range(count)]
    least, most = within
    last = len(found) - 1
    lowered = (max(at, least + index * apart) for index, at in enumerate(found))
    return [min(at, most - (last - index) * apart) for index, at in enumerate(lowered)]


def row_order(dot: Dot) -> RowKey:
    """Return what rows are sorted by: kernel, dtype, then sizes."""
    return (dot.kernel, dot.dtype, tuple(sorted(dot.shape.items())))


def device_text(plot: RooflinePlot, line: Ceiling | Slope) -> str:
    """Return a line's label, with its device in front where several are overlaid."""
    label = line.label if len(plot.devices) == 1 else f"{line.device} {line.label}"
    return harmless(label)


def in_rows(plot: RooflinePlot) -> list[Dot]:
    """Return the dots in the order of their devices, kernels, dtypes and sizes."""
    names = plot.device_names
    return sorted(plot.dots, key=lambda dot: (names.index(dot.device), *row_order(dot)))


def regime_text(dot: Dot) -> str:
    """Return the regimes of a dot: the one, or both with an arrow where they differ; a bench has none."""
    said, found = dot.predicted_regime, dot.regime
    short = [regime.removesuffix("-bound") if regime else "?" for regime in (said, found)]
    if said is None:
        return short[1] if found else "bench"
    return short[0] if said == found else f"{short[0]} → {short[1]}"

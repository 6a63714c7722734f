"""Draws the dots of a roofline by name on a linear scale of percent, in columns; matplotlib's axes are given. Pure.

A linear scale shows differences that a log scale hides. Hollow: where the forecast put a dot; filled: where it was
measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ledger.analysis.formatting import harmless
from ledger.render.plot_layout import in_rows, regime_text
from ledger.render.plot_model import Dot, RooflinePlot
from ledger.render.plot_style import MARKERS, colour_of, rim_of

AXES_INCHES = 2.35
_REGIME_INCHES = 1.05
# Width of a wide letter at 7 points.
_CHARACTER_INCHES = 0.062
_LONGEST_LABEL = 80
_MOST_ROWS = 50
# Shorter arrows cannot be read.
_NO_ARROW_POINTS = 3.0


def columns(plot: RooflinePlot) -> list[Sequence[Dot]]:
    """Return the dots of each column, in the order of their devices, kernels, dtypes and sizes."""
    dots = in_rows(plot)
    count = math.ceil(len(dots) / _MOST_ROWS)
    rows = math.ceil(len(dots) / max(1, count))
    return [dots[column * rows :][:rows] for column in range(count)]


def label_inches(plot: RooflinePlot, dots: Sequence[Dot]) -> float:
    """Return the width of the names of a column's rows."""
    return _CHARACTER_INCHES * max(len(_label(plot, dot)) for dot in dots)


def column_inches(plot: RooflinePlot, dots: Sequence[Dot]) -> float:
    """Return the width of a column: names, axes and regimes."""
    return label_inches(plot, dots) + AXES_INCHES + _REGIME_INCHES


def _label(plot: RooflinePlot, dot: Dot) -> str:
    several = len(plot.devices) > 1
    return harmless(f"{dot.label}{' on ' + dot.device if several else ''}", _LONGEST_LABEL)


def draw_rows(axes: Any, plot: RooflinePlot, dots: Sequence[Dot]) -> None:
    """Draw one column of dots."""
    top = max([100.0, *(dot.percent * 1.03 for dot in plot.dots)])
    axes.set(xlim=(0, top), ylim=(len(dots) - 0.3, -0.7), yticks=range(len(dots)))
    axes.set_yticklabels([_label(plot, dot) for dot in dots])
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel("percent of the roof: forecast (hollow) → measured")
    axes.grid(visible=True, axis="x", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    for row, dot in enumerate(dots):
        colour, marker = colour_of(plot, dot.device), MARKERS[dot.dtype]
        start, end = dot.predicted_percent, dot.percent
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color="#f6f6f6", lw=0, zorder=0)
        if start is not None:
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 0.8, "mutation_scale": 6, "shrinkA": 2, "shrinkB": 2.5}
            if abs(end - start) > _NO_ARROW_POINTS:
                axes.annotate("", xy=(end, row), xytext=(start, row), arrowprops=arrow)
            axes.plot(start, row, marker=marker, ms=3.5, mfc="white", mec=colour, mew=0.8, zorder=4)
        axes.plot(end, row, marker=marker, ms=4.5, mfc=colour, mec=rim_of(dot), mew=0.5, zorder=5)
        axes.text(top * 1.03, row, regime_text(dot), fontsize=6.5, va="center", color="#444444", clip_on=False)

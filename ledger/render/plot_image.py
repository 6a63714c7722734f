"""Draws a roofline plot with matplotlib: the log-log roofline, and beside it one row a dot. Writes PNG and SVG.

Left, the roofs: a colour a device, a line style a source (datasheet solid, burst dashed, sustained dotted), a marker
a dtype, so that the plot reads without colour and in print. Right, every dot by name on a linear scale of percent,
where differences that a log scale hides can be seen: hollow where the forecast put it, filled where it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.formatting import harmless
from ledger.errors import MachineError
from ledger.render.plot_dots import AXES_INCHES, column_inches, columns, draw_rows, label_inches
from ledger.render.plot_layout import (
    bounds,
    cluster_text,
    clusters,
    device_text,
    highest,
    position,
    push_apart,
    spread,
)
from ledger.render.plot_model import Ceiling, Dot, RooflinePlot, Slope
from ledger.render.plot_style import BENCH_RIM, MARKERS, colour_of, rim_of
from ledger.suggestions import install_command

_STYLES = {"datasheet": "solid", "burst": (0, (5, 2)), "sustained": (0, (1, 1.5))}
# Where a cluster's name may be: position on the cluster's box, alignment, and points to move down.
_LABEL_POSITIONS: list[tuple[float, float, str, float]] = [
    (0.5, 0, "center", -1),
    (1, 0.5, "left", 0),
    (1, 0, "left", -1),
    (1, 0.2, "left", 0),
    (0, 0, "right", -1),
]
_LABEL_POSITIONS += [
    (at, 1, across, up) for up in (9.0, 18.0) for at, across in ((0.5, "center"), (1, "left"), (1, "right"))
]
_LABEL_POSITIONS += [
    (at, 0, across, -8.0 * step) for step in (1, 2, 3) for at, across in ((0.5, "center"), (1, "left"))
]
# Shorter arrows cannot be read.
_NO_ARROW_RATIO = 0.12
_ROW_INCHES = 0.155
_AXES_INCHES = 6.2
# From so many dots on the roofs are drawn wider, and dots smaller.
_MANY = 60
_DPI = 160


def draw(plot: RooflinePlot, folder: FilePath) -> list[FilePath]:
    """Write roofline.png and roofline.svg into a folder. Raises: MachineError when matplotlib is not installed."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MachineError(
            f"matplotlib is not installed; expected it for PNG and SVG: {install_command('plot')}"
        ) from error
    # Fixed ids and no date: the same plot gives the same file.
    style = {"svg.hashsalt": "ledger", "font.size": 8, "font.family": "DejaVu Sans", "axes.unicode_minus": True}
    with rc_context(style):
        figure = Figure(figsize=_size(plot))
        FigureCanvasAgg(figure)
        _compose(figure, plot)
        paths = [folder / "roofline.png", folder / "roofline.svg"]
        figure.savefig(paths[0], dpi=_DPI, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _many(plot: RooflinePlot) -> bool:
    return len(plot.dots) > _MANY


def _axes_inches(plot: RooflinePlot) -> float:
    return _AXES_INCHES * (1.4 if _many(plot) else 1.0)


def _roofs_inches(plot: RooflinePlot) -> float:
    """Return the width of the left part: axis labels, axes, and the ceilings' labels with the device where needed."""
    return _axes_inches(plot) + (3.9 if len(plot.devices) == 1 else 4.6)


def _size(plot: RooflinePlot) -> tuple[float, float]:
    every = columns(plot)
    wide = _roofs_inches(plot) + sum(column_inches(plot, dots) for dots in every)
    rows = max((len(dots) for dots in every), default=0)
    return wide, max(7.5 if rows else 6.5, 1.6 + _ROW_INCHES * rows)


def _compose(figure: Any, plot: RooflinePlot) -> None:
    width, height = figure.get_size_inches()
    bottom, tall = 0.6 / height, 1 - 1.15 / height
    _roofs(figure.add_axes((0.75 / width, bottom, _axes_inches(plot) / width, tall)), plot)
    left = _roofs_inches(plot)
    for dots in columns(plot):
        start = (left + label_inches(plot, dots)) / width
        draw_rows(figure.add_axes((start, bottom, AXES_INCHES / width, tall)), plot, dots)
        left += column_inches(plot, dots)
    figure.text(
        0.75 / width, 1 - 0.3 / height, f"Roofline: {harmless(plot.title)}", fontsize=11, weight="bold", va="center"
    )


# The roofs


def _roofs(axes: Any, plot: RooflinePlot) -> None:
    (left, right), (low, high) = bounds(plot)
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    fanned = "; dots that share one are fanned out along their roof" if plot.dots else ""
    axes.set_xlabel(f"arithmetic intensity, FLOP per byte of compulsory DRAM traffic{fanned}")
    axes.set_ylabel("rate, FLOP/s")
    axes.grid(visible=True, which="major", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for slope in plot.slopes:
        _draw_slope(axes, plot, slope, left=left)
    for ceiling in plot.ceilings:
        _draw_ceiling(axes, plot, ceiling, right=right)
    _label_ceilings(axes, plot, low=low, high=high)
    factors = spread(plot.dots, right / left)
    for dot, factor in zip(plot.dots, factors, strict=True):
        _draw_dot(axes, plot, dot, factor)
    _label_clusters(axes, plot, factors)
    _legend(axes, plot)


def _draw_slope(axes: Any, plot: RooflinePlot, slope: Slope, *, left: float) -> None:
    bandwidth, top = slope.bytes_per_s, highest(plot, slope.device, slope.kind)
    colour = colour_of(plot, slope.device)
    axes.plot(
        (left, top / bandwidth),
        (bandwidth * left, top),
        color=colour,
        linestyle=_STYLES[slope.kind],
        linewidth=1.5 if slope.level == "DRAM" else 0.8,
        alpha=1 if slope.level == "DRAM" else 0.7,
    )


def _draw_ceiling(axes: Any, plot: RooflinePlot, ceiling: Ceiling, *, right: float) -> None:
    slopes = [
        slope.bytes_per_s for slope in plot.slopes if slope.device == ceiling.device and slope.kind == ceiling.kind
    ]
    peak = ceiling.flop_per_s
    axes.plot(
        (peak / max(slopes), right),
        (peak, peak),
        color=colour_of(plot, ceiling.device),
        linestyle=_STYLES[ceiling.kind],
        linewidth=1.1,
    )


def _label_ceilings(axes: Any, plot: RooflinePlot, *, low: float, high: float) -> None:
    """Write each ceiling's label right of the axes, pushed apart where ceilings lie close, with a thin leader."""
    lines = sorted(plot.ceilings, key=lambda line: line.flop_per_s)
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    size = 7.0 if len(lines) <= 24 else 6.0
    apart = (size + 2.0) / height
    wanted = [math.log(line.flop_per_s / low) / math.log(high / low) for line in lines]
    for line, level, want in zip(lines, push_apart(wanted, apart), wanted, strict=True):
        colour = colour_of(plot, line.device)
        trans = axes.transAxes
        axes.plot((1.0, 1.025, 1.035), (want, level, level), transform=trans, color=colour, lw=0.5, clip_on=False)
        words = device_text(plot, line)
        axes.text(1.04, level, words, transform=trans, fontsize=size, color=colour, va="center", clip_on=False)


def _draw_dot(axes: Any, plot: RooflinePlot, dot: Dot, factor: float) -> None:
    colour, marker = colour_of(plot, dot.device), MARKERS[dot.dtype]
    end = position(dot, dot.flop_per_s, factor)
    size = 3.6 if _many(plot) else 4.5
    if dot.predicted_flop_per_s is not None:
        start = position(dot, dot.predicted_flop_per_s, factor)
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 0.7, "mutation_scale": 6, "shrinkA": 2, "shrinkB": 2.5}
        if abs(math.log(start[1] / end[1])) > _NO_ARROW_RATIO:
            axes.annotate("", xy=end, xytext=start, arrowprops=arrow)
        axes.plot(*start, marker=marker, ms=0.7 * size, mfc="white", mec=colour, mew=0.7, zorder=4)
    axes.plot(*end, marker=marker, ms=size, mfc=colour, mec=rim_of(dot), mew=0.5, zorder=5)


def _label_clusters(axes: Any, plot: RooflinePlot, fanned: Sequence[float]) -> None:
    """Name each cluster below or beside it where the text covers neither a dot nor other text, or not at all."""
    from matplotlib.transforms import Bbox

    factors = {id(dot): factor for dot, factor in zip(plot.dots, fanned, strict=True)}
    boxes: dict[int, Any] = {}
    for dot in plot.dots:
        rates = [rate for rate in (dot.flop_per_s, dot.predicted_flop_per_s) if rate is not None]
        ends = axes.transData.transform([position(dot, rate, factors[id(dot)]) for rate in (min(rates), max(rates))])
        boxes[id(dot)] = Bbox(ends).padded(3)
    taken, renderer, inside = list(boxes.values()), axes.figure.canvas.get_renderer(), axes.get_window_extent()
    for group in clusters(plot.dots):
        around = Bbox.union([boxes[id(dot)] for dot in group])
        for dx, dy, across, along in _LABEL_POSITIONS:
            anchor = (around.x0 + dx * around.width, around.y0 + dy * around.height)
            offset = ({"center": 0, "left": 3, "right": -3}[across], along)
            text = axes.annotate(
                cluster_text(group),
                xy=axes.transData.inverted().transform(anchor),
                xytext=offset,
                textcoords="offset points",
                fontsize=6.5,
                color=colour_of(plot, group[0].device),
                ha=across,
                va="center" if along == 0 else "top",
                zorder=6,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.3},
            )
            box = text.get_window_extent(renderer)
            if inside.x0 < box.x0 and box.x1 < inside.x1 and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def _legend(axes: Any, plot: RooflinePlot) -> None:
    """Explain slopes and markers in the upper left, where no roof can be."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=colour_of(plot, slope.device),
            linestyle=_STYLES[slope.kind],
            linewidth=1.5 if slope.level == "DRAM" else 0.8,
            label=device_text(plot, slope),
        )
        for slope in plot.slopes
    ]
    for dtype in dict.fromkeys(dot.dtype for dot in plot.dots):
        handles.append(Line2D([], [], color="#444444", marker=MARKERS[dtype], linestyle="", ms=4.5, label=dtype))
    if any(dot.predicted_flop_per_s is not None for dot in plot.dots):
        label = "forecast (hollow) → measured"
        handles.append(Line2D([], [], color="#444444", marker="o", mfc="white", linestyle="", ms=3.5, label=label))
    if any(dot.seal is None for dot in plot.dots):
        label = "bench, no forecast"
        handles.append(Line2D([], [], marker="o", mfc="#bbbbbb", mec=BENCH_RIM, mew=0.7, linestyle="", label=label))
    axes.legend(handles=handles, loc="upper left", fontsize=7, frameon=False, borderaxespad=0.3)

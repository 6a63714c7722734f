"""Draws the log-log roofline as SVG, 1600 × 1000: roofs, measured dots, and a thin arrow from each forecast. Pure.

Colour is the measured regime, shape the dtype; with several devices lines and rims have the device's colour.
Ceilings are named right of the axes, slopes in the legend, and each kernel once where its name covers nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ledger.analysis.formatting import harmless
from ledger.records import REGIMES
from ledger.render import svg
from ledger.render.plot_layout import bounds, device_text, highest, push_apart
from ledger.render.plot_model import Ceiling, Dot, RooflinePlot, Slope

WIDTH, HEIGHT = 1600, 1000
_LEFT, _RIGHT, _TOP, _BOTTOM = 95.0, 1215.0, 60.0, 925.0
_LINE = 18.0
_CHARACTER = 8.0  # width of a letter at 14 px, at most
_MOST_NAMES = 16
_HEAD = 7.0  # an arrow shorter than this has no head
_LONGEST_LABEL = 52
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""


@dataclass(frozen=True)
class _Axes:
    """Hold the limits of both logarithmic axes, and turn values into pixels."""

    x_limits: tuple[float, float]
    y_limits: tuple[float, float]

    def x(self, value: float) -> float:
        left, right = self.x_limits
        return _LEFT + math.log(value / left) / math.log(right / left) * (_RIGHT - _LEFT)

    def y(self, value: float) -> float:
        low, high = self.y_limits
        return _BOTTOM - math.log(value / low) / math.log(high / low) * (_BOTTOM - _TOP)


def draw(plot: RooflinePlot) -> str:
    """Return the roofline as an SVG element, for a page that has svg.STYLE."""
    axes = _Axes(*bounds(plot))
    title = f"Roofline: {plot.title}"
    legend, legend_box = _legend(plot)
    parts = [
        svg.element("rect", width=WIDTH, height=HEIGHT, class_="paper"),
        svg.text(_LEFT, 30, harmless(title, 90), "title"),
        *_grid(axes),
        *(_slope(axes, plot, slope) for slope in plot.slopes),
        *(_ceiling(axes, plot, ceiling) for ceiling in plot.ceilings),
        *_ceiling_names(axes, plot),
        *(_arrow(axes, dot) for dot in plot.dots if dot.predicted_flop_per_s is not None),
        *(_dot(axes, plot, dot) for dot in plot.dots),
        *_kernel_names(axes, plot, legend_box),
        *legend,
    ]
    return svg.picture(WIDTH, HEIGHT, title, parts)


def _grid(axes: _Axes) -> Iterator[str]:
    for power in _decades(*axes.x_limits):
        x = axes.x(10.0**power)
        yield svg.line(x, _TOP, x, _BOTTOM, "grid")
        yield svg.text(x, _BOTTOM + 16, _power(power), "middle")
    for power in _decades(*axes.y_limits):
        y = axes.y(10.0**power)
        yield svg.line(_LEFT, y, _RIGHT, y, "grid")
        yield svg.text(_LEFT - 8, y, _power(power), "end")
    yield svg.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis")
    yield svg.line(_LEFT, _TOP, _LEFT, _BOTTOM, "axis")
    words = "arithmetic intensity, FLOP per byte of compulsory DRAM traffic"
    yield svg.text((_LEFT + _RIGHT) / 2, _BOTTOM + 44, words, "middle")
    turned = svg.text(0, 0, "rate, FLOP/s", "middle")
    yield svg.element("g", turned, transform=f"translate(28 {(_TOP + _BOTTOM) / 2:g}) rotate(-90)")


def _decades(low: float, high: float) -> range:
    return range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)


def _power(exponent: int) -> str:
    return "10" + str(exponent).translate(_SUPERSCRIPT)


def _roof_class(plot: RooflinePlot, roof: Ceiling | Slope) -> str:
    return f"roof {roof.kind} {_device_class(plot, roof.device)}"


def _device_class(plot: RooflinePlot, device: str) -> str:
    return f"d{plot.device_names.index(device) % 4}"


def _slope(axes: _Axes, plot: RooflinePlot, slope: Slope) -> str:
    """Return a slope from the edge of the axes up to the highest peak of its set."""
    top = highest(plot, slope.device, slope.kind)
    start = max(axes.x_limits[0], axes.y_limits[0] / slope.bytes_per_s)
    kind = _roof_class(plot, slope) + ("" if slope.level == "DRAM" else " thin")
    return svg.line(
        axes.x(start), axes.y(start * slope.bytes_per_s), axes.x(top / slope.bytes_per_s), axes.y(top), kind
    )


def _ceiling(axes: _Axes, plot: RooflinePlot, ceiling: Ceiling) -> str:
    own = [line.bytes_per_s for line in plot.slopes if (line.device, line.kind) == (ceiling.device, ceiling.kind)]
    start = ceiling.flop_per_s / max(own) if own else axes.x_limits[0]
    y = axes.y(ceiling.flop_per_s)
    return svg.line(axes.x(start), y, _RIGHT, y, _roof_class(plot, ceiling))


def _ceiling_names(axes: _Axes, plot: RooflinePlot) -> Iterator[str]:
    """Yield each ceiling's name right of the axes, pushed apart where ceilings lie close, with a leader."""
    lines = sorted(plot.ceilings, key=lambda line: -line.flop_per_s)
    wanted = [axes.y(line.flop_per_s) for line in lines]
    apart = min(_LINE, (_BOTTOM - _TOP) / max(1, len(lines)))
    for ceiling, want, y in zip(lines, wanted, push_apart(wanted, apart, (_TOP, _BOTTOM)), strict=True):
        yield svg.element("path", d=f"M{_RIGHT:g} {want:.1f}L{_RIGHT + 22:g} {y:.1f}h6", class_="roof leader")
        yield svg.text(_RIGHT + 33, y, harmless(device_text(plot, ceiling), _LONGEST_LABEL), "small")


def _dot(axes: _Axes, plot: RooflinePlot, dot: Dot) -> str:
    said = "" if dot.predicted_percent is None else f", forecast {dot.predicted_percent:g}%"
    on = f" on {dot.device}" if len(plot.devices) > 1 else ""
    rim = _device_class(plot, dot.device) if len(plot.devices) > 1 else "dot"
    kind = f"{rim} {svg.regime_class(dot.regime)}" if dot.seal else "bench none"
    size = 5.0 if len(plot.dots) <= 100 else 4.0
    title = f"{dot.label}{on}: {dot.percent:.1f}%{said}, {dot.regime or 'no regime'}"
    return svg.mark(dot.dtype, axes.x(dot.intensity_flop_per_byte), axes.y(dot.flop_per_s), size, kind, title)


def _arrow(axes: _Axes, dot: Dot) -> str:
    assert dot.predicted_flop_per_s is not None
    x, start, end = axes.x(dot.intensity_flop_per_byte), axes.y(dot.predicted_flop_per_s), axes.y(dot.flop_per_s)
    head = f"m-3 {4 if start > end else -4}l3 {-4 if start > end else 4}l3 {4 if start > end else -4}"
    shape = f"M{x - 3:.1f} {start:.1f}h6m-3 0V{end:.1f}" + (head if abs(start - end) > _HEAD else "")
    return svg.element("path", d=shape, class_=f"arrow {svg.regime_class(dot.regime)}")


def _kernel_names(axes: _Axes, plot: RooflinePlot, legend: Box) -> Iterator[str]:
    """Yield each kernel's name beside one of its dots where it covers neither a dot nor other text, or not at all."""
    points = [(axes.x(dot.intensity_flop_per_byte), axes.y(dot.flop_per_s)) for dot in plot.dots]
    taken: list[Box] = [legend, *((x - 6, y - 6, x + 6, y + 6) for x, y in points)]
    most = Counter(sorted(dot.kernel for dot in plot.dots)).most_common(_MOST_NAMES)
    for kernel, _ in most:
        own = [point for point, dot in zip(points, plot.dots, strict=True) if dot.kernel == kernel]
        words = harmless(kernel, 40)
        wide = _CHARACTER * len(words)
        for x, y in sorted(own, key=lambda point: -point[1]):
            box = next((box for box in _beside(x, y, wide) if _free(box, taken)), None)
            if box is not None:
                taken.append(box)
                yield svg.text(box[0], (box[1] + box[3]) / 2, words, "name")
                break


def _beside(x: float, y: float, wide: float) -> Iterator[Box]:
    """Yield the boxes for a name below, right of, left of and above a dot, the nearest first."""
    for away in (10.0, 22.0, 34.0):
        yield x + away, y - 8, x + away + wide, y + 8
        yield x - wide / 2, y + away, x + wide / 2, y + away + 16
        yield x - wide - away, y - 8, x - away, y + 8
        yield x - wide / 2, y - away - 16, x + wide / 2, y - away


def _free(box: Box, taken: list[Box]) -> bool:
    inside = box[0] > _LEFT and box[2] < _RIGHT and box[1] > _TOP and box[3] < _BOTTOM
    return inside and not any(
        box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3] for other in taken
    )


def _legend(plot: RooflinePlot) -> tuple[list[str], Box]:
    """Return what explains slopes, colours and shapes, in the upper left, where no roof can be, and its box."""
    x, y, parts, longest = _LEFT + 14, _TOP + 14, [], 0
    entries: list[tuple[str, str]] = []
    for slope in plot.slopes:
        kind = _roof_class(plot, slope) + ("" if slope.level == "DRAM" else " thin")
        entries.append((svg.line(0, 0, 28, 0, kind), harmless(device_text(plot, slope), _LONGEST_LABEL)))
    found = {dot.regime for dot in plot.dots if dot.seal}
    for regime in (*(regime for regime in REGIMES if regime in found), *((None,) if None in found else ())):
        drawn = svg.mark("fp16", 14, 0, 6, f"dot {svg.regime_class(regime)}")
        entries.append((drawn, f"measured {regime}" if regime else "regime not determined"))
    for dtype in dict.fromkeys(sorted(dot.dtype for dot in plot.dots)):
        entries.append((svg.mark(dtype, 14, 0, 5, "none"), dtype))
    if any(dot.predicted_flop_per_s is not None for dot in plot.dots):
        entries.append(
            (svg.element("path", d="M11 7h6m-3 0V-6m-3 4l3 -4l3 4", class_="arrow none"), "forecast (bar) → measured")
        )
    if any(dot.seal is None for dot in plot.dots):
        entries.append((svg.mark("fp16", 14, 0, 5, "bench none"), "bench, no forecast"))
    for drawn, words in entries:
        parts.append(svg.element("g", drawn, transform=f"translate({x:g} {y:g})") + svg.text(x + 36, y, words, "small"))
        longest, y = max(longest, len(words)), y + _LINE
    return parts, (_LEFT, _TOP, x + 36 + _CHARACTER * longest, y)

"""Draws every dot of a roofline by name on a linear scale of percent, at most 40 a picture. Pure.

A linear scale shows differences that a log scale hides. Hollow, with its interval as a bar: the forecast; filled: the
measurement, in the colour of its regime.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ledger.analysis.formatting import harmless, signed
from ledger.render import svg
from ledger.render.plot_layout import in_rows, regime_text
from ledger.render.plot_model import Dot, RooflinePlot

MOST_ROWS = 40
_WIDTH, _LEFT, _RIGHT, _TOP = 1140.0, 430.0, 930.0, 78.0
_ROW = 21.0
_LONGEST_LABEL = 56


def draw(plot: RooflinePlot) -> list[str]:
    """Return pictures of the dots in the order of their devices, kernels, dtypes and sizes, each about as long."""
    dots = in_rows(plot)
    count = math.ceil(len(dots) / MOST_ROWS)
    rows = math.ceil(len(dots) / max(1, count))
    limit = 10 * math.ceil(max([100.0, *(_highest(dot) for dot in dots)]) / 10)
    return [_strip(plot, dots[number * rows :][:rows], (number + 1, count), limit) for number in range(count)]


def _highest(dot: Dot) -> float:
    return max(dot.percent, dot.predicted_percent or 0.0, dot.predicted_high or 0.0)


def _strip(plot: RooflinePlot, dots: Sequence[Dot], part: tuple[int, int], limit: float) -> str:
    height = _TOP + _ROW * len(dots) + 56
    title = "Forecast against measured" + (f", {part[0]} of {part[1]}" if part[1] > 1 else "")
    parts = [
        svg.element("rect", width=_WIDTH, height=height, class_="paper"),
        svg.text(16, 26, title, "title"),
        svg.text(16, 52, "percent of the roof; hollow: forecast, with its interval as a bar; filled: measured", "dim"),
        *_scale(_TOP, _TOP + _ROW * len(dots), limit),
    ]
    for number, dot in enumerate(dots):
        parts += _row(plot, dot, number, limit)
    return svg.picture(_WIDTH, height, f"{title}: {plot.title}", parts)


def _x(percent: float, limit: float) -> float:
    return _LEFT + percent / limit * (_RIGHT - _LEFT)


def _scale(top: float, bottom: float, limit: float) -> Iterator[str]:
    step = 20 if limit <= 200 else 100 * math.ceil(limit / 1000)
    for percent in range(0, math.floor(limit) + 1, step):
        x = _x(percent, limit)
        yield svg.line(x, top, x, bottom, "axis" if percent == 100 else "grid")
        yield svg.text(x, bottom + 16, f"{percent}%", "middle small")


def _row(plot: RooflinePlot, dot: Dot, number: int, limit: float) -> Iterator[str]:
    y, kind = _TOP + _ROW * (number + 0.5), svg.regime_class(dot.regime)
    on = f" {dot.device}" if len(plot.devices) > 1 else ""
    if number % 2 == 0:
        yield svg.element("rect", x=8, y=y - _ROW / 2, width=_WIDTH - 16, height=_ROW, class_="band", opacity="0.6")
    yield svg.text(_LEFT - 14, y, harmless(f"{dot.label}{on}", _LONGEST_LABEL), "end small")
    said, end = dot.predicted_percent, _x(dot.percent, limit)
    if dot.predicted_low is not None and dot.predicted_high is not None:
        yield svg.line(_x(dot.predicted_low, limit), y, _x(dot.predicted_high, limit), y, f"interval {kind}")
    if said is not None:
        yield svg.line(_x(said, limit), y, end, y, f"arrow {kind}")
        yield svg.mark(dot.dtype, _x(said, limit), y, 4, f"{kind} hollow")
    yield svg.mark(dot.dtype, end, y, 5, f"dot {kind}" if dot.seal else "bench none")
    gap = "" if said is None else f" {signed(dot.percent - said)}"
    yield svg.text(_RIGHT + 14, y, f"{regime_text(dot)}{gap}", "small")

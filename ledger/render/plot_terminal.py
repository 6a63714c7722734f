"""Draws a roofline plot with characters, and lists its dots by letter. Writes to the console given."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.analysis.formatting import harmless, kernel_tail
from ledger.render.fitted_table import Column, print_fitted
from ledger.render.plot_layout import bounds, device_text, regime_text
from ledger.render.plot_model import Ceiling, Dot, RooflinePlot, Slope

L = TypeVar("L", Ceiling, Slope)

_HEIGHT = 22
_AXIS = 9
_NARROWEST = 40
# Without o, which marks a forecast.
_LETTERS = (string.ascii_lowercase + string.ascii_uppercase).replace("o", "").replace("O", "")

_MARKS = {
    "hbm-bound": "h", "compute-bound": "c", "smem-bound": "s", "launch-bound": "n", "l2-bound": "2",
    "latency-bound": "t",
}  # fmt: skip


class _Canvas:
    """Hold a grid of characters under logarithmic axes; what is put later covers what was there."""

    def __init__(self, width: int, height: int, limits: tuple[tuple[float, float], tuple[float, float]]) -> None:
        self.width, self.height = width, height
        (self.left, self.right), (self.low, self.high) = limits
        self.cells = [[" "] * width for _ in range(height)]

    def column(self, x: float) -> int:
        return round(math.log(x / self.left) / math.log(self.right / self.left) * (self.width - 1))

    def row(self, y: float) -> int:
        return self.height - 1 - round(math.log(y / self.low) / math.log(self.high / self.low) * (self.height - 1))

    def x_of(self, column: int) -> float:
        return float(self.left * (self.right / self.left) ** (column / (self.width - 1)))

    def put(self, x: float, y: float, mark: str) -> None:
        column, row = self.column(x), self.row(y)
        if 0 <= column < self.width and 0 <= row < self.height:
            self.cells[row][column] = mark


def print_plot(plot: RooflinePlot, console: Console) -> None:
    """Print roofs, dots and their forecasts; letters are explained below, in the order of their intensity.

    Of more dots than there are letters each has the mark of its regime, and the kernels are listed.
    """
    console.print(Text(f"Roofline: {harmless(plot.title)}", style="bold"))
    canvas = _Canvas(max(_NARROWEST, min(console.width, 120) - _AXIS - 1), _HEIGHT, bounds(plot))
    _roofs(canvas, plot)
    dots = sorted(plot.dots, key=lambda dot: (dot.intensity_flop_per_byte, dot.label, dot.device))
    many = len(dots) > len(_LETTERS)
    if many:
        for dot in dots:
            canvas.put(dot.intensity_flop_per_byte, dot.flop_per_s, _MARKS.get(dot.regime or "", "?"))
    else:
        _dots(canvas, dots, _LETTERS)
    for line in _framed(canvas):
        console.print(Text(line), soft_wrap=True)
    marks = ", ".join(f"{mark} {regime}" for regime, mark in _MARKS.items())
    told = f"{marks}, ? not determined" if many else "o is where a forecast put a dot"
    console.print(Text(f"FLOP/s over FLOP per byte of compulsory DRAM traffic; {told}"))
    _list_roofs(plot, console)
    if many:
        _list_kernels(dots, console)
    elif dots:
        _list_dots(plot, dots, _LETTERS, console)


def _roofs(canvas: _Canvas, plot: RooflinePlot) -> None:
    """Draw the slopes and ceilings, datasheet last, so that it covers measured ones where they meet."""
    order = ("sustained", "burst", "datasheet")
    for slope in sorted(plot.slopes, key=lambda line: (line.level == "DRAM", order.index(line.kind))):
        own = _same(plot.ceilings, slope)
        top = max((line.flop_per_s for line in own), default=math.inf)
        mark = "/" if slope.level == "DRAM" else ":"
        for column in range(canvas.width):
            x = canvas.x_of(column)
            if slope.bytes_per_s * x <= top:
                canvas.put(x, slope.bytes_per_s * x, mark if slope.kind == "datasheet" or mark == ":" else "'")
    for ceiling in sorted(plot.ceilings, key=lambda line: order.index(line.kind)):
        ridge = ceiling.flop_per_s / max(line.bytes_per_s for line in _same(plot.slopes, ceiling))
        mark = {"datasheet": "─", "burst": "-", "sustained": "·"}[ceiling.kind]
        for column in range(canvas.width):
            if canvas.x_of(column) >= ridge:
                canvas.put(canvas.x_of(column), ceiling.flop_per_s, mark)


def _same(lines: Sequence[L], other: Ceiling | Slope) -> list[L]:
    """Return the lines of the same device and set of ceilings."""
    return [line for line in lines if line.device == other.device and line.kind == other.kind]


def _dots(canvas: _Canvas, dots: Sequence[Dot], letters: Sequence[str]) -> None:
    for dot in dots:
        if dot.predicted_flop_per_s is not None:
            canvas.put(dot.intensity_flop_per_byte, dot.predicted_flop_per_s, "o")
    for dot, letter in zip(dots, letters, strict=False):
        x, y = dot.intensity_flop_per_byte, dot.flop_per_s
        column, row = canvas.column(x), min(max(canvas.row(y), 0), canvas.height - 1)
        # A letter that would cover another goes to the nearest free column.
        beside = sorted(range(canvas.width), key=lambda other: (abs(other - column), -other))
        free = next((other for other in beside if canvas.cells[row][other] not in _LETTERS), column)
        canvas.cells[row][free] = letter


def _framed(canvas: _Canvas) -> list[str]:
    """Return the canvas with powers of ten along both axes."""
    rows = {canvas.row(10.0**power): power for power in _decades(canvas.low, canvas.high)}
    lines = []
    for number, cells in enumerate(canvas.cells):
        label = f"{_power(rows[number])} ┤" if number in rows else "│"
        lines.append(f"{label:>{_AXIS}}{''.join(cells)}".rstrip())
    axis, labels = ["─"] * canvas.width, [" "] * (canvas.width + 4)
    for power in _decades(canvas.left, canvas.right):
        column = canvas.column(10.0**power)
        axis[column] = "┴"
        for offset, character in enumerate(_power(power)):
            labels[column + offset] = character
    return [*lines, " " * (_AXIS - 1) + "└" + "".join(axis), " " * _AXIS + "".join(labels).rstrip()]


def _decades(low: float, high: float) -> range:
    return range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)


def _power(exponent: int) -> str:
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _list_roofs(plot: RooflinePlot, console: Console) -> None:
    lines: list[Ceiling | Slope] = [*plot.slopes, *plot.ceilings]
    console.print(Text("; ".join(device_text(plot, line) for line in lines), style="dim"))


def _list_kernels(dots: Sequence[Dot], console: Console) -> None:
    """Print the dots of each kernel on each device in a line: how many, where, how high, and in which regimes."""
    groups: dict[tuple[str, str], list[Dot]] = {}
    for dot in sorted(dots, key=lambda dot: (dot.device, dot.kernel)):
        groups.setdefault((dot.device, dot.kernel), []).append(dot)
    lists = list(groups.values())
    found = [Counter[str](dot.regime or "not determined" for dot in members) for members in lists]
    columns = [
        Column("kernel", [kernel_tail(kernel, 30) for _, kernel in groups], right=False),
        Column("dots", [str(len(members)) for members in lists]),
        Column("FLOP/byte", [_range([dot.intensity_flop_per_byte for dot in one]) for one in lists], 2, right=False),
        Column("% of roof", [_range([dot.percent for dot in members]) for members in lists], right=False),
        Column("regimes", [_counted(count) for count in found], 1, right=False),
    ]
    sizes = Counter(device for device, _ in groups)
    print_fitted(console, columns, [(harmless(device), count) for device, count in sizes.items()])
    console.print(Text("Each dot: ledger roofline --kernel NAME, or -o FOLDER", style="dim"))


def _range(values: Sequence[float]) -> str:
    low, high = (f"{end:.0f}" if end >= 100 else f"{end:.3g}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _counted(regimes: Counter[str]) -> str:
    return ", ".join(f"{count} {name.removesuffix('-bound')}" for name, count in regimes.most_common())


def _list_dots(plot: RooflinePlot, dots: Sequence[Dot], letters: Sequence[str], console: Console) -> None:
    several = len(plot.devices) > 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "cell", "FLOP/byte", "forecast", "measured", "regime"):
        table.add_column(heading, justify="left" if heading in ("", "cell", "regime") else "right")
    for dot, letter in zip(dots, letters, strict=False):
        said = dot.predicted_percent
        table.add_row(
            letter,
            Text(harmless(f"{dot.label}{' on ' + dot.device if several else ''}")),
            _range([dot.intensity_flop_per_byte]),
            "–" if said is None else f"{said:.3g}%",
            f"{dot.percent:.1f}%",
            Text(regime_text(dot)),
        )
    console.print(table)

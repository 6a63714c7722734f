"""Renders forecasts of many cells: a table, and a heat map of the percent of the roof, in the terminal and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.console import Console
from rich.text import Text

from ledger.analysis.formatting import duration, harmless
from ledger.forecasters.answer import Answer, NoAnswer, Question
from ledger.forecasters.levers import Lever
from ledger.render.svg import STYLE, element, text
from ledger.render.tables import print_rows

_WIDTH, _HEIGHT, _LEFT, _TOP = 96, 44, 120, 88
_STEPS = ((15, 17), (30, 53), (45, 31), (60, 37), (75, 71), (90, 107), (101, 114))
"""Percent below which -> colour of the terminal's 256, from blue-black to green."""
_SHORT = {
    "hbm-bound": "hbm",
    "compute-bound": "compute",
    "l2-bound": "L2",
    "smem-bound": "smem",
    "latency-bound": "latency",
    "launch-bound": "launch",
}


@dataclass(frozen=True)
class MapCell:
    """Hold a forecast at its place. block: what a map of its own is made of. lever: None where nothing is known."""

    block: str
    row: str
    column: str
    question: Question
    answer: Answer | NoAnswer
    lever: Lever | None


def render_map(cells: Sequence[MapCell], console: Console) -> None:
    """Print each block as a heat map and a table of its cells, then what the changes named there mean."""
    headings = ("cell", "regime", "percent", "time", "binds", "25% faster saves most")
    for block in dict.fromkeys(cell.block for cell in cells):
        own = [cell for cell in cells if cell.block == block]
        _print_block(block, own, console)
        print_rows(console, headings, [_line(cell) for cell in own], folding=("regime", "binds", headings[-1]))
        console.print()
    named = {cell.lever.name: cell.lever.words for cell in cells if cell.lever is not None}
    for name, words in named.items():
        console.print(Text(f"{name}: {words}"))


def _line(cell: MapCell) -> tuple[str, ...]:
    name = harmless(f"{cell.row} {cell.column}")
    if isinstance(cell.answer, NoAnswer):
        return name, harmless(cell.answer.reason), "-", "-", "-", "-"
    answer, lever = cell.answer, cell.lever
    time = duration(round(answer.time_s * 1e12))
    moves = "" if lever is None else f"{lever.name}, {100 * lever.saved:.0f}%"
    regime = answer.regime or "not determined"
    return name, regime, f"{answer.percent:.1f}", time, lever.binding if lever else "", moves


def _print_block(block: str, cells: Sequence[MapCell], console: Console) -> None:
    rows, columns = _axes(cells)
    console.print(Text(harmless(f"{block}: percent of the roof, and the regime"), style="bold"))
    width = max(9, *(len(name) + 2 for name in columns))
    left = max(len(name) for name in rows) + 2
    console.print(Text(" " * left + "".join(name.rjust(width) for name in columns)), soft_wrap=True)
    at = {(cell.row, cell.column): cell for cell in cells}
    for row in rows:
        line = Text(row.ljust(left))
        for column in columns:
            line.append(*_shaded(at.get((row, column)), width))
        console.print(line, soft_wrap=True)


def _shaded(cell: MapCell | None, width: int) -> tuple[str, str]:
    """Return a cell of the terminal's map, with its style; without colours number and regime stay."""
    if cell is None or isinstance(cell.answer, NoAnswer):
        return "-".rjust(width), ""
    percent = cell.answer.percent
    colour = next((colour for limit, colour in _STEPS if percent < limit), _STEPS[-1][1])
    style = f"{'white' if percent < 60 else 'black'} on color({colour})"
    regime = (cell.answer.regime or "?").removesuffix("-bound")[:3]
    return f"{percent:.0f} {regime} ".rjust(width), style


def _axes(cells: Sequence[MapCell]) -> tuple[list[str], list[str]]:
    return list(dict.fromkeys(cell.row for cell in cells)), list(dict.fromkeys(cell.column for cell in cells))


def map_svg(cells: Sequence[MapCell], title: str) -> str:
    """Return the blocks as one SVG file, a heat map below another; each square has its percent, time and regime."""
    parts, y, most = [text(16, 24, title, "title")], 60.0, 0
    for block in dict.fromkeys(cell.block for cell in cells):
        own = [cell for cell in cells if cell.block == block]
        rows, columns = _axes(own)
        most = max(most, len(columns))
        parts.append(text(16, y, block, "name"))
        parts += [text(_LEFT + (i + 0.5) * _WIDTH, y + 22, name, "middle small") for i, name in enumerate(columns)]
        parts += [text(_LEFT - 8, y + 36 + (i + 0.5) * _HEIGHT, name, "end small") for i, name in enumerate(rows)]
        for cell in own:
            place = _LEFT + columns.index(cell.column) * _WIDTH, y + 36 + rows.index(cell.row) * _HEIGHT
            parts.append(_square(cell, *place))
        y += 36 + len(rows) * _HEIGHT + 40
    width, height = max(_LEFT + most * _WIDTH + 24, 760), y
    body = element("rect", width=width, height=height, class_="paper") + "".join(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" class="plot">'
    return f"{head}<title>{escape(harmless(title))}</title><style>{STYLE}</style>{body}</svg>\n"


def _square(cell: MapCell, x: float, y: float) -> str:
    if isinstance(cell.answer, NoAnswer):
        return text(x + _WIDTH / 2, y + _HEIGHT / 2, "-", "middle dim")
    answer = cell.answer
    # Deeper colour means nearer the roof; the hue is the regime's, as in every other picture.
    kind = (answer.regime or "none").partition("-")[0]
    opacity = round(0.12 + 0.5 * min(answer.percent, 100) / 100, 3)
    shade = element("rect", x=x, y=y, width=_WIDTH - 2, height=_HEIGHT - 2, class_=kind, opacity=opacity)
    time = duration(round(answer.time_s * 1e12))
    told = f"{answer.percent:.0f}% {_SHORT.get(answer.regime or '', '?')}"
    return (
        shade
        + text(x + _WIDTH / 2, y + _HEIGHT / 2 - 8, told, "middle")
        + text(x + _WIDTH / 2, y + _HEIGHT / 2 + 9, time, "middle small")
    )


def map_document(cells: Sequence[MapCell]) -> list[dict[str, object]]:
    """Return what levers say of each cell as JSON values, in order; None where nothing is known."""
    return [
        {"block": cell.block, "row": cell.row, "column": cell.column}
        | ({} if cell.lever is None else {"binding": cell.lever.binding, "change": cell.lever.change})
        | ({} if cell.lever is None else {"saved": cell.lever.saved, "how": cell.lever.words})
        for cell in cells
    ]

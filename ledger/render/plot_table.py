"""Renders a roofline plot as Markdown: every dot in numbers, and the cells that two devices both ran. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from ledger.analysis.formatting import harmless, shape_text, si
from ledger.records import CeilingKind
from ledger.render.plot_layout import RowKey, in_rows, regime_text, row_order
from ledger.render.plot_model import Dot, RooflinePlot

_KINDS: tuple[CeilingKind, ...] = ("burst", "sustained", "datasheet")
_KIND_NAMES: dict[CeilingKind, str] = {
    "burst": "measured in bursts",
    "sustained": "measured, sustained",
    "datasheet": "datasheet",
}


def dot_page(plot: RooflinePlot) -> str:
    """Return the numbers of a roofline plot as a Markdown page."""
    lines = [
        f"# Roofline of {harmless(plot.title)}, in numbers",
        "",
        "Written by `ledger roofline` from `roofline.json`.",
        "",
    ]
    lines += _dots(plot)
    for first, second in combinations(plot.device_names, 2):
        lines += _compared(plot, first, second)
    return "\n".join(lines) + "\n"


def _table(headings: Sequence[str], left: int, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table whose first `left` columns are text and the others numbers."""
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "---|" * left + "---:|" * (len(headings) - left)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _dots(plot: RooflinePlot) -> Iterator[str]:
    headings = [
        "kernel",
        "shape",
        "dtype",
        "device",
        "campaign",
        "regime",
        "FLOP/byte",
        "rate",
        "% of roof",
        "forecast",
    ]
    rows = [
        (
            harmless(dot.kernel),
            harmless(shape_text(dot.shape)),
            dot.dtype,
            harmless(dot.device),
            "–" if dot.campaign is None else harmless(dot.campaign),
            regime_text(dot),
            f"{dot.intensity_flop_per_byte:.3g}",
            si(dot.flop_per_s, "FLOP/s"),
            f"{dot.percent:.1f}",
            "–" if dot.predicted_percent is None else f"{dot.predicted_percent:g}",
        )
        for dot in in_rows(plot)
    ]
    yield from _table(headings, 6, rows)


def _bandwidths(plot: RooflinePlot, names: Sequence[str]) -> tuple[CeilingKind, list[float]] | None:
    """Return what kind of DRAM bandwidth both devices have, a measured one first, and the bandwidths in byte/s."""
    slopes = {(s.device, s.kind): s.bytes_per_s for s in plot.slopes if s.level == "DRAM"}
    kind = next((kind for kind in _KINDS if all((name, kind) in slopes for name in names)), None)
    return None if kind is None else (kind, [slopes[name, kind] for name in names])


def _compared(plot: RooflinePlot, first: str, second: str) -> Iterator[str]:
    """Yield how much faster one of two devices ran the cells that both have, beside their bandwidths' ratio."""
    dots: dict[str, dict[RowKey, Dot]] = {first: {}, second: {}}
    for dot in plot.dots:
        if dot.device in dots:
            dots[dot.device][row_order(dot)] = dot
    both = sorted(dots[first].keys() & dots[second].keys())
    found = _bandwidths(plot, (first, second))
    if not both or found is None:
        return
    kind, (fast, slow) = found
    if fast < slow:
        first, second, fast, slow = second, first, slow, fast
    ratio = fast / slow
    times = [dots[first][key].flop_per_s / dots[second][key].flop_per_s for key in both]
    yield ""
    yield f"## {harmless(first)} against {harmless(second)}"
    yield ""
    yield (
        f"DRAM bandwidths ({_KIND_NAMES[kind]}): {si(fast, 'B/s')} and {si(slow, 'B/s')}, a ratio of {ratio:.3g}. "
        f"The cells that both ran are {min(times):.3g} to {max(times):.3g} times as fast on {harmless(first)}."
    )
    yield ""
    rows = [
        (
            harmless(dots[first][key].label),
            *(si(dots[name][key].flop_per_s, "FLOP/s") for name in (first, second)),
            f"{faster:.3g}",
            f"{faster / ratio:.2f}",
        )
        for key, faster in zip(both, times, strict=True)
    ]
    yield from _table(["cell", harmless(first), harmless(second), "times as fast", "÷ ratio of bandwidths"], 1, rows)

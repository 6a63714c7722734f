"""Renders a comparison of two commits, campaigns or GPUs: a few lines a cell."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ledger.analysis.formatting import count_text, harmless, sizes_text
from ledger.analysis.ledger_diff import LedgerDiff, Pair, Side, author_of
from ledger.analysis.report_rows import ReportRow
from ledger.render.report_text import cell_text, measured_text, predicted_text

DIFF_LEGEND = (
    "Ratio: time of the second over that of the first. Of several forecasts of a cell the newest measured one is shown."
)

_MOST_ALONE = 20
"""Cells of one side alone that are listed."""


def render_diff(found: LedgerDiff, console: Console, *, repeats: str | None) -> None:
    """Print what differs. repeats: how far repeated measurements of one cell differ, in words."""
    for line in _summary(found):
        console.print(Text(line, style="bold"))
    if repeats is not None and found.ratios:
        console.print(Text(f"repeats: {repeats}", style="dim"))
    console.print()
    for pair in found.pairs:
        _pair(found, pair, console)
    for side, only in ((found.a, found.only_a), (found.b, found.only_b)):
        _only(side, only, console)
    console.print(Text(DIFF_LEGEND, style="dim"))


def _summary(found: LedgerDiff) -> list[str]:
    """Return how many cells there are on both sides and on one, and how their times compare."""
    a, b = harmless(found.a.name, 60), harmless(found.b.name, 60)
    counts = [f"{count_text(len(found.pairs), 'cell')} of {a} and {b}" + (" differ" if found.same else "")]
    counts += [f"{found.same} the same"] if found.same else []
    counts += [f"{len(found.only_a)} only in {a}", f"{len(found.only_b)} only in {b}"]
    lines = [", ".join(counts)]
    if found.mean_ratio is not None:
        faster, slower = (sum(sign * ratio < sign for ratio in found.ratios) for sign in (1, -1))
        moved = sum(pair.regime_changed for pair in found.pairs)
        lines.append(
            f"time of {b} ÷ {a}: {found.mean_ratio:.3f} (geometric mean of {len(found.ratios)}); "
            f"{faster} faster, {slower} slower; another regime in {moved}"
        )
    return lines


def _pair(found: LedgerDiff, pair: Pair, console: Console) -> None:
    ratio = "not both measured" if pair.time_ratio is None else f"×{pair.time_ratio:.3f}"
    style = "" if pair.time_ratio is None else "green" if pair.time_ratio < 1 else "yellow"
    console.print(Text.assemble(_cell(found, pair.a), "  ", (ratio, style)))
    names = [harmless(side.name, 30) for side in (found.a, found.b)]
    width = max(map(len, names))
    for side, name, row in zip((found.a, found.b), names, (pair.a, pair.b), strict=True):
        others = side.by_others(row)
        named = bool(others) or author_of(pair.a) != author_of(pair.b)
        for one in (row, *others):
            by = f" by {harmless(author_of(one), 30)}" if named else ""
            predicted = predicted_text(one.view.forecast, digits=3)
            _indented(f"{name:<{width}}  {measured_text(one, timed=True)}{by}; forecast {predicted}", console)
    if pair.changed:
        words = harmless(", ".join(change.text for change in pair.changed), 600)
        _indented(f"changed: {words}", console, style="dim")


def _indented(text: str, console: Console, *, style: str = "") -> None:
    """Print text whose folded lines are indented as well."""
    console.print(Padding(Text(text, style=style), (0, 0, 0, 2), expand=False))


def _cell(found: LedgerDiff, row: ReportRow) -> str:
    case = row.view.forecast.case
    if found.a.kind != "GPU":
        return cell_text(row.view)
    return harmless(f"{case.kernel} {sizes_text(case)} {case.dtype}")


def _only(side: Side, listed: Sequence[ReportRow], console: Console) -> None:
    if not listed:
        return
    console.print()
    console.print(Text(f"Only in {harmless(side.name, 60)}", style="bold"))
    for row in listed[:_MOST_ALONE]:
        others = side.by_others(row)
        for one in (row, *others):
            by = f" by {harmless(author_of(one), 30)}" if others else ""
            console.print(Text(f"  {cell_text(one.view)}: {measured_text(one, timed=True)}{by}"))
    if len(listed) > _MOST_ALONE:
        console.print(Text(f"  and {len(listed) - _MOST_ALONE} more (ledger diff --json)", style="dim"))

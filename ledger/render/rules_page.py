"""Renders every measured cell under both regime rules side by side, as Markdown. Pure.

The verdict of record is that of the rule which the seal names. The other column shows what the other rule would say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.analysis.book import Book, CellView
from ledger.analysis.reconcile import preview_timed_loads
from ledger.analysis.regime_v2 import Verdict
from ledger.records import Regime
from ledger.render.markdown_page import escape, table


@dataclass(frozen=True)
class ComparedCell:
    """Hold a measured cell with its verdict of record and what rule regime/2 says of the same record."""

    view: CellView
    of_record: tuple[Regime, ...]
    preview: Verdict

    @property
    def agrees(self) -> bool:
        """Tell whether the two rules name a regime in common."""
        return bool(set(self.of_record) & set(self.preview.regimes))


def compared_cells(book: Book) -> Iterator[ComparedCell]:
    """Yield the measured cells that have counters and are judged by regime/1."""
    for view in book.cells:
        if view.counted is None or view.hardware is None or view.sealed.prediction.rule != "regime/1":
            continue
        preview = preview_timed_loads(view.forecast, view.counted.recorded.measurement, view.hardware)
        if preview is not None:
            yield ComparedCell(view, view.counted.verification.regimes, preview)


def rules_page(book: Book) -> str:
    """Return the page: counts, then one row a cell."""
    cells = list(compared_cells(book))
    determined = [cell for cell in cells if cell.preview.regimes]
    differ = [cell for cell in determined if not cell.agrees]
    two = [cell for cell in determined if len(cell.preview.regimes) > 1]
    rows = [
        (
            f"`{cell.view.short_name}`",
            " or ".join(cell.of_record) or "not determined",
            " or ".join(cell.preview.regimes) or "not determined",
            escape(cell.preview.reason),
        )
        for cell in cells
    ]
    return (
        "# The regimes under both rules\n\n"
        f"{len(cells)} cells are judged by `regime/1`. Under `regime/2` {len(determined)} of them are determined, "
        f"{len(two)} with two regimes, and {len(differ)} get another regime. These records do not hold the reading of "
        "the special-function unit, so the second column is no verdict.\n\n"
        + table(("cell", "`regime/1`, of record", "`regime/2`", "reason"), rows)
    )

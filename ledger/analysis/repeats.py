"""Computes how far repeated measurements of the same cell differ. Pure.

Run 0 is the one that counts; later runs show repeatability. A forecast error below this spread shows no skill.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from ledger.analysis.book import Book, CellView


@dataclass(frozen=True)
class RepeatSpread:
    """Hold the spread of repeats over the cells that have any: (longest - shortest) ÷ median time, in percent."""

    cells: int
    median_percent: float
    largest_percent: float

    @property
    def text(self) -> str:
        """Return the spread as one sentence part."""
        cells = "1 repeated cell" if self.cells == 1 else f"{self.cells} repeated cells"
        return (
            f"times of {cells} differ by {self.median_percent:.1f}% in the median, {self.largest_percent:.1f}% at most"
        )


def spread_percent(view: CellView) -> float | None:
    """Return (longest - shortest) ÷ median of a cell's measured times, in percent; None with fewer than two runs."""
    timings = [run.recorded.measurement.timing for run in view.runs if run.recorded.measurement.status == "measured"]
    times = [timing.median_ps for timing in timings if timing is not None]
    if len(times) < 2:
        return None
    return 100 * (max(times) - min(times)) / statistics.median(times)


def repeat_spread(book: Book) -> RepeatSpread | None:
    """Return the spread of repeats of a book, None where no cell was measured twice."""
    found = [spread for view in book.cells if (spread := spread_percent(view)) is not None]
    if not found:
        return None
    return RepeatSpread(len(found), statistics.median(found), max(found))

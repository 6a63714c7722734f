"""Computes how far repeated measurements of the same cell differ. Pure.

Run 0 is the one that counts; later runs show repeatability. A forecast error below this spread shows no skill.
Repeats are runs on one chip: machines.py compares chips.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger.analysis.book import Book, CellView
from ledger.records import Measurement, MeasurementV2


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


def chip_of(measurement: Measurement) -> str | None:
    """Return what names a chip: the digest of a GPU's UUID, else the node; None where neither is recorded."""
    if not isinstance(measurement, MeasurementV2):
        return None
    return measurement.device.uuid or measurement.node


def range_percent(times: Sequence[float]) -> float:
    """Return (longest - shortest) ÷ median of times, in percent."""
    return 100 * (max(times) - min(times)) / statistics.median(times)


def same_chip_percent(measurements: Iterable[Measurement]) -> float | None:
    """Return the largest spread of times measured on one chip, in percent; None where no chip measured twice.

    Measurements that do not tell their chip count as of one.
    """
    times: dict[str | None, list[int]] = {}
    for one in measurements:
        if one.status == "measured" and one.timing is not None:
            times.setdefault(chip_of(one), []).append(one.timing.median_ps)
    return largest_range(times.values())


def largest_range(times: Iterable[Sequence[float]]) -> float | None:
    """Return the largest spread of the times of several chips, in percent; None where no chip measured twice."""
    return max((range_percent(found) for found in times if len(found) > 1), default=None)


def spread_percent(view: CellView) -> float | None:
    """Return the spread of a cell's measured times on one chip, in percent; None with fewer than two runs."""
    return same_chip_percent(run.recorded.measurement for run in view.runs)


def repeat_spread(spreads: Iterable[float | None]) -> RepeatSpread | None:
    """Return the spread of repeats, given that of each cell; None where no cell was measured twice."""
    found = [spread for spread in spreads if spread is not None]
    if not found:
        return None
    return RepeatSpread(len(found), statistics.median(found), max(found))


def repeat_spread_of(book: Book) -> RepeatSpread | None:
    """Return the spread of repeats of a book, None where no cell was measured twice."""
    return repeat_spread(map(spread_percent, book.cells))

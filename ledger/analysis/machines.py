"""Compares chips of one kind on the cells that they share: how far they differ, beside repeats on one chip. Pure.

A chip is a GPU by the digest of its UUID, or else a machine by the name of its node; records that tell neither are left
out. A cell is shared where two chips measured one case by one protocol, in one seal or in several.

    excess   median time of a chip ÷ lower median over the chips of the cell - 1
    spread   (longest - shortest) ÷ median: of the chips' median times, or of repeats on one chip

A chip is slow where its excess is above the spread of repeats in more than half of the cells that it shares; a cell
without repeats takes their median spread over the kind. Without any repeat no chip is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, median_low
from typing import Any

from ledger.analysis.book import Book
from ledger.analysis.formatting import count_text, harmless
from ledger.analysis.repeats import chip_of, range_percent, same_chip_percent
from ledger.records import Measurement


@dataclass(frozen=True)
class SharedCell:
    """Hold a case that several chips measured. Units: picoseconds; spreads in percent."""

    names: frozenset[str]
    hardware: str
    medians_ps: Mapping[str, float]
    repeat_percent: float | None

    @property
    def percent(self) -> float:
        """Return the spread between the chips."""
        return range_percent(list(self.medians_ps.values()))

    def excess_percent(self, chip: str) -> float:
        """Return by how much a chip is slower than the middle one; of two, than the faster one."""
        return 100 * (self.medians_ps[chip] / median_low(self.medians_ps.values()) - 1)


@dataclass(frozen=True)
class SlowChip:
    """Hold a chip that is slower than others of its kind by more than repeats differ, with the median excess."""

    chip: str
    device: str
    node: str | None
    cells: int
    percent: float
    repeat_percent: float

    @property
    def text(self) -> str:
        """Return it as one sentence part."""
        return (
            f"{_label(self.device, self.chip, self.node)} is {self.percent:.1f}% slower than others of its kind in "
            f"{count_text(self.cells, 'shared cell')}; repeats differ by {self.repeat_percent:.1f}%"
        )


@dataclass(frozen=True)
class MachineSpread:
    """Hold how far the chips of one profile differ, in percent: median and largest over the cells that they share."""

    hardware: str
    chips: tuple[str, ...]
    cells: int
    median_percent: float
    largest_percent: float
    repeat_percent: float | None
    slow: tuple[SlowChip, ...]

    @property
    def text(self) -> str:
        """Return the spread as one sentence part."""
        repeats = "no repeats on one chip" if self.repeat_percent is None else f"repeats {self.repeat_percent:.1f}%"
        return (
            f"{count_text(self.cells, 'cell')} on {len(self.chips)} chips of {self.hardware} differ by "
            f"{self.median_percent:.1f}% in the median, {self.largest_percent:.1f}% at most; {repeats}"
        )


def machine_spreads(book: Book) -> tuple[MachineSpread, ...]:
    """Return the spread between the chips of each profile, by its name; none where no cell is shared."""
    kinds: dict[str, list[SharedCell]] = {}
    for cell in shared_cells(book):
        kinds.setdefault(cell.hardware, []).append(cell)
    known = {chip: measurement for _, measurement in _timed(book) if (chip := chip_of(measurement)) is not None}
    return tuple(_spread(hardware, kinds[hardware], known) for hardware in sorted(kinds))


def machine_lines(book: Book) -> Iterator[str]:
    """Yield a line on each profile with several chips, and one on each slow chip."""
    for spread in machine_spreads(book):
        yield f"machines: {spread.text}"
        yield from (f"slow chip: {slow.text}" for slow in spread.slow)


def machine_document(book: Book) -> list[dict[str, Any]]:
    """Return the same as JSON values."""
    return [asdict(spread) for spread in machine_spreads(book)]


def shared_cells(book: Book) -> list[SharedCell]:
    """Return the cases that two or more chips measured; none where the ledger is refused."""
    cases: dict[tuple[str, ...], list[tuple[str, Measurement]]] = {}
    for name, measurement in () if book.refused else _timed(book):
        if chip_of(measurement) is not None:
            how = (measurement.case.model_dump_json(), measurement.protocol.model_dump_json())
            cases.setdefault((measurement.kernel_sha256, measurement.device.name, *how), []).append((name, measurement))
    found = (_shared(listed) for listed in cases.values())
    return [cell for cell in found if len(cell.medians_ps) > 1]


def _timed(book: Book) -> Iterator[tuple[str, Measurement]]:
    for view in book.cells:
        for run in view.runs:
            if run.recorded.measurement.status == "measured":
                yield view.name, run.recorded.measurement


def _shared(listed: Sequence[tuple[str, Measurement]]) -> SharedCell:
    times: dict[str, list[int]] = {}
    for _, one in listed:
        chip = chip_of(one)
        assert chip is not None and one.timing is not None
        times.setdefault(chip, []).append(one.timing.median_ps)
    return SharedCell(
        names=frozenset(name for name, _ in listed),
        hardware=listed[0][1].case.hardware,
        medians_ps={chip: median(found) for chip, found in times.items()},
        repeat_percent=same_chip_percent(one for _, one in listed),
    )


def _spread(hardware: str, cells: Sequence[SharedCell], known: Mapping[str, Measurement]) -> MachineSpread:
    percents = [cell.percent for cell in cells]
    repeats = _median(cell.repeat_percent for cell in cells if cell.repeat_percent is not None)
    chips = tuple(sorted({chip for cell in cells for chip in cell.medians_ps}))
    slow = () if repeats is None else tuple(_slow(chips, cells, repeats, known))
    return MachineSpread(hardware, chips, len(cells), median(percents), max(percents), repeats, slow)


def _slow(
    chips: Iterable[str], cells: Sequence[SharedCell], repeats: float, known: Mapping[str, Measurement]
) -> Iterator[SlowChip]:
    for chip in chips:
        own = [cell for cell in cells if chip in cell.medians_ps]
        beyond = sum(
            cell.excess_percent(chip) > (repeats if cell.repeat_percent is None else cell.repeat_percent)
            for cell in own
        )
        if 2 * beyond > len(own):
            excess = median(cell.excess_percent(chip) for cell in own)
            # Only records of version 2 tell their chip.
            node = getattr(known[chip], "node", None)
            yield SlowChip(chip, known[chip].device.name, node, len(own), excess, repeats)


def _median(values: Iterable[float]) -> float | None:
    listed = list(values)
    return median(listed) if listed else None


def _label(device: str, chip: str, node: str | None) -> str:
    """Return a chip by its device's name, with eight digits of a GPU's UUID digest and the node that it is in."""
    parts = [harmless(device, 80)]
    parts += [] if chip == node else [chip[:8]]
    return " ".join(parts) + ("" if node is None else f" on {harmless(node, 80)}")

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
from typing import Any, NamedTuple

from ledger.analysis.book import Book, CellView
from ledger.analysis.formatting import count_text, harmless
from ledger.analysis.repeats import chip_of, largest_range, range_percent
from ledger.canonical import object_id


class ChipTime(NamedTuple):
    """Hold a measured time and its chip. how: names the case and the protocol. Only records of version 2 tell chips."""

    how: str
    hardware: str
    chip: str
    device: str
    node: str | None
    median_ps: int


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


def chip_times_of(view: CellView) -> Iterator[ChipTime]:
    """Yield the measured times of a cell whose chip is known."""
    for run in view.runs:
        one = run.recorded.measurement
        chip = chip_of(one)
        if one.status != "measured" or chip is None or one.timing is None:
            continue
        what = (one.kernel_sha256, one.device.name, one.case.model_dump_json(), one.protocol.model_dump_json())
        how = object_id(repr(what).encode("utf-8", "surrogatepass"))
        node = getattr(one, "node", None)
        yield ChipTime(how, one.case.hardware, chip, one.device.name, node, one.timing.median_ps)


Timed = Sequence[tuple[str, ChipTime]]
"""Measured times, each with the name of its cell, in the order of the ledger."""


def chip_times(book: Book) -> Timed:
    """Return the times of a book whose chip is known; none where the ledger is refused."""
    views = () if book.refused else book.cells
    return [(view.name, one) for view in views for one in chip_times_of(view)]


def machine_spreads(timed: Timed) -> tuple[MachineSpread, ...]:
    """Return the spread between the chips of each profile, by its name; none where no cell is shared."""
    kinds: dict[str, list[SharedCell]] = {}
    for cell in shared_cells(timed):
        kinds.setdefault(cell.hardware, []).append(cell)
    known = {one.chip: one for _, one in timed} if kinds else {}
    return tuple(_spread(hardware, kinds[hardware], known) for hardware in sorted(kinds))


def machine_lines(timed: Timed) -> Iterator[str]:
    """Yield a line on each profile with several chips, and one on each slow chip."""
    for spread in machine_spreads(timed):
        yield f"machines: {spread.text}"
        yield from (f"slow chip: {slow.text}" for slow in spread.slow)


def machine_document(book: Book) -> list[dict[str, Any]]:
    """Return the spreads of a book as JSON values."""
    return [asdict(spread) for spread in machine_spreads(chip_times(book))]


def shared_cells(timed: Timed) -> list[SharedCell]:
    """Return the cases that two or more chips measured."""
    first: dict[str, str] = {}
    several = dict.fromkeys(one.how for _, one in timed if first.setdefault(one.how, one.chip) != one.chip)
    cases: dict[str, list[tuple[str, ChipTime]]] = {}
    for name, one in timed if several else ():
        if one.how in several:
            cases.setdefault(one.how, []).append((name, one))
    return [_shared(listed) for listed in cases.values()]


def _shared(listed: Timed) -> SharedCell:
    times: dict[str, list[int]] = {}
    for _, one in listed:
        times.setdefault(one.chip, []).append(one.median_ps)
    return SharedCell(
        names=frozenset(name for name, _ in listed),
        hardware=listed[0][1].hardware,
        medians_ps={chip: median(found) for chip, found in times.items()},
        repeat_percent=largest_range(times.values()),
    )


def _spread(hardware: str, cells: Sequence[SharedCell], known: Mapping[str, ChipTime]) -> MachineSpread:
    percents = [cell.percent for cell in cells]
    repeats = _median(cell.repeat_percent for cell in cells if cell.repeat_percent is not None)
    chips = tuple(sorted({chip for cell in cells for chip in cell.medians_ps}))
    slow = () if repeats is None else tuple(_slow(chips, cells, repeats, known))
    return MachineSpread(hardware, chips, len(cells), median(percents), max(percents), repeats, slow)


def _slow(
    chips: Iterable[str], cells: Sequence[SharedCell], repeats: float, known: Mapping[str, ChipTime]
) -> Iterator[SlowChip]:
    for chip in chips:
        own = [cell for cell in cells if chip in cell.medians_ps]
        beyond = sum(
            cell.excess_percent(chip) > (repeats if cell.repeat_percent is None else cell.repeat_percent)
            for cell in own
        )
        if 2 * beyond > len(own):
            excess = median(cell.excess_percent(chip) for cell in own)
            yield SlowChip(chip, known[chip].device, known[chip].node, len(own), excess, repeats)


def _median(values: Iterable[float]) -> float | None:
    listed = list(values)
    return median(listed) if listed else None


def _label(device: str, chip: str, node: str | None) -> str:
    """Return a chip by its device's name, with eight digits of a GPU's UUID digest and the node that it is in."""
    parts = [harmless(device, 80)]
    parts += [] if chip == node else [chip[:8]]
    return " ".join(parts) + ("" if node is None else f" on {harmless(node, 80)}")

"""Gathers all that feeds a roofline plot into one document, and writes or shows it.

The document is the plot's only source: drawing makes PNG and SVG from it, sketch a terminal plot, and
`roofline.json` holds it. A dot lies at the modelled intensity (FLOP per byte of compulsory DRAM traffic) and at the
modelled operations over the measured time; its arrow starts where the forecast put it. Neither moves sideways: traffic
beyond the model shows as a lower dot, and its size is in the report.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

from rich.console import Console

from ledger.analysis.book import Book
from ledger.analysis.formatting import PATH_WORDS, shape_words, si
from ledger.analysis.report_rows import counted
from ledger.errors import InputError
from ledger.records import CeilingKind, Dtype, Hardware, Path, Peak, Quantity, Regime
from ledger.roofline import arithmetic_intensity, base_units, memory_side

SCHEMA = "ledger/roofline/1"
KIND_WORDS: dict[CeilingKind, str] = {"datasheet": "data sheet", "burst": "burst", "sustained": "sustained"}

# Peaks this close are one line with both names.
_SAME = 0.005


@dataclass(frozen=True)
class Ceiling:
    """Hold one horizontal line: the peak of one or more instruction paths."""

    device: str
    kind: CeilingKind
    paths: tuple[Path, ...]
    flop_per_s: float
    label: str
    source: str


@dataclass(frozen=True)
class Slope:
    """Hold one memory slope."""

    device: str
    kind: CeilingKind
    level: Literal["DRAM", "L2"]
    bytes_per_s: float
    label: str
    source: str


@dataclass(frozen=True)
class Dot:
    """Hold one measured point; `predicted_flop_per_s` is None for a point that nobody forecast, a library's."""

    device: str
    label: str
    kernel: str
    shape: dict[str, int]
    dtype: Dtype
    left_of_ridge: bool
    intensity_flop_per_byte: float
    flop_per_s: float
    percent: float
    regime: Regime | None
    predicted_flop_per_s: float | None
    predicted_percent: float | None
    predicted_regime: Regime | None
    blind: bool | None
    seal: str | None
    campaign: str | None = None


def roofline_document(hardwares: Sequence[Hardware], book: Book | None, extra: Iterable[Dot] = ()) -> dict[str, Any]:
    """Return everything that a plot of these devices shows; `extra` adds points that no seal forecast.

    Units: FLOP/s, byte/s, FLOP/byte, percent of the sealed roof.
    """
    names = {hardware.name for hardware in hardwares}
    dots = [*(_dots(book) if book is not None else ()), *extra]
    value = {
        "schema": SCHEMA,
        "head": book.head if book is not None else None,
        "devices": [{"name": hardware.name, "title": hardware.title} for hardware in hardwares],
        "ceilings": [asdict(line) for hardware in hardwares for line in _ceilings(hardware)],
        "slopes": [asdict(line) for hardware in hardwares for line in _slopes(hardware)],
        "dots": [asdict(dot) for dot in dots if dot.device in names],
    }
    plain: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False))
    return plain


def only_kernels(document: dict[str, Any], kernels: Sequence[str]) -> dict[str, Any]:
    """Return a document with the dots of some kernels alone, a library's of the same operation included.

    Raises: InputError for a kernel that no dot is of.
    """
    _refuse_absent("kernel", kernels, {operation_of(dot) for dot in document["dots"]})
    return {**document, "dots": [dot for dot in document["dots"] if operation_of(dot) in kernels]}


def only_campaigns(document: dict[str, Any], campaigns: Sequence[str]) -> dict[str, Any]:
    """Return a document with the dots of some campaigns alone, and those that nobody forecast.

    Raises: InputError for a campaign that no dot is of.
    """
    have = {dot["campaign"] for dot in document["dots"] if dot["campaign"] is not None}
    _refuse_absent("campaign", campaigns, have)
    kept = [dot for dot in document["dots"] if dot["campaign"] in campaigns or dot["seal"] is None]
    return {**document, "dots": kept}


def _refuse_absent(what: str, asked: Sequence[str], have: set[str]) -> None:
    """Refuse a name that no dot has. Raises: InputError."""
    if strange := sorted(set(asked) - have):
        raise InputError(f"{what} {strange[0]!r} has no dot; expected one of: {', '.join(sorted(have)) or 'none'}")


def operation_of(dot: dict[str, Any]) -> str:
    """Return the kernel that a dot is of; a library's dot has its name behind a comma."""
    return str(dot["kernel"]).partition(",")[0]


def _ceilings(hardware: Hardware) -> Iterator[Ceiling]:
    for kind, ceilings in hardware.ceilings.items():
        known = [(path, peak) for path in PATH_WORDS if (peak := ceilings.peaks.get(path)) is not None]
        merged: list[list[tuple[Path, Peak]]] = []
        for path, peak in sorted(known, key=lambda pair: -pair[1].value):
            if merged and merged[-1][0][1].value * (1 - _SAME) <= peak.value:
                merged[-1].append((path, peak))
            else:
                merged.append([(path, peak)])
        for group in merged:
            paths = tuple(path for path, _ in group)
            value = float(base_units(group[0][1]))
            label = f"{si(value, 'FLOP/s')} {paths_words(paths)}, {KIND_WORDS[kind]}"
            yield Ceiling(hardware.name, kind, paths, value, label, group[0][1].source)


def paths_words(paths: Sequence[Path]) -> str:
    """Return instruction paths in few words: fp16, bf16 tensor."""
    tensor = [path.removesuffix("_tensor") for path in paths if path.endswith("_tensor")]
    scalar = [path for path in paths if not path.endswith("_tensor")]
    parts = [f"{', '.join(scalar)} cores"] if scalar else []
    return "; ".join([*parts, *([f"{', '.join(tensor)} tensor"] if tensor else [])])


def _slopes(hardware: Hardware) -> Iterator[Slope]:
    for kind, ceilings in hardware.ceilings.items():
        levels: tuple[tuple[Literal["DRAM", "L2"], Quantity | None], ...] = (
            ("DRAM", ceilings.dram_bandwidth),
            ("L2", ceilings.l2_bandwidth),
        )
        for level, quantity in levels:
            if quantity is not None:
                value = float(base_units(quantity))
                label = f"{level} {si(value, 'B/s')}, {KIND_WORDS[kind]}"
                yield Slope(hardware.name, kind, level, value, label, quantity.source)


def _dots(book: Book) -> Iterator[Dot]:
    for view, run in counted(book):
        forecast, verdict = view.forecast, run.verification
        timing, work = run.recorded.measurement.timing, forecast.work
        if timing is None or verdict.measured_percent is None or not work.bytes or not work.flops:
            continue
        rate = work.flops / (timing.median_ps * 1e-12)
        case = forecast.case
        yield Dot(
            device=case.hardware,
            label=f"{case.kernel} {shape_words(case.shape)} {case.dtype}",
            kernel=case.kernel,
            shape=dict(case.shape),
            dtype=case.dtype,
            left_of_ridge=memory_side(work, forecast.roof),
            intensity_flop_per_byte=arithmetic_intensity(work),
            flop_per_s=rate,
            percent=verdict.measured_percent,
            regime=verdict.measured_regime,
            # At the same work, rates are to each other as percents of the same roof.
            predicted_flop_per_s=rate * verdict.predicted_percent / verdict.measured_percent,
            predicted_percent=verdict.predicted_percent,
            predicted_regime=forecast.regime,
            blind=view.blind,
            seal=view.sealed.id,
            campaign=view.sealed.prediction.campaign,
        )


def write(document: dict[str, Any], folder: FilePath) -> list[FilePath]:
    """Write roofline.png, roofline.svg, roofline.json and roofline.md; return their paths.

    Raises: MachineError when matplotlib is not installed.
    """
    from ledger.render.plot_image import draw
    from ledger.render.plot_table import figures

    folder.mkdir(parents=True, exist_ok=True)
    paths = draw(document, folder)
    data = folder / "roofline.json"
    data.write_text(json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n", encoding="ascii")
    page = folder / "roofline.md"
    page.write_text(figures(document), encoding="utf-8")
    return [*paths, data, page]


def terminal(document: dict[str, Any], console: Console) -> None:
    """Print the plot as text."""
    from ledger.render.plot_terminal import sketch

    sketch(document, console)

"""Gathers all that a roofline plot shows, and writes it as SVG, PNG, JSON and Markdown.

A dot is drawn at the modelled intensity (FLOP per byte of compulsory DRAM traffic) and at the modelled operations
divided by the measured time; its arrow starts where the forecast put it. Neither moves sideways: traffic beyond the
model shows as a lower dot, and its size is in the report.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, Literal

from ledger.analysis.book import Book, CellView, Run
from ledger.analysis.formatting import PATH_NAMES, si, sizes_text
from ledger.analysis.report_rows import case_rows, rows
from ledger.canonical import encode, object_id
from ledger.errors import InputError, MachineError
from ledger.record_files import write_atomically
from ledger.records import CeilingKind, Hardware, Path, Peak, Quantity
from ledger.render.plot_model import Ceiling, Device, Dot, RooflinePlot, Slope, document, manifest
from ledger.roofline import arithmetic_intensity, base_float, memory_side
from ledger.suggestions import install_command

KIND_NAMES: dict[CeilingKind, str] = {"datasheet": "datasheet", "burst": "burst", "sustained": "sustained"}

FILE_SUFFIXES = (".svg", ".png", ".json", ".md")

# Peaks this close are one line with both names.
_SAME = 0.005


def plot_of(hardwares: Sequence[Hardware], book: Book | None, extra: Iterable[Dot] = ()) -> RooflinePlot:
    """Return everything that a plot of these devices shows; `extra` adds points that no seal forecast.

    Units: FLOP/s, byte/s, FLOP/byte, percent of the sealed roof.
    """
    names = {hardware.name for hardware in hardwares}
    # Of one case the forecast that stands for it comes first.
    cases = () if book is None else case_rows(rows(book))
    scored = ((row.view, row.scored) for case in cases for row in case.rows)
    found = (dot_of(view, run) for view, run in scored if run is not None)
    dots = [*(dot for dot in found if dot is not None), *extra]
    return RooflinePlot(
        head=book.head if book is not None else None,
        devices=tuple(Device(one.name, one.title, object_id(encode(one))) for one in hardwares),
        ceilings=tuple(line for hardware in hardwares for line in _ceilings(hardware)),
        slopes=tuple(line for hardware in hardwares for line in _slopes(hardware)),
        dots=tuple(dot for dot in dots if dot.device in names),
    )


def one_a_case(plot: RooflinePlot) -> RooflinePlot:
    """Return a plot with one dot of each measured run, that of the first forecast; and those that nobody forecast."""
    first = {dot.record: dot for dot in reversed(plot.dots)}
    return replace(plot, dots=tuple(dot for dot in plot.dots if dot.record is None or first[dot.record] is dot))


def only_kernels(plot: RooflinePlot, kernels: Sequence[str]) -> RooflinePlot:
    """Return a plot with the dots of some kernels alone, a library's of the same operation included.

    Raises: InputError for a kernel that no dot is of.
    """
    _check_drawn("kernel", kernels, {dot.operation for dot in plot.dots})
    return replace(plot, dots=tuple(dot for dot in plot.dots if dot.operation in kernels))


def only_campaigns(plot: RooflinePlot, campaigns: Sequence[str]) -> RooflinePlot:
    """Return a plot with the dots of some campaigns alone, and those that nobody forecast.

    Raises: InputError for a campaign that no dot is of.
    """
    _check_drawn("campaign", campaigns, {dot.campaign for dot in plot.dots if dot.campaign is not None})
    return replace(plot, dots=tuple(dot for dot in plot.dots if dot.campaign in campaigns or dot.seal is None))


def _check_drawn(what: str, asked: Sequence[str], drawn: set[str]) -> None:
    """Check that every name asked for has a dot. Raises: InputError."""
    if unknown := sorted(set(asked) - drawn):
        raise InputError(f"{what} {unknown[0]!r} has no dot; expected one of: {', '.join(sorted(drawn)) or 'none'}")


def _ceilings(hardware: Hardware) -> Iterator[Ceiling]:
    for kind, ceilings in hardware.ceilings.items():
        known = [(path, peak) for path in PATH_NAMES if (peak := ceilings.peaks.get(path)) is not None]
        merged: list[list[tuple[Path, Peak]]] = []
        for path, peak in sorted(known, key=lambda pair: -pair[1].value):
            if merged and merged[-1][0][1].value * (1 - _SAME) <= peak.value:
                merged[-1].append((path, peak))
            else:
                merged.append([(path, peak)])
        for group in merged:
            paths = tuple(path for path, _ in group)
            value = base_float(group[0][1])
            label = f"{si(value, 'FLOP/s')} {paths_text(paths)}, {KIND_NAMES[kind]}"
            yield Ceiling(hardware.name, kind, paths, value, label, group[0][1].source)


def paths_text(paths: Sequence[Path]) -> str:
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
                value = base_float(quantity)
                label = f"{level} {si(value, 'B/s')}, {KIND_NAMES[kind]}"
                yield Slope(hardware.name, kind, level, value, label, quantity.source)


def dot_of(view: CellView, run: Run) -> Dot | None:
    """Return the dot of one run of a cell; None where it has no time, no percent, or no place on the axes."""
    forecast, verdict = view.forecast, run.verification
    timing, work = run.recorded.measurement.timing, forecast.work
    if timing is None or verdict.measured_percent is None or not work.bytes or not work.flops:
        return None
    rate = work.flops / (timing.median_ps * 1e-12)
    case = forecast.case
    return Dot(
        device=case.hardware,
        label=f"{case.kernel} {sizes_text(case)} {case.dtype}",
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
        predicted_low=None if forecast.low_milli is None else forecast.low_milli / 1000,
        predicted_high=None if forecast.high_milli is None else forecast.high_milli / 1000,
        record=run.recorded.id,
    )


def names_file(output: FilePath) -> bool:
    """Tell whether a path names one file to write, by its suffix; else it names a folder.

    Raises: InputError for the suffix of a file that cannot be written.
    """
    if output.suffix in FILE_SUFFIXES and not output.is_dir():
        return True
    # No suffix is a folder's, nor is that of a version, as in v1.2.
    if output.suffix[1:].isalpha() and not output.is_dir():
        raise InputError(
            f"{output}: got a name in {output.suffix}; expected {', '.join(FILE_SUFFIXES)} for one file, or a folder"
        )
    return False


def write_file(plot: RooflinePlot, path: FilePath) -> None:
    """Write the picture, document or table that a path names. Raises: MachineError without resvg-py for a PNG."""
    from ledger.render import roofline_svg, svg
    from ledger.render.plot_table import dot_page

    cases = one_a_case(plot)
    if path.suffix == ".json":
        content: bytes | None = _json(document(plot))
    elif path.suffix == ".md":
        content = dot_page(cases).encode()
    else:
        alone = svg.standalone(roofline_svg.draw(cases))
        content = svg.png(alone) if path.suffix == ".png" else alone.encode()
    if content is None:
        raise MachineError(f"{path}: resvg-py is not installed; expected it to write a PNG: {install_command('plot')}")
    write_atomically(path, content)


def write(plot: RooflinePlot, folder: FilePath, benches: Mapping[str, bytes] | None = None) -> list[FilePath]:
    """Write roofline.svg, strips of 40 dots each, roofline.json, roofline.md and manifest.json; return their paths.

    Pictures and tables have one dot a case, roofline.json one a forecast.
    With resvg-py, the extra [plot], each picture is also a PNG. benches: the bench documents that were drawn, by name.
    """
    from ledger.render import roofline_svg, strips_svg, svg
    from ledger.render.plot_table import dot_page

    folder.mkdir(parents=True, exist_ok=True)
    cases = one_a_case(plot)
    pictures = {"roofline": roofline_svg.draw(cases)}
    pictures |= {f"strip-{number:02}": drawn for number, drawn in enumerate(strips_svg.draw(cases), start=1)}
    files: dict[str, bytes] = {}
    for name, drawn in pictures.items():
        alone = svg.standalone(drawn)
        files[f"{name}.svg"] = alone.encode()
        if (pixels := svg.png(alone)) is not None:
            files[f"{name}.png"] = pixels
    files["roofline.json"] = _json(document(plot))
    files["roofline.md"] = dot_page(cases).encode()
    digests = [{name: object_id(data) for name, data in given.items()} for given in (benches or {}, files)]
    files["manifest.json"] = _json(manifest(plot, *digests))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def _json(value: Any) -> bytes:
    return f"{json.dumps(value, indent=1, allow_nan=False)}\n".encode()

"""The command roofline: measured cells on the log-log roofline."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.open_ledger import find_root, open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say, working
from ledger.errors import InputError, StateError, UnknownName
from ledger.suggestions import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ledger.analysis.book import Book, CellView
    from ledger.records import Hardware
    from ledger.render.plot_model import RooflinePlot


def roofline(
    hw: Annotated[
        list[str] | None, typer.Option("--hw", help="Profiles to draw, by name or file (default: those of the cells).")
    ] = None,
    bench: Annotated[
        list[FilePath] | None, typer.Option("--bench", help="JSON of ledger bench whose rows are drawn too.")
    ] = None,
    kernel: Annotated[list[str] | None, typer.Option("--kernel", help="Draw the dots of this kernel only.")] = None,
    campaign: Annotated[
        list[str] | None, typer.Option("--campaign", help="Draw the forecasts of this campaign only.")
    ] = None,
    output: Annotated[
        FilePath | None,
        typer.Option("-o", "--output", help="Folder for all files, or one file: .svg, .png, .json or .md."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the roofline with every verified cell. On the terminal, or as SVG and PNG."""
    from ledger.record_files import read_bytes
    from ledger.render.plot_model import document
    from ledger.render.plot_terminal import print_plot
    from ledger.render.roofline_plot import names_file, one_a_case, write, write_file

    one_file = output is not None and names_file(output)
    plot = _plot(hw or [], bench or [], kernel, campaign)
    if as_json:
        emit(document(plot))
    elif output is not None and one_file:
        with working("drawing"):
            write_file(plot, output)
        out().print(f"wrote {output}", markup=False)
    elif output is not None:
        with working("drawing"):
            paths = write(plot, output, {str(path): read_bytes(path) for path in bench or []})
        for path in paths:
            out().print(f"wrote {path}", markup=False)
        if not any(path.suffix == ".png" for path in paths):
            say(f"no PNG: resvg-py is not installed; {install_command('plot')}")
    else:
        print_plot(one_a_case(plot), out())


def _plot(
    hw: list[str], benches: list[FilePath], kernels: list[str] | None, campaigns: list[str] | None
) -> RooflinePlot:
    """Return the plot that the options ask for."""
    from ledger.canonical import parse_json
    from ledger.kernel_files import load_kernel
    from ledger.record_files import read_bytes
    from ledger.render.bench_points import with_bench
    from ledger.render.roofline_plot import only_campaigns, only_kernels, plot_of

    book = _book(required=not hw)
    cells = () if book is None else book.cells
    if campaigns is not None:
        cells = tuple(cell for cell in cells if cell.sealed.prediction.campaign in campaigns) or cells
    measured = [cell for cell in cells if cell.counted]
    names = hw or sorted({cell.forecast.case.hardware for cell in measured or cells})
    if not names:
        raise InputError("no cell is sealed yet; expected one, or a profile to draw: ledger roofline --hw h200")
    root = find_root()
    sealed = {cell.forecast.case.hardware: cell.hardware for cell in cells if cell.hardware is not None}
    hardwares = [_profile(name, root, sealed) for name in names]
    plot = plot_of(hardwares, book)
    for path in benches:
        value = parse_json(read_bytes(path), what=str(path))
        plot = with_bench(
            plot, value, what=str(path), hardwares=hardwares, kernel_of=lambda name: load_kernel(name, root).kernel
        )
    _say_undrawn(cell for cell in cells if cell.forecast.case.hardware in names)
    if campaigns is not None:
        plot = only_campaigns(plot, campaigns)
    return plot if kernels is None else only_kernels(plot, kernels)


def _say_undrawn(cells: Iterable[CellView]) -> None:
    """Name the kernels of measured cells that have no place on the axes: no FLOP of theirs is counted."""
    flat = sorted({cell.forecast.case.kernel for cell in cells if cell.scored and not cell.forecast.work.flops})
    if flat:
        more = f" and {len(flat) - 3} more" if len(flat) > 3 else ""
        say(f"not drawn: {', '.join(flat[:3])}{more}: 0 FLOP are counted; ledger predict --flops N counts them")


def _book(*, required: bool) -> Book | None:
    """Return the book of the current ledger, None where there is none. Raises: StateError where it is required."""
    try:
        book = open_ledger().book
    except StateError:
        if required:
            raise
        return None
    refuse_if_refused(book)
    return book


def _profile(name: str, root: FilePath | None, sealed: Mapping[str, Hardware]) -> Hardware:
    """Return a profile by its name, from a file, or, where the repository has none of the name, as it was sealed last.

    A calibrated profile is in its seals, and in a clone only there where nobody committed it.
    """
    from ledger.record_files import load_hardware, read_hardware

    if name.endswith(".yaml"):
        return read_hardware(FilePath(name))
    try:
        return load_hardware(name, root)
    except UnknownName:
        if name not in sealed:
            raise
        return sealed[name]

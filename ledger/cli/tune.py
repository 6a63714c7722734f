"""The command tune: which launch configuration of a kernel is fastest on this GPU, for a person to review."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.cells import tuned_cells
from ledger.cli.open_ledger import find_root
from ledger.cli.options import DeviceOption, JsonOption
from ledger.cli.output import emit, out, progress_bar, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.kernel_files import KernelFile
    from ledger.measure.contestants import Cell
    from ledger.measure.tune import OnProgress
    from ledger.records import Hardware


def tune(
    kernel: Annotated[str, typer.Argument(help="Kernel; see: ledger kernels list.")],
    shape: Annotated[list[str] | None, typer.Option(help="Shape, as M=64,N=64,K=64; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Data type; may be repeated (default: the first).")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Profile (default: the one that names this device).")] = None,
    device: DeviceOption = None,
    log: Annotated[FilePath | None, typer.Option(help="Log from which a repeated run continues.")] = None,
    output: Annotated[FilePath | None, typer.Option("-o", "--output", help="File to review.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Candidates to time at most, for each cell.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the candidates, time none; needs no GPU.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Time a kernel's launch configurations. The fastest goes to a file for review."""
    from ledger.device.gpu_selection import parse_device, select_device
    from ledger.device.local_profile import profile_of_this_machine
    from ledger.kernel_files import load_kernel
    from ledger.measure.tuned_file import tune_cells
    from ledger.render.tuning_page import render_markdown

    # Before torch is loaded.
    if device is not None:
        parse_device(device)
    cells = tuned_cells(load_kernel(kernel, find_root()).kernel, shape, dtype)
    select_device(device)
    hardware = profile_of_this_machine(find_root(), hw)
    file = load_kernel(kernel, find_root(), launch=not dry_run)
    if dry_run:
        _show_candidates(file, hardware, cells, as_json=as_json)
        return
    output = output or (find_root() or FilePath.cwd()) / "benchmarks" / "tuning" / f"{kernel}-{hardware.name}.json"
    log = log or FilePath(f"{output}.log")
    document = tune_cells(file, hardware, cells, log=log, output=output, most=limit, progress_of=_progress, on_cell=say)
    say(f"wrote {output}; a launch uses the kernel's launch rule: review the output, then edit {file.path}")
    if as_json:
        emit({**document, "output": str(output), "log": str(log)})
    else:
        out().print(render_markdown(document), markup=False, soft_wrap=True)


def _show_candidates(file: KernelFile, hardware: Hardware, cells: Sequence[Cell], *, as_json: bool) -> None:
    from ledger.analysis.tuning import choose
    from ledger.render.candidates_text import candidates_document, candidates_text

    found = [(cell, choose(file.kernel, hardware, shape=cell[0], dtype=cell[1])) for cell in cells]
    if as_json:
        emit([candidates_document(file.kernel, *cell, choice) for cell, choice in found])
        return
    for cell, choice in found:
        text = candidates_text(file.kernel, *cell, choice, hardware=hardware)
        out().print(text, markup=False, soft_wrap=True)


@contextmanager
def _progress(title: str) -> Iterator[OnProgress]:
    with progress_bar(title, limit=90) as show:
        yield lambda done, total, text: show(done, total, f"{title}: {text}")

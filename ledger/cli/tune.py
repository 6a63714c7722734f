"""The command tune: which launch configuration of a kernel is fastest on this GPU, for a person to review."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import parse_dtype, parse_shape
from ledger.cli.output import emit, out, progress_bar, say
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.analysis.tuning import Choice
    from ledger.kernel_files import KernelFile
    from ledger.measure.tune import OnProgress
    from ledger.records import Dtype, Hardware

Cell = tuple[dict[str, int], "Dtype"]


def tune(
    kernel: Annotated[str, typer.Argument(help="Kernel; see: ledger kernels list.")],
    shape: Annotated[list[str] | None, typer.Option(help="Shape, as M=64,N=64,K=64; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Data type; may be repeated (default: the first).")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Profile (default: the one that names this device).")] = None,
    log: Annotated[FilePath | None, typer.Option(help="Log that a repeated run goes on from.")] = None,
    output: Annotated[FilePath | None, typer.Option("-o", "--output", help="File to review.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Candidates to time at most, for each cell.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the candidates, time none; needs no GPU.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Time a kernel's launch configurations on this GPU and write the fastest to a file for review."""
    from ledger.device.local_profile import profile_of_this_machine
    from ledger.kernel_files import load_kernel
    from ledger.render.tuning_page import render_markdown

    root = find_root()
    hardware = profile_of_this_machine(root, hw)
    file = load_kernel(kernel, root, launch=not dry_run)
    cells = _cells(file, shape, dtype)
    if dry_run:
        _show_candidates(file, hardware, cells, as_json=as_json)
        return
    folder = root or FilePath.cwd()
    output = output or folder / "benchmarks" / "tuning" / f"{kernel}-{hardware.name}.json"
    log = log or FilePath(f"{output}.log")
    document = _tuned(file, hardware, cells, log=log, output=output, limit=limit)
    if as_json:
        emit(document)
    else:
        out().print(render_markdown(document), markup=False, soft_wrap=True)


def _cells(file: KernelFile, shapes: list[str] | None, dtypes: list[str] | None) -> list[Cell]:
    if not shapes:
        raise InputError(f"--shape: none given; expected one, with {','.join(file.kernel.operation.shape_keys)}")
    kinds = [parse_dtype(one) for one in dtypes] if dtypes else [file.kernel.dtypes[0]]
    return [(parse_shape(one), kind) for one in shapes for kind in kinds]


def _show_candidates(file: KernelFile, hardware: Hardware, cells: Sequence[Cell], *, as_json: bool) -> None:
    from ledger.analysis.tuning import choose

    found = [(cell, choose(file.kernel, hardware, shape=cell[0], dtype=cell[1])) for cell in cells]
    if as_json:
        emit([_candidates(file, cell, choice) for cell, choice in found])
        return
    for (size, kind), choice in found:
        out().print(f"{file.kernel.name} {_words(size)} {kind} on {hardware.name}", markup=False, soft_wrap=True)
        for kept in choice.kept:
            out().print(f"  {1e6 * kept.bound_s:8.2f} µs at least  {_words(kept.config)}", markup=False, soft_wrap=True)
        for dropped in choice.dropped:
            out().print(f"  dropped  {_words(dropped.config)}: {dropped.why}", markup=False, soft_wrap=True)


def _candidates(file: KernelFile, cell: Cell, choice: Choice) -> dict[str, Any]:
    return {
        "kernel": file.kernel.name,
        "shape": cell[0],
        "dtype": cell[1],
        "kept": [{"config": one.config, "bound_us": round(1e6 * one.bound_s, 4)} for one in choice.kept],
        "dropped": [{"config": one.config, "why": one.why} for one in choice.dropped],
    }


def _words(values: Mapping[str, int | str]) -> str:
    return ",".join(f"{key}={value}" for key, value in values.items())


def _tuned(
    file: KernelFile, hardware: Hardware, cells: Sequence[Cell], *, log: FilePath, output: FilePath, limit: int | None
) -> dict[str, Any]:
    """Tune each cell and write the reviewed file after each, so that an interruption loses one cell at most."""
    import json

    from ledger.analysis.tuning import FILE_SCHEMA, merged
    from ledger.canonical import parse_json
    from ledger.device.facts import facts_for, require_profile
    from ledger.measure.tune import tune as run
    from ledger.record_files import read_bytes, write_atomically

    require_profile(hardware, facts_for(hardware))
    log.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for size, kind in cells:
        with _progress(f"{file.kernel.name} {_words(size)} {kind}") as on_progress:
            tuned = run(file, hardware=hardware, shape=size, dtype=kind, log=log, most=limit, on_progress=on_progress)
        rows.append(tuned.row)
        say(f"{tuned.row['timed']} timed, {tuned.wrong} wrong, {tuned.failed} failed, {len(tuned.choice.dropped)} "
            f"dropped untimed; {tuned.resumed} were in the log already")  # fmt: skip
        document = {"schema": FILE_SCHEMA, "kernel": file.kernel.name, "hardware": hardware.name, "rows": rows}
        earlier = parse_json(read_bytes(output), what=str(output)) if output.exists() else None
        write_atomically(output, (json.dumps(merged(earlier, document), indent=1) + "\n").encode())
    say(f"wrote {output}; the kernel file's own table is what a launch uses: review, then edit {file.path}")
    return {**document, "output": str(output), "log": str(log)}


@contextmanager
def _progress(title: str) -> Iterator[OnProgress]:
    with progress_bar(title, limit=90) as show:
        yield lambda done, total, words: show(done, total, f"{title}: {words}")

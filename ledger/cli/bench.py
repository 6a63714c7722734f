"""The command bench: a kernel and its library baselines, timed in one run."""

from __future__ import annotations

import functools
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.cells import baseline_set, cells_of, check_cells
from ledger.cli.open_ledger import find_root
from ledger.cli.options import DeviceOption, JsonOption, parse_ceilings
from ledger.cli.output import emit, out, say
from ledger.errors import InputError, Interrupted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.kernel_files import KernelFile
    from ledger.records import Hardware


def bench(
    kernel: Annotated[list[str] | None, typer.Argument(help="Kernels to time (default: all).")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Shape, as B=8,H=4096,O=4096; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Data type; may be repeated (default: all).")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Profile (default: the one that names this device).")] = None,
    device: DeviceOption = None,
    ceilings: Annotated[str | None, typer.Option(help="Roof: datasheet, burst or sustained.")] = None,
    baseline: Annotated[list[str] | None, typer.Option(help="Baselines to run (default: all).")] = None,
    output: Annotated[FilePath | None, typer.Option("-o", "--output", help="JSON file to write.")] = None,
    against: Annotated[FilePath | None, typer.Option(help="Earlier bench to compare with, by ratios.")] = None,
    fail_on_regress: Annotated[str | None, typer.Option(help="Exit 1 when slower by more, as in 3%.")] = None,
    self_test: Annotated[
        int | None, typer.Option(help="Time the kernel against itself this many times and count the false alarms.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Time kernels beside the library. Interleaved in one run on the same cold inputs."""
    from ledger.canonical import parse_json
    from ledger.device.gpu_selection import select_device
    from ledger.device.local_profile import profile_of_this_machine
    from ledger.record_files import read_bytes
    from ledger.render.bench_page import render_markdown
    from ledger.render.self_test_text import self_test_text

    if fail_on_regress is not None and against is None:
        raise InputError("--fail-on-regress: given without --against; expected an earlier bench to compare with")
    check_cells(kernel or (), shape, dtype)
    parse_ceilings(ceilings)
    earlier = None if against is None else parse_json(read_bytes(against), what=str(against))
    select_device(device)
    hardware = profile_of_this_machine(find_root(), hw)
    if self_test is not None:
        name = (kernel or ["rmsnorm_matmul"])[0]
        found = _self_tested(name, shape, dtype, hardware, trials=self_test)
        _print(found, self_test_text(found), as_json=as_json)
        return
    files = _loaded(kernel, hardware)
    # What an earlier run wrote stays until this one has ended.
    partial = None if output is None else output.with_name(f"{output.name}.partial")
    try:
        document = _timed(files, shape, dtype, hardware, ceilings=ceilings, baselines=baseline, partial=partial)
    except KeyboardInterrupt:
        if partial is None or not partial.exists():
            raise
        raise Interrupted(f"interrupted; {partial} has the rows so far: the same command begins anew") from None
    if output is not None and partial is not None:
        partial.replace(output)
        say(f"wrote {output}")
    _print(document, render_markdown(document), as_json=as_json)
    if against is not None:
        _compare(document, earlier, fail_on_regress)


def _loaded(names: Sequence[str] | None, hardware: Hardware) -> list[KernelFile]:
    from ledger.kernel_files import kernel_names, load_kernel
    from ledger.records import is_gpu

    root = find_root()
    return [load_kernel(name, root, launch=is_gpu(hardware.target)) for name in names or kernel_names(root)]


def _timed(
    files: Sequence[KernelFile],
    shapes: Sequence[str] | None,
    dtypes: Sequence[str] | None,
    hardware: Hardware,
    *,
    ceilings: str | None,
    baselines: Sequence[str] | None,
    partial: FilePath | None,
) -> dict[str, Any]:
    """Time the cells of each kernel. After each row the file `partial` has those so far."""
    from ledger.measure.bench import Bench
    from ledger.measure.bench import bench as run

    kind, only = parse_ceilings(ceilings), baseline_set(baselines, files)
    parts: list[Bench] = []

    def keep(part: Bench) -> None:
        if partial is not None:
            _write(functools.reduce(Bench.joined, [*parts, part]).document(), partial)

    for file in files:
        if cells := cells_of(file.kernel, shapes, dtypes):
            parts.append(run(file, cells, hardware=hardware, ceilings=kind, only=only, on_progress=say, on_row=keep))
    return functools.reduce(Bench.joined, parts).document()


def _self_tested(
    name: str, shapes: Sequence[str] | None, dtypes: Sequence[str] | None, hardware: Hardware, *, trials: int
) -> dict[str, Any]:
    from ledger.measure.bench_self_test import self_test

    (file,) = _loaded([name], hardware)
    cell = cells_of(file.kernel, shapes, dtypes)[0]
    return self_test(file, cell, hardware=hardware, trials=trials, on_progress=say).document()


def _print(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        emit(document)
    else:
        out().print(text, markup=False, soft_wrap=True)


def _write(document: dict[str, Any], output: FilePath) -> None:
    import json

    from ledger.record_files import write_atomically

    write_atomically(output, (json.dumps(document, indent=1) + "\n").encode())


def _compare(document: dict[str, Any], earlier: Any, limit: str | None) -> None:
    from ledger.analysis.bench_regression import check, compare

    changes = compare(document, earlier)
    for change in changes:
        say(change.sentence)
    if limit is not None:
        check(changes, limit)

"""The command timeline: one rotation of a cell, or the inside of one call, as a trace for Perfetto."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.cells import baseline_set, cells_of, check_cells
from ledger.cli.open_ledger import find_root
from ledger.cli.options import DeviceOption, JsonOption, parse_config
from ledger.cli.output import emit, out, say
from ledger.errors import InputError


def timeline(
    kernel: Annotated[str, typer.Argument(help="Kernel to trace.")],
    output: Annotated[FilePath, typer.Option("-o", "--output", help="Trace to write, for ui.perfetto.dev.")],
    shape: Annotated[str | None, typer.Option(help="Shape, as B=8,H=4096,O=4096 (default: its first case).")] = None,
    dtype: Annotated[str | None, typer.Option(help="Data type (default: its first).")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Profile (default: the one that names this device).")] = None,
    device: DeviceOption = None,
    baseline: Annotated[list[str] | None, typer.Option(help="Baselines to trace (default: all).")] = None,
    inside: Annotated[
        bool, typer.Option("--inside", help="Phases of the warps within one call, by Proton (Triton and Gluon).")
    ] = False,
    config: Annotated[
        str | None, typer.Option(help="With --inside: values that replace the kernel's own, as variant=generic.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Record a cell as a timeline for Perfetto. One rotation, ours and the library's."""
    from ledger.device.gpu_selection import select_device
    from ledger.device.local_profile import profile_of_this_machine
    from ledger.kernel_files import load_kernel
    from ledger.measure.timeline import record_timeline
    from ledger.records import is_gpu
    from ledger.render.timeline_table import scopes_table, slices_table

    if (config is not None and not inside) or (baseline and inside):
        raise InputError("--inside: traces one call of the kernel; expected --config only with it, and no --baseline")
    check_cells([kernel], [shape] if shape else None, [dtype] if dtype else None)
    select_device(device)
    hardware = profile_of_this_machine(find_root(), hw)
    file = load_kernel(kernel, find_root(), launch=is_gpu(hardware.target))
    cell = cells_of(file.kernel, [shape] if shape else None, [dtype] if dtype else None)[0]
    if inside:
        from ledger.measure.inside import record_inside

        changes = parse_config(config) if config else {}
        found = record_inside(file, cell, hardware=hardware, path=output, config=changes).document()
    else:
        only = baseline_set(baseline, [file])
        found = record_timeline(
            file, cell, hardware=hardware, path=output, only=only, on_progress=_timed_steps()
        ).document()
    if as_json:
        emit(found)
    else:
        out().print(scopes_table(found) if inside else slices_table(found))
        say(f"wrote {output}; open it at ui.perfetto.dev")


def _timed_steps() -> Callable[[str], None]:
    """Return a function that says what begins and how long after the start."""
    started = time.monotonic()
    return lambda step: say(f"{time.monotonic() - started:.0f} s: {step}")

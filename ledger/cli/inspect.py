"""The command inspect: what the compiler makes of a kernel, on a machine that needs no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import parse_dtype, parse_shape
from ledger.cli.output import emit, out, say
from ledger.errors import InputError, MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path as FilePath

    from ledger.records import Hardware
    from ledger.workflow.seal import Draft


def inspect(
    kernel: Annotated[str, typer.Argument(help="Kernel; see: ledger kernels list.")],
    arch: Annotated[str, typer.Option(help="Architectures, as sm_90,sm_75, or names of profiles.")] = "sm_90",
    dtype: Annotated[str | None, typer.Option(help="Data type (default: the kernel's first).")] = None,
    shape: Annotated[str | None, typer.Option(help="Shape, as M=64,N=64,K=64 (default: the kernel's first).")] = None,
    config: Annotated[str | None, typer.Option(help="Values that replace the kernel's own, as block_k=16.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compile a kernel ahead of time: instruction path, registers, spills, occupancy, loads. Needs no GPU."""
    from ledger.kernel_files import load_kernel
    from ledger.measure.inspection import inspect as run
    from ledger.render.inspection_card import document, render

    root = find_root()
    loaded = load_kernel(kernel, root, launch=True).kernel
    size = parse_shape(shape) if shape else dict(loaded.cases[0])
    kind = parse_dtype(dtype) if dtype else loaded.dtypes[0]
    changes = parse_shape(config, "--config", least=0) if config else {}
    devices = [_device(name.strip(), root) for name in arch.split(",")]
    found = [run(loaded, device, shape=size, dtype=kind, config=changes) for device in devices]
    if as_json:
        emit([document(one) for one in found])
    else:
        render(found, out())
    for one in found:
        if not one.agrees:
            say(f"warning: {one.kernel} {one.dtype} on {one.target} takes {one.instructions.path or 'no'} path, "
                f"the kernel file names {one.named_path}: a forecast's roof would be the wrong one")  # fmt: skip


def _device(name: str, root: FilePath | None) -> Hardware:
    """Return the profile called so, or the first one of an architecture."""
    from ledger.record_files import hardware_names, load_hardware

    names = hardware_names(root)
    if name in names:
        return load_hardware(name, root)
    targets: dict[str, Hardware] = {}
    for one in names:
        profile = load_hardware(one, root)
        targets.setdefault(profile.target, profile)
    if name not in targets:
        have = ", ".join(sorted(target for target in targets if target.startswith("sm_")))
        raise InputError(f"--arch: {name!r} is not known; expected one of: {have}, or the name of a profile")
    return targets[name]


def warn_of_other_paths(drafts: Sequence[Draft], root: FilePath | None) -> None:
    """Compile what forecasts are about and warn of each whose roof is of another path than the compiler takes."""
    seen: set[tuple[object, ...]] = set()
    for draft in drafts:
        case, target = draft.forecast.case, draft.hardware.target
        one = (case.kernel, case.dtype, target, tuple(sorted(case.config.items())))
        if case.implementation == "triton" and target.startswith("sm_") and one not in seen:
            seen.add(one)
            say(_checked(draft, root))


def _checked(draft: Draft, root: FilePath | None) -> str:
    from ledger.kernel_files import load_kernel
    from ledger.measure.inspection import inspect as run

    case, roof = draft.forecast.case, draft.forecast.roof
    try:
        kernel = load_kernel(case.kernel, root, launch=True).kernel
        found = run(kernel, draft.hardware, shape=case.shape, dtype=case.dtype, config=case.config)
    except (MachineError, InputError) as error:
        return f"not checked: {case.kernel} {case.dtype} on {case.hardware}: {error}"
    words = f"{case.kernel} {case.dtype} on {case.hardware} compiles to {found.instructions.family}"
    if found.instructions.path == roof.path:
        return f"checked: {words}; the roof is that path's ({roof.path})"
    takes = found.instructions.path or "no arithmetic path"
    return f"warning: {words} ({takes}), but the roof is of {roof.path}: the percent would be of the wrong roof"

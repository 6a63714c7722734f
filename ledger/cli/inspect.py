"""The command inspect: what the compiler makes of a kernel; needs no GPU."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import JsonOption, parse_config, parse_dtype, parse_shape
from ledger.cli.output import emit, out, say, working
from ledger.errors import InputError

if TYPE_CHECKING:
    from ledger.records import Hardware


def inspect(
    kernel: Annotated[str, typer.Argument(help="Kernel; see: ledger kernels list.")],
    arch: Annotated[
        str | None, typer.Option(help="Architectures, as sm_90,sm_75, or names of profiles (default: sm_90).")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="A GPU of this machine instead of --arch: cuda or cuda:N.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Data type (default: the kernel's first).")] = None,
    shape: Annotated[str | None, typer.Option(help="Shape, as M=64,N=64,K=64 (default: the kernel's first).")] = None,
    config: Annotated[
        str | None, typer.Option(help="Values that replace the kernel's own, as variant=cuda,block_k=64.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a kernel without a GPU. Shows instruction path, registers, spills, occupancy and loads."""
    from ledger.kernel_files import load_kernel
    from ledger.measure.inspection import inspect as run
    from ledger.render.inspection_card import document, render

    root = find_root()
    targets = _targets(root, arch, device)
    loaded = load_kernel(kernel, root, launch=True).kernel
    size = parse_shape(shape) if shape else dict(loaded.cases[0])
    kind = parse_dtype(dtype) if dtype else loaded.dtypes[0]
    changes = parse_config(config) if config else {}
    with working("compiling"):
        found = [run(loaded, target, shape=size, dtype=kind, config=changes) for target in targets]
    if as_json:
        emit([document(one) for one in found])
    else:
        render(found, out())
    for one in found:
        if one.wrong_roof:
            say(f"warning: {one.kernel} {one.dtype} on {one.target} takes {one.instructions.path or 'no'} path, "
                f"the kernel file names {one.named_path}: a forecast's roof would be the wrong one")  # fmt: skip


def _targets(root: FilePath | None, arch: str | None, device: str | None) -> list[Hardware]:
    """Return the profiles to compile for: those that --arch names, or that of a GPU here."""
    from ledger.device.gpu_selection import select_device
    from ledger.device.local_profile import profile_of_architecture, profile_of_this_machine

    if device is None:
        return [profile_of_architecture(root, name.strip()) for name in (arch or "sm_90").split(",")]
    if arch is not None:
        raise InputError(f"--device: got {device!r} together with --arch {arch!r}; expected one of the two")
    if device == "cpu":
        raise InputError("--device: got 'cpu'; expected a GPU, for which kernels are compiled: cuda or cuda:N")
    select_device(device)
    return [profile_of_this_machine(root)]

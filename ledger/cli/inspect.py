"""The command inspect: what the compiler makes of a kernel; needs no GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import JsonOption, parse_config, parse_dtype, parse_shape
from ledger.cli.output import emit, out, say


def inspect(
    kernel: Annotated[str, typer.Argument(help="Kernel; see: ledger kernels list.")],
    arch: Annotated[str, typer.Option(help="Architectures, as sm_90,sm_75, or names of profiles.")] = "sm_90",
    dtype: Annotated[str | None, typer.Option(help="Data type (default: the kernel's first).")] = None,
    shape: Annotated[str | None, typer.Option(help="Shape, as M=64,N=64,K=64 (default: the kernel's first).")] = None,
    config: Annotated[
        str | None, typer.Option(help="Values that replace the kernel's own, as variant=cuda,block_k=64.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a kernel ahead of time: instruction path, registers, spills, occupancy, loads. Needs no GPU."""
    from ledger.device.local_profile import profile_of_architecture
    from ledger.kernel_files import load_kernel
    from ledger.measure.inspection import inspect as run
    from ledger.render.inspection_card import document, render

    root = find_root()
    loaded = load_kernel(kernel, root, launch=True).kernel
    size = parse_shape(shape) if shape else dict(loaded.cases[0])
    kind = parse_dtype(dtype) if dtype else loaded.dtypes[0]
    changes = parse_config(config) if config else {}
    devices = [profile_of_architecture(root, name.strip()) for name in arch.split(",")]
    found = [run(loaded, device, shape=size, dtype=kind, config=changes) for device in devices]
    if as_json:
        emit([document(one) for one in found])
    else:
        render(found, out())
    for one in found:
        if not one.agrees:
            say(f"warning: {one.kernel} {one.dtype} on {one.target} takes {one.instructions.path or 'no'} path, "
                f"the kernel file names {one.named_path}: a forecast's roof would be the wrong one")  # fmt: skip

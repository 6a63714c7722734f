"""The commands kernels list and kernels show."""

from __future__ import annotations

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say

kernels_app = typer.Typer(no_args_is_help=True, help="List kernels, or show one with its work and roof.")


@kernels_app.command("list")
def kernels_list(as_json: JsonOption = False) -> None:
    """List all kernels."""
    from ledger.kernel_files import kernel_names, load_kernel, skipped_files

    for path in skipped_files(find_root()):
        say(f"skipped {path}: no constant KERNEL")
    kernels = [load_kernel(name, find_root()).kernel for name in kernel_names(find_root())]
    if as_json:
        emit([{"name": k.name, "operation": k.operation.name, "dtypes": list(k.dtypes)} for k in kernels])
        return
    from ledger.render.hardware_card import render_kernels

    render_kernels(kernels, out())


@kernels_app.command("show")
def kernels_show(name: str, as_json: JsonOption = False) -> None:
    """Show one kernel and its work."""
    from ledger.kernel_files import load_kernel
    from ledger.render import hardware_card as card

    file = load_kernel(name, find_root())
    if as_json:
        emit(card.kernel_document(file))
    else:
        card.render_kernel(file, out())

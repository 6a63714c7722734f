"""The command new: a kernel file of one's own."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, say


def new(
    name: Annotated[str, typer.Argument(help="Name of the kernel, as my_kernel.")], as_json: JsonOption = False
) -> None:
    """Write a kernel file that works as it is. Change kernels/NAME.py, then: ledger check NAME."""
    from ledger.workflow.new_kernel import write_kernel

    path = write_kernel(name, find_root() or FilePath.cwd())
    if as_json:
        emit({"name": name, "path": str(path)})
    else:
        say(f"wrote {path}; check it after each change: ledger check {name}")

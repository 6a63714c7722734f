"""The command new: a kernel file of one's own."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, say
from ledger.errors import StateError


def new(
    name: Annotated[str, typer.Argument(help="Name of the kernel, as my_kernel.")], as_json: JsonOption = False
) -> None:
    """Write a kernel file that works as it is. Change kernels/NAME.py, then: ledger check NAME."""
    from ledger.workflow.new_kernel import write_kernel

    root = find_root()
    if root is None:
        raise StateError(f"{FilePath.cwd()}: not in a git repository; expected one: run git init, then ledger init")
    path = write_kernel(name, root)
    if as_json:
        emit({"name": name, "path": str(path)})
    else:
        say(f"wrote {path}; check it after each change: ledger check {name}")

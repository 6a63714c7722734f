"""The command init: creates the folders of a ledger."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer


def init(directory: Annotated[FilePath, typer.Argument(metavar="[DIR]")] = FilePath()) -> None:
    """Create the folders of a ledger. Also a git repository where there is none."""
    from ledger.workflow.init import found

    for line in found(directory):
        typer.echo(line)

"""The command void: withdraws an unmeasured forecast."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.cli.open_ledger import open_ledger
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out


def void(
    seal: Annotated[str, typer.Argument(help="Seal, or SEAL#CELL, to withdraw.")],
    why: Annotated[str, typer.Option(help="The reason; shown with the seal.")],
    as_json: JsonOption = False,
) -> None:
    """Withdraw an unmeasured forecast. It stays visible and counts as missing."""
    from ledger.workflow.withdraw import withdraw

    opened = open_ledger()
    identity, path, commit = withdraw(opened.repository, opened.book, seal, why)
    if as_json:
        emit([{"id": identity, "path": path, "commit": commit}])
    else:
        out().print(f"withdrawn {seal}\n  commit {commit}", soft_wrap=True)

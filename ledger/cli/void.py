"""The command void: withdraws a forecast that is not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.open_ledger import open_ledger
from ledger.cli.output import emit, out

if TYPE_CHECKING:
    pass


def void(
    seal: Annotated[str, typer.Argument(help="Seal, or SEAL#CELL, to withdraw.")],
    why: Annotated[str, typer.Option(help="Why; shown wherever the seal is.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Withdraw an unmeasured forecast in the open; it stays visible and counts as missing."""
    from ledger.workflow.withdraw import withdraw

    opened = open_ledger()
    identity, path, commit = withdraw(opened.repository, opened.book, seal, why)
    if as_json:
        emit([{"id": identity, "path": path, "commit": commit}])
    else:
        out().print(f"withdrawn {seal}\n  commit {commit}", soft_wrap=True)

"""The commands status and log: the state of each cell, and the order of events."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.cli.kept_lists import listed
from ledger.cli.open_ledger import open_ledger
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out


def status(
    campaign: Annotated[list[str] | None, typer.Option(help="Every forecast of this campaign.")] = None,
    cells: Annotated[bool, typer.Option("--cells", help="Every forecast, however many there are.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List what is open, stale, void and measured. Of many forecasts the cases of each campaign."""
    from ledger.render.status_table import of_campaigns, render_status, status_document, with_stale

    ledger = open_ledger(uncommitted_is_refused=False)
    found = with_stale(listed(ledger, "status"), ledger.current)
    if campaign:
        found = of_campaigns(found, campaign)
    if as_json:
        emit(status_document(found))
    else:
        render_status(found, out(), listed=True if cells or campaign else None)


def log(as_json: JsonOption = False) -> None:
    """Print the timeline of seals, measurements and withdrawals."""
    from ledger.render.history_table import events_of, render_timeline

    kept = listed(open_ledger(uncommitted_is_refused=False), "log")
    if as_json:
        emit(events_of(kept))
    else:
        render_timeline(kept, out())

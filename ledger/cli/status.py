"""The commands status and log: the state of each cell, and the order of events."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.cli.kept_lists import listed
from ledger.cli.open_ledger import open_ledger
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say


def status(
    campaign: Annotated[list[str] | None, typer.Option(help="Every forecast of this campaign.")] = None,
    cells: Annotated[bool, typer.Option("--cells", help="Every forecast, however many there are.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List what is open, stale, void and measured. Of many forecasts the cases of each campaign."""
    from ledger.analysis.formatting import count_text
    from ledger.render.status_table import columns_for, of_campaigns, render_status, status_document, with_stale

    ledger, each = open_ledger(uncommitted_is_refused=False), True if cells or campaign else None
    kept = listed(ledger, "cells", lambda count, _held: columns_for(count, listed=each, as_json=as_json))
    found = with_stale(kept, lambda: ledger.current)
    if campaign:
        found = of_campaigns(found, campaign)
    if as_json:
        emit(status_document(found, ledger.head))
    else:
        render_status(found, out(), listed=each)
        if refusals := found.more["refusals"]:
            say(f"refused by {count_text(len(refusals), 'finding')}, the first: {refusals[0]}; see ledger audit")


def log(as_json: JsonOption = False) -> None:
    """Print the timeline of seals, measurements and withdrawals."""
    from ledger.render.history_table import KEYS, events_of, keys_shown, render_timeline

    keys = KEYS if as_json else keys_shown(out().width)
    events = listed(open_ledger(uncommitted_is_refused=False), "events", lambda _count, _held: keys).columns
    if as_json:
        emit(events_of(events))
    else:
        render_timeline(events, out())

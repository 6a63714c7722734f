"""The commands status and log: the state of each cell, and the order of events."""

from __future__ import annotations

from ledger.cli.open_ledger import open_ledger
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out


def status(as_json: JsonOption = False) -> None:
    """List what is open, stale, void and measured."""
    from ledger.analysis.report_rows import sight_document
    from ledger.render.claim_text import claim_rows
    from ledger.render.status_table import render_status

    book = open_ledger(uncommitted_is_refused=False).book
    if as_json:
        cells = [
            {"seal": c.sealed.id, "cell": c.forecast.cell, "state": c.state, "blind": c.blind, **sight_document(c)}
            for c in (*book.cells, *book.hidden)
        ]
        refused = [finding.model_dump(mode="json") for finding in book.refused]
        emit({"head": book.head, "cells": cells, "claims": claim_rows(book), "refused": refused})
    else:
        render_status(book, out())


def log(as_json: JsonOption = False) -> None:
    """Print the timeline of seals, measurements and withdrawals."""
    from ledger.render.history_table import render_timeline, timeline

    book = open_ledger(uncommitted_is_refused=False).book
    if as_json:
        emit(timeline(book))
    else:
        render_timeline(book, out())

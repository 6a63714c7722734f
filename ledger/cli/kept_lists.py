"""Names the tables that are kept of a ledger: what status, log and score need."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from ledger.workflow.answers import Growing

if TYPE_CHECKING:
    from ledger.analysis.book import Book
    from ledger.cli.open_ledger import OpenLedger
    from ledger.evidence.judge import Growth
    from ledger.workflow.kept_tables import Rows, Table, Wanted


def listed(ledger: OpenLedger, name: str, wanted: Wanted) -> Table:
    """Return a table of a ledger, kept or made: its cells or its events. wanted: the columns."""
    # The table is kept to the end and has no cycles.
    gc.disable()
    return ledger.growing(name, KINDS, wanted)


# What makes and changes a table is loaded when there is none, or the ledger grew.


def _cells(book: Book) -> Table:
    from ledger.render.kept_cells import cells_table

    return cells_table(book)


def _cell_rows(found: Growth) -> Rows:
    from ledger.render.kept_cells import cell_rows

    return cell_rows(found)


def _events(book: Book) -> Table:
    from ledger.render.history_events import timeline, timeline_table

    return timeline_table(timeline(book))


def _event_rows(found: Growth) -> Rows:
    from ledger.render.history_events import timeline_rows

    return timeline_rows(found)


KINDS = {"cells": Growing(_cells, _cell_rows), "events": Growing(_events, _event_rows)}

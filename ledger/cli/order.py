"""The command order: writes the cells to measure, for a machine without the repository."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.challenge import ChallengeOption, anchor
from ledger.cli.open_ledger import OpenLedger, open_ledger, refuse_if_refused
from ledger.cli.options import AgainOption, Ids, JsonOption, OnceOption
from ledger.cli.output import emit, out, say


def order(
    ids: Ids = None,
    again: AgainOption = False,
    once: OnceOption = False,
    challenge: ChallengeOption = None,
    output: Annotated[FilePath, typer.Option("-o", "--output", help="File to write.")] = FilePath("order.json"),
    as_json: JsonOption = False,
) -> None:
    """Write what to measure, for a machine without the repository."""
    from ledger.analysis.formatting import count_text
    from ledger.measure.ordered_kernels import carried_names
    from ledger.record_files import write_record
    from ledger.workflow.order import write_order
    from ledger.workflow.select import select

    opened = open_ledger()
    refuse_if_refused(opened.book)
    report_stale(opened)
    chosen = select(opened.book, ids or [], again=again, once=once)
    record = write_order(chosen, root=opened.root, anchor=anchor(challenge))
    write_record(output, record)
    carried = carried_names(record)
    if as_json:
        emit({"path": str(output), "cells": len(record.cells), "carried_sources": carried})
        return
    out().print(f"{output}: {count_text(len(record.cells), 'cell')}", markup=False)
    if carried:
        say(f"the order contains the source of {', '.join(carried)}: the measuring machine will execute it")


def report_stale(opened: OpenLedger) -> None:
    """Print the open cells that are skipped because their kernel or profile has changed."""
    from ledger.records import ForecastV2
    from ledger.workflow.select import other_format

    for cell in opened.book.cells:
        if cell.state == "stale":
            old = not isinstance(cell.forecast, ForecastV2)
            why = other_format(cell) if old else "its kernel or profile has changed since it was sealed"
            say(f"skipped {cell.short_name}: stale, {why}")

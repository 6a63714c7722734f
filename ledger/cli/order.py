"""The command order: writes the cells to measure, for a machine without the repository."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.challenge import ChallengeOption, anchor
from ledger.cli.open_ledger import OpenLedger, open_ledger, refuse_if_refused
from ledger.cli.options import AgainOption, Ids, JsonOption, OnceOption
from ledger.cli.output import emit, out, say

if TYPE_CHECKING:
    from ledger.analysis.book import CellView

_LISTED = 8
"""Stale cells that are named one by one; of more there are only counts."""


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
    report_stale(opened, ids or [])
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


def report_stale(opened: OpenLedger, wanted: Sequence[str]) -> None:
    """Print which open cells are skipped, or of many how many, because their kernel or profile has changed.

    Hidden ones are measured where they are named. wanted: what the user named; a named cell that is stale is an error
    of its own.
    """
    from ledger.analysis.formatting import count_text
    from ledger.records import ForecastV2
    from ledger.workflow.select import CHANGED, other_format, unmeasured_hidden

    if wanted:
        return
    skipped: dict[str, list[CellView]] = {}
    for cell in opened.book.cells:
        if cell.state == "stale":
            old = not isinstance(cell.forecast, ForecastV2)
            why = other_format(cell) if old else CHANGED
            skipped.setdefault(why, []).append(cell)
    if hidden := unmeasured_hidden(opened.book):
        say(f"skipped {count_text(len(hidden), 'hidden cell')}: name their seals, or open them: ledger reveal")
    for why, cells in skipped.items():
        if len(cells) <= _LISTED:
            for cell in cells:
                say(f"skipped {cell.short_name}: stale, {why}")
        else:
            seals = count_text(len({cell.sealed.id for cell in cells}), "seal")
            say(f"skipped {count_text(len(cells), 'cell')} of {seals}: stale, {why} (ledger status)")

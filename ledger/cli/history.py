"""The command history: what happened to one cell over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption, parse_shape
from ledger.cli.output import emit, paged

if TYPE_CHECKING:
    from ledger.analysis.cell_history import CellHistory
    from ledger.analysis.report_rows import ReportRow


def history(
    subject: Annotated[str, typer.Argument(metavar="CELL", help="A kernel or callable, a seal, or SEAL#CELL.")],
    shape: Annotated[str | None, typer.Option(help="Its shape, or some of the sizes, as B=32,H=4096.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Its data type.")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Its hardware profile.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show one cell over time. Forecasts, measurements, sight, gaps, causes, and what changed."""
    from ledger.analysis.cell_history import histories, history_document, of_shape
    from ledger.analysis.report_rows import rows
    from ledger.analysis.row_choice import RowChoice, chosen
    from ledger.render.cell_history_text import render_histories
    from ledger.workflow.select import same_cells

    book = open_ledger().book
    refuse_if_refused(book)
    cells = {view.name for view in same_cells(book, subject)}
    listed: tuple[ReportRow, ...] = tuple(row for row in rows(book) if row.view.name in cells)
    listed = of_shape(listed, parse_shape(shape) if shape else {})
    named = {what: (name,) for what, name in (("dtype", dtype), ("hw", hw)) if name}
    found: tuple[CellHistory, ...] = histories(chosen(listed, RowChoice(named)))
    if as_json:
        emit({"head": book.head, "cells": history_document(found)})
        return
    with paged() as console:
        render_histories(found, console)

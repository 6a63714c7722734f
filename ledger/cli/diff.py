"""The command diff: cells of one commit, campaign or GPU beside those of another."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, paged, working


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A commit, a campaign, or the profile of a GPU.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one of the same kind.")],
    as_json: JsonOption = False,
) -> None:
    """Compare the cells of two commits, campaigns or GPUs. Times, percents, forecasts, regimes, and what changed."""
    from ledger.analysis.ledger_diff import diff_document, ledger_diff
    from ledger.analysis.repeats import repeat_spread
    from ledger.render.ledger_diff_text import render_diff
    from ledger.workflow.compared import compared

    opened = open_ledger()
    book = opened.book
    refuse_if_refused(book)
    with working("comparing"):
        found = ledger_diff(*compared(book, opened.reader, opened.root, a, b))
    if as_json:
        emit({"head": book.head, **diff_document(found)})
        return
    spread = repeat_spread(book)
    with paged() as console:
        render_diff(found, console, repeats=spread.text if spread else None)

"""The command diff: cells of one commit, campaign or GPU beside those of another."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, paged, say, working


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A commit, a campaign, or the profile of a GPU.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one of the same kind.")],
    markdown: Annotated[FilePath | None, typer.Option(help="Write what B adds to A as Markdown instead.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the cells of two commits, campaigns or GPUs. Times, percents, forecasts, regimes, and what changed."""
    from ledger.analysis.ledger_diff import diff_document, ledger_diff
    from ledger.analysis.repeats import repeat_spread_of
    from ledger.render.ledger_diff_text import render_diff
    from ledger.render.markdown_page import added_page
    from ledger.workflow.compared import compared

    opened = open_ledger()
    book = opened.book
    refuse_if_refused(book)
    with working("comparing"):
        found = ledger_diff(*compared(book, opened.reader, opened.root, a, b))
    if markdown is not None:
        markdown.write_text(added_page(found), encoding="utf-8")
        say(f"wrote {markdown}")
    if as_json:
        emit({"head": book.head, **diff_document(found)})
    if as_json or markdown is not None:
        return
    spread = repeat_spread_of(book)
    with paged() as console:
        render_diff(found, console, repeats=spread.text if spread else None)

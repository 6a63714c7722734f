"""The command report: reconciles predictions with measurements, on the terminal or as a page."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, say
from ledger.errors import InputError, ThresholdMissed

if TYPE_CHECKING:
    from ledger.analysis.book import Book


_BY_CELL = ("rows", "missing")


def report(
    ids: Annotated[list[str] | None, typer.Argument(help="Seals or SEAL#CELL names to show (default: all).")] = None,
    html: Annotated[FilePath | None, typer.Option(help="Write a self-contained page instead.")] = None,
    markdown: Annotated[FilePath | None, typer.Option(help="Write Markdown instead.")] = None,
    site: Annotated[
        FilePath | None, typer.Option(help="Write all pages into a folder: report, seals, benchmarks.")
    ] = None,
    fail_on_miss: Annotated[
        float | None, typer.Option(min=0, help="Exit 1 when a gap is larger than this many points.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Reconcile predictions with measurements; refuses to open when a prediction post-dates its measurement."""
    from ledger.render import report as reports
    from ledger.workflow.select import named

    if ids and (markdown or site):
        raise InputError("report: cells are named together with --markdown or --site, which hold all of them")
    opened = open_ledger()
    book = opened.book
    only = {cell.short_name for name in ids for cell in named(book, name)} if ids else None
    if as_json:
        emit(_only(reports.document(book), only))
    refuse_if_refused(book)
    if html is not None:
        html.write_text(reports.html(book, only=only), encoding="utf-8")
        say(f"wrote {html}")
    if markdown is not None:
        markdown.write_text(reports.markdown(book), encoding="utf-8")
        say(f"wrote {markdown}")
    if site is not None:
        from ledger.render.site import write_site

        say(f"wrote {len(write_site(book, opened.root, site))} pages to {site}")
    if not (html or markdown or site or as_json):
        reports.render(book, out(), only=only)
    if fail_on_miss is not None:
        check_miss(book, fail_on_miss, only)


def _only(document: dict[str, Any], only: set[str] | None) -> dict[str, Any]:
    """Return a report with the rows of some cells alone."""
    if only is None:
        return document
    kept = {key: [row for row in document[key] if f"{row['seal'][:10]}#{row['cell']}" in only] for key in _BY_CELL}
    return {**document, **kept}


def check_miss(book: Book, points: float, only: set[str] | None) -> None:
    """Check that no gap is larger than `points`. Raises: ThresholdMissed, naming the cells."""
    missed = []
    for cell in book.cells:
        gap = cell.scored.verification.gap if cell.scored else None
        if gap is not None and abs(gap.percent) > points and (only is None or cell.short_name in only):
            missed.append(f"{cell.short_name} by {gap.percent:+.1f}")
    if missed:
        miss = "1 cell misses" if len(missed) == 1 else f"{len(missed)} cells miss"
        raise ThresholdMissed(f"{miss} by more than {points:g} points: {'; '.join(missed)}")

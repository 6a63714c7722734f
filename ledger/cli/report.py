"""The command report: reconciles predictions with measurements, on the terminal or as a page."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.open_ledger import open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, paged, say, working
from ledger.errors import InputError, ThresholdMissed
from ledger.suggestions import unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ledger.analysis.book import Book
    from ledger.analysis.report_rows import ReportRow
    from ledger.analysis.row_choice import RowChoice


_BY_CELL = ("rows", "missing")


def report(
    ids: Annotated[list[str] | None, typer.Argument(help="Seals or SEAL#CELL names to show (default: all).")] = None,
    kernel: Annotated[list[str] | None, typer.Option(help="Rows of this kernel; may be repeated.")] = None,
    hw: Annotated[list[str] | None, typer.Option("--hw", help="Rows of this hardware profile.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Rows of this data type.")] = None,
    regime: Annotated[list[str] | None, typer.Option(help="Rows measured in this regime.")] = None,
    campaign: Annotated[list[str] | None, typer.Option(help="Rows of this campaign.")] = None,
    forecaster: Annotated[list[str] | None, typer.Option(help="Rows of this forecaster.")] = None,
    since: Annotated[str | None, typer.Option(help="Rows committed since this date, as 2026-01-31.")] = None,
    worst: Annotated[int | None, typer.Option(min=1, help="This many rows, the largest gaps first.")] = None,
    by: Annotated[str | None, typer.Option(help="Sums by kernel, hw, dtype, regime, campaign or forecaster.")] = None,
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
    """Reconcile forecasts with measurements. Refuses to open when a prediction post-dates its measurement."""
    from ledger.analysis.report_rows import rows
    from ledger.analysis.row_choice import BY, RowChoice
    from ledger.cli.options import parse_date
    from ledger.render import report as reports
    from ledger.render.claim_text import claim_rows

    names = dict(
        zip(BY, (kernel or (), hw or (), dtype or (), regime or (), campaign or (), forecaster or ()), strict=True)
    )
    choice = RowChoice(names, None if since is None else parse_date(since, "--since"), worst)
    if (ids or not choice.is_all or by) and (markdown or site):
        raise InputError("report: rows are chosen together with --markdown or --site, which hold all of them")
    if by is not None and by not in BY:
        raise InputError(unknown("--by", by, BY))
    for page in filter(None, (html, markdown)):
        if not page.parent.is_dir():
            raise InputError(f"{page}: its folder does not exist; expected one that does: mkdir -p {page.parent}")
    opened = open_ledger()
    book = opened.book
    if campaign and not book.refused and not any(sealed.prediction.campaign for sealed in book.seals):
        name = campaign[0][:80]
        raise InputError(f"campaign {name!r}: this ledger has no campaign; seal one: ledger predict --from FILE")
    listed = _listed(book, ids, choice)
    only = None if listed is None else list(dict.fromkeys(row.view.short_name for row in listed))
    shown = rows(book) if listed is None else listed
    if as_json:
        emit({**_only(reports.document(book), only), "claims": claim_rows(book), **_sums(shown, by)})
    refuse_if_refused(book)
    if html is not None:
        with working("writing the page"):
            html.write_text(reports.html(book, only=only), encoding="utf-8")
        say(f"wrote {html}")
    if markdown is not None:
        markdown.write_text(reports.markdown(book), encoding="utf-8")
        say(f"wrote {markdown}")
    if site is not None:
        from ledger.render.site import write_site

        with working("writing pages"):
            written = write_site(book, opened.root, site)
        say(f"wrote {len(written)} pages to {site}")
    if not (html or markdown or site or as_json):
        _print(book, choice, shown, only, by)
    if fail_on_miss is not None:
        check_miss(book, fail_on_miss, only)


def _listed(book: Book, ids: list[str] | None, choice: RowChoice) -> tuple[ReportRow, ...] | None:
    """Return the rows that were asked for, None for all. Raises: UnknownName."""
    from ledger.analysis.report_rows import rows
    from ledger.analysis.row_choice import chosen
    from ledger.workflow.select import named

    if book.refused or (not ids and choice.is_all):
        return None
    wanted = {cell.short_name for name in ids or () for cell in named(book, name)}
    return chosen([row for row in rows(book) if not ids or row.view.short_name in wanted], choice)


def _sums(shown: Sequence[ReportRow], by: str | None) -> dict[str, Any]:
    """Return what --by adds to the JSON document."""
    from dataclasses import asdict

    from ledger.analysis.row_choice import groups

    return {} if by is None else {"groups": [asdict(group) for group in groups(shown, by)]}


def _print(
    book: Book, choice: RowChoice, shown: Sequence[ReportRow], only: Sequence[str] | None, by: str | None
) -> None:
    from ledger.analysis.report_rows import case_rows, rows
    from ledger.analysis.row_choice import groups
    from ledger.render import report as reports

    if by is not None:
        reports.render_groups(groups(shown, by), by, out())
        return
    with paged() as console:
        if choice.is_all:
            reports.render(book, console, only=only)
        else:
            reports.render_chosen(shown, len(case_rows(rows(book))), console, seals=choice.worst is None)


def _only(document: dict[str, Any], only: Sequence[str] | None) -> dict[str, Any]:
    """Return a report with the rows of some cells alone, in the order of their names."""
    from ledger.analysis.book import short_name

    if only is None:
        return document
    place = {name: number for number, name in enumerate(only)}
    kept = {
        key: sorted(
            (row for row in document[key] if short_name(row["seal"], row["cell"]) in place),
            key=lambda row: place[short_name(row["seal"], row["cell"])],
        )
        for key in _BY_CELL
    }
    return {**document, **kept}


def check_miss(book: Book, points: float, only: Collection[str] | None) -> None:
    """Check that no gap is larger than `points`. Raises: ThresholdMissed, naming the cells."""
    missed = []
    for cell in book.cells:
        gap = cell.scored.verification.gap if cell.scored else None
        if gap is not None and abs(gap.percent) > points and (only is None or cell.short_name in only):
            missed.append(f"{cell.short_name} by {gap.percent:+.1f}")
    if missed:
        miss = "1 cell misses" if len(missed) == 1 else f"{len(missed)} cells miss"
        raise ThresholdMissed(f"{miss} by more than {points:g} points: {'; '.join(missed)}")

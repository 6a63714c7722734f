"""Renders a judged ledger on a terminal, and gathers the other renderings under one name. Writes to the console given.

JSON comes from analysis.report_rows, Markdown from markdown_page, the HTML page from html_page. Text from records is
made safe by formatting.harmless and wrapped in rich.text.Text, which reads no markup.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import groupby

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ledger.analysis.book import Book, ClaimView
from ledger.analysis.formatting import count_text, harmless, signed
from ledger.analysis.report_rows import CaseRow, ReportRow, case_rows, document, rows
from ledger.analysis.row_choice import Group, gap_of
from ledger.render import report_text as lines
from ledger.render.claim_text import FOLDING as CLAIM_FOLDING
from ledger.render.claim_text import HEADINGS as CLAIM_HEADINGS
from ledger.render.claim_text import LEGEND as CLAIM_LEGEND
from ledger.render.claim_text import failure_of, summary_line
from ledger.render.claim_text import table_rows as claim_table
from ledger.render.counter_card import counter_lines
from ledger.render.html_page import html
from ledger.render.markdown_page import markdown
from ledger.render.tables import print_rows

__all__ = ["document", "harmless", "html", "markdown", "render", "render_chosen", "render_claims", "render_groups"]

_NARROWEST = {1: 14, 2: 14, 3: 14, 6: 11}
"""Least widths of the columns that may fold, by number: the longest word of a cell, a regime, a sight."""
_LEAST_WIDTH = 79
_MOST_EXPLAINED = 100
_EXPLAINED = 20
"""Above how many cases a report explains only some, and how many."""


def render(book: Book, console: Console, *, only: Collection[str] | None = None) -> None:
    """Print the report; of a ledger that is refused only what refuses it.

    only: short names (SEAL#CELL) of the cells to show; the summary, and what is missing elsewhere, is then left out.
    """
    if book.refused:
        _refusal(book, console)
        return
    listed = tuple(row for row in rows(book) if only is None or row.view.short_name in only)
    if only is None:
        for line in lines.summary_text(book):
            console.print(Text(line, style="bold"))
    if listed:
        _tables(listed, console)
        _sentences(listed, console)
    if only is not None:
        _listing("Timed before", lines.known_text(listed), console)
        _counters(listed, console)
        return
    render_claims(book.claims, console)
    _listing("Not measured", lines.missing_text(book), console)
    _listing("Timed before", lines.known_text(listed), console)
    _listing("Findings", lines.finding_text(book), console)
    if listed:
        console.print(Text(lines.LEGEND, style="dim"))


def render_claims(claims: Sequence[ClaimView], console: Console) -> None:
    """Print claims with what was measured of them; nothing where there is none."""
    if not claims:
        return
    console.print(Text(summary_line(claims), style="bold"))
    print_rows(console, CLAIM_HEADINGS, claim_table(claims), folding=CLAIM_FOLDING)
    for view in claims:
        if (why := failure_of(view)) is not None:
            console.print(Text(harmless(f"{view.short_name} failed: {why}", 600)))
    console.print(Text(CLAIM_LEGEND, style="dim"))


def render_chosen(listed: Sequence[ReportRow], total: int, console: Console, *, seals: bool) -> None:
    """Print rows that a user chose, in the order given, of a ledger that holds `total`. seals: with lines on seals."""
    found = len({row.number for row in listed})
    console.print(Text(f"{found} of {count_text(total, 'row')}", style="bold"))
    if listed:
        _tables(tuple(listed), console, seals=seals)
        _sentences(tuple(listed), console)


def render_groups(found: Sequence[Group], what: str, console: Console) -> None:
    """Print the sums of groups of rows, a line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(what, overflow="fold")
    for heading in ("measured", "mean gap", "signed", "regime right"):
        table.add_column(heading, justify="right")
    for group in found:
        mean = "–" if group.error is None or group.bias is None else f"{group.error:.1f}"
        bias = "–" if group.bias is None else signed(group.bias)
        right = f"{group.regimes_right} of {group.regimes}" if group.regimes else "–"
        table.add_row(Text(harmless(group.name)), f"{group.measured} of {group.rows}", mean, bias, right)
    console.print(table)


def _refusal(book: Book, console: Console) -> None:
    count = len(book.refused)
    reasons = "1 reason" if count == 1 else f"{count} reasons"
    console.print(Text(f"The report does not open: the evidence is refused for {reasons}.", style="bold red"))
    for finding in book.refused:
        console.print(Text(harmless(f"  {finding.code}: {finding.place}: {finding.message}", 600)))


def _tables(listed: tuple[ReportRow, ...], console: Console, *, seals: bool = True) -> None:
    """Print the headings and then each seal with its rows, all in the same columns. seals: with lines on seals."""
    if console.width < _LEAST_WIDTH:
        _stacked(listed, console, seals=seals)
        return
    cases = case_rows(listed)
    table = [lines.table_rows(case.lead, timed=True) for case in cases]
    widest = [max(map(len, column)) for column in zip(lines.HEADINGS, *table, strict=True)]
    widths = fit(widest, console.width, word=max(len(word) for line in table for word in line[1].split()))
    headings = _grid(widths)
    headings.add_row(*(Text(heading, style="bold") for heading in lines.HEADINGS))
    console.print(headings)
    seal = None
    for case, words in zip(cases, table, strict=True):
        row = case.lead
        if seals and row.view.sealed.id != seal:
            seal = row.view.sealed.id
            console.print(Text(lines.seal_text(row.view), style="dim"))
        styles = ("dim", "", "", _regime_style(row), _gap_style(row), "", "dim")
        grid = _grid(widths)
        shown = (words[0], _broken(words[1], widths[1]), *words[2:])
        grid.add_row(*(Text(word, style=style) for word, style in zip(shown, styles, strict=True)))
        console.print(grid)
        _others(case, widths[0] + 2, console)
    console.print()


def _broken(name: str, width: int) -> str:
    """Return a cell's name in which a callable too long for a line is broken behind a dot or a colon."""
    callable_, space, rest = name.partition(" ")
    if len(callable_) <= width:
        return name
    lines_ = [""]
    for part in re.findall(r"[^.:]*[.:]?", callable_):
        if len(lines_[-1]) + len(part) > width and lines_[-1]:
            lines_.append("")
        lines_[-1] += part
    return "\n".join(lines_) + ("\n" if len(lines_[-1]) > width else space) + rest


def _others(case: CaseRow, indent: int, console: Console) -> None:
    """Print the other forecasts of a case below it."""
    if words := lines.others_text(case):
        console.print(Padding(Text(words, style="dim"), (0, 0, 0, indent), expand=False))


def _stacked(listed: tuple[ReportRow, ...], console: Console, *, seals: bool) -> None:
    """Print each row in lines of its own, for a terminal too narrow for a table."""
    for seal, group in groupby(case_rows(listed), key=lambda case: case.lead.view.sealed.id):
        members = list(group)
        if seals and seal:
            console.print(Text(lines.seal_text(members[0].lead.view), style="dim"))
        for case in members:
            row = case.lead
            number, cell, predicted, measured, gap, grade, sight = lines.table_rows(row, timed=True)
            console.print(Text(f"{number} {cell}"))
            console.print(
                Text.assemble("  gap ", (gap or "none", _gap_style(row)), f", grade {grade or 'none'}, {sight}")
            )
            console.print(Text(f"  predicted {predicted}"))
            console.print(Text.assemble("  measured ", (measured, _regime_style(row))))
            _others(case, 2, console)
    console.print()


def fit(widths: list[int], width: int, *, word: int = 0) -> list[int]:
    """Return column widths that fit a terminal: the widest text columns give way first, down to a word of each.

    word: the longest word of a cell's name, which is folded only where it does not fit else.
    """
    fitted = list(widths)
    for least in (_NARROWEST | {1: max(word, _NARROWEST[1])}, _NARROWEST):
        while sum(fitted) + 2 * (len(fitted) - 1) > width:
            wide = [column for column, narrowest in least.items() if fitted[column] > narrowest]
            if not wide:
                break
            fitted[max(wide, key=lambda column: fitted[column])] -= 1
    return fitted


def _grid(widths: list[int]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for heading, width in zip(lines.HEADINGS, widths, strict=True):
        grid.add_column(justify="right" if heading in ("#", "gap") else "left", width=width, overflow="fold")
    return grid


def _regime_style(row: ReportRow) -> str:
    verdict = row.result.verification if row.result else None
    if verdict is None or not verdict.regimes:
        return ""
    return "green" if verdict.regime_is_right else "yellow"


def _gap_style(row: ReportRow) -> str:
    outcome = lines.outcome(row)
    return "" if outcome is None else "green" if outcome == "hit" else "yellow"


def _sentences(listed: tuple[ReportRow, ...], console: Console) -> None:
    """Print what explains each case; of very many only the largest gaps are explained."""
    leads = [case.lead for case in case_rows(listed) if case.lead.result is not None]
    if not leads:
        return
    title = "Why"
    if len(leads) > _MOST_EXPLAINED:
        leads = sorted(leads, key=lambda row: -abs(gap_of(row) or 0.0))[:_EXPLAINED]
        title = f"Why, for the {_EXPLAINED} largest gaps (of any other: ledger report SEAL#CELL)"
    console.print(Text(title, style="bold"))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", style="dim")
    grid.add_column()
    for row in leads:
        grid.add_row(Text(str(row.number)), Text(lines.sentence(row)))
    console.print(grid)
    console.print()


def _counters(listed: tuple[ReportRow, ...], console: Console) -> None:
    """Print the hardware counters of the cells that were named."""
    for row in listed:
        if counters := counter_lines(row):
            console.print(Text(f"Counters of {row.number}, {lines.cell_text(row.view)}", style="bold"))
            grid = Table.grid(padding=(0, 1))
            for title, text in counters:
                grid.add_row(Text(title, style="dim"), Text(harmless(text, 400)))
            console.print(grid)
            console.print()


def _listing(title: str, words: list[str], console: Console) -> None:
    if words:
        console.print(Text(title, style="bold"))
        for line in words:
            console.print(Text(f"  {line}"))
        console.print()

"""Renders a judged ledger as one HTML page that needs nothing else: no script, no font, no request. Pure.

Every text from a record is made harmless and escaped; the page forbids all loading by its own policy besides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape
from itertools import groupby

from ledger.analysis.book import Book
from ledger.analysis.formatting import harmless
from ledger.analysis.report_rows import ReportRow, rows
from ledger.render import report_text as lines

_STYLE = """
:root { color-scheme: light dark; --dim: #666; --line: #ccc; --hit: #00693e; --miss: #a34700; }
@media (prefers-color-scheme: dark) { :root { --dim: #999; --line: #444; --hit: #5cc98f; --miss: #f0a050; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; vertical-align: top; }
th { border-bottom: 2px solid var(--line); }
tr.seal td { color: var(--dim); padding-top: 1rem; border-bottom: 1px solid var(--line); }
tr.why td { color: var(--dim); padding-bottom: .6rem; }
.number { text-align: right; white-space: nowrap; }
.hit { color: var(--hit); } .miss { color: var(--miss); }
p.legend { color: var(--dim); }
@media print { body { margin: 0; max-width: none; font-size: 10px; } }
"""

_HEADINGS = ("#", "cell", "predicted", "measured", "time", "gap", "grade", "sight")


def html(book: Book, *, only: Collection[str] | None = None) -> str:
    """Return the report as a page. only: short names (SEAL#CELL) of the cells to show; all by default."""
    body = _refusal(book) if book.refused else _content(book, only)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Ledger report</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _refusal(book: Book) -> str:
    return "<h1>The report does not open: the evidence is refused</h1>\n" + _list(
        f"{finding.code}: {finding.path}: {finding.message}" for finding in book.refused
    )


def _content(book: Book, only: Collection[str] | None) -> str:
    listed = tuple(row for row in rows(book) if only is None or row.view.short_name in only)
    summary = lines.summary_text(book) if only is None else (f"{len(listed)} of {len(rows(book))} rows",)
    parts = ["<h1>Ledger report</h1>\n", *(f"<p>{_safe(words)}</p>\n" for words in summary)]
    if listed:
        parts += [_table(listed), f'<p class="legend">{_safe(lines.LEGEND)}</p>\n']
    if only is not None:
        return "".join([*parts, *_section("Timed before", lines.known_text(listed))])
    parts += _section("Not measured", lines.missing_text(book))
    parts += _section("Timed before", lines.known_text(listed))
    parts += _section("Findings", lines.finding_text(book))
    return "".join(parts)


def _safe(text: str) -> str:
    return escape(harmless(text), quote=True)


def _section(title: str, words: Sequence[str]) -> list[str]:
    return [f"<h2>{title}</h2>\n", _list(words)] if words else []


def _list(words: Iterable[str]) -> str:
    return "<ul>\n" + "".join(f"<li>{_safe(line)}</li>\n" for line in words) + "</ul>\n"


def _table(listed: Sequence[ReportRow]) -> str:
    head = "".join(f'<th scope="col"{_class(_kind(name))}>{name}</th>' for name in _HEADINGS)
    body: list[str] = []
    for _, group in groupby(listed, key=lambda row: row.view.sealed.id):
        members = list(group)
        words = _safe(lines.seal_text(members[0].view))
        body.append(f'<tr class="seal"><td colspan="{len(_HEADINGS)}">{words}</td></tr>\n')
        body += [_row(row) for row in members]
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>\n</table>\n"


def _row(row: ReportRow) -> str:
    number, cell, predicted, measured, gap, grade, sight = lines.table_rows(row)
    words = (number, cell, predicted, measured, lines.time_text(row), gap, grade, sight)
    outcome = lines.outcome(row) or ""
    cells = "".join(
        f"<td{_class(_kind(name), outcome if name == 'gap' else '')}>{_safe(word)}</td>"
        for name, word in zip(_HEADINGS, words, strict=True)
    )
    sentence = lines.sentence(row)
    why = (
        f'<tr class="why"><td></td><td colspan="{len(_HEADINGS) - 1}">{_safe(sentence)}</td></tr>\n' if sentence else ""
    )
    return f"<tr>{cells}</tr>\n{why}"


def _kind(heading: str) -> str:
    return "number" if heading in ("#", "gap") else ""


def _class(*names: str) -> str:
    joined = " ".join(name for name in names if name)
    return f' class="{joined}"' if joined else ""

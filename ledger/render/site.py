"""Renders everything that a repository can show into a folder of pages, which is never committed.

The report, a page for each seal, and the data under benchmarks/. The index also links the plots that
`ledger roofline -o` drew into the folder before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.book import Book
from ledger.analysis.tuning import FILE_SCHEMA
from ledger.canonical import parse_json
from ledger.errors import InputError
from ledger.record_files import read_bytes, write_atomically
from ledger.render import before_after_page, bench_page, timer_page, tuning_page
from ledger.render.html_page import html
from ledger.render.markdown_page import escape, markdown, page_name, seal_page, seals_table
from ledger.render.rules_page import rules_page


def write_site(book: Book, root: FilePath, folder: FilePath) -> list[FilePath]:
    """Write the pages of a ledger and of the benchmarks beside it; return their paths."""
    benchmarks = dict(_benchmark_pages(root / "benchmarks"))
    pages = {
        "index.md": _index(book, list(benchmarks), _plots(folder)),
        "report.md": markdown(book),
        "report.html": html(book),
        "rules.md": rules_page(book),
        **{f"predictions/{page_name(sealed)}": seal_page(sealed) for sealed in book.seals},
        **benchmarks,
    }
    for name, text in pages.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in pages]


def _plots(folder: FilePath) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("roofline.svg"))


def _index(book: Book, benchmarks: list[str], plots: list[str]) -> str:
    parts = [
        "# What the records say",
        "Rendered; not committed, and not evidence. Dates are the commits' own claims and prove nothing.",
        "[The report](report.md), also as [one HTML page](report.html). [Regimes under both rules](rules.md).",
        "## Seals",
        seals_table(book).rstrip(),
    ]
    if plots:
        parts += ["## Rooflines", _links(plots)]
    if benchmarks:
        parts += ["## Benchmarks", "Timed without a forecast; no evidence.", _links(benchmarks)]
    return "\n\n".join(parts) + "\n"


def _links(names: list[str]) -> str:
    return "\n".join(f"- [{escape(name)}]({name})" for name in names)


def _benchmark_pages(folder: FilePath) -> Iterator[tuple[str, str]]:
    """Yield the name and text of a page for each JSON file of a bench, of tuning or of a timer comparison.

    A file that names another schema has no page.
    """
    for path in sorted(folder.rglob("*.json")):
        page = _benchmark_page(parse_json(read_bytes(path), what=str(path)), str(path))
        if page is not None:
            yield f"benchmarks/{path.relative_to(folder).with_suffix('.md').as_posix()}", page


def _benchmark_page(document: Any, what: str) -> str | None:
    if not isinstance(document, dict):
        return None
    try:
        if document.get("schema") == FILE_SCHEMA:
            return tuning_page.render_markdown(document)
        if document.get("schema") == before_after_page.SCHEMA:
            return before_after_page.render_markdown(document)
        if "schema" in document:
            return None
        if "conditions" in document and "rows" in document:
            return bench_page.render_markdown(document)
        return timer_page.render_markdown(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{what}: {type(error).__name__}: {error}; expected a file of ledger bench or tune") from error

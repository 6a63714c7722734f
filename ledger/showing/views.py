"""Writes the rendered pages under docs/ and the tables between markers in ROOFLINE.md, in a commit of their own.

Views are rendered from the records and never read back; a page that the user is editing is left alone, by name.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.model.book import Book
from ledger.repository.repo import Repository
from ledger.showing.report import index_view, markdown, roofline_tables, update_markers


def write_views(repository: Repository, book: Book) -> Iterator[str]:
    """Commit the views that changed; yield a note for each page left alone."""
    pages = {"docs/report.md": markdown(book), "docs/predictions/index.md": index_view(book)}
    essay = repository.root / "ROOFLINE.md"
    if essay.is_file():
        text = essay.read_text(encoding="utf-8")
        for name, table in roofline_tables(book).items():
            if f"<!-- ledger:{name} -->" in text:
                text = update_markers(text, name, table)
        pages["ROOFLINE.md"] = text
    edited = set(repository.uncommitted(*pages))
    for path in sorted(edited):
        yield f"{path}: left alone, it has uncommitted changes; commit them and run: ledger report --render"
    fresh = {
        path: text.encode()
        for path, text in pages.items()
        if path not in edited and not _is_current(repository, path, text.encode())
    }
    if fresh:
        written = repository.commit(lambda _parent: (fresh, "Render the views\n"), replace=True)
        if written.index_note:
            yield written.index_note


def _is_current(repository: Repository, path: str, data: bytes) -> bool:
    file = repository.root / path
    return file.is_file() and file.read_bytes() == data

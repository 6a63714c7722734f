"""Writes HTML elements with escaped text. Pure. Every text of a record becomes harmless and escaped in `safe`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ledger.analysis.formatting import harmless


def safe(text: str) -> str:
    """Return text that a page shows as it is."""
    return escape(harmless(text), quote=True)


def tag(name: str, content: str = "", **attributes: str | None) -> str:
    """Return an element around content that is HTML already; `class_`, `data_key` become HTML's names.

    An attribute that is None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{safe(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>"


def listing(words: Iterable[str]) -> str:
    """Return a list of texts."""
    return tag("ul", "".join(tag("li", safe(line)) + "\n" for line in words))


def pairs(listed: Iterable[tuple[str, str]], **attributes: str) -> str:
    """Return a list of (name, text) pairs."""
    return tag("dl", "".join(tag("dt", safe(name)) + tag("dd", safe(text)) for name, text in listed), **attributes)


def table(headings: Sequence[str], body: Iterable[Sequence[str]], *, caption: str = "", left: int = 1) -> str:
    """Return a table of texts; all columns but the first `left` hold numbers."""
    kinds = [None if number < left else "number" for number in range(len(headings))]
    head = "".join(tag("th", safe(name), scope="col", class_=kind) for name, kind in zip(headings, kinds, strict=True))
    rows = "".join(
        tag("tr", "".join(tag("td", safe(word), class_=kind) for word, kind in zip(row, kinds, strict=True))) + "\n"
        for row in body
    )
    top = tag("caption", safe(caption)) if caption else ""
    return tag("div", tag("table", f"{top}<thead>{tag('tr', head)}</thead>\n<tbody>\n{rows}</tbody>"), class_="wide")


def folded(title: str, content: str, **attributes: str) -> str:
    """Return content that opens at a click, or with scripts off and a keyboard."""
    return tag("details", tag("summary", safe(title)) + content, **attributes) + "\n"

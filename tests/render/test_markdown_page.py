"""Tests that text of records opens no link in rendered Markdown."""

from __future__ import annotations

import pytest

from ledger.render.markdown_page import escape

markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed")

LINKS = [
    "www.example.org",
    "WWW.example.org/x",
    "(www.1.com)",
    "see ada@example.org",
    "a@@b.org",
    "mailto:ada@example.org",
    "xmpp:ada@example.org/x",
    "https://example.org",
    "ftp://example.org/x",
    "<https://example.org>",
    "[x](http://example.org)",
    "![x](http://example.org)",
    "[x]: http://example.org",
    "`@` www.a.b `x`",
    "example.org",
]
PLAIN = ["78.5% of 3.35 TB/s", "time 12.4 µs (12.3–12.6)", "regime/1: hbm-bound", "a sentence. Another", "v1.2.3"]


def texts(text: str) -> list[str]:
    """Return the text nodes that a parser sees, each of which a renderer may search for addresses."""
    tokens = markdown_it.MarkdownIt("commonmark").parse(escape(text))
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "text_special", "softbreak", "code_inline"}
    return [child.content for child in inline if child.type in ("text", "text_special")]


@pytest.mark.parametrize("text", LINKS)
def test_no_address_is_linked(text):
    # E-mail is looked for in the text that results, everything else in what is written.
    assert not any("@" in part for part in texts(text))
    written = escape(text).casefold()
    assert "www.e" not in written and "www.1" not in written and "://" not in written and "mailto:" not in written


@pytest.mark.parametrize("text", [*LINKS, *PLAIN])
def test_text_is_shown_as_it_is(text):
    tokens = markdown_it.MarkdownIt("commonmark").parse(escape(text))
    shown = "".join(child.content for token in tokens for child in token.children or ())
    assert shown == text


@pytest.mark.parametrize("text", PLAIN[:2])
def test_numbers_are_written_as_they_are(text):
    assert escape(text) == text

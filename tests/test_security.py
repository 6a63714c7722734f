"""Keeps the table of cases in docs/security.md equal to the corpus.

python tests/test_security.py    writes the table
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

from attacks import CASES

PAGE = Path(__file__).parent.parent / "docs" / "security.md"
BEGIN, END = "<!-- cases -->\n", "<!-- /cases -->"


def table() -> str:
    """Return the corpus as a table, with a line that counts it."""
    counts = Counter(case.outcome for case in CASES.values())
    words = ", ".join(f"{counts[o]} {o}" for o in ("refused", "undetermined", "flagged", "holds"))
    lines = [f"{len(CASES)} cases: {words}. None passes unseen and none runs a program.", ""]
    lines += ["| what it tries | case | outcome | code |", "|---|---|---|---|"]
    for case in CASES.values():
        code = f"`{case.code}`" if case.code else ""
        lines.append(f"| {case.row} | {case.name} | {case.outcome} | {code} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_the_corpus():
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0] == table()


def test_every_row_of_the_threats_has_cases():
    rows = Counter(case.row for case in CASES.values())
    assert set(rows) == {
        "time and order",
        "views of git that lie",
        "code execution on the auditor",
        "parsing and printing",
        "games with evidence",
        "keys and timestamps",
    }
    assert min(rows.values()) >= 9


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")

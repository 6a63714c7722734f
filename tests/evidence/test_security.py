"""Checks the corpus of attacks that docs/security.md speaks of; run as a program, it prints the corpus as a table.

python tests/evidence/test_security.py    prints the table
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

from attacks import CASES


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


def test_the_table_has_a_line_for_each_case():
    lines = table().splitlines()
    assert len(lines) == len(CASES) + 4
    assert [line.split(" | ")[1] for line in lines[4:]] == list(CASES)


def test_every_row_of_the_threats_has_cases():
    rows = Counter(case.row for case in CASES.values())
    assert set(rows) == {
        "time and order",
        "views of git that lie",
        "code execution on the auditor",
        "parsing and printing",
        "games with evidence",
        "keys and timestamps",
        "cost to the auditor",
        "sealed sources",
        "values of samples",
        "roofs",
    }
    assert min(rows.values()) >= 5


if __name__ == "__main__":
    print(table(), end="")

"""Checks the errors of sealed blind forecasts that the page of forecasters tells against the records."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from forecasters.evaluate import sealed

from ledger.cli.open_ledger import open_ledger

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/forecasters.md").read_text(encoding="utf-8")
CONTESTS = {
    "first": (None, "0fb9832d8e"), "second": ("0fb9832d8e", "31d9bc3d9b"), "third": ("31d9bc3d9b", "6df45f8e73"),
    "fourth": ("efadb2eb73", "db6884e068"), "fifth": ("db6884e068", "7d26efb087"),
    "sixth": ("7d26efb087", "d2b975e225"),
}  # fmt: skip
"""The seal before each contest, and its last one."""
GROUPS = {"this project's": "own", "torch's products": "torch", "other packages'": "packages"}
DEVICES = {"H100": "h100_sxm", "H200": "h200"}
NAMED = "first|second|third|fourth|fourth, all|fifth|sixth"
ROWS = re.findall(rf"^\| ({NAMED}) \| (H\d00), ([^,|]*)(?:, [^|]*)? \| `?(.*?)`? \| (.*) \|$", PAGE, re.MULTILINE)


@cache
def told() -> dict[tuple[str, str], list[str]]:
    """Return the figures of each contest, by device, group and forecaster."""
    book = open_ledger().book
    contests = {name: sealed(book, ("blind",), *seals) for name, seals in CONTESTS.items()}
    contests["fourth, all"] = sealed(book, ("blind", "near"), *CONTESTS["fourth"])
    return {(name, line[:44].strip()): line[44:].split() for name, lines in contests.items() for line in lines}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:4]))
def test_a_row_of_the_page_is_what_the_records_say(row: tuple[str, ...]):
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history")
    contest, device, group, forecaster, figures = row
    # A person is called by the name that signs commits.
    names = [key for key in told() if key[0] == contest and key[1].startswith(f"{DEVICES[device]} {GROUPS[group]} ")]
    (found,) = [
        key
        for key in names
        if (key[1].endswith(f" {forecaster}") if forecaster != "a person" else "maintainers" in key[1])
    ]
    assert [cell.strip().replace("–", "-") for cell in figures.split("|")] == told()[found]


def test_the_readme_names_the_best_program_of_the_fourth_and_sixth_contest():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for device in DEVICES:
        ours = {row[3]: row[4].split("|") for row in ROWS if row[:3] == ("fourth", device, "this project's")}
        best = min(ours, key=lambda name: float(ours[name][1]))
        cells, median = (ours[best][place].strip() for place in (0, 1))
        assert f"{cells} cells of an {device} by {median}%" in text
    others = [
        row[4].split("|") for row in ROWS if row[3] != "a person" and row[:3] == ("sixth", "H200", "other packages'")
    ]
    cells, median = (min(others, key=lambda row: float(row[1]))[place].strip() for place in (0, 1))
    assert f"of {cells} calls of other packages on an H200 by {median}%" in text

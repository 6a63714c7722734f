"""Tests which seal a shortened id names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ledger.analysis.book import Book
from ledger.errors import InputError, UnknownName
from ledger.workflow.select import claims_named, named, seal_named, select_claims
from ledger.workflow.withdraw import withdraw


def seal(start: str) -> Any:
    return SimpleNamespace(id=start.ljust(64, "0"))


def book() -> Book:
    """Return a ledger of two seals of claims, one of cells and one of a domain, whose ids begin alike."""
    claims = [
        SimpleNamespace(sealed=seal(f"4a1b{n}"), name=n, state="open", claim=SimpleNamespace(cell="c")) for n in "01"
    ]
    cell = SimpleNamespace(sealed=seal("4a1b2"), state="open", forecast=SimpleNamespace(cell="c"))
    seals = (*(one.sealed for one in claims), cell.sealed, seal("4a1b3"))
    parts: dict[str, Any] = {"cells": (cell,), "claims": tuple(claims), "seals": seals}
    return Book(head="", records=(), voids=(), findings=(), **parts)


@pytest.mark.parametrize("prefix", ["4a1b", "4a1", "", "4a1b4", "4a1b#c"])
def test_a_name_that_fits_no_seal_or_several_is_refused(prefix: str) -> None:
    for choose in (named, claims_named, lambda book, name: select_claims(book, [name])):
        with pytest.raises(UnknownName, match="four or more digits that name one"):
            choose(book(), prefix)
    # No record is made of a name that fits several.
    with pytest.raises(UnknownName):
        withdraw(None, book(), prefix, "withdrawn")  # type: ignore[arg-type]


def test_a_name_that_fits_one_seal_names_what_it_holds() -> None:
    assert [claim.name for claim in claims_named(book(), "4a1b1")] == ["1"]
    assert claims_named(book(), "4a1b2") == [] == claims_named(book(), "4a1b1#d")
    assert [cell.forecast.cell for cell in named(book(), "4a1b2#c")] == ["c"]
    assert seal_named(book(), "4a1b3").startswith("4a1b3")
    for name in ("4a1b3", "4a1b0"):
        with pytest.raises(InputError, match="holds no cell"):
            named(book(), name)

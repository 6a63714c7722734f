"""Tests the file that says what the texts of old seals tell of earlier timings."""

from __future__ import annotations

import pytest
from samples import make_forecast, make_sealed

from ledger.analysis.sight_notes import SightNotes, parse_notes
from ledger.errors import RecordError

ONE = make_forecast(shape={"B": 1, "H": 64, "O": 64}, why="3.1 µs in development")
TWO = make_forecast(shape={"B": 2, "H": 64, "O": 64})
SEALED = make_sealed(ONE, TWO, why="Neighbours were timed")


def notes(**changes) -> SightNotes:
    note = {"seal": SEALED.id[:10], "sight": "informed", "quote": "3.1 µs in development", "cells": [ONE.cell]}
    return parse_notes({"notes": [{key: value for key, value in {**note, **changes}.items() if value is not None}]})


def test_a_quote_of_a_cell_is_found_in_its_reason():
    found, unfounded = notes().about(SEALED)
    assert ([*found], unfounded) == ([ONE.cell], [])
    assert found[ONE.cell][0].source == "the seal"


def test_a_quote_of_the_seal_holds_for_all_cells():
    found, unfounded = notes(cells=None, sight="near", quote="Neighbours were").about(SEALED)
    assert ([*found], unfounded) == ([ONE.cell, TWO.cell], [])


def test_a_quote_from_a_file_names_commit_and_path():
    value = {"seal": SEALED.id, "sight": "near", "quote": "29.4 µs in a bench", "commit": "ab" * 5, "path": "docs/x.md"}
    held, unfounded = parse_notes({"notes": [value]}, lambda note: note.path == "docs/x.md").about(SEALED)
    assert held[ONE.cell][0].source == "docs/x.md at commit ababababab" and not unfounded
    missing, unfounded = parse_notes({"notes": [value]}, lambda _note: False).about(SEALED)
    assert not missing and unfounded[0].startswith("docs/x.md at commit ababababab does not say")


@pytest.mark.parametrize(
    "changes",
    [{"quote": "never said"}, {"cells": [ONE.cell, TWO.cell]}, {"cells": [ONE.cell, "nothing-B1"]}],
    ids=["not said", "not said of one", "no such cell"],
)
def test_what_is_not_said_is_unfounded(changes):
    found, unfounded = notes(**changes).about(SEALED)
    assert len(unfounded) == 1 and TWO.cell not in found


def test_notes_on_other_seals_say_nothing():
    assert notes(seal="0123456789").about(SEALED) == ({}, [])
    assert notes(seal=SEALED.id[:10] + "f" * 54).about(SEALED) == ({}, [])


@pytest.mark.parametrize(
    "changes",
    [{"sight": "blind"}, {"commit": "ab" * 5}, {"path": "x"}, {"quote": "short"}, {"seal": "abc"}, {"cells": []}],
    ids=["blind", "no path", "no commit", "short", "short id", "no cells"],
)
def test_a_note_takes_sight_away_and_says_where_it_stands(changes):
    with pytest.raises(RecordError, match=r"campaigns/sight\.yaml"):
        notes(**changes)

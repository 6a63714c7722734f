"""Tests the questions that a person is asked about what had been timed before."""

from __future__ import annotations

import io

import pytest

from ledger.cli.prompts import sight


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("\n", {"sight": None, "known": ""}),
        ("blind\n", {"sight": "blind", "known": ""}),
        ("half\nnear\n\nM=48 took 90 µs\n", {"sight": "near", "known": "M=48 took 90 µs"}),
    ],
    ids=["undeclared", "blind", "asked again"],
)
def test_what_had_been_timed_is_asked_for(answers, said, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    assert sight() == said

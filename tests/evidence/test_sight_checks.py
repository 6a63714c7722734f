"""Tests the sight of cells: what is declared, what notes say, and what records of the history show."""

from __future__ import annotations

import time

import builders
import pytest
from builders import KERNEL_SOURCE, Ledger, forecast
from samples import callable_case, make_forecast, make_measurement

from ledger.analysis.book import Commit, Recorded
from ledger.analysis.sight import Devices
from ledger.analysis.sight_notes import parse_notes
from ledger.evidence.known_cases import KnownCases
from ledger.evidence.sight_checks import CONTRADICTED, UNFOUNDED, read_notes
from ledger.git.ancestry import FileSet
from ledger.git.reader import Reader, quiet_environment
from ledger.records import Forecast


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(builders, "VERSION", 2)
    made = Ledger(tmp_path / "ledger")
    made.write("README.md", b"a project\n")
    made.commit("begin")
    return made


def declared(sight: str | None, **changes) -> Forecast:
    known = "" if sight in (None, "blind") else "a neighbour"
    return forecast(**changes).model_copy(update={"sight": sight, "known": known})


def contradictions(ledger: Ledger) -> list[str]:
    return [finding.message for finding in ledger.book().findings if finding.code == CONTRADICTED]


def test_a_declared_sight_stands_where_no_record_disproves_it(ledger):
    ledger.measure(ledger.seal(declared("blind", B=1)))
    ledger.seal(declared("blind", B=16), declared("near", B=2), declared("informed", B=3), declared(None, B=4))
    cells = ledger.book().cells
    assert [cell.sight for cell in cells] == ["blind", "blind", "near", "informed", None]
    assert [cell.blind for cell in cells] == [True, True, False, False, True]
    assert cells[2].known == "a neighbour"
    assert not ledger.book().findings


def test_a_contradiction_names_the_record_and_what_the_cell_counts_as(ledger):
    path = ledger.measure(ledger.seal(declared("blind")))
    later = ledger.seal(declared("blind"), declared("blind", B=2))
    same, near = contradictions(ledger)
    words = f"declares blind, yet {path} holds a time of rmsnorm_matmul B=4,H=64,O=32 fp16, not after it"
    assert same == f"{later.forecast.cell} {words}: it counts as informed"
    assert near.endswith("it counts as near")
    assert [cell.sight for cell in ledger.book().cells] == ["blind", "informed", "near"]


def test_a_record_after_the_seal_shows_nothing(ledger):
    first, second = ledger.seal(declared("blind")), ledger.seal(declared("blind", B=5))
    ledger.measure(first)
    ledger.measure(second)
    assert not contradictions(ledger)


def test_a_parallel_record_may_have_been_known(ledger):
    base = ledger.head
    ledger.switch("known", base)
    ledger.measure(ledger.seal(declared("blind", B=5)))
    ledger.switch("guess", base)
    ledger.seal(declared("blind"))
    ledger.switch("main")
    ledger.merge("known", "guess")
    assert len(contradictions(ledger)) == 1


def test_an_undeclared_cell_is_asked_for_its_own_records_alone(ledger):
    ledger.measure(ledger.seal(declared(None)))
    digest = ledger.put_kernel(KERNEL_SOURCE + b"# new\n")
    other = declared(None).model_copy(update={"kernel_sha256": digest})
    ledger.seal(declared(None, B=5), declared(None))
    ledger.seal(other)
    assert [cell.sight for cell in ledger.book().cells] == [None, None, "informed", "near"]
    assert not ledger.book().findings


def test_notes_lower_an_undeclared_sight_and_are_shown(ledger):
    """A declared one stays: else an author could move a miss out of the blind scores after it was measured."""
    sealed = ledger.seal(declared(None), declared("blind", B=64), why="All were timed in development")
    note = {"seal": sealed.id, "sight": "informed", "quote": "timed in development"}
    book = ledger.book(notes=parse_notes({"notes": [note]}))
    assert [cell.sight for cell in book.cells] == ["informed", "blind"]
    assert book.cells[0].corrections == (("timed in development", "the seal"),)
    (finding,) = book.findings
    assert (finding.code, "they keep it" in finding.message) == (UNFOUNDED, True)


@pytest.mark.parametrize("named", ["the file", "another file", "no commit"])
def test_a_quote_from_a_file_counts_only_where_the_file_holds_it(ledger, named):
    ledger.write("docs/times.md", b"| vector_add | 29.4 |\n")
    commit = ledger.commit() if named != "no commit" else "0" * 40
    sealed = ledger.seal(declared(None))
    path = "README.md" if named == "another file" else "docs/times.md"
    note = f'seal: "{sealed.id}", sight: near, quote: "vector_add | 29.4", commit: "{commit}", path: {path}'
    ledger.write("campaigns/sight.yaml", f"notes: [{{{note}}}]\n".encode())
    ledger.commit()
    reader = Reader(ledger.root / ".git", quiet_environment())
    with reader.blobs() as blobs:
        book = ledger.book(notes=read_notes(reader, ledger.head, blobs.read))
    assert [cell.sight for cell in book.cells] == ["near" if named == "the file" else None]
    assert [finding.code for finding in book.findings] == ([] if named == "the file" else [UNFOUNDED])


def test_notes_are_read_from_the_commit(ledger):
    reader = Reader(ledger.root / ".git", quiet_environment())

    def problem() -> str | None:
        with reader.blobs() as blobs:
            return read_notes(reader, ledger.head, blobs.read).problem

    assert problem() is None
    ledger.write("campaigns/sight.yaml", b"notes: []\n")
    assert problem() is None
    ledger.commit()
    assert problem() is None
    ledger.write("campaigns/sight.yaml", b"notes: [{seal: 1}]\n")
    ledger.commit()
    assert "nothing of it counts" in (problem() or "")


def test_a_callable_with_far_sizes_in_its_arguments_is_not_near():
    known = KnownCases(Devices([]), lambda _positions: FileSet(0, 0), lambda _seal: 0)
    made = {size: make_forecast(case=callable_case(f"x=fp16[B,{size}]", B=256)) for size in (64, 128, 1024)}
    commit = Commit(sha="1" * 40, when="", author="", position=0)
    known.add(Recorded("wide", "wide", commit, make_measurement(made[1024])), made[1024].operation, (0,))
    assert known.disproof(made[64], "seal", "blind") is None
    known.add(Recorded("twice", "twice", commit, make_measurement(made[128])), made[128].operation, (0,))
    shown = known.disproof(made[64], "seal", "blind")
    assert shown is not None and (shown.sight, shown.path) == ("near", "twice")
    same = known.disproof(made[1024], "seal", "near")
    assert same is not None and (same.sight, same.path) == ("informed", "wide")


def test_thousands_of_shapes_are_compared_in_seconds():
    """No shape is near another: each question looks at all of them."""
    known = KnownCases(Devices([]), lambda _positions: FileSet(1, 0), lambda _seal: 0)
    made = [make_forecast(shape={"B": number, "H": 64, "O": 64}) for number in range(1, 3_001)]
    for position, one in enumerate(made):
        commit = Commit(sha="1" * 40, when="", author="", position=position)
        known.add(Recorded(f"{position}", f"{position}", commit, make_measurement(one)), one.operation, (position,))
    begun = time.monotonic()
    assert not any(known.disproof(one, "seal", "blind") for one in made)
    assert time.monotonic() - begun < 20

"""Tests what is drawn from a domain, and what gives level 5."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import builders
import draw_attacks
import pytest
from attacks import CASES, begin  # noqa: F401  (first: the draws enter themselves into its corpus)
from draw_attacks import SECRET, domain, drawn_by_a_secret, drawn_by_drand, pulse_of

from ledger.analysis.draws import commitment_to, contradictions, domain_size, drawn_cells, randomness_of
from ledger.errors import InputError
from ledger.evidence.audit import audit
from ledger.evidence.draw_checks import with_draws
from ledger.records import Beacon, SizeRange

SEAL = "ab" * 32


@pytest.fixture(autouse=True)
def _version_2(monkeypatch):
    monkeypatch.setattr(builders, "VERSION", 2)


def test_a_draw_is_what_the_page_of_the_format_says():
    """By hand: SHA-256 over the domain, the seal, the randomness, the draw's number and the field's."""
    found = drawn_cells(domain(), SEAL, b"r" * 32)
    seed = b"ledger/draw/v1\0" + bytes.fromhex(SEAL) + b"r" * 32
    wanted = []
    for number in range(3):
        words = seed + number.to_bytes(8, "big") + (1).to_bytes(8, "big")
        wanted.append(1 + int.from_bytes(hashlib.sha256(words).digest(), "big") % 100)
    assert [dict(sizes) for _, sizes in found] == [{"B": size, "H": 64, "O": 32} for size in wanted]
    assert {dtype for dtype, _ in found} == {"fp16"}


def test_draws_are_distinct_spread_and_within_the_domain():
    sizes = {"M": SizeRange(low=10, high=100, multiple_of=8), "N": SizeRange(low=1, high=4, multiple_of=1)}
    declared = domain(dtypes=("fp16", "bf16"), sizes=sizes, cells=40)
    assert domain_size(declared) == 2 * 11 * 4
    found = drawn_cells(declared, SEAL, b"r" * 32)
    assert len(set(found)) == 40
    assert {dict(cell)["M"] for _, cell in found} <= set(range(16, 97, 8))
    assert {dtype for dtype, _ in found} == {"fp16", "bf16"}
    assert {dict(cell)["N"] for _, cell in found} == {1, 2, 3, 4}
    assert drawn_cells(declared, "cd" * 32, b"r" * 32) != found != drawn_cells(declared, SEAL, b"s" * 32)


def test_a_domain_holds_twice_what_is_drawn():
    with pytest.raises(InputError, match="expected twice"):
        drawn_cells(domain(cells=51), SEAL, b"")
    assert contradictions(domain(cells=51)) and not contradictions(domain(cells=50))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"beacon": None}, "expected one of them"),
        ({"auditor_sha256": "aa" * 32}, "expected one of them"),
        ({"beacon": Beacon(sealed_at="2023-08-23T15:49:24Z", delay_s=603, round=1000)}, "give 1001"),
        ({"deadline": "2023-08-23T15:59:24Z"}, "deadline before the draw"),
        ({"deadline": "2023-02-30T00:00:00Z"}, "moment"),
    ],
)
def test_what_contradicts_itself_in_a_domain(changes, word):
    assert word in " ".join(contradictions(domain(**changes)))


def test_nothing_of_the_randomness_follows_from_the_commitment():
    assert commitment_to(SECRET) != randomness_of(pulse_of(None)).hex()


def test_level_5_by_a_secret_needs_the_auditor_who_gave_it(tmp_path):
    folder = drawn_by_a_secret(tmp_path / "ledger", tmp_path / "canary")
    mine = audit(str(folder), challenge=SECRET)
    assert mine.verdict == "holds" and mine.book is not None and mine.answers is not None
    assert [cell.levels for cell in mine.book.cells] == [(0, 1, 5)] * 3
    assert [one.proven for one in mine.answers] == [True] * 3
    for other in (audit(str(folder), recomputed=True), audit(str(folder), challenge="a text of somebody else")):
        assert other.verdict == "holds" and other.book is not None
        assert [cell.levels for cell in other.book.cells] == [(0, 1)] * 3
        assert any("did not give its secret" in note for note in other.notes)


def test_level_5_by_a_round_needs_a_trusted_time_before_it(tmp_path):
    pytest.importorskip("py_ecc", reason="py_ecc is not installed")
    folder = drawn_by_drand(tmp_path / "ledger", tmp_path / "canary")
    audited = audit(str(folder), recomputed=True)
    book = audited.book
    assert book is not None and [cell.levels for cell in book.cells] == [(0, 1)] * 3
    assert any("no authority that the auditor trusts stamped" in note for note in audited.notes)
    (one,) = book.drawn
    before = datetime(2023, 8, 23, 15, 59, 23, tzinfo=UTC)
    granted, told = with_draws(book, book.drawn, {one.origin.id: before}, None)
    assert [cell.levels for cell in granted.cells] == [(0, 1, 5)] * 3 and not told
    late, told = with_draws(book, book.drawn, {one.origin.id: before.replace(second=24)}, None)
    assert [cell.levels for cell in late.cells] == [(0, 1)] * 3
    assert [finding.code for finding in late.findings if finding.code == "draw-late"] and told
    # A measurement that was stamped after the deadline is late, whatever it says of itself.
    stamped = {one.origin.id: before, book.cells[0].runs[0].recorded.id: datetime(2026, 12, 2, tzinfo=UTC)}
    partly, _ = with_draws(book, book.drawn, stamped, None)
    assert [cell.levels for cell in partly.cells] == [(0, 1), (0, 1, 5), (0, 1, 5)]


def test_a_refused_domain_gives_no_level_5(tmp_path):
    ledger = begin(tmp_path / "ledger")
    origin = draw_attacks.declare(ledger, domain(**draw_attacks.by_secret()), forecaster="other")
    cells = draw_attacks.drawn(origin, pulse_of(None))
    draw_attacks.measure_all(ledger, draw_attacks.answer(ledger, pulse_of(None), cells, forecaster="other"))
    found = audit(str(ledger.root), challenge=SECRET)
    assert found.verdict == "refused" and found.book is not None
    assert [cell.levels for cell in found.book.cells] == [(0, 1)] * 3


def test_a_refused_measurement_that_is_late_stays_refused(tmp_path):
    ledger = begin(tmp_path / "ledger")
    origin = draw_attacks.declare(ledger, domain())
    sealed = draw_attacks.answer(ledger, pulse_of(), draw_attacks.drawn(origin, pulse_of()))
    draw_attacks.measure_all(ledger, sealed, anchor=None, started_at="2026-12-01T00:00:01Z")
    assert {cell.state for cell in ledger.book().cells} == {"refused"}


def test_nothing_is_drawn_for_a_seal_of_too_few_cells(tmp_path, monkeypatch):
    from ledger.evidence import draw_checks

    folder = draw_attacks.drawn_cell_left_out(tmp_path / "ledger", tmp_path / "canary")
    monkeypatch.setattr(draw_checks, "drawn_cells", None)
    assert {finding.code for finding in audit(str(folder)).findings} == {"draw-incomplete"}


def test_an_open_domain_is_a_note(tmp_path):
    ledger = begin(tmp_path / "ledger")
    draw_attacks.declare(ledger, domain())
    assert [(one.code, one.severity) for one in ledger.book().findings] == [("draw-unanswered", "note")]


def test_what_is_measured_too_late_counts_as_missed(tmp_path):
    from ledger.analysis.score import score_book

    folder = draw_attacks.drawn_cell_measured_after_its_deadline(tmp_path / "ledger", tmp_path / "canary")
    book = audit(str(folder)).book
    assert book is not None and {cell.state for cell in book.cells} == {"missed"}
    (score,) = score_book(book)
    assert (score.sealed, score.measured) == (3, 0)

"""Tests hidden forecasts as a person handles them: kept, revealed, lost, damaged, and never shown before."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import builders
import pytest
from builders import toy_draft
from hidden_attacks import hide as hidden_seal
from hidden_attacks import reveal as reveal_all
from hidden_attacks import two

from ledger.analysis.report_rows import document
from ledger.analysis.score import score_book
from ledger.canonical import encode
from ledger.errors import EvidenceRefused, InputError, StateError
from ledger.git.commit import Repository
from ledger.workflow import hidden
from ledger.workflow.seal import SealedCommit, seal
from ledger.workflow.select import select


def sealed_hidden(repository: Repository, *sizes: int) -> SealedCommit:
    drafts = [toy_draft(B=size, why="a secret reason") for size in sizes]
    return seal(repository, drafts, hide=lambda forecasts, name: hidden.hide(repository, forecasts, name))


def test_a_hidden_forecast_is_kept_for_its_owner_alone_and_revealed_as_it_was_sealed(ledger):
    repository = Repository(ledger.root)
    done = sealed_hidden(repository, 4, 8)
    folder = hidden.vault(repository)
    kept = sorted(folder.iterdir())
    assert len(kept) == 2 and not ledger.git("status", "--porcelain")
    if os.name == "posix":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    committed = ledger.git("show", f"HEAD:{done.path}")
    assert "secret" not in committed and "percent_milli" not in committed and '"regime"' not in committed
    book = ledger.book()
    assert [view.state for view in book.hidden] == ["hidden", "hidden"] and not book.cells and not book.refused
    opened, lost = hidden.openings(folder, hidden.chosen(book, []))
    assert not lost
    hidden.reveal(repository, opened)
    book = ledger.book()
    assert not book.refused and not book.hidden
    assert [(view.forecast.percent_milli, view.forecast.why) for view in book.cells] == [(1000, "a secret reason")] * 2
    with pytest.raises(InputError, match="no forecast here is hidden"):
        hidden.chosen(book, [])


def test_a_reveal_that_no_record_could_hold_is_committed_in_parts(ledger, monkeypatch):
    repository = Repository(ledger.root)
    sealed_hidden(repository, 4, 8, 16)
    opened, _ = hidden.openings(hidden.vault(repository), hidden.chosen(ledger.book(), []))
    (parts,) = opened.values()
    monkeypatch.setattr("ledger.workflow.hidden.MAX_RECORD_BYTES", 4 * len(encode(parts[0])) + 100)
    made = hidden.reveal(repository, opened)
    assert [len(one.reveal.openings) for one in ledger.book().reveals] == [2, 1] and len(made) == 2
    assert not ledger.book().hidden and not ledger.book().refused


def test_one_cell_of_a_hidden_campaign_may_be_revealed_and_the_rest_counts_as_missing(ledger):
    repository = Repository(ledger.root)
    done = sealed_hidden(repository, 4, 8)
    first = ledger.book().hidden[0]
    opened, _ = hidden.openings(hidden.vault(repository), hidden.chosen(ledger.book(), [first.short_name]))
    hidden.reveal(repository, opened)
    book = ledger.book()
    assert [view.forecast.cell for view in book.cells] == [first.forecast.cell] and len(book.hidden) == 1
    (score,) = score_book(book)
    assert (score.sealed, score.measured) == (2, 0)
    assert {row["state"] for row in document(book)["missing"]} == {"open", "hidden"}
    assert done.id == book.seals[0].id


def test_a_lost_text_cannot_be_revealed_and_is_named(ledger):
    repository = Repository(ledger.root)
    sealed_hidden(repository, 4, 8)
    folder = hidden.vault(repository)
    next(folder.iterdir()).unlink()
    opened, lost = hidden.openings(folder, hidden.chosen(ledger.book(), []))
    assert len(lost) == 1 and sum(map(len, opened.values())) == 1
    # A copy of the folder serves as well as the folder; an empty one has nothing.
    assert len(hidden.openings(ledger.root, hidden.chosen(ledger.book(), []))[1]) == 2


def test_a_damaged_text_is_refused_before_anything_is_committed(ledger):
    repository = Repository(ledger.root)
    sealed_hidden(repository, 4)
    path = next(hidden.vault(repository).iterdir())
    path.write_bytes(path.read_bytes().replace(b'"percent_milli":1000', b'"percent_milli":2000'))
    with pytest.raises(InputError, match="does not open"):
        hidden.openings(path.parent, hidden.chosen(ledger.book(), []))


def test_nothing_is_sealed_where_the_text_cannot_be_kept(ledger):
    repository = Repository(ledger.root)
    (Path(repository.common_dir) / "ledger").write_text("in the way")
    with pytest.raises(StateError, match="nothing is sealed"):
        sealed_hidden(repository, 4)
    assert not ledger.git("ls-files", "predictions")


def test_a_hidden_cell_is_measured_when_it_is_named_once_and_has_no_verdict_until_it_is_revealed(ledger):
    sealed = hidden_seal(ledger, *two())
    book = ledger.book()
    assert not select(book, [])
    named = select(book, [sealed.id[:10]])
    assert [view.forecast.cell for view in named] == [one.cell for one in sealed.prediction.cells]
    ledger.measure(sealed, cell=0)
    book = ledger.book()
    assert not book.cells and not book.refused and len(book.records) == 1 and not document(book)["rows"]
    with pytest.raises(EvidenceRefused, match="measured already"):
        select(book, [sealed.id[:10]])
    reveal_all(ledger, sealed)
    (first, second) = ledger.book().cells
    assert (first.state, second.state) == ("measured", "open") and first.counted is not None
    assert first.counted.verification.predicted_percent == first.forecast.percent_milli / 1000


def test_a_case_that_another_measured_scores_the_hidden_forecast_once_it_is_revealed(ledger):
    theirs = hidden_seal(ledger, builders.forecast(percent_milli=2_000), forecaster="Grace")
    ledger.measure(ledger.seal(forecaster="Ada"))
    assert {(one.forecaster, one.sealed, one.measured) for one in score_book(ledger.book())} == {
        ("Ada", 1, 1), ("Grace", 1, 0),
    }  # fmt: skip
    reveal_all(ledger, theirs)
    assert {(one.forecaster, one.sealed, one.measured) for one in score_book(ledger.book())} == {
        ("Ada", 1, 1), ("Grace", 1, 1),
    }  # fmt: skip

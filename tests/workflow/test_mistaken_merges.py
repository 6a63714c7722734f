"""Tests that nothing is sealed after a merge or a revert that no ledger survives, and what is said of it."""

from __future__ import annotations

import pytest
from builders import Ledger, forecast, toy_draft

from ledger.errors import EvidenceRefused
from ledger.git.commit import Repository
from ledger.workflow.seal import seal


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    made = Ledger(tmp_path / "ledger")
    made.write("README.md", b"a project\n")
    made.commit("begin")
    for key, value in (("user.name", "A"), ("user.email", "a@example.org")):
        made.git("config", key, value)
    made.seal(forecast(B=1))
    return made


def sealed(ledger: Ledger) -> str:
    return seal(Repository(ledger.root), [toy_draft()]).commit


def test_after_a_squash_of_two_seals_none_is_sealed_until_it_is_undone(ledger: Ledger):
    ledger.git("checkout", "--quiet", "-b", "side")
    ledger.seal(forecast(B=2))
    ledger.seal(forecast(B=3))
    ledger.git("checkout", "--quiet", "main")
    before = ledger.head
    ledger.git("merge", "--quiet", "--squash", "side")
    ledger.commit("squashed")
    squashed = ledger.head
    with pytest.raises(EvidenceRefused, match=f"commit {squashed[:12]}: adds 2 seals, as a squash.* merge commit"):
        sealed(ledger)
    assert ledger.head == squashed
    assert "undo a squash, and merge branches with a merge commit" in ledger.book().refused[0].message
    ledger.git("reset", "--quiet", "--hard", before)
    ledger.seal(forecast(B=4))
    ledger.git("merge", "--quiet", "--no-ff", "-m", "merged", "side")
    sealed(ledger)
    assert not ledger.book().refused and len(ledger.book().seals) == 5


def test_after_the_revert_of_a_seal_none_is_sealed_until_it_is_undone(ledger: Ledger):
    gone = ledger.seal(forecast(B=2))
    ledger.git("revert", "--no-edit", "HEAD")
    with pytest.raises(EvidenceRefused, match=f"{gone.path}: was sealed and is not in commit .* undo what removed it"):
        sealed(ledger)
    assert any("undo that commit; ledger void" in one.message for one in ledger.book().refused)


def test_a_rebase_is_named_where_the_chain_misses_a_seal(ledger: Ledger):
    ledger.git("checkout", "--quiet", "-b", "side")
    ledger.seal(forecast(B=2))
    ledger.git("checkout", "--quiet", "main")
    ledger.seal(forecast(B=3))
    ledger.git("checkout", "--quiet", "side")
    ledger.git("rebase", "--quiet", "main")
    assert ["as after a rebase" in one.message for one in ledger.book().refused] == [True]

"""Tests what the graph says of files introduced before a commit, against a walk that knows no shortcut."""

from __future__ import annotations

import random

import pytest

from ledger.errors import BudgetExceeded
from ledger.git.ancestry import Ancestry
from ledger.git.history import History


def history(parents: list[tuple[int, ...]]) -> History:
    return History("head", (), tuple(parents), lambda: (), {})


def ancestors(parents: list[tuple[int, ...]], position: int) -> set[int]:
    found: set[int] = set()
    waiting = list(parents[position])
    while waiting:
        parent = waiting.pop()
        if parent not in found:
            found.add(parent)
            waiting += parents[parent]
    return found


@pytest.mark.parametrize("seed", range(60))
def test_ancestry_agrees_with_a_plain_walk(seed):
    """Random graphs with forks, merges of two or three, several roots, and files that came in more than once."""
    chance = random.Random(seed)
    parents: list[tuple[int, ...]] = [()]
    for position in range(1, 40):
        sides = chance.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))
        near = range(max(0, position - 4), position)
        parents.append(tuple(chance.sample(near, min(sides, len(near)))))
    introduced = {f"file {n}": tuple(chance.sample(range(40), chance.choice((1, 1, 1, 2)))) for n in range(30)}
    paths = [path for path in introduced if not path.endswith("7")]
    ancestry = Ancestry(history(parents), introduced, paths)
    wanted = [place for places in introduced.values() for place in places]
    for position in chance.sample(wanted, len(wanted)):
        before = ancestors(parents, position)
        held = {path for path in paths if before & set(introduced[path])}
        assert ancestry.before(position) == sum(ancestry.bit(path) for path in held)
        assert {path for path in introduced if ancestry.precedes(path, [position])} == held
    for path in paths:
        assert not ancestry.precedes(path, [])
        assert ancestry.precedes(path, wanted) == all(ancestry.precedes(path, [place]) for place in wanted)


def test_a_commit_that_brought_no_file_knows_of_none():
    ancestry = Ancestry(history([(), (0,)]), {"file": (0,)}, ["file"])
    assert ancestry.before(1) == 0
    assert not ancestry.precedes("file", [1])


def test_a_set_of_a_straight_history_is_a_number():
    """Memory grows with the branches that are open at a time, not with the length of the history."""
    length = 500
    introduced = {f"file {n}": (n,) for n in range(length)}
    straight = Ancestry(history([(), *((n,) for n in range(length - 1))]), introduced, introduced)
    assert {kept.rest for kept in straight._before.values()} == {0}
    assert straight.before(length - 1).bit_count() == length - 1


def test_a_set_of_a_history_of_merged_branches_is_short():
    """Each record comes on a branch of its own that is merged at once, as pull requests do."""
    parents: list[tuple[int, ...]] = [()]
    for _ in range(300):
        parents += [(len(parents) - 1,), (len(parents) - 1, len(parents))]
    introduced = {f"file {n}": (2 * n + 1,) for n in range(300)}
    merged = Ancestry(history(parents), introduced, introduced)
    assert max(kept.rest.bit_length() for kept in merged._before.values()) <= 1
    assert merged.before(599).bit_count() == 299


def test_sets_beyond_the_budget_are_refused(monkeypatch):
    """Many branches that stay open, each with a record of its own: a set for each."""
    monkeypatch.setattr("ledger.git.ancestry.MAX_SET_BYTES", 10_000)
    width = 1000
    parents: list[tuple[int, ...]] = [(), *((0,) for _ in range(width)), tuple(range(1, width + 1))]
    introduced = {f"file {n}": (n + 1,) for n in range(width)}
    with pytest.raises(BudgetExceeded):
        Ancestry(history(parents), introduced, introduced)
    few = dict(list(introduced.items())[:50])
    assert Ancestry(history(parents), few, few, wanted=[width + 1]).before(width + 1).bit_count() == 50


def test_files_before_several_commits_are_those_before_each():
    ancestry = Ancestry(history([(), (0,), (1,), (1,)]), {"a": (0,), "b": (2,), "c": (3,)}, "abc")
    for files in ("a", ""):
        found = ancestry.before_all([2, 3] if files else [])
        assert {name for name in "abc" if found.holds(ancestry.number(name))} == set(files)

"""Refuses every submission of the corpus with its symptom, and measures each honest twin."""

import pytest
from cheats import HONEST, PAIRS, UNSEALED
from covering import covering, one_in
from submissions import Submission, order_for, outcome_of

from ledger.errors import InputError

TWINS = {twin.twin: twin for twin in reversed(PAIRS)}
# One cheat for each refusal; the others are exhaustive.
CHEATS = [
    pytest.param(pair, id=pair.name, marks=() if kept else pytest.mark.exhaustive)
    for pair, kept in zip(PAIRS, covering([(pair.said,) for pair in PAIRS], together=1), strict=True)
]


@pytest.mark.parametrize("pair", CHEATS)
def test_a_cheat_is_refused_with_its_symptom(pair, tmp_path):
    found = outcome_of(pair.submission(pair.cheat), tmp_path)
    assert found["failure"] is not None
    assert found["timing"] is None
    assert pair.said in found["failure"]
    assert "expected" in found["failure"] or "Recompil" in found["failure"]


@pytest.mark.parametrize("pair", one_in(4, TWINS.values(), lambda pair: f"twin-of-{pair.name}"))
def test_its_honest_twin_is_measured(pair, tmp_path):
    found = outcome_of(pair.submission(pair.twin), tmp_path)
    assert found["failure"] is None
    assert found["timing"]["median_ps"] > 0


def test_the_corpus_is_large_and_each_cheat_is_another():
    assert len({pair.cheat for pair in PAIRS}) == len(PAIRS) >= 40
    assert HONEST in TWINS


@pytest.mark.parametrize("source", UNSEALED, ids=["sys.modules", "builtins"])
def test_what_the_seal_cannot_cover_is_refused_before(source, tmp_path):
    with pytest.raises(InputError, match="expected import statements only"):
        order_for(Submission(source), tmp_path)

"""Tests the ranking: by hand, against a general least-squares fit, and on simulated forecasters of known skill."""

from __future__ import annotations

import time

import numpy as np
import pytest
from simulated_forecasters import NAMES, trials

from ledger.analysis.ranking import Loss, rank


def loss(forecaster: str, cell: int, value: float, kernel: str = "k") -> Loss:
    return Loss(forecaster, f"c{cell}", kernel, value)


def test_shared_cells_rank_by_mean_loss():
    # Means 0.2 and 0.4: each is 0.1 from the middle.
    found = rank([loss("a", 1, 0.1), loss("a", 2, 0.3), loss("b", 1, 0.5), loss("b", 2, 0.3)])
    assert [(row.forecaster, row.rank, row.cells, row.loss) for row in found.rows] == [
        ("a", 1, 2, pytest.approx(0.2)), ("b", 2, 2, pytest.approx(0.4)),
    ]  # fmt: skip
    assert [row.peer_score for row in found.rows] == pytest.approx([0.1, -0.1])
    # Two cells give no interval, so no probability either.
    assert found.order is None and found.rows[0].ahead_of_next is None and found.resampled is None


def test_who_takes_the_hard_cells_is_not_worse_for_it():
    """b forecasts the ten hard cells alone with c; a the ten easy ones: b beats c by as much as a does."""
    losses = [loss("a", cell, 0.1) for cell in range(10)] + [loss("c", cell, 0.2) for cell in range(10)]
    losses += [loss("b", cell, 0.8) for cell in range(10, 20)] + [loss("c", cell, 1.0) for cell in range(10, 20)]
    found = rank(losses)
    assert [row.forecaster for row in found.rows] == ["b", "a", "c"]
    scores = {row.forecaster: row.peer_score for row in found.rows}
    assert scores["a"] - scores["c"] == pytest.approx(0.1)
    assert scores["b"] - scores["c"] == pytest.approx(0.2)


def test_effects_are_those_of_a_general_least_squares_fit():
    generator = np.random.default_rng(4)
    table = generator.random((30, 4))
    there = generator.random((30, 4)) < 0.6
    found = rank([loss(f"f{j}", i, table[i, j]) for i in range(30) for j in range(4) if there[i, j]])
    pairs = np.argwhere(there)
    design = np.zeros((len(pairs), 34))
    for row, (i, j) in enumerate(pairs):
        design[row, j] = design[row, 4 + i] = 1
    fitted = np.linalg.lstsq(design, table[there], rcond=None)[0][:4]
    assert {row.forecaster: row.peer_score for row in found.rows} == pytest.approx(
        {f"f{j}": fitted.mean() - fitted[j] for j in range(4)}
    )


def test_forecasters_without_shared_cells_are_not_compared():
    assert rank([]).rows == ()
    assert rank([loss("a", 1, 0.1), loss("b", 2, 0.1)]).alone == ("a", "b")
    found = rank([loss("a", 1, 0.1), loss("b", 1, 0.2), loss("c", 2, 0.0), loss("a", 3, 0.9)])
    assert ([row.forecaster for row in found.rows], found.alone, found.cells) == (["a", "b"], ("c",), 1)


def test_revisions_of_one_cell_count_once():
    found = rank([loss("a", 1, 0.1), loss("a", 1, 0.3), loss("b", 1, 0.3)])
    assert found.rows[0].loss == pytest.approx(0.2)


def test_equal_forecasters_are_a_coin_toss():
    generator = np.random.default_rng(5)
    values = generator.random(60)
    found = rank(
        [loss(name, cell, values[(cell + shift) % 60]) for name, shift in (("a", 0), ("b", 30)) for cell in range(60)]
    )
    assert found.rows[0].ahead_of_next == pytest.approx(0.5, abs=0.05)


def test_five_forecasters_on_120_cells_are_ranked_right_in_95_percent_of_1000_trials():
    begun = time.process_time()
    found = trials("normal", count=1000, cells=120)
    assert time.process_time() - begun < 20, "two cores for ten seconds"
    assert found.right >= 0.95
    # What is said beside a ranking is no more than what comes true.
    assert found.said <= found.right + 0.02


@pytest.mark.parametrize("kind", ["laplace", "kernels", "two thirds"])
def test_the_stated_probability_is_not_more_than_what_comes_true(kind: str):
    """Harder cases are ranked right less often, and the probability beside the ranking says so."""
    found = trials(kind, count=150, cells=120)  # type: ignore[arg-type]
    assert found.said <= found.right + 0.04
    assert found.said < 0.95


def test_worse_skill_cannot_be_ranked_by_chance():
    """Planted: with five cells in place of 120 the order is not right."""
    assert trials("normal", count=200, cells=5).right < 0.5
    assert len(NAMES) == 5

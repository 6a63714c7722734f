"""Tests the verdict on a ratio: the interval by hand, what noise hides, and how often equal samples are called."""

import math
import random

import pytest

from ledger.analysis.paired_ratio import FAMILY_ERROR, error_of_case, judge, spread_of

LEAST, MOST = 0.01, 0.05


def test_spread_takes_the_ranks_of_the_sign_test():
    # Ten fair coins: fewer than 2 heads, or tails, in 22 of 1024 throws; fewer than 3 in 112. So rank 2 at 5%.
    found = spread_of([float(number) for number in range(10, 0, -1)], 0.05)
    assert (found.median, found.low, found.high) == (5.5, 2.0, 9.0)
    assert spread_of([1.0, 2.0, 3.0], 0.05).low == -math.inf, "three samples bound nothing at 5%"


def test_the_error_of_one_case_is_shared():
    assert error_of_case(20) == pytest.approx(FAMILY_ERROR / 20) and error_of_case(0) == FAMILY_ERROR


@pytest.mark.parametrize(
    ("shift", "noise", "call"),
    [(-0.03, 0.0, "slower"), (0.03, 0.0, "faster"), (0.005, 0.0, "same"), (-0.03, 0.04, "same"), (0.0, 0.2, "unclear")],
)
def test_judge_calls_what_exceeds_the_noise(shift: float, noise: float, call: str):
    jitter = [0.001 * (number % 5 - 2) for number in range(40)]
    found = judge([shift + one for one in jitter], [noise + one for one in jitter], error=0.01, least=LEAST, most=MOST)
    assert found.call == call and found.ratio == pytest.approx(math.exp(shift))
    assert found.noise >= LEAST


@pytest.mark.parametrize("tail", [1.5, 3.0], ids=["heavy", "light"])
def test_equal_samples_with_outliers_are_rarely_called(tail: float):
    generator = random.Random(24)
    calls = []
    for _ in range(400):
        pairs = [[0.002 * generator.choice((-1, 1)) * generator.paretovariate(tail) for _ in range(60)] for _ in "ha"]
        calls.append(judge(*pairs, error=error_of_case(1), least=0.0, most=MOST).call)
    # The error is two-sided and noise only lowers it: 4 of 400 are expected at most.
    assert sum(call in ("faster", "slower") for call in calls) <= 4

"""Tests the bootstrap on values whose interval is known in closed form, and on clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ledger.analysis.resampling import LEAST_UNITS, MOST_UNITS, ratio_interval, resampling_of


def mean_interval(values, kernels):
    return ratio_interval(np.array(values), None, resampling_of(kernels))


def test_interval_of_a_mean_is_that_of_the_normal_distribution():
    values = np.random.default_rng(1).normal(10, 2, size=400)
    low, high = mean_interval(list(values), ["k"] * 400) or (0, 0)
    half = 1.96 * values.std() / math.sqrt(400)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_kernels_are_resampled_whole_where_there_are_enough():
    """Ten kernels of 40 equal cells: as sure as ten cells, not as 400."""
    of_kernel = np.random.default_rng(2).normal(size=10)
    values = [float(of_kernel[number % 10]) for number in range(400)]
    low, high = mean_interval(values, [f"k{number % 10}" for number in range(400)]) or (0, 0)
    alone_low, alone_high = mean_interval(values, ["k"] * 400) or (0, 0)
    assert high - low == pytest.approx(2 * 1.96 * of_kernel.std() / math.sqrt(10), rel=0.15)
    assert (high - low) / (alone_high - alone_low) == pytest.approx(math.sqrt(40), rel=0.15)


def test_few_cells_have_no_interval():
    assert mean_interval([1.0] * (LEAST_UNITS - 1), list("abcd")) is None
    assert mean_interval([1.0] * LEAST_UNITS, ["k"] * LEAST_UNITS) == (1.0, 1.0)
    assert resampling_of(list("abcde")).unit == "kernel"
    assert resampling_of(list("abcda")).unit == "cell"


def test_a_ratio_is_resampled_in_pairs():
    """Numerators that are half of their denominators: the ratio has no spread, however wide each is."""
    wide = np.random.default_rng(3).lognormal(sigma=2, size=50)
    assert ratio_interval(wide / 2, wide, resampling_of(["k"] * 50)) == pytest.approx((0.5, 0.5))


def test_the_same_values_give_the_same_interval():
    values = [float(value) for value in range(30)]
    assert mean_interval(values, ["k"] * 30) == mean_interval(values, ["k"] * 30)


def test_many_cells_are_dealt_to_hands_and_their_interval_is_as_wide():
    """Values that depend on the place of a cell in the ledger are no wider or narrower for it."""
    count = 20 * MOST_UNITS
    values = [float(number % MOST_UNITS) for number in range(count)]
    how = resampling_of(["k"] * count)
    assert (how.unit, how.units) == ("cell", MOST_UNITS)
    low, high = mean_interval(values, ["k"] * count) or (0, 0)
    half = 1.96 * float(np.std(values)) / math.sqrt(count)
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)
    assert (low + high) / 2 == pytest.approx(float(np.mean(values)), abs=0.2 * half)


def test_many_kernels_are_dealt_whole():
    kernels = [f"k{number // 2}" for number in range(6 * MOST_UNITS)]
    how = resampling_of(kernels)
    assert (how.unit, how.units) == ("kernel", MOST_UNITS)
    assert all(how.unit_of[number] == how.unit_of[number + 1] for number in range(0, len(kernels), 2))

"""Tests which records say that their percent is of a steady state, and what they give of the boost state."""

from __future__ import annotations

import pytest
from samples import MS, make_forecast, make_measurement, make_timing, state

from ledger.analysis.clock_state import BoostState, boost_state
from ledger.records import TimingV2

FORECAST = make_forecast()


def steady(median_ps: int, *, extension: object, after=None, clocks: tuple[int, ...] = ()) -> BoostState | None:
    timing = make_timing(median_ps)
    if clocks:
        timing = TimingV2(**dict(timing), sm_clock_mhz=clocks)
    return boost_state(
        FORECAST,
        make_measurement(FORECAST, timing=timing, after=after or state(900), extensions={"steady/1": extension}),
    )


def test_a_slower_steady_state_keeps_the_percent_of_the_boost_state():
    found = steady(2 * MS, extension={"boost_ps": MS * 8 // 5, "boost_clock_mhz": 1980}, clocks=(1400,) * 25)
    assert found is not None
    assert (found.percent, found.time_ps, found.name) == (pytest.approx(62.5), MS * 8 // 5, "steady")  # 1 of 1.6 ms
    assert (
        found.sentence == "The percent is of the steady state at 1400 MHz; in the boost state at 1980 MHz it was 62.5%."
    )


def test_only_the_driver_s_word_makes_it_power_limited():
    capped = state(900).model_copy(update={"throttle": ("power-cap",)})
    extension = {"boost_ps": MS, "boost_clock_mhz": None}
    found = steady(2 * MS, extension=extension, after=capped)
    assert found is not None and found.name == "steady, power-limited"
    assert found.sentence == "The percent is of the steady state, limited by power; in the boost state it was 100.0%."
    hot = steady(2 * MS, extension=extension, after=state(900).model_copy(update={"throttle": ("thermal-software",)}))
    assert hot is not None and hot.name == "steady"


@pytest.mark.parametrize(
    ("median", "differs"), [(1_000, False), (1_020, False), (1_021, True), (980, True), (985, False)]
)
def test_two_percent_is_the_threshold_either_way(median: int, differs: bool):
    assert (steady(median * MS // 1000, extension={"boost_ps": MS}) is not None) == differs


@pytest.mark.parametrize(
    "extension",
    [None, 7, [], {}, {"boost_ps": 0}, {"boost_ps": -1}, {"boost_ps": True}, {"boost_ps": "5"}, {"boost_ps": 1.5},
     {"boost_ps": 2**53}],
)  # fmt: skip
def test_an_extension_that_does_not_tell_says_nothing(extension: object):
    assert steady(2 * MS, extension=extension) is None


def test_a_strange_clock_is_left_out():
    found = steady(2 * MS, extension={"boost_ps": MS, "boost_clock_mhz": "fast"})
    assert found is not None and found.clock_mhz is None


def test_a_record_without_the_extension_says_nothing():
    assert boost_state(FORECAST, make_measurement(FORECAST)) is None

"""Tests what chips of one kind say beside repeats: how far they differ, which is slow, and what stays unsaid."""

from __future__ import annotations

import io

import pytest
from builders import forecast as made_forecast
from builders import second_forecast
from rich.console import Console
from samples import MS, TOY, make_book, make_measurement, make_sealed, make_timing, make_view

from ledger.analysis.book import CellView
from ledger.analysis.machines import chip_times, machine_document, machine_lines, machine_spreads
from ledger.analysis.repeats import spread_percent
from ledger.analysis.report_rows import document
from ledger.analysis.score import score_book
from ledger.records import DeviceFactsV2, ForecastV2, MeasurementV2, TimingV2
from ledger.render.report import render
from ledger.render.score_table import render_scores

A, B, C = "a1" * 32, "b2" * 32, "c3" * 32
NEXT = iter(range(1, 1000))


def forecast(size: int) -> ForecastV2:
    return second_forecast(made_forecast(B=size))


def measured(of: ForecastV2, milliseconds: float, chip: str | None, run: int, node: str | None = None) -> MeasurementV2:
    device = DeviceFactsV2(
        name="Toy 1", target="sm_90", sms=10, memory_bytes=80 * 10**9, l2_bytes=None, driver=None, software={},
        uuid=chip, power_limit_mw=None,
    )  # fmt: skip
    timing = TimingV2(**{**dict(make_timing(round(milliseconds * MS))), "sm_clock_mhz": ()})
    return make_measurement(of, device=device, timing=timing, run=run, node=node)


def view(size: int, *runs: tuple[float, str | None]) -> CellView:
    of = forecast(size)
    listed = [measured(of, time, chip, number) for number, (time, chip) in enumerate(runs)]
    sealed = make_sealed(of, identity=f"{next(NEXT):064x}")
    return make_view(sealed, of, *listed, hardware=TOY)


def test_two_chips_differ_by_more_than_repeats_and_the_slow_one_is_named():
    # 10 against 11 ms: 1/10.5 between the chips, 0.1/10 at most between repeats, 10% excess.
    book = make_book(view(1, (10, A), (10.1, A), (11, B)), view(2, (20, A), (20, A), (22, B)))
    (spread,) = machine_spreads(chip_times(book))
    assert (spread.hardware, spread.chips, spread.cells) == ("toy", (A, B), 2)
    assert spread.largest_percent == pytest.approx(100 * 2 / 21)
    assert spread.repeat_percent == pytest.approx((100 * 0.1 / 10.05) / 2)
    (slow,) = spread.slow
    assert (slow.chip, slow.device, slow.cells) == (B, "Toy 1", 2)
    assert slow.percent == pytest.approx((100 * (11 / 10.05 - 1) + 10) / 2)


def test_repeats_are_those_of_one_chip():
    assert spread_percent(view(1, (10, A), (20, B))) is None
    assert spread_percent(view(1, (10, A), (20, B), (11, A))) == pytest.approx(100 / 10.5)
    assert spread_percent(view(1, (10, None), (20, None))) == pytest.approx(100 * 10 / 15)


def test_one_fast_chip_of_three_makes_none_of_the_others_slow():
    (spread,) = machine_spreads(chip_times(make_book(view(1, (10, A), (10.01, A), (10, B), (9, C)))))
    assert spread.slow == ()
    assert spread.largest_percent == pytest.approx(100 * 1.005 / 10, rel=1e-3)


def test_a_chip_within_the_repeats_is_not_named():
    (spread,) = machine_spreads(chip_times(make_book(view(1, (10, A), (11, A), (11, B)))))
    assert spread.slow == ()


def test_a_chip_that_is_slow_in_half_of_the_cells_is_not_named():
    fast = [view(size, (10, A), (10.1, A), (10, B)) for size in (1, 2)]
    slow = [view(size, (10, A), (10.1, A), (12, B)) for size in (3, 4)]
    assert machine_spreads(chip_times(make_book(*fast, *slow)))[0].slow == ()
    (named,) = machine_spreads(chip_times(make_book(*fast, *slow, view(5, (10, A), (10.1, A), (12, B)))))[0].slow
    assert named.chip == B


def test_no_chip_is_named_where_nothing_was_repeated():
    (spread,) = machine_spreads(chip_times(make_book(view(1, (10, A), (20, B)))))
    assert (spread.repeat_percent, spread.slow) == (None, ())
    assert "no repeats on one chip" in spread.text


def test_chips_meet_in_two_seals_of_one_case_and_unknown_ones_are_left_out():
    assert (
        machine_spreads(chip_times(make_book(view(1, (10, A)), view(2, (20, B)), view(3, (10, None), (20, B))))) == ()
    )
    (spread,) = machine_spreads(chip_times(make_book(view(1, (10, A)), view(1, (12, B)))))
    assert (spread.cells, spread.chips) == (1, (A, B))


def test_a_cpu_is_known_by_its_node():
    of = forecast(1)
    runs = [measured(of, time, None, run, node) for run, (time, node) in enumerate([(10, "a"), (10, "a"), (12, "b")])]
    (spread,) = machine_spreads(chip_times(make_book(make_view(make_sealed(of), of, *runs, hardware=TOY))))
    assert [slow.chip for slow in spread.slow] == ["b"]
    assert spread.slow[0].text.startswith("Toy 1 on b is 20.0% slower")


def test_report_and_score_tell_of_the_chips():
    book = make_book(view(1, (10, A), (10.1, A), (11, B)))
    assert machine_document(book) == document(book)["machines"]
    assert document(book)["rows"][2]["measured"]["chip"] == B
    (score,) = score_book(book)
    assert (score.machines, score.machine_percent) == (1, pytest.approx(100 * 0.95 / 10.525))
    shown = Console(file=io.StringIO(), width=200)
    render(book, shown)
    render_scores([score], shown, machines=machine_lines(chip_times(book)))
    text = shown.file.getvalue()
    for line in ("machines: 1 cell on 2 chips of toy", "slow chip: Toy 1 b2b2b2b2 is", "Machines: ", "Slow chip: "):
        assert line in text
    assert "9.0 % in 1" in text

"""Tests the self-test of a bench: the verdict on a pair, the bound of a rate, the counts, and a run on this CPU."""

import json
from pathlib import Path

import pytest
from measuring import kernel_file, this_cpu

from ledger.errors import InputError
from ledger.kernel_files import build_case, load_kernel
from ledger.measure.bench_self_test import SelfTest, judge_pair, self_test, upper_bound
from ledger.measure.timer import Interval
from ledger.record_files import load_hardware
from ledger.render.self_test_text import self_test_text

BASE = Interval(1000, 990, 1010)


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (Interval(1050, 1040, 1060), "slower"),
        (Interval(950, 940, 960), "faster"),
        (Interval(1020, 1015, 1025), "same"),  # not beyond 2%
        (Interval(1050, 1005, 1090), "same"),  # intervals overlap
        (BASE, "same"),
    ],
)
def test_judge_pair_needs_the_threshold_and_disjoint_intervals(second, verdict):
    assert judge_pair(BASE, second) == verdict


def test_upper_bound_by_hand():
    # None in 200: 1 - 0.05 ** (1/200) = 1.487%; all of them: no bound.
    assert upper_bound(0, 200) == pytest.approx(0.014867, abs=1e-6)
    assert upper_bound(3, 3) == 1.0 and upper_bound(1, 200) > upper_bound(0, 200)


def test_trials_count_both_kinds_of_alarm():
    pairs = ((BASE, Interval(1050, 1040, 1060)), (BASE, Interval(900, 890, 910)), (BASE, BASE), (BASE, BASE))
    case = build_case(load_kernel("gemv").kernel, load_hardware("h200"), shape={"N": 64, "K": 64}, dtype="fp16")
    found = SelfTest("Toy", case, pairs, "loop").document()
    assert (found["faster"], found["slower"], found["false_alarm_pct"]) == (1, 1, 50.0)
    assert found["largest_apart_pct"] == 10.0 and found["beyond_threshold_by_median_alone"] == 2


def test_self_test_on_this_cpu(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed: nothing can be timed")
    from measuring import with_small_rotation

    with_small_rotation(monkeypatch)
    cell = ({"M": 64, "N": 96, "K": 128}, "fp32")
    found = self_test(kernel_file(), cell, hardware=this_cpu(), trials=3).document()
    assert found["trials"] == len(found["pairs_us"]) == 3
    assert all(us > 0 for pair in found["pairs_us"] for us in pair)
    assert "timed against itself 3 times" in self_test_text(found)
    with pytest.raises(InputError, match="at least 1"):
        self_test(kernel_file(), cell, hardware=this_cpu(), trials=0)


def test_the_recorded_self_test_stays_under_one_percent_as_the_docs_say():
    docs = Path(__file__).parents[2] / "docs"
    found = json.loads((docs.parent / "benchmarks" / "timer" / "self-test-h200.json").read_text())
    assert found["trials"] == len(found["pairs_us"]) == 200 and found["threshold_pct"] == 2
    assert found["false_alarm_pct"] <= 1
    apart = [abs(second / first - 1) for first, second in found["pairs_us"]]
    assert 100 * max(apart) == pytest.approx(found["largest_apart_pct"], abs=1e-3)
    assert self_test_text(found) in " ".join((docs / "measurement.md").read_text().split())

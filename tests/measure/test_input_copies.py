"""Tests how many copies of input sets a rotation gets, and that they hold the same data."""

import pytest

from ledger.measure import input_copies
from ledger.measure.input_copies import COPIES, NO_COPIES, CopyLimits, bytes_of_launch, copy_count, further_sets
from ledger.measure.inputs import InputSet, copied

# 5 sets of 10 bytes, a cache of 10 bytes, a rotation of 5 ps.
ROTATION = {"sets": 5, "set_bytes": 10, "launch_bytes": 0, "cache_bytes": 10, "free_bytes": 10**9, "rotation_ps": 5}
SIZES = {"set_bytes": 24, "launch_bytes": 0, "cache_bytes": 24}


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({}, 59),
        ({"set_bytes": 20}, 27),
        ({"set_bytes": 1000}, 0),
        ({"cache_bytes": 0}, 0),
        ({"free_bytes": 8 * 305}, 30),
        ({"free_bytes": 8 * 305, "launch_bytes": 20}, 10),
        ({"free_bytes": 79}, 0),
        ({"rotation_ps": 10**9}, 5),
        ({"rotation_ps": 2 * 10**9}, 0),
        ({"rotation_ps": 10**12}, 0),
        ({"cache_bytes": 10**6}, 4091),
    ],
)
def test_copies_fill_the_caches_as_far_as_memory_and_time_allow(changed, more):
    assert copy_count(COPIES, **{**ROTATION, **changed}) == more


@pytest.mark.parametrize(("limits", "more"), [((8, 2), 3), ((64, 0), 0), ((0, 2), 0), ((1024, 100), 1019)])
def test_limits_decide_how_many_copies(limits, more):
    assert copy_count(CopyLimits(*limits), **ROTATION) == more


def one_set(first: float = 0.0) -> InputSet:
    import torch

    return InputSet({"x": torch.arange(6.0).view(2, 3) + first, "y": torch.zeros(3)}, torch.full((2,), float("nan")))


def test_a_copied_input_set_has_the_same_data_elsewhere():
    import torch

    one = one_set()
    other = copied(one)
    for here, there in zip((*one.inputs.values(), one.out), (*other.inputs.values(), other.out), strict=True):
        assert here.data_ptr() != there.data_ptr() and torch.equal(here.nan_to_num(), there.nan_to_num())
    assert list(other.inputs) == ["x", "y"] and other.out.isnan().all()


def test_further_sets_are_copies_of_each_set_in_turn(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 10**9))
    monkeypatch.setattr(input_copies, "rotation_ps", lambda launches: 10**8 * len(launches))
    sets = [one_set(0.0), one_set(100.0)]
    # Of 0.1 ms a call, a rotation of 2 ms has 20 sets.
    found = further_sets(sets, [lambda: None] * 2, COPIES, **SIZES)
    assert [float(one.inputs["x"][0, 0]) for one in found] == [0.0, 100.0] * 9
    assert len({one.out.data_ptr() for one in (*sets, *found)}) == 20


@pytest.mark.parametrize("changed", [{"limits": NO_COPIES}, {"limits": CopyLimits(64, 0)}, {"cache_bytes": None}])
def test_without_a_limit_or_a_cache_no_gpu_is_asked(monkeypatch, changed):
    def refuse(*_launches: object) -> int:
        raise AssertionError("asked")

    monkeypatch.setattr(input_copies, "rotation_ps", refuse)
    wanted = {"limits": COPIES, **SIZES, **changed}
    assert further_sets([one_set()], [lambda: None], **wanted) == []


def test_bytes_of_a_launch_are_those_it_keeps(monkeypatch):
    import torch

    held = [1000]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: held[0])

    def launch_of(_one: InputSet):
        held[0] += 32
        return lambda: None

    assert bytes_of_launch(launch_of, one_set()) == 32

"""Tests which launches are kept, that they read what lies at their addresses now, and that they keep no memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ledger.library.launch_cache import MOST_LAUNCHES, LaunchCache, alias  # noqa: E402


class Doubling:
    """Prepare y = 2 · x in torch, and count how often."""

    def __init__(self) -> None:
        self.prepared = 0

    def __call__(self, inputs: Mapping[str, Any], out: Any) -> Any:
        self.prepared += 1
        x = inputs["x"]
        return lambda: out.copy_(2 * x)


def test_alias_has_the_memory_and_does_not_keep_it():
    owner = torch.arange(6, dtype=torch.bfloat16).view(2, 3)
    seen = alias(owner)
    owner[1, 2] = 40.0
    assert (seen.dtype, seen.shape, seen.data_ptr()) == (owner.dtype, owner.shape, owner.data_ptr())
    assert seen.tolist() == owner.tolist()
    storage = weakref.ref(owner.untyped_storage())
    del owner
    gc.collect()
    assert storage() is None


def test_launch_is_kept_from_the_second_time_and_computes_on_what_is_there_now():
    doubling = Doubling()
    cache, x, out = LaunchCache(doubling), torch.ones(5), torch.empty(5)
    for number, (prepared, kept) in enumerate(((1, 0), (2, 1), (2, 1), (2, 1))):
        x.fill_(number)
        cache.launch(("x",), (x,), out, 0)
        assert out.tolist() == [2.0 * number] * 5
        assert (doubling.prepared, len(cache)) == (prepared, kept)


@pytest.mark.parametrize("change", ["input", "output", "stream"])
def test_launch_is_prepared_again_at_other_addresses_and_on_another_stream(change: str):
    doubling = Doubling()
    cache, x, out = LaunchCache(doubling), torch.ones(5), torch.empty(5)
    for _ in range(3):
        cache.launch(("x",), (x,), out, 0)
    other = torch.full((5,), 3.0) if change == "input" else x
    written = torch.zeros(5) if change == "output" else out
    cache.launch(("x",), (other,), written, int(change == "stream"))
    assert written.tolist() == [2.0 * float(other[0])] * 5
    assert doubling.prepared == 3


def test_only_the_latest_launches_are_kept():
    cache, out = LaunchCache(Doubling()), torch.empty(5)
    xs = [torch.full((5,), float(number)) for number in range(MOST_LAUNCHES + 3)]
    for x in xs:
        for _ in range(2):
            cache.launch(("x",), (x,), out, 0)
            assert float(out[0]) == 2 * float(x[0])
    assert len(cache) == MOST_LAUNCHES

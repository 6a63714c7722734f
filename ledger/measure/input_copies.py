"""Copies input sets on a GPU, so that a rotation fills its last cache more often than a protocol asks for.

Loads that L2 evicts first leave older data there. On an H200, products that load their weights so took up to 8% less
time where the sets filled it four times (benchmarks/timer/footprint-h200.json). Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledger.kernel import Launch
from ledger.measure.cuda_graphs import rotation_ps
from ledger.measure.inputs import InputSet, copied
from ledger.measure.timer import MAX_SETS


@dataclass(frozen=True)
class CopyLimits:
    """Limit copies: with them the sets fill the last cache so many times at most, and a call on each takes so long."""

    l2_multiple: int
    rotation_ms: int

    @property
    def text(self) -> str:
        """Return the limits as conditions of a timing name them."""
        return (
            f"copied until they fill the cache {self.l2_multiple} times, a call on each takes {self.rotation_ms} ms or "
            "copies take an eighth of the free memory"
        )


COPIES = CopyLimits(l2_multiple=64, rotation_ms=2)
NO_COPIES = CopyLimits(l2_multiple=0, rotation_ms=0)


def copy_count(
    limits: CopyLimits,
    *,
    sets: int,
    set_bytes: int,
    launch_bytes: int,
    cache_bytes: int,
    free_bytes: int,
    rotation_ps: int,
) -> int:
    """Return how many copies of a protocol's input sets a rotation goes over beside them.

    launch_bytes: what launches are known to allocate for each set. rotation_ps: picoseconds of one call on each set.
    Copies take at most an eighth of the free memory: libraries and CUDA graphs keep results of each set.
    """
    filling = limits.l2_multiple * cache_bytes // set_bytes
    quick = int(sets * limits.rotation_ms * 1e9) // rotation_ps
    room = free_bytes // 8 // (set_bytes + launch_bytes)
    return max(min(filling - sets, quick - sets, MAX_SETS - sets, room), 0)


def bytes_of_launch(launch_of: Callable[[InputSet], Launch], one: InputSet) -> int:
    """Return the bytes that a new launch on an input set allocates and keeps."""
    import torch

    before = int(torch.cuda.memory_allocated())
    another = launch_of(one)
    kept = int(torch.cuda.memory_allocated()) - before
    del another
    return max(kept, 0)


def further_sets(
    sets: Sequence[InputSet],
    launches: Sequence[Launch],
    limits: CopyLimits,
    *,
    set_bytes: int,
    launch_bytes: int,
    cache_bytes: int | None,
) -> list[InputSet]:
    """Return the copies of a protocol's input sets over which a rotation goes beside them.

    launches: on the sets, by whose time the copies are counted; a CUDA graph can capture them. launch_bytes: as in
    copy_count. cache_bytes: of the last cache, None where unknown; there are no copies then.
    """
    if not (limits.l2_multiple and limits.rotation_ms and cache_bytes):
        return []
    import torch

    count = copy_count(
        limits,
        sets=len(sets),
        set_bytes=max(set_bytes, 1),
        launch_bytes=launch_bytes,
        cache_bytes=cache_bytes,
        free_bytes=torch.cuda.mem_get_info()[0],
        rotation_ps=rotation_ps(launches),
    )
    return [copied(sets[at % len(sets)]) for at in range(count)]

"""Holds the tiles of the generic variant of matrix products, and what a tile costs. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ledger.operations import Shape

from .targets import ceil_div, sms_of

Tile = tuple[int, int, int, int, int, float]
"""block_m, block_n, block_k, num_warps, num_stages, rate of a tile's arithmetic relative to the first."""

TILES: dict[str, tuple[Tile, ...]] = {
    "sm_75": ((64, 64, 32, 8, 2, 1.0), (32, 32, 32, 4, 2, 0.7)),
    "sm_80": ((128, 128, 32, 8, 4, 1.0), (64, 64, 64, 4, 4, 0.7)),
    "sm_89": ((128, 128, 32, 8, 3, 1.0), (64, 64, 64, 4, 3, 0.7)),
    "sm_90": (
        (128, 256, 64, 8, 3, 1.0), (128, 128, 64, 4, 5, 0.9), (64, 128, 64, 4, 6, 0.7), (64, 64, 128, 4, 5, 0.45),
        (64, 32, 128, 4, 6, 0.25),
    ),
    "sm_100": ((128, 256, 64, 8, 3, 1.0), (128, 128, 64, 4, 5, 0.9), (128, 64, 64, 4, 6, 0.5)),
    "gfx942": ((128, 64, 64, 4, 2, 1.0), (64, 64, 64, 4, 2, 0.7)),
}  # fmt: skip
"""Target -> tiles for two-byte dtypes. On sm_90 the two large tiles were measured on an H200 at M = N = K = 3584, 3840
and 5120; the other rows are estimates."""

# Where rows are no multiple of 16 bytes elements are loaded one by one, and what a thread has in flight must stay in
# registers (no spills, as compiled ahead of time; not measured).
RAGGED: dict[str, tuple[Tile, ...]] = {
    "sm_90": ((128, 128, 32, 8, 3, 1.0), (64, 64, 64, 8, 3, 0.7)),
    "sm_100": ((128, 64, 64, 8, 3, 1.0),),
}
"""As TILES for ragged rows; targets that are not here take those."""

BYTE_TILES: dict[str, tuple[Tile, ...]] = {
    "sm_80": ((128, 128, 64, 8, 4, 1.0), (64, 64, 64, 4, 4, 0.7)),
    "sm_89": ((128, 128, 64, 8, 3, 1.0), (64, 64, 64, 4, 3, 0.7)),
    "sm_90": ((128, 128, 128, 8, 4, 1.0), (64, 128, 128, 4, 5, 0.7), (64, 64, 128, 4, 5, 0.45)),
    "sm_100": ((128, 128, 128, 8, 4, 1.0), (128, 64, 128, 4, 5, 0.5)),
    "gfx942": ((128, 64, 64, 4, 2, 1.0), (64, 64, 64, 4, 2, 0.7)),
}
"""Target -> tiles for one-byte dtypes. Estimates; sm_90 runs them where no other variant fits the shape."""

BYTE_RAGGED: dict[str, tuple[Tile, ...]] = dict.fromkeys(BYTE_TILES, ((64, 64, 64, 8, 2, 1.0),))
"""As RAGGED for one-byte dtypes."""


def waves_cost(shape: Shape, target: str) -> Callable[[Sequence[Any]], float]:
    """Return a function of a tile, its rate last: the time of its waves."""

    def cost(tile: Sequence[Any]) -> float:
        tiles = ceil_div(shape["M"], tile[0]) * ceil_div(shape["N"], tile[1])
        return float(math.ceil(tiles / sms_of(target)) * tile[0] * tile[1] / tile[-1])

    return cost

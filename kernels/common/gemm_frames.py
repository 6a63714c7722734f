"""Lists the tiles of matrix products on sm_90 and tells about how long each takes, by a fitted model.

benchmarks/README.md names the times that it is fitted to. Imports neither torch nor triton.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from ledger.operations import Shape

from .gemm_config import CLUSTERS, CUDA, GENERIC, WARP_SPECIALISED, resident, tile_rows
from .gemm_tiles import TILES
from .targets import SHARED_BYTES, ceil_div

CLUSTER_TILES = ((128, 256), (128, 128), (192, 192), (128, 192), (64, 256), (192, 128), (64, 192))
"""Tiles of the CUDA C++ that clusters may have."""

SMALL_TILES = ((64, 64), (128, 64))
"""Tiles of the CUDA C++ for CTAs without clusters."""

SWAPPED_ROWS = {64: 256, 128: 256, 192: 200}
"""Columns of tiles with A and B swapped -> the most rows: what wgmma multiplies at once, or whose sums stay in the
registers that three groups of warps leave (as compiled ahead of time)."""

# Tiles of the warp-specialised variant -> its stages; of the generic one -> its stages and rate.
_PIPELINED_STAGES = {(128, 256): 3, (128, 128): 6}
_GENERIC_TILES = {tile[:2]: (tile[4], tile[5]) for tile in TILES["sm_90"]}
# Clusters of tiles with A and B swapped. They pay where rows begin within lines of L2, or where the launch starts
# before a copy of the operands ends.
_SWAPPED_CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2))
# The least rows of a swapped tile where several divide the rows of C.
_SWAPPED_LEAST = 32
# Halves, whose CTAs divide K, were fastest with so many columns, one tile of rows and a CTA for each SM at most.
_HALVES_COLUMNS = 64
# Stages: at most the first. Swapped tiles of at most _SHALLOW_ROWS rows have _DEEP_STAGES; so do those of _DEEP_COLUMNS
# columns and at most _DEEP_ROWS rows where several tiles divide the rows: their loads wait for L2 (up to 24% faster).
# Where one such tile has all rows, loads wait for DRAM: as many stages as ask for _ASKED_OF_DRAM bytes on the chip.
_STAGES, _DEEP_STAGES, _SHALLOW_ROWS = 8, 12, 32
_DEEP_COLUMNS, _DEEP_ROWS, _ASKED_OF_DRAM = 64, 104, 14_500_000

# The time of a frame, fitted to 11,000 times of 1,160 shapes of up to 6e11 multiply-adds on an H200.
# Nanoseconds: of a launch; more of clusters, of halves; of a tile beside its steps, and more of one of 128 x 256.
_LAUNCH, _CLUSTER, _HALVES, _TILE, _TILE_AREA = 2810.0, 584.0, 732.0, 165.0, 1363.0
# Operations that an SM multiplies in a nanosecond in small products; the rate falls with this power of 1 + the
# multiply-adds of the product / 1e9. The rates of swapped tiles, of those of one warpgroup, of the warp-specialised
# variant.
_MULTIPLIED, _THROTTLED = 8250.0, 0.055
_SWAPPED, _ALONE, _SPECIALISED = 0.987, 0.942, 1.03
# Bytes a nanosecond that an SM asks for, and how much more they count by the pitch of their rows.
_ASKED, _BY_PITCH = 280.1, (1.0, 1.89, 1.89, 4.13)
# Bytes a nanosecond that L2 and DRAM deliver.
_L2, _DRAM = 27_674.0, 4473.0
# Nanoseconds until a load arrives, of CTAs alone and of those that wait for others; as many loads as there are stages
# are on the way at once. How much longer two CTAs along N take.
_WAIT, _WAIT_TOGETHER, _ALONG_N = 1019.0, 1138.0, 1.04
# Stream-K: nanoseconds of a launch and of each further part of a tile, and its rate.
_STREAM, _STREAM_PART, _STREAM_RATE = 4837.0, 774.0, 0.949
# The powers by which times join, in an SM and on the chip.
_POWER_SM, _POWER = 3.45, 2.99


class Frame(NamedTuple):
    """Hold what the rule chooses for a shape: variant, tile, cluster, and how tiles are divided along K."""

    block_m: int
    block_n: int
    cluster_m: int = 1
    cluster_n: int = 1
    swap_ab: int = 0
    split_k: int = 1
    stream_k: int = 0
    variant: str = CUDA

    def config(self, shape: Shape, sms: int) -> dict[str, Any]:
        """Return what a frame fixes of a configuration on a chip with so many SMs."""
        fixed = {**self._asdict(), "block_k": 64, "subtiles": 1, "tma": 1}
        groups = 1 if self.variant == WARP_SPECIALISED else (self.block_n if self.swap_ab else self.block_m) // 64
        return {
            **fixed, "programs": resident((self.cluster_m, self.cluster_n), sms), "num_warps": 4 * groups,
            "num_stages": _stages(self, shape),
        }  # fmt: skip


def specialised_frames() -> Iterator[Frame]:
    """Yield the frames of the warp-specialised variant."""
    yield from (Frame(*tile, variant=WARP_SPECIALISED) for tile in _PIPELINED_STAGES)


def plain_frames() -> Iterator[Frame]:
    """Yield the frames whose A and B are not swapped. A split in two, and stream-K without clusters, never paid."""
    yield from (Frame(*tile) for tile in SMALL_TILES)
    for stream_k, clusters in ((0, CLUSTERS), (1, CLUSTERS[1:])):
        for cluster, tile in itertools.product(clusters, CLUSTER_TILES):
            yield Frame(*tile, *cluster, stream_k=stream_k)


def swapped_frames(shape: Shape, sms: int, *, copied: bool) -> Iterator[Frame]:
    """Yield the frames with A and B swapped: the rows of C in any number of even shares. copied: as in nanoseconds."""
    n_rows = shape["M"]
    clusters = _SWAPPED_CLUSTERS[: None if copied or pitch(shape["N"]) or pitch(shape["K"]) else 1]
    for (rows, cols), (block_n, most) in itertools.product(clusters, SWAPPED_ROWS.items()):
        step = 8 * cols
        shares = (ceil_div(n_rows, rows * height) for height in range(step, most + 1, step))
        heights = {step * ceil_div(n_rows, step * rows * tiles) for tiles in shares}
        least = min(_SWAPPED_LEAST, max(heights))
        for block_m in sorted((height for height in heights if height >= least), reverse=True):
            yield Frame(block_m, block_n, rows, cols, swap_ab=1)
    halves = 16 * ceil_div(n_rows, 16)
    if halves <= SWAPPED_ROWS[_HALVES_COLUMNS] and 2 * ceil_div(shape["N"], _HALVES_COLUMNS) <= sms:
        yield Frame(halves, _HALVES_COLUMNS, swap_ab=1, split_k=2)


def pitch(columns: int) -> int:
    """Return how rows of so many 2-byte elements begin: 0 at lines of L2, 1 at halves, 2 at sectors of them, 3 at none.

    128 bytes of a row lie in one line, in two, and in the last case in five sectors of 32 bytes, not in four.
    """
    return next((at for at, whole in enumerate((64, 32, 16)) if columns % whole == 0), 3)


def throttled(shape: Shape) -> float:
    """Return by how much clocks are lower than in a product of few operations."""
    return float((1 + shape["M"] * shape["N"] * shape["K"] / 1e9) ** _THROTTLED)


def nanoseconds(frame: Frame, shape: Shape, sms: int, *, even_rows: bool, copied: bool = False) -> float:
    """Return about how long a frame takes for a shape.

    even_rows: whether the CUDA C++ gives all tiles the same rows instead of whole tiles and a rest. copied: whether the
    launch begins behind a copy of the operands, which hides what clusters wait for. Stream-K with fewer tiles than
    clusters is counted as if it did not divide them, unless operands are copied: split_k, which cannot read copies, was
    faster.
    """
    m, n, k = (shape[size] for size in "MNK")
    block_m, block_n, rows, cols, swap, split, stream, variant = frame
    clusters = ceil_div(m, rows * block_m) * ceil_div(n, cols * block_n)
    shared = clusters / (resident((rows * split, cols), sms) // (rows * cols * split))
    waves = shared if stream and (shared > 1 or copied) else float(math.ceil(shared))
    # Of a tile's rows all are multiplied, but only those are loaded that it stores.
    loaded = tile_rows(frame._asdict(), m) if even_rows and variant == CUDA else block_m
    of_a, of_b, steps = 128 * loaded, 128 * block_n, ceil_div(k, 64) / split
    together = rows * cols > 1 and not copied
    rate = _MULTIPLIED / throttled(shape) * (_STREAM_RATE if stream else 1)
    if swap:
        rate *= _ALONE if block_n == 64 else _SWAPPED
    elif variant != CUDA:
        rate *= _SPECIALISED if variant == WARP_SPECIALISED else _GENERIC_TILES[block_m, block_n][1]
    each = _joined(
        _POWER_SM,
        128 * block_m * block_n / rate,
        (_BY_PITCH[pitch(k)] * of_a / cols + _BY_PITCH[pitch(n)] * of_b / rows) / _ASKED,
        (_WAIT_TOGETHER if together or split > 1 else _WAIT) / _stages(frame, shape),
    )
    loop = _joined(
        _POWER,
        waves * steps * each,
        clusters * rows * cols * split * steps * (of_a / cols + of_b / rows) / _L2,
        2 * (m * k + n * k + m * n) / _DRAM,
    )
    if (rows, cols) == (1, 2):
        loop *= _ALONG_N
    taken = _LAUNCH + loop + waves * (_TILE + _TILE_AREA * block_m * block_n / (128 * 256))
    if stream:
        taken += _STREAM + _STREAM_PART * max(1 / shared - 1, 0)
    return taken + (_CLUSTER if together else 0) + (_HALVES if split > 1 else 0)


def _joined(power: float, *times: float) -> float:
    """Return the time of what happens at once: the longest and some of the others."""
    longest = max(times)
    return float(longest * sum((time / longest) ** power for time in times) ** (1 / power))


def _stages(frame: Frame, shape: Shape) -> int:
    """Return the stages of a frame: as many as fit and are worth having."""
    block_m, block_n, split = frame.block_m, frame.block_n, frame.split_k
    if frame.variant == WARP_SPECIALISED:
        return _PIPELINED_STAGES[block_m, block_n]
    if frame.variant == GENERIC:
        return _GENERIC_TILES[block_m, block_n][0]
    most = _STAGES
    if frame.swap_ab and block_m <= _SHALLOW_ROWS:
        most = _DEEP_STAGES
    elif frame.swap_ab and block_n == _DEEP_COLUMNS and block_m <= _DEEP_ROWS:
        most = _DEEP_STAGES
        if shape["M"] <= block_m:
            asked = ceil_div(shape["N"], block_n) * split * 128 * (block_m + block_n)
            most = min(max(round(_ASKED_OF_DRAM / asked), _STAGES), most)
    # Warps store through two buffers of 16 rows by 64 columns; where tiles are halves, these lie where stages were.
    stored = 0 if split > 1 else 4096 * (block_n if frame.swap_ab else block_m) // 16
    return min(most, (SHARED_BYTES["sm_90"] - stored) // (128 * (block_m + block_n) + 16))

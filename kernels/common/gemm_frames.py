"""Lists the tiles of matrix products on sm_90 and tells about how long each takes, by a fitted model.

benchmarks/README.md names the times that it is fitted to. Imports neither torch nor triton.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .gemm_config import (
    CLUSTERS,
    CUDA,
    GENERIC,
    WARP_SPECIALISED,
    resident,
    store_bytes,
    tile_rows,
)
from .gemm_tiles import TILES
from .targets import SHARED_BYTES, ceil_div

CLUSTER_TILES = ((128, 256), (128, 128), (192, 192), (128, 192), (64, 256), (192, 128), (64, 192))
"""Tiles of the CUDA C++ that clusters may have."""

SMALL_TILES = ((64, 64), (128, 64))
"""Tiles of the CUDA C++ for CTAs without clusters."""

SWAPPED_ROWS = {64: 256, 128: 256, 192: 200, 256: 128, 320: 96}
"""Columns of tiles with A and B swapped -> the most rows: what wgmma multiplies at once, or whose sums stay in the
registers that three groups of warps and more leave (as compiled ahead of time; of wide ones without a cluster)."""

# The same of fp8 operands, of which registers hold the sums of one step or two beside those of the tile, and its tiles
# that are not swapped; of int8, whose columns, rows of B, are at most the 256 of a TMA box.
_FP8_ROWS = {64: 152, 128: 200, 192: 136, 256: 88}
_FP8_TILES = ((128, 128), (192, 128), (128, 192), (64, 128), *SMALL_TILES)
_INT8_ROWS = {64: 256, 128: 256, 192: 192, 256: 128}

# Tiles of the warp-specialised variant -> its stages; of the generic one -> its stages and rate.
_PIPELINED_STAGES = {(128, 256): 3, (128, 128): 6}
_GENERIC_TILES = {tile[:2]: (tile[4], tile[5]) for tile in TILES["sm_90"]}
# Clusters of tiles with A and B swapped. They pay where rows begin within lines of L2; those of at most two along N
# also where the launch starts before a copy of the operands ends. Four were never faster with more tiles a cluster.
_SWAPPED_CLUSTERS, _FOUR_ALONG_N = ((1, 1), (2, 1), (1, 2), (2, 2)), ((1, 4), (2, 4))
_WAVES_OF_FOUR = 2
# The pitch of rows that begin at no sector.
_NO_SECTOR = 3
# Columns from which on results leave no room beside enough stages, so that a CTA has one tile.
_WIDE_COLUMNS = 256
# The least rows of a swapped tile where several divide the rows of C.
_SWAPPED_LEAST = 32
# Halves, whose CTAs divide K, were fastest with a CTA for each SM at most: alone with so many columns and one tile of
# rows, and where rows of B begin within lines of L2 in clusters with those columns and several tiles.
_HALVES_COLUMNS, _CLUSTERED_HALVES_COLUMNS = 64, (64, 128, 192)
# Stages: at most the first. Swapped tiles of at most _SHALLOW_ROWS rows have _DEEP_STAGES; so do those of _DEEP_COLUMNS
# columns and at most _DEEP_ROWS rows where several tiles divide the rows: their loads wait for L2 (up to 24% faster).
# Where one such tile has all rows, loads wait for DRAM: as many stages as ask for _ASKED_OF_DRAM bytes on the chip.
# With more than _FEW_ROWS rows of C, several tiles of rows, K beyond _LONG_INNER and a tile for each CTA, results lie
# where stages were: as many stages as ask for _ASKED_OF_L2 bytes, at least _LEAST_STAGES (up to 8% faster; with one
# tile of rows, a shorter K or more stages up to 6% slower).
_STAGES, _DEEP_STAGES, _LEAST_STAGES, _SHALLOW_ROWS, _FEW_ROWS, _LONG_INNER = 8, 12, 4, 32, 64, 2048
_DEEP_COLUMNS, _DEEP_ROWS, _ASKED_OF_DRAM, _ASKED_OF_L2 = 64, 104, 14_500_000, 26_900_000

# The time of a frame, fitted to 12,700 times of 1,270 shapes of up to 6e11 multiply-adds on an H200.
# Nanoseconds: of a launch; more of clusters, of halves; of a tile beside its steps, more of one of 128 x 256, of wide
# ones.
_LAUNCH, _CLUSTER, _HALVES, _TILE, _TILE_AREA, _WIDE_TILE = 2810.0, 660.0, 732.0, 165.0, 1363.0, 760.0
# Operations that an SM multiplies in a nanosecond in small products; the rate falls with this power of 1 + the
# multiply-adds of the product / 1e9. The rates of swapped tiles, of those of one warpgroup, of wide ones, of the
# warp-specialised variant.
_MULTIPLIED, _THROTTLED = 8250.0, 0.055
_SWAPPED, _ALONE, _WIDE, _SPECIALISED = 0.987, 0.942, 0.83, 1.03
# Bytes a nanosecond that an SM asks for, alone and in a cluster, and how much more they count by the pitch of rows.
_ASKED, _ASKED_TOGETHER, _BY_PITCH = 280.1, 364.0, (1.0, 1.66, 1.91, 3.32)
# Bytes a nanosecond that L2 and DRAM deliver.
_L2, _DRAM = 27_674.0, 4473.0
# Nanoseconds until a load arrives: of CTAs alone, of halves, of clusters, of those with four along N or of halves;
# as many loads as there are stages are on the way at once. How much longer two CTAs along N take.
_WAIT, _WAIT_HALVES, _WAIT_TOGETHER, _WAIT_FOUR, _ALONG_N = 1019.0, 1138.0, 1420.0, 1222.0, 1.04
# Stream-K: nanoseconds of a launch and of each further part of a tile, and its rate.
_STREAM, _STREAM_PART, _STREAM_RATE = 4837.0, 774.0, 0.949
# The rate of fp8 operands, whose sums are added in fp32 each step. How much longer steps of one-byte operands take by
# the share of a tile's columns beyond all of the matrix: the TMA fills rows of B there slowly (1.4 to 2.1 times for a
# quarter to half of a tile). Last tiles of several begin early.
_PROMOTED, _OUTSIDE = 0.9, 2.2
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
        return {
            **fixed, "programs": resident((self.cluster_m, self.cluster_n), sms), "num_warps": self.num_warps,
            "num_stages": _stages(self, shape, sms),
        }  # fmt: skip

    @property
    def num_warps(self) -> int:
        """Return the warps that multiply: four for each 64 of the side that they divide."""
        return 4 if self.variant == WARP_SPECIALISED else (self.block_n if self.swap_ab else self.block_m) // 16


def specialised_frames() -> Iterator[Frame]:
    """Yield the frames of the warp-specialised variant."""
    yield from (Frame(*tile, variant=WARP_SPECIALISED) for tile in _PIPELINED_STAGES)


def plain_frames() -> Iterator[Frame]:
    """Yield the frames whose A and B are not swapped. A split in two, and stream-K without clusters, never paid."""
    yield from (Frame(*tile) for tile in SMALL_TILES)
    for stream_k, clusters in ((0, CLUSTERS), (1, CLUSTERS[1:])):
        for cluster, tile in itertools.product(clusters, CLUSTER_TILES):
            yield Frame(*tile, *cluster, stream_k=stream_k)


def swapped_rows(dtype: Dtype) -> dict[int, int]:
    """Return the columns of tiles with A and B swapped, with the most rows."""
    return {"fp8_e4m3": _FP8_ROWS, "int8": _INT8_ROWS}.get(dtype, SWAPPED_ROWS)


def registers_hold(tile: tuple[int, int], dtype: Dtype) -> bool:
    """Tell whether registers hold the sums of a tile that is not swapped."""
    return dtype != "fp8_e4m3" or tile in _FP8_TILES


def wgmma_step(dtype: Dtype) -> int:
    """Return what the columns of a wgmma are a multiple of; of int8, up to 32 also 8."""
    return 16 if dtype == "int8" else 8


def _plain_fp8_frames(*, every: bool) -> Iterator[Frame]:
    """Yield those of fp8 operands. every: also undivided ones in clusters, which never paid."""
    for frame in plain_frames():
        if registers_hold(frame[:2], "fp8_e4m3") and (
            every or frame.stream_k or frame.cluster_m * frame.cluster_n == 1
        ):
            yield frame


def swapped_frames(
    shape: Shape, sms: int, *, copied: bool, every: bool = False, dtype: Dtype = "fp16"
) -> Iterator[Frame]:
    """Yield the frames with A and B swapped: the rows of C in any number of even shares.

    copied, dtype: as in nanoseconds. every: in all clusters, also those that are not expected to pay.
    """
    n_rows, widths, step, one_byte = shape["M"], swapped_rows(dtype), wgmma_step(dtype), DTYPE_BYTES[dtype] == 1
    # Whether rows of B, and of either operand, begin where clusters pay; those of one byte at no sector of a line.
    of_b = int(pitch(shape["K"]) == _NO_SECTOR) if one_byte else pitch(shape["N"])
    pitched = of_b if one_byte else of_b or pitch(shape["K"])
    pay = _SWAPPED_CLUSTERS if every or pitched or (copied and not one_byte) else _SWAPPED_CLUSTERS[:1]
    clusters = [*pay, *(_FOUR_ALONG_N if every or (pitched and not copied) else ())]
    for (rows, cols), (block_n, most) in itertools.product(clusters, widths.items()):
        for block_m in _heights(n_rows, rows, step, most):
            frame = Frame(block_m, block_n, rows, cols, swap_ab=1)
            fits = block_n < _WIDE_COLUMNS or (rows * cols == 1 and _has_room(frame, shape, sms))
            if fits and (cols < 4 or _waves(frame, shape, sms) <= _WAVES_OF_FOUR):
                yield frame
    halves = 16 * ceil_div(n_rows, 16)
    frames = [Frame(halves, _HALVES_COLUMNS, swap_ab=1, split_k=2)] if halves <= widths[_HALVES_COLUMNS] else []
    if of_b and not copied:
        for (rows, cols), block_n in itertools.product(_SWAPPED_CLUSTERS[1:3], _CLUSTERED_HALVES_COLUMNS):
            for block_m in _heights(n_rows, rows, 16, widths[block_n]):
                frames.append(Frame(block_m, block_n, rows, cols, swap_ab=1, split_k=2))
    yield from (frame for frame in frames if _waves(frame, shape, sms) <= 1)


def _heights(n_rows: int, rows: int, step: int, most: int) -> list[int]:
    """Return the rows of tiles that divide n_rows evenly among clusters of so many rows of CTAs, the highest first."""
    shares = (ceil_div(n_rows, rows * height) for height in range(step, most + 1, step))
    heights = {step * ceil_div(n_rows, step * rows * tiles) for tiles in shares}
    least = min(_SWAPPED_LEAST, max(heights))
    return sorted((height for height in heights if height >= least), reverse=True)


def cluster_frames(
    shape: Shape, sms: int, *, copied: bool = False, every: bool = False, dtype: Dtype = "fp16"
) -> Iterator[Frame]:
    """Yield the frames of the CUDA C++ whose clusters a chip holds.

    copied, dtype: as in nanoseconds. every: as in swapped_frames.
    """
    # Those of int8 are swapped: lanes store 32 bytes of a row of C at once.
    plain: Iterable[Frame] = () if dtype == "int8" else plain_frames()
    if dtype == "fp8_e4m3":
        plain = _plain_fp8_frames(every=every)
    for frame in itertools.chain(plain, swapped_frames(shape, sms, copied=copied, every=every, dtype=dtype)):
        rows, cols, split = frame.cluster_m, frame.cluster_n, frame.split_k
        if resident((rows * split, cols), sms) >= rows * cols * split:
            yield frame


def pitch(columns: int) -> int:
    """Return how rows of so many 2-byte elements begin: 0 at lines of L2, 1 at halves, 2 at sectors of them, 3 at none.

    128 bytes of a row lie in one line, in two, and in the last case in five sectors of 32 bytes, not in four.
    """
    return next((at for at, whole in enumerate((64, 32, 16)) if columns % whole == 0), _NO_SECTOR)


def throttled(shape: Shape) -> float:
    """Return by how much clocks are lower than in a product of few operations."""
    return float((1 + shape["M"] * shape["N"] * shape["K"] / 1e9) ** _THROTTLED)


def nanoseconds(frame: Frame, shape: Shape, sms: int, *, copied: bool = False, dtype: Dtype = "fp16") -> float:
    """Return about how long a frame takes for a shape.

    copied: whether the launch begins behind a copy of the operands, which hides what clusters wait for. Stream-K with
    fewer tiles than clusters is counted as if it did not divide them, unless operands are copied: split_k, which cannot
    read copies, was faster. dtype: of operands; of one byte, which have B by rows, the shape has K in pairs, which take
    the time of one product of two bytes.
    """
    m, n, k = (shape[size] for size in "MNK")
    block_m, block_n, rows, cols, swap, split, stream, variant = frame
    clusters, shared = _clusters(frame, shape), _waves(frame, shape, sms)
    waves = shared if stream and (shared > 1 or copied) else float(math.ceil(shared))
    # Of a tile's rows all are multiplied, but only those are loaded that it stores.
    loaded = tile_rows(frame._asdict(), m) if variant == CUDA else block_m
    of_a, of_b, steps = 128 * loaded, 128 * block_n, ceil_div(k, 64) / split
    together = rows * cols > 1 and not copied
    rate = _MULTIPLIED / throttled(shape) * (_STREAM_RATE if stream else 1)
    if swap:
        rate *= _ALONE if block_n == 64 else _SWAPPED if block_n < _WIDE_COLUMNS else _WIDE
    elif variant != CUDA:
        rate *= _SPECIALISED if variant == WARP_SPECIALISED else _GENERIC_TILES[block_m, block_n][1]
    if dtype == "fp8_e4m3":
        rate *= _PROMOTED
    of_rows = pitch(k if DTYPE_BYTES[dtype] == 1 else n)
    asked = _BY_PITCH[pitch(k)] * of_a / cols + _BY_PITCH[of_rows] * of_b / rows
    if together:
        wait = _WAIT_FOUR if split > 1 or cols == 4 else _WAIT_TOGETHER
    else:
        wait = _WAIT_HALVES if split > 1 else _WAIT
    each = _joined(
        _POWER_SM,
        128 * block_m * block_n / rate,
        asked / (_ASKED_TOGETHER if together else _ASKED),
        wait / _stages(frame, shape, sms),
    )
    loop = _joined(
        _POWER,
        waves * steps * each,
        clusters * rows * cols * split * steps * asked / _L2,
        2 * (m * k + n * k + m * n) / _DRAM,
    )
    if (rows, cols) == (1, 2):
        loop *= _ALONG_N
    if DTYPE_BYTES[dtype] == 1 and block_n > n:
        loop *= 1 + _OUTSIDE * (block_n - n) / block_n
    taken = _LAUNCH + loop + waves * (_TILE + _TILE_AREA * block_m * block_n / (128 * 256))
    if swap and block_n >= _WIDE_COLUMNS:
        taken += _WIDE_TILE
    if stream:
        taken += _STREAM + _STREAM_PART * max(1 / shared - 1, 0)
    return taken + (_CLUSTER if together else 0) + (_HALVES if split > 1 else 0)


def _joined(power: float, *times: float) -> float:
    """Return the time of what happens at once: the longest and some of the others."""
    longest = max(times)
    return float(longest * sum((time / longest) ** power for time in times) ** (1 / power))


def _clusters(frame: Frame, shape: Shape) -> int:
    """Return how many clusters' tiles cover the matrix."""
    rows, cols = frame.cluster_m * frame.block_m, frame.cluster_n * frame.block_n
    return ceil_div(shape["M"], rows) * ceil_div(shape["N"], cols)


def _waves(frame: Frame, shape: Shape, sms: int) -> float:
    """Return how many tiles each cluster of a full chip has; the CTAs that divide a tile along K count as a cluster."""
    rows, cols, split = frame.cluster_m, frame.cluster_n, frame.split_k
    at_once = resident((rows * split, cols), sms) // (rows * cols * split)
    return _clusters(frame, shape) / at_once if at_once else math.inf


def _has_room(frame: Frame, shape: Shape, sms: int) -> bool:
    """Tell whether results of a swapped frame may lie where stages were: a tile a CTA, and more than few rows."""
    whole = frame.swap_ab and frame.split_k == 1 and not frame.stream_k
    return bool(whole and shape["M"] > _FEW_ROWS and _waves(frame, shape, sms) <= 1)


def _stages(frame: Frame, shape: Shape, sms: int) -> int:
    """Return the stages of a frame: as many as fit and are worth having."""
    block_m, block_n, split = frame.block_m, frame.block_n, frame.split_k
    if frame.variant == WARP_SPECIALISED:
        return _PIPELINED_STAGES[block_m, block_n]
    if frame.variant == GENERIC:
        return _GENERIC_TILES[block_m, block_n][0]
    # Where tiles are halves, results lie where stages were.
    stored = 0 if split > 1 else store_bytes(frame.num_warps)
    stage, shared_bytes = 128 * (block_m + block_n) + 16, SHARED_BYTES["sm_90"]
    fit = (shared_bytes - stored) // stage
    asked = 128 * (block_m // frame.cluster_n + block_n // frame.cluster_m) * split
    asked *= ceil_div(shape["M"], block_m) * ceil_div(shape["N"], block_n)
    # One tile has all rows: loads wait for DRAM, with several for L2.
    alone = shape["M"] <= block_m
    if _has_room(frame, shape, sms) and (block_n >= _WIDE_COLUMNS or (not alone and shape["K"] > _LONG_INNER)):
        more = min(_DEEP_STAGES, shared_bytes // stage, max(_ASKED_OF_L2 // asked, _LEAST_STAGES))
        if more > min(fit, _STAGES):
            return more
    narrow = frame.swap_ab and block_n == _DEEP_COLUMNS and block_m <= _DEEP_ROWS
    if frame.swap_ab and block_m <= _SHALLOW_ROWS:
        return min(_DEEP_STAGES, fit)
    if narrow and alone:
        return min(max(round(_ASKED_OF_DRAM / asked), _STAGES), _DEEP_STAGES, fit)
    return min(_DEEP_STAGES if narrow else _STAGES, fit)

"""Chooses launch configurations of C = A · B with an epilogue: fitted clocks of tiles, clusters and waves.

docs/notes/gemm.md has the measurements that the constants are fitted to. Imports neither torch nor triton.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ledger.kernel import Candidate, variations
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .gemm import Gemm
from .gemm_cluster import DIVIDED_CLOCKS
from .gemm_config import (
    CLUSTERS,
    CUDA,
    GENERIC,
    WARP_SPECIALISED,
    Settings,
    group_rows,
    lines,
    resident,
    tile_rows,
)
from .gemm_tiles import EDGE, TILES, Tile
from .targets import ceil_div, sms_of

# What an SM of sm_90 does in a clock: operations that it multiplies; bytes that it requests from L2, by the lines
# of L2 in which 128 of them lie (one where rows are a multiple of 128 bytes long, else two); bytes that come into its
# shared memory, asked for by itself or by another program of its cluster. With the products left out an H200 took 79,
# 46 and 110 bytes a nanosecond. Programs of a single wave ask for the same lines at once, which limited no tile.
TENSOR_FLOPS = 4096
ASKED_BYTES = {1: 64.0, 2: 24.9}
ASKED_AT_ONCE_BYTES = 100.0
ARRIVING_BYTES = 76.4

# The rest is fitted to times of 23 shapes on an H200 (docs/notes/gemm.md), so that the frame with the fewest clocks is
# nearly the fastest of those that were timed; a clock means little but beside another. Rows and columns of the cluster
# kernel's tiles -> rate of their arithmetic:
CLUSTER_TILES = {
    (128, 256): 0.993, (128, 128): 1.0, (192, 192): 0.952, (128, 192): 1.0, (64, 256): 1.0, (192, 128): 0.9,
    (64, 192): 0.9,
}  # fmt: skip
# The pipelined kernel's, which has no clusters -> its stages, and the rate.
PIPELINED_TILES = {(128, 256): (3, 1.03), (128, 128): (6, 0.959)}
# Programs of a cluster, which wait for one another -> rate; and the rate of tiles that are divided.
CLUSTER_RATES = {1: 1.0, 2: 0.959, 4: 0.93}
DIVIDED_RATE = 0.909
# Clocks: of a tile of 128 x 256 beside its steps, of a launch that does not begin before the one ahead of it ends.
TILE_CLOCKS = 5_560
LAUNCH_CLOCKS = 4_510
# The time of a frame, beside that of split_k, fitted to 195 times (benchmarks/matmul-split-k-h200.json). Nanoseconds of
# a launch; clocks in a nanosecond, of swapped and of other tiles; bytes that DRAM delivers in one. What split_k must be
# faster by: its time holds for launches that overlap, and a second launch takes longer where they do not. The same
# beside residues: of 36 products of 9 to 56 rows their times by the rule are shorter, beside those of split_k, than the
# measured ones, and a second launch that does not overlap took 0.74 microseconds in the median.
_LAUNCH, _CLOCKS, _PLAIN_CLOCKS, _DRAM = 2706.0, 1.655, 1.927, 4867.0
_SLOWER, _SECOND = 1.06, 300.0
_SLOWER_BESIDE_RESIDUES, _SECOND_BESIDE_RESIDUES = 0.97, 700.0
# Choices that are kept: a call asks for one each time.
_KEPT = 1024
# Rows of C up to which residues, a single launch, are as fast.
_SINGLE_ROWS = 8
SHORT_INNER = 1024
"""K up to which dividing it made no product faster."""


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

    @property
    def cluster(self) -> tuple[int, int]:
        """Return the CTAs of a cluster along M and along N."""
        return self.cluster_m, self.cluster_n

    def config(self, sms: int) -> dict[str, Any]:
        """Return what a frame fixes of a configuration on a chip with so many SMs."""
        return {
            **self._asdict(), "block_k": 64, "num_warps": (self.block_n if self.swap_ab else self.block_m) // 16,
            "subtiles": 1, "tma": 1, "programs": resident(self.cluster, sms),
        }  # fmt: skip


MEASURED: dict[tuple[int, int, int], Frame] = {
    (3000, 5000, 7000): Frame(128, 256, 2, stream_k=1),
    (5000, 5000, 520): Frame(128, 256, 2),
}
"""M, N, K -> the frame that was measured faster for matmul than the one with the fewest clocks (docs/notes/gemm.md)."""


def frames() -> Iterator[Frame]:
    """Yield the frames whose A and B are not swapped. A split in two, and stream-K without clusters, never paid."""
    yield from (Frame(*tile, variant=WARP_SPECIALISED) for tile in PIPELINED_TILES)
    for stream_k, clusters in ((0, CLUSTERS), (1, CLUSTERS[1:])):
        for cluster, tile in itertools.product(clusters, CLUSTER_TILES):
            yield Frame(*tile, *cluster, stream_k=stream_k)


def clocks(frame: Frame, shape: Shape, sms: int, *, even_rows: bool) -> float:
    """Return about how many clocks the busiest CTA of a frame takes for a shape, beside what all of them take.

    even_rows: whether the CUDA C++ gives all tiles the same rows instead of whole tiles and a rest.
    """
    block_m, block_n, rows, cols, *_, stream, _ = frame
    specialised = frame.variant == WARP_SPECIALISED
    slots = resident(frame.cluster, sms) // (rows * cols)
    tiles = ceil_div(shape["M"], rows * block_m) * ceil_div(shape["N"], cols * block_n)
    rate = PIPELINED_TILES[block_m, block_n][1] if specialised else CLUSTER_TILES[block_m, block_n]
    rate *= (DIVIDED_RATE if stream else 1) * CLUSTER_RATES[rows * cols]
    bytes_of = {**ASKED_BYTES, 1: ASKED_BYTES[1] if tiles > slots else ASKED_AT_ONCE_BYTES}
    # Of a tile's rows all are multiplied, but only those are loaded that it stores.
    loaded = block_m
    if even_rows and not specialised:
        loaded = tile_rows(frame._asdict(), shape["M"])
    asked_a = 2 * loaded / cols / bytes_of[lines(shape["K"])]
    asked_b = 2 * block_n / rows / bytes_of[lines(shape["N"])]
    arriving = 2 * (loaded + block_n) / ARRIVING_BYTES
    inner = max(2 * block_m * block_n / TENSOR_FLOPS / rate, asked_a + asked_b, arriving) * shape["K"]
    # Fewer tiles than clusters are not divided: each would be added up from many parts at once.
    waves = tiles / slots if stream and tiles > slots else math.ceil(tiles / slots)
    once = inner + TILE_CLOCKS * block_m * block_n / (128 * 256)
    return waves * once + (DIVIDED_CLOCKS if stream else LAUNCH_CLOCKS if specialised else 0)


def _tile_clocks(tile: Tile, shape: Shape, sms: int) -> float:
    """Return the same for a tile of the generic variant."""
    block_m, block_n, rate = tile[0], tile[1], tile[-1]
    waves = math.ceil(ceil_div(shape["M"], block_m) * ceil_div(shape["N"], block_n) / sms)
    arriving = 2 * (block_m * lines(shape["K"]) + block_n * lines(shape["N"])) / ARRIVING_BYTES
    return (waves + EDGE) * max(2 * block_m * block_n / TENSOR_FLOPS / rate, arriving) * shape["K"]


def generic_clocks(shape: Shape, sms: int) -> float:
    """Return the same for the generic variant on sm_90, whose largest tiles the other variants have too."""
    return min(_tile_clocks(tile, shape, sms) for tile in TILES["sm_90"][2:])


def specialised_frame(shape: Shape, sms: int) -> Frame | None:
    """Return the warp-specialised frame that takes the fewest clocks, or None where the generic variant takes fewer."""
    best = min(
        (Frame(*tile, variant=WARP_SPECIALISED) for tile in PIPELINED_TILES),
        key=lambda frame: clocks(frame, shape, sms, even_rows=False),
    )
    return None if generic_clocks(shape, sms) < clocks(best, shape, sms, even_rows=False) else best


def cluster_frame(shape: Shape, sms: int) -> Frame:
    """Return the frame of the CUDA C++ that takes the fewest clocks; it stores unaligned rows of C best."""
    of_clusters = (frame for frame in frames() if frame.variant == CUDA)
    return min(of_clusters, key=lambda frame: clocks(frame, shape, sms, even_rows=False))


def _short_tile(shape: Shape, sms: int) -> dict[str, int] | None:
    """Return the tile of a product with so few steps that Triton, which fills no ring, is faster; None for others.

    Of the tiles of a case (rows, columns, depth, warps) the first of which there are few enough for each SM; measured
    (benchmarks/matmul-sweep-h200.json). Lanes load unaligned rows of B element by element: narrow tiles then.
    """
    n_rows, n_cols, n_inner = shape["M"], shape["N"], shape["K"]
    unaligned, few = n_cols % 8 > 0, n_rows <= 24
    if n_rows > 64 and not unaligned and n_inner % 8 == 0:
        return None
    narrow, square = ((64, 32, 64, 4), 1.0 if unaligned else 0.3), ((64, 64, 64, 4), 1.0)
    tall, large = ((128, 64, 64, 8), 1.0), ((128, 128, 32, 8), 1.0)
    if n_inner <= 32:
        tiles = [((64, 64, 32, 4), 1.0), ((128, 128, 32, 8), 8.0)]
    elif n_inner <= (80 if few else 96):
        tiles = [narrow, square, *([tall] if n_rows > 64 else []), *([large] if n_rows > 128 else [])]
    elif n_inner <= 250 and unaligned and not few:
        tiles = [narrow]
    else:
        return None
    for (block_m, block_n, block_k, num_warps), most in tiles:
        if ceil_div(n_rows, block_m) * ceil_div(n_cols, block_n) <= most * sms:
            return {"block_m": block_m, "block_n": block_n, "block_k": block_k, "num_warps": num_warps, "num_stages": 3}
    return None


@dataclass(frozen=True, kw_only=True)
class RuledGemm(Gemm):
    """A product whose launch rule chooses frames.

    frame_of: (shape, SMs) -> the frame on sm_90, or None for the generic variant; without CUDA C++ its variant is
    another. clocks_of: (frame, shape, SMs) -> about how many clocks it takes. copied_frame_of: the same as frame_of
    where TMA reads copies, None for frame_of. stages_of: (frame, shape) -> the most stages where it reads the operands
    themselves. swapped_frames: (shape, SMs) -> frames with A and B swapped that may be worth timing.
    """

    frame_of: Callable[[Shape, int], Frame | None] = specialised_frame
    clocks_of: Callable[[Frame, Shape, int], float] = lambda frame, shape, sms: clocks(
        frame, shape, sms, even_rows=False
    )
    copied_frame_of: Callable[[Shape, int], Frame | None] | None = None
    stages_of: Callable[[Frame, Shape], int] = lambda frame, shape: 8
    swapped_frames: Callable[[Shape, int], Iterable[Frame]] = lambda shape, sms: ()
    _chosen: dict[tuple[int, int, int, Dtype, str, int], dict[str, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        """Return the launch configuration of a shape: the variant and tile whose waves take least time."""
        # A target is equal to its name, whatever the SMs of the chip; a name alone has none.
        asked = (shape["M"], shape["N"], shape["K"], dtype, target, getattr(target, "sms", 0))
        if asked not in self._chosen:
            if len(self._chosen) >= _KEPT:
                self._chosen.clear()
            self._chosen[asked] = self._fastest(shape, dtype, target)
        return dict(self._chosen[asked])

    def _fastest(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        """Return the launch configuration that takes the least time by the rule."""
        ruled = self.residues and self.residues.serves(shape, dtype, target)
        if ruled and (short := _short_tile(shape, sms_of(target))):
            return {**self.generic_config(shape, dtype, target), **short}
        if divided := self._divided(shape, dtype, target):
            return divided
        if self.few_rows and self.few_rows.is_fastest(shape, dtype, target):
            return self.few_rows.config({**self.generic_config(shape, dtype, target), "tma": 0}, shape)
        padded, frame_of = self.pads(shape, dtype, target), self.frame_of
        if padded:
            shape, frame_of = self.padded(shape, dtype), self.copied_frame_of or frame_of
        generic, sms = self.generic_config(shape, dtype, target), sms_of(target)
        frame = frame_of(shape, sms) if target == "sm_90" and DTYPE_BYTES[dtype] == 2 and generic["tma"] else None
        if padded and self.cluster and DTYPE_BYTES[dtype] == 2 and (frame is None or frame.variant != CUDA):
            frame = cluster_frame(shape, sms)
        if frame is None:
            return generic
        if frame.variant == WARP_SPECIALISED:
            stages, _ = PIPELINED_TILES[frame.block_m, frame.block_n]
            return {**generic, **_fixed(generic, frame, sms), "num_warps": 4, "num_stages": stages}
        deep = 8 if padded else self.stages_of(frame, shape)
        return dict(next(self.deepest(_cluster_config(generic, frame, shape, sms), dtype, target, most=1, deep=deep)))

    def _divided(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any] | None:
        """Return the configuration of the variant that divides K, if one of them is the fastest."""
        generic, sms = self.generic_config(shape, dtype, target), sms_of(target)
        residues, least = None, math.inf
        if self.residues and self.residues.is_fastest(shape, dtype, target):
            least, residues = self.residues.fastest(generic, shape)
        if residues and shape["M"] <= _SINGLE_ROWS:
            return residues
        if self.split_k and shape["K"] > SHORT_INNER and self.split_k.serves(shape, dtype, target):
            if not (found := self.split_k.fastest(generic, shape)):
                return residues
            taken, config = found
            if residues:
                taken = _SLOWER_BESIDE_RESIDUES * taken + _SECOND_BESIDE_RESIDUES
            else:
                taken, least = _SLOWER * taken + _SECOND, self._nanoseconds(self.frame_of(shape, sms), shape, sms)
            if taken < least:
                return config
        return residues

    def _nanoseconds(self, frame: Frame | None, shape: Shape, sms: int) -> float:
        """Return about how long a frame takes, or the generic variant."""
        m, n, k = (shape[size] for size in "MNK")
        taken = self.clocks_of(frame, shape, sms) if frame else generic_clocks(shape, sms)
        rate = _CLOCKS if frame and frame.swap_ab else _PLAIN_CLOCKS
        return _LAUNCH + math.hypot(taken / rate, 2 * (m * k + n * k) / _DRAM)

    def candidates(self, shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing: tiles of all variants, as many stages as fit."""
        own = self.config(shape, dtype, target)
        yield self.candidate(own, shape, dtype)

        def fitting(config: Settings, *, most: int = 2, deep: int = 8) -> Iterator[Candidate]:
            for one in self.deepest(config, dtype, target, most=most, deep=deep):
                yield self.candidate(one, shape, dtype)

        plain = {**own, **self.cuda_defaults}
        if self.few_rows and self.few_rows.serves(shape["M"], dtype, target):
            for config in self.few_rows.candidates(plain, shape):
                yield self.candidate(config, shape, dtype)
        if self.residues and self.residues.serves(shape, dtype, target):
            for config in self.residues.candidates(plain, shape):
                yield self.candidate(config, shape, dtype)
        if self.split_k and self.split_k.serves(shape, dtype, target):
            for config in self.split_k.candidates({**plain, "programs": sms_of(target)}, shape):
                yield self.candidate(config, shape, dtype)
        if target == "sm_90" and own["tma"] and DTYPE_BYTES[dtype] == 2:
            again = variations(own, {"group_m": (2, 4, 6, 8, 12), "pdl": (0, 1)}) if own["variant"] == CUDA else ()
            swaps = self.swapped_frames(shape, sms_of(target))
            for frame in (*(_cluster_frames() if self.cluster else ()), *swaps):
                config = _cluster_config(plain, frame, shape, sms_of(target))
                yield from fitting(config, most=1, deep=self.stages_of(frame, shape))
            for config in again:
                yield from fitting(config, most=1, deep=own["num_stages"])
            pipelined = {**plain, "variant": WARP_SPECIALISED, "num_warps": 4, "block_k": 64}
            choices: dict[str, tuple[int, ...]] = {"block_m": (128, 256), "block_n": (64, 128, 256), "subtiles": (1, 2)}
            for config in variations(pipelined, choices):
                yield from fitting(config)
        choices = {
            "block_m": (32, 64, 128), "block_n": (32, 64, 128, 256), "block_k": (32, 64, 128), "num_warps": (4, 8),
        }  # fmt: skip
        for config in variations({**plain, "variant": GENERIC, "subtiles": 1}, choices):
            yield from fitting(config)


def _fixed(config: Settings, frame: Frame, sms: int) -> dict[str, Any]:
    """Return what a frame fixes of a configuration: a kernel without CUDA C++, or without swaps, lacks keys of it."""
    return {key: value for key, value in frame.config(sms).items() if key in config}


def _cluster_config(config: Settings, frame: Frame, shape: Shape, sms: int) -> dict[str, Any]:
    """Return a configuration with a frame of the CUDA C++."""
    chosen = {**config, **_fixed(config, frame, sms)}
    return {**chosen, "group_m": group_rows(chosen, shape)}


def _cluster_frames() -> Iterator[Frame]:
    """Yield the tiles of the CUDA C++ in every cluster, whole, stream-K and split."""
    for tile, cluster in itertools.product(CLUSTER_TILES, CLUSTERS):
        for split_k, stream_k in ((1, 0), (1, 1), (2, 0)):
            yield Frame(*tile, *cluster, split_k=split_k, stream_k=stream_k)

"""Chooses launch configurations of C = A · B with an epilogue: the variant and tile that take least time by a model.

Imports neither torch nor triton.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ledger.kernel import Candidate, variations
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .gemm import Gemm
from .gemm_config import CLUSTERS, CUDA, GENERIC, GROUP, WARP_SPECIALISED, Settings, group_rows
from .gemm_frames import (
    CLUSTER_TILES,
    SMALL_TILES,
    Frame,
    cluster_frames,
    nanoseconds,
    pitch,
    specialised_frames,
)
from .targets import ceil_div, sms_of

# Of aligned products: the measured time of residues over that of their model; nanoseconds that split_k takes for its
# second launch, the mean of launches that overlap the first and that do not; the measured time of split_k over that of
# its model where rows begin within lines of L2.
_RESIDUES, _SECOND, _WITHIN = 1.1, 500.0, 0.93
# K up to which dividing it made no product faster.
_SHORT_INNER = 512
# As many swapped tiles as `ledger tune` is offered.
_SWAPPED_OFFERED = 24


def divided_ns(nanoseconds: float, shape: Shape) -> float:
    """Return the nanoseconds of split_k, measured, from those of its model."""
    within = pitch(shape["N"]) or pitch(shape["K"])
    return (_WITHIN if within else 1) * nanoseconds + _SECOND


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
    """A product whose launch configuration is the one that takes least time by a model of each variant."""

    def _fastest(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        """Return the launch configuration that takes the least time by the rule."""
        generic, sms = self.generic_config(shape, dtype, target), sms_of(target)
        ruled = self.residues and self.residues.serves(shape, dtype, target)
        if ruled and (short := _short_tile(shape, sms)):
            return {**generic, **short}
        choices = []
        if self.residues and self.residues.is_fastest(shape, dtype, target):
            taken, config = self.residues.fastest(generic, shape)
            if not self._is_aligned(shape, dtype):
                return config
            choices.append((_RESIDUES * taken, config))
        if self.few_rows and self.few_rows.is_fastest(shape, dtype, target):
            return self.few_rows.config({**generic, "tma": 0}, shape)
        if divided := self.divided(generic, shape, dtype, target):
            choices.append(divided)
        seen, copied = self._seen(shape, dtype, target)
        generic = self.generic_config(seen, dtype, target)
        if target == "sm_90" and DTYPE_BYTES[dtype] == 2 and generic["tma"]:
            choices += self._framed(generic, seen, sms, copied=copied)
        return min(choices, key=lambda choice: choice[0])[1] if choices else generic

    def divided(
        self, generic: dict[str, Any], shape: Shape, dtype: Dtype, target: str
    ) -> tuple[float, dict[str, Any]] | None:
        """Return nanoseconds and configuration of the fastest division of K; None where none serves the shape."""
        if not self.split_k or shape["K"] <= _SHORT_INNER or not self.split_k.serves(shape, dtype, target):
            return None
        found = self.split_k.fastest(generic, shape)
        return (divided_ns(found[0], shape), found[1]) if found else None

    def _seen(self, shape: Shape, dtype: Dtype, target: str) -> tuple[Shape, bool]:
        """Return a shape with the row pitches that TMA sees, and whether operands are copied for that."""
        copied = self.pads(shape, dtype, target)
        return (self.padded(shape, dtype) if copied else shape), copied

    def _framed(
        self, generic: dict[str, Any], shape: Shape, sms: int, *, copied: bool
    ) -> list[tuple[float, dict[str, Any]]]:
        """Return nanoseconds and configurations: of the fastest frame, and without CUDA C++ of the generic variant."""

        def taken(frame: Frame) -> float:
            return nanoseconds(frame, shape, sms, copied=copied)

        # The CUDA C++ begins while operands are still copied.
        early = copied and self.cluster
        frames = [*self._cuda_frames(shape, sms, copied=copied), *([] if early else specialised_frames())]
        best = min(frames, key=taken)
        choices = [(taken(best), _config(generic, best, shape, sms))]
        if not self.cluster:
            choices.append((taken(Frame(generic["block_m"], generic["block_n"], variant=GENERIC)), generic))
        return choices

    def _cuda_frames(self, shape: Shape, sms: int, *, copied: bool, every: bool = False) -> Iterator[Frame]:
        """Yield the frames of the CUDA C++ that the rule weighs, of those whose clusters a chip holds.

        every: also swapped ones in clusters that are not expected to pay.
        """
        if self.cluster:
            yield from cluster_frames(shape, sms, copied=copied, every=every)

    def candidates(self, shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing: tiles of all variants, as many stages as fit."""
        own, sms = self.config(shape, dtype, target), sms_of(target)
        yield self.candidate(own, shape, dtype)

        def fitting(config: Settings) -> Iterator[Candidate]:
            for one in self.deepest(config, dtype, target):
                yield self.candidate(one, shape, dtype)

        plain: dict[str, Any] = {**own, **self.cuda_defaults, "programs": sms, "group_m": GROUP}
        if self.few_rows and self.few_rows.serves(shape["M"], dtype, target):
            for config in self.few_rows.candidates(plain, shape):
                yield self.candidate(config, shape, dtype)
        if self.residues and self.residues.serves(shape, dtype, target):
            for config in self.residues.candidates(plain, shape):
                yield self.candidate(config, shape, dtype)
        if self.split_k and self.split_k.serves(shape, dtype, target):
            for config in self.split_k.candidates(plain, shape):
                yield self.candidate(config, shape, dtype)
        if target == "sm_90" and own["tma"] and DTYPE_BYTES[dtype] == 2:
            again = variations(own, {"group_m": (2, 4, 6, 8, 12), "pdl": (0, 1)}) if own["variant"] == CUDA else ()
            seen, copied = self._seen(shape, dtype, target)
            swapped = (frame for frame in self._cuda_frames(seen, sms, copied=copied, every=True) if frame.swap_ab)
            swaps = heapq.nsmallest(
                _SWAPPED_OFFERED,
                swapped,
                key=lambda frame: nanoseconds(frame, seen, sms, copied=copied),
            )
            for frame in (*(_cluster_frames() if self.cluster else ()), *swaps):
                yield self.candidate(_config(plain, frame, shape, sms), shape, dtype)
            for config in again:
                yield self.candidate(config, shape, dtype)
            pipelined = {**plain, "variant": WARP_SPECIALISED, "num_warps": 4, "block_k": 64}
            choices: dict[str, tuple[int, ...]] = {"block_m": (128, 256), "block_n": (64, 128, 256), "subtiles": (1, 2)}
            for config in variations(pipelined, choices):
                yield from fitting(config)
        choices = {
            "block_m": (32, 64, 128), "block_n": (32, 64, 128, 256), "block_k": (32, 64, 128), "num_warps": (4, 8),
        }  # fmt: skip
        for config in variations({**plain, "variant": GENERIC, "subtiles": 1}, choices):
            yield from fitting(config)


def _config(config: Settings, frame: Frame, shape: Shape, sms: int) -> dict[str, Any]:
    """Return a configuration with a frame: a kernel without CUDA C++ lacks keys of it."""
    chosen = {**config, **{key: value for key, value in frame.config(shape, sms).items() if key in config}}
    return {**chosen, "group_m": group_rows(chosen, shape)} if frame.variant == CUDA else chosen


def _cluster_frames() -> Iterator[Frame]:
    """Yield the tiles of the CUDA C++ in every cluster, whole, stream-K and split."""
    yield from (Frame(*tile) for tile in SMALL_TILES)
    for tile, cluster in itertools.product(CLUSTER_TILES, CLUSTERS):
        for split_k, stream_k in ((1, 0), (1, 1), (2, 0)):
            yield Frame(*tile, *cluster, split_k=split_k, stream_k=stream_k)

"""Enumerates the configurations of sm_90 that the launch rule chooses among, and takes the cheapest predicted one.

Only fused tiles that were timed with a correct result (benchmarks/model-shapes-promoted-h200.json, -fit-h200.json) are
offered. Imports neither torch nor triton.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, product
from typing import Any

from ledger.cost_model import Rates
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.gemm_frames import Frame, cluster_frames
from ledger.kernels.common.gemm_rule import divided_ns
from ledger.kernels.common.targets import SHARED_BYTES, ceil_div
from ledger.operations import Shape
from ledger.records import Dtype

from . import ping_pong
from .cost import (
    RATES,
    Tile,
    behind_normed_s,
    chain_s,
    cluster_ctas,
    normed_s,
    product_shape,
    resident_ctas,
    tile_of,
)
from .normed import DIVIDED, PRODUCT, own_settings, product_settings
from .variants import NEUTRAL, shared_bytes, together

Config = dict[str, Any]

_OF_FRAME = ("cluster_m", "cluster_n", "swap_ab", "split_k", "stream_k")
"""Keys of a frame of the product beside its tile's."""
_OF_PRODUCT = (*_OF_FRAME, "num_warps", "num_stages")

_HEIGHTS = {
    64: (8, 16, 32, 48, 56, 64, 80, 88, 96, 104, 128, 176, 192),
    128: (8, 16, 24, 32, 48, 56, 64, 80, 88, 96, 104, 128, 136, 176, 192, 256),
}
"""Columns -> rows of the tiles of ping-pong warpgroups that were timed; 24 and 136 in benchmarks/tuning."""
_COOPERATIVE_TILES = ((64, 64), (64, 128), (64, 256), (128, 128), (128, 256))
"""Rows and columns. 128 x 64 was timed too: never the fastest, and slower than predicted."""
_ROW_TILES = (1, 2, 3, 4, 5, 6, 8)
_LEAST_ROWS = 32
"""The least rows of a tile where several tiles divide the batch."""
_LEAST_INNER = {"cuda_ping_pong": 256, "warp_specialised": 512, "cuda_cooperative": 64}
"""Variant -> the least inner positions of a CTA of split-K."""
_WARP_SPECIALISED_ROWS = 16
_MOST_WARP_SPECIALISED_STAGES = 24
_MOST_COOPERATIVE_STAGES = 13
_MOST_PING_PONG_ROWS = 512
"""The largest batch at which ping-pong warpgroups were timed."""


def cheapest(shape: Shape, dtype: Dtype, *, rates: Rates = RATES) -> Config | None:
    """Return the configuration of least predicted time, or None where nothing fits into shared memory."""
    normed = cheapest_normed(shape, dtype, rates.slots[1])
    least = predicted_s(normed, shape, dtype, rates=rates) if normed else math.inf
    return cheapest_fused(shape, dtype, below_s=least, rates=rates) or normed


def cheapest_normed(shape: Shape, dtype: Dtype, sms: int) -> Config | None:
    """Return the cheapest configuration of cuda_normed or normed_split_k, or None where none fits. sms: of the chip."""
    found = [
        config for config in (next(normed_configs(shape, dtype, sms), None), _divided(shape, dtype, sms)) if config
    ]
    return min(found, key=lambda config: _normed_config_s(config, shape, dtype, sms), default=None)


def _divided(shape: Shape, dtype: Dtype, sms: int) -> Config | None:
    """Return the cheapest configuration of normed_split_k, None where there is none."""
    product = product_shape(shape)
    generic = {**PRODUCT.generic_config(product, dtype, "sm_90"), "programs": sms}
    found = PRODUCT.divided(generic, product, dtype, "sm_90")
    return {**own_settings(found[1]), **NEUTRAL["normed_split_k"]} if found else None


def _normed_config_s(config: Config, shape: Shape, dtype: Dtype, sms: int) -> float:
    if config["variant"] == "cuda_normed":
        return normed_s(frame_of(config), shape, dtype, sms)
    product = product_shape(shape)
    taken = DIVIDED.nanoseconds(product_settings(config, shape["B"], sms), product, sms)
    return behind_normed_s(divided_ns(taken, product), shape, dtype)


def normed_configs(shape: Shape, dtype: Dtype, sms: int) -> Iterator[Config]:
    """Yield the configurations of cuda_normed, one a frame of the product, the cheapest first."""
    frames = cluster_frames(product_shape(shape), sms, copied=True)
    for frame in sorted(frames, key=lambda frame: normed_s(frame, shape, dtype, sms)):
        if (config := normed_config(frame, shape, dtype, sms)) is not None:
            yield config


def normed_config(frame: Frame, shape: Shape, dtype: Dtype, sms: int) -> Config | None:
    """Return the configuration of cuda_normed with a frame of the product, or None where it does not fit."""
    of_product = frame.config(product_shape(shape), sms)
    config: Config = {
        "variant": "cuda_normed", "block_b": frame.block_m, "block_o": frame.block_n, "pdl": 1,
        **{key: of_product[key] for key in _OF_PRODUCT}, **NEUTRAL["cuda_normed"],
    }  # fmt: skip
    stages = ({**config, "num_stages": n} for n in range(config["num_stages"], 1, -1))
    return next((one for one in stages if _fits(one, shape, dtype)), None)


def frame_of(config: Settings) -> Frame:
    """Return the frame of the product of a configuration of cuda_normed."""
    return Frame(config["block_b"], config["block_o"], **{key: config[key] for key in _OF_FRAME})


def cheapest_fused(shape: Shape, dtype: Dtype, *, below_s: float = math.inf, rates: Rates = RATES) -> Config | None:
    """Return the cheapest configuration of the fused variants, or None where none takes less than `below_s`."""
    best, least = None, below_s
    # How many CTAs fit on an SM depends on the stages; until these are known, the most give a lower bound.
    bounds = [
        (chain_s(tile, shape, dtype, resident_ctas(tile, 0), rates=rates), tile) for tile in tiles(shape, rates=rates)
    ]
    for bound, tile in sorted(bounds):
        if bound >= least:
            break
        config = staged(tile, shape, dtype)
        if config is None:
            continue
        predicted = predicted_s(config, shape, dtype, rates=rates)
        if predicted < least:
            best, least = config, predicted
    return best


def predicted_s(config: Config, shape: Shape, dtype: Dtype, *, rates: Rates = RATES) -> float:
    """Return the predicted time of a configuration in a chain of other kernels, in seconds."""
    if config["variant"] in ("cuda_normed", "normed_split_k"):
        return _normed_config_s(config, shape, dtype, rates.slots[1])
    tile = tile_of(config)
    resident = resident_ctas(tile, shared_bytes(config, shape, dtype))
    return chain_s(tile, shape, dtype, resident, rates=rates)


def tiles(shape: Shape, *, rates: Rates = RATES) -> Iterator[Tile]:
    """Yield the fused tiles of a shape whose parts are long enough and whose CTAs run at once where they wait."""
    for tile in _tiles_of(shape["B"]):
        long_enough = tile.split_k == 1 or shape["H"] >= tile.split_k * _LEAST_INNER[tile.variant]
        if long_enough and rates.slots[cluster_ctas(tile)] and together(tile._asdict(), shape["B"]) <= rates.slots[1]:
            yield tile


@lru_cache(maxsize=64)
def _tiles_of(b: int) -> tuple[Tile, ...]:
    """Return the tiles of a batch, whatever the matrix."""
    variants = _ping_pong_tiles(b), _cooperative_tiles(b), _warp_specialised_tiles(b)
    return tuple(chain.from_iterable(variants))


def _ping_pong_tiles(b: int) -> Iterator[Tile]:
    if b > _MOST_PING_PONG_ROWS:
        return
    for columns, heights in _HEIGHTS.items():
        for rows in {_height(b, count, heights): None for count in _ROW_TILES}:
            if rows is not None:
                yield from _ping_pong_divisions(b, rows, columns)


def _height(b: int, count: int, heights: tuple[int, ...]) -> int | None:
    """Return the least timed height of which `count` row tiles hold the batch, None for one that is too low or high."""
    least = ceil_div(b, count)
    if count > 1 and least <= _LEAST_ROWS - 8:
        return None
    return next((rows for rows in heights if rows >= least), None)


def _ping_pong_divisions(b: int, rows: int, columns: int) -> Iterator[Tile]:
    for splits in (1, 2, 4, 8):
        if rows % splits:
            continue
        pair = 2 if splits == 1 and ceil_div(b, rows) % 2 == 0 else 1
        for warps, shared in product((8, 16) if rows <= 128 else (8,), (True, False)):
            yield Tile("cuda_ping_pong", rows, columns, splits, pair, warps, 64, shared)


def _cooperative_tiles(b: int) -> Iterator[Tile]:
    for (rows, columns), splits in product(_COOPERATIVE_TILES, (1, 2)):
        if rows == 64 or b > 64:
            yield Tile("cuda_cooperative", rows, columns, splits, 1, 8, 64, False)


def _warp_specialised_tiles(b: int) -> Iterator[Tile]:
    if b <= _WARP_SPECIALISED_ROWS:
        for columns, block_k, splits in product((64, 128), (128, 256), (1, 2, 4, 8)):
            rows = 8 if b <= 8 else 16
            yield Tile("warp_specialised", rows, columns, splits, 1, columns // 16, block_k, False)


# Stages


def staged(tile: Tile, shape: Shape, dtype: Dtype) -> Config | None:
    """Return the configuration of a tile with as many stages as fit and are of use; None where two do not fit."""
    config: Config = {**tile._asdict(), "num_stages": 2, "x_stages": 0, "pdl": 1, **NEUTRAL[tile.variant]}
    shared = config.pop("shared")
    if tile.variant == "cuda_ping_pong":
        return ping_pong_stages(config, shape, dtype, shared=shared)
    most = _MOST_COOPERATIVE_STAGES
    if tile.variant == "warp_specialised":
        few = tile.block_k == 256
        config |= {"x_stages": 4 if few else 8, "scaling_warpgroups": 1 if few else 2}
        steps = ceil_div(ceil_div(shape["H"], tile.block_k), tile.split_k)
        most = max(2, min(steps, _MOST_WARP_SPECIALISED_STAGES))
    stages = ({**config, "num_stages": n} for n in range(most, 1, -1))
    return next((one for one in stages if _fits(one, shape, dtype)), None)


def _fits(config: Settings, shape: Shape, dtype: Dtype) -> bool:
    return shared_bytes(config, shape, dtype) <= SHARED_BYTES["sm_90"]


def ping_pong_stages(config: Settings, shape: Shape, dtype: Dtype, *, shared: bool) -> Config | None:
    """Return a configuration with as many stages as fit and are of use; None where the accumulators do not fit.

    shared: whether x shares the stages of the weights.
    """
    groups, multiple = ping_pong.groups(config), ping_pong.stage_multiple(config)
    steps = ceil_div(ceil_div(shape["H"], config["block_k"]), config["split_k"])
    config = {**config, "cluster_m": ping_pong.paired_rows(config, shape["B"])}
    # Measured: more stages of x cost stages of the weights, most where two CTAs share these, which then come later.
    most = 8 if config["cluster_m"] > 1 else 12
    if shared:
        most = steps
    elif ping_pong.local_square_warps(config):
        most = 16

    def staged(weights: int, x: int) -> Config:
        return {**config, "num_stages": weights, "x_stages": 0 if shared else x}

    def too_few(weights: int, x: int) -> bool:
        filled = staged(weights, x)
        return x < least or ping_pong.stage_bytes(filled) < ping_pong.epilogue_bytes(filled)

    def fits(weights: int, x: int) -> bool:
        return _fits(staged(weights, x), shape, dtype)

    weights = x = multiple
    more = 1 if shared else multiple
    least = 2 * groups if ping_pong.prefetches_weights(staged(weights, x)) else multiple
    wanted = max(least, min(most, steps))
    while (x < wanted or (shared and too_few(weights, x))) and fits(weights + more, x + more):
        weights, x = weights + more, x + more
    while not shared and (weights < steps or too_few(weights, x)) and fits(weights + groups, x):
        weights += groups
    return staged(weights, x) if fits(weights, x) and not too_few(weights, x) else None

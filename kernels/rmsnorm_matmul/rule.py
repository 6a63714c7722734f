"""Launch rule: the variant and the tile of a shape, from tables and cost models that were fitted to measured times.

All times are of an H200 with cold weights. Elsewhere tiles were chosen to fit in shared memory.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ledger.kernels.common.configs import Settings, check_tuned
from ledger.kernels.common.targets import SHARED_BYTES, SMS, TMA_ALIGNMENT, TMA_TARGETS, ceil_div
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import ping_pong
from .variants import NAME, NEUTRAL, shared_bytes
from .warp_specialised import MAX_SPLITS

Config = dict[str, Any]

_SMS = SMS["sm_90"]
_LEAST_INNER = 512
"""The least inner positions of a CTA of split-K."""


def config_for(shape: Shape, dtype: Dtype, target: str) -> Config:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    element, b = DTYPE_BYTES[dtype], shape["B"]
    aligned = all(shape[key] * element % TMA_ALIGNMENT == 0 for key in ("H", "O"))
    if target != "sm_90" or element != 2 or not aligned:
        return generic_config(shape, dtype, target)
    chosen = _ping_pong_config(shape, dtype)
    if chosen is None and b > 32:
        chosen = _cooperative_config(shape, dtype)
    if chosen is None and b <= 64:
        chosen = _warp_specialised_config(shape, dtype)
    return generic_config(shape, dtype, target) if chosen is None else chosen


def _fits(config: Settings, dtype: Dtype, n_inner: int, target: str = "sm_90") -> bool:
    return shared_bytes(config, dtype, n_inner) <= SHARED_BYTES[target]


# Generic

_GENERIC_TILES = {
    ("sm_75", 16): (64, 32, 2),
    ("sm_75", 32): (64, 32, 2),
    ("sm_80", 16): (64, 64, 4),
    ("sm_80", 32): (64, 64, 4),
    ("sm_80", 64): (128, 64, 4),
    ("sm_80", 128): (128, 32, 4),
    ("sm_89", 16): (64, 64, 4),
    ("sm_89", 32): (64, 64, 4),
    ("sm_89", 64): (128, 32, 4),
    ("sm_89", 128): (128, 32, 3),
    ("sm_90", 16): (64, 256, 5),
    ("sm_90", 32): (64, 256, 4),
    ("sm_90", 64): (128, 128, 4),
    ("sm_90", 128): (256, 64, 4),
    ("sm_100", 16): (128, 128, 5),
    ("sm_100", 32): (128, 128, 5),
    ("sm_100", 64): (128, 128, 4),
    ("sm_100", 128): (128, 32, 8),
}
"""(target, block_b) -> (largest block_o, block_k, num_stages) for dtypes of 2 bytes. On sm_90 measured at B 2, 24, 48,
96 and H = O 1920, 3840, 7680."""


def generic_config(shape: Shape, dtype: Dtype, target: str) -> Config:
    """Return the configuration of the generic variant. Raises: InputError for a target without one."""
    check_tuned(NAME, target)
    b, h, o = shape["B"], shape["H"], shape["O"]
    sizes = sorted(block_b for name, block_b in _GENERIC_TILES if name == target)
    block_b = next((size for size in sizes if size >= b), sizes[-1])
    largest_o, block_k, num_stages = _GENERIC_TILES[target, block_b]
    if dtype == "fp32":
        block_k, largest_o = block_k // 2, min(largest_o, 128)
    tiles_b, sms = ceil_div(b, block_b), SMS[target]
    # Narrow tiles leave few partial sums to add; wide ones read x less often. Take the narrowest whose grid, with
    # split_k 4, is still one wave.
    block_o = 64 if target != "sm_100" else 128
    while block_o < largest_o and 4 * tiles_b * ceil_div(o, block_o) > sms:
        block_o *= 2
    config: dict[str, int | str] = {
        "variant": "generic",
        "block_b": block_b,
        "block_o": block_o,
        "block_k": block_k,
        "split_k": _generic_splits(b, h, tiles_b * ceil_div(o, block_o), ceil_div(h, block_k), sms),
        "num_warps": 8 if block_b * block_o >= 8192 else 4,
        "num_stages": num_stages,
        "tma": int(target in TMA_TARGETS and o * DTYPE_BYTES[dtype] % TMA_ALIGNMENT == 0),
        **NEUTRAL["generic"],
    }
    while num_stages > 1 and not _fits(config, dtype, h, target):
        num_stages -= 1
        config["num_stages"] = num_stages
    return config


def _generic_splits(b: int, h: int, tiles: int, steps: int, sms: int) -> int:
    """Return how many CTAs divide a tile's inner dimension, by a cost relative to one full wave."""

    def relative_cost(splits: int) -> float:
        waves = tiles * splits / sms
        # Partial sums move 8·B·O bytes a split through L2, the weights 2·H·O through DRAM at under half that rate.
        partial_sums = 2 * b / h * splits if splits > 1 else 0.0
        return math.ceil(waves) / waves + partial_sums + 0.02 * splits

    return min(range(1, min(MAX_SPLITS, steps) + 1), key=relative_cost)


# Warp-specialised

_WARP_SPECIALISED_TILES = {
    8: (64, 256, 4, 1, 66),
    16: (64, 128, 8, 2, 66),
    32: (64, 128, 8, 2, 66),
    64: (64, 128, 4, 2, 132),
}
"""block_b -> (largest block_o, block_k, x_stages, scaling_warpgroups, most CTAs). Measured at B 1 to 64. Up to B = 32
half of the SMs saturate DRAM, and the next launch loads its weights on the other half; beyond, the tiles of x come from
L2, which takes every SM."""


def _warp_specialised_config(shape: Shape, dtype: Dtype) -> Config:
    b, h, o = shape["B"], shape["H"], shape["O"]
    block_b = next(size for size in _WARP_SPECIALISED_TILES if size >= b)
    largest_o, block_k, x_stages, warpgroups, most_ctas = _WARP_SPECIALISED_TILES[block_b]
    block_o, split_k = 64, 1
    while block_o < largest_o and 4 * ceil_div(o, block_o) > _SMS:
        block_o *= 2
    tiles = ceil_div(o, block_o)
    while split_k < MAX_SPLITS and 2 * split_k * tiles <= most_ctas and h >= 2 * split_k * _LEAST_INNER:
        split_k *= 2
    config = {
        "variant": "warp_specialised", "block_b": block_b, "block_o": block_o, "block_k": block_k, "split_k": split_k,
        "num_warps": block_o // 16, "num_stages": 2, "x_stages": x_stages, "scaling_warpgroups": warpgroups, "pdl": 1,
        **NEUTRAL["warp_specialised"],
    }  # fmt: skip
    steps = ceil_div(ceil_div(h, block_k), split_k)
    num_stages = 2
    while num_stages < steps and _fits({**config, "num_stages": num_stages + 1}, dtype, h):
        num_stages += 1
    return {**config, "num_stages": num_stages}


# Cooperative warpgroups

_COOPERATIVE_TILES = {
    (64, 64, 2): 0.17, (64, 128, 2): 0.20, (64, 128, 1): 0.38, (64, 256, 1): 0.62,
    (128, 64, 2): 0.205, (128, 128, 2): 0.28, (128, 64, 1): 0.48, (128, 128, 1): 0.55, (128, 256, 1): 0.76,
    (128, 256, 2): 0.45,
}  # fmt: skip
"""(block_b, block_o, split_k) -> relative time of a tile. Fitted at B 40 to 128 with H = O 2048, 4096, 8192 and O
13824, 14336, and for 256 columns at B 640 to 3072; with split_k 2 at B 128 to 512 and O 4096 to 14336 in one wave. That
of 64 x 256 is a guess."""

_COOPERATIVE_CROWDED = 1.3
"""Relative time of a launch on more than half of the SMs: the next launch finds no SM to load its first weights."""

_COOPERATIVE_STAGES = 13


def _cooperative_config(shape: Shape, dtype: Dtype) -> Config | None:
    """Return the cheapest tile, or None where the gain does not fit into shared memory."""
    b, h, o = shape["B"], shape["H"], shape["O"]

    def ctas(tile: tuple[int, int, int]) -> int:
        return ceil_div(b, tile[0]) * ceil_div(o, tile[1]) * tile[2]

    def cost(tile: tuple[int, int, int]) -> float:
        crowded = _COOPERATIVE_CROWDED if 2 * ctas(tile) > _SMS else 1.0
        return math.ceil(ctas(tile) / _SMS) * _COOPERATIVE_TILES[tile] * crowded

    def offered(tile: tuple[int, int, int]) -> bool:
        if tile == (128, 256, 2) and ctas(tile) > _SMS:
            return False
        # Tiles of 64 rows read the weights once for each of them.
        rows_fit = tile[0] == 64 if b <= 64 else tile[0] == 128 or b <= 128
        return rows_fit and (tile[2] == 1 or h >= 2 * _LEAST_INNER)

    block_b, block_o, split_k = min(filter(offered, _COOPERATIVE_TILES), key=cost)
    config = {
        "variant": "cuda_cooperative", "block_b": block_b, "block_o": block_o, "split_k": split_k, "num_warps": 8,
        "pdl": 1, **NEUTRAL["cuda_cooperative"],
    }  # fmt: skip
    stages = range(_COOPERATIVE_STAGES, 1, -1)
    return next((filled for n in stages if _fits(filled := {**config, "num_stages": n}, dtype, h)), None)


# Ping-pong warpgroups


class _Tile(NamedTuple):
    """Hold a division of the result: row tiles, columns of a tile, CTAs that divide its inner dimension."""

    row_tiles: int
    columns: int
    splits: int


def _ping_pong_tile(shape: Shape) -> _Tile | None:
    """Return the tile, or None where another variant is faster. Measured at B 1 to 512, H 2048 to 14336, O to 28672."""
    b, h, o = shape["B"], shape["H"], shape["O"]
    tiles, wide = ceil_div(o, 64), ceil_div(o, 128)
    if 2 * tiles <= _SMS:
        return _ping_pong_narrow_tile(b, tiles)
    if tiles <= _SMS:
        if b <= 8:
            return None
        # 128 columns at 8192 columns read x half as often, but where two partial sums are large.
        return _Tile(1, 64, 1) if 128 < b <= 192 else _Tile(1, 128, 2)
    if b <= 32 and (wide <= _SMS or b > 8 or h < 8192):
        # Split long rows in two, where whole tiles leave a quarter of the SMs idle or take more than one wave.
        fills = 3 * _SMS <= 4 * wide <= 4 * _SMS
        return _Tile(1, 128, 2 if not fills and h >= (4096 if wide <= _SMS else 8192) else 1)
    return _Tile(1, 128, 1) if wide <= _SMS and 64 < b <= 192 else None


def _ping_pong_narrow_tile(b: int, tiles: int) -> _Tile:
    """Return the tile where tiles of 64 columns take at most half of the SMs."""
    row_tiles = 1
    if b > 112:
        # Pairs of row tiles share the weights; each CTA loads half of x.
        row_tiles = 2
        while 2 * row_tiles * tiles <= _SMS and b > 80 * row_tiles:
            row_tiles *= 2
    splits = 2 if 2 * row_tiles * tiles <= _SMS else 1
    # More only while the next launch keeps half of the SMs to load its first weights.
    while 4 * splits * row_tiles * tiles <= _SMS and splits < MAX_SPLITS:
        splits *= 2
    return _Tile(row_tiles, 64, splits)


def _ping_pong_config(shape: Shape, dtype: Dtype) -> Config | None:
    """Return the configuration of ping-pong warpgroups, or None where another variant is faster."""
    b, h, tile = shape["B"], shape["H"], _ping_pong_tile(shape)
    if tile is None:
        return None
    row_tiles, columns, splits = tile
    while splits > 1 and h < splits * _LEAST_INNER:
        splits //= 2
    rows = 8 * ceil_div(ceil_div(b, row_tiles), 8)
    if rows > ping_pong.MAX_ROWS[columns]:
        return None
    # Sixteen warps, or eight where that was faster and where 16 would not have the registers for their accumulators.
    half = row_tiles * ceil_div(shape["O"], 64) * splits <= _SMS // 2
    divided = columns == 64 and splits > 1 and rows >= 24
    eight_faster = ((half or row_tiles > 1) and rows <= 64) or 2048 * splits <= h < 4096 * splits
    eight = rows > (96 if columns == 64 else 128) or (divided and eight_faster)
    config = {
        "variant": "cuda_ping_pong", "block_b": rows, "block_o": columns, "split_k": splits,
        "num_warps": 8 if eight else 16, "num_stages": 0, "x_stages": 0, "pdl": 1, **NEUTRAL["cuda_ping_pong"],
    }  # fmt: skip
    # Many short steps, on most of the SMs, are faster with half of the mbarriers.
    return ping_pong_stages(config, shape, dtype, shared=divided and h >= 1536 * splits and not half)


def ping_pong_stages(config: Settings, shape: Shape, dtype: Dtype, *, shared: bool) -> Config | None:
    """Return a configuration with as many stages as fit and are of use; None where the accumulators do not fit.

    shared: whether x shares the stages of the weights.
    """
    h, groups, multiple = shape["H"], ping_pong.groups(config), ping_pong.stage_multiple(config)
    steps = ceil_div(ceil_div(h, config["block_k"]), config["split_k"])
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
        return _fits(staged(weights, x), dtype, h)

    weights = x = multiple
    more = 1 if shared else multiple
    least = 2 * groups if ping_pong.prefetches_weights(staged(weights, x)) else multiple
    wanted = max(least, min(most, steps))
    while (x < wanted or (shared and too_few(weights, x))) and fits(weights + more, x + more):
        weights, x = weights + more, x + more
    while not shared and (weights < steps or too_few(weights, x)) and fits(weights + groups, x):
        weights += groups
    return staged(weights, x) if fits(weights, x) and not too_few(weights, x) else None

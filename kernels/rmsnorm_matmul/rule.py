"""Launch rule: the variant and the tile of a shape.

On sm_90 the cheapest configuration that cost.py predicts; where rows are unaligned, normalised rows and matmul's choice
for what is left. Otherwise the generic variant with a tile from a table, which on sm_90 was measured on an H200 with
cold weights, and elsewhere chosen to fit in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ledger.kernels.common import pad_rows
from ledger.kernels.common.configs import Settings, check_tuned
from ledger.kernels.common.gemm_few_rows import MOST_ROWS
from ledger.kernels.common.targets import SHARED_BYTES, TMA_ALIGNMENT, TMA_TARGETS, ceil_div, sms_of, warps_on
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .cost import product_shape, rates_of
from .normed import OF_FEW_ROWS, PRODUCT, PRODUCTS, own_settings
from .search import Config, cheapest, cheapest_normed, normed_configs
from .variants import NAME, NEUTRAL, shared_bytes
from .warp_specialised import MAX_SPLITS


def config_for(shape: Shape, dtype: Dtype, target: str) -> Config:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    generic = generic_config(shape, dtype, target)
    if target != "sm_90" or DTYPE_BYTES[dtype] != 2:
        return generic
    if not is_unaligned(shape, dtype):
        return cheapest(shape, dtype, rates=rates_of(sms_of(target))) or generic
    seen = _seen(shape, dtype)
    if _is_aligned(shape["O"], dtype):
        return cheapest_normed(seen, dtype, sms_of(target)) or generic
    if shape["H"] < _FEWEST_STEPS:
        return generic
    product = PRODUCT.config(product_shape(seen), dtype, target)
    # Of few steps Triton's product may be the fastest, which none of these variants has.
    few = _of_few_steps(seen, dtype, target) if shape["H"] >= _FEW_STEPS else None
    return next(_of_products([product]), None) or few or generic


def _of_few_steps(shape: Shape, dtype: Dtype, target: str) -> Config | None:
    """Return the configuration of few weights with unaligned rows. shape: with the pitch of the normalised rows."""
    if shape["B"] <= MOST_ROWS:
        product = product_shape(shape)
        few = OF_FEW_ROWS.config(PRODUCT.generic_config(product, dtype, target), product)
        return next(_of_products([few]))
    return cheapest_normed({**shape, "O": pad_rows.padded(shape["O"], DTYPE_BYTES[dtype])}, dtype, sms_of(target))


def is_unaligned(shape: Shape, dtype: Dtype) -> bool:
    """Tell whether rows of x or of the weights are no multiple of 16 bytes."""
    return not all(_is_aligned(shape[key], dtype) for key in ("H", "O"))


def unaligned_configs(shape: Shape, dtype: Dtype, target: str) -> Iterator[Config]:
    """Yield configurations of unaligned rows that may be worth timing, on sm_90."""
    seen = _seen(shape, dtype)
    if _is_aligned(shape["O"], dtype):
        yield from normed_configs(seen, dtype, sms_of(target))
    elif shape["H"] >= _FEWEST_STEPS:
        yield from _of_products(one.config for one in PRODUCT.candidates(product_shape(seen), dtype, target))


def _is_aligned(columns: int, dtype: Dtype) -> bool:
    return columns * DTYPE_BYTES[dtype] % TMA_ALIGNMENT == 0


def _seen(shape: Shape, dtype: Dtype) -> Shape:
    """Return a shape with the pitch of the normalised rows."""
    return {**shape, "H": pad_rows.padded(shape["H"], DTYPE_BYTES[dtype])}


def _of_products(products: Iterable[Settings]) -> Iterator[Config]:
    """Yield the configurations with these of the product, of those for which there is a variant."""
    for product in products:
        if product["variant"] in PRODUCTS.values():
            own = own_settings(product)
            yield {**own, **NEUTRAL[own["variant"]], "pdl": 1}


_FEWEST_STEPS, _FEW_STEPS = 8, 128
"""Inner positions below which unaligned weights take the generic variant always, and where matmul's rule takes Triton's
product."""


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
    ("gfx942", 16): (64, 64, 2),
    ("gfx942", 32): (64, 64, 2),
    ("gfx942", 64): (128, 64, 2),
    ("gfx942", 128): (128, 32, 2),
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
    tiles_b, sms = ceil_div(b, block_b), sms_of(target)
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
        "num_warps": warps_on(target, 8 if block_b * block_o >= 8192 else 4),
        "num_stages": num_stages,
        "tma": int(target in TMA_TARGETS and o * DTYPE_BYTES[dtype] % TMA_ALIGNMENT == 0),
        **NEUTRAL["generic"],
    }
    while num_stages > 1 and shared_bytes(config, shape, dtype) > SHARED_BYTES[target]:
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

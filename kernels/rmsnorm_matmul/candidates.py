"""Yields the configurations that may be worth timing, with what the analytic model needs to know of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ledger.kernel import Candidate, variations
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.targets import SHARED_BYTES, SM_REGISTERS, ceil_div, sms_of
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .cost import product_shape
from .normed import PRODUCT, PRODUCTS, product_settings
from .rule import config_for, is_unaligned, unaligned_configs
from .search import Config, normed_configs, ping_pong_stages
from .variants import NEUTRAL, shared_bytes

_NORMED_OFFERED = 8
"""Configurations of cuda_normed, the cheapest predicted."""


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield variations of the rule's own configuration.

    Those of ping-pong warpgroups come wherever they can run.
    """
    own = config_for(shape, dtype, target)
    yield candidate(own, shape, dtype)
    if own["variant"] in PRODUCTS and is_unaligned(shape, dtype):
        for config in unaligned_configs(shape, dtype, target):
            yield candidate(config, shape, dtype)
        return
    if own["variant"] != "generic":
        normed = islice(normed_configs(shape, dtype, sms_of(target)), _NORMED_OFFERED)
        for config in (*_ping_pong_variations(own, shape, dtype), *normed):
            yield candidate(config, shape, dtype)
    for config in _variations(own):
        # As many stages as fit, or one less.
        staged = ({**config, "num_stages": n} for n in range(2, 25))
        fitting = [one for one in staged if shared_bytes(one, shape, dtype) <= SHARED_BYTES[target]]
        yield from (candidate(one, shape, dtype) for one in fitting[-2:])


def _variations(own: Config) -> Iterator[Config]:
    """Yield tiles of the variant, or of the cooperative one where the rule takes CUDA C++."""
    if own["variant"].startswith("cuda"):
        cooperative = {**own, "variant": "cuda_cooperative", "num_warps": 8, **NEUTRAL["cuda_cooperative"]}
        yield from variations(cooperative, {"block_b": (64, 128), "block_o": (64, 128, 256), "split_k": (1, 2)})
        return
    choices: dict[str, tuple[int, ...]] = {
        "block_o": (64, 128, 256), "block_k": (64, 128, 256), "split_k": (1, 2, 4, 8),
    }  # fmt: skip
    if own["variant"] == "generic":
        yield from variations(own, choices)
        return
    for config in variations(own, choices | {"x_stages": (4, 8), "scaling_warpgroups": (1, 2)}):
        yield {**config, "num_warps": int(config["block_o"]) // 16}


def _ping_pong_variations(own: Config, shape: Shape, dtype: Dtype) -> Iterator[Config]:
    ping_pong = {**own, "variant": "cuda_ping_pong", **NEUTRAL["cuda_ping_pong"]}
    rows = tuple(8 * ceil_div(shape["B"], 8 * tiles) for tiles in (1, 2, 4))
    choices = {"block_b": rows, "block_o": (64, 128), "split_k": (1, 2, 4), "num_warps": (8, 16)}
    for config in variations(ping_pong, choices):
        staged = (ping_pong_stages(config, shape, dtype, shared=shared) for shared in (False, True))
        yield from (one for one in staged if one is not None)


def candidate(config: Settings, shape: Shape, dtype: Dtype) -> Candidate:
    """Return a configuration with what the analytic model needs to know of it."""
    if config["variant"] in PRODUCTS:
        # Any chip's: only `programs`, which is not read here, depends on its SMs.
        settings = product_settings(config, shape["B"], 1)
        return replace(PRODUCT.candidate(settings, product_shape(shape), dtype), config=config)
    element, block_b, block_o, block_k = DTYPE_BYTES[dtype], config["block_b"], config["block_o"], config["block_k"]
    steps = ceil_div(ceil_div(shape["H"], block_k), config["split_k"])
    # The accumulators, and some for addresses and operands.
    warps, registers = config["num_warps"], block_b * block_o // (32 * config["num_warps"]) + 48
    if config["variant"] != "generic":
        # The warpgroups of these variants share out all registers of an SM.
        warps += 4 * config["scaling_warpgroups"] + 4
        registers = SM_REGISTERS // (32 * warps) // 8 * 8
    return Candidate(
        config=config,
        tiles=ceil_div(shape["O"], block_o) * ceil_div(shape["B"], block_b) * config["split_k"],
        tile_flops=2 * block_b * block_o * block_k * steps,
        # CTAs of a cluster along B read a share of the weights each.
        tile_bytes=element * (block_b + block_o // config["cluster_m"]) * block_k * steps,
        warps=warps,
        registers=registers,
        shared_bytes=shared_bytes(config, shape, dtype),
        bytes_under_way=element * block_k * block_o * config["num_stages"],
    )

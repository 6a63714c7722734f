"""Holds mla_decode's launch rule: tiles by target, splits by a cost model, and what may be launched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.errors import InputError
from ledger.kernels.common import configs
from ledger.kernels.common.decode import check_splits
from ledger.kernels.common.targets import PDL_TARGETS, TMA_TARGETS, ceil_div, sms_of
from ledger.operations import Shape
from ledger.records import Dtype

from .launch import CLUSTER_HEADS, NAME, VARIANTS, shared_bytes, together

KEYS = ("block_h", "block_s", "splits", "num_warps", "num_stages", "tma", "pdl", "variant")
_MOST_SPLITS = 64

# Target -> (BLOCK_H, BLOCK_S, num_warps, num_stages); the accumulators of BLOCK_H heads fill half of the registers.
_TILES = {"sm_80": (32, 32, 8, 2), "sm_89": (16, 32, 8, 1), "sm_90": (64, 64, 8, 2), "sm_100": (64, 16, 8, 2)}

# Variant on sm_90 -> what its source is written for.
_FIXED = {
    "warp_specialised": {"block_h": 64, "block_s": 64, "num_warps": 4, "num_stages": 2},
    "cuda": {"block_h": 64, "block_s": 64, "num_warps": 16, "num_stages": 2},
}
_SPECIALISED_SPLITS = (1, 2, 4, 8, 16)
# Of "cuda", in bf16 alone: their sums keep 11 bits, which adds a rounding as large as that of a result in fp16.
_CUDA_SPLITS = (4, 8, 16, 32, 64)
# Those that were timed.
_CHOSEN = (16, 32, 64)

# Time to fill the pipeline and, per wave, to reduce the splits, in tiles of 64 keys (1.65 us): fitted to timings on an
# H200 (B 1 to 60, S 3072 to 7168, 1 to 16 splits).
_FILL, _REDUCTION, _REDUCTION_PER_PROGRAM = 1.4, 5.0, 0.06
# The same of "cuda", whose CTAs all run at once: fitted to its timings in benchmarks/attention-h200.json.
_CUDA_FIXED, _CUDA_PER_CTA, _CUDA_PER_SPLIT = 4.3, 0.012, 0.01


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
    """Return the launch configuration of a shape. Raises: InputError for a target, or a dtype, without one."""
    generic = generic_config(shape, dtype, target)
    if target != "sm_90":
        return generic
    splits = _cuda_splits(shape, dtype, sms_of(target))
    if splits > 1:
        return {**generic, **_FIXED["cuda"], "splits": splits, "variant": "cuda"}
    splits = _specialised_splits(shape, sms_of(target))
    variant = "cuda" if splits == 1 and shape["H"] % CLUSTER_HEADS == 0 else "warp_specialised"
    return {**generic, **_FIXED[variant], "splits": splits, "variant": variant}


def _cuda_splits(shape: Shape, dtype: Dtype, sms: int) -> int:
    """Return how many clusters of "cuda" share a sequence's keys; 1 where no split is faster or all are too many."""
    if shape["H"] % CLUSTER_HEADS or dtype != "bf16":
        return 1
    blocks, steps = shape["B"] * shape["H"] // 64, ceil_div(shape["S"], 64)

    def cost(splits: int) -> float:
        if splits == 1:
            return ceil_div(blocks, sms) * (steps + _FILL)
        return ceil_div(steps, splits) + _CUDA_FIXED + _CUDA_PER_CTA * blocks * splits + _CUDA_PER_SPLIT * splits

    return min((n for n in (1, *_CHOSEN) if n <= steps and (n == 1 or n * blocks <= sms)), key=cost)


def _specialised_splits(shape: Shape, sms: int) -> int:
    """Return how many programs share a sequence's keys: the number that takes least time, in tiles of 64 keys."""
    programs, steps = shape["B"] * ceil_div(shape["H"], 64), ceil_div(shape["S"], 64)

    def cost(splits: int) -> float:
        waves = ceil_div(programs * splits, sms)
        resident = min(programs * splits, sms)
        reduction = _REDUCTION + _REDUCTION_PER_PROGRAM * resident if splits > 1 else 0.0
        return waves * (ceil_div(steps, splits) + _FILL + reduction)

    # The splits of a sequence wait for each other, so all of its programs must run at once.
    most = min(steps, max(1, sms // ceil_div(shape["H"], 64)))
    return min((splits for splits in _SPECIALISED_SPLITS if splits <= most), key=cost)


def generic_config(shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
    """Return the launch configuration of the generic variant. Raises: as config_for."""
    if target not in _TILES:
        raise InputError(
            f"{NAME}: no launch configuration for {target}; expected one of: {', '.join(_TILES)}: 576 columns a key "
            "need more shared memory and registers than older targets have"
        )
    _check_dtype(dtype, target)
    block_h, block_s, num_warps, num_stages = _TILES[target]
    programs, steps = shape["B"] * ceil_div(shape["H"], block_h), ceil_div(shape["S"], block_s)
    # With more than eight splits the last program's reduction costs more than they save.
    splits = max(1, min(sms_of(target) // programs, steps, 8))
    tma, pdl = int(target in TMA_TARGETS), int(target in PDL_TARGETS)
    values = (block_h, block_s, splits, num_warps, num_stages, tma, pdl, VARIANTS[0])
    return dict(zip(KEYS, values, strict=True))


def check_config(config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    configs.check_keys(NAME, config, KEYS)
    configs.check_target(NAME, target, tuple(_TILES))
    _check_dtype(dtype, target)
    configs.check_powers(NAME, config, (("block_h", 16, 128), ("block_s", 16, 128), ("num_warps", 1, 16)))
    check_splits(NAME, config, shape["S"], most=_MOST_SPLITS)
    configs.check_ranges(NAME, config, (("num_stages", 1, 8),))
    configs.check_pdl(NAME, config, target, "tma", "pdl")
    if config["variant"] != VARIANTS[0]:
        _check_variant(config, shape, dtype, target)
    configs.check_together(NAME, together(config, shape), target)
    configs.check_shared(NAME, shared_bytes(config, dtype), target, smaller="block_s")


def _check_dtype(dtype: Dtype, target: str) -> None:
    if dtype == "fp32":
        raise InputError(f"{NAME}: fp32 is for CPUs, not {target}; expected fp16 or bf16")


def _check_variant(config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
    variant = config["variant"]
    if variant not in VARIANTS or target != "sm_90" or not config["tma"]:
        raise InputError(
            f"{NAME}: variant is {variant!r} on {target}; expected generic, or {' or '.join(_FIXED)} on sm_90 with "
            "tma 1"
        )
    fixed = _FIXED[variant]
    if any(config[key] != value for key, value in fixed.items()):
        raise InputError(f"{NAME}: variant is {variant}; expected {', '.join(f'{k} {v}' for k, v in fixed.items())}")
    if variant == "cuda":
        if config["splits"] not in ((1, *_CUDA_SPLITS) if dtype == "bf16" else (1,)):
            raise InputError(
                f"{NAME}: splits is {config['splits']} with variant cuda in {dtype}; expected 1, or 4, 8, 16, 32 or 64 "
                "in bf16"
            )
        ctas = shape["B"] * shape["H"] // 64 * config["splits"]
        if shape["H"] % CLUSTER_HEADS or (config["splits"] > 1 and ctas > sms_of(target)):
            raise InputError(
                f"{NAME}: splits is {config['splits']} with B={shape['B']}, H={shape['H']} and variant cuda; expected "
                f"a multiple of {CLUSTER_HEADS} heads, and 1 split or at most {sms_of(target)} CTAs in all: the splits "
                "wait for each other"
            )
    elif config["splits"] not in _SPECIALISED_SPLITS:
        raise InputError(f"{NAME}: splits is {config['splits']} with variant {variant}; expected 1, 2, 4, 8 or 16")

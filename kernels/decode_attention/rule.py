"""Holds decode_attention's launch rule: candidate configurations, their modelled times, and what may be launched.

The times of the sm_90 variants are modelled in us and the fastest is taken; other targets take the generic variant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ledger.errors import InputError
from ledger.kernels.common import configs
from ledger.kernels.common.decode import check_splits
from ledger.kernels.common.targets import (
    PDL_TARGETS,
    SHARED_BYTES,
    TMA_ALIGNMENT,
    TMA_TARGETS,
    ceil_div,
    power_of_two,
    sms_of,
    warps_on,
)
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .launch import CUDA, NAME, VARIANTS, shared_bytes, sharers, together

KEYS = (
    "block_s", "splits", "num_warps", "num_stages", "tensor_cores", "tma", "pdl", "late_trigger", "variant",
    "ctas_per_sm",
)  # fmt: skip
MOST_SPLITS = 128
_WIDEST_GROUP, _WIDEST_CUDA_GROUP = 32, 8

Candidate = tuple[float, dict[str, Any]]
"""A modelled time in us and its configuration."""


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    generic = generic_config(shape, dtype, target)
    cell = (generic, shape, dtype, target)
    candidates = [*_pipelined_candidates(*cell), *_cuda_candidates(*cell)]
    return min(candidates, key=lambda one: one[0])[1] if candidates else generic


# Generic


def generic_config(shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
    """Return the launch configuration of the generic variant. Raises: InputError for a target without one."""
    configs.check_tuned(NAME, target)
    aligned = not _is_ragged(shape, dtype)
    config: dict[str, Any] = {
        "num_warps": 4,
        "tensor_cores": int(dtype != "fp32" and target != "sm_75"),
        "tma": int(target in TMA_TARGETS and aligned),
        "pdl": int(target in PDL_TARGETS),
        "late_trigger": 0,
        "variant": VARIANTS[0],
        "ctas_per_sm": 0,
    }
    parts = sharers(config, shape)
    if config["tensor_cores"] == 0 and ceil_div(shape["HQ"] // shape["HKV"], parts) > 1:
        # Ragged rows, loaded element by element, and wide ones need more registers than one warp has.
        config["num_warps"] = 1 if aligned and shape["D"] <= 128 else 4
        tiling = _tiling_of_groups(shape, shape["B"] * shape["HKV"] * parts, target)
    else:
        block_s = 64 if config["tensor_cores"] and aligned else 32
        tiling = _tiling(shape, block_s, sms_of(target), config["tensor_cores"] == 1)
    config = {**dict(zip(("block_s", "splits", "num_stages"), tiling, strict=True)), **config}
    config["num_warps"] = warps_on(target, config["num_warps"])
    if target == "sm_75":
        config["num_stages"] = 1
    while shared_bytes(config, shape, dtype) > SHARED_BYTES[target] and config["num_stages"] > 1:
        config["num_stages"] -= 1
    while shared_bytes(config, shape, dtype) > SHARED_BYTES[target] and config["block_s"] > 16:
        config["block_s"] //= 2
    return config


def _tiling_of_groups(shape: Shape, heads: int, target: str) -> tuple[int, int, int]:
    """Return BLOCK_S, splits and stages without tensor cores, where several query heads share a key head.

    One warp a program reduces its scores without a barrier; many programs keep the memory busy.
    """
    # Tuned on an H200; on other targets tiles in registers would spill.
    num_stages = 4 if target in ("sm_80", "sm_90") else 1
    splits = min(max(4, 512 // heads), ceil_div(shape["S"], 16), 32)
    if num_stages == 4 and heads * splits >= _MANY_PROGRAMS:
        num_stages = 3
    return 16, splits, num_stages


# From so many programs on, one more resident program per SM is worth more than a fourth stage.
_MANY_PROGRAMS = 1056


def _tiling(shape: Shape, block_s: int, sms: int, two_stages: bool) -> tuple[int, int, int]:
    """Return BLOCK_S, splits and stages by a cost in tiles of keys. two_stages: whether two are worth considering."""
    heads, steps = shape["B"] * shape["HKV"], ceil_div(shape["S"], block_s)

    def cost(choice: tuple[int, int]) -> float:
        splits, num_stages = choice
        # Two programs of three stages are resident on an SM, or three of two; they share its bandwidth.
        times = _TILE_TIMES[num_stages]
        waves, remainder = divmod(heads * splits, len(times) * sms)
        tail = times[ceil_div(remainder, sms) - 1] if remainder else 0.0
        streaming = ceil_div(steps, splits) * (len(times) * waves + tail) + waves + (1 if remainder else 0)
        return streaming + (_REDUCTION + _REDUCTION_PER_SPLIT * splits if splits > 1 else 0.0)

    stages = [number for number in _TILE_TIMES if two_stages or number == 3]
    candidates = [(splits, number) for splits in range(1, min(steps, MOST_SPLITS) + 1) for number in stages]
    splits, num_stages = min(candidates, key=cost)
    # A few tiles are best loaded at once.
    few = ceil_div(steps, splits) <= (3 if splits == 1 else 2)
    if few and block_s == 64 and heads * splits <= sms:
        return 128, max(1, min(splits, ceil_div(shape["S"], 128))), 2
    return block_s, splits, num_stages


# Stages -> time of a tile for one, two, … resident programs of an SM, in units of a tile at full bandwidth; fitted
# with the next two to timings on an H200 at S 160, 384, 1536, 6144 and B 1, 8, 48.
_TILE_TIMES = {3: (1.02, 2.0), 2: (1.4, 2.1, 3.03)}
_REDUCTION, _REDUCTION_PER_SPLIT = 1.7, 0.15


# Software-pipelined


def _pipelined_candidates(generic: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield candidates of the software-pipelined variant; none where it cannot run."""
    heads, sms = shape["B"] * shape["HKV"], sms_of(target)
    for block_s, num_stages in _PIPELINED_TILES:
        tile = {"block_s": block_s, "num_stages": num_stages, "num_warps": 4, "variant": "software_pipelined"}
        config = {**generic, **tile}
        if not _can_pipeline(config, shape, dtype, target) or shared_bytes(config, shape, dtype) > SHARED_BYTES[target]:
            continue
        for splits in range(1, min(ceil_div(shape["S"], block_s), MOST_SPLITS, sms) + 1):
            # Where this launch leaves SMs partly free, early programs of the next one would fill them unevenly.
            late = splits == 1 and sms < 2 * heads <= 4 * sms
            candidate = {**config, "splits": splits, "pdl": 1, "late_trigger": int(late)}
            yield _PIPELINED_LAUNCH_US + _pipelined_time_us(candidate, shape, dtype, sms), candidate


def _pipelined_time_us(config: Mapping[str, Any], shape: Shape, dtype: Dtype, sms: int) -> float:
    """Return the modelled time of a launch: waves of programs that share the memory's bandwidth, then the reduction."""
    splits, block_s = config["splits"], config["block_s"]
    programs = shape["B"] * shape["HKV"] * splits
    tiles = ceil_div(ceil_div(shape["S"], block_s), splits)
    resident = (SHARED_BYTES["sm_90"] + 1024) // (shared_bytes(config, shape, dtype) + 1024) * sms
    group, width = shape["HQ"] // shape["HKV"], power_of_two(shape["D"]) / 128
    alone, shared, fill = _PIPELINED_TILES[block_s, config["num_stages"]]
    # Narrow tiles take a program as long as those of 128 columns, and memory as long as their bytes do.
    alone *= max(width, 1.0) * (1 + _OF_A_HEAD * max(0, group - 4))
    shared *= shape["D"] / 128
    full, remainder = divmod(programs - 1, resident)
    streaming = full * tiles * max(alone, resident * shared) + tiles * max(alone, (remainder + 1) * shared)
    more = max(0.0, max(group, 4) * width / 4 - 1)
    reduction = 1.8 + 0.029 * splits + 0.0035 * programs + (0.33 + 0.032 * splits) * more if splits > 1 else 0.0
    return float(fill + streaming + 1.1 * full + reduction)


# (BLOCK_S, stages) -> time of a tile of 128 fp16 columns for a program that has the memory to itself, the same when
# divided among all programs, and of filling the pipeline beyond what all take, in us. These and the constants above
# are fitted to 220 timings on an H200 (D 128; B 1, 6, 12, 48; S 192 to 24576), within 8% root mean square; those of
# groups of more than 4 heads and of other D to 114 more (benchmarks/drawn-h200.json). _OF_A_HEAD: of a tile's time.
_OF_A_HEAD = 0.0083
_PIPELINED_TILES = {(64, 2): (0.782, 0.00795, 0.0), (64, 3): (0.67, 0.00795, 0.4), (128, 2): (1.07, 0.01606, 0.0)}

# What a launch takes beyond what the models count, by variant, and the rates of its loads: fitted to 45 shapes on an
# H200 (D 128; B 1 to 64, S 128 to 24576), where the choice is on average 1% slower than the best of 12 to 15 timed.
_PIPELINED_LAUNCH_US, _STREAM_K_US, _STREAM_K_OF_FEW_US, _CTA_PER_HEAD_US, _CLUSTER_US = 1.7, 4.3, 1.0, 2.4, 2.6
_MEMORY_BYTES_PER_US, _SM_BYTES_PER_US = 4.66e6, 47_900


# CUDA C++


def _cuda_candidates(generic: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield candidates of the CUDA variants; none where they cannot run."""
    if not _can_run_cuda(shape, dtype, target):
        return
    sms, heads, keys = sms_of(target), shape["B"] * shape["HKV"], shape["S"]
    config = {
        **generic, "block_s": 32, "splits": 1, "num_warps": 8, "num_stages": 1, "tma": 0, "pdl": 1,
        "variant": "cuda_cluster",
    }  # fmt: skip
    # All keys and values at the rate of the whole memory, and those of a head at that of one SM.
    shared = 4 * heads * keys * shape["D"] / _MEMORY_BYTES_PER_US
    alone = 4 * keys * shape["D"] / _SM_BYTES_PER_US
    # The last CTA of a head adds what the others leave, some parts at a time: measured with one to four heads.
    of_a_part = 0.12 + 0.025 * (shape["HQ"] // shape["HKV"])
    few = (_STREAM_K_OF_FEW_US if 8 * heads < sms else 0.0) + of_a_part * max(0, sms // heads - 16)
    yield _STREAM_K_US + few + shared, {**config, "variant": "cuda_stream_k", "ctas_per_sm": 1}
    for num_warps in (8, 4, 2):
        resident = sms * 8 // num_warps
        if resident < 2 * heads <= 2 * resident:
            yield _CTA_PER_HEAD_US + shared * resident / heads, {**config, "num_warps": num_warps}
    for splits in (2, 4, 8):
        # Clusters of more than two CTAs are certain to fit into half of the SMs only.
        if heads * splits <= (sms if splits == 2 else sms // 2):
            time = _CLUSTER_US + math.hypot((alone / splits) ** 2.5, shared**2.5) ** 0.4
            yield time, {**config, "block_s": 16, "splits": splits, "late_trigger": 1}


# What may be launched


def check_config(config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    configs.check_keys(NAME, config, KEYS)
    configs.check_target(NAME, target)
    configs.check_bf16(NAME, dtype, target)
    configs.check_groups(NAME, shape)
    if config["variant"] not in VARIANTS:
        raise InputError(f"{NAME}: variant is {config['variant']!r}; expected one of: {', '.join(VARIANTS)}")
    if config["variant"] in CUDA:
        _check_cuda(config, shape, dtype, target)
    configs.check_pdl(NAME, config, target)
    configs.check_flags(NAME, config, "tensor_cores", "late_trigger")
    if config["late_trigger"] and (config["variant"] == VARIANTS[0] or not config["pdl"]):
        raise InputError(f"{NAME}: late_trigger is 1; expected 0, or 1 with pdl 1 and another variant than generic")
    if config["variant"] in CUDA:
        return
    configs.check_powers(NAME, config, (("block_s", 16, 256), ("num_warps", 1, 16)))
    check_splits(NAME, config, shape["S"], most=MOST_SPLITS)
    configs.check_together(NAME, together(config), target)
    configs.check_ranges(NAME, config, (("num_stages", 1, 8), ("ctas_per_sm", 0, 0)))
    if config["tensor_cores"] and config["block_s"] >= 64 and target == "sm_90" and _is_ragged(shape, dtype):
        raise InputError(
            f"{NAME}: block_s is {config['block_s']} with D={shape['D']} in {dtype}; expected at most 32: triton 3.6 "
            "miscompiles wgmma on tiles whose rows are no multiple of 16 bytes"
        )
    configs.check_tma(NAME, config, target, rows={"D": shape["D"]}, size=DTYPE_BYTES[dtype], of=dtype)
    if config["variant"] != VARIANTS[0] and not _can_pipeline(config, shape, dtype, target):
        raise InputError(
            f"{NAME}: variant is {config['variant']} with D={shape['D']} in {dtype} on {target}; expected generic, or "
            "sm_90, fp16 or bf16, tma 1, 4 warps, block_s 64 or 128 and D from 33 to 256"
        )
    configs.check_shared(NAME, shared_bytes(config, shape, dtype), target, smaller="block_s")


def _check_cuda(config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
    if not _can_run_cuda(shape, dtype, target):
        raise InputError(
            f"{NAME}: variant is {config['variant']} with D={shape['D']}, groups of {shape['HQ'] // shape['HKV']} and "
            f"{dtype} on {target}; expected it on sm_90 alone, in fp16 or bf16, with D 64 or 128 and groups of at most "
            f"{_WIDEST_CUDA_GROUP}"
        )
    stream_k = config["variant"] == "cuda_stream_k"
    allowed = {
        "block_s": (16, 32), "num_warps": (1, 2, 4, 8), "splits": (1,) if stream_k else (1, 2, 4, 8),
        "ctas_per_sm": (1, 2, 3) if stream_k else (0,), "num_stages": (1,), "tensor_cores": (1,), "tma": (0,),
    }  # fmt: skip
    for key, values in allowed.items():
        if config[key] not in values:
            raise InputError(
                f"{NAME}: {key} is {config[key]} with variant {config['variant']}; expected one of: "
                f"{', '.join(map(str, values))}"
            )


def _can_pipeline(config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> bool:
    """Tell whether tiles of 64 keys or more are loaded by TMA and both products reach wgmma."""
    return (
        target == "sm_90"
        and DTYPE_BYTES[dtype] == 2
        and bool(config["tma"])
        and config["block_s"] in (64, 128)
        and config["num_warps"] == 4
        and 64 <= power_of_two(shape["D"]) <= 256
        and shape["HQ"] // shape["HKV"] <= _WIDEST_GROUP
    )


def _can_run_cuda(shape: Shape, dtype: Dtype, target: str) -> bool:
    """Tell whether a warp's registers hold its keys and values for mma.sync."""
    group = shape["HQ"] // shape["HKV"]
    return target == "sm_90" and DTYPE_BYTES[dtype] == 2 and shape["D"] in (64, 128) and group <= _WIDEST_CUDA_GROUP


def _is_ragged(shape: Shape, dtype: Dtype) -> bool:
    return shape["D"] * DTYPE_BYTES[dtype] % TMA_ALIGNMENT != 0

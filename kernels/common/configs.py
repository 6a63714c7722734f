"""Checks launch configurations, one function for each property. Imports neither torch nor triton.

Every function takes the kernel's name for its message, and returns nothing. Raises (all): InputError.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ledger.errors import InputError
from ledger.records import Dtype

from .targets import PDL_TARGETS, SHARED_BYTES, TARGETS, TMA_ALIGNMENT, TMA_TARGETS, sms_of

Settings = Mapping[str, Any]
"""A launch configuration, whose values are not typed by key."""

Range = tuple[str, int, int]
"""A configuration key with its least and its greatest value."""


def check_keys(name: str, config: Settings, keys: Sequence[str]) -> None:
    """Check that a configuration has exactly these keys."""
    if set(config) != set(keys):
        raise InputError(f"{name}: configuration keys are {','.join(sorted(config))}; expected {','.join(keys)}")


def check_target(name: str, target: str, targets: Collection[str] = TARGETS, *, lacks: str = "") -> None:
    """Check that a target is among those of a kernel. lacks: what a target may lack, for the message."""
    if target not in targets:
        reason = f"is unknown or has no {lacks}" if lacks else "is unknown"
        raise InputError(f"{name}: target {target} {reason}; expected one of: {', '.join(targets)}")


def check_tuned(name: str, target: str, targets: Collection[str] = TARGETS, *, having: str = "") -> None:
    """Check that a kernel has a launch rule for a target. having: what those have in common, for the message."""
    if target not in targets:
        which = f"one with {having}" if having else "one of"
        raise InputError(f"{name}: no launch configuration for {target}; expected {which}: {', '.join(targets)}")


def check_bf16(name: str, dtype: Dtype, target: str) -> None:
    """Check that a target has bf16 arithmetic, if that is the dtype."""
    if target == "sm_75" and dtype == "bf16":
        raise InputError(f"{name}: sm_75 has no bf16; expected fp16 or fp32")


def check_16_bits(name: str, dtype: Dtype, target: str) -> None:
    """Check that a dtype is fp16 or bf16, and that the target has it."""
    if dtype == "fp32":
        raise InputError(f"{name}: fp32 is for CPUs, not {target}; expected fp16 or bf16")
    if target == "sm_75" and dtype == "bf16":
        raise InputError(f"{name}: sm_75 has no bf16; expected fp16")


def check_powers(name: str, config: Settings, ranges: Iterable[Range]) -> None:
    """Check that values are powers of two within their ranges."""
    for key, least, most in ranges:
        value = config[key]
        if not least <= value <= most or value & (value - 1):
            raise InputError(f"{name}: {key} is {value}; expected a power of two from {least} to {most}")


def check_ranges(name: str, config: Settings, ranges: Iterable[Range]) -> None:
    """Check that values lie within their ranges."""
    for key, least, most in ranges:
        if not least <= config[key] <= most:
            raise InputError(f"{name}: {key} is {config[key]}; expected {least} to {most}")


def check_positive(name: str, config: Settings, *keys: str) -> None:
    """Check that values are at least 1."""
    for key in keys:
        if config[key] < 1:
            raise InputError(f"{name}: {key} is {config[key]}; expected at least 1")


def check_flags(name: str, config: Settings, *keys: str) -> None:
    """Check that values are 0 or 1."""
    for key in keys:
        if config[key] not in (0, 1):
            raise InputError(f"{name}: {key} is {config[key]}; expected 0 or 1")


def check_pdl(name: str, config: Settings, target: str, *keys: str) -> None:
    """Check flags (pdl if none are named) that may only be set on targets with programmatic dependent launch."""
    for key in keys or ("pdl",):
        if config[key] not in (0, 1) or (config[key] and target not in PDL_TARGETS):
            raise InputError(f"{name}: {key} is {config[key]}; expected 0, or 1 from sm_90 up")


def check_tma(name: str, config: Settings, target: str, *, rows: Mapping[str, int], size: int, of: str = "") -> None:
    """Check the flag tma: the target has TMA, and rows are a multiple of 16 bytes.

    rows: shape key -> elements of a row. size: bytes of an element. of: the dtype, where the message should name it.
    """
    check_flags(name, config, "tma")
    if not config["tma"]:
        return
    if target not in TMA_TARGETS:
        raise InputError(f"{name}: tma is 1, but {target} has no tensor memory accelerator; expected 0")
    for key, length in rows.items():
        if length * size % TMA_ALIGNMENT:
            where = f"{key}={length} in {of}" if of else f"{key}={length}"
            raise InputError(
                f"{name}: tma is 1 with {where}; expected rows of a multiple of {TMA_ALIGNMENT} bytes, or tma 0"
            )


def check_wgmma(name: str, config: Settings, target: str, *, rows: str = "block_m") -> None:
    """Check that a tile suits wgmma on sm_90. rows: the key of the tile's extent that wgmma's M is taken from."""
    if target == "sm_90" and (config[rows] < 64 or config["num_warps"] % 4):
        raise InputError(
            f"{name}: {rows} is {config[rows]} with {config['num_warps']} warps; expected at least 64 and a multiple "
            "of 4 warps: wgmma computes 64 rows in groups of 4 warps"
        )


def check_groups(name: str, shape: Mapping[str, int]) -> None:
    """Check that query heads (HQ) come in whole groups that share a key head (HKV)."""
    if shape["HQ"] % shape["HKV"]:
        raise InputError(
            f"{name}: HQ is {shape['HQ']} with HKV {shape['HKV']}; expected a multiple: each group of query heads "
            "shares one key head"
        )


def check_shared(name: str, needed: int, target: str, *, smaller: str = "block_k") -> None:
    """Check that a block's shared memory, in bytes, fits the target. smaller: a key that would shrink it."""
    if needed > SHARED_BYTES[target]:
        raise InputError(
            f"{name}: tiles need {needed} bytes of shared memory; {target} has {SHARED_BYTES[target]} a block: take "
            f"fewer num_stages or a smaller {smaller}"
        )


def check_together(name: str, ctas: int, target: str) -> None:
    """Check that CTAs of which some wait for later ones run at once, one on an SM, on the target's chip.

    ctas: the consecutive ones among which they wait. Those that wait only for earlier ones need no check.
    """
    if ctas > sms_of(target):
        raise InputError(
            f"{name}: {ctas} CTAs wait for each other, and {target} with {sms_of(target)} SMs runs that many at once; "
            "expected no more CTAs: take fewer splits"
        )


def check_thread_elements(
    name: str, config: Settings, *, tile: tuple[str, str], most: int, verb: str = "exceeds"
) -> None:
    """Check that a tile leaves a thread at most so many elements, which then stay in registers.

    tile: the keys of the tile's extents. most: elements a thread.
    """
    height, width = (config[key] for key in tile)
    if height * width > most * 32 * config["num_warps"]:
        raise InputError(
            f"{name}: tile of {height} × {width} {verb} {config['num_warps']} warps; expected at most {most} elements "
            "a thread, which stay in registers"
        )

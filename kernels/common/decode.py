"""Holds what decode kernels share on the host: workspaces for the partial sums of splits, and the check of splits.

A decode kernel computes one query token per sequence and splits the sequence's keys among programs or CTAs. Their
partial sums are reduced by the last program that arrives, or by all of them, which poll words of the workspace.
Imports neither torch nor triton.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.errors import InputError

from .plans import Workspace
from .targets import ceil_div

UNWRITTEN = 0x7FFFDEAD
"""A word of a workspace that has not been written yet: a NaN that no arithmetic gives."""


def counted_workspaces(*, tiles: int, splits: int, rows: int, columns: int) -> dict[str, Workspace]:
    """Return the workspaces of splits whose last program to arrive reduces. tiles: of rows by columns, in all.

    Where nothing is split a kernel touches none of them, and no launch fills one.
    """
    slots = tiles * splits if splits > 1 else 1
    return {
        "partial_ptr": Workspace("fp32", slots * rows * columns),
        "stats_ptr": Workspace("fp32", slots * 2 * rows),
        "arrivals_ptr": Workspace("i32", tiles, 0) if splits > 1 else Workspace("i32", 1),
    }


def polled_workspaces(*, rows: int, columns: int, splits: int, stats: int = 2) -> dict[str, Workspace]:
    """Return the workspaces of splits that poll for each other's partial sums. rows: of all splits; stats: per row."""
    needed = rows if splits > 1 else 1
    return {
        "partial_ptr": Workspace("fp32", needed * columns, UNWRITTEN),
        "stats_ptr": Workspace("fp32", needed * stats, UNWRITTEN),
    }


def check_splits(name: str, config: Mapping[str, Any], keys: int, *, most: int, step: str = "block_s") -> None:
    """Check that each split has a step of keys. most: splits that the kernel can reduce. step: the key of its length.

    Raises: InputError.
    """
    steps = ceil_div(keys, config[step])
    if not 1 <= config["splits"] <= min(steps, most):
        raise InputError(
            f"{name}: splits is {config['splits']}; expected 1 to {min(steps, most)}, the steps of {step} in S"
        )

"""Builds what a launch in Triton or Gluon passes beside its operands: constants, options, types. Imports no triton."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.kernel import Ahead

Settings = Mapping[str, Any]

MATRIX_SIZES = {"n_rows": "i32", "n_cols": "i32", "n_inner": "i32"}
"""Types of the sizes that a matrix product takes."""


def constants_of(config: Settings, *keys: str) -> dict[str, int]:
    """Return values of a configuration as constexpr arguments, which are named alike in upper case."""
    return {key.upper(): config[key] for key in keys}


def options_of(config: Settings, *, stages: bool = True) -> dict[str, Any]:
    """Return a launch's options. stages: whether Triton pipelines the loop and takes num_stages.

    launch_pdl (programmatic dependent launch) is left out where it is off: older targets do not know it.
    """
    return {
        "num_warps": config["num_warps"],
        **({"num_stages": config["num_stages"]} if stages else {}),
        **({"launch_pdl": True} if config.get("pdl") else {}),
    }


def ahead_of(function: Any, arguments: Mapping[str, str], *, constants: Settings, options: Settings) -> Ahead:
    """Return how to compile a function ahead of time. arguments: those that are not constexpr, with their types."""
    signature = {**arguments, **dict.fromkeys(constants, "constexpr")}
    return Ahead(function=function, signature=signature, constants=constants, options=options)

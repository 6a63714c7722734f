"""Launches a Triton function on a grid of one dimension and says how to compile it ahead of time. Imports no triton."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ledger.kernel import Ahead, Config, Launch
from ledger.records import Dtype, Path

if TYPE_CHECKING:
    from torch import Tensor

VECTOR_BYTES = 16
"""Bytes of the widest load of a thread."""


def pdl_options(config: Config) -> dict[str, Any]:
    """Return the launch option of programmatic dependent launch, which older targets and versions do not know."""
    return {"launch_pdl": True} if config["pdl"] else {}


def fp32_path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return fp32: operands are widened before any arithmetic, and no tensor-core instruction is used."""
    return "fp32"


def prepare(
    function: Any, tensors: Sequence[Tensor], sizes: Sequence[int | float], config: Config, *, grid: int,
    constants: Mapping[str, int], options: Mapping[str, Any] | None = None,
) -> Launch:  # fmt: skip
    """Return the launch of a Triton function with arguments tensors, sizes and constants on a grid of one dimension."""
    extra = {"num_warps": config["num_warps"], **pdl_options(config), **(options or {})}

    def launch() -> None:
        function[(grid,)](*tensors, *sizes, **constants, **extra)

    return launch


def ahead(
    function: Any, pointers: Sequence[str], sizes: Mapping[str, str], config: Config, *, dtype: Dtype,
    constants: Mapping[str, int], options: Mapping[str, Any] | None = None,
) -> Ahead:  # fmt: skip
    """Return how to compile a Triton function without a GPU. pointers: its tensors, of one dtype, before its sizes."""
    return Ahead(
        function=function,
        signature={
            **dict.fromkeys(pointers, f"*{dtype}"),
            **sizes,
            **dict.fromkeys(constants, "constexpr"),
        },
        constants=constants,
        options={"num_warps": int(config["num_warps"]), **pdl_options(config), **(options or {})},
    )

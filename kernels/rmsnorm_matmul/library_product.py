"""Variant for sm_90 that normalises the rows of x into a workspace, then calls torch.matmul.

For shapes where no product of this project is as fast. The keys of a tile are 0, as the library chooses it. With pdl 1
the rows are normalised by a launch that begins before the one ahead of it has ended; torch.matmul begins when the rows
are there. Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.kernel import AheadCuda, Launch
from ledger.kernels.common.configs import Settings
from ledger.operations import Shape
from ledger.records import Dtype

from . import normed

if TYPE_CHECKING:
    from torch import Tensor

LAUNCHED = r"nvjet_\w+|.*splitKreduce_kernel.*|.*(xmma|cutlass).*gemm.*"
"""Names of the kernels of cuBLAS that torch.matmul launches on sm_90."""


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Allocate the normalised rows and return the launch that writes them, with torch.matmul after it."""
    import torch

    rows, weight = torch.empty_like(inputs["x"]), inputs["weight"]
    normalise = normed.prepare_rows(inputs, rows, eps, overlap=bool(config["pdl"]))

    def launch() -> None:
        normalise()
        torch.matmul(rows, weight, out=out)

    return launch


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> AheadCuda:
    """Return the CUDA C++ that normalises the rows: what this project compiles of this variant."""
    return replace(normed.normalise_ahead(shape, dtype), library="torch.matmul")


def shared_bytes(config: Settings, dtype: Dtype, n_inner: int) -> int:
    """Return 0: shared memory is the library's own choice."""
    return 0


def problems(config: Settings, shape: Shape) -> Iterator[str]:
    """Yield nothing: all keys are fixed."""
    return iter(())

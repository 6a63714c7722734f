"""Variant in two launches for sm_90: the rows of x are normalised into a workspace, then multiplied.

Host side of normalise.cu. The second launch is the cluster GEMM of cluster.cu, with its keys. With pdl 1 each launch
begins before the one ahead of it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ledger.kernel import AheadCuda, Launch
from ledger.kernels.common.baselines import dtype_name
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.cuda import cuda_source, prepare_ahead
from ledger.kernels.common.targets import ceil_div
from ledger.operations import Shape
from ledger.records import Dtype

from . import cluster

if TYPE_CHECKING:
    from torch import Tensor

_THREADS = 256
_MOST_VECTORS = 8
"""Loads of 16 bytes of a row, and of the gain, that a thread keeps in registers."""


def normalise_ahead(shape: Shape, dtype: Dtype) -> AheadCuda:
    """Return the launch that normalises the rows. shape: B and H of it are read."""
    vectors = min(ceil_div(shape["H"], 8 * _THREADS), _MOST_VECTORS)
    source = cuda_source(
        __name__,
        "normalise.cu",
        entry="rmsnorm_matmul_normalise",
        defines={"VECTORS": vectors, "BF16": int(dtype == "bf16")},
    )
    return AheadCuda(source, programs=shape["B"], threads=_THREADS, shared_bytes=0)


def prepare_rows(inputs: Mapping[str, Tensor], normed: Tensor, eps: float, *, overlap: bool) -> Launch:
    """Return the launch that normalises the rows of x into `normed` (B, H)."""
    x = inputs["x"]
    n_rows, n_inner = x.shape
    ahead = normalise_ahead({"B": n_rows, "H": n_inner}, dtype_name(x, "rmsnorm_matmul"))
    return prepare_ahead(ahead, [x, inputs["gain"], normed, n_inner, float(eps)], overlap=overlap)


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Allocate the normalised rows and return both launches."""
    import torch

    normed = torch.empty_like(inputs["x"])
    rows = prepare_rows(inputs, normed, eps, overlap=bool(config["pdl"]))
    product = cluster.prepare_gemm(normed, inputs, out, config, eps=eps, writers=0)

    def launch() -> None:
        rows()
        product()

    return launch


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> AheadCuda:
    """Return the CUDA C++ of the product and how it is launched."""
    return cluster.ahead(config, shape, dtype, target)


def shared_bytes(config: Settings, dtype: Dtype, n_inner: int) -> int:
    """Return the shared memory of a CTA of the product, in bytes."""
    return cluster.shared_bytes(config, dtype, n_inner)


def problems(config: Settings, shape: Shape) -> Iterator[str]:
    """Yield what is wrong with a configuration: what the cluster GEMM refuses."""
    return cluster.problems(config, shape)

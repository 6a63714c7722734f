"""Variant in two launches for sm_90: the rows of x are normalised into a workspace, then multiplied.

Host side of normalise.cu, which rounds the rows once to the dtype, and of product.cu, the cluster GEMM of
kernels/common: the keys of a configuration are those of common/gemm_config.py, with block_b for block_m and block_o for
block_n. With pdl 1 each launch begins before the one ahead of it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import AheadCuda, Launch
from ledger.kernels.common import configs, gemm_config
from ledger.kernels.common.baselines import dtype_name
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.cuda import cuda_source, prepare_ahead
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.targets import ceil_div, device_target, sms_of
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .cost import product_shape

if TYPE_CHECKING:
    from torch import Tensor

_THREADS = 256
_MOST_VECTORS = 8
"""Loads of 16 bytes of a row, and of the gain, that a thread keeps in registers."""

_PRODUCT = ClusterGemm(name="rmsnorm_matmul", source=partial(cuda_source, __name__, "product.cu"))


def product_settings(config: Settings, n_rows: int, sms: int) -> dict[str, Any]:
    """Return a configuration with the keys of the cluster GEMM. n_rows: of x. sms: of the chip. Raises: InputError."""
    configs.check_positive("rmsnorm_matmul", config, "cluster_m", "block_b")
    shared = ("block_k", "num_warps", "num_stages", "tma", "cluster_m", "cluster_n", "split_k", "stream_k", "swap_ab")
    made = {
        **{key: config[key] for key in (*shared, "pdl")}, "block_m": config["block_b"], "block_n": config["block_o"],
        "subtiles": 1, "variant": gemm_config.CUDA,
        "programs": gemm_config.resident((config["cluster_m"], config["cluster_n"]), sms),
    }  # fmt: skip
    return {**made, "group_m": gemm_config.group_rows(made, {"M": n_rows})}


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


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Allocate the normalised rows and return both launches."""
    import torch

    x, weight = inputs["x"], inputs["weight"]
    (n_rows, n_inner), dtype, target = x.shape, dtype_name(x, "rmsnorm_matmul"), device_target(x)
    settings, shape = product_settings(config, n_rows, target.sms), {"M": n_rows, "N": weight.shape[1], "K": n_inner}
    # The configuration may be of a chip with more SMs, on which each CTA has one tile.
    _PRODUCT.check(settings, shape, dtype, target)
    normed = torch.empty_like(x)
    ahead = normalise_ahead({"B": n_rows, "H": n_inner}, dtype)
    rows = prepare_ahead(ahead, [x, inputs["gain"], normed, n_inner, float(eps)], overlap=bool(config["pdl"]))
    product = _PRODUCT.prepare(normed, weight, out, settings, dtype=dtype, bias=None, scale=None)

    def launch() -> None:
        rows()
        product()

    return launch


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> AheadCuda:
    """Return the CUDA C++ of the product and how it is launched."""
    settings = product_settings(config, shape["B"], sms_of(target))
    return _PRODUCT.ahead(settings, product_shape(shape), dtype)


def shared_bytes(config: Settings, dtype: Dtype, n_inner: int) -> int:
    """Return the shared memory of a CTA of the product, in bytes."""
    element = DTYPE_BYTES[dtype]
    return gemm_config.shared_bytes(product_settings(config, 1, 1), element, element)


def problems(config: Settings, shape: Shape, target: str) -> Iterator[str]:
    """Yield what is wrong with a configuration: what the cluster GEMM refuses."""
    try:
        _PRODUCT.check(product_settings(config, shape["B"], sms_of(target)), product_shape(shape), "fp16", target)
    except InputError as error:
        yield str(error).removeprefix("rmsnorm_matmul: ")

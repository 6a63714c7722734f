"""Variant in CUDA C++ for sm_90 that normalises x first, then multiplies with the cluster GEMM of kernels/common.

Host side of cluster.cu. One launch: its first CTAs normalise the rows of x into a workspace, rounded once to the dtype,
while the weights of the first K steps are loaded; every CTA waits for all rows before it loads any. The keys of a
configuration are those of the cluster GEMM (common/gemm_config.py) with block_b for block_m and block_o for block_n.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import AheadCuda, Launch
from ledger.kernels.common import gemm_config
from ledger.kernels.common.baselines import dtype_name
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.cuda import CudaSource, cuda_source
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.targets import ceil_div, device_target, sms_of
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .cost import WRITERS

if TYPE_CHECKING:
    from torch import Tensor

SWAPPED_ROWS = {64: 256, 128: 256, 192: 200}
"""block_o -> the largest block_b with swap_ab: what wgmma multiplies at once."""

_VECTORS = {4: 16, 8: 12, 12: 6}
"""num_warps -> most loads of 16 bytes of a row, and of the gain, that a lane keeps in registers."""

_SQUARES_BYTES = 64
"""Shared memory of the sums of squares of the warps that take a row together."""


def _swapped_step(config: Settings) -> int:
    """Return what the rows of a swapped tile are a multiple of: as loaded, and 8 of each CTA that ends a part."""
    return max(gemm_config.row_step(config), 8 * int(config["split_k"]))


def _check_swapped(config: Settings) -> None:
    rows, columns, step = config["block_m"], config["block_n"], _swapped_step(config)
    if not step <= rows <= SWAPPED_ROWS.get(columns, 0) or rows % step:
        raise InputError(
            f"rmsnorm_matmul: tiles are {rows} x {columns} with variant cuda_cluster and swap_ab 1; expected rows in "
            f"steps of {step}, at most " + ", ".join(f"{rows} by {columns}" for columns, rows in SWAPPED_ROWS.items())
        )


def row_parts(num_warps: int, n_inner: int) -> tuple[int, int]:
    """Return how many warps take a row together, and how many loads of a row a lane keeps in registers.

    A row that does not fit into the registers of the most warps is read twice.
    """
    most, vectors = _VECTORS[num_warps], ceil_div(n_inner, 256)
    parts = next((n for n in (1, 2, 4) if ceil_div(vectors, n) <= most), 4)
    return parts, min(ceil_div(vectors, parts), most)


def _source(rows: tuple[int, int], *, defines: Mapping[str, int], **made: Any) -> CudaSource:
    parts, vectors = rows
    return cuda_source(__name__, "cluster.cu", defines={**defines, "PARTS": parts, "VECTORS": vectors}, **made)


def _gemm(config: Settings, n_inner: int) -> ClusterGemm:
    return ClusterGemm(
        name="rmsnorm_matmul",
        source=partial(_source, row_parts(config["num_warps"], n_inner)),
        even_tiles=True,
        swaps=True,
        check_swapped=_check_swapped,
        more_shared_bytes=_SQUARES_BYTES,
    )


def _gemm_shape(shape: Shape) -> Shape:
    return {"M": shape["B"], "N": shape["O"], "K": shape["H"]}


def gemm_settings(config: Settings, n_rows: int, sms: int) -> dict[str, Any]:
    """Return a configuration with the keys of the cluster GEMM. n_rows: of x. sms: of the chip."""
    shared = ("block_k", "num_warps", "num_stages", "tma", "cluster_m", "cluster_n", "split_k", "stream_k", "swap_ab")
    made = {
        **{key: config[key] for key in (*shared, "pdl")}, "block_m": config["block_b"], "block_n": config["block_o"],
        "subtiles": 1, "variant": gemm_config.CUDA,
        "programs": gemm_config.resident((config["cluster_m"], config["cluster_n"]), sms),
    }  # fmt: skip
    return {**made, "group_m": gemm_config.group_rows(made, {"M": n_rows})}


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> AheadCuda:
    """Return the CUDA C++ and how it is launched."""
    return _gemm(config, shape["H"]).ahead(gemm_settings(config, shape["B"], sms_of(target)), _gemm_shape(shape), dtype)


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Allocate the normalised rows and their flags, and return the launch."""
    import torch

    x = inputs["x"]
    writers = min(WRITERS, device_target(x).sms // 2, x.shape[0])
    return prepare_gemm(torch.empty_like(x), inputs, out, config, eps=eps, writers=writers)


def prepare_gemm(
    normed: Tensor, inputs: Mapping[str, Tensor], out: Tensor, config: Settings, *, eps: float, writers: int
) -> Launch:
    """Return the launch that multiplies `normed` (B, H) with the weights.

    writers: most CTAs that normalise rows of x into `normed` first; with 0 the launch ahead must have done so.
    """
    import torch

    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]
    n_rows, n_inner = x.shape
    settings, dtype = gemm_settings(config, n_rows, device_target(x).sms), dtype_name(x, "rmsnorm_matmul")
    ctas = gemm_config.cuda_ctas(settings, _gemm_shape({"B": n_rows, "H": n_inner, "O": weight.shape[1]}))
    flags = torch.zeros(ctas * WRITERS, dtype=torch.int32, device=x.device)
    return _gemm(config, n_inner).prepare(
        normed, weight, out, settings, dtype=dtype, bias=None, scale=None,
        more=[x, gain, normed, flags, min(ctas, writers), float(eps)],
    )  # fmt: skip


def shared_bytes(config: Settings, dtype: Dtype, n_inner: int) -> int:
    """Return the shared memory of a CTA, in bytes."""
    element = DTYPE_BYTES[dtype]
    return gemm_config.shared_bytes(gemm_settings(config, 1, 1), element, element) + _SQUARES_BYTES


def problems(config: Settings, shape: Shape) -> Iterator[str]:
    """Yield what is wrong with a configuration: what the cluster GEMM refuses."""
    if config["num_warps"] not in _VECTORS:
        yield f"num_warps is {config['num_warps']} with variant cuda_cluster; expected 4, 8 or 12"
        return
    try:
        settings = gemm_settings(config, shape["B"], sms_of("sm_90"))
        if gemm_config.stores_in_ring(settings, 2):
            # Results may leave through the ring where a CTA has one tile; a configuration does not say on how many SMs.
            yield f"num_stages is {config['num_stages']}; expected fewer, which leave room for results beside them"
            return
        _gemm(config, shape["H"]).check(settings, _gemm_shape(shape), "fp16", "sm_90")
    except InputError as error:
        yield str(error).removeprefix("rmsnorm_matmul: ")

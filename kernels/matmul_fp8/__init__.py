"""Compute C = s · A · Bᵀ of fp8 matrices with a grid of persistent programs.

Formula: C[m, n] = s · Σ_k A[m, k] · B[n, k]
Shapes: A (M, K), B (N, K), both row-major in fp8 e4m3; s one number in fp32; C (M, N) row-major in fp16.
Traffic: M·K + N·K bytes read and 2·M·N written: each operand once.
Source: the layout (both operands with k innermost) is the one that wgmma has for eight-bit types, and that of
torch._scaled_mm with a transposed second operand.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, the
scaling of the result, and with `stream_k` the sums that programs leave for one another (L2).

Precision: wgmma adds fp8 products with fewer bits than fp32 has. With `promote` its sums over 128 products are added
in fp32 registers; without, the whole sum stays in wgmma, as with the library's fast accumulation. One rounding to
fp16.
Determinism: each element is one program's sum in the order of k, or with `stream_k` the sum of a few programs' sums,
added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.kernel import Config, Launch, Prepare, Tolerance, variations
from ledger.kernels.common.cuda import cuda_source
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.gemm_config import CUDA, GROUP, Settings, group_rows
from ledger.kernels.common.gemm_scaled import ScaledGemm
from ledger.kernels.common.gemm_tiles import BYTE_TILES
from ledger.kernels.common.targets import ceil_div
from ledger.operations import MATMUL_FP8, Shape, fp8_scale

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

# What the rule takes on sm_90: measured on an H200 at M = N = K = 2048 to 7168, where it was level with the
# warp-specialised variant (128 x 128 x 256) or faster; dividing the last wave's tiles gained nothing.
_CLUSTER = {
    "block_m": 128, "block_n": 128, "block_k": 128, "num_warps": 8, "subtiles": 1, "promote": 1, "tma": 1,
    "cluster_m": 2, "cluster_n": 1, "split_k": 1,
}  # fmt: skip
_CLUSTER_KEYS = {**_CLUSTER, "variant": CUDA}

# What an SM multiplies in a clock, and what dividing tiles costs: a share of the time, and clocks of a
# launch. Divided tiles had 0.98 of the undivided ones' speed at 2816 x 4352 x 6144, 1.00 at 5120, 0.96 at 7168 and 0.98
# at 8192 cubed, and 1.05 of it at 3000 x 5008 x 7008, on an H200.
_TENSOR_FLOPS = 8192
_DIVIDED_SHARE, _DIVIDED_CLOCKS = 0.04, 10_000


def _choose(generic: Settings, shape: Shape) -> dict[str, Any]:
    """Return the configuration of the CUDA C++."""
    # Groups of rows of equal size; where rows lie in two lines of L2, calls that overlap are slower, as in matmul.
    aligned, divided = shape["K"] % 128 == 0 and shape["N"] * 2 % 128 == 0, _divides(shape, generic["programs"])
    return {
        **generic, **_CLUSTER_KEYS, "num_stages": 6, "pdl": int(aligned), "stream_k": int(divided),
        "group_m": GROUP if divided else group_rows(_CLUSTER, shape),
    }  # fmt: skip


def _divides(shape: Shape, sms: int) -> bool:
    """Return whether a last wave is so empty that dividing its tiles gains more than it costs."""
    slots = sms // 2
    tiles = ceil_div(shape["M"], 2 * _CLUSTER_KEYS["block_m"]) * ceil_div(shape["N"], _CLUSTER_KEYS["block_n"])
    waves = math.ceil(tiles / slots)
    clocks = waves * shape["K"] * 2 * _CLUSTER_KEYS["block_m"] * _CLUSTER_KEYS["block_n"] / _TENSOR_FLOPS
    return tiles > slots and 1 - tiles / slots / waves > _DIVIDED_SHARE + _DIVIDED_CLOCKS / clocks


def _clusters(own: Settings) -> Iterator[Settings]:
    return variations({**own, **_CLUSTER_KEYS}, {"stream_k": (0, 1), "pdl": (0, 1), "group_m": (4, 8)})


GEMM = ScaledGemm(
    name="matmul_fp8",
    dtypes=("fp8_e4m3",),
    scale=fp8_scale,
    output="fp16",
    # gfx942 multiplies another e4m3, fnuz: Triton would convert this one to fp16.
    tiles={target: tiles for target, tiles in BYTE_TILES.items() if target not in ("sm_80", "gfx942")},
    choose=_choose,
    clusters=_clusters,
    cluster=ClusterGemm(
        name="matmul_fp8",
        source=partial(cuda_source, __name__, "cluster.cu"),
        fixed=_CLUSTER,
        promotion=256,
        divided_clocks=6_500,
    ),
    more=lambda target: {"promote": int(target in ("sm_89", "sm_90"))},
    lacks="fp8",
    having="fp8 instructions",
)


def matmul_fp8(a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
    """Return scale · a · bᵀ in float16.

    Shapes: a (M, K), b (N, K), both float8_e4m3fn on one GPU; the result (M, N).
    """
    return GEMM(a, b, scale=scale)


def _prepare_scaled_mm(*, fast: bool) -> Prepare:
    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch

        a, b = inputs["a"], inputs["b"].t()
        one = torch.ones((), dtype=torch.float32, device=a.device)
        scale = one * fp8_scale(a.shape[1])

        def launch() -> None:
            torch._scaled_mm(a, b, one, scale, out_dtype=out.dtype, use_fast_accum=fast, out=out)

        return launch

    return prepare


KERNEL = GEMM.scaled_kernel(
    operation=MATMUL_FP8,
    tolerances={
        "fp8_e4m3": Tolerance(1e-4, 5e-4, "one rounding to 11 bits; sums over 128 products are added in fp32"),
    },
    baselines={
        "torch_scaled_mm": _prepare_scaled_mm(fast=False),
        "torch_scaled_mm_fast": _prepare_scaled_mm(fast=True),
    },
)

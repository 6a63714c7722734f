"""Compute C = s · A · Bᵀ of fp8 matrices with persistent programs, or with `split_k` in two launches.

Formula: C[m, n] = s · Σ_k A[m, k] · B[n, k]
Shapes: A (M, K), B (N, K), both row-major in fp8 e4m3; s one number in fp32; C (M, N) row-major in fp16.
Traffic: M·K + N·K bytes read and 2·M·N written: each operand once.
Source: the layout (both operands with k innermost) is the one that wgmma has for eight-bit types, and that of
torch._scaled_mm with a transposed second operand.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, the
scaling of the result, and with `stream_k` or `split_k` the sums that programs leave for one another (L2).

Precision: wgmma adds fp8 products with fewer bits than fp32 has. With `promote` its sums over 128 products are added
in fp32 registers; without, the whole sum stays in wgmma, as with the library's fast accumulation. One rounding to
fp16.
Determinism: each element is one program's sum in the order of k, or with `stream_k` or `split_k` the sum of a few
programs' sums, added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ledger.kernel import Config, Launch, Prepare, Tolerance
from ledger.kernels.common.cuda import cuda_source
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.gemm_scaled import ScaledGemm
from ledger.kernels.common.gemm_split_k import SplitK
from ledger.kernels.common.gemm_tiles import BYTE_TILES
from ledger.operations import MATMUL_FP8, fp8_scale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

GEMM = ScaledGemm(
    name="matmul_fp8",
    dtypes=("fp8_e4m3",),
    scale=fp8_scale,
    output="fp16",
    # gfx942 multiplies another e4m3, fnuz: Triton would convert this one to fp16.
    tiles={target: tiles for target, tiles in BYTE_TILES.items() if target not in ("sm_80", "gfx942")},
    cluster=ClusterGemm(
        name="matmul_fp8",
        source=partial(cuda_source, __name__, "cluster.cu"),
        fixed={"promote": 1},
        promotion=256,
        early_columns=True,
        divided_clocks=6_500,
    ),
    split_k=SplitK("matmul_fp8", one_byte="fp8_e4m3"),
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

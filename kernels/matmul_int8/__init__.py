"""Compute C = s · A · Bᵀ of int8 matrices with persistent programs, or with `split_k` in two launches.

Formula: C[m, n] = s · Σ_k A[m, k] · B[n, k]
Shapes: A (M, K), B (N, K), both row-major in int8; s one number in fp32; C (M, N) row-major in fp32.
Traffic: M·K + N·K bytes read and 4·M·N written: each operand once.
Source: the layout (both operands with k innermost) is the one that wgmma has for eight-bit types, and that of
torch._int_mm with a transposed second operand.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, the
scaling of the result, and with `split_k` the sums that programs leave for one another (L2).

Precision: the sum is an exact 32-bit integer up to K = 131,071, whatever the inputs; fp32 holds it exactly below 2²⁴,
and one rounding is made above. Determinism: integer sums have no order, so the same inputs give the same bits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ledger.kernel import Tolerance
from ledger.kernels.common.baselines import library
from ledger.kernels.common.cuda import cuda_source
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.gemm_scaled import ScaledGemm
from ledger.kernels.common.gemm_split_k import SplitK
from ledger.kernels.common.gemm_tiles import BYTE_TILES
from ledger.operations import MATMUL_INT8, int8_scale

if TYPE_CHECKING:
    from torch import Tensor

GEMM = ScaledGemm(
    name="matmul_int8",
    dtypes=("int8",),
    scale=int8_scale,
    output="fp32",
    tiles=BYTE_TILES,
    cluster=ClusterGemm(
        name="matmul_int8",
        source=partial(cuda_source, __name__, "cluster.cu"),
        fixed={"swap_ab": 1},
        promotion=256,
        early_columns=True,
    ),
    split_k=SplitK("matmul_int8", one_byte="int8"),
    lacks="int8 path here",
)


def matmul_int8(a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
    """Return scale · a · bᵀ in float32.

    Shapes: a (M, K), b (N, K), both int8 on one GPU; the result (M, N).
    """
    return GEMM(a, b, scale=scale)


KERNEL = GEMM.scaled_kernel(
    operation=MATMUL_INT8,
    tolerances={
        "int8": Tolerance(0.0, 1.2e-7, "the sum is exact; one rounding to 24 bits where it is 2²⁴ or more"),
    },
    # Its integers are as many bytes as the result here, and not scaled.
    baselines={"torch_int_mm": library(lambda torch, out, a, b: torch._int_mm(a, b.t()), "a", "b")},
)

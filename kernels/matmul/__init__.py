"""Compute C = A · B with a grid of persistent programs.

Formula: C[m, n] = Σ_k A[m, k] · B[k, n]
Shapes: A (M, K), B (K, N), C (M, N), all row-major and of one dtype (fp16 or bf16).
Traffic: e · (M·K + K·N) bytes read and e · M·N written, e bytes an element: each operand once.
Source: the grouped tile order is the one of Triton's matrix-multiplication tutorial.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, and with
`stream_k` or `split_k` the sums that CTAs leave for one another (at most 41 MB written and read, L2).

Precision: fp32 accumulation, one rounding to the dtype.
Determinism: each element is one CTA's sum in the order of k, or with `stream_k` or `split_k` the sum of a few CTAs'
sums, added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ledger.kernels.common.baselines import library
from ledger.kernels.common.cuda import cuda_source
from ledger.kernels.common.gemm import TOLERANCES
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.gemm_few_rows import FewRows
from ledger.kernels.common.gemm_residues import Residues
from ledger.kernels.common.gemm_rule import RuledGemm
from ledger.kernels.common.gemm_split_k import SplitK
from ledger.operations import MATMUL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


GEMM = RuledGemm(
    name="matmul",
    cluster=ClusterGemm(name="matmul", source=partial(cuda_source, __name__, "cluster.cu")),
    few_rows=FewRows("matmul"),
    residues=Residues("matmul"),
    split_k=SplitK("matmul"),
)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a · b.

    Shapes: a (M, K), b (K, N) of one dtype on one GPU; the result (M, N).
    """
    return GEMM(a, b)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product in float64."""
    return inputs["a"].double() @ inputs["b"].double()


TORCH = library(lambda torch, out, a, b: torch.matmul(a, b, out=out), "a", "b")

KERNEL = GEMM.kernel(
    operation=MATMUL,
    summary="matrix product",
    formula="C = A · B",
    excludes="re-reads of A and B by other tiles and partial sums exchanged between CTAs (L2), padding to whole tiles",
    tolerances=TOLERANCES,
    reference=reference,
    torch_cpu=TORCH,
    baselines={"torch_matmul": TORCH},
)

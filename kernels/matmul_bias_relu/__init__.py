"""Compute C = max(0, A · B + bias) with a grid of persistent programs.

Formula: C[m, n] = max(0, Σ_k A[m, k] · B[k, n] + bias[n])
Shapes: A (M, K), B (K, N), bias (N), C (M, N), all row-major and of one dtype (fp16 or bf16).
Traffic: e · (M·K + K·N + N) bytes read and e · M·N written, e bytes an element: each operand once.
Source: the grouped tile order is the one of Triton's matrix-multiplication tutorial.
The work model excludes: re-reads of A, B and bias by other tiles (L2), the padding of M, N and K to whole
tiles, and with `stream_k` or `split_k` the sums that CTAs leave for one another (at most 41 MB written and read, L2).

Precision: fp32 accumulation, bias and maximum in fp32, one rounding to the dtype; NaN stays NaN.
Determinism: each element is one CTA's sum in the order of k, or with `stream_k` or `split_k` the sum of a few CTAs'
sums, added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.kernel import import_triton
from ledger.kernels.common.baselines import compiled, library
from ledger.kernels.common.cuda import cuda_source
from ledger.kernels.common.gemm import TOLERANCES
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.gemm_few_rows import FewRows
from ledger.kernels.common.gemm_residues import Residues
from ledger.kernels.common.gemm_rule import RuledGemm
from ledger.kernels.common.gemm_split_k import SplitK
from ledger.operations import MATMUL_BIAS_RELU

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def _bias_relu(acc, bias, scale):
    total = acc + bias
    # Not a maximum, which would turn NaN into 0.
    return tl.where(total < 0.0, 0.0, total)


GEMM = RuledGemm(
    name="matmul_bias_relu",
    epilogue=_bias_relu,
    # An addition and a maximum.
    epilogue_flops=2,
    bias=True,
    cluster=ClusterGemm(name="matmul_bias_relu", source=partial(cuda_source, __name__, "cluster.cu")),
    few_rows=FewRows("matmul_bias_relu", bias_relu=True),
    residues=Residues("matmul_bias_relu", bias_relu=True),
    split_k=SplitK("matmul_bias_relu", bias_relu=True),
)


def matmul_bias_relu(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """Return max(0, a · b + bias).

    Shapes: a (M, K), b (K, N), bias (N) of one dtype on one GPU; the result (M, N).
    """
    return GEMM(a, b, bias)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product, with bias and rectifier, in float64."""
    total = inputs["a"].double() @ inputs["b"].double() + inputs["bias"].double()
    return total.clamp_(min=0.0)


def _addmm_activation(torch: Any, out: Tensor, a: Tensor, b: Tensor, bias: Tensor) -> None:
    torch._addmm_activation(bias, a, b, use_gelu=False, out=out)


def _unfused(torch: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda a, b, bias: torch.relu(torch.addmm(bias, a, b))


TORCH = library(lambda torch, out, a, b, bias: torch.addmm(bias, a, b, out=out).relu_(), "a", "b", "bias")

KERNEL = GEMM.kernel(
    operation=MATMUL_BIAS_RELU,
    summary="matrix product with a bias and a rectifier",
    formula="C = max(0, A · B + bias)",
    excludes="re-reads of A, B, bias, partial sums exchanged between CTAs (L2), padding to whole tiles",
    tolerances=TOLERANCES,
    reference=reference,
    torch_cpu=TORCH,
    baselines={
        "torch_eager": TORCH,
        "torch_addmm_activation": library(_addmm_activation, "a", "b", "bias"),
        "torch_compile_default": compiled(_unfused, "a", "b", "bias", mode="default"),
        "torch_compile_max_autotune": compiled(_unfused, "a", "b", "bias", mode="max-autotune-no-cudagraphs"),
    },
)

"""Compute Y = silu(s · A · B): an example of a matrix product with an epilogue over ledger.kernels.common.

Formula: Y[m, n] = z / (1 + exp(-z)), z = s · Σ_k A[m, k] · B[k, n], s = 2
Shapes: A (M, K), B (K, N), Y (M, N), all row-major and of one dtype (fp16, bf16 or fp32).
Traffic: e · (M·K + K·N) bytes read and e · M·N written, e bytes an element: each operand once.
The work model excludes: re-reads of A and B by other tiles (L2), and the padding of M, N and K to whole tiles.

For an epilogue of your own, write `_scale_and_silu`, its operation and tolerances. The shared GEMM brings the loops in
Triton and in Gluon, the launch rule, its checks and the candidates of `ledger tune`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledger.kernel import Tolerance, import_triton
from ledger.kernels.common.baselines import library
from ledger.kernels.common.gemm_rule import RuledGemm
from ledger.operations import MATMUL, Read, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

triton, tl = import_triton()
SCALE = 2.0


@triton.jit
def _scale_and_silu(acc, bias, scale):
    z = acc * scale
    return z * tl.sigmoid(z)


# An element takes two products, an exponential, an addition and a division.
GEMM = RuledGemm(name="matmul_silu", epilogue=_scale_and_silu, epilogue_flops=5, scale=lambda n_inner: SCALE)


def matmul_silu(a: Tensor, b: Tensor, scale: float = SCALE) -> Tensor:
    """Return silu(scale · a · b).

    Shapes: a (M, K), b (K, N) of one dtype on one GPU; the result (M, N).
    """
    return GEMM(a, b, scale=scale)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64."""
    z = SCALE * (inputs["a"].double() @ inputs["b"].double())
    return z * z.sigmoid()


def _unfused(torch: Any, out: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Compute the result with torch's calls, one after the other; the product is rounded to the dtype."""
    return out.copy_(torch.nn.functional.silu(SCALE * torch.matmul(a, b)))


def _fp32(torch: Any, out: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return _unfused(torch, out, a.float(), b.float())


def _element(shape: Shape, position: int, read: Read) -> float:
    z = SCALE * MATMUL.element(shape, position, read)
    return z / (1 + math.exp(-z))


KERNEL = GEMM.kernel(
    operation=replace(MATMUL, name="matmul_silu/1", element=_element),
    summary="matrix product with a scale and SiLU",
    formula="Y = silu(2 · A · B)",
    excludes="re-reads of A and B by other tiles (L2), padding to whole tiles",
    tolerances={
        "fp16": Tolerance(2e-4, 5e-4, "one rounding to 11 bits; the sum is fp32, and silu's slope is at most 1.1"),
        "bf16": Tolerance(2e-4, 4e-3, "one rounding to 8 bits; the sum is fp32, and silu's slope is at most 1.1"),
        "fp32": Tolerance(4e-5, 1e-5, "up to 8192 terms are summed in 24 bits, in blocks, and doubled"),
    },
    reference=reference,
    torch_cpu=library(_fp32, "a", "b"),
    baselines={"torch_eager": library(_unfused, "a", "b")},
)

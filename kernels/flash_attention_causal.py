"""Compute attention of whole sequences, no query seeing a later key; forward only.

Formula: y[b, h, i] = Σ_j≤i softmax_j≤i(q[b, h, i] · k[b, g, j] / sqrt(D)) · v[b, g, j], g = h · HKV ÷ HQ rounded down
Shapes: q, y (B, HQ, S, D), k, v (B, HKV, S, D), row-major and of one dtype (fp16 or bf16). HQ is a multiple of HKV.
Traffic: e · (B·HQ·S·D + 2·B·HKV·S·D) bytes read and e · B·HQ·S·D written, e bytes an element.
Source: FlashAttention-2, arXiv 2307.08691, algorithm 1; the products count as in its section 4.1.
The work model excludes: masked scores in the tiles on the diagonal, re-reads of k and v by each block of queries (L2),
the padding of S and D to whole tiles, the softmax (about five operations a score, none on the tensor cores) and
corrections where a running maximum rises.

On sm_90, 16-bit rows of 33 to 128 columns take the warp-specialised variant, all others the generic one; both are in
common/attention_device.py.

Precision: scores, sums and outputs are fp32; the exponentials are rounded to the dtype before they are multiplied by v;
one rounding at the end. Determinism: each block of queries is computed by one program in a fixed order, so the same
inputs give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.kernel import Kernel, Tolerance
from ledger.kernels.common import attention
from ledger.kernels.common.targets import attention_path
from ledger.operations import FLASH_ATTENTION_CAUSAL, Shape
from ledger.records import Dtype, Work

if TYPE_CHECKING:
    from torch import Tensor

# Ping-pong pays or costs nothing, but for 128 columns under the causal mask, which it slows by 2%.
ATTENTION = attention.Attention("flash_attention_causal", causal=True, pingpong=lambda columns: columns == 64)


def flash_attention_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q · kᵀ / sqrt(D)) · v, each query seeing the keys up to its own.

    Shapes: q (B, HQ, S, D), k and v (B, HKV, S, D) of one dtype on one GPU; the result as q.
    """
    return ATTENTION.call(q, k, v)


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count two products of 2·D operations for each query and key up to its own; each operand moves once."""
    return attention.work(shape, dtype, scores=shape["S"] * (shape["S"] + 1) // 2)


CASES: tuple[dict[str, int], ...] = (
    *({"B": 16384 // s, "HQ": 16, "HKV": 16, "S": s, "D": d} for s in (2048, 4096, 8192, 16384) for d in (64, 128)),
    {"B": 1, "HQ": 32, "HKV": 8, "S": 4096, "D": 128},
    {"B": 1, "HQ": 1, "HKV": 1, "S": 1, "D": 1},
    {"B": 2, "HQ": 6, "HKV": 2, "S": 1031, "D": 67},
)

KERNEL = Kernel(
    name="flash_attention_causal",
    operation=FLASH_ATTENTION_CAUSAL,
    summary="causal attention of whole sequences, forward",
    formula="each query sees the keys up to its own: y = softmax(q · kᵀ / sqrt(D)) · v",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="masked scores on the diagonal, "
    "re-reads of k and v by each block of queries (L2), padding to whole tiles, the softmax",
    path=attention_path,
    config=ATTENTION.config,
    check_config=ATTENTION.check_config,
    tolerances={
        "fp16": Tolerance(
            6e-4, 5e-4, "exponentials of up to 1 are rounded to 11 bits, values are up to 2; one more rounding"
        ),
        "bf16": Tolerance(5e-3, 4e-3, "as fp16, with 8 bits: eight times as wide"),
        "fp32": Tolerance(1e-5, 1e-5, "scores of up to 16 have 24 bits, and their exponentials as many less four"),
    },
    cases=CASES,
    implementations={"triton": ATTENTION.prepare_triton, "torch-cpu": ATTENTION.prepare_torch_cpu},
    reference=ATTENTION.reference,
    launched=attention.LAUNCHED,
    baselines=ATTENTION.baselines,
    ahead=ATTENTION.ahead,
)

"""Compute attention of whole sequences, every query seeing every key; forward only.

Formula: y[b, h, i] = Σ_j softmax_j(q[b, h, i] · k[b, g, j] / sqrt(D)) · v[b, g, j], g = h · HKV ÷ HQ rounded down
Shapes: q, y (B, HQ, S, D), k, v (B, HKV, S, D), row-major and of one dtype (fp16 or bf16). HQ is a multiple of HKV.
Traffic: e · (B·HQ·S·D + 2·B·HKV·S·D) bytes read and e · B·HQ·S·D written, e bytes an element.
Source: FlashAttention-2, arXiv 2307.08691, algorithm 1; the products count as in its section 4.1.
The work model excludes: re-reads of k and v by each block of queries (L2), the padding of S and D to whole tiles, the
softmax (about five operations a score, none on the tensor cores), corrections where a running maximum rises and the
partial sums of divided keys (L2).

On sm_90, 16-bit rows of 33 to 64 columns take CUDA C++ (common/attention.cu) and rows of 65 to 256 columns the
warp-specialised variant; all others, and few blocks of queries, take the generic one, which may divide keys among
programs. Both are in common/attention_device.py.

Precision: scores, sums and outputs are fp32; the exponentials, of up to 1, are rounded to the dtype before they are
multiplied by v, in CUDA C++ also before they are added up; one rounding at the end. Determinism: each block of queries
is computed by one program in a fixed order, or by a few whose sums are added in their order, so the same inputs give
the same bits.
"""

from __future__ import annotations

from ledger.kernels.common.attention import Attention
from ledger.operations import FLASH_ATTENTION

ATTENTION = Attention(
    "flash_attention",
    causal=False,
    scores=lambda n_keys: n_keys**2,
    # Measured on an H200: between 3% faster (S = 12288) and no slower than without an order.
    pingpong=True,
)

flash_attention = ATTENTION.call

KERNEL = ATTENTION.kernel(
    FLASH_ATTENTION,
    summary="attention of whole sequences, forward",
    formula="y = softmax(q · kᵀ / sqrt(D)) · v",
    excludes="",
)

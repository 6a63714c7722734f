"""Compute attention of whole sequences, no query seeing a later key; forward only.

Formula: y[b, h, i] = Σ_j≤i softmax_j≤i(q[b, h, i] · k[b, g, j] / sqrt(D)) · v[b, g, j], g = h · HKV ÷ HQ rounded down
Shapes, traffic, source, variants, precision, determinism: as flash_attention.
The work model excludes also: masked scores in the tiles on the diagonal.
"""

from __future__ import annotations

from ledger.kernels.common.attention import Attention
from ledger.operations import FLASH_ATTENTION_CAUSAL

ATTENTION = Attention(
    "flash_attention_causal",
    causal=True,
    scores=lambda n_keys: n_keys * (n_keys + 1) // 2,
    # Measured on an H200: 2% slower.
    pingpong=False,
)

flash_attention_causal = ATTENTION.call

KERNEL = ATTENTION.kernel(
    FLASH_ATTENTION_CAUSAL,
    summary="causal attention of whole sequences, forward",
    formula="each query sees the keys up to its own: y = softmax(q · kᵀ / sqrt(D)) · v",
    excludes="masked scores on the diagonal, ",
)

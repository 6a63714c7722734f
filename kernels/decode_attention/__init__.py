"""Compute attention of one query token per sequence over a key-value cache of plain tensors.

Formula: y[b, h] = softmax(q[b, h] · k[b, g]ᵀ / sqrt(D)) · v[b, g], g = h · HKV ÷ HQ rounded down
Shapes: q (B, HQ, D), k and v (B, HKV, S, D), y (B, HQ, D), row-major and of one dtype (fp16, bf16 or fp32).
HQ is a multiple of HKV: equal is multi-head attention, more is grouped-query attention.
Traffic: e · (B·HQ·D + 2·B·HKV·S·D) bytes read and e · B·HQ·D written, e bytes an element.
Source: splitting the keys among programs is Flash-Decoding (Dao, Haziza, Massa, Sizov, 2023); the running maximum is
FlashAttention-2, arXiv 2307.08691, algorithm 1.
The work model excludes: partial sums of the splits (written and read in L2), the padding of a group of query heads to
16 and of keys to whole tiles, the corrections where a running maximum rises, and, without tensor cores, re-reads of
keys and values (L2) where a group has more than four query heads.

Variants: generic (Triton); on sm_90 also software_pipelined (Gluon), cuda_cluster (the CTAs of a cluster split a head's
keys) and cuda_stream_k (equal shares of all heads' keys for every CTA).

Precision: scores, sums and outputs are fp32; the exponentials are rounded to the dtype before they are multiplied by v
(they are up to 1, in CUDA C++ up to 256: it raises a row's reference only for scores well above it); one rounding at
the end. fp32 takes plain multiply-adds only.
Determinism: the partial sums of a head are reduced in a fixed order: in the generic variant by the last program to
arrive, in software_pipelined and cuda_cluster by every split for a share of the columns, in cuda_stream_k by the last
CTA of a head. So the same inputs give the same bits. A program of software_pipelined waits for the other splits of its
head: they have consecutive numbers, and the hardware starts programs in this order. A CTA of the CUDA variants waits
for the others of its cluster, which are co-scheduled, or for CTAs of lower numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ledger.kernels.common.attention_family import Family, sdpa_baselines, sdpa_cpu
from ledger.operations import DECODE_ATTENTION, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

from .launch import plan, shape_of
from .rule import check_config, config_for, generic_config

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = Family("decode_attention", plan, shape_of, config_for, generic_config, check_config)


def decode_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q · kᵀ / sqrt(D)) · v of one query token per sequence.

    Shapes: q (B, HQ, D), k and v (B, HKV, S, D) of one dtype on one GPU; the result as q.
    """
    return FAMILY.call(q.shape, q=q, k=k, v=v)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64, one sequence at a time to spare memory."""
    import torch

    rows = []
    for q, k, v in zip(inputs["q"], inputs["k"], inputs["v"], strict=True):
        grouped = q.double().view(k.shape[0], -1, q.shape[1])
        weights = torch.softmax(grouped @ k.double().transpose(1, 2) / math.sqrt(q.shape[1]), dim=-1)
        rows.append((weights @ v.double()).view(q.shape))
    return torch.stack(rows)


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count two products of 2·D operations a key and query head, and five of its softmax; each operand moves once."""
    keys, queries = shape["B"] * shape["HKV"] * shape["S"], shape["B"] * shape["HQ"]
    row_bytes = DTYPE_BYTES[dtype] * shape["D"]
    return Work(
        flops=queries * shape["S"] * (4 * shape["D"] + 5),
        bytes_read=(queries + 2 * keys) * row_bytes,
        bytes_written=queries * row_bytes,
    )


KERNEL = FAMILY.kernel(
    DECODE_ATTENTION,
    summary="attention of one query token over a key-value cache",
    formula="y = softmax(q · kᵀ / sqrt(D)) · v",
    work=work,
    excludes="partial sums of the splits (L2), padding of query groups and of keys, corrections of running maxima",
    cases=(
        *({"B": b, "HQ": 32, "HKV": 8, "S": s, "D": 128} for b in (1, 8, 64) for s in (128, 256, 512, 1024, 8192)),
        {"B": 8, "HQ": 32, "HKV": 32, "S": 1024, "D": 128},
        {"B": 1, "HQ": 1, "HKV": 1, "S": 1, "D": 1},
        {"B": 3, "HQ": 14, "HKV": 2, "S": 1031, "D": 67},
        {"B": 1, "HQ": 32, "HKV": 8, "S": 131072, "D": 128},
    ),
    cpu=sdpa_cpu(decode=True),
    reference=reference,
    launched="^decode_attention_(kernel|software_pipelined|cuda)$",
    baselines=sdpa_baselines(decode=True, math_backend=True),
)

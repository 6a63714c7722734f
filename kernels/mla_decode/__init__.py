"""Compute multi-head latent attention of one query token per sequence, all heads sharing one latent cache.

Formula: y[b, h] = Σ_s softmax_s(q[b, h] · cache[b, s] / sqrt(192)) · cache[b, s, :512]
Shapes: q (B, H, 576), cache (B, S, 576), y (B, H, 512), row-major and of one dtype (fp16 or bf16). The first 512
columns are the latent, which is key and value at once; the last 64 carry the rotary position and are key only.
Traffic: e · (B·H·576 + B·S·576) bytes read and e · B·H·512 written, e bytes an element.
Source: DeepSeek-V2, arXiv 2405.04434, section 2.1, with the projections absorbed into q and into what follows; its
softmax scale is that of heads of 128 + 64.
The work model excludes: the second read of the cache by the other half of 128 heads (L2), partial sums of the splits
(L2), the softmax (about five operations a score, none on the tensor cores) and the padding of H to 64.

Precision: scores, sums and outputs are fp32; the exponentials are rounded to the dtype before they are multiplied by
the latent (they are up to 1, in the sm_90 variants up to 256: these raise a row's reference only for scores well above
it); one rounding at the end. Splits of cuda (bf16) keep sums as fp16 fractions of the greatest of a head. Determinism:
the partial sums of the splits are reduced in their order: in the generic variant by the last program to arrive, in
warp_specialised and cuda (sm_90) by every split for a share of the result. So the same inputs give the same bits. A
program of warp_specialised waits for the other splits of its sequence: they have consecutive numbers, and the hardware
starts programs in this order. So do the CTAs of cuda with splits, for those of the same 128 heads. The rule takes no
more than the chip runs at once, and so many are checked again when the launch is prepared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ledger.kernel import Config, Launch
from ledger.kernels.common.attention_family import Family
from ledger.operations import MLA_DECODE, MLA_LATENT, MLA_ROPE, MLA_SCALE, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

from .launch import plan, shape_of
from .rule import check_config, config_for, generic_config

if TYPE_CHECKING:
    from torch import Tensor

FAMILY = Family("mla_decode", plan, shape_of, config_for, generic_config, check_config)


def mla_decode(q: Tensor, cache: Tensor) -> Tensor:
    """Return softmax(q · cacheᵀ / sqrt(192)) · cache[:, :, :512] of one query token per sequence.

    Shapes: q (B, H, 576), cache (B, S, 576) of one dtype on one GPU; the result (B, H, 512).
    """
    return FAMILY.call((*q.shape[:2], MLA_LATENT), q=q, cache=cache)


def _attend(q: Tensor, keys: Tensor) -> Tensor:
    """Return the result of one or several sequences in the dtype of the operands."""
    weights = (q @ keys.transpose(-2, -1) * MLA_SCALE).softmax(-1)
    return weights @ keys[..., :MLA_LATENT]


def prepare_torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return two batched products around torch's softmax, in fp32."""

    def launch() -> None:
        out.copy_(_attend(inputs["q"].float(), inputs["cache"].float()))

    return launch


def prepare_torch_eager(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return two batched products around torch's softmax, in the inputs' dtype."""
    import torch

    q, cache = inputs["q"], inputs["cache"]

    def launch() -> None:
        weights = torch.softmax(torch.bmm(q, cache.transpose(1, 2)) * MLA_SCALE, dim=-1)
        torch.bmm(weights, cache[:, :, :MLA_LATENT], out=out)

    return launch


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64, one sequence at a time to spare memory."""
    import torch

    pairs = zip(inputs["q"], inputs["cache"], strict=True)
    return torch.stack([_attend(query.double(), cache.double()) for query, cache in pairs])


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count the products of 576 and 512 multiply-adds a key and head; each operand moves once."""
    b, h, s = shape["B"], shape["H"], shape["S"]
    element, width = DTYPE_BYTES[dtype], MLA_LATENT + MLA_ROPE
    return Work(
        flops=2 * b * h * s * (width + MLA_LATENT),
        bytes_read=element * (b * h + b * s) * width,
        bytes_written=element * b * h * MLA_LATENT,
    )


KERNEL = FAMILY.kernel(
    MLA_DECODE,
    summary="multi-head latent attention of one query token over a latent cache",
    formula="y = softmax(q · cacheᵀ / sqrt(192)) · cache[:, :512]",
    work=work,
    excludes="the cache's second read by the other half of 128 heads, partial sums of splits (L2), the softmax",
    cases=(
        {"B": 64, "H": 128, "S": 8192},
        {"B": 1, "H": 128, "S": 8192},
        {"B": 1, "H": 1, "S": 1},
        {"B": 3, "H": 67, "S": 1031},
    ),
    cpu=prepare_torch_cpu,
    reference=reference,
    launched="^mla_decode_(kernel|warp_specialised|cluster)$",
    baselines={"torch-eager": prepare_torch_eager},
)

"""Offers kernels of torch itself: its library calls, FlexAttention and a compiled function."""

from functools import cache

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

_flex = torch.compile(flex_attention, dynamic=False)


def attention(q, k, v):
    """Call scaled_dot_product_attention."""
    return F.scaled_dot_product_attention(q, k, v)


def causal_attention(q, k, v):
    """Call scaled_dot_product_attention with its causal mask."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def flex_causal(q, k, v):
    """Call FlexAttention with a causal mask."""
    return _flex(q, k, v, block_mask=_mask(q.shape[2], q.shape[2], q.device))


def flex_window(q, k, v, window):
    """Call FlexAttention with a causal sliding window."""
    return _flex(q, k, v, block_mask=_mask(q.shape[2], window, q.device))


def flex_softcap(q, k, v, cap):
    """Call causal FlexAttention with scores bounded by a tanh."""
    return _flex(q, k, v, lambda s, b, h, i, j: cap * torch.tanh(s / cap), _mask(q.shape[2], q.shape[2], q.device))


@cache
def _mask(length: int, window: int, device: torch.device) -> BlockMask:
    def seen(batch, head, i, j):
        return (i >= j) & (i - j < window)

    return create_block_mask(seen, None, None, length, length, device=device)


def rms_norm(x, weight, eps):
    """Call rms_norm."""
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def layer_norm(x, weight, bias, eps):
    """Call layer_norm."""
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def cross_entropy(x, target):
    """Call cross_entropy."""
    return F.cross_entropy(x, target, reduction="none")


def scaled_matmul(a, b, scale_a, scale_b):
    """Call the fp8 product."""
    return torch._scaled_mm(a, b.T, scale_a, scale_b, out_dtype=torch.bfloat16)


def int8_matmul(a, b):
    """Call the int8 product."""
    return torch._int_mm(a, b.T)


def grouped_matmul(a, b):
    """Call one product for each group."""
    return torch.bmm(a, b.mT)


def conv2d(x, weight):
    """Call a convolution of 3 × 3."""
    return F.conv2d(x, weight, padding=1)


def cumsum(x):
    """Call cumsum along rows."""
    return torch.cumsum(x, -1)


@torch.compile(dynamic=False)
def swiglu(a, b):
    """Run a compiled SwiGLU."""
    return F.silu(a) * b

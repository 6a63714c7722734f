"""Offers kernels of flash-attn-4 (BSD-3-Clause)."""

from flash_attn.cute.interface import flash_attn_func


def attention(q, k, v):
    """Call the attention."""
    return _first(flash_attn_func(q, k, v))


def causal_attention(q, k, v):
    """Call the causal attention."""
    return _first(flash_attn_func(q, k, v, causal=True))


def _first(found):
    return found[0] if isinstance(found, tuple) else found

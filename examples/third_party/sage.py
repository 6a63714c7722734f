"""Offers the kernels of sageattention (BSD-3-Clause), which change k: they subtract its mean."""

from sageattention import sageattn


def attention(q, k, v):
    """Call the attention with int8 scores."""
    return sageattn(q, k, v)


def causal_attention(q, k, v):
    """Call the causal attention with int8 scores."""
    return sageattn(q, k, v, is_causal=True)

"""Offers kernels of flashinfer-python (Apache-2.0), which it compiles at the first call."""

import flashinfer


def rms_norm(x, weight, eps):
    """Call the RMS norm."""
    return flashinfer.rmsnorm(x, weight, eps)


def add_rms_norm(x, residual, weight, eps):
    """Call the RMS norm of a sum, which changes both arguments."""
    flashinfer.fused_add_rmsnorm(x, residual, weight, eps)


def silu_and_mul(x):
    """Call SwiGLU of the halves of a row."""
    return flashinfer.silu_and_mul(x)


def decode(q, k, v):
    """Call the attention of one token."""
    return flashinfer.single_decode_with_kv_cache(q, k, v)


def prefill(q, k, v):
    """Call the causal attention of one prompt."""
    return flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True)

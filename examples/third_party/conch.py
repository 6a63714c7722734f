"""Offers kernels of conch-triton-kernels (Apache-2.0)."""

import torch
from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
from conch.ops.activation.silu_and_mul import silu_and_mul as conch_silu_and_mul
from conch.ops.attention.paged_attention import paged_attention as conch_paged_attention
from conch.ops.embedding.rotary_embedding import rotary_embedding
from conch.ops.normalization import gemma_rms_norm as gemma
from conch.ops.normalization import rms_norm as norm
from conch.ops.quantization.gemm import mixed_precision_gemm, scaled_gemm
from conch.ops.quantization.int8 import scaled_int8_quant


def silu_and_mul(x):
    """Call SwiGLU of the halves of a row."""
    return conch_silu_and_mul(x)


def gelu_and_mul(x):
    """Call GEGLU of the halves of a row."""
    return gelu_tanh_and_mul(x)


def rms_norm(x, weight, eps):
    """Call the RMS norm."""
    return norm.rms_norm(x, weight, eps)


def add_rms_norm(x, residual, weight, eps):
    """Call the RMS norm of a sum, which changes both arguments."""
    return norm.fused_add_rms_norm(x, residual, weight, eps)


def gemma_rms_norm(x, weight, eps):
    """Call Gemma's RMS norm, which changes its argument."""
    return gemma.gemma_rms_norm(x, weight, eps)


def rope(positions, query, key, cache):
    """Call the rotary embedding, which changes query and key."""
    return rotary_embedding(positions, query, key, cache.shape[1], cache)


def paged_attention(q, k, v, table, lengths):
    """Call the decode attention over pages."""
    return conch_paged_attention(q, k, v, table, lengths + 1)


def w4a16_matmul(x, packed, scales):
    """Call the product with int4 weights."""
    return mixed_precision_gemm(x, packed, scales, None, 4, 8, 128)


def int8_matmul(a, b, row, column):
    """Call the scaled int8 product."""
    return scaled_gemm(a, b.T, row, column, torch.bfloat16)


def quantize_int8(x, scale):
    """Call the quantisation to int8."""
    return scaled_int8_quant(x, scale.abs() + 0.01)[0]

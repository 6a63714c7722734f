"""Offers kernels of bitsandbytes (MIT)."""

import bitsandbytes  # noqa: F401  registers its operators
import torch

_ops = torch.ops.bitsandbytes


def quantize_rows(x):
    """Call the quantisation of rows to int8."""
    return _ops.int8_vectorwise_quant(x)


def int8_matmul(a, b):
    """Call the int8 product."""
    return _ops.int8_linear_matmul(a, b)


def scale_product(product, rows, columns):
    """Call the scaling of an int8 product."""
    return _ops.int8_mm_dequant(product, rows, columns)


def dequantize_blocks(values, largest, code):
    """Call the look-up of 8-bit values, scaled by blocks of 256."""
    return _ops.dequantize_blockwise(values, largest, code, 256, torch.float16)


def gemv_4bit(x, packed, largest, code):
    """Call the product of a vector with 4-bit weights, scaled by blocks of 64."""
    return _ops.gemv_4bit(x, packed, [packed.numel() * 2 // x.shape[1], x.shape[1]], largest, code, 64)

"""Offers kernels of torchao (BSD-3-Clause)."""

from torchao.kernel.blockwise_quantization import blockwise_fp8_gemm, fp8_blockwise_act_quant
from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm


def quantize_blocks(x):
    """Call the quantisation to fp8 by blocks of 128."""
    return fp8_blockwise_act_quant(x)


def blockwise_matmul(a, a_scale, b, b_scale):
    """Call the fp8 product with a scale for each block."""
    return blockwise_fp8_gemm(a, a_scale, b, b_scale)


def int8_matmul(a, b, row, column):
    """Call the scaled int8 product."""
    return scaled_int8_mm(a, b.T, row, column)

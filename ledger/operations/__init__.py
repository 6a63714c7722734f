"""Defines what each operation computes, one family a module: its inputs, its output and one element of it in float64.

The definition of an operation with a name here never changes. Imports the generator of inputs and the records only.
"""

from ledger.operations.attention import (
    DECODE_ATTENTION,
    FLASH_ATTENTION,
    FLASH_ATTENTION_CAUSAL,
    MLA_DECODE,
    MLA_LATENT,
    MLA_ROPE,
    MLA_SCALE,
)
from ledger.operations.contract import (
    Operation,
    Read,
    Shape,
    TensorSpec,
    weight_exponent,
)
from ledger.operations.products import (
    FP8_BLOCK,
    GEMV,
    MATMUL,
    MATMUL_BIAS_RELU,
    MATMUL_FP8,
    MATMUL_FP8_BLOCKS,
    MATMUL_INT8,
    RMSNORM_MATMUL,
    fp8_scale,
    int8_scale,
)
from ledger.operations.registry import (
    OPERATIONS,
    SAMPLE_TOLERANCES,
)
from ledger.operations.row_wise import (
    LAYERNORM,
    LAYERNORM_EPS,
    RMSNORM,
    RMSNORM_EPS,
    SOFTMAX,
    VECTOR_ADD,
)

__all__ = [
    "DECODE_ATTENTION",
    "FLASH_ATTENTION",
    "FLASH_ATTENTION_CAUSAL",
    "FP8_BLOCK",
    "GEMV",
    "LAYERNORM",
    "LAYERNORM_EPS",
    "MATMUL",
    "MATMUL_BIAS_RELU",
    "MATMUL_FP8",
    "MATMUL_FP8_BLOCKS",
    "MATMUL_INT8",
    "MLA_DECODE",
    "MLA_LATENT",
    "MLA_ROPE",
    "MLA_SCALE",
    "OPERATIONS",
    "RMSNORM",
    "RMSNORM_EPS",
    "RMSNORM_MATMUL",
    "SAMPLE_TOLERANCES",
    "SOFTMAX",
    "VECTOR_ADD",
    "Operation",
    "Read",
    "Shape",
    "TensorSpec",
    "fp8_scale",
    "int8_scale",
    "weight_exponent",
]

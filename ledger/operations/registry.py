"""Lists the operations by name, and the tolerances of their output samples."""

from __future__ import annotations

from ledger.operations.attention import DECODE_ATTENTION, FLASH_ATTENTION, FLASH_ATTENTION_CAUSAL, MLA_DECODE
from ledger.operations.contract import Operation
from ledger.operations.products import (
    GEMV,
    MATMUL,
    MATMUL_BIAS_RELU,
    MATMUL_FP8,
    MATMUL_FP8_BLOCKS,
    MATMUL_INT8,
    RMSNORM_MATMUL,
)
from ledger.operations.row_wise import LAYERNORM, RMSNORM, SOFTMAX, VECTOR_ADD
from ledger.records import Dtype

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        RMSNORM_MATMUL, MATMUL, VECTOR_ADD, RMSNORM, LAYERNORM, SOFTMAX, GEMV,
        DECODE_ATTENTION, FLASH_ATTENTION, FLASH_ATTENTION_CAUSAL, MLA_DECODE,
        MATMUL_BIAS_RELU, MATMUL_FP8, MATMUL_FP8_BLOCKS, MATMUL_INT8,
    )
}  # fmt: skip

# (atol, rtol) by the dtype of the output: |recorded - recomputed| <= atol + rtol · |recomputed|. Outputs of the
# operations have a standard deviation between 0.1 and 0.6. rtol is a few units in the last place of the stored dtype.
# atol covers fp32 accumulation in any order (tf32 rounds the inputs of each product to 11 bits); it is about a hundred
# times smaller than the standard deviation of the outputs.
SAMPLE_TOLERANCES: dict[Dtype, tuple[float, float]] = {
    "fp64": (1e-9, 1e-9),
    "fp32": (2e-4, 1e-4),
    "tf32": (4e-3, 4e-3),
    "fp16": (1e-3, 2e-3),
    "bf16": (4e-3, 1.6e-2),
    # Half a step of a subnormal, and two half-steps in the last of three fraction bits.
    "fp8_e4m3": (2.0**-10, 0.13),
    # Rounded to the nearest integer.
    "int8": (0.5, 0.0),
}

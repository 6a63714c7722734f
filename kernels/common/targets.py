"""Holds what kernels need to know of the targets that they are tuned for. Imports torch, only when called.

A target is an architecture with the chip that its launch rules assume. Sources: CUDA C++ Programming Guide, table of
compute capabilities, for the limits of a block and an SM; the datasheets of T4, A100 (sm_80), L4 (sm_89), H100 and
H200 (sm_90) and B200 (sm_100) for the number of SMs; AMD's CDNA 3 white paper for gfx942 (MI300X, MI325X), where an SM
is a compute unit and shared memory the LDS. The generic variants are compiled for gfx942 and were never run there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.records import Dtype, Path, Target

if TYPE_CHECKING:
    from torch import Tensor

SMS = {"sm_75": 40, "sm_80": 108, "sm_89": 58, "sm_90": 132, "sm_100": 148, "gfx942": 304}
"""Target -> SMs of the chip that its rules were tuned for: where no other chip is named (sms_of)."""

SHARED_BYTES = {
    "sm_75": 65_536, "sm_80": 166_912, "sm_89": 101_376, "sm_90": 232_448, "sm_100": 232_448, "gfx942": 65_536,
}  # fmt: skip
"""Target -> most shared memory of a block, in bytes."""

TARGETS = tuple(SMS)
"""Every target that has launch rules."""

SM_REGISTERS = 65_536
"""32-bit registers of an SM, the same on all targets."""

WAVE64_TARGETS = ("gfx942",)
"""Targets whose warps are waves of 64 threads; elsewhere a warp has 32."""

TMA_TARGETS = ("sm_90", "sm_100")
"""Targets with the tensor memory accelerator."""

PDL_TARGETS = ("sm_90", "sm_100")
"""Targets with programmatic dependent launch."""

TMA_ALIGNMENT = 16
"""Bytes of which the address and the rows of a tensor must be a multiple for TMA."""


def ceil_div(a: int, b: int) -> int:
    """Return a ÷ b rounded up."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def warps_on(target: str, warps: int) -> int:
    """Return how many warps of a target have the threads of so many warps of 32."""
    return max(1, warps // 2) if target in WAVE64_TARGETS else warps


def sms_of(target: str) -> int:
    """Return the SMs of a target's chip, or of the one that its rules were tuned for where only the name is known."""
    return target.sms if isinstance(target, Target) else SMS[target]


def device_target(tensor: Tensor) -> Target:
    """Return the target of the GPU that holds a tensor, such as sm_90, with the number of its SMs.

    Tensors elsewhere are those of Triton's interpreter, which runs one program after the other.
    """
    import torch

    if tensor.device.type != "cuda":
        return Target(tensor.device.type, 1)
    properties = torch.cuda.get_device_properties(tensor.device)
    name = f"sm_{properties.major}{properties.minor}"
    if torch.version.hip:
        # Such as gfx942:sramecc+:xnack-
        name = str(properties.gcnArchName).partition(":")[0]
    return Target(name, int(properties.multi_processor_count))


def is_tma_aligned(*tensors: Tensor) -> bool:
    """Tell whether the addresses of all tensors are multiples of TMA_ALIGNMENT."""
    return not any(tensor.data_ptr() % TMA_ALIGNMENT for tensor in tensors)


def tensor_core_path(dtype: Dtype, target: str) -> Path:
    """Return the instruction path of products in Triton, as found in the compiled code.

    fp32 products are not rounded to tf32. On sm_75 Triton compiles tl.dot to scalar fp32 multiply-adds: no tensor-core
    instruction.
    """
    if dtype == "fp32" or target == "sm_75":
        return "fp32"
    paths: dict[str, Path] = {"fp16": "fp16_tensor", "fp8_e4m3": "fp8_tensor", "int8": "int8_tensor"}
    return paths.get(dtype, "bf16_tensor")


def matmul_path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return the instruction path of a matrix product: of Triton's compiler, or of torch on a CPU."""
    if implementation == "triton":
        return tensor_core_path(dtype, target)
    paths: dict[str, Path] = {"fp16": "fp16", "bf16": "bf16_tensor"}
    return paths.get(dtype, "fp32")


def attention_path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return the instruction path of attention: of Triton's compiler, or of torch on a CPU, which computes in fp32."""
    return tensor_core_path(dtype, target) if implementation == "triton" else "fp32"

"""Compute C = s · A · Bᵀ of int8 matrices with a grid of persistent programs.

Formula: C[m, n] = s · Σ_k A[m, k] · B[n, k]
Shapes: A (M, K), B (N, K), both row-major in int8; s one number in fp32; C (M, N) row-major in fp32.
Traffic: M·K + N·K bytes read and 4·M·N written: each operand once.
Source: the layout (both operands with k innermost) is the one that wgmma has for eight-bit types, and that of
torch._int_mm with a transposed second operand.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, and the
scaling of the result.

Precision: the sum is an exact 32-bit integer up to K = 131,071, whatever the inputs; fp32 holds it exactly below 2²⁴,
and one rounding is made above. Determinism: integer sums have no order, so the same inputs give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Ahead, Candidate, Config, Kernel, Launch, Tolerance
from ledger.kernels.common.baselines import library
from ledger.kernels.common.configs import check_shared
from ledger.kernels.common.gemm_scaled import ScaledGemm, Tile, candidate, cost, deepest, prepare_torch_cpu
from ledger.kernels.common.targets import ceil_div, device_target, is_tma_aligned
from ledger.operations import MATMUL_INT8, Shape, int8_scale
from ledger.records import Dtype, Path, Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor


def matmul_int8(a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
    """Return scale · a · bᵀ in float32.

    Shapes: a (M, K), b (N, K), both int8 on one GPU; the result (M, N).
    """
    import torch

    for name, tensor in (("a", a), ("b", b)):
        if tensor.dtype != torch.int8:
            raise InputError(f"matmul_int8: {name} is {tensor.dtype}; expected int8")
    inputs = {"a": a.contiguous(), "b": b.contiguous()}
    out = torch.empty((a.shape[0], b.shape[0]), dtype=torch.float32, device=a.device)
    shape, target = {"M": a.shape[0], "N": b.shape[0], "K": a.shape[1]}, device_target(a)
    config = config_for(shape, "int8", target)
    if not is_tma_aligned(*inputs.values()):
        config = {**GEMM.generic_config(shape, target), "tma": 0}
    GEMM.launcher(inputs, out, config, scale)()
    return out


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Make the descriptors and return the launch, with the operation's scale."""
    return GEMM.launcher(inputs, out, config, int8_scale(inputs["a"].shape[1]))


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the scaled product in float64."""
    return inputs["a"].double() @ inputs["b"].double().T * int8_scale(inputs["a"].shape[1])


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one multiply-add (two operations) for each (m, n, k); each operand moves once, the result in fp32."""
    m, n, k = shape["M"], shape["N"], shape["K"]
    return Work(flops=2 * m * n * k, bytes_read=m * k + n * k, bytes_written=_OUTPUT_BYTES * m * n)


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return the instruction path, as found in the compiled code (tests/test_kernel_matmuls.py)."""
    return "int8_tensor" if implementation == "triton" else "fp32"


_OUTPUT_BYTES = 4

# Target -> (BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, rate of a tile's arithmetic relative to the first).
# Estimates; sm_90 runs them where the pipelined kernel does not fit the shape.
_TILES: dict[str, tuple[Tile, ...]] = {
    "sm_80": ((128, 128, 64, 8, 4, 1.0), (64, 64, 64, 4, 4, 0.7)),
    "sm_89": ((128, 128, 64, 8, 3, 1.0), (64, 64, 64, 4, 3, 0.7)),
    "sm_90": ((128, 128, 128, 8, 4, 1.0), (64, 128, 128, 4, 5, 0.7), (64, 64, 128, 4, 5, 0.45)),
    "sm_100": ((128, 128, 128, 8, 4, 1.0), (128, 64, 128, 4, 5, 0.5)),
}

# As above for the pipelined kernel, with subtiles after num_stages. Measured on an H200 at M = N = K = 3584, 5120 and
# 7168: the two differ by how they fill their waves alone.
_PIPELINED = ((128, 256, 128, 4, 4, 4, 1.0), (128, 128, 128, 4, 6, 2, 1.0))

# What the first loads and the last store of a program cost, in tiles, as in common/gemm_rule.py.
_EDGE = 0.125

GEMM = ScaledGemm(
    "matmul_int8",
    tiles=_TILES,
    kinds=("i8", "fp32"),
    output_bytes=_OUTPUT_BYTES,
    lacks="int8 path here",
)


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape: the tile whose waves take least time.

    Raises: InputError for a target without one.
    """
    generic = GEMM.generic_config(shape, target)
    if target != "sm_90" or not generic["tma"] or shape["M"] <= 64:
        return generic
    block_m, block_n, block_k, num_warps, num_stages, subtiles, _ = min(_PIPELINED, key=cost(shape, target, edge=_EDGE))
    return {
        **generic, "block_m": block_m, "block_n": block_n, "block_k": block_k, "num_warps": num_warps,
        "num_stages": num_stages, "subtiles": subtiles, "pipeline": 1,
    }  # fmt: skip


def shared_bytes(config: Config, dtype: Dtype = "int8") -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    return GEMM.shared_bytes(config)


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    GEMM.check_config(config, shape, target)
    pipeline = config["pipeline"]
    if pipeline == 0 and config["subtiles"] != 1:
        raise InputError(f"matmul_int8: subtiles is {config['subtiles']} with pipeline 0; expected 1")
    if pipeline:
        if pipeline != 1 or target != "sm_90" or not config["tma"]:
            raise InputError(f"matmul_int8: pipeline is {pipeline} on {target}; expected 0, or 1 on sm_90 with tma 1")
        GEMM.check_warp_specialized(config)
    check_shared("matmul_int8", shared_bytes(config), target)


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return what Triton needs to compile the kernel without a GPU."""
    return GEMM.ahead(config)


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing: tiles of both variants, as many stages as fit or one less."""
    own = config_for(shape, dtype, target)
    for config in (
        own,
        *(one for each in GEMM.tile_variations(own, target) for one in deepest(each, target, shared_bytes)),
    ):
        tiles = ceil_div(shape["M"], config["block_m"]) * ceil_div(shape["N"], config["block_n"])
        yield candidate(config, shape, shared_bytes(config), tiles=tiles)


CASES: tuple[dict[str, int], ...] = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 8192, "N": 8192, "K": 8192},
    {"M": 1, "N": 1, "K": 1},
    {"M": 127, "N": 129, "K": 131},
    {"M": 1000, "N": 1512, "K": 2064},
    {"M": 16, "N": 14336, "K": 4096},
)

KERNEL = Kernel(
    name="matmul_int8",
    operation=MATMUL_INT8,
    summary="scaled product of int8 matrices, the second one transposed",
    formula="C = s · A · Bᵀ",
    dtypes=("int8",),
    work=work,
    excludes="re-reads of A and B by other tiles (L2), padding to whole tiles, scaling of the result",
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "int8": Tolerance(0.0, 1.2e-7, "the sum is exact; one rounding to 24 bits where it is 2²⁴ or more"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu(int8_scale)},
    reference=reference,
    launched="^gemm_(kernel|pipelined)$",
    baselines={
        # Its integers are as many bytes as the result here, and not scaled.
        "torch_int_mm": library(lambda torch, out, a, b: torch._int_mm(a, b.t()), "a", "b"),
    },
    ahead=ahead,
    candidates=candidates,
)

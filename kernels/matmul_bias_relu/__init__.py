"""Compute C = max(0, A · B + bias) with a grid of persistent programs.

Formula: C[m, n] = max(0, Σ_k A[m, k] · B[k, n] + bias[n])
Shapes: A (M, K), B (K, N), bias (N), C (M, N), all row-major and of one dtype (fp16 or bf16).
Traffic: e · (M·K + K·N + N) bytes read and e · M·N written, e bytes an element: each operand once.
Source: the grouped tile order is the one of Triton's matrix-multiplication tutorial.
The work model excludes: re-reads of A, B and bias by other tiles (L2), the padding of M, N and K to whole
tiles, and with `stream` the sums that programs leave for one another (at most 20 MB written and read, L2).

Precision: fp32 accumulation, bias and maximum in fp32, one rounding to the dtype; NaN stays NaN.
Determinism: each element is one program's sum in the order of k, or with `stream` the sum of a few programs' sums,
added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Candidate, Config, Kernel, Launch, Tolerance, import_triton
from ledger.kernels.common import gemm_rule
from ledger.kernels.common.baselines import compiled, dtype_name, library
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_cuda, tensor_map
from ledger.kernels.common.gemm import (
    Gemm,
    cluster_programs,
    cluster_threads,
    shared_bytes,
)
from ledger.kernels.common.gemm import cluster_shape as _cluster_shape
from ledger.kernels.common.gemm import split as _split
from ledger.kernels.common.targets import matmul_path
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.operations import MATMUL_BIAS_RELU, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def _bias_relu(acc, bias, scale):
    total = acc + bias
    # Not a maximum, which would turn NaN into 0.
    return tl.where(total < 0.0, 0.0, total)


def _cluster_source(config: Config, dtype: Dtype) -> CudaSource:
    rows, cols = _cluster_shape(config)
    defines = {
        "BLOCK_M": config["block_m"], "BLOCK_N": config["block_n"], "STAGES": config["num_stages"], "ROWS": rows,
        "COLS": cols, "SPLIT": _split(config), "STREAM": int(config["stream"] == 1), "BF16": int(dtype == "bf16"),
    }  # fmt: skip
    # A is K-major, B is MN-major.
    products = Wgmma(n=config["block_n"], kind="bf16" if dtype == "bf16" else "f16", b_transposed=True)
    return cuda_source(
        __name__, "cluster.cu", entry="matmul_bias_relu_cluster", defines=defines, generated=wgmma_header(products)
    )


def _prepare_cluster(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[1]
    dtype = dtype_name(a, "matmul_bias_relu")
    programs = cluster_programs(config, {"M": n_rows, "N": n_cols, "K": n_inner})
    shared = programs if config["stream"] == 1 else 0
    partial = torch.empty(shared * config["block_m"] * config["block_n"] + 4, dtype=torch.float32, device=a.device)
    ready = torch.zeros(config["block_m"] // 64 * shared + 1, dtype=torch.int32, device=a.device)
    rows, cols = _cluster_shape(config)
    # Where boxes of 64 columns do not divide among programs, their rows do.
    shares = rows if config["block_n"] // 64 % rows and config["block_k"] % rows == 0 else 1
    maps = [
        tensor_map(a, (config["block_m"] // cols, config["block_k"]), promotion=128),
        tensor_map(b, (config["block_k"] // shares, 64), promotion=128),
        tensor_map(out, (16 // _split(config), 64), promotion=128),
    ]
    return prepare_cuda(
        _cluster_source(config, dtype),
        programs=programs,
        threads=cluster_threads(config),
        shared_bytes=shared_bytes(config, dtype),
        arguments=[*maps, inputs["bias"], partial, ready, n_rows, n_cols, n_inner, config["group_m"]],
        overlap=bool(config["pdl"]),
    )


def matmul_bias_relu(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """Return max(0, a · b + bias).

    Shapes: a (M, K), b (K, N), bias (N) of one dtype on one GPU; the result (M, N).
    """
    return GEMM.call({"a": a, "b": b, "bias": bias}, config=config_for, generic=gemm_rule.generic_config)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product, with bias and rectifier, in float64."""
    total = inputs["a"].double() @ inputs["b"].double() + inputs["bias"].double()
    return total.clamp_(min=0.0)


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one multiply-add (two operations) for each (m, n, k), one addition and one maximum for each (m, n)."""
    m, n, k = shape["M"], shape["N"], shape["K"]
    element = DTYPE_BYTES[dtype]
    return Work(
        flops=2 * m * n * k + 2 * m * n,
        bytes_read=element * (m * k + k * n + n),
        bytes_written=element * m * n,
    )


# Where another frame was measured faster for kernels/matmul than the one with the fewest clocks.
_TUNED: dict[tuple[int, int, int], gemm_rule.Frame] = {
    (777, 3000, 4104): (22, 128, 192, 1),
    (2816, 4352, 6144): (2, 128, 128, 1),
    (3072, 3584, 2560): (2, 128, 128, 1),
    (3000, 5000, 7000): (2, 128, 256, 1),
    (5000, 5000, 520): (2, 128, 256, 0),
    (5120, 5120, 5120): (2, 128, 128, 1),
}


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape: the kernel and tile whose waves take least time.

    Raises: InputError for a target without one.
    """
    generic = gemm_rule.generic_config("matmul_bias_relu", shape, dtype, target)
    if target != "sm_90" or DTYPE_BYTES[dtype] != 2 or not generic["tma"]:
        return generic
    frame = _frame_of(shape)
    if gemm_rule.generic_clocks(shape) < gemm_rule.clocks(frame, shape, even_rows=False):
        return generic
    return gemm_rule.frame_config(frame, generic, shape, dtype)


def _frame_of(shape: Shape) -> gemm_rule.Frame:
    """Return kernel, cluster and tile for a shape: what was tuned, or what takes the fewest clocks."""
    tuned = _TUNED.get((shape["M"], shape["N"], shape["K"]))
    return tuned or min(gemm_rule.frames(), key=lambda one: gemm_rule.clocks(one, shape, even_rows=False))


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing."""
    own = config_for(shape, dtype, target)
    return gemm_rule.candidates(own, shape, dtype, target, even_rows=False)


def _check_tile(config: Config) -> None:
    block_m, block_n = config["block_m"], config["block_n"]
    if block_m not in (64, 128, 192) or block_n not in (64, 128, 192, 256):
        raise InputError(
            f"matmul_bias_relu: tiles are {block_m} x {block_n} with pipeline {config['pipeline']}; expected 64, 128 "
            "or 192 by 64 to 256 in steps of 64"
        )


def _addmm_activation(torch: Any, out: Tensor, a: Tensor, b: Tensor, bias: Tensor) -> None:
    torch._addmm_activation(bias, a, b, use_gelu=False, out=out)


def _unfused(torch: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda a, b, bias: torch.relu(torch.addmm(bias, a, b))


TORCH = library(lambda torch, out, a, b, bias: torch.addmm(bias, a, b, out=out).relu_(), "a", "b", "bias")

GEMM = Gemm(
    "matmul_bias_relu",
    source=_cluster_source,
    prepare_cluster=_prepare_cluster,
    check_tile=_check_tile,
    epilogue=_bias_relu,
    bias=True,
)

CASES: tuple[dict[str, int], ...] = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 8192, "N": 8192, "K": 8192},
    {"M": 1, "N": 1, "K": 1},
    {"M": 127, "N": 129, "K": 131},
    {"M": 1000, "N": 1512, "K": 2056},
    {"M": 16, "N": 14336, "K": 4096},
)

KERNEL = Kernel(
    name="matmul_bias_relu",
    operation=MATMUL_BIAS_RELU,
    summary="matrix product with a bias and a rectifier",
    formula="C = max(0, A · B + bias)",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="re-reads of A, B, bias and sums handed on between programs (L2), padding to whole tiles",
    path=matmul_path,
    config=config_for,
    check_config=GEMM.check_config,
    tolerances={
        "fp16": Tolerance(1e-4, 5e-4, "one rounding to 11 bits; the sum is fp32"),
        "bf16": Tolerance(1e-4, 4e-3, "one rounding to 8 bits; the sum is fp32"),
        "fp32": Tolerance(2e-5, 1e-5, "up to 8192 terms are summed in 24 bits, in blocks"),
    },
    cases=CASES,
    implementations={"triton": GEMM.prepare_triton, "torch-cpu": TORCH},
    reference=reference,
    launched="^gemm_(kernel|pipelined)$|^matmul_bias_relu_cluster$",
    baselines={
        "torch_eager": TORCH,
        "torch_addmm_activation": library(_addmm_activation, "a", "b", "bias"),
        "torch_compile_default": compiled(_unfused, "a", "b", "bias", mode="default"),
        "torch_compile_max_autotune": compiled(_unfused, "a", "b", "bias", mode="max-autotune-no-cudagraphs"),
    },
    ahead=GEMM.ahead,
    candidates=candidates,
)

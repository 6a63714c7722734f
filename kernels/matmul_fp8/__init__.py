"""Compute C = s · A · Bᵀ of fp8 matrices with a grid of persistent programs.

Formula: C[m, n] = s · Σ_k A[m, k] · B[n, k]
Shapes: A (M, K), B (N, K), both row-major in fp8 e4m3; s one number in fp32; C (M, N) row-major in fp16.
Traffic: M·K + N·K bytes read and 2·M·N written: each operand once.
Source: the layout (both operands with k innermost) is the one that wgmma has for eight-bit types, and that of
torch._scaled_mm with a transposed second operand.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, the
scaling of the result, and with `stream` the sums that programs leave for one another (L2).

Precision: wgmma adds fp8 products with fewer bits than fp32 has. With `promote` its sums over 128 products are added
in fp32 registers; without, the whole sum stays in wgmma, as with the library's fast accumulation. One rounding to
fp16.
Determinism: each element is one program's sum in the order of k, or with `stream` the sum of a few programs' sums,
added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import (
    Ahead,
    AheadCuda,
    Candidate,
    Config,
    Kernel,
    Launch,
    Prepare,
    Tolerance,
    variations,
)
from ledger.kernels.common.configs import check_shared
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_cuda, tensor_map
from ledger.kernels.common.gemm_scaled import ScaledGemm, Tile, candidate, deepest, prepare_torch_cpu, ring_bytes
from ledger.kernels.common.targets import SMS, ceil_div, device_target, is_tma_aligned
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.operations import MATMUL_FP8, Shape, fp8_scale
from ledger.records import Dtype, Path, Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor


def _cluster_source(config: Config) -> CudaSource:
    defines = {"BLOCK_N": config["block_n"], "STAGES": config["num_stages"], "STREAM": config["stream"]}
    products = Wgmma(n=config["block_n"], kind="e4m3")
    return cuda_source(
        __name__, "cluster.cu", entry="matmul_fp8_cluster", defines=defines, generated=wgmma_header(products)
    )


_CLUSTER_THREADS = 384
# Eight warps store through two buffers of 16 rows by 64 columns each.
_CLUSTER_STORE_BYTES = 8 * 2 * 16 * 64 * 2


def _cluster_programs(config: Config, shape: Shape) -> int:
    pairs = ceil_div(shape["M"], 2 * config["block_m"]) * ceil_div(shape["N"], config["block_n"])
    pieces = pairs * ceil_div(shape["K"], config["block_k"]) if config["stream"] else pairs
    return 2 * min(pieces, config["programs"] // 2)


def _prepare_cluster(inputs: Mapping[str, Tensor], out: Tensor, config: Config, scale: float) -> Launch:
    import torch

    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[0]
    programs = _cluster_programs(config, {"M": n_rows, "N": n_cols, "K": n_inner})
    shared = programs if config["stream"] else 0
    partial = torch.empty(shared * config["block_m"] * config["block_n"] + 4, dtype=torch.float32, device=a.device)
    ready = torch.zeros(2 * shared + 1, dtype=torch.int32, device=a.device)
    maps = [
        tensor_map(a, (config["block_m"], config["block_k"])),
        tensor_map(b, (config["block_n"] // 2, config["block_k"])),
        tensor_map(out, (16, 64)),
    ]
    return prepare_cuda(
        _cluster_source(config),
        programs=programs,
        threads=_CLUSTER_THREADS,
        shared_bytes=shared_bytes(config),
        arguments=[*maps, partial, ready, float(scale), n_rows, n_cols, n_inner, config["group_m"]],
        overlap=bool(config["pdl"]),
    )


def matmul_fp8(a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
    """Return scale · a · bᵀ in float16.

    Shapes: a (M, K), b (N, K), both float8_e4m3fn on one GPU; the result (M, N).
    """
    import torch

    for name, tensor in (("a", a), ("b", b)):
        if tensor.dtype != torch.float8_e4m3fn:
            raise InputError(f"matmul_fp8: {name} is {tensor.dtype}; expected float8_e4m3fn")
    inputs = {"a": a.contiguous(), "b": b.contiguous()}
    out = torch.empty((a.shape[0], b.shape[0]), dtype=torch.float16, device=a.device)
    shape, target = {"M": a.shape[0], "N": b.shape[0], "K": a.shape[1]}, device_target(a)
    config = config_for(shape, "fp8_e4m3", target)
    if not is_tma_aligned(*inputs.values()):
        config = {**GEMM.generic_config(shape, target), "tma": 0}
    _launcher(inputs, out, config, scale)()
    return out


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Make the descriptors and return the launch, with the operation's scale."""
    return _launcher(inputs, out, config, fp8_scale(inputs["a"].shape[1]))


def _launcher(inputs: Mapping[str, Tensor], out: Tensor, config: Config, scale: float) -> Launch:
    launcher = _prepare_cluster if config["pipeline"] == 2 else GEMM.launcher
    return launcher(inputs, out, config, scale)


def _prepare_scaled_mm(*, fast: bool) -> Prepare:
    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch

        a, b = inputs["a"], inputs["b"].t()
        one = torch.ones((), dtype=torch.float32, device=a.device)
        scale = one * fp8_scale(a.shape[1])

        def launch() -> None:
            torch._scaled_mm(a, b, one, scale, out_dtype=out.dtype, use_fast_accum=fast, out=out)

        return launch

    return prepare


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the scaled product in float64."""
    return inputs["a"].double() @ inputs["b"].double().T * fp8_scale(inputs["a"].shape[1])


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one multiply-add (two operations) for each (m, n, k); each operand moves once, the result in fp16."""
    m, n, k = shape["M"], shape["N"], shape["K"]
    return Work(flops=2 * m * n * k, bytes_read=m * k + n * k, bytes_written=_OUTPUT_BYTES * m * n)


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return the instruction path, as found in the compiled code (tests/test_kernel_matmuls.py)."""
    return "fp8_tensor" if implementation == "triton" else "fp32"


_OUTPUT_BYTES = 2


# Target -> (BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, rate of a tile's arithmetic relative to the first).
# Estimates; sm_90 runs them where the pipelined kernel does not fit the shape.
_TILES: dict[str, tuple[Tile, ...]] = {
    "sm_89": ((128, 128, 64, 8, 3, 1.0), (64, 64, 64, 4, 3, 0.7)),
    "sm_90": ((128, 128, 128, 8, 4, 1.0), (64, 128, 128, 4, 5, 0.7), (64, 64, 128, 4, 5, 0.45)),
    "sm_100": ((128, 128, 128, 8, 4, 1.0), (128, 64, 128, 4, 5, 0.5)),
}

# What the rule takes on sm_90: measured on an H200 at M = N = K = 2048 to 7168, where it was level with the pipelined
# kernel (128 x 128 x 256) or faster; dividing the last wave's tiles gained nothing.
_CLUSTER_KEYS = {
    "block_m": 128, "block_n": 128, "block_k": 128, "num_warps": 8, "subtiles": 1, "promote": 1, "tma": 1,
    "pipeline": 2,
}  # fmt: skip
_GROUP = 8

GEMM = ScaledGemm(
    "matmul_fp8",
    tiles=_TILES,
    kinds=("fp8e4nv", "fp16"),
    output_bytes=_OUTPUT_BYTES,
    lacks="fp8",
    having="fp8 instructions",
    more=lambda target: {"promote": int(target in ("sm_89", "sm_90")), "stream": 0, "pdl": 0},
    constants=("promote",),
)

# What an SM multiplies in a clock, and what dividing tiles costs: a share of the time, and clocks of a
# launch. Divided tiles had 0.98 of the undivided ones' speed at 2816 x 4352 x 6144, 1.00 at 5120, 0.96 at 7168 and 0.98
# at 8192 cubed, and 1.05 of it at 3000 x 5008 x 7008, on an H200.
_TENSOR_FLOPS = 8192
_DIVIDED_SHARE, _DIVIDED_CLOCKS = 0.04, 10_000


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape: the cluster kernel where rows allow TMA.

    Raises: InputError for a target without one.
    """
    generic = GEMM.generic_config(shape, target)
    if target != "sm_90" or not generic["tma"] or shape["M"] <= 64:
        return generic
    # Groups of rows of equal size; where rows lie in two lines of L2, calls that overlap are slower, as in matmul.
    tiles_m = ceil_div(shape["M"], 2 * _CLUSTER_KEYS["block_m"])
    aligned = shape["K"] % 128 == 0 and shape["N"] * _OUTPUT_BYTES % 128 == 0
    divided = _divides(shape)
    return {
        **generic, **_CLUSTER_KEYS, "num_stages": 6, "pdl": int(aligned), "stream": int(divided),
        "group_m": _GROUP if divided else ceil_div(tiles_m, ceil_div(tiles_m, _GROUP)),
    }  # fmt: skip


def _divides(shape: Shape) -> bool:
    """Return whether a last wave is so empty that dividing its tiles gains more than it costs."""
    slots = SMS["sm_90"] // 2
    tiles = ceil_div(shape["M"], 2 * _CLUSTER_KEYS["block_m"]) * ceil_div(shape["N"], _CLUSTER_KEYS["block_n"])
    waves = math.ceil(tiles / slots)
    clocks = waves * shape["K"] * 2 * _CLUSTER_KEYS["block_m"] * _CLUSTER_KEYS["block_n"] / _TENSOR_FLOPS
    return tiles > slots and 1 - tiles / slots / waves > _DIVIDED_SHARE + _DIVIDED_CLOCKS / clocks


def shared_bytes(config: Config, dtype: Dtype = "fp8_e4m3") -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    if config["pipeline"] == 2:
        return ring_bytes(config) + _CLUSTER_STORE_BYTES + 16 * config["num_stages"]
    return GEMM.shared_bytes(config)


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    GEMM.check_config(config, shape, target)
    pipeline, stream, pdl = (config[key] for key in ("pipeline", "stream", "pdl"))
    if pipeline == 2:
        _check_cluster(config, target)
    elif stream or pdl:
        raise InputError(f"matmul_fp8: stream is {stream} and pdl {pdl} with pipeline {pipeline}; expected 0")
    elif pipeline == 0:
        if config["subtiles"] != 1:
            raise InputError(f"matmul_fp8: subtiles is {config['subtiles']} with pipeline 0; expected 1")
    else:
        if pipeline != 1 or target != "sm_90" or not config["tma"]:
            raise InputError(
                f"matmul_fp8: pipeline is {pipeline} on {target}; expected 0, or 1 or 2 on sm_90 with tma 1"
            )
        GEMM.check_warp_specialized(config, copies=1 + config["promote"])
    check_shared("matmul_fp8", shared_bytes(config), target)


def _check_cluster(config: Config, target: str) -> None:
    if target != "sm_90":
        raise InputError(f"matmul_fp8: pipeline is 2 on {target}; expected sm_90")
    fixed = {
        "block_m": 128, "block_n": 128, "block_k": 128, "num_warps": 8, "subtiles": 1, "promote": 1, "tma": 1,
    }  # fmt: skip
    if any(config[key] != value for key, value in fixed.items()):
        raise InputError(f"matmul_fp8: pipeline is 2; expected {', '.join(f'{k} {v}' for k, v in fixed.items())}")
    if config["stream"] not in (0, 1) or config["pdl"] not in (0, 1):
        raise InputError("matmul_fp8: pipeline is 2; expected stream 0 or 1 and pdl 0 or 1")
    if config["num_stages"] < 2 or config["programs"] < 2:
        raise InputError("matmul_fp8: pipeline is 2; expected at least 2 stages and 2 programs")


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
    """Return what the compiler needs to compile the kernel without a GPU."""
    if config["pipeline"] == 2:
        return AheadCuda(
            _cluster_source(config),
            programs=_cluster_programs(config, shape),
            threads=_CLUSTER_THREADS,
            shared_bytes=shared_bytes(config),
        )
    return GEMM.ahead(config)


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing: tiles of all variants, as many stages as fit or one less."""
    own = config_for(shape, dtype, target)
    yield _candidate(own, shape)
    tiles = [*GEMM.tile_variations(own, target)]
    if target == "sm_90" and own["tma"]:
        clusters = variations({**own, **_CLUSTER_KEYS}, {"stream": (0, 1), "pdl": (0, 1), "group_m": (4, 8)})
        tiles = [*clusters, *tiles]
    for each in tiles:
        for config in deepest(each, target, shared_bytes):
            yield _candidate(config, shape)


def _candidate(config: Config, shape: Shape) -> Candidate:
    rows = 2 if config["pipeline"] == 2 else 1
    tiles = rows * ceil_div(shape["M"], rows * config["block_m"]) * ceil_div(shape["N"], config["block_n"])
    # Stream-K divides tiles by steps: as many equal pieces as steps. Its clocks were measured for matmul.
    parts, clocks = (ceil_div(shape["K"], config["block_k"]), 6_500) if config["stream"] else (1, 0)
    return candidate(
        config, shape, shared_bytes(config), tiles=tiles, parts=parts, shared_by=rows, clocks=clocks
    )  # fmt: skip


CASES: tuple[dict[str, int], ...] = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 8192, "N": 8192, "K": 8192},
    {"M": 1, "N": 1, "K": 1},
    {"M": 127, "N": 129, "K": 131},
    {"M": 1000, "N": 1512, "K": 2064},
    {"M": 16, "N": 14336, "K": 4096},
)

KERNEL = Kernel(
    name="matmul_fp8",
    operation=MATMUL_FP8,
    summary="scaled product of fp8 matrices, the second one transposed",
    formula="C = s · A · Bᵀ",
    dtypes=("fp8_e4m3",),
    work=work,
    excludes="re-reads of A and B by other tiles (L2), padding to whole tiles, scaling of the result",
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp8_e4m3": Tolerance(1e-4, 5e-4, "one rounding to 11 bits; sums over 128 products are added in fp32"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu(fp8_scale)},
    reference=reference,
    launched="^gemm_(kernel|pipelined)$|^matmul_fp8_cluster$",
    baselines={
        "torch_scaled_mm": _prepare_scaled_mm(fast=False),
        "torch_scaled_mm_fast": _prepare_scaled_mm(fast=True),
    },
    ahead=ahead,
    candidates=candidates,
)

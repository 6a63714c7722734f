"""Compute C = A · B with a grid of persistent programs.

Formula: C[m, n] = Σ_k A[m, k] · B[k, n]
Shapes: A (M, K), B (K, N), C (M, N), all row-major and of one dtype (fp16 or bf16).
Traffic: e · (M·K + K·N) bytes read and e · M·N written, e bytes an element: each operand once.
Source: the grouped tile order is the one of Triton's matrix-multiplication tutorial.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, and with
`stream` the sums that programs leave for one another (at most 20 MB written and read, L2).

Precision: fp32 accumulation, one rounding to the dtype.
Determinism: each element is one program's sum in the order of k, or with `stream` the sum of a few programs' sums,
added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Candidate, Config, Kernel, Launch, Tolerance
from ledger.kernels.common import gemm_rule
from ledger.kernels.common.baselines import dtype_name, library
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_cuda, tensor_map
from ledger.kernels.common.gemm import (
    RESIDENT,
    Gemm,
    cluster_keys,
    cluster_programs,
    cluster_threads,
    group_rows,
    row_step,
    shared_bytes,
    tile_rows,
)
from ledger.kernels.common.gemm import cluster_shape as _cluster_shape
from ledger.kernels.common.gemm import split as _split
from ledger.kernels.common.gemm import swapped as _swapped
from ledger.kernels.common.targets import SMS, ceil_div, matmul_path
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.operations import MATMUL, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor


def _cluster_source(config: Config, dtype: Dtype) -> CudaSource:
    swapped, kind = _swapped(config), "bf16" if dtype == "bf16" else "f16"
    rows, cols = _cluster_shape(config)
    defines = {
        "BLOCK_M": config["block_m"], "BLOCK_N": config["block_n"], "STAGES": config["num_stages"], "ROWS": rows,
        "COLS": cols, "SPLIT": _split(config), "STREAM": int(config["stream"] == 1), "BF16": int(dtype == "bf16"),
        "SWAPPED": int(swapped),
    }  # fmt: skip
    # A is K-major, B is MN-major; swapped, B is the first operand.
    products = Wgmma(
        n=config["block_m" if swapped else "block_n"], kind=kind, a_transposed=swapped, b_transposed=not swapped
    )
    return cuda_source(
        __name__, "cluster.cu", entry="matmul_cluster", defines=defines, generated=wgmma_header(products)
    )


def _prepare_cluster(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[1]
    dtype = dtype_name(a, "matmul")
    programs = cluster_programs(config, {"M": n_rows, "N": n_cols, "K": n_inner})
    shared = programs if config["stream"] == 1 else 0
    partial = torch.empty(shared * config["block_m"] * config["block_n"] + 4, dtype=torch.float32, device=a.device)
    ready = torch.zeros(config["num_warps"] // 4 * shared + 1, dtype=torch.int32, device=a.device)
    rows, cols = _cluster_shape(config)
    # Where boxes of 64 columns do not divide among programs, their rows do.
    shares = rows if config["block_n"] // 64 % rows and config["block_k"] % rows == 0 else 1
    rows_each = tile_rows(config, n_rows)
    # Where the last tiles begin to load.
    last_row = row_step(config) * ceil_div(n_rows, row_step(config)) - rows_each
    last_col = max(64 * ceil_div(n_cols, 64) - config["block_n"], 0)
    maps = [
        tensor_map(a, (rows_each // cols, config["block_k"]), promotion=128),
        tensor_map(b, (config["block_k"] // shares, 64), promotion=128),
        # A warp's 16 rows, of which parts end 8 each; where swapped, tiles begin at any multiple of 8.
        tensor_map(out, (8 if _swapped(config) or _split(config) > 1 else 16, 64), promotion=128),
    ]
    return prepare_cuda(
        _cluster_source(config, dtype),
        programs=programs,
        threads=cluster_threads(config),
        shared_bytes=shared_bytes(config, dtype),
        arguments=[*maps, partial, ready, n_rows, n_cols, n_inner, rows_each, last_row, last_col, config["group_m"]],
        overlap=bool(config["pdl"]),
    )


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a · b.

    Shapes: a (M, K), b (K, N) of one dtype on one GPU; the result (M, N).
    """
    return GEMM.call({"a": a, "b": b}, config=config_for, generic=gemm_rule.generic_config)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product in float64."""
    return inputs["a"].double() @ inputs["b"].double()


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one multiply-add (two operations) for each (m, n, k); each operand moves once."""
    m, n, k = shape["M"], shape["N"], shape["K"]
    element = DTYPE_BYTES[dtype]
    return Work(flops=2 * m * n * k, bytes_read=element * (m * k + k * n), bytes_written=element * m * n)


# Where another frame was measured faster than the one with the fewest clocks, or is level with it and known longer:
# 1024 x 1536 x 2048 by `ledger tune` (benchmarks/tuning/matmul-h200.json), the others as docs/notes/gemm.md says.
_TUNED: dict[tuple[int, int, int], gemm_rule.Frame] = {
    (128, 8192, 8192): (121, 64, 128, 0),
    (128, 8192, 28672): (121, 64, 128, 0),
    (512, 4096, 4096): (121, 128, 128, 0),
    (777, 3000, 4104): (112, 160, 128, 0),
    (1000, 1512, 2056): (22, 128, 128, 0),
    (1024, 1536, 2048): (11, 64, 192, 0),
    (2816, 4352, 6144): (2, 128, 128, 1),
    (3072, 3584, 2560): (2, 128, 128, 1),
    (3000, 5000, 7000): (2, 128, 256, 1),
    (5000, 5000, 520): (2, 128, 256, 0),
    (5120, 5120, 5120): (2, 128, 128, 1),
}
# Few rows in a single wave: two programs a tile, so that more of them ask L2. At 72 x 4096 x 4096 11.6 us, not 20.
_FEW_ROWS: gemm_rule.Frame = (11, 128, 64, 2)
# Columns of the cluster kernel's tiles with the operands changed over -> the most rows: what wgmma multiplies at once,
# or whose sums stay in the registers that three groups of warps leave (as compiled ahead of time).
_SWAPPED_ROWS = {64: 256, 128: 256, 192: 200}
# Rows of C for which the rule weighs such tiles, and the least K: those of the shapes that were timed. A tile of fewer
# rows than 32 was nowhere near the fastest.
_SWAPPED_FROM, _SWAPPED_BELOW, _SWAPPED_INNER, _SWAPPED_LEAST = 65, 2048, 1000, 32
# Their clusters, by the lines of L2 in which 128 bytes of a row lie. Where that is one, sharing A made nothing faster.
_SWAPPED_CLUSTERS = {1: (121, 111), 2: (112, 121, 122, 111)}
# What an SM does in a clock for such tiles, fitted to times of 33 shapes (docs/notes/gemm.md) beside the clocks
# above: bytes that it asks L2 for where rows lie in two lines; bytes that arrive, by the lines; bytes of shared memory
# that wgmma reads and the loads write. And the rates of clusters, of which four wait for one another longer.
_SWAPPED_ASKED_BYTES = 28.6
_SWAPPED_ARRIVING_BYTES = {1: 83.0, 2: 50.8}
_SWAPPED_SHARED_BYTES = 173.0
_SWAPPED_CLUSTER_RATES = {1: 1.0, 2: 0.959, 4: 0.825}
# Clocks of a tile in two halves, which leave each other sums. Such were the fastest with 64 columns only.
_HALVES_CLOCKS, _HALVES_COLUMNS = 1_900, 64
# As many of them as `ledger tune` is offered.
_SWAPPED_OFFERED = 16


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape: the kernel and tile whose waves take least time.

    Raises: InputError for a target without one.
    """
    generic = gemm_rule.generic_config("matmul", shape, dtype, target)
    if target != "sm_90" or DTYPE_BYTES[dtype] != 2 or not generic["tma"]:
        return generic
    frame = _measured_frame(shape) or _frame_of(shape)
    return generic if frame is None else gemm_rule.frame_config(frame, generic, shape, dtype)


def _measured_frame(shape: Shape) -> gemm_rule.Frame | None:
    """Return the frame that was measured to be the fastest, where it is another than the model's."""
    few_columns = 2 * ceil_div(shape["N"], _FEW_ROWS[2]) <= SMS["sm_90"]
    if shape["M"] <= _FEW_ROWS[1] and few_columns and shape["K"] >= 1024:
        return _FEW_ROWS
    return _TUNED.get((shape["M"], shape["N"], shape["K"]))


def _frame_of(shape: Shape) -> gemm_rule.Frame | None:
    """Return kernel, cluster and tile that take the fewest clocks, or None where the portable kernel takes fewer."""
    clocks, best = min((gemm_rule.clocks(frame, shape, even_rows=True), frame) for frame in gemm_rule.frames())
    if _SWAPPED_FROM <= shape["M"] < _SWAPPED_BELOW and shape["K"] >= _SWAPPED_INNER:
        for frame in _swapped_frames(shape):
            if (swapped := _swapped_clocks(frame, shape)) < clocks:
                clocks, best = swapped, frame
    return None if gemm_rule.generic_clocks(shape) < clocks else best


def _swapped_frames(shape: Shape) -> Iterator[gemm_rule.Frame]:
    """Yield the frames of the operands changed over: the rows of C in any number of even shares."""
    clusters = _SWAPPED_CLUSTERS[max(gemm_rule.lines(shape["N"]), gemm_rule.lines(shape["K"]))]
    for pipeline, stream in (*((pipeline, 0) for pipeline in clusters), (111, 2)):
        config = {"pipeline": pipeline, "stream": stream}
        (rows, _), step = _cluster_shape(config), _swapped_step(config)
        shares = range(1, ceil_div(shape["M"], rows * _SWAPPED_LEAST) + 1)
        heights = {step * ceil_div(shape["M"], step * rows * tiles) for tiles in shares}
        for block_n, most in _SWAPPED_ROWS.items():
            if not stream or block_n == _HALVES_COLUMNS:
                for block_m in sorted(heights, reverse=True):
                    if _SWAPPED_LEAST <= block_m <= most:
                        yield pipeline, block_m, block_n, stream


def _swapped_clocks(frame: gemm_rule.Frame, shape: Shape) -> float:
    """Return the same as _clocks for a frame of the operands changed over."""
    pipeline, block_m, block_n, stream = frame
    config = {"pipeline": pipeline, "stream": stream, "block_m": block_m}
    (rows, cols), split, n_rows, n_inner = _cluster_shape(config), _split(config), shape["M"], shape["K"]
    slots = RESIDENT.get(pipeline % 100, 132) // (rows * cols * split)
    waves = ceil_div(ceil_div(n_rows, rows * block_m) * ceil_div(shape["N"], cols * block_n), slots)
    lines_a, lines_b, loaded = gemm_rule.lines(n_inner), gemm_rule.lines(shape["N"]), tile_rows(config, n_rows)
    asked_bytes = {1: gemm_rule.ASKED_BYTES[1] if waves > 1 else gemm_rule.ASKED_AT_ONCE_BYTES, 2: _SWAPPED_ASKED_BYTES}
    asked = 2 * loaded / cols / asked_bytes[lines_a] + 2 * block_n / rows / asked_bytes[lines_b]
    arriving = 2 * loaded / _SWAPPED_ARRIVING_BYTES[lines_a] + 2 * block_n / _SWAPPED_ARRIVING_BYTES[lines_b]
    # Each group of warps reads its own 64 columns of B and all rows of A.
    read = 2 * (block_n // 64) * (64 + block_m)
    in_shared = (read + 2 * (loaded + block_n)) / _SWAPPED_SHARED_BYTES
    multiplied = 2 * block_m * block_n / gemm_rule.TENSOR_FLOPS / _SWAPPED_CLUSTER_RATES[rows * cols]
    inner = max(multiplied, asked, arriving, in_shared) * n_inner / split
    once = inner + gemm_rule.TILE_CLOCKS * block_m * block_n / (128 * 256)
    return waves * once + (_HALVES_CLOCKS if split > 1 else 0)


def _check_swapped(config: Config) -> None:
    block_m, block_n, step = config["block_m"], config["block_n"], _swapped_step(config)
    if not step <= block_m <= _SWAPPED_ROWS.get(block_n, 0) or block_m % step:
        most = ", ".join(f"{rows} by {cols}" for cols, rows in _SWAPPED_ROWS.items())
        raise InputError(
            f"matmul: tiles are {block_m} x {block_n} with pipeline {config['pipeline']} and stream "
            f"{config['stream']}; expected rows in steps of {step}, at most {most}"
        )


def _swapped_step(config: Config) -> int:
    """Return what a swapped tile's rows are a multiple of: 8 of each program that shares them or ends a part."""
    return 16 if _cluster_shape(config)[1] > 1 or _split(config) > 1 else 8


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing."""
    own = config_for(shape, dtype, target)
    return gemm_rule.candidates(own, shape, dtype, target, even_rows=True, swapped=_swapped_configs)


def _swapped_configs(own: Config, shape: Shape) -> Iterator[dict[str, int]]:
    """Yield the tiles of the operands changed over that take the fewest clocks by the rule, whatever the rows."""
    for pipeline, block_m, block_n, stream in heapq.nsmallest(
        _SWAPPED_OFFERED, _swapped_frames(shape), key=lambda frame: _swapped_clocks(frame, shape)
    ):
        config = {**own, **cluster_keys(block_m, block_n, pipeline), "stream": stream, "pdl": 1}
        yield {**config, "group_m": group_rows(config, shape)}


def _check_tile(config: Config) -> None:
    block_m, block_n = config["block_m"], config["block_n"]
    if _swapped(config):
        _check_swapped(config)
    elif block_m not in (64, 128, 192) or block_n not in (64, 128, 192, 256):
        raise InputError(
            f"matmul: tiles are {block_m} x {block_n} with pipeline {config['pipeline']}; expected 64, 128 or 192 by "
            "64 to 256 in steps of 64"
        )


TORCH = library(lambda torch, out, a, b: torch.matmul(a, b, out=out), "a", "b")

GEMM = Gemm(
    "matmul",
    source=_cluster_source,
    prepare_cluster=_prepare_cluster,
    check_tile=_check_tile,
    swaps=True,
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
    name="matmul",
    operation=MATMUL,
    summary="matrix product",
    formula="C = A · B",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="re-reads of A and B by other tiles and sums handed on between programs (L2), padding to whole tiles",
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
    launched="^gemm_(kernel|pipelined)$|^matmul_cluster$",
    baselines={"torch_matmul": TORCH},
    ahead=GEMM.ahead,
    candidates=candidates,
)

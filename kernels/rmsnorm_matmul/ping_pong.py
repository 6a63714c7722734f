"""Variant in CUDA C++ for sm_90 with ping-pong warpgroups: the weights are wgmma's A operand, scaled in registers.

Host side of ping_pong.cu: macros, launch, shared memory and checks. The operands are swapped (swap-AB), so block_b is a
multiple of 8. Groups of warpgroups alternate on the K steps of a tile; a group has one warpgroup for 64 columns. Their
accumulators are added in shared memory. A cluster is cluster_m CTAs, one row tile each, that load every weight once by
multicast, or split_k CTAs that divide a tile's inner dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ledger.kernel import AheadCuda, Launch
from ledger.kernels.common.baselines import dtype_name
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_ahead, tensor_map
from ledger.kernels.common.targets import ceil_div, device_target
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.kernels.common.workspace import unwritten
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from torch import Tensor

MAX_ROWS = {64: 224, 128: 256}
"""block_o -> the largest block_b whose accumulators stay in registers."""

_LOCAL_SQUARES_ROWS = 32


# Geometry


def groups(config: Settings) -> int:
    """Return how many groups of warpgroups alternate on the K steps: 64 columns of a step take one warpgroup."""
    return int(config["num_warps"]) * 16 // int(config["block_o"])


def prefetches_weights(config: Settings) -> bool:
    """Tell whether a group scales the weights of its next step while its wgmma runs, which takes registers.

    Where x shares the stages of the weights, the steps of a group are not evenly spaced, and two groups would stall
    each other.
    """
    evenly = config["x_stages"] > 0 and config["block_b"] <= 192
    return bool(config["num_warps"] == 8 and (groups(config) == 1 or evenly))


def local_square_warps(config: Settings) -> int:
    """Return the warps that sum the squares of all rows of a CTA from shared memory, 0 where a few CTAs do it for all.

    With more rows these warps would take longer than the CTA's wgmma.
    """
    return 4 if config["block_b"] <= _LOCAL_SQUARES_ROWS else 0


def paired_rows(config: Settings, n_rows: int) -> int:
    """Return cluster_m: 2 where row tiles come in pairs and no cluster divides the inner dimension, otherwise 1."""
    return 1 if config["split_k"] > 1 or ceil_div(n_rows, config["block_b"]) % 2 else 2


def stage_multiple(config: Settings) -> int:
    """Return what the numbers of stages must be a multiple of, so that one group and one squaring warp own a stage."""
    return math.lcm(groups(config), local_square_warps(config) or 1)


def x_stages(config: Settings) -> int:
    """Return the stages of x: their own, or those of the weights."""
    return int(config["x_stages"] or config["num_stages"])


# Shared memory


def _own_rows(config: Settings) -> int:
    """Return the most rows of a tile whose sums one CTA of split-K reduces: whole blocks of 8."""
    return 8 * ceil_div(config["block_b"], 8 * config["split_k"])


def stage_bytes(config: Settings) -> int:
    """Return the bytes of all stages."""
    return int(128 * (config["num_stages"] * config["block_o"] + x_stages(config) * config["block_b"]))


def epilogue_bytes(config: Settings) -> int:
    """Return the bytes that reuse the stages: accumulators of the groups, those of other CTAs, staged results."""
    block_b, block_o, split_k = config["block_b"], config["block_o"], config["split_k"]
    received = (split_k - 1) * 4 * block_o * _own_rows(config) if block_o == 128 else 0
    return int(4 * (groups(config) - 1) * block_b * block_o + received + 512 * config["num_warps"])


def shared_bytes(config: Settings, shape: Shape, dtype: Dtype) -> int:
    """Return the shared memory of a CTA, in bytes: all stages, and all of the gain that the CTA needs."""
    element, block_k, split_k = DTYPE_BYTES[dtype], config["block_k"], config["split_k"]
    weight_stage, x_stage = element * block_k * config["block_o"], element * block_k * config["block_b"]
    own = _own_rows(config)
    # With 128 columns what other CTAs send reuses the stages.
    received = 4 * 64 * (split_k - 1) * own if config["block_o"] == 64 else 0
    squares = 4 * (split_k * own + config["block_b"] * local_square_warps(config))
    stages = config["num_stages"] * (weight_stage + 16) + x_stages(config) * x_stage + config["x_stages"] * 16
    gain = ceil_div(ceil_div(shape["H"], block_k), split_k) * 128
    return int(ceil_div(stages + received + 48 + squares, 128) * 128 + gain)


# Launch


def _source(config: Settings, dtype: Dtype) -> CudaSource:
    defines = {
        "BLOCK_B": config["block_b"], "BLOCK_O": config["block_o"], "GROUPS": groups(config),
        "PREFETCH_WEIGHTS": int(prefetches_weights(config)), "CLUSTER_M": config["cluster_m"],
        "SPLIT_K": config["split_k"], "W_STAGES": config["num_stages"], "X_STAGES": config["x_stages"],
        "LOCAL_SQUARES": int(local_square_warps(config) > 0), "BF16": int(dtype == "bf16"),
    }  # fmt: skip
    # The weights in registers, the K-major x in shared memory.
    wgmma = Wgmma(n=config["block_b"], kind="bf16" if dtype == "bf16" else "f16", a="registers", zeroing=False)
    entry = "rmsnorm_matmul_ping_pong"
    return cuda_source(__name__, "ping_pong.cu", entry=entry, defines=defines, generated=wgmma_header(wgmma))


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> AheadCuda:
    """Return the CUDA C++ and how it is launched."""
    tiles = ceil_div(shape["B"], config["block_b"]) * ceil_div(shape["O"], config["block_o"])
    # Two producer warps and those that sum squares. Two of the latter make 12 warps, with 168 registers a thread, or
    # 20, with 96.
    warps = config["num_warps"] + 2 + (local_square_warps(config) or 2)
    return AheadCuda(
        _source(config, dtype),
        programs=tiles * config["split_k"],
        threads=32 * warps,
        shared_bytes=shared_bytes(config, shape, dtype),
    )


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Allocate the sums of squares and return the launch."""
    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]
    shape = {"B": x.shape[0], "H": x.shape[1], "O": weight.shape[1]}
    block_k = config["block_k"]
    maps = [
        tensor_map(x, (config["block_b"], block_k), promotion=128),
        tensor_map(weight, (block_k // config["cluster_m"], 64), promotion=128),
    ]
    # One copy for each column tile of the sums that the first CTAs publish.
    words = 0 if local_square_warps(config) else ceil_div(shape["O"], config["block_o"]) * shape["B"]
    target = device_target(x)
    launched = ahead(config, shape, dtype_name(x, "rmsnorm_matmul"), target)
    # All CTAs wait for those that square rows: the first, and no more than are certain to be resident at once.
    squaring = min(launched.programs, target.sms // 2)
    return prepare_ahead(
        launched,
        [*maps, x, gain, out, unwritten(words, x), squaring, *shape.values(), float(eps)],
        overlap=bool(config["pdl"]),
    )


# Checks


def problems(config: Settings, shape: Shape, target: str) -> Iterator[str]:
    """Yield what is wrong with a configuration."""
    yield from _tile_problems(config, shape)
    yield from _stage_problems(config)


def _tile_problems(config: Settings, shape: Shape) -> Iterator[str]:
    rows, columns, splits, warps = (config[key] for key in ("block_b", "block_o", "split_k", "num_warps"))
    if columns not in MAX_ROWS or rows % 8 or not 8 <= rows <= MAX_ROWS[columns]:
        most = ", ".join(f"{rows} with {columns} columns" for columns, rows in MAX_ROWS.items())
        yield f"tiles are {rows} x {columns} with variant cuda_ping_pong; expected a multiple of 8 rows, up to {most}"
    if splits not in (1, 2, 4, 8) or rows % splits:
        yield f"split_k is {splits} with variant cuda_ping_pong and block_b {rows}; expected 1, 2, 4 or 8, a divisor"
    if warps not in (8, 16) or (warps == 16 and rows > 128):
        yield f"num_warps is {warps} with variant cuda_ping_pong and block_b {rows}; expected 8, or 16 up to 128 rows"
    if config["cluster_m"] not in (1, paired_rows(config, shape["B"])):
        yield (
            f"cluster_m is {config['cluster_m']} with split_k {splits} and {ceil_div(shape['B'], rows)} row tiles; "
            "expected 1, or 2 with split_k 1 and an even number of row tiles"
        )


def _stage_problems(config: Settings) -> Iterator[str]:
    alternating, multiple = groups(config), stage_multiple(config)
    weights, x = config["num_stages"], config["x_stages"]
    given = f"num_stages is {weights} and x_stages {x} with variant cuda_ping_pong"
    if (weights < multiple) if x == 0 else (weights % alternating or x % multiple):
        # A stage that changes its group or its squaring warp would be waited for with the wrong phase.
        yield f"{given}; expected multiples of {alternating} and {multiple}, or at least {multiple} and 0"
    if prefetches_weights(config) and x_stages(config) < 2 * alternating:
        # A stage of x is released once the wgmma of the next step, which needs a stage of its own, was issued.
        yield f"{given}, 8 warps and {alternating} groups; expected at least {2 * alternating} stages of x"
    if stage_bytes(config) < epilogue_bytes(config):
        yield (
            f"{given}, {stage_bytes(config)} bytes; expected room for all accumulators, {epilogue_bytes(config)} bytes"
        )

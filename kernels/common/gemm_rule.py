"""Chooses launch configurations of C = A · B with an epilogue: fitted clocks of tiles, clusters and waves.

A frame is (pipeline, BLOCK_M, BLOCK_N, stream): the variant with its cluster shape, the tile, and how tiles are divided
by K. docs/notes/gemm.md has the measurements that the constants are fitted to. Imports neither torch nor triton.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ledger.kernel import Candidate, variations
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import configs
from .gemm import GROUP, RESIDENT, cluster_keys, cluster_shape, group_rows, shared_bytes, tile_rows
from .targets import SHARED_BYTES, SM_REGISTERS, SMS, TMA_ALIGNMENT, TMA_TARGETS, ceil_div

Settings = Mapping[str, Any]

# Target -> (BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, rate of a tile's arithmetic relative to the first) for
# two-byte dtypes. On sm_90 the two large tiles were measured on an H200 at M = N = K = 3584, 3840 and 5120; the other
# rows are estimates.
TILES: dict[str, tuple[tuple[int, int, int, int, int, float], ...]] = {
    "sm_75": ((64, 64, 32, 8, 2, 1.0), (32, 32, 32, 4, 2, 0.7)),
    "sm_80": ((128, 128, 32, 8, 4, 1.0), (64, 64, 64, 4, 4, 0.7)),
    "sm_89": ((128, 128, 32, 8, 3, 1.0), (64, 64, 64, 4, 3, 0.7)),
    "sm_90": (
        (128, 256, 64, 8, 3, 1.0),
        (128, 128, 64, 4, 5, 0.9),
        (64, 128, 64, 4, 6, 0.7),
        (64, 64, 128, 4, 5, 0.45),
        (64, 32, 128, 4, 6, 0.25),
    ),
    "sm_100": ((128, 256, 64, 8, 3, 1.0), (128, 128, 64, 4, 5, 0.9), (128, 64, 64, 4, 6, 0.5)),
}

# As above where rows are no multiple of 16 bytes: elements are then loaded one by one, and what a thread has on its way
# must stay in registers (no spills, as compiled ahead of time; not measured).
RAGGED: dict[str, tuple[tuple[int, int, int, int, int, float], ...]] = {
    "sm_90": ((128, 128, 32, 8, 3, 1.0), (64, 64, 64, 8, 3, 0.7)),
    "sm_100": ((128, 64, 64, 8, 3, 1.0),),
}

# What an SM of sm_90 does in a clock: operations that it multiplies; bytes that it requests from L2, by the lines
# of L2 in which 128 of them lie (one where rows are a multiple of 128 bytes long, else two); bytes that come into its
# shared memory, asked for by itself or by another program of its cluster. With the products left out an H200 took 79,
# 46 and 110 bytes a nanosecond. Programs of a single wave ask for the same lines at once, which limited no tile.
TENSOR_FLOPS = 4096
ASKED_BYTES = {1: 64.0, 2: 24.9}
ASKED_AT_ONCE_BYTES = 100.0
ARRIVING_BYTES = 76.4

# The rest is fitted to times of 23 shapes on an H200 (docs/notes/gemm.md), so that the frame with the fewest clocks is
# nearly the fastest of those that were timed; a clock means little but beside another. Rows and columns of the cluster
# kernel's tiles -> rate of their arithmetic:
CLUSTER_TILES = {
    (128, 256): 0.993, (128, 128): 1.0, (192, 192): 0.952, (128, 192): 0.949, (64, 256): 1.0, (192, 128): 0.9,
    (64, 192): 0.9,
}  # fmt: skip
# The pipelined kernel's, which has no clusters -> its stages, and the rate.
PIPELINED_TILES = {(128, 256): (3, 1.03), (128, 128): (6, 0.959)}
# Programs of a cluster, which wait for one another -> rate; and the rate of tiles that are divided.
CLUSTER_RATES = {1: 1.0, 2: 0.959, 4: 0.93}
DIVIDED_RATE = 0.909
# Clocks: of a tile of 128 x 256 beside its steps, of a launch that hands on sums, of one that does not begin before the
# one ahead of it ends.
TILE_CLOCKS = 5_560
DIVIDED_CLOCKS = 10_700
LAUNCH_CLOCKS = 4_510
# What the first loads and the last store of the portable kernel's programs cost, in tiles.
EDGE = 0.125
Tile = tuple[int, int, int, int, int, float]
# (pipeline, BLOCK_M, BLOCK_N, stream)
Frame = tuple[int, int, int, int]


def frames() -> Iterator[Frame]:
    """Yield the frames whose A and B are not swapped. A split in two, and stream-K without clusters, never paid."""
    yield from ((1, *tile, 0) for tile in PIPELINED_TILES)
    yield from ((pipeline, *tile, 0) for pipeline in RESIDENT for tile in CLUSTER_TILES)
    yield from ((pipeline, *tile, 1) for pipeline in (2, 22, 41) for tile in CLUSTER_TILES)


def frame_config(frame: Frame, generic: Settings, shape: Shape, dtype: Dtype) -> dict[str, Any]:
    """Return the configuration of a frame. generic: that of the generic variant."""
    pipeline, block_m, block_n, stream = frame
    config = {**generic, **cluster_keys(block_m, block_n, pipeline)}
    if pipeline == 1:
        return {**config, "num_warps": 4, "num_stages": PIPELINED_TILES[block_m, block_n][0]}
    config = {**config, "stream": stream, "pdl": 1}
    return {**config, "group_m": group_rows(config, shape), "num_stages": _depths(config, dtype)[-1]}


def _depths(config: Settings, dtype: Dtype) -> list[int]:
    """Return how many stages fit into shared memory, 2 to 8."""
    return [n for n in range(2, 9) if shared_bytes({**config, "num_stages": n}, dtype) <= SHARED_BYTES["sm_90"]]


def _extra_clocks(config: Settings) -> int:
    """Return what a launch costs beside its tiles, in clocks, where sums are handed on between programs."""
    return (0, DIVIDED_CLOCKS, 0)[config["stream"]]


def lines(columns: int) -> int:
    """Return in how many lines of L2 128 bytes of a row of so many 2-byte elements lie."""
    return 1 if columns % 64 == 0 else 2


def clocks(frame: Frame, shape: Shape, *, even_rows: bool) -> float:
    """Return about how many clocks the busiest CTA of a frame takes for a shape, beside what all of them take.

    even_rows: whether the CUDA C++ gives all tiles the same rows instead of whole tiles and a rest.
    """
    pipeline, block_m, block_n, stream = frame
    rows, cols = (1, 1) if pipeline == 1 else cluster_shape({"pipeline": pipeline})
    slots = RESIDENT.get(pipeline, 132) // (rows * cols)
    tiles = ceil_div(shape["M"], rows * block_m) * ceil_div(shape["N"], cols * block_n)
    rate = PIPELINED_TILES[block_m, block_n][1] if pipeline == 1 else CLUSTER_TILES[block_m, block_n]
    rate *= (DIVIDED_RATE if stream else 1) * CLUSTER_RATES[rows * cols]
    bytes_of = {**ASKED_BYTES, 1: ASKED_BYTES[1] if tiles > slots else ASKED_AT_ONCE_BYTES}
    # Of a tile's rows all are multiplied, but only those are loaded that it stores.
    loaded = block_m
    if even_rows and pipeline != 1:
        loaded = tile_rows({"pipeline": pipeline, "block_m": block_m}, shape["M"])
    asked_a = 2 * loaded / cols / bytes_of[lines(shape["K"])]
    asked_b = 2 * block_n / rows / bytes_of[lines(shape["N"])]
    arriving = 2 * (loaded + block_n) / ARRIVING_BYTES
    inner = max(2 * block_m * block_n / TENSOR_FLOPS / rate, asked_a + asked_b, arriving) * shape["K"]
    # Fewer tiles than clusters are not divided: each would be added up from many parts at once.
    waves = tiles / slots if stream and tiles > slots else math.ceil(tiles / slots)
    once = inner + TILE_CLOCKS * block_m * block_n / (128 * 256)
    return waves * once + (DIVIDED_CLOCKS if stream else LAUNCH_CLOCKS if pipeline == 1 else 0)


def _tile_clocks(tile: Tile, shape: Shape) -> float:
    """Return the same for a tile of the generic variant."""
    block_m, block_n, rate = tile[0], tile[1], tile[-1]
    waves = math.ceil(ceil_div(shape["M"], block_m) * ceil_div(shape["N"], block_n) / SMS["sm_90"])
    arriving = 2 * (block_m * lines(shape["K"]) + block_n * lines(shape["N"])) / ARRIVING_BYTES
    return (waves + EDGE) * max(2 * block_m * block_n / TENSOR_FLOPS / rate, arriving) * shape["K"]


def generic_clocks(shape: Shape) -> float:
    """Return the same for the generic variant on sm_90, whose largest tiles the other variants have too."""
    return min(_tile_clocks(tile, shape) for tile in TILES["sm_90"][2:])


def _cost(shape: Shape, target: str) -> Callable[[Tile], float]:
    slots = SMS[target]

    def cost(tile: Tile) -> float:
        tiles = ceil_div(shape["M"], tile[0]) * ceil_div(shape["N"], tile[1])
        return math.ceil(tiles / slots) * tile[0] * tile[1] / tile[5]

    return cost


def generic_config(name: str, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
    """Return the configuration of the generic variant. Raises: InputError for a target without one."""
    configs.check_tuned(name, target, tuple(TILES))
    element = DTYPE_BYTES[dtype]
    aligned = shape["N"] * element % TMA_ALIGNMENT == 0 and shape["K"] * element % TMA_ALIGNMENT == 0
    tiles = TILES[target] if aligned else RAGGED.get(target, TILES[target])
    block_m, block_n, block_k, num_warps, num_stages, _ = min(tiles, key=_cost(shape, target))
    config: dict[str, Any] = {
        "block_m": block_m,
        "block_n": block_n,
        "block_k": block_k if element == 2 else block_k // 2,
        "group_m": GROUP,
        "subtiles": 1,
        "programs": SMS[target],
        "num_warps": num_warps,
        "num_stages": num_stages,
        "tma": int(target in TMA_TARGETS and aligned),
        "pipeline": 0,
        "stream": 0,
        "pdl": 0,
    }
    while shared_bytes(config, dtype) > SHARED_BYTES[target] and config["num_stages"] > 1:
        config["num_stages"] -= 1
    return config


def candidates(
    own: Settings,
    shape: Shape,
    dtype: Dtype,
    target: str,
    *,
    even_rows: bool,
    swapped: Callable[[Settings, Shape], Iterable[Settings]] = lambda own, shape: (),
) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing: tiles of all variants, as many stages as fit or one less.

    own: what the launch rule takes. swapped: (own, shape) -> configurations with A and B swapped.
    """
    yield _candidate(own, shape, dtype, even_rows=even_rows)

    def fitting(config: Settings, *, most: int = 2) -> Iterator[Candidate]:
        room = SHARED_BYTES[target]
        stages = [n for n in range(2, 9) if shared_bytes({**config, "num_stages": n}, dtype) <= room]
        for n in stages[-most:]:
            yield _candidate({**config, "num_stages": n}, shape, dtype, even_rows=even_rows)

    if target == "sm_90" and own["tma"] and DTYPE_BYTES[dtype] == 2:
        for config in (*_cluster_configs(own, shape), *swapped(own, shape)):
            yield from fitting(config, most=1)
        pipelined = {**own, "pipeline": 1, "num_warps": 4, "block_k": 64, "stream": 0, "pdl": 0}
        choices: dict[str, tuple[int, ...]] = {"block_m": (128, 256), "block_n": (64, 128, 256), "subtiles": (1, 2)}
        for config in variations(pipelined, choices):
            yield from fitting(config)
    generic = {**own, "pipeline": 0, "subtiles": 1, "stream": 0, "pdl": 0}
    choices = {
        "block_m": (32, 64, 128), "block_n": (32, 64, 128, 256), "block_k": (32, 64, 128), "num_warps": (4, 8),
    }  # fmt: skip
    for config in variations(generic, choices):
        yield from fitting(config)


def _cluster_configs(own: Settings, shape: Shape) -> Iterator[Settings]:
    """Yield the tiles of the CUDA C++ in every cluster, whole, stream-K and split; other groups for the rule's own."""
    for (block_m, block_n), pipeline in itertools.product(CLUSTER_TILES, RESIDENT):
        config = {**own, **cluster_keys(block_m, block_n, pipeline)}
        config["group_m"] = group_rows(config, shape)
        yield from variations({**config, "pdl": 1}, {"stream": (0, 1, 2)})
    if own["pipeline"] >= 2:
        yield from variations(own, {"group_m": (2, 4, 6, 8, 12), "pdl": (0, 1)})


def _candidate(config: Settings, shape: Shape, dtype: Dtype, *, even_rows: bool) -> Candidate:
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    inner = block_k * ceil_div(shape["K"], block_k)
    # The warp-specialized variant is three warpgroups that share all registers of an SM.
    warps, registers = 12, 168
    if not config["pipeline"]:
        warps = config["num_warps"]
        # The accumulators, and some for addresses and operands in flight.
        registers = block_m * block_n // (32 * warps) + 48
    tiles = ceil_div(shape["M"], block_m) * ceil_div(shape["N"], block_n)
    read_m, read_n, parts, extra = block_m, block_n, 1, 0
    lines_of = lines if config["tma"] and DTYPE_BYTES[dtype] == 2 else lambda columns: 1
    if config["pipeline"] >= 2:
        rows, cols = cluster_shape(config)
        warps, registers = config["num_warps"] + 4, min(168, SM_REGISTERS // (32 * (config["num_warps"] + 4)))
        tiles = rows * cols * ceil_div(shape["M"], rows * block_m) * ceil_div(shape["N"], cols * block_n)
        # Of its tiles a CTA reads a share; the others of its cluster read the rest for it.
        loaded = tile_rows(config, shape["M"]) if even_rows else block_m
        read_m, read_n = loaded // cols, block_n // rows
        # Where tiles are divided by steps there are as many equal pieces as steps.
        parts = (1, inner // block_k, 2)[config["stream"]]
        extra = _extra_clocks(config)
    return Candidate(
        config=config,
        tiles=tiles * parts,
        tile_flops=2 * block_m * block_n * inner // parts,
        # Rows of a box that lie in two lines of L2 take both.
        tile_bytes=DTYPE_BYTES[dtype]
        * (read_m * lines_of(shape["K"]) + read_n * lines_of(shape["N"]))
        * inner
        // parts,
        warps=warps,
        registers=registers,
        shared_bytes=shared_bytes(config, dtype),
        extra_clocks=extra,
    )

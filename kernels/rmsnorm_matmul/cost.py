"""Describes launches of this kernel's variants on sm_90 to the cost model, with constants fitted to one H200.

Imports neither torch nor triton. Terms: ledger/cost_model.py. Fitted to net times of the chain context (a call after
an elementwise kernel, whose own time is subtracted) in benchmarks/model-shapes-fit-h200.json, by the regret of the pick
and the error of the prediction. Clocks are of an SM at 1,755 MHz.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

from ledger.cost_model import Launch, Rates, cost
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.gemm_config import resident as cluster_slots
from ledger.kernels.common.gemm_config import tile_rows
from ledger.kernels.common.targets import SM_REGISTERS, ceil_div
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

STEP = 64
"""Inner positions of a K step, here of all variants."""

WRITERS = 64
"""Most CTAs that normalise rows, no more than are certain to be resident at once. MAX_WRITERS of cluster.cu."""

RATES = Rates(
    clock_hz=1.755e9,
    dram_bytes_per_s=4.53e12,
    l2_bytes=7220,
    request_bytes=75.9,
    tensor_flops=4096,
    # Fitted among 120, 128 and 132, and 96, 112 and 128.
    slots={1: 132, 2: 132, 4: 120, 8: 96},
    idle_share=1.36,
    resident_share=0.401,
    launch_s={"chain": 1.4e-6},
    overlap=2.77,
)
"""Those of an H200 with 132 SMs."""


def rates_of(sms: int) -> Rates:
    """Return the rates of a chip with so many SMs, which is taken to hold the same share of clusters."""
    return replace(RATES, slots={1: sms, 2: sms, 4: cluster_slots((4, 1), sms), 8: sms * 8 // 11 // 8 * 8})


class Clocks(NamedTuple):
    """Hold what is fitted of this kernel, in clocks of an SM.

    Of a K step of ping-pong warpgroups: issue_64, issue_128 and issue_128_wide, its weights of 64 or 128 columns are
    loaded, scaled and issued, with 8 and in the last with 16 warps; row_128, a row of x with 128 columns;
    separate, the second mbarrier of separate pipelines, with 8 warps. Of cooperative warpgroups: scale_64 and
    scale_128, x of 64 or 128 rows is scaled between two wgmma. Of the warp-specialised variant: step, whatever its
    block_k.
    Of a CTA: its begin and end (ping_pong, cooperative, warp_specialised); published_squares, waiting for squares that
    another CTA sums; late_weights, a shared pipeline of 16 warps begins when x is ready; tile, stores of 128 x 256;
    groups, adding the accumulators of another group, for 128 x 256; sent, the same partial sum sent to another CTA;
    waiting for those of others (ping_pong_split, cooperative_split, warp_specialised_split).
    Of a K step of the cluster GEMM: shared_bytes, which wgmma reads from shared memory and loads write there, a clock.
    Of its CTA: cluster, its begin and end; cluster_split; stream_k, whatever it divides; normalised, the rows are
    normalised and the flags are seen; normalised_bytes, of x that a CTA normalises a clock.
    other_lines: the share by which CTAs of other K ranges, which read other lines of x, add to the requests of x.
    """

    issue_64: float = 217
    issue_128: float = 386
    issue_128_wide: float = 400
    row_128: float = 2.25
    separate: float = 0.373
    scale_64: float = 367
    scale_128: float = 209
    step: float = 329
    ping_pong: float = 3990
    cooperative: float = 2820
    warp_specialised: float = 8670
    published_squares: float = 447
    late_weights: float = 75.4
    tile: float = 4450
    groups: float = 3530
    sent: float = 4040
    ping_pong_split: float = 136
    cooperative_split: float = 3440
    warp_specialised_split: float = 2730
    other_lines: float = 0.329
    shared_bytes: float = 117
    cluster: float = 3240
    cluster_split: float = 3580
    stream_k: float = 42_000
    normalised: float = 8700
    normalised_bytes: float = 12.0
    separate_launch: float = 3900
    separate_bytes: float = 44_900
    library: float = 1880
    library_tile: float = 1070
    library_split: float = 2210
    library_shared_bytes: float = 147
    library_launch: float = 5700


CLOCKS = Clocks()


class Tile(NamedTuple):
    """Hold what the cost of a configuration depends on. shared: whether x shares the stages of the weights.

    The last three are of the cluster GEMM.
    """

    variant: str
    block_b: int
    block_o: int
    split_k: int
    cluster_m: int
    num_warps: int
    block_k: int
    shared: bool
    cluster_n: int = 1
    swap_ab: int = 0
    stream_k: int = 0


def tile_of(config: Settings) -> Tile:
    """Return the tile of a configuration."""
    shared = config["variant"] == "cuda_ping_pong" and config["x_stages"] == 0
    return Tile(**{key: config[key] for key in Tile._fields if key != "shared"}, shared=shared)


def cluster_ctas(tile: Tile) -> int:
    """Return the CTAs of a cluster, split-K counted; those of the warp-specialised variant are none."""
    return 1 if tile.variant == "warp_specialised" else tile.cluster_m * tile.cluster_n * tile.split_k


def resident_ctas(tile: Tile, shared_bytes: int) -> int:
    """Return how many CTAs fit on an SM, at most 2: more were not faster. Those of other variants fill it.

    Registers a thread, as NVRTC 13 compiles them: 42, the accumulators, and 14 where weights are prefetched.
    """
    if tile.variant != "cuda_ping_pong" or 2 * (shared_bytes + 1024) > 233_472:
        return 1
    warps = tile.num_warps + (6 if tile.block_b <= 32 else 4)
    prefetches = tile.num_warps == 8 and (tile.block_o == 128 or (not tile.shared and tile.block_b <= 192))
    registers = min(42 + tile.block_b // 2 + 14 * prefetches, 168 if tile.num_warps == 8 else 96)
    return 2 if 2 * 32 * warps * (8 * ceil_div(registers, 8)) <= SM_REGISTERS else 1


def launch_of(
    tile: Tile, shape: Shape, dtype: Dtype, resident: int, clocks: Clocks = CLOCKS, *, rates: Rates = RATES
) -> Launch:
    """Return a launch as the cost model sees it. resident: CTAs on an SM."""
    if tile.variant in ("cuda_cluster", "cuda_normed"):
        return _cluster_launch(tile, shape, dtype, clocks, rates)
    if tile.variant == "library":
        return _library_launch(tile, shape, dtype, clocks)
    b, h, o = shape["B"], shape["H"], shape["O"]
    variant, rows, columns, splits, cluster_m, warps, block_k, shared, *_ = tile
    element, area, divided = DTYPE_BYTES[dtype], rows * columns / (128 * 256), splits > 1
    tensor = rows * columns / 32
    serial = 0.0
    fixed = clocks.sent * area * (splits - 1) / splits
    if variant == "cuda_ping_pong":
        wide = columns == 128
        hidden = (clocks.issue_128 if warps == 8 else clocks.issue_128_wide) if wide else clocks.issue_64
        exposed = clocks.row_128 * rows if wide else 0.0
        serial = clocks.separate if warps == 8 and not shared else 0.0
        fixed += clocks.ping_pong + clocks.tile * area + clocks.groups * area * (warps * 16 // columns - 1)
        fixed += clocks.published_squares * (rows > 32) + clocks.late_weights * (shared and warps == 16)
        fixed += clocks.ping_pong_split * divided
    elif variant == "cuda_cooperative":
        hidden, exposed = clocks.scale_64 if rows == 64 else clocks.scale_128, tensor
        fixed += clocks.cooperative + clocks.cooperative_split * divided
    else:
        hidden, exposed = clocks.step * STEP / block_k, 0.0
        fixed += clocks.warp_specialised + clocks.tile * area + clocks.warp_specialised_split * divided
    x = rows * (1 + clocks.other_lines * (splits - 1) / splits)
    return Launch(
        ctas=ceil_div(b, rows) * ceil_div(o, columns) * splits,
        cluster=cluster_ctas(tile),
        resident=resident,
        steps=ceil_div(ceil_div(h, STEP), splits),
        step_flops=2 * rows * columns * STEP,
        request_bytes=element * STEP * (columns / cluster_m + x),
        hidden_clocks=hidden,
        exposed_clocks=exposed,
        serial_clocks=serial,
        fixed_clocks=fixed,
        dram_bytes=element * (h * o + b * h + h + b * o),
    )


def _cluster_launch(tile: Tile, shape: Shape, dtype: Dtype, clocks: Clocks, rates: Rates) -> Launch:
    """Return the launch of the cluster GEMM after the rows were normalised. Stream-K: all clusters take equal steps.

    Of cuda_normed the launch that normalises is part of it.
    """
    b, h, o = shape["B"], shape["H"], shape["O"]
    rows, columns, splits, height, width = tile.block_b, tile.block_o, tile.split_k, tile.cluster_m, tile.cluster_n
    element, area = DTYPE_BYTES[dtype], rows * columns / (128 * 256)
    loaded = tile_rows({"block_m": rows, "cluster_m": height, "cluster_n": width, "swap_ab": tile.swap_ab}, b)
    cluster = cluster_ctas(tile)
    tiles, clusters = ceil_div(b, height * rows) * ceil_div(o, width * columns), rates.slots[cluster] // cluster
    steps, ends = ceil_div(ceil_div(h, STEP), splits), 1.0
    if tile.stream_k and tiles % clusters:
        steps, ends, tiles = ceil_div(tiles * steps, clusters), tiles / clusters, clusters
    # Each warpgroup reads its own 64 rows or columns, and all of the other operand.
    own, other = (columns, rows) if tile.swap_ab else (rows, columns)
    moved = own // 64 * (64 + other) + loaded + columns
    fixed = clocks.cluster + clocks.tile * area * ends + clocks.stream_k * tile.stream_k
    fixed += (clocks.cluster_split + clocks.sent * area / 2) * (splits > 1)
    return Launch(
        ctas=tiles * cluster,
        cluster=cluster,
        resident=1,
        steps=steps,
        step_flops=2 * rows * columns * STEP,
        request_bytes=element * STEP * (columns / height + loaded / width),
        hidden_clocks=element * STEP * moved / clocks.shared_bytes,
        exposed_clocks=0.0,
        serial_clocks=0.0,
        fixed_clocks=fixed,
        dram_bytes=element * (h * o + b * h + h + b * o),
        once_clocks=normalising_clocks(tile.variant, shape, dtype, clocks),
    )


def normalising_clocks(variant: str, shape: Shape, dtype: Dtype, clocks: Clocks = CLOCKS) -> float:
    """Return the clocks before the first step in which rows are normalised: in the same launch or one of its own."""
    b, row_bytes = shape["B"], DTYPE_BYTES[dtype] * shape["H"]
    if variant == "cuda_cluster":
        return clocks.normalised + ceil_div(b, WRITERS) * row_bytes / clocks.normalised_bytes
    return clocks.separate_launch + b * row_bytes / clocks.separate_bytes


def _library_launch(tile: Tile, shape: Shape, dtype: Dtype, clocks: Clocks) -> Launch:
    """Return the launch of a product of the library with a tile that it may take, and of the rows before it."""
    b, h, o = shape["B"], shape["H"], shape["O"]
    rows, columns, splits = tile.block_b, tile.block_o, tile.split_k
    element, area = DTYPE_BYTES[dtype], rows * columns / (128 * 256)
    loaded = min(rows, 8 * ceil_div(b, 8)) + columns
    return Launch(
        ctas=ceil_div(b, rows) * ceil_div(o, columns) * splits,
        cluster=1,
        resident=1,
        steps=ceil_div(ceil_div(h, STEP), splits),
        step_flops=2 * rows * columns * STEP,
        request_bytes=element * STEP * loaded,
        hidden_clocks=element * STEP * (rows // 64 * (64 + columns) + loaded) / clocks.library_shared_bytes,
        exposed_clocks=0.0,
        serial_clocks=0.0,
        fixed_clocks=clocks.library + clocks.library_tile * area + clocks.library_split * area * (splits > 1),
        dram_bytes=element * (h * o + b * h + h + b * o),
        once_clocks=normalising_clocks(tile.variant, shape, dtype, clocks) + clocks.library_launch,
    )


LIBRARY = Tile("library", 0, 0, 0, 0, 0, 0, shared=False, cluster_n=0)
"""The tile of the variant library, which the library chooses."""

LIBRARY_TILES = tuple(
    Tile("library", rows, columns, splits, 1, 8, STEP, shared=False)
    for rows, columns, splits in product((64, 128, 192, 256), (64, 128, 192, 256), (1, 2, 4))
    if rows * columns <= 128 * 256
)
"""What the library is taken to choose among; the cheapest counts."""


def chain_s(tile: Tile, shape: Shape, dtype: Dtype, resident: int, *, rates: Rates = RATES) -> float:
    """Return the predicted time of a call in a chain of other kernels, in seconds."""
    if tile.variant == "library":
        launches = (launch_of(one, shape, dtype, resident, rates=rates) for one in LIBRARY_TILES)
        return min(cost(launch, rates, state="chain").total_s for launch in launches)
    return cost(launch_of(tile, shape, dtype, resident, rates=rates), rates, state="chain").total_s

"""Describes launches of this kernel's variants on sm_90 to the cost model, with constants fitted to one H200.

Imports neither torch nor triton. Terms: ledger/cost_model.py; of cuda_normed's product common/gemm_frames.py has the
time. Fitted to net times of the chain context (a call after an elementwise kernel, whose own time is subtracted) in
benchmarks/model-shapes-promoted-h200.json, by the regret of the pick and the error of the prediction; the bandwidth of
DRAM and the rate of x beyond its first bytes by the regret in model-shapes-settled-h200.json too. Clocks are of an SM
at 1,755 MHz.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ledger.cost_model import Launch, Rates, cost
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.gemm_config import resident as cluster_slots
from ledger.kernels.common.gemm_frames import Frame, nanoseconds
from ledger.kernels.common.targets import SM_REGISTERS, ceil_div
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

STEP = 64
"""Inner positions of a K step, here of all variants."""

NORMALISING_S, FIRST_BYTES, FIRST_BYTES_PER_S, NORMALISED_BYTES_PER_S = 2.74e-6, 4e6, 6.75e11, 1.3e12
"""What the launch that normalises rows adds to a product: seconds, and bytes of x a second, of the first bytes and of
more."""

RATES = Rates(
    clock_hz=1.755e9,
    dram_bytes_per_s=4.8e12,
    l2_bytes=6690,
    request_bytes=110,
    tensor_flops=4096,
    # Fitted among 120, 128 and 132, and 96, 112 and 128. 96 is no count of what fits: of eight the driver says 120
    # (gemm_config.resident).
    slots={1: 132, 2: 132, 4: 120, 8: 96},
    resident_share=0.545,
    launch_s={"chain": 1.17e-6},
    overlap=2.98,
)
"""Those of an H200 with 132 SMs."""


def rates_of(sms: int) -> Rates:
    """Return the rates of a chip with so many SMs, which is taken to hold the same share of clusters."""
    return replace(RATES, slots={1: sms, 2: sms, 4: cluster_slots((4, 1), sms), 8: sms * 8 // 11 // 8 * 8})


class Clocks(NamedTuple):
    """Hold what is fitted of this kernel, in clocks of an SM.

    Of a K step of ping-pong warpgroups: issue_64, issue_128 and issue_128_wide, its weights of 64 or 128 columns are
    loaded, scaled and issued, with 8 and in the last with 16 warps; row_128, a row of x with 128 columns;
    shared_row_64, one beyond 64 rows with 64 columns that shares stages, times the CTAs that share weights; separate,
    the second mbarrier of separate pipelines, with 8 warps. Of cooperative warpgroups: scale_64 and
    scale_128, x of 64 or 128 rows is scaled between two wgmma. Of the warp-specialised variant: step, whatever its
    block_k.
    Of a CTA: its begin and end (ping_pong, cooperative, warp_specialised); published_squares, waiting for squares that
    another CTA sums; late_weights, a shared pipeline of 16 warps begins when x is ready; tile, stores of 128 x 256;
    groups, adding the accumulators of another group, for 128 x 256; sent, the same partial sum sent to another CTA;
    waiting for those of others (ping_pong_split, cooperative_split, warp_specialised_split).
    other_lines: the share by which CTAs of other K ranges, which read other lines of x, add to the requests of x.
    fetched: bytes that come from DRAM over those asked for, in variants whose misses fetch 256 bytes at once.
    """

    issue_64: float = 197
    issue_128: float = 406
    issue_128_wide: float = 368
    row_128: float = 1.9
    shared_row_64: float = 0.485
    separate: float = 16.3
    scale_64: float = 221
    scale_128: float = 139
    step: float = 247
    ping_pong: float = 4260
    cooperative: float = 5570
    warp_specialised: float = 17_200
    published_squares: float = 340
    late_weights: float = 216
    tile: float = 6580
    groups: float = 7180
    sent: float = 6210
    ping_pong_split: float = 0.673
    cooperative_split: float = 3410
    warp_specialised_split: float = 1710
    other_lines: float = 0.187
    fetched: float = 1.13


CLOCKS = Clocks()


class Tile(NamedTuple):
    """Hold what the cost of a fused configuration depends on. shared: whether x shares the stages of the weights."""

    variant: str
    block_b: int
    block_o: int
    split_k: int
    cluster_m: int
    num_warps: int
    block_k: int
    shared: bool


def tile_of(config: Settings) -> Tile:
    """Return the tile of a configuration."""
    shared = config["variant"] == "cuda_ping_pong" and config["x_stages"] == 0
    return Tile(**{key: config[key] for key in Tile._fields if key != "shared"}, shared=shared)


def cluster_ctas(tile: Tile) -> int:
    """Return the CTAs of a cluster, split-K counted; those of the warp-specialised variant are none."""
    return 1 if tile.variant == "warp_specialised" else tile.cluster_m * tile.split_k


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
        serial += 0.0 if wide or not shared else clocks.shared_row_64 * max(0, rows - 64) * cluster_m
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
        dram_bytes=element * (h * o + b * h + h + b * o) * (1 if variant == "cuda_ping_pong" else clocks.fetched),
    )


def product_shape(shape: Shape) -> Shape:
    """Return the shape of the product in the terms of common/gemm_config.py."""
    return {"M": shape["B"], "N": shape["O"], "K": shape["H"]}


def normed_s(frame: Frame, shape: Shape, dtype: Dtype, sms: int) -> float:
    """Return the predicted time in a chain of cuda_normed with a frame of the product, in seconds."""
    # The product begins behind the launch that normalises as behind a copy of its operands.
    return behind_normed_s(nanoseconds(frame, product_shape(shape), sms, copied=True), shape, dtype)


def behind_normed_s(product_ns: float, shape: Shape, dtype: Dtype) -> float:
    """Return the predicted time of a product behind the launch that normalises its rows, in seconds."""
    x = DTYPE_BYTES[dtype] * shape["B"] * shape["H"]
    first = min(x, FIRST_BYTES)
    return 1e-9 * product_ns + NORMALISING_S + first / FIRST_BYTES_PER_S + (x - first) / NORMALISED_BYTES_PER_S


def chain_s(tile: Tile, shape: Shape, dtype: Dtype, resident: int, *, rates: Rates = RATES) -> float:
    """Return the predicted time of a call in a chain of other kernels, in seconds."""
    return cost(launch_of(tile, shape, dtype, resident, rates=rates), rates, state="chain").total_s

"""Describes launches of the CUDA C++ variants to the cost model: the work of a CTA, a K step and a tile.

Imports neither torch nor triton. Terms and rates: ledger/cost_model.py.
"""

from __future__ import annotations

from typing import NamedTuple

from ledger.cost_model import Launch
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.targets import ceil_div
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import ping_pong


class Clocks(NamedTuple):
    """Hold what is fitted of this kernel, in clocks of an SM.

    scale_weights: a warpgroup scales the weights of a step of 64 columns. scale_x: the cooperative warpgroups scale x
    of a step. issue: a K step takes at least, whatever its tile. tile: pipeline fill and stores of a tile of 128 x 256.
    start: the same beside the size of the tile. exchange: a CTA sends and adds a partial sum of 128 x 256. tensor_rate:
    the share of the tensor peak.
    """

    scale_weights: float
    scale_x: float
    issue: float
    tile: float
    start: float
    exchange: float
    tensor_rate: float


def launch_of(config: Settings, shape: Shape, dtype: Dtype, clocks: Clocks) -> Launch:
    """Return a launch of cuda_ping_pong or cuda_cooperative as the cost model sees it."""
    b, h, o = shape["B"], shape["H"], shape["O"]
    rows, columns, block_k, splits = (config[key] for key in ("block_b", "block_o", "block_k", "split_k"))
    element = DTYPE_BYTES[dtype]
    row_tiles, column_tiles = ceil_div(b, rows), ceil_div(o, columns)
    weights, x = element * block_k * columns, element * block_k * rows
    step_flops = 2 * rows * columns * block_k
    tensor = step_flops / (4096 * clocks.tensor_rate)
    if config["variant"] == "cuda_ping_pong":
        groups = ping_pong.groups(config)
        scaling = clocks.scale_weights
        # A group scales, then multiplies; with prefetched weights the two overlap.
        alone = max(tensor, scaling) if ping_pong.prefetches_weights(config) else tensor + scaling
        operand = max(clocks.issue, alone) / groups
    else:
        operand = max(clocks.issue, clocks.scale_x)
    share = rows * columns / (128 * 256)
    exchanged = clocks.exchange * share * (splits - 1) / splits if splits > 1 else 0.0
    return Launch(
        ctas=row_tiles * column_tiles * splits,
        cluster=config["cluster_m"] * splits,
        steps=ceil_div(ceil_div(h, block_k), splits),
        step_flops=step_flops,
        tensor_rate=clocks.tensor_rate,
        fill_bytes=weights + x,
        request_bytes=weights / config["cluster_m"] + x,
        operand_clocks=operand,
        tile_clocks=clocks.start + clocks.tile * share + exchanged,
        # Row tiles that run at the same time read the weights once from DRAM.
        dram_bytes=element * (h * o + b * h + h + b * o),
        in_flight_bytes=config["num_stages"] * weights,
    )

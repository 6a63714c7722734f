"""Variant in CUDA C++ for sm_90 whose two warpgroups cooperate on a tile: x is wgmma's A operand, scaled in registers.

Host side of cooperative.cu: macros, launch, shared memory and checks. With split_k 2 two CTAs divide a tile's inner
dimension as a cluster and exchange partial sums through distributed shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ledger.kernel import AheadCuda, Launch
from ledger.kernels.common.baselines import dtype_name
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_ahead, tensor_map
from ledger.kernels.common.targets import ceil_div, device_target, sms_of
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.kernels.common.workspace import unwritten
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from torch import Tensor

_GAIN_STEPS = 4
"""Steps of the inner dimension whose gain one TMA load brings. GAIN_STEPS of cooperative.cu."""

_SQUARES_TILES = 4
"""Column tiles that share the sums of squares of their rows. SQUARES_TILES of cooperative.cu."""

_GROUP_ROWS = 8
"""Row tiles of which each column tile comes before the next column tile. GROUP_ROWS of cooperative.cu."""


def _source(config: Settings, dtype: Dtype) -> CudaSource:
    defines = {
        "BLOCK_B": config["block_b"], "BLOCK_O": config["block_o"], "SPLIT_K": config["split_k"],
        "STAGES": config["num_stages"], "BF16": int(dtype == "bf16"),
    }  # fmt: skip
    # x in registers, the MN-major weights in shared memory.
    wgmma = Wgmma(
        n=_warpgroup_columns(config), kind="bf16" if dtype == "bf16" else "f16", a="registers", b_transposed=True,
        zeroing=False,
    )  # fmt: skip
    entry = "rmsnorm_matmul_cooperative"
    return cuda_source(__name__, "cooperative.cu", entry=entry, defines=defines, generated=wgmma_header(wgmma))


def _warpgroup_columns(config: Settings) -> int:
    """Return the columns that a warpgroup multiplies: with 64 rows the two warpgroups divide the columns."""
    return int(config["block_o"] if config["block_b"] == 128 else config["block_o"] // 2)


def together(config: Settings, n_rows: int) -> int:
    """Return how many consecutive CTAs wait for each other: with split-K the column tiles that share squares."""
    rows = min(_GROUP_ROWS, ceil_div(n_rows, config["block_b"]))
    return rows * _SQUARES_TILES * int(config["split_k"]) if config["split_k"] > 1 else 1


def _ctas(config: Settings, shape: Shape, sms: int) -> int:
    tiles = ceil_div(shape["B"], config["block_b"]) * ceil_div(shape["O"], config["block_o"])
    # Without split-K the CTAs are persistent.
    return tiles * int(config["split_k"]) if config["split_k"] > 1 else min(tiles, sms)


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> AheadCuda:
    """Return the CUDA C++ and how it is launched."""
    return AheadCuda(
        _source(config, dtype),
        programs=_ctas(config, shape, sms_of(target)),
        # With 256 columns the loader is a whole warpgroup, whose registers go to the consumers.
        threads=384 if _warpgroup_columns(config) == 256 else 288,
        shared_bytes=shared_bytes(config, shape, dtype),
    )


def _square_words(config: Settings, shape: Shape) -> int:
    """Return the words of the sums of squares: [row tile][group of column tiles][reader][writer][row]."""
    if config["split_k"] == 1:
        return 1
    writers = _SQUARES_TILES * config["split_k"]
    readers = writers * (2 if config["block_b"] == 64 else 1)
    tile_groups = ceil_div(ceil_div(shape["O"], config["block_o"]), _SQUARES_TILES)
    return ceil_div(shape["B"], config["block_b"]) * tile_groups * readers * writers * int(config["block_b"])


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Allocate the sums of squares and return the launch."""
    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]
    shape = {"B": x.shape[0], "H": x.shape[1], "O": weight.shape[1]}
    maps = [
        tensor_map(x, (config["block_b"], config["block_k"])),
        tensor_map(gain.view(1, shape["H"]), (1, _GAIN_STEPS * config["block_k"])),
        tensor_map(weight, (config["block_k"], 64)),
    ]
    squares = unwritten(_square_words(config, shape), x)
    return prepare_ahead(
        ahead(config, shape, dtype_name(x, "rmsnorm_matmul"), device_target(x)),
        [*maps, out, squares, *shape.values(), float(eps)],
        overlap=bool(config["pdl"]),
    )


def shared_bytes(config: Settings, shape: Shape, dtype: Dtype) -> int:
    """Return the shared memory of a CTA, in bytes: all stages, and all of the gain that the CTA needs."""
    element, block_k = DTYPE_BYTES[dtype], config["block_k"]
    gain_loads = ceil_div(ceil_div(ceil_div(shape["H"], block_k), config["split_k"]), _GAIN_STEPS)
    stage = element * block_k * (config["block_b"] + config["block_o"]) + 16
    return ceil_div(config["num_stages"] * stage + 16, 128) * 128 + gain_loads * element * block_k * _GAIN_STEPS


def problems(config: Settings, shape: Shape, target: str) -> Iterator[str]:
    """Yield what is wrong with a configuration."""
    if config["num_warps"] != 8:
        yield f"num_warps is {config['num_warps']} with variant cuda_cooperative; expected 8"
    if config["block_b"] not in (64, 128) or not 64 <= config["block_o"] <= 256:
        yield (
            f"tiles are {config['block_b']} x {config['block_o']} with variant cuda_cooperative; expected block_b 64 "
            "or 128 and block_o 64 to 256"
        )
    if config["split_k"] not in (1, 2):
        yield f"split_k is {config['split_k']} with variant cuda_cooperative; expected 1 or 2"

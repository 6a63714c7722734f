"""Tests how rmsnorm_matmul describes its launches to the cost model, against tiles worked by hand."""

from __future__ import annotations

import pytest

from ledger.kernels.rmsnorm_matmul.cost import Clocks, launch_of
from ledger.kernels.rmsnorm_matmul.variants import NEUTRAL

CLOCKS = Clocks(scale_weights=300, scale_x=500, issue=100, tile=8000, start=1000, exchange=6000, tensor_rate=1.0)
SHAPE = {"B": 256, "H": 4096, "O": 6144}


def config(variant: str, **changes: int) -> dict[str, int | str]:
    common = {
        "variant": variant,
        "block_o": 128,
        "split_k": 1,
        "num_warps": 8,
        "num_stages": 6,
        "x_stages": 4,
        "pdl": 1,
    }
    return {**common, **NEUTRAL[variant], "cluster_m": 1, **changes}


def test_ping_pong_in_pairs_of_row_tiles_shares_the_weights() -> None:
    found = launch_of(config("cuda_ping_pong", block_b=128, cluster_m=2), SHAPE, "fp16", CLOCKS)
    # 2 row tiles by 48 column tiles; 64 steps of 64; 16 KB of each operand a step, half of the weights requested.
    assert (found.ctas, found.cluster, found.steps) == (96, 2, 64)
    assert found.fill_bytes == 32_768
    assert found.request_bytes == 8192 + 16_384
    assert found.step_flops == 2 * 128 * 128 * 64
    # One group prefetches: the larger of 512 clocks of arithmetic and 300 of scaling. Half a tile of 128 x 256.
    assert found.operand_clocks == 512
    assert found.tile_clocks == 1000 + 4000
    assert found.in_flight_bytes == 6 * 16_384


def test_groups_that_alternate_divide_scaling_and_arithmetic() -> None:
    found = launch_of(config("cuda_ping_pong", block_b=128, num_warps=16), SHAPE, "fp16", CLOCKS)
    assert found.operand_clocks == (512 + 300) / 2


def test_split_k_divides_the_steps_and_exchanges_partial_sums() -> None:
    found = launch_of(config("cuda_cooperative", block_b=128, block_o=256, split_k=2), SHAPE, "fp16", CLOCKS)
    # 2 · 24 tiles by two CTAs, half of 64 steps; each CTA sends half of its sums.
    assert (found.ctas, found.cluster, found.steps) == (96, 2, 32)
    assert found.operand_clocks == 500
    assert found.tile_clocks == 1000 + 8000 + 3000


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_compulsory_bytes_are_those_of_the_work_model(dtype: str) -> None:
    found = launch_of(config("cuda_cooperative", block_b=128), SHAPE, dtype, CLOCKS)  # type: ignore[arg-type]
    assert found.dram_bytes == 2 * (4096 * 6144 + 256 * 4096 + 4096 + 256 * 6144)

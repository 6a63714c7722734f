"""Holds the product of fp8 matrices with scales of blocks in Triton, for any target that has fp8 instructions."""

# mypy: ignore-errors

from __future__ import annotations

from ledger.kernel import import_triton
from ledger.kernels.common.gemm_device import tile_origin

triton, tl = import_triton()

BLOCK = 128
"""Elements of K, and rows of B, that share a scale."""


@triton.jit
def matmul_fp8_blocks_kernel(
    a, b, a_scale, b_scale, c, n_rows, n_cols, n_inner, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    row, col = tile_origin(
        tl.program_id(0), tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N), BLOCK_M, BLOCK_N, GROUP_M
    )
    rows, cols, steps = row + tl.arange(0, BLOCK_M), col + tl.arange(0, BLOCK_N), tl.cdiv(n_inner, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in tl.range(steps):
        inner = step * BLOCK_K + tl.arange(0, BLOCK_K)
        live = (inner < n_inner)[None, :]
        a_tile = tl.load(
            a + rows.to(tl.int64)[:, None] * n_inner + inner[None, :], mask=(rows < n_rows)[:, None] & live, other=0.0
        )
        b_tile = tl.load(
            b + cols.to(tl.int64)[:, None] * n_inner + inner[None, :], mask=(cols < n_cols)[:, None] & live, other=0.0
        )
        of_rows = tl.load(a_scale + step * n_rows + rows, mask=rows < n_rows, other=0.0)
        of_columns = tl.load(b_scale + (col // 128) * steps + step)
        acc += tl.dot(a_tile, b_tile.T, out_dtype=tl.float32) * (of_rows * of_columns)[:, None]
    live = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(c + rows.to(tl.int64)[:, None] * n_cols + cols[None, :], acc.to(c.dtype.element_ty), mask=live)

"""Generic variant in Triton: every target, every dtype, any alignment.

A tile is computed transposed (swap-AB): the weights are the M side of the tensor-core instruction, the batch its N
side. With split_k above 1 the last CTA of a tile adds the partial sums of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ledger.kernel import Ahead, Launch, import_triton
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.launches import MATRIX_SIZES, ahead_of, constants_of, options_of
from ledger.kernels.common.targets import ceil_div
from ledger.kernels.common.tensor_maps import triton_descriptor, triton_type
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from torch import Tensor

triton, tl = import_triton()

_CONSTANTS = ("block_b", "block_o", "block_k", "split_k", "tma")


@triton.jit(do_not_specialize=["n_rows"])
def rmsnorm_matmul_kernel(
    x_ptr,
    gain_ptr,
    weight,
    y_ptr,
    partial_ptr,
    squares_ptr,
    arrivals_ptr,
    n_rows,
    n_inner,
    n_cols,
    eps,
    BLOCK_B: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    TMA: tl.constexpr,
):
    pid_o = tl.program_id(0)
    pid_k = tl.program_id(1)
    pid_b = tl.program_id(2)
    range_b = tl.arange(0, BLOCK_B)
    range_o = tl.arange(0, BLOCK_O)
    range_k = tl.arange(0, BLOCK_K)
    rows = pid_b * BLOCK_B + range_b
    cols = pid_o * BLOCK_O + range_o
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    x_rows = x_ptr + rows.to(tl.int64)[:, None] * n_inner

    tiles = tl.cdiv(n_inner, BLOCK_K)
    tiles_a_split = tl.cdiv(tiles, SPLIT_K)
    first = pid_k * tiles_a_split
    last = tl.minimum(first + tiles_a_split, tiles)

    acc = tl.zeros((BLOCK_O, BLOCK_B), dtype=tl.float32)
    squares = tl.zeros((BLOCK_B, BLOCK_K), dtype=tl.float32)
    for tile in tl.range(first, last):
        inner = tile * BLOCK_K + range_k
        inner_mask = inner < n_inner
        x = tl.load(x_rows + inner[None, :], mask=row_mask[:, None] & inner_mask[None, :], other=0.0)
        gain = tl.load(gain_ptr + inner, mask=inner_mask, other=0.0)
        if TMA:
            w = weight.load([tile * BLOCK_K, pid_o * BLOCK_O])
        else:
            w = tl.load(
                weight + inner.to(tl.int64)[:, None] * n_cols + cols[None, :],
                mask=inner_mask[:, None] & col_mask[None, :],
                other=0.0,
            )
        x32 = x.to(tl.float32)
        squares += x32 * x32
        scaled = (x32 * gain.to(tl.float32)[None, :]).to(x.dtype)
        acc = tl.dot(tl.trans(w), tl.trans(scaled), acc, input_precision="ieee")
    row_squares = tl.sum(squares, axis=1)

    y_ptrs = y_ptr + rows.to(tl.int64)[None, :] * n_cols + cols[:, None]
    y_mask = row_mask[None, :] & col_mask[:, None]
    if SPLIT_K == 1:
        rstd = tl.rsqrt(row_squares / n_inner + eps)
        tl.store(y_ptrs, (acc * rstd[None, :]).to(y_ptr.dtype.element_ty), mask=y_mask)
    else:
        tile_id = pid_b * tl.num_programs(0) + pid_o
        slot = tile_id.to(tl.int64) * SPLIT_K
        in_tile = range_o[:, None] * BLOCK_B + range_b[None, :]
        tl.store(partial_ptr + (slot + pid_k) * (BLOCK_O * BLOCK_B) + in_tile, acc)
        tl.store(squares_ptr + (slot + pid_k) * BLOCK_B + range_b, row_squares)
        # The atomic is one thread's: every thread's partial must be written before it is published.
        tl.debug_barrier()
        arrived = tl.atomic_add(arrivals_ptr + tile_id, 1, sem="acq_rel")
        if arrived == SPLIT_K - 1:
            total = tl.zeros((BLOCK_O, BLOCK_B), dtype=tl.float32)
            total_squares = tl.zeros((BLOCK_B,), dtype=tl.float32)
            for part in tl.static_range(SPLIT_K):
                total += tl.load(partial_ptr + (slot + part) * (BLOCK_O * BLOCK_B) + in_tile, cache_modifier=".cg")
                total_squares += tl.load(squares_ptr + (slot + part) * BLOCK_B + range_b, cache_modifier=".cg")
            rstd = tl.rsqrt(total_squares / n_inner + eps)
            tl.store(y_ptrs, (total * rstd[None, :]).to(y_ptr.dtype.element_ty), mask=y_mask)
            # Ready for the next launch, which starts after this one ends.
            tl.store(arrivals_ptr + tile_id, 0)


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Allocate the partial sums and return the launch."""
    import torch

    x, gain, weight = inputs["x"], inputs["gain"], inputs["weight"]
    n_rows, n_inner = x.shape
    n_cols = weight.shape[1]
    block_b, block_o, split_k = config["block_b"], config["block_o"], config["split_k"]
    tiles_b, tiles_o = ceil_div(n_rows, block_b), ceil_div(n_cols, block_o)
    slots = tiles_b * tiles_o * split_k if split_k > 1 else 1
    partial_sums = torch.empty(slots * block_o * block_b, dtype=torch.float32, device=x.device)
    squares = torch.empty(slots * block_b, dtype=torch.float32, device=x.device)
    arrivals = torch.zeros(tiles_b * tiles_o, dtype=torch.int32, device=x.device)
    operand = triton_descriptor(weight, [config["block_k"], block_o]) if config["tma"] else weight
    return partial(
        rmsnorm_matmul_kernel[tiles_o, split_k, tiles_b],
        x, gain, operand, out, partial_sums, squares, arrivals, n_rows, n_inner, n_cols, eps,
        **constants_of(config, *_CONSTANTS), **options_of(config),
    )  # fmt: skip


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return how to compile the kernel ahead of time."""
    pointer = f"*{dtype}"
    weight = triton_type(dtype, [config["block_k"], config["block_o"]]) if config["tma"] else pointer
    pointers = {"x_ptr": pointer, "gain_ptr": pointer, "weight": weight, "y_ptr": pointer}
    workspace = {"partial_ptr": "*fp32", "squares_ptr": "*fp32", "arrivals_ptr": "*i32"}
    sizes = {name: MATRIX_SIZES[name] for name in ("n_rows", "n_inner", "n_cols")}
    return ahead_of(
        rmsnorm_matmul_kernel,
        pointers | workspace | sizes | {"eps": "fp32"},
        constants=constants_of(config, *_CONSTANTS),
        options=options_of(config),
    )


def shared_bytes(config: Settings, shape: Shape, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of a CTA, in bytes."""
    element, stages = DTYPE_BYTES[dtype], config["num_stages"]
    block_b, block_o, block_k = config["block_b"], config["block_o"], config["block_k"]
    x_tile, weight_tile = element * block_b * block_k, element * block_k * block_o
    # Mbarriers, 8 bytes a stage, and their alignment are within the last term.
    loop = stages * weight_tile + max(stages - 1, 1) * (x_tile + element * block_k) + x_tile + 1024
    return max(loop, 4 * block_o * (block_b + 8))


def problems(config: Settings, shape: Shape, target: str) -> Iterator[str]:
    """Yield what is wrong with a configuration."""
    if config["block_b"] < 16:
        yield f"block_b is {config['block_b']} with variant generic; expected at least 16"

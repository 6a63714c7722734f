"""Compute y = W · x, a matrix times one vector.

Formula: y[n] = Σ_k W[n, k] · x[k]
Shapes: W (N, K) row-major, x (K,), y (N,), of one dtype (fp16, bf16 or fp32).
Traffic: e · (N·K + K) bytes read and e · N written, e bytes an element.
Source: none needed; the bytes of W decide.
The work model excludes: re-reads of x by each program (L1, L2).

Precision: products and sums are fp32, one rounding to the dtype. Determinism: each element is one program's sum in a
fixed order, so the same inputs give the same bits.

Rows whose start is not a multiple of 16 bytes: a program takes rows that lie `interleave` apart. They start equally far
from such a multiple, so they share what is loaded of x, and W is read in whole vectors; the edges are read by element.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Config, Tolerance, import_triton
from ledger.kernels.common.baselines import compiled, library
from ledger.kernels.common.configs import check_thread_elements
from ledger.kernels.common.row_reductions import sum_lanes, wait_for_previous_kernel
from ledger.kernels.common.single_launch import SingleLaunch
from ledger.kernels.common.targets import ceil_div, power_of_two
from ledger.kernels.common.triton_launch import VECTOR_BYTES
from ledger.operations import GEMV, Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def _load_edges(x_ptr, weight_ptr, rows, row_mask, n_inner, head, covered, LANE: tl.constexpr):
    # What no vector covers: fewer than LANE elements at either end of a row.
    lane = tl.arange(0, 2 * LANE)
    inner = tl.where(lane < LANE, lane, head + covered + lane - LANE)
    inner_mask = tl.where(lane < LANE, lane < head, inner < n_inner)
    x = tl.load(x_ptr + inner, mask=inner_mask, other=0.0)
    w = tl.load(
        weight_ptr + rows.to(tl.int64)[:, None] * n_inner + inner[None, :],
        mask=row_mask[:, None] & inner_mask[None, :],
        other=0.0,
    )
    return x, w


@triton.jit
def _split_lanes(w, LANE: tl.constexpr):
    # The first elements of all vectors, their second elements, and so on: a thread splits what it holds.
    n_rows: tl.constexpr = w.shape[0]
    n_vectors: tl.constexpr = w.shape[1] // LANE
    if LANE == 8:
        even, odd = tl.split(tl.reshape(w, (n_rows, n_vectors, 2, 2, 2)))
        w04_26 = tl.split(even)
        w15_37 = tl.split(odd)
        w0, w4 = tl.split(w04_26[0])
        w2, w6 = tl.split(w04_26[1])
        w1, w5 = tl.split(w15_37[0])
        w3, w7 = tl.split(w15_37[1])
        return w0, w1, w2, w3, w4, w5, w6, w7
    else:  # noqa: RET505 (Triton compiles one of the branches)
        even, odd = tl.split(tl.reshape(w, (n_rows, n_vectors, 2, 2)))
        w0, w2 = tl.split(even)
        w1, w3 = tl.split(odd)
        return w0, w1, w2, w3


@triton.jit
def gemv_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    n_rows,
    n_units,
    UNIT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    LANE: tl.constexpr,
    INTERLEAVE: tl.constexpr,
    PDL: tl.constexpr,
):
    # A product tells the compiler that a row has a multiple of UNIT elements, hence how wide a load may be.
    n_inner = n_units * UNIT
    if INTERLEAVE > 1:
        residue = tl.program_id(0) % INTERLEAVE
        rows = (tl.program_id(0) // INTERLEAVE * BLOCK_N + tl.arange(0, BLOCK_N)) * INTERLEAVE + residue
    else:
        rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = rows < n_rows
    range_k = tl.arange(0, BLOCK_K)
    if INTERLEAVE > 1:
        # Rows that lie INTERLEAVE apart have equally many elements, head, before their first vector of 16 bytes.
        head = tl.minimum((LANE - residue * (n_inner % LANE) % LANE) % LANE, n_inner)
        # Whole vectors only. Rounded here, so that the compiler sees aligned addresses and a mask that splits none.
        covered = (n_inner - head) // LANE * LANE
        x_start = x_ptr + head
        weight_rows = weight_ptr + ((rows.to(tl.int64) * n_inner + (LANE - 1)) // LANE * LANE)[:, None]
    else:
        covered = n_inner
        x_start = x_ptr
        weight_rows = weight_ptr + rows.to(tl.int64)[:, None] * n_inner
    wait_for_previous_kernel(PDL)
    if INTERLEAVE > 1:
        # Added up at the end: the loads of the vectors do not wait for these.
        edge_x, edge_w = _load_edges(x_ptr, weight_ptr, rows, row_mask, n_inner, head, covered, LANE)
    acc = tl.zeros((BLOCK_N, BLOCK_K // LANE), dtype=tl.float32)
    for start in tl.range(0, covered, BLOCK_K):
        inner = start + range_k
        inner_mask = inner < covered
        if INTERLEAVE == 1:
            x = tl.load(x_start + inner, mask=inner_mask, other=0.0, eviction_policy="evict_last")
        w = tl.load(
            weight_rows + inner[None, :],
            mask=row_mask[:, None] & inner_mask[None, :],
            other=0.0,
            eviction_policy="evict_first",
        )
        if INTERLEAVE == 1:
            products = w.to(tl.float32) * x.to(tl.float32)[None, :]
            acc += sum_lanes(products, LANE)
        else:
            # Each thread loads the elements of x that its vectors need: no exchange through shared memory.
            parts = _split_lanes(w, LANE)
            vectors = start // LANE + tl.arange(0, BLOCK_K // LANE)
            products = tl.zeros((BLOCK_N, BLOCK_K // LANE), dtype=tl.float32)
            for lane in tl.static_range(LANE):
                x = tl.load(
                    x_start + vectors * LANE + lane,
                    mask=vectors < covered // LANE,
                    other=0.0,
                    eviction_policy="evict_last",
                )
                products += parts[lane].to(tl.float32) * x.to(tl.float32)[None, :]
            # A vector's products first: shorter sums lose fewer bits.
            acc += products
    sums = tl.sum(acc, axis=1)
    if INTERLEAVE > 1:
        sums += tl.sum(edge_w.to(tl.float32) * edge_x.to(tl.float32)[None, :], axis=1)
    tl.store(y_ptr + rows, sums.to(y_ptr.dtype.element_ty), mask=row_mask)


_WIDEST_UNIT = 16
_FEW_ROWS, _MANY_ROWS, _MOST_ROWS = 2048, 12_288, 65_536
_FEW_PROGRAMS = 528
# Of unaligned rows: rows from which programs of one warp are many; how many of them an H200 runs at once.
_MANY_PROGRAMS, _PROGRAMS = 8192, 132 * 32
# Of a tile of W that a thread can hold.
_MOST_ELEMENTS = 128


def _short_rows(n: int, row_bytes: int, element: int) -> dict[str, int]:
    """Return the tile of rows of at most 2048 bytes: several a program, whose start takes longer than to read one."""
    block_bytes = min(power_of_two(row_bytes), 512 if row_bytes <= 1024 else 2048)
    most = 8192 if row_bytes > 1024 or (row_bytes % 16 == 0 and n > _MOST_ROWS) else 4096
    block_n = max(most // max(block_bytes, 32), 1)
    while block_n * block_bytes > 2048 and n < _FEW_PROGRAMS * block_n:
        block_n //= 2
    return {"block_n": block_n, "block_k": max(block_bytes // element, 16), "num_warps": 2, "interleave": 1}


def _floor_power(number: int) -> int:
    """Return the largest power of two up to a number, at least 1."""
    return 1 << max(number, 1).bit_length() - 1


def _period(k: int, element: int) -> int:
    """Return how far apart rows of k elements lie that start equally far from a multiple of 16 bytes."""
    vector = VECTOR_BYTES // element
    return vector // math.gcd(k, vector)


def _unaligned_rows(n: int, k: int, element: int) -> dict[str, int]:
    """Return the tile of longer rows that start anywhere: warps hold a vector or two of each of the tile's rows."""
    warp = 32 * VECTOR_BYTES // element
    if n < _MANY_PROGRAMS:
        block_n = 2 if n > _FEW_ROWS // 4 else 1
        num_warps = min(_floor_power(8 * _FEW_ROWS // n), 8)
        block_k = warp * num_warps * (2 if block_n == 1 else 1)
        # Blocks cover at most 1.5 times a row's elements, of one row a program twice.
        while num_warps > 1 and block_k * ceil_div(k, block_k) > (2 if block_n == 1 else 1.5) * k:
            block_k, num_warps = block_k // 2, num_warps // 2
    else:
        # Two rows a program where four would leave a fifth more of the last wave idle.
        rows_in_waves = {rows: rows * ceil_div(n, rows * _PROGRAMS) for rows in (2, 4)}
        block_n, num_warps = 2 if rows_in_waves[2] <= 0.8 * rows_in_waves[4] else 4, 1
        # Two vectors of 16-bit rows, unless a tenth more of the blocks would be idle.
        covered = {vectors: vectors * ceil_div(k, vectors * warp) for vectors in (1, 2)}
        block_k = warp * (2 if element == 2 and covered[2] <= 1.1 * covered[1] else 1)
    return {"block_n": block_n, "block_k": block_k, "num_warps": num_warps, "interleave": _period(k, element)}


def _short_unaligned_rows(k: int, element: int) -> dict[str, int]:
    """Return the tile of many short rows that start anywhere: a warp's, of as many columns as vectors cover."""
    vector = VECTOR_BYTES // element
    block_k = min(max(_floor_power(k // vector * vector), 32), 32 * vector)
    block_n = 256 * vector // block_k
    return {"block_n": block_n, "block_k": block_k, "num_warps": 1, "interleave": _period(k, element)}


def _tile(shape: Shape, dtype: Dtype) -> dict[str, int]:
    n, k, element = shape["N"], shape["K"], DTYPE_BYTES[dtype]
    if k * element <= 2048:
        # Lanes that load one number each of fp32 are as fast.
        if element == 2 and n >= _MANY_PROGRAMS and k >= 16 and _period(k, element) > 2:
            return _short_unaligned_rows(k, element)
        return _short_rows(n, k * element, element)
    if k * element % VECTOR_BYTES:
        return _unaligned_rows(n, k, element)
    block_n, block_bytes, num_warps = 2, 8192, 8
    if 4 * 2 * -(-k * element // 8192) >= 5 * -(-k * element // 4096):
        # Large blocks would read a quarter more than small ones.
        block_bytes, num_warps = 4096, 4
    elif element == 2 and 2048 < k < 8192 and not 2 * _FEW_ROWS < n < _MANY_ROWS:
        # Measured: two rows in blocks that are read side by side.
        block_bytes = 4096
    elif element == 2 and k * element >= 2 * block_bytes and (dtype == "bf16" or n <= _FEW_ROWS):
        # A row of several blocks is long enough for a program; with many rows fp16 ran alike either way.
        block_n = 1
    block_k = min(max(power_of_two(k), 16), block_bytes // element)
    return {"block_n": block_n, "block_k": block_k, "num_warps": num_warps, "interleave": 1}


def _check_interleave(config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> None:
    """Check that the rows of a program lie side by side, or as far apart as equal starts do. Raises: InputError."""
    period = _period(shape["K"], DTYPE_BYTES[dtype])
    if config["interleave"] not in (1, period):
        expected = f"1 or {period}" if period > 1 else "1"
        raise InputError(
            f"gemv: interleave is {config['interleave']} with K={shape['K']} in {dtype}; expected {expected}: rows "
            f"that lie {period} apart start equally far from a multiple of {VECTOR_BYTES} bytes"
        )
    if config["interleave"] > 1:
        # Beside the elements of W a thread has those of x.
        check_thread_elements("gemv", config, tile=("block_n", "block_k"), most=_MOST_ELEMENTS // 2)


def _programs(config: Config, shape: Shape) -> int:
    """Return the programs: those of a group take all of its rows, block_n each."""
    together = int(config["interleave"])
    return together * ceil_div(shape["N"], together * int(config["block_n"]))


def _constants(config: Config, shape: Shape, element: int) -> dict[str, int]:
    interleave = int(config["interleave"])
    return {
        "UNIT": math.gcd(shape["K"], _WIDEST_UNIT),
        "BLOCK_N": int(config["block_n"]),
        "BLOCK_K": int(config["block_k"]),
        # As many as one load brings: 16 bytes, or less where the rows of a program do not start at multiples of that.
        "LANE": VECTOR_BYTES // element if interleave > 1 else math.gcd(shape["K"], VECTOR_BYTES // element),
        "INTERLEAVE": interleave,
        "PDL": int(config["pdl"]),
    }


def _estimate(config: Mapping[str, Any], shape: Shape, element: int) -> dict[str, int]:
    rows, num_warps = config["block_n"], config["num_warps"]
    held = rows * config["block_k"] * element
    return {
        "tile_flops": 2 * rows * shape["K"],
        "tile_bytes": element * (rows + 1) * shape["K"],
        # A tile of W and one of x as they are loaded, and some for sums and addresses.
        "registers": 2 * held // (128 * num_warps) + 32,
        # What the warps of a program add up at its end.
        "shared_bytes": 4 * rows * num_warps,
        "bytes_under_way": held,
    }


LAUNCH = SingleLaunch(
    name="gemv",
    function=gemv_kernel,
    inputs=("x", "weight"),
    cases=(
        {"N": 7168, "K": 16384},
        {"N": 1024, "K": 1024},
        {"N": 16384, "K": 7168},
        {"N": 1, "K": 1},
        {"N": 1009, "K": 4099},
    ),
    ranges={"block_n": (1, 256), "block_k": (16, 16_384), "num_warps": (1, 32), "interleave": (1, 8)},
    tile=_tile,
    # A multiply-add is two operations.
    counts=lambda shape: (2 * shape["N"] * shape["K"], shape["N"] * shape["K"] + shape["K"], shape["N"]),
    grid=_programs,
    sizes=lambda shape: {"n_rows": shape["N"], "n_units": shape["K"] // math.gcd(shape["K"], _WIDEST_UNIT)},
    constants=_constants,
    choices={"block_n": (1, 2, 4, 8), "block_k": (512, 1024, 2048, 4096, 8192), "num_warps": (1, 2, 4, 8)},
    estimate=_estimate,
    thread_tile=(("block_n", "block_k"), _MOST_ELEMENTS),
    check=_check_interleave,
)


def gemv(weight: Tensor, x: Tensor) -> Tensor:
    """Return weight · x.

    Shapes: weight (N, K), x (K,) of one dtype on one GPU; the result (N,).
    """
    return LAUNCH(x.contiguous(), weight.contiguous())


def _product(torch: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda weight, x: torch.mv(weight, x)


def _product_fp32(torch: Any, out: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """Compute the product on fp32 copies that are made in the call, except where the inputs are fp32 already."""
    return out.copy_(torch.mv(weight.float(), x.float()))


TORCH_CPU = library(_product_fp32, "weight", "x")
TORCH_EAGER = library(lambda torch, out, weight, x: torch.mv(weight, x, out=out), "weight", "x")
TORCH_COMPILE = compiled(_product, "weight", "x")


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product in float64."""
    return inputs["weight"].double() @ inputs["x"].double()


KERNEL = LAUNCH.kernel(
    operation=GEMV,
    summary="matrix times vector",
    formula="y = W · x",
    excludes="re-reads of x by each program (L1, L2)",
    tolerances={
        "fp16": Tolerance(2e-6, 5e-4, "one rounding to 11 bits; the sum is fp32"),
        "bf16": Tolerance(2e-6, 4e-3, "one rounding to 8 bits; the sum is fp32"),
        "fp32": Tolerance(4e-6, 1e-6, "up to 65536 terms are summed in 24 bits, in lanes and a tree"),
    },
    reference=reference,
    torch_cpu=TORCH_CPU,
    baselines={"torch-eager": TORCH_EAGER, "torch-compile": TORCH_COMPILE},
)

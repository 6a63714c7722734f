"""Compute y = softmax(x), one distribution a row.

Formula: y[m, n] = exp(x[m, n] - max_n x[m]) / Σ_n exp(x[m, n] - max_n x[m])
Shapes: x, y (M, N), row-major and of one dtype (fp16, bf16 or fp32).
Traffic: e · M·N bytes read and e · M·N written, e bytes an element.
Source: the running maximum of long rows is Milakov and Gimelshein, "Online normalizer calculation for softmax",
arXiv 1805.02867, algorithm 3.
The work model excludes: the second read of rows of several blocks but for their last (L1, L2), and the
correction of the running sum where the maximum rises. An exponential counts as one operation.

Precision: all arithmetic is fp32; one rounding to the dtype. Determinism: each row is one program's work in a fixed
order, so the same inputs give the same bits. A row of minus infinities gives NaN, as torch's does.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Ahead, Candidate, Config, Kernel, Launch, Tolerance, import_triton, keeping
from ledger.operations import SOFTMAX, Shape
from ledger.records import Dtype, Path, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def _by_lane(values, LANE: tl.constexpr):
    # A thread holds LANE neighbours. Adding them first needs no exchange and leaves registers for loads under way.
    return tl.sum(tl.reshape(values, (values.shape[0], values.shape[1] // LANE, LANE)), axis=2)


@triton.jit
def _exp(values):
    # In base 2 the compiler flushes subnormal results and needs half the instructions.
    return tl.exp2(values * 1.4426950408889634)


@triton.jit
def _store(pointers, y, mask):
    tl.store(pointers, y.to(pointers.dtype.element_ty), mask=mask, cache_modifier=".cs")


@triton.jit
def _group(number: tl.constexpr, shift, n_rows, N_COLS: tl.constexpr, BLOCK_M: tl.constexpr, ROWS: tl.constexpr):
    # Where the rows of a group start, counted from where the tile does, and which of them there are.
    rows = number * ROWS + tl.arange(0, ROWS)[:, None]
    return shift + rows * N_COLS, rows < n_rows - tl.program_id(0) * BLOCK_M


@triton.jit
def _places(
    starts, row_mask, cols, chunk: tl.constexpr, N_COLS: tl.constexpr, VECTOR: tl.constexpr, RAGGED: tl.constexpr
):
    # Where a chunk of columns of some rows lies, what of it there is, and the columns before the first vector of a row.
    WIDTH: tl.constexpr = cols.shape[1]
    head = 0
    if RAGGED:
        # Vectors lie at multiples of 16 bytes, whatever the row.
        aligned = (starts + VECTOR - 1) // VECTOR * VECTOR
        head = (aligned - starts).to(tl.int32)
        mask = row_mask & ((chunk * WIDTH + cols) // VECTOR < (N_COLS - head) // VECTOR)
        places = aligned + (chunk * WIDTH + cols)
    else:
        mask = row_mask & ((chunk * WIDTH + cols < N_COLS) if (chunk + 1) * WIDTH > N_COLS else (cols >= 0))
        places = starts + (chunk * WIDTH + cols)
    return places, mask, head


@triton.jit
def _edge_places(starts, row_mask, N_COLS: tl.constexpr, VECTOR: tl.constexpr):
    # The columns that no vector covers, before the first and after the last: a lane of the row's warp for each.
    head = ((starts + VECTOR - 1) // VECTOR * VECTOR - starts).to(tl.int32)
    lane = tl.arange(0, 32)[None, :]
    cols = tl.where(lane < VECTOR, lane, head + (N_COLS - head) // VECTOR * VECTOR + lane - VECTOR)
    return cols, row_mask & tl.where(lane < VECTOR, lane < head, cols < N_COLS)


@triton.jit
def _whole_rows(
    x_ptr,
    y_ptr,
    n_rows,
    N_COLS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    WARPS: tl.constexpr,
):
    # A chunk of columns is one load of a warp, a group of rows one of all warps: no warp waits for another.
    WIDTH: tl.constexpr = BLOCK_N if BLOCK_N < 32 * VECTOR else 32 * VECTOR
    CHUNKS: tl.constexpr = (N_COLS + WIDTH - 1) // WIDTH
    AT_ONCE: tl.constexpr = 32 * VECTOR * WARPS // WIDTH if RAGGED or N_COLS % VECTOR == 0 else BLOCK_M
    ROWS: tl.constexpr = BLOCK_M if BLOCK_M < AT_ONCE else AT_ONCE
    GROUPS: tl.constexpr = BLOCK_M // ROWS
    NONE: tl.constexpr = -float("inf")
    cols = tl.arange(0, WIDTH)[None, :]
    # Within a tile 32 bits are enough for an offset; ragged rows count from the tensor's start, to find their vectors.
    origin = tl.program_id(0).to(tl.int64) * (BLOCK_M * N_COLS)
    shift = origin if RAGGED else 0
    x_tile = x_ptr if RAGGED else x_ptr + origin
    y_tile = y_ptr if RAGGED else y_ptr + origin
    held = ()
    edges = ()
    for group in tl.static_range(GROUPS):
        starts, row_mask = _group(group, shift, n_rows, N_COLS, BLOCK_M, ROWS)
        if RAGGED:
            # Before the vectors: the compiler then adds up in the layout of the vectors, not in that of the edges.
            edge_cols, edge_mask = _edge_places(starts, row_mask, N_COLS, VECTOR)
            edge = tl.load(x_tile + starts + edge_cols, mask=edge_mask, other=NONE)
            edges = edges + (edge.to(tl.float32),)  # noqa: RUF005
        for chunk in tl.static_range(CHUNKS):
            places, mask, _head = _places(starts, row_mask, cols, chunk, N_COLS, VECTOR, RAGGED)
            x = tl.load(x_tile + places, mask=mask, other=NONE)
            held = held + (x.to(tl.float32),)  # noqa: RUF005
    for group in tl.static_range(GROUPS):
        starts, row_mask = _group(group, shift, n_rows, N_COLS, BLOCK_M, ROWS)
        if RAGGED:
            edge_cols, edge_mask = _edge_places(starts, row_mask, N_COLS, VECTOR)
            edge = edges[group]
        highs = tl.full((ROWS, WIDTH), NONE, dtype=tl.float32)
        for chunk in tl.static_range(CHUNKS):
            highs = tl.maximum(highs, held[group * CHUNKS + chunk])
        highest = tl.max(highs, axis=1)
        if RAGGED:
            highest = tl.maximum(highest, tl.max(edge, axis=1))
        # A row beyond the last has only minus infinity; 0 keeps inf - inf out.
        highest = tl.where(highest == NONE, 0.0, highest)
        totals = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
        powers = ()
        for chunk in tl.static_range(CHUNKS):
            power = _exp(held[group * CHUNKS + chunk] - highest[:, None])
            powers = powers + (power,)  # noqa: RUF005
            totals += power
        total = tl.sum(totals, axis=1)
        if RAGGED:
            edge_powers = _exp(edge - highest[:, None])
            total += tl.sum(edge_powers, axis=1)
        inverse = 1.0 / total
        if RAGGED:
            _store(y_tile + starts + edge_cols, edge_powers * inverse[:, None], edge_mask)
        for chunk in tl.static_range(CHUNKS):
            places, mask, _head = _places(starts, row_mask, cols, chunk, N_COLS, VECTOR, RAGGED)
            _store(y_tile + places, powers[chunk] * inverse[:, None], mask)


@triton.jit
def _one_row(
    x_ptr,
    y_ptr,
    N_COLS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PIPE: tl.constexpr,
):
    # Blocks that are read twice; the last block of a row stays in registers.
    FULL: tl.constexpr = (N_COLS - 2 * VECTOR) // BLOCK_N if RAGGED else (N_COLS + BLOCK_N - 1) // BLOCK_N - 1
    LANE: tl.constexpr = VECTOR if BLOCK_N >= VECTOR else BLOCK_N
    row = tl.program_id(0).to(tl.int64) * N_COLS
    cols = tl.arange(0, BLOCK_N)[None, :]
    # Columns before the first one at a multiple of 16 bytes, and those of the last block.
    head = 0
    left = N_COLS - FULL * BLOCK_N
    if RAGGED:
        start = row
        row = (start + VECTOR - 1) // VECTOR * VECTOR
        head = (row - start).to(tl.int32)
        left = tl.minimum((N_COLS - head) // VECTOR * VECTOR - FULL * BLOCK_N, BLOCK_N)
    # Masks that the compiler knows to be true cost nothing; one that changes between vectors only keeps them whole.
    whole = cols >= 0
    last_mask = (cols < left) if N_COLS % BLOCK_N else (cols >= 0)
    if RAGGED:
        last_mask = cols // VECTOR < left // VECTOR
    x_tile = x_ptr + row + cols
    y_tile = y_ptr + row + cols
    NONE: tl.constexpr = -float("inf")
    if FULL > 0:
        # Each lane keeps a maximum and a sum of its own; they meet after the loop.
        lane_highest = tl.full((1, BLOCK_N // LANE), NONE, dtype=tl.float32)
        lane_total = tl.zeros((1, BLOCK_N // LANE), dtype=tl.float32)
        for block in tl.range(0, FULL, loop_unroll_factor=2):
            x = tl.load(x_tile + block * BLOCK_N, mask=whole, other=NONE, eviction_policy="evict_last")
            x = tl.reshape(x.to(tl.float32), (1, BLOCK_N // LANE, LANE))
            risen = tl.maximum(lane_highest, tl.max(x, axis=2))
            # A lane that has seen nothing but minus infinity would compute inf - inf.
            safe = tl.where(risen == NONE, 0.0, risen)
            lane_total = lane_total * _exp(lane_highest - safe) + tl.sum(_exp(x - safe[:, :, None]), axis=2)
            lane_highest = risen
    last = tl.load(x_tile + FULL * BLOCK_N, mask=last_mask, other=NONE, eviction_policy="evict_first").to(tl.float32)
    if FULL > 0:
        lanes = tl.reshape(last, (1, BLOCK_N // LANE, LANE))
        highest = tl.max(tl.maximum(lane_highest, tl.max(lanes, axis=2)), axis=1)
    else:
        highest = tl.max(last, axis=1)
    if RAGGED:
        # The columns that no vector covers: before the first, after the last.
        lane = tl.arange(0, 4 * VECTOR)
        edge_cols = tl.where(lane < VECTOR, lane, head + FULL * BLOCK_N + left + lane - VECTOR)
        edge_mask = tl.where(lane < VECTOR, lane < head, edge_cols < N_COLS)
        edge = tl.load(x_ptr + start + edge_cols, mask=edge_mask, other=NONE).to(tl.float32)
        highest = tl.maximum(highest, tl.max(edge))
    highest = highest[:, None]
    powers = _exp(last - highest)
    if FULL > 0:
        total = tl.sum(lane_total * _exp(lane_highest - highest) + _by_lane(powers, LANE), axis=1)
    else:
        total = tl.sum(powers, axis=1)
    if RAGGED:
        edge_powers = _exp(edge - tl.sum(highest))
        total += tl.sum(edge_powers)
    inverse = (1.0 / total)[:, None]
    if PIPE and FULL > 0:
        x_next = tl.load(x_tile + (FULL - 1) * BLOCK_N, mask=whole, other=NONE, eviction_policy="evict_first")
    _store(y_tile + FULL * BLOCK_N, powers * inverse, last_mask)
    if RAGGED:
        _store(y_ptr + start + edge_cols, edge_powers * tl.sum(inverse), edge_mask)
    # Backwards: what was read last is still in the nearest cache.
    if FULL > 0:
        for block in tl.range(FULL - 1, -1, -1):
            if PIPE:
                x_again = x_next.to(tl.float32)
                more = whole & (block > 0)
                x_next = tl.load(x_tile + (block - 1) * BLOCK_N, mask=more, other=NONE, eviction_policy="evict_first")
            else:
                x_again = tl.load(x_tile + block * BLOCK_N, mask=whole, other=NONE, eviction_policy="evict_first")
                x_again = x_again.to(tl.float32)
            _store(y_tile + block * BLOCK_N, _exp(x_again - highest) * inverse, whole)


@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    N_COLS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PIPE: tl.constexpr,
    WARPS: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        # The next kernel's blocks may be placed now; this one's wait until all before it is written.
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    if BLOCK_M > 1:
        _whole_rows(x_ptr, y_ptr, n_rows, N_COLS, BLOCK_M, BLOCK_N, VECTOR, RAGGED, WARPS)
    else:
        _one_row(x_ptr, y_ptr, N_COLS, BLOCK_N, VECTOR, RAGGED, PIPE)


def softmax(x: Tensor) -> Tensor:
    """Return the softmax of the last dimension.

    Shapes: x (…, N) on a GPU; the result as x.
    """
    import torch

    inputs = {"x": x.contiguous().view(-1, x.shape[-1])}
    out = torch.empty_like(inputs["x"])
    major, minor = torch.cuda.get_device_capability(x.device)
    shape = {"M": out.shape[0], "N": out.shape[1]}
    prepare_triton(inputs, out, config_for(shape, _dtype_name(x), f"sm_{major}{minor}"))()
    return out.view(x.shape)


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return the launch."""
    x = inputs["x"]
    n_rows, n_cols = x.shape
    constants = _constants(config, n_cols, x.element_size())
    grid = (-(-n_rows // config["block_m"]),)

    def launch() -> None:
        softmax_kernel[grid](x, out, n_rows, **constants, num_warps=config["num_warps"], **_early(config))

    return launch


def _early(config: Config) -> dict[str, bool]:
    """Return the launch option of programmatic dependent launch, which older targets and versions do not know."""
    return {"launch_pdl": True} if config["pdl"] else {}


def _constants(config: Config, n_cols: int, element: int) -> dict[str, int]:
    vector = 16 // element
    return {
        # Known when it compiles: masks that are always true disappear, and loops unroll.
        "N_COLS": n_cols,
        "BLOCK_M": config["block_m"],
        "BLOCK_N": config["block_n"],
        "VECTOR": vector,
        "RAGGED": int(_ragged(n_cols, vector, config["block_m"])),
        "PIPE": config["pipe"],
        "WARPS": config["num_warps"],
        "PDL": config["pdl"],
    }


def _ragged(n_cols: int, vector: int, block_m: int) -> bool:
    """Tell whether rows start anywhere and are read as the aligned vectors within them and an edge on either side."""
    several = vector == 8 and n_cols > _NARROW // 2
    return n_cols % vector != 0 and n_cols >= 2 * vector and (block_m == 1 or several)


def _dtype_name(tensor: Tensor) -> Dtype:
    import torch

    names: dict[object, Dtype] = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    if tensor.dtype not in names:
        raise InputError(f"softmax: dtype is {tensor.dtype}; expected float16, bfloat16 or float32")
    return names[tensor.dtype]


def prepare_torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return torch's own softmax with fp32 arithmetic."""
    import torch

    x = inputs["x"]
    return lambda: out.copy_(torch.softmax(x, dim=1, dtype=torch.float32))


def prepare_torch_eager(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return torch's own softmax."""
    import torch

    x = inputs["x"]
    return lambda: torch.softmax(x, dim=1, out=out)


def prepare_torch_compile(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return what torch.compile makes of softmax."""
    compiled, x = _compiled(), inputs["x"]
    return keeping(lambda: compiled(x))


@functools.cache
def _compiled() -> Callable[[Tensor], Tensor]:
    import torch

    def softmax_of_rows(x: Tensor) -> Tensor:
        return torch.softmax(x, dim=1)

    # One compiled function for all shapes; without this the ninth shape would silently run eagerly.
    torch._dynamo.config.recompile_limit = 1024
    compiled: Callable[[Tensor], Tensor] = torch.compile(softmax_of_rows, dynamic=False)
    return compiled


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64."""
    import torch

    return torch.softmax(inputs["x"].double(), dim=1)


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count a comparison, a difference, an exponential, an addition and a division an element; x and y move once."""
    m, n, element = shape["M"], shape["N"], DTYPE_BYTES[dtype]
    return Work(flops=5 * m * n, bytes_read=element * m * n, bytes_written=element * m * n)


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return fp32: operands are widened before any arithmetic."""
    return "fp32"


_TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100")
_MULTIPROCESSORS = {"sm_75": 40, "sm_80": 108, "sm_89": 58, "sm_90": 132, "sm_100": 148}


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    if target not in _TARGETS:
        raise InputError(f"softmax: no launch configuration for {target}; expected one of: {', '.join(_TARGETS)}")
    m, n, element = shape["M"], shape["N"], DTYPE_BYTES[dtype]
    vector, x_bytes = 16 // element, m * n * element
    tall = element == 2 and n % vector != 0 and _NARROW // 2 < n <= _NARROW
    block_m = 1
    block_n, num_warps, pipe = next(rest for most, *rest in _BLOCKS[element] if n <= most)
    if tall:
        # Two rows that start anywhere: one program a row could not be started fast enough.
        block_m, block_n, num_warps = 2, _NARROW, 2
    elif n <= _NARROW:
        # Whole rows, several a program: more than 0.8 programs a nanosecond cannot be started.
        block_n = 1 << (n - 1).bit_length()
        tile_bytes, num_warps = _tile_bytes(m, n, element), 4
        if n % 2:
            # Neighbours in threads of their own: the warps and rows that ran best.
            tile_bytes, num_warps = next(rest for most, *rest in _ODD if n <= most)
        elif element == 2 and n % vector == 0 and _NARROW // 8 < n <= _NARROW // 4:
            tile_bytes, num_warps = 2 * _TILE_BYTES, 8
        block_m = max(tile_bytes // (block_n * element), 1)
    elif n % vector == 0 and element == 2:
        # As many columns at once as a program can hold where all of x is soon read, or where two blocks make a row.
        blocks = _FEW if x_bytes <= _FEW_BYTES else _EVEN
        block_n, num_warps = next((rest for least, most, *rest in blocks if least < n <= most), (block_n, num_warps))
    elif element == 2 and n > _LONG:
        block_n, num_warps, pipe = next(rest for most, *rest in _LONG_RAGGED if n <= most)
    if target != "sm_90":
        # Not measured there; compiled for other targets, the longest blocks spill at some N.
        block_n = min(block_n, 4096)
    # Fewer rows a tile where there are too few to give every multiprocessor two programs.
    while block_m > 1 and -(-m // block_m) < 2 * _MULTIPROCESSORS[target]:
        block_m //= 2
    if block_m < num_warps and n <= _NARROW:
        # Warps without a row of their own share rows; with 4 bytes an element that makes loads too narrow.
        num_warps = block_m if element == 4 and n % vector == 0 and block_m > 1 else min(num_warps, 4)
    return {
        "block_m": block_m,
        "block_n": block_n,
        "num_warps": num_warps,
        "pipe": pipe,
        "pdl": int(target in _PDL_TARGETS),
    }


def _tile_bytes(m: int, n: int, element: int) -> int:
    """Return the bytes of a tile of whole rows; where x is small, starting programs is what takes the time."""
    return _TILE_BYTES * (2 if element == 2 and n > _NARROW // 2 and m * n * element < _SMALL else 1)


_NARROW, _TILE_BYTES = 1024, 4096
# Bytes of x below which a tile of rows of more than _NARROW / 2 columns of 2 bytes is twice as large.
_SMALL = 1 << 24
# Most columns, an odd number of them -> bytes of a tile, num_warps; measured at N 1, 3, 33, 201 and 1001.
_ODD = ((16, 4096, 4), (64, 2048, 1), (256, 4096, 2), (1024, 8192, 4))
# Columns over and up to, BLOCK_N, num_warps; 2 bytes an element, rows of whole vectors: x up to _FEW_BYTES, any x.
_FEW_BYTES = 1 << 25
_FEW = ((1536, 4096, 2048, 4), (4096, 8192, 4096, 8))
_EVEN = ((1536, 2048, 2048, 4),)
# Bytes an element -> (most columns, BLOCK_N, num_warps, pipe), the best of a sweep on an H200 at N 1000 to 64001.
_BLOCKS = {
    2: (
        (2048, 512, 2, 0), (4096, 1024, 4, 0), (12_288, 2048, 8, 0), (24_576, 4096, 16, 0), (49_152, 16_384, 32, 0),
        (2**31, 8192, 32, 0),
    ),
    4: (
        (4096, 1024, 8, 0), (12_288, 2048, 16, 0), (20_480, 4096, 16, 0), (40_960, 8192, 32, 0),
        (2**31, 16_384, 32, 1),
    ),
}  # fmt: skip
# Rows of more columns than _LONG that start anywhere, with 2 bytes an element.
_LONG, _LONG_RAGGED = 24_576, ((49_152, 8192, 32, 0), (2**31, 16_384, 16, 1))


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    if set(config) != set(_CONFIG_KEYS):
        raise InputError(
            f"softmax: configuration keys are {','.join(sorted(config))}; expected {','.join(_CONFIG_KEYS)}"
        )
    if target not in _TARGETS:
        raise InputError(f"softmax: target {target} is unknown; expected one of: {', '.join(_TARGETS)}")
    if target == "sm_75" and dtype == "bf16":
        raise InputError("softmax: sm_75 has no bf16; expected fp16 or fp32")
    for key, least, most in (("block_m", 1, 4096), ("block_n", 1, 65_536), ("num_warps", 1, 32)):
        value = config[key]
        if not least <= value <= most or value & (value - 1):
            raise InputError(f"softmax: {key} is {value}; expected a power of two from {least} to {most}")
    for key in ("pipe",):
        if config[key] not in (0, 1):
            raise InputError(f"softmax: {key} is {config[key]}; expected 0 or 1")
    if config["pdl"] not in (0, 1) or (config["pdl"] and target not in _PDL_TARGETS):
        raise InputError(f"softmax: pdl is {config['pdl']}; expected 0, or 1 from sm_90 up")
    tile = config["block_m"] * config["block_n"]
    if tile > _MOST_A_THREAD * 32 * config["num_warps"]:
        raise InputError(
            f"softmax: tile of {config['block_m']} × {config['block_n']} exceeds {config['num_warps']} warps; "
            f"expected at most {_MOST_A_THREAD} elements a thread, which stay in registers"
        )
    if config["block_m"] > 1 and config["block_n"] < shape["N"]:
        raise InputError(f"softmax: block_m is {config['block_m']}; expected 1 where a block holds less than a row")


_CONFIG_KEYS = ("block_m", "block_n", "num_warps", "pipe", "pdl")
_PDL_TARGETS = ("sm_90", "sm_100")
_MOST_A_THREAD = 64


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return what Triton needs to compile the kernel without a GPU."""
    pointers = dict.fromkeys(("x_ptr", "y_ptr"), f"*{dtype}")
    constants = _constants(config, shape["N"], DTYPE_BYTES[dtype])
    return Ahead(
        function=softmax_kernel,
        signature={**pointers, "n_rows": "i32", **dict.fromkeys(constants, "constexpr")},
        constants=constants,
        options={"num_warps": config["num_warps"], **_early(config)},
    )


CASES: tuple[dict[str, int], ...] = (
    {"M": 4096, "N": 4096},
    {"M": 65536, "N": 4096},
    {"M": 8192, "N": 65536},
    {"M": 65536, "N": 1},
    {"M": 1, "N": 65536},
    {"M": 1, "N": 1},
    {"M": 1009, "N": 1031},
)


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing: whole rows in registers, and rows in blocks."""
    n, element, own = shape["N"], DTYPE_BYTES[dtype], config_for(shape, dtype, target)
    whole = 1 << (n - 1).bit_length()
    tiles = itertools.product((2, 4, 8, 16, 32), (whole,), (1, 2, 4, 8, 16)) if n <= 2 * _NARROW else ()
    blocks = itertools.product((1,), (512, 1024, 2048, 4096, 8192, 16_384), (1, 2, 4, 8, 16, 32))
    yield _candidate(own, n, shape["M"], element)
    for block_m, block_n, num_warps in itertools.chain(tiles, blocks):
        if block_n > 2 * whole:
            continue
        config = {**own, "block_m": block_m, "block_n": block_n, "num_warps": num_warps}
        yield _candidate(config, n, shape["M"], element)


def _candidate(config: Config, n: int, m: int, element: int) -> Candidate:
    held = config["block_m"] * config["block_n"] // (32 * config["num_warps"])
    blocks = -(-n // config["block_n"])
    return Candidate(
        config=config,
        tiles=-(-m // config["block_m"]),
        tile_flops=5 * config["block_m"] * n,
        # All blocks of a row but the last are read twice.
        tile_bytes=element * config["block_m"] * (2 * n - n // blocks),
        warps=config["num_warps"],
        # Elements in fp32, the scales beside them, and some for sums and addresses.
        registers=held + held // 2 + 24,
        shared_bytes=4 * config["block_m"] * config["num_warps"],
    )


KERNEL = Kernel(
    name="softmax",
    operation=SOFTMAX,
    summary="softmax of rows",
    formula="y = exp(x - max(x)) / Σ exp(x - max(x))",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="the second read of long rows (L1, L2), corrections where a running maximum rises",
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(3.1e-8, 5e-4, "one rounding to 11 bits, or to a multiple of 2**-24 below 2**-14"),
        "bf16": Tolerance(1e-12, 4e-3, "one rounding to 8 bits; arithmetic is fp32"),
        "fp32": Tolerance(1e-12, 5e-6, "the exponent's argument is rounded to 24 bits at a size of up to 12"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu},
    reference=reference,
    launched="^softmax_kernel$",
    baselines={"torch-eager": prepare_torch_eager, "torch-compile": prepare_torch_compile},
    ahead=ahead,
    candidates=candidates,
)

"""Compute y = rmsnorm(x; g, eps), one norm a row.

Formula: y[m, n] = x[m, n] · g[n] / sqrt(mean_n(x[m, n]²) + eps)
Shapes: x (M, N), g (N,), y (M, N), row-major and of one dtype (fp16, bf16 or fp32).
Traffic: e · (M·N + N) bytes read and e · M·N written, e bytes an element.
Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv 1910.07467, equation 4.
The work model excludes: re-reads of g by each program (L1, L2), the second read of rows of several blocks but for their
last (L1, L2), the shifted copies of g for ragged rows (8 or 4 · e · N bytes written and read, L2), and the M divisions
and roots.

Precision: squares, their sum and the scaling are fp32; one rounding to the dtype. Determinism: each row is one
program's sum in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Ahead, Candidate, Config, Kernel, Launch, Tolerance, import_triton, keeping
from ledger.operations import RMSNORM, RMSNORM_EPS, Shape
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
def _load_gain(pointers, mask, FAR: tl.constexpr):
    # Where a row fills the L1 until it is read again, the gain must not push it out.
    if FAR:
        values = tl.load(pointers, mask=mask, other=0.0, cache_modifier=".cg")
    else:
        values = tl.load(pointers, mask=mask, other=0.0, eviction_policy="evict_last")
    return values.to(tl.float32)


@triton.jit
def _store(pointers, y, mask):
    tl.store(pointers, y.to(pointers.dtype.element_ty), mask=mask, cache_modifier=".cs")


@triton.jit
def rmsnorm_copies(
    gain_ptr, copies_ptr, N_COLS: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    head = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gain = tl.load(gain_ptr + head + cols, mask=head + cols < N_COLS, other=0.0)
    tl.store(copies_ptr + head * STEP + cols, gain, mask=cols < STEP)


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
    gain_ptr,
    y_ptr,
    n_rows,
    eps,
    N_COLS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    GAIN_STEP: tl.constexpr,
    WARPS: tl.constexpr,
):
    # A chunk of columns is one load of a warp, a group of rows one of all warps: no warp waits for another.
    WIDTH: tl.constexpr = BLOCK_N if BLOCK_N < 32 * VECTOR else 32 * VECTOR
    CHUNKS: tl.constexpr = (N_COLS + WIDTH - 1) // WIDTH
    AT_ONCE: tl.constexpr = 32 * VECTOR * WARPS // WIDTH if RAGGED or N_COLS % VECTOR == 0 else BLOCK_M
    ROWS: tl.constexpr = BLOCK_M if BLOCK_M < AT_ONCE else AT_ONCE
    GROUPS: tl.constexpr = BLOCK_M // ROWS
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
            edge = tl.load(x_tile + starts + edge_cols, mask=edge_mask, other=0.0)
            edges = edges + (edge.to(tl.float32),)  # noqa: RUF005
        for chunk in tl.static_range(CHUNKS):
            places, mask, head = _places(starts, row_mask, cols, chunk, N_COLS, VECTOR, RAGGED)
            x = tl.load(x_tile + places, mask=mask, other=0.0)
            held = held + (x.to(tl.float32),)  # noqa: RUF005
    # All groups share what is read once. Ragged rows read the copies for their first vectors, each when it is due.
    gains = ()
    for chunk in tl.static_range(0 if RAGGED else CHUNKS):
        every = tl.broadcast_to(chunk * WIDTH + cols, (ROWS, WIDTH))
        gains = gains + (_load_gain(gain_ptr + every, every < N_COLS, False),)  # noqa: RUF005
    for group in tl.static_range(GROUPS):
        starts, row_mask = _group(group, shift, n_rows, N_COLS, BLOCK_M, ROWS)
        if RAGGED:
            edge_cols, edge_mask = _edge_places(starts, row_mask, N_COLS, VECTOR)
            edge = edges[group]
            edge_gain = tl.load(gain_ptr + edge_cols, mask=edge_mask, other=0.0).to(tl.float32)
        squares = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
        for chunk in tl.static_range(CHUNKS):
            x = held[group * CHUNKS + chunk]
            squares += x * x
        total = tl.sum(squares, axis=1)
        if RAGGED:
            total += tl.sum(edge * edge, axis=1)
        rstd = tl.rsqrt(total / N_COLS + eps)[:, None]
        if RAGGED:
            _store(y_tile + starts + edge_cols, edge * rstd * edge_gain, edge_mask)
        for chunk in tl.static_range(CHUNKS):
            places, mask, head = _places(starts, row_mask, cols, chunk, N_COLS, VECTOR, RAGGED)
            if RAGGED:
                gain = _load_gain(gain_ptr + head * GAIN_STEP + (chunk * WIDTH + cols), mask, False)
            else:
                gain = gains[chunk]
            _store(y_tile + places, held[group * CHUNKS + chunk] * rstd * gain, mask)


@triton.jit
def _one_row(
    x_ptr,
    gain_ptr,
    y_ptr,
    eps,
    N_COLS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    GAIN_STEP: tl.constexpr,
    FAR: tl.constexpr,
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
    gains = gain_ptr + head * GAIN_STEP + cols
    if FULL > 0:
        squares = tl.zeros((1, BLOCK_N // LANE), dtype=tl.float32)
        for block in tl.range(0, FULL, loop_unroll_factor=2):
            x = tl.load(x_tile + block * BLOCK_N, mask=whole, other=0.0, eviction_policy="evict_last").to(tl.float32)
            squares += _by_lane(x * x, LANE)
    last = tl.load(x_tile + FULL * BLOCK_N, mask=last_mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    gain = _load_gain(gains + FULL * BLOCK_N, last_mask, FAR)
    total = tl.sum(squares + _by_lane(last * last, LANE) if FULL > 0 else last * last, axis=1)
    if RAGGED:
        # The columns that no vector covers: before the first, after the last.
        lane = tl.arange(0, 4 * VECTOR)
        edge_cols = tl.where(lane < VECTOR, lane, head + FULL * BLOCK_N + left + lane - VECTOR)
        edge_mask = tl.where(lane < VECTOR, lane < head, edge_cols < N_COLS)
        edge = tl.load(x_ptr + start + edge_cols, mask=edge_mask, other=0.0).to(tl.float32)
        edge_gain = tl.load(gain_ptr + edge_cols, mask=edge_mask, other=0.0).to(tl.float32)
        total += tl.sum(edge * edge)
    rstd = tl.rsqrt(total / N_COLS + eps)[:, None]
    _store(y_tile + FULL * BLOCK_N, last * rstd * gain, last_mask)
    if RAGGED:
        _store(y_ptr + start + edge_cols, edge * tl.sum(rstd) * edge_gain, edge_mask)
    # Backwards: what was read last is still in the nearest cache.
    for block in tl.range(FULL - 1, -1, -1):
        x = tl.load(x_tile + block * BLOCK_N, mask=whole, other=0.0, eviction_policy="evict_first").to(tl.float32)
        gain = _load_gain(gains + block * BLOCK_N, whole, FAR)
        _store(y_tile + block * BLOCK_N, x * rstd * gain, whole)


@triton.jit
def rmsnorm_kernel(
    x_ptr,
    gain_ptr,
    y_ptr,
    n_rows,
    eps,
    N_COLS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    GAIN_STEP: tl.constexpr,
    FAR: tl.constexpr,
    WARPS: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        # The next kernel's blocks may be placed now; this one's wait until all before it is written.
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    if BLOCK_M > 1:
        _whole_rows(x_ptr, gain_ptr, y_ptr, n_rows, eps, N_COLS, BLOCK_M, BLOCK_N, VECTOR, RAGGED, GAIN_STEP, WARPS)
    else:
        _one_row(x_ptr, gain_ptr, y_ptr, eps, N_COLS, BLOCK_N, VECTOR, RAGGED, GAIN_STEP, FAR)


def rmsnorm(x: Tensor, gain: Tensor, *, eps: float = RMSNORM_EPS) -> Tensor:
    """Return rmsnorm(x; gain, eps) over the last dimension.

    Shapes: x (…, N), gain (N,) of one dtype on one GPU; the result as x.
    """
    import torch

    inputs = {"x": x.contiguous().view(-1, x.shape[-1]), "gain": gain.contiguous()}
    out = torch.empty_like(inputs["x"])
    major, minor = torch.cuda.get_device_capability(x.device)
    shape = {"M": out.shape[0], "N": out.shape[1]}
    _prepare(inputs, out, config_for(shape, _dtype_name(x), f"sm_{major}{minor}"), eps)()
    return out.view(x.shape)


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return the launch."""
    return _prepare(inputs, out, config, RMSNORM_EPS)


def _prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config, eps: float) -> Launch:
    x, gain = inputs["x"], inputs["gain"]
    n_rows, n_cols = x.shape
    constants = _constants(config, n_cols, x.element_size())
    grid = (-(-n_rows // config["block_m"]),)
    copies, copy = _copies(gain, constants, config) if config["copies"] else (gain, None)

    def launch() -> None:
        if copy is not None:
            copy()
        rmsnorm_kernel[grid](x, copies, out, n_rows, eps, **constants, num_warps=config["num_warps"], **_early(config))

    return launch


def _copies(gain: Tensor, constants: Mapping[str, int], config: Config) -> tuple[Tensor, Launch]:
    """Return room for the gain shifted by 0 to VECTOR - 1 elements, and the launch that fills it.

    The first vector of a ragged row lies at one of VECTOR places, so in one of the copies its gain is aligned.
    """
    import torch

    vector, step = constants["VECTOR"], constants["GAIN_STEP"]
    copies = torch.empty(vector * step, dtype=gain.dtype, device=gain.device)
    grid = (vector, -(-step // _COPIED_AT_ONCE))
    fixed = {"N_COLS": constants["N_COLS"], "STEP": step, "BLOCK": _COPIED_AT_ONCE, "PDL": config["pdl"]}
    return copies, lambda: rmsnorm_copies[grid](gain, copies, **fixed, num_warps=4, **_early(config))


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
        "RAGGED": int(_ragged(n_cols, vector, config["block_m"], config["copies"])),
        "GAIN_STEP": -(-n_cols // vector) * vector if config["copies"] else 1,
        "FAR": config["far"],
        "WARPS": config["num_warps"],
        "PDL": config["pdl"],
    }


def _ragged(n_cols: int, vector: int, block_m: int, copies: int) -> bool:
    """Tell whether rows start anywhere and are read as the aligned vectors within them and an edge on either side."""
    several = vector == 8 and n_cols > (_NARROW // 8 if copies else _NARROW // 2)
    return n_cols % vector != 0 and n_cols >= 2 * vector and (block_m == 1 or several)


def _dtype_name(tensor: Tensor) -> Dtype:
    import torch

    names: dict[object, Dtype] = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    if tensor.dtype not in names:
        raise InputError(f"rmsnorm: dtype is {tensor.dtype}; expected float16, bfloat16 or float32")
    return names[tensor.dtype]


def prepare_torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return the same result by plain torch calls, one after the other."""
    import torch

    x, gain = inputs["x"], inputs["gain"]

    def launch() -> None:
        x32 = x.float()
        rstd = torch.rsqrt(x32.square().mean(dim=1, keepdim=True) + RMSNORM_EPS)
        out.copy_(x32 * rstd * gain.float())

    return launch


def prepare_torch_eager(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return torch's own rms_norm."""
    import torch

    x, gain = inputs["x"], inputs["gain"]
    inner = list(gain.shape)
    return keeping(lambda: torch.nn.functional.rms_norm(x, inner, gain, RMSNORM_EPS))


def prepare_torch_compile(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return what torch.compile makes of rms_norm."""
    compiled, x, gain = _compiled(), inputs["x"], inputs["gain"]
    return keeping(lambda: compiled(x, gain))


@functools.cache
def _compiled() -> Callable[[Tensor, Tensor], Tensor]:
    import torch

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(x, list(gain.shape), gain, RMSNORM_EPS)

    # One compiled function for all shapes; without this the ninth shape would silently run eagerly.
    torch._dynamo.config.recompile_limit = 1024
    compiled: Callable[[Tensor, Tensor], Tensor] = torch.compile(norm, dynamic=False)
    return compiled


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64."""
    import torch

    x = inputs["x"].double()
    return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + RMSNORM_EPS) * inputs["gain"].double()


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count the squares, their sum and two products an element; x, g and y move once."""
    m, n, element = shape["M"], shape["N"], DTYPE_BYTES[dtype]
    return Work(flops=4 * m * n, bytes_read=element * (m * n + n), bytes_written=element * m * n)


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return fp32: operands are widened before any arithmetic."""
    return "fp32"


_TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100")
_MULTIPROCESSORS = {"sm_75": 40, "sm_80": 108, "sm_89": 58, "sm_90": 132, "sm_100": 148}


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    if target not in _TARGETS:
        raise InputError(f"rmsnorm: no launch configuration for {target}; expected one of: {', '.join(_TARGETS)}")
    m, n, element = shape["M"], shape["N"], DTYPE_BYTES[dtype]
    vector, x_bytes = 16 // element, m * n * element
    block_m = 1
    block_n, num_warps, far = next(rest for most, *rest in _BLOCKS[element] if n <= most)
    if n % vector and element == 2 and 32_768 < n <= 49_152:
        block_n, num_warps, far = _LONG_RAGGED
    elif n % vector == 0 and element == 2 and n > _NARROW:
        # As many columns at once as a program can hold where all of x is soon read, or where two blocks make a row.
        blocks = _FEW if x_bytes <= _FEW_BYTES else _EVEN
        block_n, num_warps = next((rest for least, most, *rest in blocks if least < n <= most), (block_n, num_warps))
    if target != "sm_90":
        # Not measured there; compiled for other targets, the longest blocks spill at some N.
        block_n = min(block_n, 4096)
    copied = int(n % vector != 0 and x_bytes >= _WORTH_COPIES)
    if n <= _NARROW and (n % vector == 0 or element == 2 or n <= _NARROW // 2):
        # Whole rows, several a program: more than 0.8 programs a nanosecond cannot be started.
        block_n = 1 << (n - 1).bit_length()
        block_m, num_warps = max(_TILE_BYTES // (block_n * element), 1), 4
        tiles = _SMALL_TILES if x_bytes < _SMALL else _TILES
        if element == 2 and n % vector:
            tiles = _RAGGED_TILES if copied else _SMALL_RAGGED_TILES
        if element == 2:
            found = ((rows, warps) for least, most, rows, warps in tiles if least < n <= most)
            block_m, num_warps = next(found, (block_m, num_warps))
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
        "copies": int(copied and _ragged(n, vector, block_m, copied)),
        "far": far,
        "pdl": int(target in _PDL_TARGETS),
    }


_NARROW, _TILE_BYTES = 1024, 4096
# Columns over and up to, rows and warps of a tile with 2 bytes an element: any x, x below _SMALL bytes, rows that start
# anywhere with copies of the gain and without. Elsewhere _TILE_BYTES make a tile, and four warps.
_SMALL = 1 << 24
_TILES = ((128, 256, 16, 8),)
_SMALL_TILES = ((128, 256, 16, 8), (512, 1024, 8, 8))
_RAGGED_TILES = ((128, 256, 8, 8), (256, 512, 4, 4), (512, 1024, 2, 2))
_SMALL_RAGGED_TILES = ((512, 1024, 2, 2),)
# Blocks of rows of 32769 to 49152 columns that start anywhere, with 2 bytes an element.
_LONG_RAGGED = (8192, 32, 1)
# Columns over and up to, BLOCK_N, num_warps; 2 bytes an element, rows of whole vectors: x up to _FEW_BYTES, any x.
_FEW_BYTES = 1 << 25
_FEW = ((1536, 2048, 2048, 4), (2048, 4096, 4096, 8))
_EVEN = ((1536, 2048, 2048, 4), (6144, 12_288, 2048, 16))
# Elements that the launch of the copies copies at once; bytes of x from which its microsecond pays.
_COPIED_AT_ONCE, _WORTH_COPIES = 1024, 1 << 24
# Bytes an element -> (most columns, BLOCK_N, num_warps, far), the best of a sweep on an H200 at N 1000 to 64001.
_BLOCKS = {
    2: (
        (1024, 1024, 2, 0), (2048, 512, 4, 0), (4096, 1024, 8, 0), (12_288, 2048, 8, 0), (20_480, 4096, 16, 0),
        (32_768, 8192, 32, 0), (49_152, 16_384, 32, 0), (2**31, 32_768, 32, 0),
    ),
    4: (
        (1024, 1024, 4, 0), (4096, 1024, 8, 0), (12_288, 2048, 16, 0), (20_480, 4096, 16, 0), (49_152, 16_384, 32, 0),
        (2**31, 16_384, 32, 1),
    ),
}  # fmt: skip


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    if set(config) != set(_CONFIG_KEYS):
        raise InputError(
            f"rmsnorm: configuration keys are {','.join(sorted(config))}; expected {','.join(_CONFIG_KEYS)}"
        )
    if target not in _TARGETS:
        raise InputError(f"rmsnorm: target {target} is unknown; expected one of: {', '.join(_TARGETS)}")
    if target == "sm_75" and dtype == "bf16":
        raise InputError("rmsnorm: sm_75 has no bf16; expected fp16 or fp32")
    for key, least, most in (("block_m", 1, 4096), ("block_n", 1, 65_536), ("num_warps", 1, 32)):
        value = config[key]
        if not least <= value <= most or value & (value - 1):
            raise InputError(f"rmsnorm: {key} is {value}; expected a power of two from {least} to {most}")
    for key in ("copies", "far"):
        if config[key] not in (0, 1):
            raise InputError(f"rmsnorm: {key} is {config[key]}; expected 0 or 1")
    if config["pdl"] not in (0, 1) or (config["pdl"] and target not in _PDL_TARGETS):
        raise InputError(f"rmsnorm: pdl is {config['pdl']}; expected 0, or 1 from sm_90 up")
    if config["copies"] and not _ragged(shape["N"], 16 // DTYPE_BYTES[dtype], config["block_m"], 1):
        raise InputError(f"rmsnorm: copies is {config['copies']}; expected 0 but for ragged rows")
    tile = config["block_m"] * config["block_n"]
    if tile > _MOST_A_THREAD * 32 * config["num_warps"]:
        raise InputError(
            f"rmsnorm: tile of {config['block_m']} × {config['block_n']} exceeds {config['num_warps']} warps; "
            f"expected at most {_MOST_A_THREAD} elements a thread, which stay in registers"
        )
    if config["block_m"] > 1 and config["block_n"] < shape["N"]:
        raise InputError(f"rmsnorm: block_m is {config['block_m']}; expected 1 where a block holds less than a row")


_CONFIG_KEYS = ("block_m", "block_n", "num_warps", "copies", "far", "pdl")
_PDL_TARGETS = ("sm_90", "sm_100")
_MOST_A_THREAD = 64


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return what Triton needs to compile the kernel without a GPU."""
    pointers = dict.fromkeys(("x_ptr", "gain_ptr", "y_ptr"), f"*{dtype}")
    constants = _constants(config, shape["N"], DTYPE_BYTES[dtype])
    return Ahead(
        function=rmsnorm_kernel,
        signature={
            **pointers, "n_rows": "i32", "eps": "fp32", **dict.fromkeys(constants, "constexpr"),
        },
        constants=constants,
        options={"num_warps": config["num_warps"], **_early(config)},
    )  # fmt: skip


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
        ragged = _ragged(n, 16 // element, block_m, own["copies"])
        config = {**own, "block_m": block_m, "block_n": block_n, "num_warps": num_warps}
        config["copies"] = int(own["copies"] and ragged)
        yield _candidate(config, n, shape["M"], element)


def _candidate(config: Config, n: int, m: int, element: int) -> Candidate:
    held = config["block_m"] * config["block_n"] // (32 * config["num_warps"])
    blocks = -(-n // config["block_n"])
    return Candidate(
        config=config,
        tiles=-(-m // config["block_m"]),
        tile_flops=4 * config["block_m"] * n,
        # All blocks of a row but the last are read twice.
        tile_bytes=element * config["block_m"] * (2 * n - n // blocks),
        warps=config["num_warps"],
        # Elements in fp32, the scales beside them, and some for sums and addresses.
        registers=held + held // 2 + 24,
        shared_bytes=4 * config["block_m"] * config["num_warps"],
    )


KERNEL = Kernel(
    name="rmsnorm",
    operation=RMSNORM,
    summary="root-mean-square norm of rows",
    formula="y = x · g / sqrt(mean(x²) + 1e-6)",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="re-reads of g, the second read of long rows, shifted copies of g for ragged ones, divisions and roots",
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(1e-7, 5e-4, "one rounding to 11 bits, outputs from 2**-9; arithmetic is fp32"),
        "bf16": Tolerance(1e-7, 4e-3, "one rounding to 8 bits; arithmetic is fp32"),
        "fp32": Tolerance(1e-7, 4e-6, "up to 65536 squares are summed in 24 bits, in a tree"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu},
    reference=reference,
    launched="^rmsnorm_(kernel|copies)$",
    baselines={"torch-eager": prepare_torch_eager, "torch-compile": prepare_torch_compile},
    ahead=ahead,
    candidates=candidates,
)

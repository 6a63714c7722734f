"""Compute y = softmax(x), one distribution a row.

Formula: y[m, n] = exp(x[m, n] - max_n x[m]) / Σ_n exp(x[m, n] - max_n x[m])
Shapes: x, y (M, N), row-major and of one dtype (fp16, bf16 or fp32).
Traffic: e · M·N bytes read and e · M·N written, e bytes an element.
Source: the running maximum of long rows is Milakov and Gimelshein, "Online normalizer calculation for softmax",
arXiv 1805.02867, algorithm 3.
The work model excludes: the second read of rows of more than 2048 columns (L1, L2), and the
correction of the running sum where the maximum rises. An exponential counts as one operation.

Precision: all arithmetic is fp32; one rounding to the dtype. Determinism: each row is one program's work in a fixed
order, so the same inputs give the same bits. A row of minus infinities gives NaN, as torch's does.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Ahead, Config, Kernel, Launch, Tolerance, import_triton
from ledger.operations import SOFTMAX, Shape
from ledger.records import Dtype, Path, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def _rows_left(n_rows, first, BLOCK_M: tl.constexpr):
    # One row a tile is always there: a mask that the compiler knows to be true costs nothing.
    present = tl.arange(0, BLOCK_M) < n_rows - first
    return (tl.full((BLOCK_M,), True, tl.int1) if BLOCK_M == 1 else present)[:, None]


@triton.jit
def _columns_left(start, N_COLS: tl.constexpr, BLOCK_N: tl.constexpr):
    present = start + tl.arange(0, BLOCK_N) < N_COLS
    return tl.full((BLOCK_N,), True, tl.int1) if N_COLS % BLOCK_N == 0 else present


@triton.jit
def _tile(tile, x_ptr, y_ptr, n_rows, N_COLS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    first = tl.cast(tile, tl.int64) * BLOCK_M
    row_mask = _rows_left(n_rows, first, BLOCK_M)
    # Within a tile 32 bits are enough for an offset; only its first row needs 64.
    offsets = tl.arange(0, BLOCK_M)[:, None] * N_COLS + tl.arange(0, BLOCK_N)[None, :]
    x_tile = x_ptr + first * N_COLS + offsets
    y_tile = y_ptr + first * N_COLS + offsets
    if BLOCK_N >= N_COLS:
        mask = row_mask & _columns_left(0, N_COLS, BLOCK_N)[None, :]
        x = tl.load(x_tile, mask=mask, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        # A row beyond the last has only minus infinity; 0 keeps inf - inf out.
        highest = tl.where(row_mask, tl.max(x, axis=1, keep_dims=True), 0.0)
        powers = tl.exp(x - highest)
        y = powers * (1.0 / tl.sum(powers, axis=1, keep_dims=True))
        tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=mask)
    else:
        # Each lane of LANE neighbours keeps a maximum and a sum of its own; they meet after the loop.
        LANE: tl.constexpr = 8 if BLOCK_N >= 8 else BLOCK_N
        lane_highest = tl.full((BLOCK_M, BLOCK_N // LANE), -float("inf"), dtype=tl.float32)
        lane_total = tl.zeros((BLOCK_M, BLOCK_N // LANE), dtype=tl.float32)
        for start in tl.range(0, N_COLS, BLOCK_N, loop_unroll_factor=2):
            mask = row_mask & _columns_left(start, N_COLS, BLOCK_N)[None, :]
            x = tl.load(x_tile + start, mask=mask, other=-float("inf"), eviction_policy="evict_last")
            x = tl.reshape(x.to(tl.float32), (BLOCK_M, BLOCK_N // LANE, LANE))
            risen = tl.maximum(lane_highest, tl.max(x, axis=2))
            # A lane that has seen nothing but minus infinity would compute inf - inf.
            safe = tl.where(risen == -float("inf"), 0.0, risen)
            lane_total = lane_total * tl.exp(lane_highest - safe) + tl.sum(tl.exp(x - safe[:, :, None]), axis=2)
            lane_highest = risen
        highest = tl.where(row_mask, tl.max(lane_highest, axis=1, keep_dims=True), 0.0)
        inverse = 1.0 / tl.sum(lane_total * tl.exp(lane_highest - highest), axis=1, keep_dims=True)
        for start in tl.range(0, N_COLS, BLOCK_N, loop_unroll_factor=4):
            mask = row_mask & _columns_left(start, N_COLS, BLOCK_N)[None, :]
            x = tl.load(x_tile + start, mask=mask, other=-float("inf"), eviction_policy="evict_first")
            y = tl.exp(x.to(tl.float32) - highest) * inverse
            tl.store(y_tile + start, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    N_COLS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ONE_TILE: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        # The next kernel's blocks may be placed now; this one's wait until all before it is written.
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    if ONE_TILE:
        _tile(tl.program_id(0), x_ptr, y_ptr, n_rows, N_COLS, BLOCK_M, BLOCK_N)
    else:
        for tile in tl.range(tl.program_id(0), tl.cdiv(n_rows, BLOCK_M), tl.num_programs(0), num_stages=STAGES):
            _tile(tile, x_ptr, y_ptr, n_rows, N_COLS, BLOCK_M, BLOCK_N)


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
    constants = _constants(config, n_rows, n_cols)
    grid = (min(-(-n_rows // config["block_m"]), config["programs"]),)

    def launch() -> None:
        softmax_kernel[grid](x, out, n_rows, **constants, num_warps=config["num_warps"], **_early(config))

    return launch


def _early(config: Config) -> dict[str, bool]:
    """Return the launch option of programmatic dependent launch, which older targets and versions do not know."""
    return {"launch_pdl": True} if config["pdl"] else {}


def _constants(config: Config, n_rows: int, n_cols: int) -> dict[str, int]:
    return {
        # Known when it compiles: masks that are always true disappear, and loops unroll.
        "N_COLS": n_cols,
        "BLOCK_M": config["block_m"],
        "BLOCK_N": config["block_n"],
        "ONE_TILE": int(-(-n_rows // config["block_m"]) <= config["programs"]),
        "STAGES": config["num_stages"],
        "PDL": config["pdl"],
    }


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

    def launch() -> None:
        compiled(x)

    return launch


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
    m, n, multiprocessors = shape["M"], shape["N"], _MULTIPROCESSORS[target]
    narrow = DTYPE_BYTES[dtype] < 4
    block_m, block_n, num_warps, programs = 1, 1 << (n - 1).bit_length(), 8, _MOST_PROGRAMS
    if n <= _NARROW:
        # Rows of a few elements: programs walk many tiles, which costs less than starting one for each.
        block_m, num_warps, programs = 512 // block_n, 1, 16 * multiprocessors
    elif n <= 1024:
        block_m, num_warps = max(2048 // block_n, 4), 4
    elif n > 2048 and (n % _VECTOR == 0 or n > _RAGGED) and (n > 4096 or (narrow and n % 512 == 0 and n != block_n)):
        block_n, num_warps = next(loop for most, *loop in _LOOPS if n <= most)
    # Fewer rows a tile where there are too few to give every multiprocessor two programs.
    while block_m > 1 and -(-m // block_m) < 2 * multiprocessors:
        block_m //= 2
    return {
        "block_m": block_m,
        "block_n": block_n,
        "num_warps": num_warps,
        "num_stages": 1,
        "programs": programs,
        "pdl": int(target in _PDL_TARGETS),
    }


_NARROW, _VECTOR, _RAGGED = 64, 8, 8192
# Most columns -> (BLOCK_N, num_warps) of rows read twice, the second time from the caches; measured on an H200 at
# N 3584, 6144, 12288, 24576 and 49152.
_LOOPS = ((4096, 512, 4), (8192, 2048, 8), (16_384, 4096, 16), (32_768, 8192, 16), (2**31, 8192, 32))


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
    for key, most in (("num_stages", 8), ("programs", _MOST_PROGRAMS)):
        if not 1 <= config[key] <= most:
            raise InputError(f"softmax: {key} is {config[key]}; expected 1 to {most}")
    if config["pdl"] not in (0, 1) or (config["pdl"] and target not in _PDL_TARGETS):
        raise InputError(f"softmax: pdl is {config['pdl']}; expected 0, or 1 from sm_90 up")
    tile = config["block_m"] * config["block_n"]
    if tile > _MOST_A_THREAD * 32 * config["num_warps"]:
        raise InputError(
            f"softmax: tile of {config['block_m']} × {config['block_n']} exceeds {config['num_warps']} warps; "
            f"expected at most {_MOST_A_THREAD} elements a thread, which stay in registers"
        )
    need = (config["num_stages"] - 1) * tile * DTYPE_BYTES[dtype] + 4096
    if need > _SHARED_BYTES[target]:
        raise InputError(
            f"softmax: tiles need {need} bytes of shared memory; {target} has {_SHARED_BYTES[target]} a block: "
            "take fewer num_stages"
        )


_CONFIG_KEYS = ("block_m", "block_n", "num_warps", "num_stages", "programs", "pdl")
_PDL_TARGETS = ("sm_90", "sm_100")
_MOST_PROGRAMS = 2**31 - 1
_SHARED_BYTES = {"sm_75": 65_536, "sm_80": 166_912, "sm_89": 101_376, "sm_90": 232_448, "sm_100": 232_448}
_MOST_A_THREAD = 64


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return what Triton needs to compile the kernel without a GPU."""
    pointers = dict.fromkeys(("x_ptr", "y_ptr"), f"*{dtype}")
    constants = _constants(config, shape["M"], shape["N"])
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

KERNEL = Kernel(
    name="softmax",
    operation=SOFTMAX,
    summary="softmax of rows",
    formula="y = exp(x - max(x)) / Σ exp(x - max(x))",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="the second read of rows beyond 2048 columns (L1, L2), corrections where a running maximum rises",
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
)

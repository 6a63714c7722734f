"""Compute C = max(0, A · B + bias) with a grid of persistent programs.

Formula: C[m, n] = max(0, Σ_k A[m, k] · B[k, n] + bias[n])
Shapes: A (M, K), B (K, N), bias (N), C (M, N), all row-major and of one dtype (fp16 or bf16).
Traffic: e · (M·K + K·N + N) bytes read and e · M·N written, e bytes an element: each operand once.
Source: the grouped tile order is the one of Triton's matrix-multiplication tutorial.
The work model excludes: re-reads of A, B and bias by other tiles (L2), the padding of M, N and K to whole
tiles, and with `stream` the sums that programs leave for one another (at most 20 MB written and read, L2).

Precision: fp32 accumulation, bias and maximum in fp32, one rounding to the dtype; NaN stays NaN.
Determinism: each element is one program's sum in the order of k, or with `stream` the sum of a few programs' sums,
added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import (
    Ahead,
    AheadCuda,
    Candidate,
    Config,
    Kernel,
    Launch,
    Prepare,
    Tolerance,
    import_triton,
    keeping,
    variations,
)
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_cuda, tensor_map
from ledger.kernels.common.gluon import import_gluon
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.operations import MATMUL_BIAS_RELU, Shape
from ledger.records import Dtype, Path, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper = _gluon.gluon, _gluon.language, _gluon.hopper
async_load, async_store = _gluon.async_load, _gluon.async_store


@triton.jit
def matmul_bias_relu_kernel(
    a,
    b,
    c,
    bias,
    n_rows,
    n_cols,
    n_inner,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SUBTILES: tl.constexpr,
    TMA: tl.constexpr,
):
    tiles_m = tl.cdiv(n_rows, BLOCK_M)
    tiles_n = tl.cdiv(n_cols, BLOCK_N)
    tiles_k = tl.cdiv(n_inner, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=TMA):
        # GROUP_M rows of tiles share the columns of B that they read while these are in L2.
        group = tile // (GROUP_M * tiles_n)
        group_rows = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
        in_group = tile % (GROUP_M * tiles_n)
        row = (group * GROUP_M + in_group % group_rows) * BLOCK_M
        col = (in_group // group_rows) * BLOCK_N
        rows = row + tl.arange(0, BLOCK_M)
        cols = col + tl.arange(0, BLOCK_N)

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in tl.range(tiles_k):
            if TMA:
                a_tile = a.load([row, step * BLOCK_K])
                b_tile = b.load([step * BLOCK_K, col])
            else:
                inner = step * BLOCK_K + tl.arange(0, BLOCK_K)
                a_tile = tl.load(
                    a + rows.to(tl.int64)[:, None] * n_inner + inner[None, :],
                    mask=(rows < n_rows)[:, None] & (inner < n_inner)[None, :],
                    other=0.0,
                )
                b_tile = tl.load(
                    b + inner.to(tl.int64)[:, None] * n_cols + cols[None, :],
                    mask=(inner < n_inner)[:, None] & (cols < n_cols)[None, :],
                    other=0.0,
                )
            acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee")
        acc += tl.load(bias + cols, mask=cols < n_cols, other=0.0).to(tl.float32)[None, :]
        # Not a maximum, which would turn NaN into 0.
        acc = tl.where(acc < 0.0, 0.0, acc)

        if TMA:
            # The store goes through shared memory: in parts it leaves room for one more load stage.
            if SUBTILES == 2:
                halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
                left, right = tl.split(halves)
                c.store([row, col], left.to(c.dtype))
                c.store([row, col + BLOCK_N // 2], right.to(c.dtype))
            else:
                c.store([row, col], acc.to(c.dtype))
        else:
            tl.store(
                c + rows.to(tl.int64)[:, None] * n_cols + cols[None, :],
                acc.to(c.dtype.element_ty),
                mask=(rows < n_rows)[:, None] & (cols < n_cols)[None, :],
            )


@gluon.jit
def _tile_origin(tile, n_rows, n_cols, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    tiles_m = gl.cdiv(n_rows, BLOCK_M)
    tiles_n = gl.cdiv(n_cols, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    group_rows = gl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    in_group = tile % (GROUP_M * tiles_n)
    return (group * GROUP_M + in_group % group_rows) * BLOCK_M, (in_group // group_rows) * BLOCK_N


@gluon.jit
def _load_tiles(a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M: gl.constexpr):
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a.block_shape[0]
    BLOCK_K: gl.constexpr = a.block_shape[1]
    BLOCK_N: gl.constexpr = b.block_shape[1]
    tiles = gl.cdiv(n_rows, BLOCK_M) * gl.cdiv(n_cols, BLOCK_N)
    steps = gl.cdiv(n_inner, BLOCK_K)
    done = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = _tile_origin(tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP_M)
        for step in range(steps):
            stage = done % STAGES
            hopper.mbarrier.wait(empty.index(stage), (done // STAGES & 1) ^ 1)
            hopper.mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes)
            async_load(a, [row, step * BLOCK_K], full.index(stage), a_ring.index(stage))
            async_load(b, [step * BLOCK_K, col], full.index(stage), b_ring.index(stage))
            done += 1


@gluon.jit
def _multiply_tiles(
    c, bias, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner,
    GROUP_M: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[2]
    ROWS: gl.constexpr = c.block_shape[0]
    COLS: gl.constexpr = c.block_shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    tiles = gl.cdiv(n_rows, BLOCK_M) * gl.cdiv(n_cols, BLOCK_N)
    steps = gl.cdiv(n_inner, BLOCK_K)
    done = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = _tile_origin(tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP_M)
        # Loaded before the product, added after it: the latency passes meanwhile.
        cols = col + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
        added = gl.load(bias + cols, mask=cols < n_cols, other=0.0)
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        for step in range(steps):
            stage = done % STAGES
            hopper.mbarrier.wait(full.index(stage), done // STAGES & 1)
            acc = hopper.warpgroup_mma(
                a_ring.index(stage).slice(PART * ROWS, ROWS), b_ring.index(stage), acc, is_async=True
            )
            acc = hopper.warpgroup_mma_wait(1, deps=(acc,))
            hopper.mbarrier.arrive(empty.index((done + STAGES - 1) % STAGES), count=1, pred=step > 0)
            done += 1
        acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
        hopper.mbarrier.arrive(empty.index((done + STAGES - 1) % STAGES), count=1)
        # The store of the tile before may still read the buffer; the loads of the next tile are under way.
        buffer = c_smem.index(PART)
        total = acc + added.to(gl.float32)[None, :]
        # Not a maximum, which would turn NaN into 0.
        out = gl.where(total < 0.0, 0.0, total).to(c.dtype)
        if COLS == BLOCK_N:
            hopper.tma.store_wait(0)
            tl.debug_barrier()
            buffer.store(out)
            hopper.fence_async_shared()
            tl.debug_barrier()
            async_store(c, [row + PART * ROWS, col], buffer)
        else:
            left, right = gl.split(gl.permute(gl.reshape(out, [ROWS, 2, COLS]), (0, 2, 1)))
            for half in gl.static_range(2):
                hopper.tma.store_wait(0)
                tl.debug_barrier()
                buffer.store(right if half else left)
                hopper.fence_async_shared()
                tl.debug_barrier()
                async_store(c, [row + PART * ROWS, col + half * COLS], buffer)
    hopper.tma.store_wait(0)


@gluon.jit
def matmul_bias_relu_pipelined(a, b, c, bias, n_rows, n_cols, n_inner, STAGES: gl.constexpr, GROUP_M: gl.constexpr):
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES, a.block_shape[0], a.block_shape[1]], a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES, b.block_shape[0], b.block_shape[1]], b.layout)
    c_smem = gl.allocate_shared_memory(c.dtype, [2, c.block_shape[0], c.block_shape[1]], c.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        hopper.mbarrier.init(full.index(i), count=1)
        hopper.mbarrier.init(empty.index(i), count=2)
    FIRST: gl.constexpr = 0
    SECOND: gl.constexpr = 1
    gl.warp_specialize(
        [
            (_multiply_tiles, (c, bias, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner, GROUP_M, FIRST)),
            (_multiply_tiles, (c, bias, a_ring, b_ring, c_smem, full, empty, n_rows, n_cols, n_inner, GROUP_M, SECOND)),
            (_load_tiles, (a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M)),
        ],
        [4, 1],
        [232, 40],
    )


def _cluster_source(config: Config, dtype: Dtype) -> CudaSource:
    rows, cols = _cluster_shape(config)
    defines = {
        "BLOCK_M": config["block_m"], "BLOCK_N": config["block_n"], "STAGES": config["num_stages"], "ROWS": rows,
        "COLS": cols, "SPLIT": _split(config), "STREAM": int(config["stream"] == 1), "BF16": int(dtype == "bf16"),
    }  # fmt: skip
    # A is K-major, B is MN-major.
    products = Wgmma(n=config["block_n"], kind="bf16" if dtype == "bf16" else "f16", b_transposed=True)
    return cuda_source(
        __name__, "cluster.cu", entry="matmul_bias_relu_cluster", defines=defines, generated=wgmma_header(products)
    )


def _cluster_shape(config: Config) -> tuple[int, int]:
    """Return how many programs of a cluster lie one above the other, and how many side by side."""
    return (2, 1) if config["pipeline"] == 2 else divmod(config["pipeline"], 10)


def _split(config: Config) -> int:
    """Return how many programs divide a tile's steps of k."""
    return 2 if config["stream"] == 2 else 1


def _cluster_threads(config: Config) -> int:
    # The warps that multiply, and four of which one loads.
    return 32 * config["num_warps"] + 128


def _cluster_bytes(config: Config) -> int:
    ring = config["num_stages"] * 2 * config["block_k"] * (config["block_m"] + config["block_n"])
    # Each warp that multiplies stores through two buffers of 16 rows by 64 columns.
    store = config["num_warps"] * 2 * 16 * 64 * 2
    if _split(config) > 1:
        # Half of a tile's sums come from the other program, to where the ring was.
        return max(ring, 2 * config["block_m"] * config["block_n"] + store) + 16 * config["num_stages"]
    return ring + store + 16 * config["num_stages"]


def _cluster_programs(config: Config, shape: Shape) -> int:
    (rows, cols), split = _cluster_shape(config), _split(config)
    tiles = _ceil_div(shape["M"], rows * config["block_m"]) * _ceil_div(shape["N"], cols * config["block_n"])
    if split > 1:
        return rows * cols * split * tiles
    pieces = tiles * _ceil_div(shape["K"], config["block_k"]) if config["stream"] else tiles
    return rows * cols * min(pieces, config["programs"] // (rows * cols))


def _prepare_cluster(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[1]
    dtype = _dtype_name(a)
    programs = _cluster_programs(config, {"M": n_rows, "N": n_cols, "K": n_inner})
    shared = programs if config["stream"] == 1 else 0
    partial = torch.empty(shared * config["block_m"] * config["block_n"] + 4, dtype=torch.float32, device=a.device)
    ready = torch.zeros(config["block_m"] // 64 * shared + 1, dtype=torch.int32, device=a.device)
    rows, cols = _cluster_shape(config)
    # Where boxes of 64 columns do not divide among programs, their rows do.
    shares = rows if config["block_n"] // 64 % rows and config["block_k"] % rows == 0 else 1
    maps = [
        tensor_map(a, (config["block_m"] // cols, config["block_k"]), promotion=128),
        tensor_map(b, (config["block_k"] // shares, 64), promotion=128),
        tensor_map(out, (16 // _split(config), 64), promotion=128),
    ]
    return prepare_cuda(
        _cluster_source(config, dtype),
        programs=programs,
        threads=_cluster_threads(config),
        shared_bytes=shared_bytes(config, dtype),
        arguments=[*maps, inputs["bias"], partial, ready, n_rows, n_cols, n_inner, config["group_m"]],
        overlap=bool(config["pdl"]),
    )


def matmul_bias_relu(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """Return max(0, a · b + bias).

    Shapes: a (M, K), b (K, N), bias (N) of one dtype on one GPU; the result (M, N).
    """
    import torch

    inputs = {"a": a.contiguous(), "b": b.contiguous(), "bias": bias.contiguous()}
    out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    shape = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1]}
    major, minor = torch.cuda.get_device_capability(a.device)
    config = config_for(shape, _dtype_name(a), f"sm_{major}{minor}")
    if any(tensor.data_ptr() % _TMA_ALIGNMENT for tensor in inputs.values()):
        config = {**_portable_config(shape, _dtype_name(a), f"sm_{major}{minor}"), "tma": 0}
    prepare_triton(inputs, out, config)()
    return out


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Make the descriptors and return the launch."""
    if config["pipeline"]:
        prepare = _prepare_pipelined if config["pipeline"] == 1 else _prepare_cluster
        return prepare(inputs, out, config)
    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[1]
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    tiles = _ceil_div(n_rows, block_m) * _ceil_div(n_cols, block_n)
    operands: tuple[object, object, object] = (a, b, out)
    if config["tma"]:
        operands = (
            _descriptor(a, [block_m, block_k]),
            _descriptor(b, [block_k, block_n]),
            _descriptor(out, [block_m, block_n // config["subtiles"]]),
        )
    grid = (min(tiles, config["programs"]),)
    bias = inputs["bias"]

    def launch() -> None:
        matmul_bias_relu_kernel[grid](
            *operands, bias, n_rows, n_cols, n_inner,
            **_constants(config), num_warps=config["num_warps"], num_stages=config["num_stages"],
        )  # fmt: skip

    return launch


def _prepare_pipelined(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[1]
    tensors = {"a": a, "b": b, "c": out}
    operands = [
        TensorDescriptor.from_tensor(tensors[name], block, _layout(block)) for name, block in _blocks(config).items()
    ]
    tiles = _ceil_div(n_rows, config["block_m"]) * _ceil_div(n_cols, config["block_n"])
    programs = (min(tiles, config["programs"]),)
    bias = inputs["bias"]

    def launch() -> None:
        matmul_bias_relu_pipelined[programs](
            *operands, bias, n_rows, n_cols, n_inner, **_pipelined_constants(config), num_warps=config["num_warps"]
        )

    return launch


def _blocks(config: Config) -> dict[str, list[int]]:
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    # Two groups of warps multiply and store half of the rows each.
    return {"a": [block_m, block_k], "b": [block_k, block_n], "c": [block_m // 2, block_n // config["subtiles"]]}


def _layout(block: list[int]) -> Any:
    return gl.NVMMASharedLayout.get_default_for(block, gl.float16)


def _pipelined_constants(config: Config) -> dict[str, int]:
    return {"STAGES": config["num_stages"], "GROUP_M": config["group_m"]}


def _descriptor(tensor: Tensor, block: list[int]) -> object:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(tensor, block)


def _constants(config: Config) -> dict[str, int]:
    names = ("block_m", "block_n", "block_k", "group_m", "subtiles", "tma")
    return {name.upper(): config[name] for name in names}


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _dtype_name(tensor: Tensor) -> Dtype:
    import torch

    names: dict[object, Dtype] = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    if tensor.dtype not in names:
        raise InputError(f"matmul_bias_relu: dtype is {tensor.dtype}; expected float16, bfloat16 or float32")
    return names[tensor.dtype]


def prepare_torch(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return torch.addmm and relu: the CPU implementation, and a baseline on a GPU."""
    import torch

    a, b, bias = inputs["a"], inputs["b"], inputs["bias"]
    return lambda: torch.addmm(bias, a, b, out=out).relu_()


def prepare_activation(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return the library's product with bias and rectifier in its epilogue."""
    import torch

    a, b, bias = inputs["a"], inputs["b"], inputs["bias"]
    return lambda: torch._addmm_activation(bias, a, b, use_gelu=False, out=out)


def _prepare_compiled(mode: str) -> Prepare:
    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        compiled = _compiled(mode)
        a, b, bias = inputs["a"], inputs["b"], inputs["bias"]
        return keeping(lambda: compiled(a, b, bias))

    return prepare


@lru_cache(maxsize=2)
def _compiled(mode: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    import torch

    def unfused(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        return torch.relu(torch.addmm(bias, a, b))

    # One compiled function for all shapes; without this the ninth shape would silently run eagerly.
    torch._dynamo.config.recompile_limit = 1024
    compiled: Callable[[Tensor, Tensor, Tensor], Tensor] = torch.compile(unfused, mode=mode, dynamic=False)
    return compiled


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product, with bias and rectifier, in float64."""
    total = inputs["a"].double() @ inputs["b"].double() + inputs["bias"].double()
    return total.clamp_(min=0.0)


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one multiply-add (two operations) for each (m, n, k), one addition and one maximum for each (m, n)."""
    m, n, k = shape["M"], shape["N"], shape["K"]
    element = DTYPE_BYTES[dtype]
    return Work(
        flops=2 * m * n * k + 2 * m * n,
        bytes_read=element * (m * k + k * n + n),
        bytes_written=element * m * n,
    )


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return the instruction path, as found in the compiled code (tests/test_kernel_ahead.py).

    On sm_75 Triton compiles the product to scalar fp32 multiply-adds: no tensor-core instruction.
    """
    if dtype == "fp32" or (target == "sm_75" and implementation == "triton"):
        return "fp32"
    if implementation == "triton":
        return "fp16_tensor" if dtype == "fp16" else "bf16_tensor"
    return "fp16" if dtype == "fp16" else "bf16_tensor"


_TMA_ALIGNMENT = 16
_TMA_TARGETS = ("sm_90", "sm_100")
_MULTIPROCESSORS = {"sm_75": 40, "sm_80": 108, "sm_89": 58, "sm_90": 132, "sm_100": 148}
_SHARED_BYTES = {"sm_75": 65_536, "sm_80": 166_912, "sm_89": 101_376, "sm_90": 232_448, "sm_100": 232_448}

# Target -> (BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, rate of a tile's arithmetic relative to the first) for
# two-byte dtypes. On sm_90 the two large tiles were measured on an H200 at M = N = K = 3584, 3840 and 5120; the other
# rows are estimates.
_TILES: dict[str, tuple[tuple[int, int, int, int, int, float], ...]] = {
    "sm_75": ((64, 64, 32, 8, 2, 1.0), (32, 32, 32, 4, 2, 0.7)),
    "sm_80": ((128, 128, 32, 8, 4, 1.0), (64, 64, 64, 4, 4, 0.7)),
    "sm_89": ((128, 128, 32, 8, 3, 1.0), (64, 64, 64, 4, 3, 0.7)),
    "sm_90": (
        (128, 256, 64, 8, 3, 1.0),
        (128, 128, 64, 4, 5, 0.9),
        (64, 128, 64, 4, 6, 0.7),
        (64, 64, 128, 4, 5, 0.45),
        (64, 32, 128, 4, 6, 0.25),
    ),
    "sm_100": ((128, 256, 64, 8, 3, 1.0), (128, 128, 64, 4, 5, 0.9), (128, 64, 64, 4, 6, 0.5)),
}


# As above where rows are no multiple of 16 bytes: elements are then loaded one by one, and what a thread has on its way
# must stay in registers (no spills, as compiled ahead of time; not measured).
_RAGGED: dict[str, tuple[tuple[int, int, int, int, int, float], ...]] = {
    "sm_90": ((128, 128, 32, 8, 3, 1.0), (64, 64, 64, 8, 3, 0.7)),
    "sm_100": ((128, 64, 64, 8, 3, 1.0),),
}

# What a multiprocessor of sm_90 does in a clock: operations that it multiplies; bytes that it asks L2 for, by the lines
# of L2 in which 128 of them lie (one where rows are a multiple of 128 bytes long, else two); bytes that come into its
# shared memory, asked for by itself or by another program of its cluster. Programs of a single
# wave ask for the same lines at once. As measured for kernels/matmul.py.
_TENSOR_FLOPS = 4096
_ASKED_BYTES = {1: 64.0, 2: 24.9}
_ASKED_AT_ONCE_BYTES = 100.0
_ARRIVING_BYTES = 76.4

# The rest is fitted to its times of 23 shapes on an H200 (docs/kernels.md), so that the frame with the fewest clocks is
# nearly the fastest of those that were timed; a clock means little but beside another. Rows and columns of the cluster
# kernel's tiles -> rate of their arithmetic:
_CLUSTER_TILES = {
    (128, 256): 0.993, (128, 128): 1.0, (192, 192): 0.952, (128, 192): 0.949, (64, 256): 1.0, (192, 128): 0.9,
    (64, 192): 0.9,
}  # fmt: skip
# The pipelined kernel's, which has no clusters -> its stages, and the rate.
_PIPELINED_TILES = {(128, 256): (3, 1.03), (128, 128): (6, 0.959)}
# Programs of a cluster, which wait for one another -> rate; and the rate of tiles that are divided.
_CLUSTER_RATES = {1: 1.0, 2: 0.959, 4: 0.93}
_DIVIDED_RATE = 0.909
# Clocks: of a tile of 128 x 256 beside its steps, of a launch that hands on sums, of one that does not begin before the
# one ahead of it ends.
_TILE_CLOCKS = 5_560
_DIVIDED_CLOCKS = 10_700
_LAUNCH_CLOCKS = 4_510
# What the first loads and the last store of the portable kernel's programs cost, in tiles.
_EDGE = 0.125

_Tile = tuple[int, int, int, int, int, float]
# (pipeline, BLOCK_M, BLOCK_N, stream)
_Frame = tuple[int, int, int, int]
# Where another frame was measured faster for kernels/matmul.py than the one with the fewest clocks.
_TUNED: dict[tuple[int, int, int], _Frame] = {
    (777, 3000, 4104): (22, 128, 192, 1),
    (2816, 4352, 6144): (2, 128, 128, 1),
    (3072, 3584, 2560): (2, 128, 128, 1),
    (3000, 5000, 7000): (2, 128, 256, 1),
    (5000, 5000, 520): (2, 128, 256, 0),
    (5120, 5120, 5120): (2, 128, 128, 1),
}
_SM_REGISTERS = 65_536
# How many programs an H200 holds at once, by `pipeline`: a cluster lies within a group of multiprocessors.
_RESIDENT = {11: 132, 2: 132, 22: 120, 41: 120}
# Rows of tiles, of a cluster or of a program, that share the columns of B which they read while these are in L2.
_GROUP = 8


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape: the kernel and tile whose waves take least time.

    Raises: InputError for a target without one.
    """
    portable = _portable_config(shape, dtype, target)
    if target != "sm_90" or DTYPE_BYTES[dtype] != 2 or not portable["tma"]:
        return portable
    frame = _frame_of(shape)
    if min(_tile_clocks(tile, shape) for tile in _TILES[target][2:]) < _clocks(frame, shape):
        return portable
    pipeline, block_m, block_n, stream = frame
    if pipeline == 1:
        stages = _PIPELINED_TILES[block_m, block_n][0]
        return {**portable, **_cluster_keys(block_m, block_n, 1), "num_warps": 4, "num_stages": stages}
    config = {**portable, **_cluster_keys(block_m, block_n, pipeline), "stream": stream, "pdl": 1}
    return {**config, "group_m": _group_rows(config, shape), "num_stages": _depths(config, dtype)[-1]}


def _frame_of(shape: Shape) -> _Frame:
    """Return kernel, cluster and tile for a shape: what was tuned, or what takes the fewest clocks."""
    tuned = _TUNED.get((shape["M"], shape["N"], shape["K"]))
    # A tile's steps in two halves were the fastest nowhere, nor were tiles divided without clusters.
    frames = [
        *((1, *tile, 0) for tile in _PIPELINED_TILES),
        *((pipeline, *tile, 0) for pipeline in _RESIDENT for tile in _CLUSTER_TILES),
        *((pipeline, *tile, 1) for pipeline in (2, 22, 41) for tile in _CLUSTER_TILES),
    ]
    return tuned or min(frames, key=lambda one: _clocks(one, shape))


def _depths(config: Config, dtype: Dtype) -> list[int]:
    """Return how many stages fit into shared memory, 2 to 8."""
    return [n for n in range(2, 9) if shared_bytes({**config, "num_stages": n}, dtype) <= _SHARED_BYTES["sm_90"]]


def _cluster_keys(block_m: int, block_n: int, pipeline: int) -> dict[str, int]:
    return {
        "block_m": block_m, "block_n": block_n, "block_k": 64, "num_warps": block_m // 16, "subtiles": 1, "tma": 1,
        "pipeline": pipeline, "programs": _RESIDENT.get(pipeline, 132),
    }  # fmt: skip


def _group_rows(config: Config, shape: Shape) -> int:
    """Return how many rows of clusters' tiles form a group: groups are of equal size, at most _GROUP."""
    tiles_m = _ceil_div(shape["M"], _cluster_shape(config)[0] * config["block_m"])
    return _ceil_div(tiles_m, _ceil_div(tiles_m, _GROUP))


def _extra_clocks(config: Config) -> int:
    """Return what a launch costs beside its tiles, in clocks, where sums are handed on between programs."""
    return (0, _DIVIDED_CLOCKS, 0)[config["stream"]]


def _clocks(frame: _Frame, shape: Shape) -> float:
    """Return about how many clocks the busiest program of a frame takes for a shape, beside what all of them take."""
    pipeline, block_m, block_n, stream = frame
    rows, cols = (1, 1) if pipeline == 1 else _cluster_shape({"pipeline": pipeline})
    slots = _RESIDENT.get(pipeline, 132) // (rows * cols)
    tiles = _ceil_div(shape["M"], rows * block_m) * _ceil_div(shape["N"], cols * block_n)
    rate = _PIPELINED_TILES[block_m, block_n][1] if pipeline == 1 else _CLUSTER_TILES[block_m, block_n]
    rate *= (_DIVIDED_RATE if stream else 1) * _CLUSTER_RATES[rows * cols]
    bytes_of = {**_ASKED_BYTES, 1: _ASKED_BYTES[1] if tiles > slots else _ASKED_AT_ONCE_BYTES}
    asked_a = 2 * block_m / cols / bytes_of[_lines(shape["K"])]
    asked_b = 2 * block_n / rows / bytes_of[_lines(shape["N"])]
    arriving = 2 * (block_m + block_n) / _ARRIVING_BYTES
    inner = max(2 * block_m * block_n / _TENSOR_FLOPS / rate, asked_a + asked_b, arriving) * shape["K"]
    # Fewer tiles than clusters are not divided: each would be added up from many parts at once.
    waves = tiles / slots if stream and tiles > slots else math.ceil(tiles / slots)
    once = inner + _TILE_CLOCKS * block_m * block_n / (128 * 256)
    return waves * once + (_DIVIDED_CLOCKS if stream else _LAUNCH_CLOCKS if pipeline == 1 else 0)


def _tile_clocks(tile: _Tile, shape: Shape) -> float:
    """Return the same for a tile of the portable kernel."""
    block_m, block_n, rate = tile[0], tile[1], tile[-1]
    waves = math.ceil(_ceil_div(shape["M"], block_m) * _ceil_div(shape["N"], block_n) / _MULTIPROCESSORS["sm_90"])
    arriving = 2 * (block_m * _lines(shape["K"]) + block_n * _lines(shape["N"])) / _ARRIVING_BYTES
    return (waves + _EDGE) * max(2 * block_m * block_n / _TENSOR_FLOPS / rate, arriving) * shape["K"]


def _lines(columns: int) -> int:
    return 1 if columns % 64 == 0 else 2


def _cost(shape: Shape, target: str) -> Callable[[_Tile], float]:
    slots = _MULTIPROCESSORS[target]

    def cost(tile: _Tile) -> float:
        tiles = _ceil_div(shape["M"], tile[0]) * _ceil_div(shape["N"], tile[1])
        return math.ceil(tiles / slots) * tile[0] * tile[1] / tile[5]

    return cost


def _portable_config(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    if target not in _TILES:
        raise InputError(
            f"matmul_bias_relu: no launch configuration for {target}; expected one of: {', '.join(_TILES)}"
        )
    element = DTYPE_BYTES[dtype]
    aligned = shape["N"] * element % _TMA_ALIGNMENT == 0 and shape["K"] * element % _TMA_ALIGNMENT == 0
    tiles = _TILES[target] if aligned else _RAGGED.get(target, _TILES[target])
    block_m, block_n, block_k, num_warps, num_stages, _ = min(tiles, key=_cost(shape, target))
    config = {
        "block_m": block_m,
        "block_n": block_n,
        "block_k": block_k if element == 2 else block_k // 2,
        "group_m": 8,
        "subtiles": 1,
        "programs": _MULTIPROCESSORS[target],
        "num_warps": num_warps,
        "num_stages": num_stages,
        "tma": int(target in _TMA_TARGETS and aligned),
        "pipeline": 0,
        "stream": 0,
        "pdl": 0,
    }
    while shared_bytes(config, dtype) > _SHARED_BYTES[target] and config["num_stages"] > 1:
        config["num_stages"] -= 1
    return config


def shared_bytes(config: Config, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    element = DTYPE_BYTES[dtype]
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    loop = config["num_stages"] * element * block_k * (block_m + block_n)
    if config["pipeline"] >= 2:
        return _cluster_bytes(config)
    # With TMA the result leaves through a buffer of its own; without, through what the loop has left.
    if config["tma"]:
        return loop + element * block_m * block_n // config["subtiles"] + 1024
    # The last term covers barriers.
    return max(loop, 4 * block_m * (block_n + 8)) + 64


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    if set(config) != set(_CONFIG_KEYS):
        raise InputError(
            f"matmul_bias_relu: configuration keys are {','.join(sorted(config))}; expected {','.join(_CONFIG_KEYS)}"
        )
    if target not in _SHARED_BYTES:
        raise InputError(f"matmul_bias_relu: target {target} is unknown; expected one of: {', '.join(_SHARED_BYTES)}")
    if target == "sm_75" and dtype == "bf16":
        raise InputError("matmul_bias_relu: sm_75 has no bf16; expected fp16 or fp32")
    for key, least, most in _CONFIG_RANGES:
        value = config[key]
        # The cluster kernel's tiles are multiples of 64.
        free = config["pipeline"] >= 2 and key in ("block_m", "block_n", "num_warps")
        if not free and (not least <= value <= most or value & (value - 1)):
            raise InputError(f"matmul_bias_relu: {key} is {value}; expected a power of two from {least} to {most}")
    if target == "sm_90" and (config["block_m"] < 64 or config["num_warps"] % 4):
        raise InputError(
            f"matmul_bias_relu: block_m is {config['block_m']} with {config['num_warps']} warps; expected at least 64 "
            "and a multiple of 4 warps: wgmma computes 64 rows in groups of 4 warps"
        )
    for key in ("num_stages", "group_m", "programs"):
        if config[key] < 1:
            raise InputError(f"matmul_bias_relu: {key} is {config[key]}; expected at least 1")
    _check_tma(config, shape, dtype, target)
    if config["pipeline"] >= 2:
        _check_cluster(config, dtype, target)
    elif config["stream"] or config["pdl"]:
        raise InputError(
            f"matmul_bias_relu: stream is {config['stream']} and pdl {config['pdl']} with pipeline "
            f"{config['pipeline']}; expected 0"
        )
    elif config["pipeline"]:
        _check_pipeline(config, dtype, target)
    if shared_bytes(config, dtype) > _SHARED_BYTES[target]:
        raise InputError(
            f"matmul_bias_relu: tiles need {shared_bytes(config, dtype)} bytes of shared memory; {target} has "
            f"{_SHARED_BYTES[target]} a block: take fewer num_stages or a smaller block_k"
        )


def _check_pipeline(config: Config, dtype: Dtype, target: str) -> None:
    if config["pipeline"] != 1 or target != "sm_90" or DTYPE_BYTES[dtype] != 2 or not config["tma"]:
        raise InputError(
            f"matmul_bias_relu: pipeline is {config['pipeline']} on {target} in {dtype}; expected 0, or 1 or 2 on "
            "sm_90 in fp16 or bf16 with tma 1"
        )
    if config["num_warps"] != 4 or config["block_m"] < 128 or config["num_stages"] < 2:
        raise InputError("matmul_bias_relu: pipeline is 1; expected 4 warps, block_m at least 128 and 2 stages or more")


def _check_cluster(config: Config, dtype: Dtype, target: str) -> None:
    pipeline = config["pipeline"]
    rows, cols = _cluster_shape(config)
    if pipeline < 0 or not 1 <= rows <= 5 or cols not in (1, 2) or rows * cols * _split(config) > 8:
        raise InputError(
            f"matmul_bias_relu: pipeline is {pipeline} with stream {config['stream']}; expected 0 to 2, or two "
            "digits: at most 5 programs of a cluster one above the other, 1 or 2 side by side, at most 8 in all, with "
            "stream 2 twice as many"
        )
    if target != "sm_90" or DTYPE_BYTES[dtype] != 2:
        raise InputError(
            f"matmul_bias_relu: pipeline is {pipeline} on {target} in {dtype}; expected sm_90 and fp16 or bf16"
        )
    block_m, block_n = config["block_m"], config["block_n"]
    if block_m not in (64, 128, 192) or block_n not in (64, 128, 192, 256):
        raise InputError(
            f"matmul_bias_relu: tiles are {block_m} x {block_n} with pipeline {pipeline}; expected 64, 128 or 192 by "
            "64 to 256 in steps of 64"
        )
    fixed = {"block_k": 64, "num_warps": block_m // 16, "subtiles": 1, "tma": 1}
    if any(config[key] != value for key, value in fixed.items()):
        raise InputError(
            f"matmul_bias_relu: pipeline is {pipeline}; expected {', '.join(f'{k} {v}' for k, v in fixed.items())}"
        )
    if config["stream"] not in (0, 1, 2) or config["pdl"] not in (0, 1):
        raise InputError(f"matmul_bias_relu: pipeline is {pipeline}; expected stream 0, 1 or 2 and pdl 0 or 1")
    if config["num_stages"] < 2 or config["programs"] < rows * cols:
        raise InputError(
            f"matmul_bias_relu: pipeline is {pipeline}; expected at least 2 stages and {rows * cols} programs"
        )


def _check_tma(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    if config["tma"] not in (0, 1):
        raise InputError(f"matmul_bias_relu: tma is {config['tma']}; expected 0 or 1")
    if not config["tma"]:
        if config["subtiles"] != 1:
            raise InputError(f"matmul_bias_relu: subtiles is {config['subtiles']} without tma; expected 1")
        return
    if target not in _TMA_TARGETS:
        raise InputError(f"matmul_bias_relu: tma is 1, but {target} has no tensor memory accelerator; expected 0")
    for key in ("N", "K"):
        if shape[key] * DTYPE_BYTES[dtype] % _TMA_ALIGNMENT:
            raise InputError(
                f"matmul_bias_relu: tma is 1 with {key}={shape[key]} in {dtype}; expected rows of a multiple of "
                f"{_TMA_ALIGNMENT} bytes, or tma 0"
            )


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
    """Return what the compiler needs to compile the kernel without a GPU."""
    if config["pipeline"] >= 2:
        return AheadCuda(
            _cluster_source(config, dtype),
            programs=_cluster_programs(config, shape),
            threads=_cluster_threads(config),
            shared_bytes=shared_bytes(config, dtype),
        )
    if config["pipeline"]:
        return _ahead_pipelined(config, dtype)
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    blocks = {"a": (block_m, block_k), "b": (block_k, block_n), "c": (block_m, block_n // config["subtiles"])}
    operands = {
        name: f"tensordesc<{dtype}[{rows},{cols}]>" if config["tma"] else f"*{dtype}"
        for name, (rows, cols) in blocks.items()
    }
    constants = _constants(config)
    sizes = dict.fromkeys(("n_rows", "n_cols", "n_inner"), "i32")
    return Ahead(
        function=matmul_bias_relu_kernel,
        signature={**operands, "bias": f"*{dtype}", **sizes, **dict.fromkeys(constants, "constexpr")},
        constants=constants,
        options={"num_warps": config["num_warps"], "num_stages": config["num_stages"]},
    )


def _ahead_pipelined(config: Config, dtype: Dtype) -> Ahead:
    operands = {
        name: f"tensordesc<{dtype}[{block[0]},{block[1]}],{_layout(block)!r}>"
        for name, block in _blocks(config).items()
    }
    constants = _pipelined_constants(config)
    sizes = dict.fromkeys(("n_rows", "n_cols", "n_inner"), "i32")
    return Ahead(
        function=matmul_bias_relu_pipelined,
        signature={**operands, "bias": f"*{dtype}", **sizes, **dict.fromkeys(constants, "constexpr")},
        constants=constants,
        options={"num_warps": config["num_warps"]},
    )


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing: tiles of both kernels, as many stages as fit or one less."""
    own = config_for(shape, dtype, target)
    yield _candidate(own, shape, dtype)
    if target == "sm_90" and own["tma"] and DTYPE_BYTES[dtype] == 2:
        for config in _cluster_configs(own, shape):
            yield from _candidates(config, shape, dtype, target, depths=1)
        pipelined = {**own, "pipeline": 1, "num_warps": 4, "block_k": 64, "stream": 0, "pdl": 0}
        choices = {
            "block_m": (128, 256), "block_n": (64, 128, 256), "subtiles": (1, 2),
        }  # fmt: skip
        for config in variations(pipelined, choices):
            yield from _candidates(config, shape, dtype, target)
    portable = {**own, "pipeline": 0, "subtiles": 1, "stream": 0, "pdl": 0}
    choices = {
        "block_m": (32, 64, 128), "block_n": (32, 64, 128, 256), "block_k": (32, 64, 128), "num_warps": (4, 8),
    }  # fmt: skip
    for config in variations(portable, choices):
        yield from _candidates(config, shape, dtype, target)


def _cluster_configs(own: Config, shape: Shape) -> Iterator[dict[str, int]]:
    """Yield the cluster kernel's tiles in every cluster, whole, divided and halved; other groups for the rule's own."""
    for (block_m, block_n), pipeline in itertools.product(_CLUSTER_TILES, _RESIDENT):
        config = {**own, **_cluster_keys(block_m, block_n, pipeline)}
        config["group_m"] = _group_rows(config, shape)
        yield from variations({**config, "pdl": 1}, {"stream": (0, 1, 2)})
    if own["pipeline"] >= 2:
        yield from variations(own, {"group_m": (2, 4, 6, 8, 12), "pdl": (0, 1)})


def _candidates(config: Config, shape: Shape, dtype: Dtype, target: str, *, depths: int = 2) -> Iterator[Candidate]:
    fitting = [n for n in range(2, 9) if shared_bytes({**config, "num_stages": n}, dtype) <= _SHARED_BYTES[target]]
    for stages in fitting[-depths:]:
        yield _candidate({**config, "num_stages": stages}, shape, dtype)


def _candidate(config: Config, shape: Shape, dtype: Dtype) -> Candidate:
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    inner = block_k * _ceil_div(shape["K"], block_k)
    # The pipelined kernel is three groups of four warps that share all registers of an SM.
    warps, registers = 12, 168
    if not config["pipeline"]:
        warps = config["num_warps"]
        # The sums, and some for addresses and operands on their way.
        registers = block_m * block_n // (32 * warps) + 48
    tiles = _ceil_div(shape["M"], block_m) * _ceil_div(shape["N"], block_n)
    read_m, read_n, parts, extra = block_m, block_n, 1, 0
    lines = _lines if config["tma"] and DTYPE_BYTES[dtype] == 2 else lambda columns: 1
    if config["pipeline"] >= 2:
        rows, cols = _cluster_shape(config)
        warps, registers = config["num_warps"] + 4, min(168, _SM_REGISTERS // (32 * (config["num_warps"] + 4)))
        tiles = rows * cols * _ceil_div(shape["M"], rows * block_m) * _ceil_div(shape["N"], cols * block_n)
        # Of its tiles a program reads a share; the others of its cluster read the rest for it.
        read_m, read_n = block_m // cols, block_n // rows
        # Where tiles are divided by steps there are as many equal pieces as steps.
        parts = (1, inner // block_k, 2)[config["stream"]]
        extra = _extra_clocks(config)
    return Candidate(
        config=config,
        tiles=tiles * parts,
        tile_flops=2 * block_m * block_n * inner // parts,
        # Rows of a box that lie in two lines of L2 take both.
        tile_bytes=DTYPE_BYTES[dtype] * (read_m * lines(shape["K"]) + read_n * lines(shape["N"])) * inner // parts,
        warps=warps,
        registers=registers,
        shared_bytes=shared_bytes(config, dtype),
        extra_clocks=extra,
    )


_CONFIG_KEYS = (
    "block_m", "block_n", "block_k", "group_m", "subtiles", "programs", "num_warps", "num_stages", "tma",
    "pipeline", "stream", "pdl",
)  # fmt: skip
_CONFIG_RANGES = (
    ("block_m", 16, 256), ("block_n", 16, 256), ("block_k", 16, 256), ("num_warps", 1, 16), ("subtiles", 1, 2),
)  # fmt: skip

CASES: tuple[dict[str, int], ...] = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 8192, "N": 8192, "K": 8192},
    {"M": 1, "N": 1, "K": 1},
    {"M": 127, "N": 129, "K": 131},
    {"M": 1000, "N": 1512, "K": 2056},
    {"M": 16, "N": 14336, "K": 4096},
)

KERNEL = Kernel(
    name="matmul_bias_relu",
    operation=MATMUL_BIAS_RELU,
    summary="matrix product with a bias and a rectifier",
    formula="C = max(0, A · B + bias)",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="re-reads of A, B, bias and sums handed on between programs (L2), padding to whole tiles",
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(1e-4, 5e-4, "one rounding to 11 bits; the sum is fp32"),
        "bf16": Tolerance(1e-4, 4e-3, "one rounding to 8 bits; the sum is fp32"),
        "fp32": Tolerance(2e-5, 1e-5, "up to 8192 terms are summed in 24 bits, in blocks"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch},
    reference=reference,
    launched="^matmul_bias_relu_(kernel|pipelined|cluster)$",
    baselines={
        "torch_eager": prepare_torch,
        "torch_addmm_activation": prepare_activation,
        "torch_compile_default": _prepare_compiled("default"),
        "torch_compile_max_autotune": _prepare_compiled("max-autotune-no-cudagraphs"),
    },
    ahead=ahead,
    candidates=candidates,
)

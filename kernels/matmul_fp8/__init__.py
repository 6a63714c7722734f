"""Compute C = s · A · Bᵀ of fp8 matrices with a grid of persistent programs.

Formula: C[m, n] = s · Σ_k A[m, k] · B[n, k]
Shapes: A (M, K), B (N, K), both row-major in fp8 e4m3; s one number in fp32; C (M, N) row-major in fp16.
Traffic: M·K + N·K bytes read and 2·M·N written: each operand once.
Source: the layout (both operands with k innermost) is the one that wgmma has for eight-bit types, and that of
torch._scaled_mm with a transposed second operand.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, the
scaling of the result, and with `stream` the sums that programs leave for one another (L2).

Precision: wgmma adds fp8 products with fewer bits than fp32 has. With `promote` its sums over 128 products are added
in fp32 registers; without, the whole sum stays in wgmma, as with the library's fast accumulation. One rounding to
fp16.
Determinism: each element is one program's sum in the order of k, or with `stream` the sum of a few programs' sums,
added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

import math
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
    variations,
)
from ledger.kernels.common.cuda import CudaSource, cuda_source, prepare_cuda, tensor_map
from ledger.kernels.common.gluon import import_gluon
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.operations import MATMUL_FP8, Shape, fp8_scale
from ledger.records import Dtype, Path, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper = _gluon.gluon, _gluon.language, _gluon.hopper
async_load, async_store = _gluon.async_load, _gluon.async_store


@triton.jit
def matmul_fp8_kernel(
    a,
    b,
    c,
    scale,
    n_rows,
    n_cols,
    n_inner,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PROMOTE: tl.constexpr,
    TMA: tl.constexpr,
):
    tiles_m = tl.cdiv(n_rows, BLOCK_M)
    tiles_n = tl.cdiv(n_cols, BLOCK_N)
    tiles_k = tl.cdiv(n_inner, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        # GROUP_M rows of tiles share the rows of B that they read while these are in L2.
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
                b_tile = b.load([col, step * BLOCK_K])
            else:
                inner = step * BLOCK_K + tl.arange(0, BLOCK_K)
                a_tile = tl.load(
                    a + rows.to(tl.int64)[:, None] * n_inner + inner[None, :],
                    mask=(rows < n_rows)[:, None] & (inner < n_inner)[None, :],
                    other=0.0,
                )
                b_tile = tl.load(
                    b + cols.to(tl.int64)[:, None] * n_inner + inner[None, :],
                    mask=(cols < n_cols)[:, None] & (inner < n_inner)[None, :],
                    other=0.0,
                )
            if PROMOTE:
                acc += tl.dot(a_tile, b_tile.T)
            else:
                acc = tl.dot(a_tile, b_tile.T, acc)

        if TMA:
            c.store([row, col], (acc * scale).to(c.dtype))
        else:
            tl.store(
                c + rows.to(tl.int64)[:, None] * n_cols + cols[None, :],
                (acc * scale).to(c.dtype.element_ty),
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
    BLOCK_N: gl.constexpr = b.block_shape[0]
    BLOCK_K: gl.constexpr = a.block_shape[1]
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
            async_load(b, [col, step * BLOCK_K], full.index(stage), b_ring.index(stage))
            done += 1


@gluon.jit
def _halves(whole):
    ROWS: gl.constexpr = whole.shape[0]
    COLS: gl.constexpr = whole.shape[1] // 2
    return gl.split(gl.permute(gl.reshape(whole, [ROWS, 2, COLS]), (0, 2, 1)))


@gluon.jit
def _store_part(c, buffer, part, row, col):
    # The store before may still read the buffer; the loads of the next tile are under way.
    hopper.tma.store_wait(0)
    tl.debug_barrier()
    buffer.store(part)
    hopper.fence_async_shared()
    tl.debug_barrier()
    async_store(c, [row, col], buffer)


@gluon.jit
def _multiply_tiles(
    c, a_ring, b_ring, c_smem, full, empty, scale, n_rows, n_cols, n_inner,
    GROUP_M: gl.constexpr, PROMOTE: gl.constexpr, PART: gl.constexpr,
):  # fmt: skip
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_N: gl.constexpr = b_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    ROWS: gl.constexpr = c.block_shape[0]
    COLS: gl.constexpr = c.block_shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 32])
    tiles = gl.cdiv(n_rows, BLOCK_M) * gl.cdiv(n_cols, BLOCK_N)
    steps = gl.cdiv(n_inner, BLOCK_K)
    TOP: gl.constexpr = PART * ROWS
    done = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = _tile_origin(tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP_M)
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
        part = acc
        for step in range(steps):
            stage = done % STAGES
            hopper.mbarrier.wait(full.index(stage), done // STAGES & 1)
            a_tile = a_ring.index(stage).slice(TOP, ROWS)
            b_tile = b_ring.index(stage).permute((1, 0))
            if PROMOTE:
                part = hopper.warpgroup_mma(a_tile, b_tile, part, use_acc=False, is_async=True)
                part = hopper.warpgroup_mma_wait(0, deps=(part,))
                hopper.mbarrier.arrive(empty.index(stage), count=1)
                acc += part
            else:
                acc = hopper.warpgroup_mma(a_tile, b_tile, acc, is_async=True)
                acc = hopper.warpgroup_mma_wait(1, deps=(acc,))
                hopper.mbarrier.arrive(empty.index((done + STAGES - 1) % STAGES), count=1, pred=step > 0)
            done += 1
        if not PROMOTE:
            acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
            hopper.mbarrier.arrive(empty.index((done + STAGES - 1) % STAGES), count=1)
        buffer = c_smem.index(PART)
        out = (acc * scale).to(c.dtype)
        if COLS == BLOCK_N:
            _store_part(c, buffer, out, row + TOP, col)
        else:
            left, right = _halves(out)
            if COLS == BLOCK_N // 2:
                _store_part(c, buffer, left, row + TOP, col)
                _store_part(c, buffer, right, row + TOP, col + COLS)
            else:
                first, second = _halves(left)
                third, fourth = _halves(right)
                _store_part(c, buffer, first, row + TOP, col)
                _store_part(c, buffer, second, row + TOP, col + COLS)
                _store_part(c, buffer, third, row + TOP, col + 2 * COLS)
                _store_part(c, buffer, fourth, row + TOP, col + 3 * COLS)
    hopper.tma.store_wait(0)


@gluon.jit
def matmul_fp8_pipelined(
    a, b, c, scale, n_rows, n_cols, n_inner,
    STAGES: gl.constexpr, GROUP_M: gl.constexpr, PROMOTE: gl.constexpr,
):  # fmt: skip
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
            (_multiply_tiles, (c, a_ring, b_ring, c_smem, full, empty, scale, n_rows, n_cols, n_inner,
                               GROUP_M, PROMOTE, FIRST)),
            (_multiply_tiles, (c, a_ring, b_ring, c_smem, full, empty, scale, n_rows, n_cols, n_inner,
                               GROUP_M, PROMOTE, SECOND)),
            (_load_tiles, (a, b, a_ring, b_ring, full, empty, n_rows, n_cols, n_inner, GROUP_M)),
        ],
        [4, 1],
        [232, 40],
    )  # fmt: skip


def _cluster_source(config: Config) -> CudaSource:
    defines = {"BLOCK_N": config["block_n"], "STAGES": config["num_stages"], "STREAM": config["stream"]}
    products = Wgmma(n=config["block_n"], kind="e4m3")
    return cuda_source(
        __name__, "cluster.cu", entry="matmul_fp8_cluster", defines=defines, generated=wgmma_header(products)
    )


_CLUSTER_THREADS = 384
# Eight warps store through two buffers of 16 rows by 64 columns each.
_CLUSTER_STORE_BYTES = 8 * 2 * 16 * 64 * 2


def _cluster_programs(config: Config, shape: Shape) -> int:
    pairs = _ceil_div(shape["M"], 2 * config["block_m"]) * _ceil_div(shape["N"], config["block_n"])
    pieces = pairs * _ceil_div(shape["K"], config["block_k"]) if config["stream"] else pairs
    return 2 * min(pieces, config["programs"] // 2)


def _prepare_cluster(inputs: Mapping[str, Tensor], out: Tensor, config: Config, scale: float) -> Launch:
    import torch

    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[0]
    programs = _cluster_programs(config, {"M": n_rows, "N": n_cols, "K": n_inner})
    shared = programs if config["stream"] else 0
    partial = torch.empty(shared * config["block_m"] * config["block_n"] + 4, dtype=torch.float32, device=a.device)
    ready = torch.zeros(2 * shared + 1, dtype=torch.int32, device=a.device)
    maps = [
        tensor_map(a, (config["block_m"], config["block_k"])),
        tensor_map(b, (config["block_n"] // 2, config["block_k"])),
        tensor_map(out, (16, 64)),
    ]
    return prepare_cuda(
        _cluster_source(config),
        programs=programs,
        threads=_CLUSTER_THREADS,
        shared_bytes=shared_bytes(config),
        arguments=[*maps, partial, ready, float(scale), n_rows, n_cols, n_inner, config["group_m"]],
        overlap=bool(config["pdl"]),
    )


def matmul_fp8(a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
    """Return scale · a · bᵀ in float16.

    Shapes: a (M, K), b (N, K), both float8_e4m3fn on one GPU; the result (M, N).
    """
    import torch

    for name, tensor in (("a", a), ("b", b)):
        if tensor.dtype != torch.float8_e4m3fn:
            raise InputError(f"matmul_fp8: {name} is {tensor.dtype}; expected float8_e4m3fn")
    inputs = {"a": a.contiguous(), "b": b.contiguous()}
    out = torch.empty((a.shape[0], b.shape[0]), dtype=torch.float16, device=a.device)
    shape = {"M": a.shape[0], "N": b.shape[0], "K": a.shape[1]}
    major, minor = torch.cuda.get_device_capability(a.device)
    config = config_for(shape, "fp8_e4m3", f"sm_{major}{minor}")
    if any(tensor.data_ptr() % _TMA_ALIGNMENT for tensor in inputs.values()):
        config = {**_portable_config(shape, f"sm_{major}{minor}"), "tma": 0}
    _launcher(inputs, out, config, scale)()
    return out


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Make the descriptors and return the launch, with the operation's scale."""
    return _launcher(inputs, out, config, fp8_scale(inputs["a"].shape[1]))


def _launcher(inputs: Mapping[str, Tensor], out: Tensor, config: Config, scale: float) -> Launch:
    if config["pipeline"] == 2:
        return _prepare_cluster(inputs, out, config, scale)
    a, b = inputs["a"], inputs["b"]
    (n_rows, n_inner), n_cols = a.shape, b.shape[0]
    tensors = {"a": a, "b": b, "c": out}
    operands: list[object] = list(tensors.values())
    if config["tma"]:
        operands = [_descriptor(tensors[name], block, config) for name, block in _blocks(config).items()]
    tiles = _ceil_div(n_rows, config["block_m"]) * _ceil_div(n_cols, config["block_n"])
    grid = (min(tiles, config["programs"]),)
    function = matmul_fp8_pipelined if config["pipeline"] else matmul_fp8_kernel

    def launch() -> None:
        function[grid](*operands, scale, n_rows, n_cols, n_inner, **_constants(config), **_options(config))

    return launch


def _blocks(config: Config) -> dict[str, list[int]]:
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    # Two groups of warps multiply and store half of the rows each; the portable kernel stores a tile whole.
    rows = block_m // 2 if config["pipeline"] else block_m
    return {"a": [block_m, block_k], "b": [block_n, block_k], "c": [rows, block_n // config["subtiles"]]}


def _descriptor(tensor: Tensor, block: list[int], config: Config) -> object:
    if config["pipeline"]:
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        return TensorDescriptor.from_tensor(tensor, block, _layout(block, tensor.element_size()))
    from triton.tools.tensor_descriptor import TensorDescriptor as Portable

    return Portable.from_tensor(tensor, block)


def _layout(block: list[int], element: int) -> Any:
    return gl.NVMMASharedLayout.get_default_for(block, {1: gl.int8, 2: gl.float16, 4: gl.float32}[element])


def _constants(config: Config) -> dict[str, int]:
    if config["pipeline"]:
        return {"STAGES": config["num_stages"], "GROUP_M": config["group_m"], "PROMOTE": config["promote"]}
    return {name.upper(): config[name] for name in ("block_m", "block_n", "block_k", "group_m", "promote", "tma")}


def _options(config: Config) -> dict[str, int]:
    stages = {} if config["pipeline"] else {"num_stages": config["num_stages"]}
    return {"num_warps": config["num_warps"], **stages}


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def prepare_torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return the product in fp32: torch multiplies no fp8 on a CPU."""
    import torch

    a, b, scale = inputs["a"], inputs["b"], fp8_scale(inputs["a"].shape[1])
    return lambda: out.copy_(torch.matmul(a.float(), b.float().T).mul_(scale))


def _prepare_scaled_mm(*, fast: bool) -> Prepare:
    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch

        a, b = inputs["a"], inputs["b"].t()
        one = torch.ones((), dtype=torch.float32, device=a.device)
        scale = one * fp8_scale(a.shape[1])

        def launch() -> None:
            torch._scaled_mm(a, b, one, scale, out_dtype=out.dtype, use_fast_accum=fast, out=out)

        return launch

    return prepare


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the scaled product in float64."""
    return inputs["a"].double() @ inputs["b"].double().T * fp8_scale(inputs["a"].shape[1])


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one multiply-add (two operations) for each (m, n, k); each operand moves once, the result in fp16."""
    m, n, k = shape["M"], shape["N"], shape["K"]
    return Work(flops=2 * m * n * k, bytes_read=m * k + n * k, bytes_written=_OUTPUT_BYTES * m * n)


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return the instruction path, as found in the compiled code (tests/test_kernel_matmuls.py)."""
    return "fp8_tensor" if implementation == "triton" else "fp32"


_OUTPUT_BYTES = 2
_TMA_ALIGNMENT = 16
_TMA_TARGETS = ("sm_90", "sm_100")
_MULTIPROCESSORS = {"sm_89": 58, "sm_90": 132, "sm_100": 148}
_SHARED_BYTES = {"sm_89": 101_376, "sm_90": 232_448, "sm_100": 232_448}

# Target -> (BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, rate of a tile's arithmetic relative to the first).
# Estimates; sm_90 runs them where the pipelined kernel does not fit the shape.
_TILES: dict[str, tuple[tuple[int, int, int, int, int, float], ...]] = {
    "sm_89": ((128, 128, 64, 8, 3, 1.0), (64, 64, 64, 4, 3, 0.7)),
    "sm_90": ((128, 128, 128, 8, 4, 1.0), (64, 128, 128, 4, 5, 0.7), (64, 64, 128, 4, 5, 0.45)),
    "sm_100": ((128, 128, 128, 8, 4, 1.0), (128, 64, 128, 4, 5, 0.5)),
}

# As above where rows are no multiple of 16 bytes: elements are then loaded one by one, and what a thread has on its way
# must stay in registers (no spills, as compiled ahead of time; not measured).
_RAGGED = ((64, 64, 64, 8, 2, 1.0),)

# A group of four warps has 232 registers a thread; 128 of them hold sums.
_GROUP_ELEMENTS = 128 * 128

# What the rule takes on sm_90: measured on an H200 at M = N = K = 2048 to 7168, where it was level with the pipelined
# kernel (128 x 128 x 256) or faster; dividing the last wave's tiles gained nothing.
_CLUSTER_KEYS = {
    "block_m": 128, "block_n": 128, "block_k": 128, "num_warps": 8, "subtiles": 1, "promote": 1, "tma": 1,
    "pipeline": 2,
}  # fmt: skip
_GROUP = 8


# What a multiprocessor multiplies in a clock, and what dividing tiles costs: a share of the time, and clocks of a
# launch. Divided tiles had 0.98 of the undivided ones' speed at 2816 x 4352 x 6144, 1.00 at 5120, 0.96 at 7168 and 0.98
# at 8192 cubed, and 1.05 of it at 3000 x 5008 x 7008, on an H200.
_TENSOR_FLOPS = 8192
_DIVIDED_SHARE, _DIVIDED_CLOCKS = 0.04, 10_000


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape: the cluster kernel where rows allow TMA.

    Raises: InputError for a target without one.
    """
    portable = _portable_config(shape, target)
    if target != "sm_90" or not portable["tma"] or shape["M"] <= 64:
        return portable
    # Groups of rows of equal size; where rows lie in two lines of L2, calls that overlap are slower, as in matmul.
    tiles_m = _ceil_div(shape["M"], 2 * _CLUSTER_KEYS["block_m"])
    aligned = shape["K"] % 128 == 0 and shape["N"] * _OUTPUT_BYTES % 128 == 0
    divided = _divides(shape)
    return {
        **portable, **_CLUSTER_KEYS, "num_stages": 6, "pdl": int(aligned), "stream": int(divided),
        "group_m": _GROUP if divided else _ceil_div(tiles_m, _ceil_div(tiles_m, _GROUP)),
    }  # fmt: skip


def _divides(shape: Shape) -> bool:
    """Return whether a last wave is so empty that dividing its tiles gains more than it costs."""
    slots = _MULTIPROCESSORS["sm_90"] // 2
    tiles = _ceil_div(shape["M"], 2 * _CLUSTER_KEYS["block_m"]) * _ceil_div(shape["N"], _CLUSTER_KEYS["block_n"])
    waves = math.ceil(tiles / slots)
    clocks = waves * shape["K"] * 2 * _CLUSTER_KEYS["block_m"] * _CLUSTER_KEYS["block_n"] / _TENSOR_FLOPS
    return tiles > slots and 1 - tiles / slots / waves > _DIVIDED_SHARE + _DIVIDED_CLOCKS / clocks


def _cost(shape: Shape, target: str) -> Callable[[tuple[Any, ...]], float]:
    slots = _MULTIPROCESSORS[target]

    def cost(tile: tuple[Any, ...]) -> float:
        tiles = _ceil_div(shape["M"], tile[0]) * _ceil_div(shape["N"], tile[1])
        return float(math.ceil(tiles / slots) * tile[0] * tile[1] / tile[-1])

    return cost


def _portable_config(shape: Shape, target: str) -> dict[str, int]:
    if target not in _TILES:
        raise InputError(
            f"matmul_fp8: no launch configuration for {target}; expected one with fp8 instructions: {', '.join(_TILES)}"
        )
    aligned = shape["K"] % _TMA_ALIGNMENT == 0 and shape["N"] * _OUTPUT_BYTES % _TMA_ALIGNMENT == 0
    tiles = _TILES[target] if aligned else _RAGGED
    block_m, block_n, block_k, num_warps, num_stages, _ = min(tiles, key=_cost(shape, target))
    config = {
        "block_m": block_m,
        "block_n": block_n,
        "block_k": block_k,
        "group_m": _GROUP,
        "subtiles": 1,
        "programs": _MULTIPROCESSORS[target],
        "num_warps": num_warps,
        "num_stages": num_stages,
        "promote": int(target in ("sm_89", "sm_90")),
        "tma": int(target in _TMA_TARGETS and aligned),
        "pipeline": 0,
        "stream": 0,
        "pdl": 0,
    }
    while shared_bytes(config) > _SHARED_BYTES[target] and config["num_stages"] > 1:
        config["num_stages"] -= 1
    return config


def shared_bytes(config: Config, dtype: Dtype = "fp8_e4m3") -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    loop = config["num_stages"] * block_k * (block_m + block_n)
    if config["pipeline"] == 2:
        return loop + _CLUSTER_STORE_BYTES + 16 * config["num_stages"]
    # With TMA the result leaves through a buffer of its own; without, through what the loop has left.
    if config["tma"]:
        return loop + _OUTPUT_BYTES * block_m * block_n // config["subtiles"] + 1024
    return max(loop, 4 * block_m * (block_n + 8)) + 64


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    if set(config) != set(_CONFIG_KEYS):
        raise InputError(
            f"matmul_fp8: configuration keys are {','.join(sorted(config))}; expected {','.join(_CONFIG_KEYS)}"
        )
    if target not in _SHARED_BYTES:
        raise InputError(
            f"matmul_fp8: target {target} is unknown or has no fp8; expected one of: {', '.join(_SHARED_BYTES)}"
        )
    for key, least, most in _CONFIG_RANGES:
        value = config[key]
        if not least <= value <= most or value & (value - 1):
            raise InputError(f"matmul_fp8: {key} is {value}; expected a power of two from {least} to {most}")
    if target == "sm_90" and (config["block_m"] < 64 or config["num_warps"] % 4):
        raise InputError(
            f"matmul_fp8: block_m is {config['block_m']} with {config['num_warps']} warps; expected at least 64 and a "
            "multiple of 4 warps: wgmma computes 64 rows in groups of 4 warps"
        )
    for key in ("num_stages", "group_m", "programs"):
        if config[key] < 1:
            raise InputError(f"matmul_fp8: {key} is {config[key]}; expected at least 1")
    for key in ("tma", "promote"):
        if config[key] not in (0, 1):
            raise InputError(f"matmul_fp8: {key} is {config[key]}; expected 0 or 1")
    _check_tma(config, shape, target)
    _check_pipeline(config, target)
    if shared_bytes(config) > _SHARED_BYTES[target]:
        raise InputError(
            f"matmul_fp8: tiles need {shared_bytes(config)} bytes of shared memory; {target} has "
            f"{_SHARED_BYTES[target]} a block: take fewer num_stages or a smaller block_k"
        )


def _check_pipeline(config: Config, target: str) -> None:
    pipeline = config["pipeline"]
    if pipeline == 2:
        _check_cluster(config, target)
        return
    if config["stream"] or config["pdl"]:
        raise InputError(
            f"matmul_fp8: stream is {config['stream']} and pdl {config['pdl']} with pipeline {pipeline}; expected 0"
        )
    if pipeline == 0:
        if config["subtiles"] != 1:
            raise InputError(f"matmul_fp8: subtiles is {config['subtiles']} with pipeline 0; expected 1")
        return
    if pipeline != 1 or target != "sm_90" or not config["tma"]:
        raise InputError(f"matmul_fp8: pipeline is {pipeline} on {target}; expected 0, or 1 or 2 on sm_90 with tma 1")
    if config["num_warps"] != 4 or config["block_m"] < 128 or config["num_stages"] < 2:
        raise InputError("matmul_fp8: pipeline is 1; expected 4 warps, block_m at least 128 and 2 stages or more")
    group = config["block_m"] // 2 * config["block_n"] * (1 + config["promote"])
    if group > _GROUP_ELEMENTS:
        raise InputError(
            f"matmul_fp8: promote is {config['promote']} with a tile of {config['block_m']} × {config['block_n']}; a "
            f"group of four warps keeps {group} sums in its registers, expected at most {_GROUP_ELEMENTS}"
        )


def _check_cluster(config: Config, target: str) -> None:
    if target != "sm_90":
        raise InputError(f"matmul_fp8: pipeline is 2 on {target}; expected sm_90")
    fixed = {
        "block_m": 128, "block_n": 128, "block_k": 128, "num_warps": 8, "subtiles": 1, "promote": 1, "tma": 1,
    }  # fmt: skip
    if any(config[key] != value for key, value in fixed.items()):
        raise InputError(f"matmul_fp8: pipeline is 2; expected {', '.join(f'{k} {v}' for k, v in fixed.items())}")
    if config["stream"] not in (0, 1) or config["pdl"] not in (0, 1):
        raise InputError("matmul_fp8: pipeline is 2; expected stream 0 or 1 and pdl 0 or 1")
    if config["num_stages"] < 2 or config["programs"] < 2:
        raise InputError("matmul_fp8: pipeline is 2; expected at least 2 stages and 2 programs")


def _check_tma(config: Config, shape: Shape, target: str) -> None:
    if not config["tma"]:
        return
    if target not in _TMA_TARGETS:
        raise InputError(f"matmul_fp8: tma is 1, but {target} has no tensor memory accelerator; expected 0")
    for name, row in (("K", shape["K"]), ("N", shape["N"] * _OUTPUT_BYTES)):
        if row % _TMA_ALIGNMENT:
            raise InputError(
                f"matmul_fp8: tma is 1 with {name}={shape[name]}; expected rows of a multiple of {_TMA_ALIGNMENT} "
                "bytes, or tma 0"
            )


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
    """Return what the compiler needs to compile the kernel without a GPU."""
    if config["pipeline"] == 2:
        return AheadCuda(
            _cluster_source(config),
            programs=_cluster_programs(config, shape),
            threads=_CLUSTER_THREADS,
            shared_bytes=shared_bytes(config),
        )
    types = {"a": "fp8e4nv", "b": "fp8e4nv", "c": "fp16"}
    operands = {name: f"*{kind}" for name, kind in types.items()}
    if config["tma"]:
        operands = {
            name: f"tensordesc<{types[name]}{block}{_layout_suffix(name, block, config)}>".replace(" ", "", 1)
            for name, block in _blocks(config).items()
        }
    constants = _constants(config)
    sizes = dict.fromkeys(("n_rows", "n_cols", "n_inner"), "i32")
    return Ahead(
        function=matmul_fp8_pipelined if config["pipeline"] else matmul_fp8_kernel,
        signature={**operands, "scale": "fp32", **sizes, **dict.fromkeys(constants, "constexpr")},
        constants=constants,
        options=_options(config),
    )


def _layout_suffix(name: str, block: list[int], config: Config) -> str:
    return f",{_layout(block, _OUTPUT_BYTES if name == 'c' else 1)!r}" if config["pipeline"] else ""


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing: tiles of both kernels, as many stages as fit or one less."""
    own = config_for(shape, dtype, target)
    yield _candidate(own, shape)
    if target == "sm_90" and own["tma"]:
        cluster = {**own, **_CLUSTER_KEYS, "pdl": 1}
        for config in variations(cluster, {"stream": (0, 1), "pdl": (0, 1), "group_m": (4, 8)}):
            yield from _candidates(config, shape, dtype, target)
        pipelined = {**own, "pipeline": 1, "num_warps": 4, "stream": 0, "pdl": 0}
        choices: dict[str, tuple[int, ...]] = {
            "block_m": (128, 256), "block_n": (64, 128, 256), "block_k": (128, 256), "subtiles": (1, 2, 4),
            "group_m": (8, 16),
        }  # fmt: skip
        for config in variations(pipelined, choices):
            yield from _candidates(config, shape, dtype, target)
    portable = {**own, "pipeline": 0, "subtiles": 1, "stream": 0, "pdl": 0}
    choices = {
        "block_m": (64, 128), "block_n": (64, 128, 256), "block_k": (64, 128, 256), "num_warps": (4, 8),
    }  # fmt: skip
    for config in variations(portable, choices):
        yield from _candidates(config, shape, dtype, target)


def _candidates(config: Config, shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    fitting = [n for n in range(2, 9) if shared_bytes({**config, "num_stages": n}) <= _SHARED_BYTES[target]]
    for stages in fitting[-2:]:
        yield _candidate({**config, "num_stages": stages}, shape)


def _candidate(config: Config, shape: Shape) -> Candidate:
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    inner = block_k * _ceil_div(shape["K"], block_k)
    # The pipelined kernel is three groups of four warps that share all registers of an SM.
    warps, registers = 12, 168
    if not config["pipeline"]:
        warps = config["num_warps"]
        # The sums, and some for addresses and operands on their way.
        registers = block_m * block_n // (32 * warps) + 48
    tiles = _ceil_div(shape["M"], block_m) * _ceil_div(shape["N"], block_n)
    read_n = block_n
    if config["pipeline"] == 2:
        tiles = 2 * _ceil_div(shape["M"], 2 * block_m) * _ceil_div(shape["N"], block_n)
        # Of its tile of B a program reads half; the other of the cluster reads the rest for both.
        read_n = block_n // 2
    # Where tiles are divided by steps there are as many equal pieces as steps.
    parts = inner // block_k if config["stream"] else 1
    return Candidate(
        config=config,
        tiles=tiles * parts,
        tile_flops=2 * block_m * block_n * inner // parts,
        tile_bytes=(block_m + read_n) * inner // parts,
        warps=warps,
        registers=registers,
        shared_bytes=shared_bytes(config),
        # What handing on sums was measured to cost a launch of matmul.
        extra_clocks=6_500 if config["stream"] else 0,
    )


_CONFIG_KEYS = (
    "block_m", "block_n", "block_k", "group_m", "subtiles", "programs", "num_warps", "num_stages", "promote", "tma",
    "pipeline", "stream", "pdl",
)  # fmt: skip
_CONFIG_RANGES = (
    ("block_m", 16, 256), ("block_n", 16, 256), ("block_k", 32, 256), ("num_warps", 1, 16), ("subtiles", 1, 4),
)  # fmt: skip

CASES: tuple[dict[str, int], ...] = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 8192, "N": 8192, "K": 8192},
    {"M": 1, "N": 1, "K": 1},
    {"M": 127, "N": 129, "K": 131},
    {"M": 1000, "N": 1512, "K": 2064},
    {"M": 16, "N": 14336, "K": 4096},
)

KERNEL = Kernel(
    name="matmul_fp8",
    operation=MATMUL_FP8,
    summary="scaled product of fp8 matrices, the second one transposed",
    formula="C = s · A · Bᵀ",
    dtypes=("fp8_e4m3",),
    work=work,
    excludes="re-reads of A and B by other tiles (L2), padding to whole tiles, scaling of the result",
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp8_e4m3": Tolerance(1e-4, 5e-4, "one rounding to 11 bits; sums over 128 products are added in fp32"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu},
    reference=reference,
    launched="^matmul_fp8_(kernel|pipelined|cluster)$",
    baselines={
        "torch_scaled_mm": _prepare_scaled_mm(fast=False),
        "torch_scaled_mm_fast": _prepare_scaled_mm(fast=True),
    },
    ahead=ahead,
    candidates=candidates,
)

"""Launches C = A · B with an epilogue, A and B row-major: operands, clusters, checks, ahead-of-time compilation.

A configuration's `pipeline` names the variant: 0 generic (Triton), 1 warp-specialized (Gluon, sm_90), from 2 on CUDA
C++ for sm_90. There it encodes the cluster: 2 is 21, tens are CTAs along M, ones CTAs along N; 100 more swaps A and B.
`stream` divides tiles along K: 0 not at all, 1 stream-K, 2 split in two. Imports torch and triton, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Ahead, AheadCuda, CudaProgram, Launch
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import configs
from .baselines import dtype_name
from .gemm_device import gemm_kernel, gemm_pipelined, identity
from .launches import MATRIX_SIZES, ahead_of, constants_of, options_of
from .targets import ceil_div, device_target, is_tma_aligned
from .tensor_maps import gluon_descriptors, gluon_types_of, triton_descriptor, triton_type

if TYPE_CHECKING:
    from torch import Tensor

Settings = Mapping[str, Any]

CONFIG_KEYS = (
    "block_m", "block_n", "block_k", "group_m", "subtiles", "programs", "num_warps", "num_stages", "tma",
    "pipeline", "stream", "pdl",
)  # fmt: skip
CONFIG_RANGES = (
    ("block_m", 16, 256), ("block_n", 16, 256), ("block_k", 16, 256), ("num_warps", 1, 16), ("subtiles", 1, 2),
)  # fmt: skip
# How many CTAs an H200 holds at once, by `pipeline`: a cluster lies within a group of SMs.
RESIDENT = {11: 132, 2: 132, 22: 120, 41: 120}
# Rows of tiles, of a cluster or of a program, that share the columns of B which they read while these are in L2.
GROUP = 8


def cluster_shape(config: Settings) -> tuple[int, int]:
    """Return the CTAs of a cluster along M and along N."""
    return (2, 1) if config["pipeline"] == 2 else divmod(config["pipeline"] % 100, 10)


def swapped(config: Settings) -> bool:
    """Tell whether A and B are swapped: a tile's rows are wgmma's columns."""
    return bool(config["pipeline"] >= 100)


def split(config: Settings) -> int:
    """Return how many CTAs divide a tile's steps along K."""
    return 2 if config["stream"] == 2 else 1


def cluster_threads(config: Settings) -> int:
    """Return the threads of a CTA: the warps that multiply, and four of which one loads."""
    return int(32 * config["num_warps"] + 128)


def cluster_bytes(config: Settings) -> int:
    """Return the shared memory of a CTA of the CUDA C++, in bytes."""
    ring: int = config["num_stages"] * 2 * config["block_k"] * (config["block_m"] + config["block_n"])
    # Each warp that multiplies stores through two buffers of 16 rows by 64 columns, or four together through two of 64.
    store: int = config["num_warps"] * 2 * 16 * 64 * 2
    if split(config) > 1:
        # Half of a tile's sums come from the other CTA, to where the ring was.
        return int(max(ring, 2 * config["block_m"] * config["block_n"] + store) + 16 * config["num_stages"])
    return int(ring + store + 16 * config["num_stages"])


def cluster_programs(config: Settings, shape: Shape) -> int:
    """Return the CTAs of a launch of the CUDA C++."""
    (rows, cols), parts = cluster_shape(config), split(config)
    tiles = ceil_div(shape["M"], rows * config["block_m"]) * ceil_div(shape["N"], cols * config["block_n"])
    if parts > 1:
        return rows * cols * parts * tiles
    pieces = tiles * ceil_div(shape["K"], config["block_k"]) if config["stream"] else tiles
    return int(rows * cols * min(pieces, config["programs"] // (rows * cols)))


def tile_rows(config: Settings, n_rows: int) -> int:
    """Return the rows of each tile of the cluster kernel: even shares in whole steps."""
    (rows, _), step = cluster_shape(config), row_step(config)
    return step * ceil_div(n_rows, step * rows * ceil_div(n_rows, rows * config["block_m"]))


def row_step(config: Settings) -> int:
    """Return what the rows of tiles are a multiple of: those stored at once, 8 of each that shares them if swapped."""
    return 8 * cluster_shape(config)[1] if swapped(config) else 16


def cluster_keys(block_m: int, block_n: int, pipeline: int) -> dict[str, int]:
    """Return what a tile and a cluster fix of a configuration."""
    return {
        "block_m": block_m, "block_n": block_n, "block_k": 64,
        "num_warps": (block_n if pipeline >= 100 else block_m) // 16, "subtiles": 1, "tma": 1,
        "pipeline": pipeline, "programs": RESIDENT.get(pipeline % 100, 132),
    }  # fmt: skip


def group_rows(config: Settings, shape: Shape) -> int:
    """Return how many rows of clusters' tiles form a group: groups are of equal size, at most GROUP."""
    tiles_m = ceil_div(shape["M"], cluster_shape(config)[0] * config["block_m"])
    return ceil_div(tiles_m, ceil_div(tiles_m, GROUP))


def shared_bytes(config: Settings, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    element = DTYPE_BYTES[dtype]
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    loop = config["num_stages"] * element * block_k * (block_m + block_n)
    if config["pipeline"] >= 2:
        return cluster_bytes(config)
    # With TMA the result leaves through a buffer of its own; without, through what the loop has left.
    if config["tma"]:
        return int(loop + element * block_m * block_n // config["subtiles"] + 1024)
    # The last term covers barriers.
    return int(max(loop, 4 * block_m * (block_n + 8)) + 64)


@dataclass(frozen=True)
class Gemm:
    """Hold what differs between the kernels over this code.

    epilogue: the function of a tile's accumulators (gemm_device). bias: whether there is an input bias (N). source:
    (configuration, dtype) -> the CUDA C++; prepare_cluster: its launch. check_tile: (configuration), raises InputError
    for tiles of the CUDA C++ that the kernel does not have. swaps: whether A and B may be swapped.
    """

    name: str
    source: Callable[[Settings, Dtype], CudaProgram]
    prepare_cluster: Callable[[Mapping[str, Tensor], Tensor, Settings], Launch]
    check_tile: Callable[[Settings], None]
    epilogue: Any = identity
    bias: bool = False
    swaps: bool = False

    def check_config(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        configs.check_keys(self.name, config, CONFIG_KEYS)
        configs.check_target(self.name, target)
        configs.check_bf16(self.name, dtype, target)
        # The tiles of the CUDA C++ are multiples of 64.
        free = ("block_m", "block_n", "num_warps") if config["pipeline"] >= 2 else ()
        configs.check_powers(self.name, config, [one for one in CONFIG_RANGES if one[0] not in free])
        if not swapped(config):
            configs.check_wgmma(self.name, config, target)
        configs.check_positive(self.name, config, "num_stages", "group_m", "programs")
        rows = {key: shape[key] for key in ("N", "K")}
        configs.check_tma(self.name, config, target, rows=rows, size=DTYPE_BYTES[dtype], of=dtype)
        if not config["tma"] and config["subtiles"] != 1:
            raise InputError(f"{self.name}: subtiles is {config['subtiles']} without tma; expected 1")
        self._check_variant(config, dtype, target)
        configs.check_shared(self.name, shared_bytes(config, dtype), target)

    def _check_variant(self, config: Settings, dtype: Dtype, target: str) -> None:
        pipeline = config["pipeline"]
        if pipeline >= 2:
            self._check_cluster(config, dtype, target)
        elif config["stream"] or config["pdl"]:
            raise InputError(
                f"{self.name}: stream is {config['stream']} and pdl {config['pdl']} with pipeline {pipeline}; "
                "expected 0"
            )
        elif pipeline:
            if pipeline != 1 or target != "sm_90" or DTYPE_BYTES[dtype] != 2 or not config["tma"]:
                raise InputError(
                    f"{self.name}: pipeline is {pipeline} on {target} in {dtype}; expected 0, or 1 or 2 on sm_90 in "
                    "fp16 or bf16 with tma 1"
                )
            if config["num_warps"] != 4 or config["block_m"] < 128 or config["num_stages"] < 2:
                raise InputError(
                    f"{self.name}: pipeline is 1; expected 4 warps, block_m at least 128 and 2 stages or more"
                )

    def _check_cluster(self, config: Settings, dtype: Dtype, target: str) -> None:
        pipeline, (rows, cols) = config["pipeline"], cluster_shape(config)
        what = f"{self.name}: pipeline is {pipeline}"
        most = 200 if self.swaps else 100
        if pipeline >= most or not 1 <= rows <= 5 or cols not in (1, 2) or rows * cols * split(config) > 8:
            raise InputError(
                f"{what} with stream {config['stream']}; expected 0 to 2, or two digits: at most 5 CTAs of a cluster "
                "along M, 1 or 2 along N, at most 8 in all, with stream 2 twice as many"
                + ("; 100 more swap A and B" if self.swaps else "")
            )
        if target != "sm_90" or DTYPE_BYTES[dtype] != 2:
            raise InputError(f"{what} on {target} in {dtype}; expected sm_90 and fp16 or bf16")
        self.check_tile(config)
        warps = config["block_n" if swapped(config) else "block_m"] // 16
        fixed = {"block_k": 64, "num_warps": warps, "subtiles": 1, "tma": 1}
        if any(config[key] != value for key, value in fixed.items()):
            raise InputError(f"{what}; expected {', '.join(f'{k} {v}' for k, v in fixed.items())}")
        if config["stream"] not in (0, 1, 2) or config["pdl"] not in (0, 1):
            raise InputError(f"{what}; expected stream 0, 1 or 2 and pdl 0 or 1")
        if config["num_stages"] < 2 or config["programs"] < rows * cols:
            raise InputError(f"{what}; expected at least 2 stages and {rows * cols} programs")

    def prepare_triton(self, inputs: Mapping[str, Tensor], out: Tensor, config: Settings) -> Launch:
        """Make the descriptors and return the launch."""
        if config["pipeline"] >= 2:
            return self.prepare_cluster(inputs, out, config)
        (n_rows, n_inner), n_cols = inputs["a"].shape, inputs["b"].shape[1]
        tiles = ceil_div(n_rows, config["block_m"]) * ceil_div(n_cols, config["block_n"])
        grid = (min(tiles, config["programs"]),)
        function, constants, options = self._compiled_as(config)
        tensors = {"a": inputs["a"], "b": inputs["b"], "c": out}
        operands: list[object] = list(tensors.values())
        if config["pipeline"]:
            operands = gluon_descriptors(tensors, _blocks(config))
        elif config["tma"]:
            operands = [triton_descriptor(tensors[name], block) for name, block in _blocks(config).items()]
        operands += [inputs["bias"] if self.bias else None, None]

        def launch() -> None:
            function[grid](*operands, n_rows, n_cols, n_inner, **constants, **options)

        return launch

    def _compiled_as(self, config: Settings) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Return the function of a configuration in Triton or Gluon, its constants and its options."""
        fixed = {"EPILOGUE": self.epilogue, "B_ROWS": 0, "PROMOTE": 0}
        if config["pipeline"]:
            constants = {"STAGES": config["num_stages"], "GROUP_M": config["group_m"]}
            options = {"num_warps": config["num_warps"]}
            return gemm_pipelined, {**fixed, **constants}, options
        constants = constants_of(config, "block_m", "block_n", "block_k", "group_m", "subtiles", "tma")
        return gemm_kernel, {**fixed, **constants}, options_of(config)

    def ahead(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
        """Return what the compiler needs to compile the kernel without a GPU."""
        if config["pipeline"] >= 2:
            return AheadCuda(
                self.source(config, dtype),
                programs=cluster_programs(config, shape),
                threads=cluster_threads(config),
                shared_bytes=shared_bytes(config, dtype),
            )
        function, constants, options = self._compiled_as(config)
        blocks = _blocks(config)
        if config["pipeline"]:
            operands = gluon_types_of(dtype, blocks)
        else:
            operands = {
                name: triton_type(dtype, block) if config["tma"] else f"*{dtype}" for name, block in blocks.items()
            }
        absent = {"scale": None} if self.bias else {"bias": None, "scale": None}
        arguments = {**operands, "bias": f"*{dtype}", "scale": "fp32", **MATRIX_SIZES}
        return ahead_of(function, arguments, constants={**constants, **absent}, options=options)

    def call(
        self,
        inputs: Mapping[str, Tensor],
        *,
        config: Callable[[Shape, Dtype, str], Settings],
        generic: Callable[[str, Shape, Dtype, str], Settings],
    ) -> Tensor:
        """Return the result of tensors on one GPU. config: the launch rule; generic: that of the generic variant."""
        import torch

        inputs = {name: tensor.contiguous() for name, tensor in inputs.items()}
        a, b = inputs["a"], inputs["b"]
        out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
        shape = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1]}
        dtype, target = dtype_name(a, self.name), device_target(a)
        chosen = config(shape, dtype, target)
        if not is_tma_aligned(*inputs.values()):
            chosen = {**generic(self.name, shape, dtype, target), "tma": 0}
        self.prepare_triton(inputs, out, chosen)()
        return out


def _blocks(config: Settings) -> dict[str, list[int]]:
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    # Two warpgroups of the Gluon kernel multiply and store half of the rows each.
    rows = block_m // 2 if config["pipeline"] else block_m
    return {"a": [block_m, block_k], "b": [block_k, block_n], "c": [rows, block_n // config["subtiles"]]}

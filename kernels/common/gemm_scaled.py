"""Launches C = s · A · Bᵀ of matrices of one byte an element: operands, generic launch rule, checks, candidates.

Shapes: a (M, K), b (N, K), c (M, N), all row-major. A configuration's `pipeline` is 0 for the generic variant (Triton)
and 1 for the warp-specialized one (Gluon, sm_90); a kernel may have more. Imports torch and triton, only when called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Ahead, Candidate, Config, Launch, Prepare, variations
from ledger.operations import Shape

from . import configs
from .gemm_device import gemm_kernel, gemm_pipelined, scaled
from .launches import MATRIX_SIZES, ahead_of, constants_of
from .targets import SHARED_BYTES, SMS, TMA_ALIGNMENT, TMA_TARGETS, ceil_div
from .tensor_maps import gluon_descriptors, gluon_types, triton_descriptor, triton_type

if TYPE_CHECKING:
    from torch import Tensor

Settings = Mapping[str, Any]

CONFIG_KEYS = (
    "block_m", "block_n", "block_k", "group_m", "subtiles", "programs", "num_warps", "num_stages", "tma", "pipeline",
)  # fmt: skip
_CONFIG_RANGES = (
    ("block_m", 16, 256), ("block_n", 16, 256), ("block_k", 32, 256), ("num_warps", 1, 16), ("subtiles", 1, 4),
)  # fmt: skip

Tile = tuple[int, int, int, int, int, float]
"""block_m, block_n, block_k, num_warps, num_stages, rate of a tile's arithmetic relative to the first."""

# As a kernel's tiles where rows are no multiple of 16 bytes: elements are then loaded one by one, and what a thread has
# in flight must stay in registers (no spills, as compiled ahead of time; not measured).
_RAGGED: tuple[Tile, ...] = ((64, 64, 64, 8, 2, 1.0),)

# A warpgroup has 232 registers a thread; 128 of them hold accumulators.
_GROUP_ELEMENTS = 128 * 128


def cost(shape: Shape, target: str, *, edge: float = 0.0) -> Callable[[Sequence[Any]], float]:
    """Return a function of a tile, its rate last: the time of its waves. edge: tiles that a launch costs besides."""

    def of(tile: Sequence[Any]) -> float:
        tiles = ceil_div(shape["M"], tile[0]) * ceil_div(shape["N"], tile[1])
        return float((math.ceil(tiles / SMS[target]) + edge) * tile[0] * tile[1] / tile[-1])

    return of


def ring_bytes(config: Settings) -> int:
    """Return the shared memory of all stages, in bytes."""
    return int(config["num_stages"] * config["block_k"] * (config["block_m"] + config["block_n"]))


def prepare_torch_cpu(scale: Callable[[int], float]) -> Prepare:
    """Return how to prepare the product in fp32 on a CPU. scale: of the inner size."""

    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch

        a, b, factor = inputs["a"], inputs["b"], scale(inputs["a"].shape[1])
        return lambda: out.copy_(torch.matmul(a.float(), b.float().T).mul_(factor))

    return prepare


@dataclass(frozen=True)
class ScaledGemm:
    """Hold what differs between the kernels over this code.

    tiles: target -> tiles of the generic variant.
    kinds: Triton's names of the dtypes of a, b and of c; output_bytes: of an element of c. lacks, having: what an
    unknown target may lack and the others have, for messages. more: (target) -> keys beside CONFIG_KEYS, with the
    generic variant's values. constants: those of them that are constexpr arguments.
    """

    name: str
    tiles: Mapping[str, tuple[Tile, ...]]
    kinds: tuple[str, str]
    output_bytes: int
    lacks: str
    having: str = ""
    more: Callable[[str], Mapping[str, int]] = lambda target: {}
    constants: tuple[str, ...] = ()

    def generic_config(self, shape: Shape, target: str) -> dict[str, Any]:
        """Return the configuration of the generic variant. Raises: InputError for a target without one."""
        configs.check_tuned(self.name, target, tuple(self.tiles), having=self.having)
        aligned = shape["K"] % TMA_ALIGNMENT == 0 and shape["N"] * self.output_bytes % TMA_ALIGNMENT == 0
        tiles = self.tiles[target] if aligned else _RAGGED
        block_m, block_n, block_k, num_warps, num_stages, _ = min(tiles, key=cost(shape, target))
        config: dict[str, Any] = {
            "block_m": block_m,
            "block_n": block_n,
            "block_k": block_k,
            "group_m": 8,
            "subtiles": 1,
            "programs": SMS[target],
            "num_warps": num_warps,
            "num_stages": num_stages,
            "tma": int(target in TMA_TARGETS and aligned),
            "pipeline": 0,
            **self.more(target),
        }
        while self.shared_bytes(config) > SHARED_BYTES[target] and config["num_stages"] > 1:
            config["num_stages"] -= 1
        return config

    def shared_bytes(self, config: Settings) -> int:
        """Return an upper bound of the shared memory of one program, in bytes."""
        block_m, block_n = config["block_m"], config["block_n"]
        # With TMA the result leaves through a buffer of its own; without, through what the loop has left.
        if config["tma"]:
            return int(ring_bytes(config) + self.output_bytes * block_m * block_n // config["subtiles"] + 1024)
        return int(max(ring_bytes(config), 4 * block_m * (block_n + 8)) + 64)

    def check_config(self, config: Settings, shape: Shape, target: str) -> None:
        """Check what all variants have in common, but for the shared memory. Raises: InputError."""
        more = dict(self.more(target))
        configs.check_keys(self.name, config, (*CONFIG_KEYS, *more))
        configs.check_target(self.name, target, tuple(self.tiles), lacks=self.lacks)
        configs.check_powers(self.name, config, _CONFIG_RANGES)
        configs.check_wgmma(self.name, config, target)
        configs.check_positive(self.name, config, "num_stages", "group_m", "programs")
        configs.check_flags(self.name, config, *self.constants)
        configs.check_tma(self.name, config, target, rows={"K": shape["K"]}, size=1)
        configs.check_tma(self.name, config, target, rows={"N": shape["N"]}, size=self.output_bytes)

    def check_warp_specialized(self, config: Settings, *, copies: int = 1) -> None:
        """Check a configuration with pipeline 1. copies: accumulators of a tile in a warpgroup's registers."""
        if config["num_warps"] != 4 or config["block_m"] < 128 or config["num_stages"] < 2:
            raise InputError(f"{self.name}: pipeline is 1; expected 4 warps, block_m at least 128 and 2 stages or more")
        elements = config["block_m"] // 2 * config["block_n"] * copies
        if elements > _GROUP_ELEMENTS:
            flags = "".join(f", {key} is {config[key]}" for key in self.constants)
            raise InputError(
                f"{self.name}: pipeline is 1{flags} with a tile of {config['block_m']} × {config['block_n']}; a group "
                f"of four warps keeps {elements} sums in its registers, expected at most {_GROUP_ELEMENTS}"
            )

    def launcher(self, inputs: Mapping[str, Tensor], out: Tensor, config: Settings, scale: float) -> Launch:
        """Make the descriptors and return the launch."""
        a, b = inputs["a"], inputs["b"]
        (n_rows, n_inner), n_cols = a.shape, b.shape[0]
        tensors = {"a": a, "b": b, "c": out}
        operands: list[object] = list(tensors.values())
        if config["pipeline"]:
            operands = gluon_descriptors(tensors, _blocks(config))
        elif config["tma"]:
            operands = [triton_descriptor(tensors[name], block) for name, block in _blocks(config).items()]
        tiles = ceil_div(n_rows, config["block_m"]) * ceil_div(n_cols, config["block_n"])
        grid = (min(tiles, config["programs"]),)
        function, constants, options = self._compiled_as(config)

        def launch() -> None:
            function[grid](*operands, None, scale, n_rows, n_cols, n_inner, **constants, **options)

        return launch

    def _compiled_as(self, config: Settings) -> tuple[Any, dict[str, Any], dict[str, int]]:
        fixed = {"EPILOGUE": scaled, "B_ROWS": 1, "PROMOTE": config.get("promote", 0)}
        options = {"num_warps": config["num_warps"]}
        if config["pipeline"]:
            constants = {"STAGES": config["num_stages"], **constants_of(config, "group_m")}
            return gemm_pipelined, {**fixed, **constants}, options
        constants = constants_of(config, "block_m", "block_n", "block_k", "group_m", "subtiles", "tma")
        return gemm_kernel, {**fixed, **constants}, {**options, "num_stages": config["num_stages"]}

    def ahead(self, config: Settings) -> Ahead:
        """Return what Triton needs to compile the kernel without a GPU."""
        blocks = _blocks(config)
        operand, result = self.kinds
        kinds = {"a": (operand, 1), "b": (operand, 1), "c": (result, self.output_bytes)}
        if config["pipeline"]:
            operands = gluon_types(kinds, blocks)
        else:
            operands = {
                name: triton_type(kinds[name][0], block) if config["tma"] else f"*{kinds[name][0]}"
                for name, block in blocks.items()
            }
        function, constants, options = self._compiled_as(config)
        arguments = {**operands, "bias": "", "scale": "fp32", **MATRIX_SIZES}
        return ahead_of(function, arguments, constants={**constants, "bias": None}, options=options)

    def tile_variations(self, own: Settings, target: str) -> Iterator[Settings]:
        """Yield tiles of the warp-specialized and of the generic variant that may be worth timing."""
        off = {key: 0 for key in self.more(target) if key not in self.constants}
        if target == "sm_90" and own["tma"]:
            choices: dict[str, tuple[int, ...]] = {
                "block_m": (128, 256), "block_n": (64, 128, 256), "block_k": (128, 256), "subtiles": (1, 2, 4),
                "group_m": (8, 16),
            }  # fmt: skip
            yield from variations({**own, "pipeline": 1, "num_warps": 4, **off}, choices)
        choices = {
            "block_m": (64, 128), "block_n": (64, 128, 256), "block_k": (64, 128, 256), "num_warps": (4, 8),
        }  # fmt: skip
        yield from variations({**own, "pipeline": 0, "subtiles": 1, **off}, choices)


def deepest(config: Settings, target: str, shared_bytes: Callable[[Settings], int]) -> Iterator[Settings]:
    """Yield a configuration with as many stages as fit, and with one less."""
    stages = [n for n in range(2, 9) if shared_bytes({**config, "num_stages": n}) <= SHARED_BYTES[target]]
    for n in stages[-2:]:
        yield {**config, "num_stages": n}


def candidate(
    config: Settings,
    shape: Shape,
    shared_bytes: int,
    *,
    tiles: int,
    parts: int = 1,
    shared_by: int = 1,
    clocks: int = 0,
) -> Candidate:
    """Return a configuration with what the analytic model needs to know of it.

    tiles: equal tiles; parts: equal pieces of each. shared_by: CTAs of a cluster, each of which loads a share of B.
    """
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    inner = block_k * ceil_div(shape["K"], block_k)
    # All variants but the generic one are three warpgroups that share all registers of an SM.
    warps, registers = 12, 168
    if not config["pipeline"]:
        warps = config["num_warps"]
        # The accumulators, and some for addresses and operands in flight.
        registers = block_m * block_n // (32 * warps) + 48
    return Candidate(
        config=config,
        tiles=tiles * parts,
        tile_flops=2 * block_m * block_n * inner // parts,
        tile_bytes=(block_m + block_n // shared_by) * inner // parts,
        warps=warps,
        registers=registers,
        shared_bytes=shared_bytes,
        extra_clocks=clocks,
    )


def _blocks(config: Settings) -> dict[str, list[int]]:
    block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
    # Two warpgroups multiply and store half of the rows each; the generic variant stores a tile whole.
    rows = block_m // 2 if config["pipeline"] else block_m
    return {"a": [block_m, block_k], "b": [block_n, block_k], "c": [rows, block_n // config["subtiles"]]}

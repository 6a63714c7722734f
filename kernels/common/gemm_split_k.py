"""Describes the variant "split_k" of matrix products: few tiles of aligned rows and many steps, for sm_90.

CTAs divide K and leave their sums in a workspace (gemm_split_k.cu); a second launch adds them (gemm_split_k_sum.cu).
Imports torch, only when called.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import AheadCuda, Launch
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import configs
from .cuda import Argument, CudaSource, cuda_source, prepare_ahead, prepare_cuda, tensor_map
from .gemm_config import Settings
from .gemm_frames import pitch, throttled
from .gemm_residues import FIXED, MOST_ROWS, STAGES, TARGET, tile_rows
from .targets import SHARED_BYTES, ceil_div
from .wgmma import Wgmma, wgmma_header

if TYPE_CHECKING:
    from torch import Tensor

SPLIT_K, ENTRY, SUM = "split_k", "gemm_split_k", "gemm_split_k_sum"
_PARTS = range(2, 33)
_SUM_THREADS = 128
# Of all parts: the launch that adds them counts in 32 bits.
_MOST_SUMS = 2**31 - 1
# The least rows of a swapped tile of several that the rule weighs; CTAs for each SM, at most.
_LEAST_ROWS, _MOST_WAVES = 24, 2
# The time of a configuration, fitted to 4,300 times of 600 shapes on an H200 (benchmarks/README.md). Nanoseconds: of
# both launches, of a further wave, of each row or column whose sums a warpgroup stores. Clocks of wgmma in a
# nanosecond, in small products. Bytes a nanosecond: that arrive at an SM, that L2 and DRAM deliver, of sums written and
# read. How much more operands count where they arrive, by the pitch of their rows; the power of the number of
# neighbours by which fewer bytes of A are read; the power by which times join.
_LAUNCHES, _WAVE, _STORED = 3248.0, 1810.0, 6.44
_MULTIPLIED = 1.867
_ARRIVING, _L2, _DRAM, _ADDED = 161.7, 5616.0, 4641.0, 4361.0
_BY_PITCH, _SHARED, _POWER = (1.0, 1.34, 1.69, 3.09), 0.608, 3.42
# For `ledger tune`: nanoseconds of a second launch that does not overlap; bytes of sums and clocks in a nanosecond.
_SECOND, _SUMMED, _CLOCKS = 570.0, 4720.0, 1.5
# As many configurations as `ledger tune` is offered.
_OFFERED = 24


def split_k_bytes(config: Settings) -> int:
    """Return the shared memory of a CTA, in bytes: all stages, with whole boxes of 64 columns of B, and barriers."""
    stage = 128 * config["block_m"] + 8192 * ceil_div(config["block_n"], 64) + 16
    return int(config["num_stages"] * stage)


def swaps(config: Settings) -> bool:
    """Tell whether the warpgroups of a tile divide its columns (swap-AB), not its rows."""
    return bool(config["block_n"] == 16 * config["num_warps"])


@dataclass(frozen=True)
class SplitK:
    """Hold the variant of one kernel. bias_relu: whether its result is max(0, sum + bias)."""

    name: str
    bias_relu: bool = False

    def serves(self, shape: Shape, dtype: Dtype, target: str) -> bool:
        """Tell whether the variant has a product."""
        aligned = shape["N"] % 8 == 0 and shape["K"] % 8 == 0
        return target == TARGET and DTYPE_BYTES[dtype] == 2 and aligned and shape["K"] > 64

    def config(
        self, generic: Settings, shape: Shape, block_m: int, block_n: int, parts: int, *, swap: bool
    ) -> dict[str, Any]:
        """Return a launch configuration with as many stages as fit, at most the steps of a CTA."""
        chosen = {
            **generic, **FIXED, "variant": SPLIT_K, "block_m": block_m, "block_n": block_n, "split_k": parts,
            "num_warps": (block_n if swap else block_m) // 16, "pdl": 1,
        }  # fmt: skip
        most = max(ceil_div(ceil_div(shape["K"], 64), parts), STAGES[0])
        stages = (n for n in reversed(STAGES) if n <= most)
        fit = (n for n in stages if split_k_bytes({**chosen, "num_stages": n}) <= SHARED_BYTES[TARGET])
        return {**chosen, "num_stages": next(fit)}

    def fastest(self, generic: Settings, shape: Shape) -> tuple[float, dict[str, Any]] | None:
        """Return the least nanoseconds by the rule, and the configuration; None where there are too many tiles."""
        best = min(self._tiles(shape, generic["programs"]), default=None)
        if best is None:
            return None
        nanoseconds, block_m, block_n, parts, swap = best
        return nanoseconds, self.config(generic, shape, block_m, block_n, parts, swap=bool(swap))

    def nanoseconds(self, config: Settings, shape: Shape, sms: int) -> float:
        """Return about how long a configuration takes."""
        tile = config["block_m"], config["block_n"], config["split_k"]
        return _nanoseconds(shape, *tile, sms, swap=int(swaps(config)))

    def candidates(self, generic: Settings, shape: Shape) -> Iterator[dict[str, Any]]:
        """Yield the configurations that take the least time by the rule."""
        for _, block_m, block_n, parts, swap in heapq.nsmallest(_OFFERED, self._tiles(shape, generic["programs"])):
            yield self.config(generic, shape, block_m, block_n, parts, swap=bool(swap))

    def _tiles(self, shape: Shape, sms: int) -> Iterator[tuple[float, int, int, int, int]]:
        """Yield nanoseconds, rows and columns of a tile, parts, and whether A and B are swapped."""
        steps = ceil_div(shape["K"], 64)
        for block_m, block_n, swap in _even_tiles(shape, sms):
            tiles = ceil_div(shape["M"], block_m) * ceil_div(shape["N"], block_n)
            for parts in range(_PARTS[0], min(_PARTS[-1], steps // 2, _MOST_WAVES * sms // tiles) + 1):
                yield _nanoseconds(shape, block_m, block_n, parts, sms, swap=swap), block_m, block_n, parts, swap

    def check(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
        """Check a configuration with variant split_k. Raises: InputError."""
        what = f"{self.name}: variant is {SPLIT_K}"
        if not self.serves(shape, dtype, target):
            raise InputError(
                f"{what} for N={shape['N']} and K={shape['K']} in {dtype} on {target}; expected multiples of 8, K "
                f"above 64, and fp16 or bf16 on {TARGET}"
            )
        block_m, block_n = config["block_m"], config["block_n"]
        side, other = (block_n, block_m) if swaps(config) else (block_m, block_n)
        if side != 16 * config["num_warps"] or not 8 <= other <= MOST_ROWS.get(side, 0) or other % 8:
            most = ", ".join(f"{most} by {side}" for side, most in MOST_ROWS.items())
            raise InputError(
                f"{what} with tiles of {block_m} x {block_n} and {config['num_warps']} warps; expected 4 warps for "
                f"each 64 of one side, and of the other a multiple of 8, at most {most}"
            )
        fixed = {**FIXED, **({"swap_ab": 0} if "swap_ab" in config else {})}
        if any(config[key] != value for key, value in fixed.items()):
            raise InputError(f"{what}; expected {', '.join(f'{key} {value}' for key, value in fixed.items())}")
        most_parts = min(_PARTS[-1], ceil_div(shape["K"], 64))
        if not _PARTS[0] <= config["split_k"] <= most_parts or config["num_stages"] not in STAGES:
            raise InputError(
                f"{what} with split_k {config['split_k']} and num_stages {config['num_stages']}; expected split_k "
                f"{_PARTS[0]} to {most_parts} and {STAGES[0]} to {STAGES[-1]} stages"
            )
        sums = config["split_k"] * shape["M"] * shape["N"]
        if sums > _MOST_SUMS:
            raise InputError(f"{what} leaves {sums:,} sums in its workspace; expected at most {_MOST_SUMS:,}")
        configs.check_flags(self.name, config, "pdl")

    def ahead(self, config: Settings, shape: Shape, dtype: Dtype) -> AheadCuda:
        """Return what the compiler needs for the product."""
        swap = swaps(config)
        defines = {
            "BLOCK_M": config["block_m"], "BLOCK_N": config["block_n"], "STAGES": config["num_stages"],
            "SWAPPED": int(swap), "BF16": int(dtype == "bf16"),
        }  # fmt: skip
        products = Wgmma(
            n=config["block_m" if swap else "block_n"], kind="bf16" if dtype == "bf16" else "f16", a_transposed=swap,
            b_transposed=not swap,
        )  # fmt: skip
        return AheadCuda(
            cuda_source(__name__, "gemm_split_k.cu", entry=ENTRY, defines=defines, generated=wgmma_header(products)),
            programs=ctas(config, shape),
            threads=32 * config["num_warps"] + 32,
            shared_bytes=split_k_bytes(config),
        )

    def sum_source(self, config: Settings, dtype: Dtype) -> CudaSource:
        """Return the CUDA C++ of the launch that adds the parts."""
        defines = {
            "THREADS": _SUM_THREADS, "PARTS": config["split_k"], "BIAS_RELU": int(self.bias_relu),
            "BF16": int(dtype == "bf16"),
        }  # fmt: skip
        return cuda_source(__name__, "gemm_split_k_sum.cu", entry=SUM, defines=defines)

    def prepare(self, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor, config: Settings, dtype: Dtype) -> Launch:
        """Make the tensor maps and the workspace, and return both launches.

        Assumes: a and b are aligned for TMA; one prepared launch runs on one stream at a time.
        """
        import torch

        (n_rows, n_inner), n_cols = a.shape, out.shape[1]
        parts, rows = config["split_k"], tile_rows(config, n_rows)
        workspace = torch.empty(parts * n_rows * n_cols, dtype=torch.float32, device=a.device)
        maps: list[Argument] = [tensor_map(a, (rows, 64), promotion=128), tensor_map(b, (64, 64), promotion=128)]
        product = prepare_ahead(
            self.ahead(config, {"M": n_rows, "N": n_cols, "K": n_inner}, dtype),
            [*maps, workspace, n_rows, n_cols, n_inner, rows, parts],
            overlap=bool(config["pdl"]),
        )
        fours = n_rows * n_cols // 4
        add = prepare_cuda(
            self.sum_source(config, dtype),
            programs=ceil_div(fours, _SUM_THREADS),
            threads=_SUM_THREADS,
            shared_bytes=0,
            arguments=[workspace, *([] if bias is None else [bias]), out, fours, n_cols // 4],
            overlap=True,
        )

        def launch() -> None:
            product()
            add()

        return launch


def ctas(config: Settings, shape: Shape) -> int:
    """Return the CTAs of the product."""
    tiles = ceil_div(shape["M"], config["block_m"]) * ceil_div(shape["N"], config["block_n"])
    return int(tiles * config["split_k"])


def extra_clocks(config: Settings, shape: Shape) -> int:
    """Return about how many clocks the second launch takes, with the sums that it reads and the first one writes."""
    return int(_CLOCKS * (_SECOND + 8 * config["split_k"] * shape["M"] * shape["N"] / _SUMMED))


def _even_tiles(shape: Shape, sms: int) -> Iterator[tuple[int, int, int]]:
    """Yield rows, columns and whether A and B are swapped of tiles that divide one side evenly, at most one an SM."""
    for side, most in MOST_ROWS.items():
        for swap, across, along in ((0, "N", "M"), (1, "M", "N")):
            beside = ceil_div(shape[along], side)
            # Half of a tile and more is of the matrix.
            if side > 64 and shape[along] <= side - 64:
                continue
            least, before = _LEAST_ROWS if swap else 64, 0
            for tiles in range(ceil_div(shape[across], most), ceil_div(shape[across], least) + 1):
                if beside * tiles > sms:
                    break
                other = 8 * ceil_div(ceil_div(shape[across], tiles), 8)
                # Other numbers of tiles may round to the same; a square tile is a swapped one.
                if other != before and (swap or other != side):
                    yield (other, side, 1) if swap else (side, other, 0)
                before = other


def _nanoseconds(shape: Shape, block_m: int, block_n: int, parts: int, sms: int, *, swap: int) -> float:
    """Return about how long a product takes, with the sum of its parts."""
    m, n, k = (shape[size] for size in "MNK")
    groups, other = (block_n // 64, block_m) if swap else (block_m // 64, block_n)
    tiles_m, tiles_n, steps = ceil_div(m, block_m), ceil_div(n, block_n), ceil_div(ceil_div(k, 64), parts)
    ctas, of_a, of_b = tiles_m * tiles_n * parts, 128 * ceil_div(m, tiles_m), 8192 * ceil_div(block_n, 64)
    waves = ceil_div(ctas, sms)
    multiplying = 2 * groups * other / _MULTIPLIED * throttled(shape)
    arriving = of_a * _BY_PITCH[pitch(k)] + of_b * _BY_PITCH[pitch(n)]
    # Of neighbours that load the same columns of B, or with one tile of rows the same rows of A, L2 serves all at once.
    read = of_a / math.pow(tiles_n, _SHARED) + of_b / tiles_m
    times = (
        waves * steps * multiplying, waves * steps * arriving / _ARRIVING, ctas * steps * read / _L2,
        2 * (m * k + n * k) / _DRAM,
    )  # fmt: skip
    loop = math.pow(sum(math.pow(time, _POWER) for time in times), 1 / _POWER)
    return _LAUNCHES + _WAVE * (waves - 1) + loop + _STORED * waves * other + 8 * parts * m * n / _ADDED

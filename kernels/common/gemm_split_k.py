"""Describes the variant "split_k" of matrix products: few tiles of aligned rows and many steps, for sm_90.

Operands have 16 bits, or one byte and B by rows. CTAs divide K and leave their sums in a workspace (gemm_split_k.cu); a
second launch adds them (gemm_split_k_sum.cu). Imports torch, only when called.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ledger.errors import InputError
from ledger.kernel import AheadCuda, Launch
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import configs
from .cuda import Argument, CudaSource, cuda_source, prepare_ahead, prepare_cuda, tensor_map
from .gemm_config import Settings
from .gemm_frames import pitch, throttled, wgmma_step
from .gemm_residues import FIXED, MOST_ROWS, STAGES, TARGET, tile_rows
from .targets import SHARED_BYTES, ceil_div
from .wgmma import Kind, Wgmma, wgmma_header

if TYPE_CHECKING:
    from torch import Tensor

SPLIT_K, ENTRY, SUM = "split_k", "gemm_split_k", "gemm_split_k_sum"
_PARTS = range(2, 33)
_SUM_THREADS = 128
# Of a row in a stage: 128 elements of one byte, 64 of two.
_BYTES = 128
# Of all parts: the launch that adds them counts in 32 bits.
_MOST_SUMS = 2**31 - 1
# Macros of the product, and of the launch that adds, beside those of all operands.
_OPERANDS: Mapping[str, Mapping[str, int]] = {"fp8_e4m3": {"FP8": 1}, "int8": {"INT8": 1}}
_SUMS: Mapping[str, Mapping[str, int]] = {"int8": {"INT8": 1}}
_KINDS: Mapping[str, Kind] = {"fp16": "f16", "bf16": "bf16", "fp8_e4m3": "e4m3", "int8": "s8"}
# As MOST_ROWS: of int8, in sixteens; of fp8 whose sums are promoted, beside those of a step or two.
_INT8_ROWS = {**MOST_ROWS, 192: 192}
_PROMOTED_ROWS = {64: 152, 128: 152, 192: 112}
# Bytes that L2 fetches at once for a miss, by the bytes of an element.
_FETCHED: Mapping[int, Literal[128, 256]] = {1: 256, 2: 128}
# The least rows of a swapped tile of several that the rule weighs; CTAs for each SM, at most.
_LEAST_ROWS, _MOST_WAVES = 24, 2


class _Times(NamedTuple):
    """Hold the constants of the time of a configuration.

    Nanoseconds: of both launches, of a further wave, of each row or column whose sums a warpgroup stores. multiplied:
    clocks of wgmma in a nanosecond, in small products; promoted: its share where sums are added in fp32. Bytes a
    nanosecond: that arrive at an SM, that L2 and DRAM deliver, of sums written and read. by_pitch: how much more
    operands count where they arrive, by the pitch of their rows. shared: the power of the number of neighbours by which
    fewer bytes of A are read. power: by which times join. outside: how much longer steps take by the share of a tile's
    columns beyond those of the matrix. b_rows: whether B is by rows.
    """

    launches: float = 3248.0
    wave: float = 1810.0
    stored: float = 6.44
    multiplied: float = 1.867
    promoted: float = 1.0
    arriving: float = 161.7
    l2: float = 5616.0
    dram: float = 4641.0
    added: float = 4361.0
    by_pitch: tuple[float, ...] = (1.0, 1.34, 1.69, 3.09)
    shared: float = 0.608
    power: float = 3.42
    outside: float = 0.0
    b_rows: bool = False


# Fitted to 4,300 times of 600 shapes on an H200 (benchmarks/README.md).
_TIMES = _Times()
# Of one-byte operands, with K in pairs, which take the time of one product of two bytes. Launches, stores, sums and
# columns outside are fitted to the part split_k of benchmarks/one-byte-h200.json; the share of promoted sums is that of
# gemm_frames.
_ONE_BYTE = _Times(launches=4060.0, stored=4.87, promoted=0.9, added=3925.0, outside=0.8, b_rows=True)
# For `ledger tune`: nanoseconds of a second launch that does not overlap; bytes of sums and clocks in a nanosecond.
_SECOND, _SUMMED, _CLOCKS = 570.0, 4720.0, 1.5
# As many configurations as `ledger tune` is offered.
_OFFERED = 24


def split_k_bytes(config: Settings) -> int:
    """Return the shared memory of a CTA, in bytes: all stages and barriers."""
    of_b = _bytes_of_b(config["block_n"], b_rows=config["block_k"] == _BYTES)
    return int(config["num_stages"] * (_BYTES * config["block_m"] + of_b + 16))


def _bytes_of_b(block_n: int, *, b_rows: bool) -> int:
    """Return the bytes of B in a stage: rows, or whole boxes of 64 columns."""
    return _BYTES * block_n if b_rows else 8192 * ceil_div(block_n, 64)


def swaps(config: Settings) -> bool:
    """Tell whether the warpgroups of a tile divide its columns (swap-AB), not its rows."""
    return bool(config["block_n"] == 16 * config["num_warps"])


@dataclass(frozen=True)
class SplitK:
    """Hold the variant of one kernel.

    bias_relu: whether its result is max(0, sum + bias). one_byte: the dtype of its operands, if that has one byte; B is
    then by rows, and the result a multiple of the sum.
    """

    name: str
    bias_relu: bool = False
    one_byte: Dtype | None = None

    @property
    def block_k(self) -> int:
        """Return the elements of K of a step."""
        return _BYTES if self.one_byte else _BYTES // 2

    @property
    def _fixed(self) -> dict[str, int]:
        return {**FIXED, "block_k": self.block_k}

    def _most_rows(self, config: Settings) -> Mapping[int, int]:
        """Return the columns of a tile with the most rows whose sums stay in registers, and the other way round."""
        if config.get("promote"):
            return _PROMOTED_ROWS
        return _INT8_ROWS if self.one_byte == "int8" else MOST_ROWS

    @property
    def _step(self) -> int:
        """Return what the side of a tile that warpgroups do not divide is a multiple of."""
        return wgmma_step(self.one_byte) if self.one_byte else 8

    def serves(self, shape: Shape, dtype: Dtype, target: str) -> bool:
        """Tell whether the variant has a product."""
        operands = dtype == self.one_byte if self.one_byte else DTYPE_BYTES[dtype] == 2
        aligned = shape["N"] % 8 == 0 and shape["K"] % (self.block_k // 8) == 0
        return target == TARGET and operands and aligned and shape["K"] > self.block_k

    def config(
        self, generic: Settings, shape: Shape, block_m: int, block_n: int, parts: int, *, swap: bool
    ) -> dict[str, Any]:
        """Return a launch configuration with as many stages as fit, at most the steps of a CTA."""
        chosen = {
            **generic, **self._fixed, "variant": SPLIT_K, "block_m": block_m, "block_n": block_n, "split_k": parts,
            "num_warps": (block_n if swap else block_m) // 16, "pdl": 1,
        }  # fmt: skip
        most = max(ceil_div(ceil_div(shape["K"], self.block_k), parts), STAGES[0])
        stages = (n for n in reversed(STAGES) if n <= most)
        fit = (n for n in stages if split_k_bytes({**chosen, "num_stages": n}) <= SHARED_BYTES[TARGET])
        return {**chosen, "num_stages": next(fit)}

    def fastest(self, generic: Settings, shape: Shape) -> tuple[float, dict[str, Any]] | None:
        """Return the least nanoseconds by the rule, and the configuration; None where there are too many tiles."""
        best = min(self._tiles(generic, shape), default=None)
        if best is None:
            return None
        nanoseconds, block_m, block_n, parts, swap = best
        return nanoseconds, self.config(generic, shape, block_m, block_n, parts, swap=bool(swap))

    def nanoseconds(self, config: Settings, shape: Shape, sms: int) -> float:
        """Return about how long a configuration takes."""
        tile = config["block_m"], config["block_n"], config["split_k"]
        return _nanoseconds(self._times(config), self._pairs(shape), *tile, sms, swap=int(swaps(config)))

    def candidates(self, generic: Settings, shape: Shape) -> Iterator[dict[str, Any]]:
        """Yield the configurations that take the least time by the rule."""
        for _, block_m, block_n, parts, swap in heapq.nsmallest(_OFFERED, self._tiles(generic, shape)):
            yield self.config(generic, shape, block_m, block_n, parts, swap=bool(swap))

    def _times(self, config: Settings) -> _Times:
        """Return the constants of a configuration's time."""
        times = _ONE_BYTE if self.one_byte else _TIMES
        return times._replace(multiplied=times.multiplied * times.promoted) if config.get("promote") else times

    def _pairs(self, shape: Shape) -> Shape:
        """Return a shape with K in two bytes."""
        return {**shape, "K": shape["K"] // 2} if self.one_byte else shape

    def _tiles(self, generic: Settings, shape: Shape) -> Iterator[tuple[float, int, int, int, int]]:
        """Yield nanoseconds, rows and columns of a tile, parts, and whether A and B are swapped."""
        sms, steps = generic["programs"], ceil_div(shape["K"], self.block_k)
        times, pairs = self._times(generic), self._pairs(shape)
        for block_m, block_n, swap in _even_tiles(shape, sms, self._most_rows(generic), self._step):
            tiles = ceil_div(shape["M"], block_m) * ceil_div(shape["N"], block_n)
            for parts in range(_PARTS[0], min(_PARTS[-1], steps // 2, _MOST_WAVES * sms // tiles) + 1):
                taken = _nanoseconds(times, pairs, block_m, block_n, parts, sms, swap=swap)
                yield taken, block_m, block_n, parts, swap

    def check(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
        """Check a configuration with variant split_k. Raises: InputError."""
        what = f"{self.name}: variant is {SPLIT_K}"
        if not self.serves(shape, dtype, target):
            multiples = "multiples of 8 and 16" if self.one_byte else "multiples of 8"
            raise InputError(
                f"{what} for N={shape['N']} and K={shape['K']} in {dtype} on {target}; expected {multiples}, K "
                f"above {self.block_k}, and {self.one_byte or 'fp16 or bf16'} on {TARGET}"
            )
        block_m, block_n = config["block_m"], config["block_n"]
        side, other = (block_n, block_m) if swaps(config) else (block_m, block_n)
        most_rows, step = self._most_rows(config), self._step
        if side != 16 * config["num_warps"] or not step <= other <= most_rows.get(side, 0) or other % step:
            most = ", ".join(f"{most} by {side}" for side, most in most_rows.items())
            raise InputError(
                f"{what} with tiles of {block_m} x {block_n} and {config['num_warps']} warps; expected 4 warps for "
                f"each 64 of one side, and of the other a multiple of {step}, at most {most}"
            )
        fixed = {**self._fixed, **({"swap_ab": 0} if "swap_ab" in config else {})}
        if any(config[key] != value for key, value in fixed.items()):
            raise InputError(f"{what}; expected {', '.join(f'{key} {value}' for key, value in fixed.items())}")
        most_parts = min(_PARTS[-1], ceil_div(shape["K"], self.block_k))
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
            "SWAPPED": int(swap), "BF16": int(dtype == "bf16"), **_OPERANDS.get(dtype, {}),
            **({"PROMOTED": 1} if config.get("promote") else {}),
        }  # fmt: skip
        n = config["block_m" if swap else "block_n"]
        products = Wgmma(n=n, kind=_KINDS[dtype], a_transposed=swap, b_transposed=not swap)
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
            "BF16": int(dtype == "bf16"), **({"SCALED": 1} if self.one_byte else {}), **_SUMS.get(dtype, {}),
        }  # fmt: skip
        return cuda_source(__name__, "gemm_split_k_sum.cu", entry=SUM, defines=defines)

    def prepare(
        self, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor, config: Settings, dtype: Dtype, *,
        scale: float | None = None,
    ) -> Launch:  # fmt: skip
        """Make the tensor maps and the workspace, and return both launches.

        scale: of operands of one byte.
        Assumes: a and b are aligned for TMA; one prepared launch runs on one stream at a time.
        """
        import torch

        (n_rows, n_inner), n_cols = a.shape, out.shape[1]
        parts, rows = config["split_k"], tile_rows(config, n_rows)
        sums = torch.int32 if dtype == "int8" else torch.float32
        workspace = torch.empty(parts * n_rows * n_cols, dtype=sums, device=a.device)
        b_box = (config["block_n"], self.block_k) if self.one_byte else (64, 64)
        boxes, fetched = ((a, (rows, self.block_k)), (b, b_box)), _FETCHED[DTYPE_BYTES[dtype]]
        maps: list[Argument] = [tensor_map(tensor, box, promotion=fetched) for tensor, box in boxes]
        product = prepare_ahead(
            self.ahead(config, {"M": n_rows, "N": n_cols, "K": n_inner}, dtype),
            [*maps, workspace, n_rows, n_cols, n_inner, rows, parts],
            overlap=bool(config["pdl"]),
        )
        fours, given = n_rows * n_cols // 4, [workspace, *([] if bias is None else [bias])]
        add = prepare_cuda(
            self.sum_source(config, dtype),
            programs=ceil_div(fours, _SUM_THREADS),
            threads=_SUM_THREADS,
            shared_bytes=0,
            arguments=[*given, out, fours, n_cols // 4, *([] if scale is None else [float(scale)])],
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


def _even_tiles(shape: Shape, sms: int, most_rows: Mapping[int, int], step: int) -> Iterator[tuple[int, int, int]]:
    """Yield rows, columns and whether A and B are swapped of tiles that divide one side evenly, at most one an SM.

    step: what the even shares are a multiple of.
    """
    for side, most in most_rows.items():
        for swap, across, along in ((0, "N", "M"), (1, "M", "N")):
            beside = ceil_div(shape[along], side)
            # Half of a tile and more is of the matrix.
            if side > 64 and shape[along] <= side - 64:
                continue
            least, before = _LEAST_ROWS if swap else 64, 0
            for tiles in range(ceil_div(shape[across], most), ceil_div(shape[across], least) + 1):
                if beside * tiles > sms:
                    break
                other = step * ceil_div(ceil_div(shape[across], tiles), step)
                # Other numbers of tiles may round to the same; a square tile is a swapped one.
                if other != before and (swap or other != side):
                    yield (other, side, 1) if swap else (side, other, 0)
                before = other


def _nanoseconds(
    times: _Times, shape: Shape, block_m: int, block_n: int, parts: int, sms: int, *, swap: int
) -> float:  # fmt: skip
    """Return about how long a product takes, with the sum of its parts. shape: with K in two bytes."""
    m, n, k = (shape[size] for size in "MNK")
    groups, other = (block_n // 64, block_m) if swap else (block_m // 64, block_n)
    tiles_m, tiles_n, steps = ceil_div(m, block_m), ceil_div(n, block_n), ceil_div(ceil_div(k, 64), parts)
    ctas, of_a, of_b = (
        tiles_m * tiles_n * parts,
        _BYTES * ceil_div(m, tiles_m),
        _bytes_of_b(block_n, b_rows=times.b_rows),
    )
    waves = ceil_div(ctas, sms)
    multiplying = 2 * groups * other / times.multiplied * throttled(shape)
    of_rows = k if times.b_rows else n
    arriving = of_a * times.by_pitch[pitch(k)] + of_b * times.by_pitch[pitch(of_rows)]
    # Of neighbours that load the same tile of B, or with one tile of rows the same rows of A, L2 serves all at once.
    read = of_a / math.pow(tiles_n, times.shared) + of_b / tiles_m
    taken = (
        waves * steps * multiplying, waves * steps * arriving / times.arriving, ctas * steps * read / times.l2,
        2 * (m * k + n * k) / times.dram,
    )  # fmt: skip
    loop = math.pow(sum(math.pow(time, times.power) for time in taken), 1 / times.power)
    if block_n > n:
        loop *= 1 + times.outside * (block_n - n) / block_n
    begun = times.launches + times.wave * (waves - 1)
    return begun + loop + times.stored * waves * other + 8 * parts * m * n / times.added

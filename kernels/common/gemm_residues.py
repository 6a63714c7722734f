"""Describes the variant "residues" of matrix products: few tiles by TMA, whatever the row pitch of B, for sm_90.

Rows of B are read class by class, by their residue modulo as many as make their pitch a multiple of 16 bytes
(gemm_residues.cu); gather_rows.cu copies the columns of A, which are few bytes, into that order. Imports torch, only
when called.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import AheadCuda, Launch
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import configs
from .cuda import Argument, TensorMap, cuda_source, prepare_ahead, prepare_cuda, tensor_map
from .gemm_config import Settings, ring_bytes
from .targets import SHARED_BYTES, SMS, TMA_ALIGNMENT, ceil_div, is_tma_aligned
from .wgmma import Wgmma, wgmma_header

if TYPE_CHECKING:
    from torch import Tensor

RESIDUES, ENTRY, GATHER = "residues", "gemm_residues", "gather_rows"
TARGET = "sm_90"
MOST_ROWS = {64: 256, 128: 256, 192: 200}
"""Columns of a tile -> the most rows whose sums stay in registers; with A and B the other way round likewise."""
_MOST_ROWS_OF_CLASSES = {64: 256, 128: 192, 192: 128}
"""The same where the sums of several classes lie in shared memory beside two stages and more."""

FIXED = {"block_k": 64, "subtiles": 1, "tma": 1, "cluster_m": 1, "cluster_n": 1, "stream_k": 0, "group_m": 1}
"""What no configuration changes, of residues and of split_k (whose steps of one byte have a block_k of their own)."""
STAGES = range(2, 13)
"""Stages of both."""

_SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 16)
_MOST_CLASSES = 8
# The launch rule, measured on an H100 and an H200 (benchmarks/matmul-residues-h100.json, matmul-tiles-h200.json).
# Unaligned rows of B: the most rows of C, or elements, for which a copy of B is slower. few_rows is faster for so few
# rows of C below a K, that of at most so many columns or that of more; and for (rows, columns) at most up to a K.
_UNALIGNED_ROWS, _UNALIGNED_ELEMENTS = 256, 250_000
_SHORT_ROWS, _SHORT_COLUMNS, _SHORT_INNER = 24, 4096, (1200, 400)
_SHORTER = {(80, 8192): 128, (80, 4096): 400}
# An unaligned A alone is copied: of few rows from so many elements of B on, fewer where rows are more; of many rows
# where K is short or C small.
_LEAST_ELEMENTS, _MORE_ROWS, _GATHERED_INNER = {24: 700_000, 128: 1 << 18}, 300, 1024
# Aligned products: the most rows, and the least K, for which four parts of K occupy SMs that whole tiles leave idle.
_DIVIDED_ROWS, _DIVIDED_INNER = 56, 1024
# The time of a configuration, fitted to those of 597 shapes on an H200 (docs/notes/gemm.md). Nanoseconds: of a launch,
# of a further wave, of each doubling of the CTAs that divide K, of the copy of A. Bytes a nanosecond: that arrive at an
# SM and cross its shared memory, that L2 and DRAM deliver, that a copy moves. How much more rows in two lines count, at
# an SM, in L2 and, by 64 columns, in DRAM; the power by which times join. Nanoseconds of the result by 64 elements and
# by rows, and of what CTAs of a cluster exchange.
_LAUNCH, _WAVE, _DOUBLED, _GATHERED = 2830.0, 2670.0, 229.0, 1390.0
_ARRIVING, _SHARED, _L2, _DRAM, _COPIED = 160.0, 184.0, 12_900.0, 4320.0, 4120.0
_LINES_ARRIVING, _LINES_L2, _LINES_DRAM, _POWER = 2.19, 2.06, 0.204, 4.31
_STORED, _ADDED, _EXCHANGED = 9.47, 1.32, 5.3
# Shared memory of a CTA of two on an SM, and the most CTAs an SM where rows or K are divided further than they must.
_HALF_BYTES, _MOST_CTAS = 113 * 1024, 4
# Rows from which on they are divided among tiles.
_LEAST_ROWS = 64
_GATHER_THREADS, _VECTOR = 256, 8
_RESIDENT = {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15, 16: 7}
"""CTAs of a cluster -> clusters that an H200 with 132 SMs holds at once, as its driver says; others hold that share."""
_TENSOR_MAP_BYTES = 128
"""Of what cuTensorMapEncodeTiled writes."""


def residues_bytes(config: Settings, n_cols: int) -> int:
    """Return the shared memory of a CTA, in bytes: all stages, sums in fp32, there or behind, and barriers."""
    ring, sums = ring_bytes(config, 2), 4 * config["block_m"] * (config["block_n"] + 4)
    return int((ring + sums if classes_of(n_cols) > 1 else max(ring, sums)) + 16 * config["num_stages"])


def classes_of(columns: int) -> int:
    """Return of how many rows of so many 2-byte elements the pitch is a multiple of 16 bytes."""
    return _MOST_CLASSES // math.gcd(columns, _MOST_CLASSES)


def in_class(shape: Shape) -> int:
    """Return the columns that a class of a gathered A takes, whole steps."""
    return 64 * _steps(shape)


def most_rows(n_cols: int) -> Mapping[int, int]:
    """Return, by the columns of a tile, the most rows that it may have."""
    return MOST_ROWS if classes_of(n_cols) == 1 else _MOST_ROWS_OF_CLASSES


def tile_columns(config: Settings, n_cols: int) -> int:
    """Return the columns of C of a CTA: rows that begin late in a vector leave the last 8 that it loads to the next."""
    return int(config["block_n"]) - (8 if classes_of(n_cols) > 1 else 0)


def tile_rows(config: Settings, n_rows: int) -> int:
    """Return the rows of a tile: an even share, of which the last tile has fewer of its own."""
    return ceil_div(n_rows, ceil_div(n_rows, config["block_m"]))


@dataclass(frozen=True)
class Residues:
    """Hold the variant of one kernel. bias_relu: whether its result is max(0, sum + bias)."""

    name: str
    bias_relu: bool = False

    def serves(self, shape: Shape, dtype: Dtype, target: str) -> bool:
        """Tell whether the variant has a product."""
        return target == TARGET and DTYPE_BYTES[dtype] == 2 and shape["K"] >= _MOST_CLASSES

    def config(self, generic: Settings, shape: Shape, block_n: int, split: int, tiles_m: int = 1) -> dict[str, Any]:
        """Return a launch configuration with as many stages as fit, at most the steps of a CTA.

        tiles_m: tiles that divide the rows, of at most as many as most_rows says.
        """
        block_m = 8 * ceil_div(ceil_div(shape["M"], tiles_m), 8)
        chosen = {
            **generic, **FIXED, "variant": RESIDUES, "block_m": block_m, "block_n": block_n,
            "num_warps": block_n // 16, "split_k": split, "pdl": 0,
        }  # fmt: skip
        steps = ceil_div(_steps(shape) * classes_of(shape["N"]), split)
        most = _most_stages(chosen, SHARED_BYTES[TARGET], shape["N"])
        return {**chosen, "num_stages": min(most, max(steps, 2))}

    def is_fastest(self, shape: Shape, dtype: Dtype, target: str) -> bool:
        """Tell whether the rule takes this variant."""
        n_rows, n_cols, n_inner = shape["M"], shape["N"], shape["K"]
        if not self.serves(shape, dtype, target):
            return False
        small, more = n_rows * n_cols <= _UNALIGNED_ELEMENTS, n_rows <= _MORE_ROWS and n_inner <= _GATHERED_INNER
        if classes_of(n_cols) > 1:
            if any(n_rows <= rows and n_cols <= cols and n_inner <= most for (rows, cols), most in _SHORTER.items()):
                return False
            few = n_rows <= _UNALIGNED_ROWS or small or more
            return few and (n_rows > _SHORT_ROWS or n_inner >= _SHORT_INNER[n_cols > _SHORT_COLUMNS])
        if _is_gathered(shape):
            for rows, least in _LEAST_ELEMENTS.items():
                if n_rows <= rows:
                    return n_cols * n_inner >= least
            return more or (n_rows <= _MORE_ROWS and small)
        return n_rows <= _DIVIDED_ROWS and n_inner >= _DIVIDED_INNER and ceil_div(n_cols, 64) <= _RESIDENT[4]

    def fastest(self, generic: Settings, shape: Shape) -> tuple[float, dict[str, Any]]:
        """Return the least nanoseconds by the rule, and the configuration; generic: as in few_rows."""
        times = (
            (_nanoseconds(config, shape, generic["programs"]), config) for config in self.candidates(generic, shape)
        )
        return min(times, key=lambda time: time[0])

    def candidates(self, generic: Settings, shape: Shape) -> Iterator[dict[str, Any]]:
        """Yield configurations that may be worth timing: two CTAs an SM where there are more CTAs than SMs."""
        steps, sms = ceil_div(shape["K"], 64), generic["programs"]
        for block_n, most in most_rows(shape["N"]).items():
            least = ceil_div(shape["M"], most)
            shares = range(least, max(least, min(ceil_div(shape["M"], _LEAST_ROWS), _MOST_CTAS * sms)) + 1)
            for tiles_m, split in itertools.product(shares, _SPLITS):
                config = self.config(generic, shape, block_n, split, tiles_m)
                ctas, divided = _ctas(config, shape), split > 1 or tiles_m > shares.start
                if (split > 1 and 2 * steps < 3 * split) or (divided and ctas > _MOST_CTAS * sms):
                    continue
                yield config
                if (
                    ctas > sms
                    and STAGES[0] <= (half := _most_stages(config, _HALF_BYTES, shape["N"])) < config["num_stages"]
                ):
                    yield {**config, "num_stages": half}

    def check(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
        """Check a configuration with variant residues. Raises: InputError."""
        what = f"{self.name}: variant is {RESIDUES}"
        if not self.serves(shape, dtype, target):
            raise InputError(
                f"{what} for K={shape['K']} in {dtype} on {target}; expected K at least {_MOST_CLASSES} and fp16 or "
                f"bf16 on {TARGET}"
            )
        block_m, block_n = config["block_m"], config["block_n"]
        if block_m % 8 or not 8 <= block_m <= most_rows(shape["N"]).get(block_n, 0):
            most = ", ".join(f"{rows} by {columns}" for columns, rows in most_rows(shape["N"]).items())
            raise InputError(
                f"{what} with tiles of {block_m} x {block_n}; expected a multiple of 8 rows, at most {most}"
            )
        fixed = {**FIXED, "num_warps": block_n // 16, **({"swap_ab": 0} if "swap_ab" in config else {})}
        if any(config[key] != value for key, value in fixed.items()):
            raise InputError(f"{what}; expected {', '.join(f'{key} {value}' for key, value in fixed.items())}")
        if config["split_k"] not in _SPLITS or config["num_stages"] not in STAGES:
            raise InputError(
                f"{what} with split_k {config['split_k']} and num_stages {config['num_stages']}; expected split_k "
                f"{', '.join(map(str, _SPLITS))} and {STAGES[0]} to {STAGES[-1]} stages"
            )
        configs.check_flags(self.name, config, "pdl")

    def ahead(self, config: Settings, shape: Shape, dtype: Dtype, *, gathered: bool | None = None) -> AheadCuda:
        """Return what the compiler needs. gathered: whether A is copied, if its address is unaligned."""
        defines = {
            "BLOCK_M": config["block_m"], "BLOCK_N": config["block_n"], "STAGES": config["num_stages"],
            "SPLIT": config["split_k"], "CLASSES": classes_of(shape["N"]),
            "GATHERED": int(_is_gathered(shape) if gathered is None else gathered),
            "BIAS_RELU": int(self.bias_relu), "BF16": int(dtype == "bf16"),
        }  # fmt: skip
        products = Wgmma(n=config["block_m"], kind="bf16" if dtype == "bf16" else "f16", a_transposed=True)
        return AheadCuda(
            cuda_source(__name__, "gemm_residues.cu", entry=ENTRY, defines=defines, generated=wgmma_header(products)),
            programs=_ctas(config, shape),
            threads=32 * config["num_warps"] + 32,
            shared_bytes=residues_bytes(config, shape["N"]),
        )

    def prepare(self, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor, config: Settings, dtype: Dtype) -> Launch:
        """Make the tensor maps and return the launch, behind that of the copy of A if it needs one.

        Assumes: b is aligned for TMA but for its row pitch; one prepared launch runs on one stream at a time.
        """
        (n_rows, n_inner), classes = a.shape, classes_of(out.shape[1])
        shape, operands = {"M": n_rows, "N": out.shape[1], "K": n_inner}, [b, *([] if bias is None else [bias])]
        if not _is_gathered(shape) and is_tma_aligned(a):
            return self._product(a, operands, out, config, dtype, n_inner=n_inner, gathered=False)
        columns = a.new_empty((n_rows, classes * in_class(shape)))
        product = self._product(columns, operands, out, config, dtype, n_inner=n_inner, gathered=True)
        copy = prepare_cuda(
            cuda_source(__name__, "gather_rows.cu", entry=GATHER, defines={"CLASSES": classes}),
            programs=ceil_div(columns.numel() // _VECTOR, _GATHER_THREADS),
            threads=_GATHER_THREADS,
            shared_bytes=0,
            arguments=[a, columns, n_rows, n_inner, in_class(shape)],
            overlap=bool(config["pdl"]),
        )

        def launch() -> None:
            copy()
            product()

        return launch

    def prepare_gathered(self, columns: Tensor, b: Tensor, out: Tensor, config: Settings, dtype: Dtype) -> Launch:
        """Return the launch of an A whose columns the launch before this one writes in the order of gather_rows.cu.

        Shapes: columns (M, classes · in_class), zero where no column of A falls.
        """
        return self._product(columns, [b], out, config, dtype, n_inner=b.shape[0], gathered=True)

    def _product(
        self, columns: Tensor, operands: Sequence[Tensor], out: Tensor, config: Settings, dtype: Dtype, *,
        n_inner: int, gathered: bool,
    ) -> Launch:  # fmt: skip
        (n_rows, n_cols), (b, *bias) = out.shape, operands
        shape, rows = {"M": n_rows, "N": n_cols, "K": n_inner}, tile_rows(config, n_rows)
        of_a = tensor_map(columns, (rows, 64), promotion=128)
        maps: list[Argument] = [of_a, _one_argument(_maps_of_classes(b, classes_of(n_cols)))]
        return prepare_ahead(
            self.ahead(config, shape, dtype, gathered=gathered),
            [*maps, *bias, out, n_rows, n_cols, _steps(shape), rows],
            overlap=gathered or bool(config["pdl"]),
        )


def _most_stages(config: Settings, limit: int, n_cols: int) -> int:
    """Return how many stages, of those that may be chosen, fit in so many bytes of shared memory; 0 if none do."""
    fit = (n for n in reversed(STAGES) if residues_bytes({**config, "num_stages": n}, n_cols) <= limit)
    return next(fit, 0)


def _ctas(config: Settings, shape: Shape) -> int:
    tiles = ceil_div(shape["M"], config["block_m"]) * ceil_div(shape["N"], tile_columns(config, shape["N"]))
    return int(tiles * config["split_k"])


def _nanoseconds(config: Settings, shape: Shape, sms: int) -> float:
    """Return about how long a product takes."""
    (m, n, k), split, classes = (shape[size] for size in "MNK"), config["split_k"], classes_of(shape["N"])
    rows, block_m, groups, ctas = tile_rows(config, m), config["block_m"], config["block_n"] // 64, _ctas(config, shape)
    on_sm = 2 if residues_bytes(config, n) <= _HALF_BYTES else 1
    slots = split * max(_RESIDENT[split] * sms // SMS[TARGET], 1)
    waves = ceil_div(ctas, slots * on_sm)
    each = waves * on_sm if ctas > slots else 1
    of_a, of_b = 128 * rows, 8192 * groups
    two_a, two_b = not _is_gathered(shape) and k % 64 > 0, classes * n % 64 > 0

    def read(twice: float) -> float:
        return float(of_a * (twice if two_a else 1) + of_b * (twice if two_b else 1))

    in_shared = (128 * groups * (64 + block_m) + of_a + of_b) / _SHARED
    step = max(in_shared, read(_LINES_ARRIVING) / _ARRIVING)
    steps = ceil_div(classes * _steps(shape), split)
    beside = _LINES_DRAM / groups if two_b else 0.0
    by_l2, by_dram = ctas * steps * read(_LINES_L2) / _L2, 2 * (m * k + n * k * (1 + beside) + m * n) / _DRAM
    loop = math.pow(sum(math.pow(time, _POWER) for time in (each * steps * step, by_l2, by_dram)), 1 / _POWER)
    ends = min(classes, ceil_div(classes, split) + 1)
    stored = each * (_STORED * rows * groups + _ADDED * block_m * ends)
    dividing = _DOUBLED * math.log2(split) + _EXCHANGED * block_m * groups if split > 1 else 0.0
    copying = _GATHERED + 4 * m * k / _COPIED if _is_gathered(shape) else 0.0
    return float(_LAUNCH + _WAVE * (waves - 1) + loop + stored + dividing + copying)


def _steps(shape: Shape) -> int:
    """Return the steps of 64 of each class."""
    return ceil_div(ceil_div(shape["K"], classes_of(shape["N"])), 64)


def _is_gathered(shape: Shape) -> bool:
    """Tell whether A is copied: its columns lie in another order, or TMA cannot read its rows."""
    return classes_of(shape["N"]) > 1 or 2 * shape["K"] % TMA_ALIGNMENT > 0


@dataclass(frozen=True)
class _Joined:
    """Hold several tensor maps one behind the other, as the driver's object holds one."""

    text: ctypes.Array[ctypes.c_char]

    def getPtr(self) -> int:
        """Return the address of the first."""
        return ctypes.addressof(self.text)


def _one_argument(maps: Sequence[TensorMap]) -> TensorMap:
    """Return maps of one tensor as a single argument of a launch."""
    joined = b"".join(ctypes.string_at(int(one.encoded.getPtr()), _TENSOR_MAP_BYTES) for one in maps)
    return TensorMap(_Joined(ctypes.create_string_buffer(joined, len(joined))), maps[0].tensor)


def _maps_of_classes(b: Tensor, classes: int) -> tuple[TensorMap, ...]:
    """Return the tensor map of each class of rows, whose columns begin at a whole vector."""
    n_inner, n_cols = b.shape
    maps = []
    for first in range(classes):
        late = first * n_cols % _VECTOR
        rows, start = ceil_div(n_inner - first, classes), b.storage_offset() + first * n_cols - late
        of_class = b.as_strided((rows, n_cols + late), (classes * n_cols, 1), start)
        maps.append(tensor_map(of_class, (64, 64), promotion=128))
    return tuple(maps)

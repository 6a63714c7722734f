"""Describes the variant "residues" of matrix products: few tiles by TMA, whatever the row pitch of B, for sm_90.

Rows of B are read class by class, by their residue modulo as many as make their pitch a multiple of 16 bytes
(gemm_residues.cu); gather_rows.cu copies the columns of A, which are few bytes, into that order. Imports torch, only
when called.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Iterator, Sequence
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
MOST_ROWS = {64: 256, 128: 192, 192: 128}
"""Columns of a tile -> the most rows whose sums stay in registers, and in shared memory beside two stages and more."""

_FIXED = {"block_k": 64, "subtiles": 1, "tma": 1, "cluster_m": 1, "cluster_n": 1, "stream_k": 0, "group_m": 1}
_SPLITS, _STAGES = (1, 2, 4, 8, 16), range(2, 13)
_MOST_CLASSES = 8
# The launch rule, measured on an H100 (benchmarks/matmul-residues-h100.json). Unaligned rows of B: rows of C and K of
# products so short that few_rows is faster. Elements of B from which on an unaligned A is copied.
_SHORT_ROWS, _SHORT_INNER, _LEAST_ELEMENTS = 24, 1200, 1 << 18
# Aligned products: rows, and the K from which on parts of K occupy SMs that whole tiles leave idle; of more rows, the
# most columns and the least K.
_DIVIDED_ROWS, _DIVIDED_INNER, _NARROW, _NARROW_INNER = 56, 1024, 1024, 4096
# Nanoseconds, fitted to the times of 90 shapes: of a launch, of each doubling of CTAs that divide K and of any, of the
# copy of A, of a further wave; of a class and of the result, by rows and 64 columns. Bytes a nanosecond that an SM and
# DRAM deliver; the part of A that counts for an SM, and the power by which both times join.
_LAUNCH, _DOUBLED, _DIVIDED, _GATHERED, _WAVE, _ADDED, _STORED = 2400.0, 470.0, 530.0, 560.0, 660.0, 7.7, 7.3
_SM_BYTES, _DRAM_BYTES, _OF_A, _POWER = {1: 110.0, 2: 76.0}, 4000.0, 0.4, 4.0
# Shared memory of a CTA of two on an SM, and the most CTAs an SM where K is divided.
_HALF_BYTES, _MOST_CTAS = 113 * 1024, 5
# Rows from which on they are divided among tiles.
_LEAST_ROWS = 64
_GATHER_THREADS, _VECTOR = 256, 8
_TENSOR_MAP_BYTES = 128
"""Of what cuTensorMapEncodeTiled writes."""


def residues_bytes(config: Settings) -> int:
    """Return the shared memory of a CTA, in bytes: all stages, sums in fp32, barriers."""
    sums = 4 * config["block_m"] * (config["block_n"] + 4)
    return int(ring_bytes(config, 2) + sums + 16 * config["num_stages"])


def classes_of(columns: int) -> int:
    """Return of how many rows of so many 2-byte elements the pitch is a multiple of 16 bytes."""
    return _MOST_CLASSES // math.gcd(columns, _MOST_CLASSES)


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

        tiles_m: tiles that divide the rows; their sums must fit in shared memory beside two stages (MOST_ROWS).
        """
        block_m = 8 * ceil_div(ceil_div(shape["M"], tiles_m), 8)
        chosen = {
            **generic, **_FIXED, "variant": RESIDUES, "block_m": block_m, "block_n": block_n,
            "num_warps": block_n // 16, "split_k": split, "pdl": 0,
        }  # fmt: skip
        steps = ceil_div(_steps(shape) * classes_of(shape["N"]), split)
        fit = [n for n in _STAGES if residues_bytes({**chosen, "num_stages": n}) <= SHARED_BYTES[TARGET]]
        return {**chosen, "num_stages": min(fit[-1], max(steps, 2))}

    def is_fastest(self, shape: Shape, dtype: Dtype, target: str) -> bool:
        """Tell whether the rule takes this variant."""
        n_rows, n_cols, n_inner = shape["M"], shape["N"], shape["K"]
        if not self.serves(shape, dtype, target):
            return False
        if classes_of(n_cols) > 1:
            return n_rows > _SHORT_ROWS or n_inner >= _SHORT_INNER
        if _is_gathered(shape):
            return n_cols * n_inner >= _LEAST_ELEMENTS
        if n_rows <= _DIVIDED_ROWS:
            return n_inner >= _DIVIDED_INNER and 2 * ceil_div(n_cols, 64) <= SMS[TARGET]
        return n_cols <= _NARROW and n_inner >= _NARROW_INNER

    def fastest(self, generic: Settings, shape: Shape) -> dict[str, Any]:
        """Return the configuration that takes the least time by the rule; generic: as in few_rows."""
        return min(self.candidates(generic, shape), key=lambda config: _nanoseconds(config, shape, generic["programs"]))

    def candidates(self, generic: Settings, shape: Shape) -> Iterator[dict[str, Any]]:
        """Yield configurations that may be worth timing: two CTAs an SM where there are more CTAs than SMs."""
        steps, sms = ceil_div(shape["K"], 64), generic["programs"]
        for block_n, most in MOST_ROWS.items():
            shares = range(ceil_div(shape["M"], most), max(ceil_div(shape["M"], _LEAST_ROWS), 1) + 1)
            for tiles_m, split in itertools.product(shares, _SPLITS):
                config = self.config(generic, shape, block_n, split, tiles_m)
                ctas = _ctas(config, shape)
                if split > 1 and 2 * steps < 3 * split or ctas > _MOST_CTAS * sms:
                    continue
                yield config
                fit = [n for n in _STAGES if residues_bytes({**config, "num_stages": n}) <= _HALF_BYTES]
                if ctas > sms and fit and fit[-1] < config["num_stages"]:
                    yield {**config, "num_stages": fit[-1]}

    def check(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
        """Check a configuration with variant residues. Raises: InputError."""
        what = f"{self.name}: variant is {RESIDUES}"
        if not self.serves(shape, dtype, target):
            raise InputError(
                f"{what} for K={shape['K']} in {dtype} on {target}; expected K at least {_MOST_CLASSES} and fp16 or "
                f"bf16 on {TARGET}"
            )
        block_m, block_n = config["block_m"], config["block_n"]
        if block_m % 8 or not 8 <= block_m <= MOST_ROWS.get(block_n, 0):
            most = ", ".join(f"{rows} by {columns}" for columns, rows in MOST_ROWS.items())
            raise InputError(
                f"{what} with tiles of {block_m} x {block_n}; expected a multiple of 8 rows, at most {most}"
            )
        fixed = {**_FIXED, "num_warps": block_n // 16, **({"swap_ab": 0} if "swap_ab" in config else {})}
        if any(config[key] != value for key, value in fixed.items()):
            raise InputError(f"{what}; expected {', '.join(f'{key} {value}' for key, value in fixed.items())}")
        if config["split_k"] not in _SPLITS or config["num_stages"] not in _STAGES:
            raise InputError(
                f"{what} with split_k {config['split_k']} and num_stages {config['num_stages']}; expected split_k "
                f"{', '.join(map(str, _SPLITS))} and {_STAGES[0]} to {_STAGES[-1]} stages"
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
            shared_bytes=residues_bytes(config),
        )

    def prepare(self, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor, config: Settings, dtype: Dtype) -> Launch:
        """Make the tensor maps and return the launch, behind that of the copy of A if it needs one.

        Assumes: b is aligned for TMA but for its row pitch; one prepared launch runs on one stream at a time.
        """
        (n_rows, n_inner), n_cols = a.shape, out.shape[1]
        shape, classes = {"M": n_rows, "N": n_cols, "K": n_inner}, classes_of(n_cols)
        steps, gathered = _steps(shape), _is_gathered(shape) or not is_tma_aligned(a)
        columns = a.new_empty((n_rows, classes * steps * 64)) if gathered else a
        rows = tile_rows(config, n_rows)
        maps: list[Argument] = [tensor_map(columns, (rows, 64)), _one_argument(_maps_of_classes(b, classes))]
        product = prepare_ahead(
            self.ahead(config, shape, dtype, gathered=gathered),
            [*maps, *([] if bias is None else [bias]), out, n_rows, n_cols, steps, rows],
            overlap=gathered or bool(config["pdl"]),
        )
        if not gathered:
            return product
        copy = prepare_cuda(
            cuda_source(__name__, "gather_rows.cu", entry=GATHER, defines={"CLASSES": classes}),
            programs=ceil_div(columns.numel() // _VECTOR, _GATHER_THREADS),
            threads=_GATHER_THREADS,
            shared_bytes=0,
            arguments=[a, columns, n_rows, n_inner, steps * 64],
            overlap=bool(config["pdl"]),
        )

        def launch() -> None:
            copy()
            product()

        return launch


def _ctas(config: Settings, shape: Shape) -> int:
    tiles = ceil_div(shape["M"], config["block_m"]) * ceil_div(shape["N"], tile_columns(config, shape["N"]))
    return int(tiles * config["split_k"])


def _nanoseconds(config: Settings, shape: Shape, sms: int) -> float:
    """Return about how long a product takes."""
    n_rows, split, classes = shape["M"], config["split_k"], classes_of(shape["N"])
    width, ctas = config["block_n"] // 64, _ctas(config, shape)
    on_sm = 2 if residues_bytes(config) <= _HALF_BYTES else 1
    waves = ceil_div(ctas, sms * on_sm)
    each = waves * on_sm if ctas > sms else 1
    step = 8192 * width + _OF_A * 128 * n_rows
    by_sm = each * ceil_div(classes * _steps(shape), split) * step / _SM_BYTES[min(classes, 2)]
    by_dram = 2 * shape["N"] * shape["K"] / _DRAM_BYTES
    loading = (by_sm**_POWER + by_dram**_POWER) ** (1 / _POWER)
    ends = min(classes, ceil_div(classes, split) + 1)
    adding = _ADDED * each * ends * config["block_m"] * width * (1.0 if classes > 1 else 0.5)
    dividing = _DIVIDED + _DOUBLED * math.log2(split) if split > 1 else 0.0
    once = _LAUNCH + dividing + (_GATHERED if _is_gathered(shape) else 0.0) + _WAVE * (waves - 1)
    return float(once + loading + adding + _STORED * n_rows * width)


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
        maps.append(tensor_map(b.as_strided((rows, n_cols + late), (classes * n_cols, 1), start), (64, 64)))
    return tuple(maps)

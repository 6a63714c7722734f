"""Describes the variant "few_rows" of matrix products: few rows, read as they lie (gemm_few_rows.cu), for sm_90.

TMA cannot address rows that are no multiple of 16 bytes, and a copy of B takes longer than a product of few rows does.
No access reaches beyond the end of a matrix. Imports torch, only when called.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import AheadCuda, Launch
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import configs
from .cuda import cuda_source, prepare_ahead
from .gemm_config import FEW_ROWS, Settings, few_rows_bytes
from .targets import SHARED_BYTES, TMA_ALIGNMENT, ceil_div

if TYPE_CHECKING:
    from torch import Tensor

ENTRY = "gemm_few_rows"
TARGET = "sm_90"
MOST_ROWS = 128
"""Rows of C whose sums stay in registers."""

_FIXED = {"block_n": 64, "block_k": 64, "num_warps": 8, "subtiles": 1, "tma": 0, "cluster_m": 1, "cluster_n": 1}
_THREADS = 256
_SPLITS = (1, 2, 4, 8, 16)
_STAGES = range(3, 11)
# Rows up to which two CTAs share an SM, with so many bytes of shared memory each.
_SHARING_ROWS, _HALF_BYTES = 64, 113 * 1024
# The launch rule, measured on an H200 (docs/notes/gemm.md). Rows from which on B is copied unless it has few columns;
# the K below which, and the rows up to which, a copy of an unaligned A takes longer than the product.
_MANY_ROWS, _FEW_COLUMNS = 65, 2048
_SHORT_INNER, _FEW = 1024, 24
# CTAs of a split of at least two steps each, and CTAs to a tile where there are more tiles than SMs.
_LEAST_STEPS, _MANY_TILES_SPLIT = 2, 4


@dataclass(frozen=True)
class FewRows:
    """Hold the variant of one kernel. bias_relu: whether its result is max(0, sum + bias)."""

    name: str
    bias_relu: bool = False

    def serves(self, n_rows: int, dtype: Dtype, target: str) -> bool:
        """Tell whether the variant has a product of so many rows."""
        return target == TARGET and DTYPE_BYTES[dtype] == 2 and n_rows <= MOST_ROWS

    def is_fastest(self, shape: Shape, dtype: Dtype, target: str) -> bool:
        """Tell whether the rule takes this variant."""
        n_rows, n_cols, n_inner = shape["M"], shape["N"], shape["K"]
        if not self.serves(n_rows, dtype, target):
            return False
        if n_cols * DTYPE_BYTES[dtype] % TMA_ALIGNMENT:
            return n_rows < _MANY_ROWS or n_cols <= _FEW_COLUMNS
        return n_inner * DTYPE_BYTES[dtype] % TMA_ALIGNMENT > 0 and n_inner < _SHORT_INNER and n_rows <= _FEW

    def config(self, generic: Settings, shape: Shape) -> dict[str, Any]:
        """Return the launch configuration of a shape: a CTA for each SM, and half the stages that fit.

        generic: the configuration of the generic variant, whose programs are the SMs.
        """
        sms = generic["programs"]
        tiles, steps = ceil_div(shape["N"], _FIXED["block_n"]), ceil_div(shape["K"], _FIXED["block_k"])
        most = _MANY_TILES_SPLIT if tiles > sms else sms // tiles
        fit = [split for split in _SPLITS if split <= most and split * _LEAST_STEPS <= steps]
        config = self._config(generic, 8 * ceil_div(shape["M"], 8), fit[-1] if fit else 1)
        return {**config, "num_stages": config["num_stages"] // 2 + 1}

    def _config(self, generic: Settings, block_m: int, split: int) -> dict[str, Any]:
        chosen = {
            **generic, **_FIXED, "variant": FEW_ROWS, "block_m": block_m, "group_m": 1, "split_k": split, "stream_k": 0,
            "pdl": 0,
        }  # fmt: skip
        most = _HALF_BYTES if block_m <= _SHARING_ROWS else SHARED_BYTES[TARGET]
        stages = [n for n in _STAGES if few_rows_bytes({**chosen, "num_stages": n}) <= most]
        return {**chosen, "num_stages": stages[-1]}

    def candidates(self, own: Settings, shape: Shape) -> Iterator[dict[str, Any]]:
        """Yield configurations that may be worth timing."""
        for split, stages in itertools.product(_SPLITS, (0, 2)):
            config = self._config(own, 8 * ceil_div(shape["M"], 8), split)
            yield {**config, "num_stages": config["num_stages"] - stages}

    def check(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
        """Check a configuration with variant few_rows. Raises: InputError."""
        what = f"{self.name}: variant is {FEW_ROWS}"
        if not self.serves(shape["M"], dtype, target):
            raise InputError(
                f"{what} for M={shape['M']} in {dtype} on {target}; expected at most {MOST_ROWS} rows in fp16 or bf16 "
                f"on {TARGET}"
            )
        block_m = config["block_m"]
        if block_m % 8 or not shape["M"] <= block_m <= MOST_ROWS:
            raise InputError(
                f"{what} with block_m {block_m} for M={shape['M']}; expected a multiple of 8 from M to {MOST_ROWS}"
            )
        fixed = {**_FIXED, "stream_k": 0, **({"swap_ab": 0} if "swap_ab" in config else {})}
        if any(config[key] != value for key, value in fixed.items()):
            raise InputError(f"{what}; expected {', '.join(f'{key} {value}' for key, value in fixed.items())}")
        if config["split_k"] not in _SPLITS or config["num_stages"] not in _STAGES:
            raise InputError(
                f"{what} with split_k {config['split_k']} and num_stages {config['num_stages']}; expected split_k "
                f"{', '.join(map(str, _SPLITS))} and {_STAGES[0]} to {_STAGES[-1]} stages"
            )
        configs.check_flags(self.name, config, "pdl")

    def ahead(self, config: Settings, shape: Shape, dtype: Dtype, *, loads: int | None = None) -> AheadCuda:
        """Return what the compiler needs. loads: how A is read (gemm_few_rows.cu), if its address is unaligned."""
        defines = {
            "BLOCK_M": config["block_m"], "STAGES": config["num_stages"], "SPLIT": config["split_k"],
            "A_LOADS": _loads(2 * shape["K"]) if loads is None else loads,
            "BIAS_RELU": int(self.bias_relu), "BF16": int(dtype == "bf16"),
        }  # fmt: skip
        return AheadCuda(
            cuda_source(__name__, "gemm_few_rows.cu", entry=ENTRY, defines=defines),
            programs=ceil_div(shape["N"], config["block_n"]) * config["split_k"],
            threads=_THREADS,
            shared_bytes=few_rows_bytes(config),
        )

    def prepare(self, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor, config: Settings, dtype: Dtype) -> Launch:
        """Return the launch; a, b and out may begin at any element."""
        (n_rows, n_inner), n_cols = a.shape, out.shape[1]
        shape = {"M": n_rows, "N": n_cols, "K": n_inner}
        ahead = self.ahead(config, shape, dtype, loads=_loads(a.data_ptr() | 2 * n_inner))
        operands = [a, b, *([] if bias is None else [bias]), out]
        return prepare_ahead(ahead, [*operands, n_rows, n_cols, n_inner], overlap=bool(config["pdl"]))


def _loads(at: int) -> int:
    """Return how rows of A are read that begin at multiples of some bytes: by 16 bytes, 4 or 2."""
    return 0 if at % 16 == 0 else 1 if at % 4 == 0 else 2

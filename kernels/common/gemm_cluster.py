"""Checks, builds and launches matrix products in CUDA C++ over cluster_gemm_kernel.cuh, for sm_90.

Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ledger.errors import InputError
from ledger.kernel import AheadCuda, Launch
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import configs
from .cuda import Argument, CudaSource, prepare_cuda, tensor_map
from .gemm_config import (
    Settings,
    cluster_of,
    cuda_ctas,
    cuda_threads,
    cuda_tiles,
    row_step,
    shared_bytes,
    stores_in_ring,
    swapped,
    tile_rows,
)
from .gemm_frames import registers_hold, swapped_rows, wgmma_step
from .targets import TMA_ALIGNMENT, ceil_div
from .wgmma import Kind, Wgmma, wgmma_header

if TYPE_CHECKING:
    from torch import Tensor

_KINDS: dict[str, Kind] = {"fp16": "f16", "bf16": "bf16", "fp8_e4m3": "e4m3", "int8": "s8"}
# Of an element of C; lanes store those of int8.
_RESULT_BYTES = 2

DIVIDED_CLOCKS = 10_700
"""Clocks that stream-K costs a launch beside its tiles, as fitted to matmul (docs/notes/gemm.md)."""


@dataclass(frozen=True, kw_only=True)
class ClusterGemm:
    """Hold what differs between the CUDA C++ of kernels.

    source: cuda.cuda_source with the kernel's module and file; the entry is NAME_cluster. fixed: keys that have one
    value. promotion: bytes that L2 fetches at once for a miss. early_columns: whether the last tiles of columns begin
    at any column rather than load rows of B outside of the matrix. divided_clocks: what stream-K costs a launch beside
    its tiles.
    """

    name: str
    source: Callable[..., CudaSource]
    fixed: Mapping[str, int] = field(default_factory=dict)
    promotion: Literal[128, 256] = 128
    early_columns: bool = False
    divided_clocks: int = DIVIDED_CLOCKS

    def check(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
        """Check a configuration with variant cuda. Raises: InputError."""
        (rows, cols), split, what = cluster_of(config), config["split_k"], f"{self.name}: variant is cuda"
        if target != "sm_90" or dtype not in _KINDS:
            raise InputError(f"{what} on {target} in {dtype}; expected sm_90 and 8 or 16 bits")
        widths, said = ((1, 2, 4), "1, 2 or 4") if swapped(config) else ((1, 2), "1 or 2")
        if not 1 <= rows <= 5 or cols not in widths or split not in (1, 2) or rows * cols * split > 8:
            raise InputError(
                f"{what} with cluster_m {rows}, cluster_n {cols} and split_k {split}; expected cluster_m 1 to 5, "
                f"cluster_n {said}, split_k 1 or 2, and a product of at most 8"
            )
        configs.check_flags(self.name, config, "stream_k", "pdl", "swap_ab")
        if DTYPE_BYTES[dtype] == 1 and config["block_n"] % rows:
            raise InputError(
                f"{what} with block_n {config['block_n']} and cluster_m {rows}; expected a divisor of block_n"
            )
        if config["stream_k"] and split > 1:
            raise InputError(f"{what} with stream_k 1 and split_k {split}; expected one of them")
        self._check_tile(config, dtype)
        warps = config["block_n" if swapped(config) else "block_m"] // 16
        fixed = {"block_k": 128 // DTYPE_BYTES[dtype], "num_warps": warps, "subtiles": 1, "tma": 1, **self.fixed}
        if any(config[key] != value for key, value in fixed.items()):
            raise InputError(f"{what}; expected {', '.join(f'{k} {v}' for k, v in fixed.items())}")
        if config["num_stages"] < 2 or config["programs"] < rows * cols:
            raise InputError(f"{what}; expected at least 2 stages and {rows * cols} programs")
        if stores_in_ring(config, DTYPE_BYTES[dtype]) and (
            config["stream_k"] or cuda_tiles(config, shape) > config["programs"]
        ):
            raise InputError(
                f"{what} with {config['num_stages']} stages, which leave no room for results beside them; expected "
                "fewer, or no more tiles than programs and stream_k 0"
            )

    def _check_tile(self, config: Settings, dtype: Dtype) -> None:
        block_m, block_n = config["block_m"], config["block_n"]
        if swapped(config):
            self._check_swapped(config, dtype)
        elif block_m not in (64, 128, 192) or block_n not in (64, 128, 192, 256):
            raise InputError(
                f"{self.name}: tiles are {block_m} x {block_n} with variant cuda; expected 64, 128 or 192 by 64 to 256 "
                "in steps of 64"
            )
        elif not registers_hold((block_m, block_n), dtype):
            raise InputError(
                f"{self.name}: tiles are {block_m} x {block_n} in {dtype}, whose sums registers do not hold; expected "
                "smaller ones"
            )

    def _check_swapped(self, config: Settings, dtype: Dtype) -> None:
        block_m, block_n, most_rows = config["block_m"], config["block_n"], swapped_rows(dtype)
        # As loaded, and 8 rows of each CTA that ends a part.
        step = max(row_step(config), 8 * int(config["split_k"]), wgmma_step(dtype))
        if not step <= block_m <= most_rows.get(block_n, 0) or block_m % step:
            most = ", ".join(f"{rows} by {cols}" for cols, rows in most_rows.items())
            raise InputError(
                f"{self.name}: tiles are {block_m} x {block_n} with swap_ab 1; expected rows in steps of {step}, at "
                f"most {most}"
            )

    def program(self, config: Settings, dtype: Dtype, *, direct: bool = False) -> CudaSource:
        """Return the CUDA C++ of a configuration. direct: whether rows of C are unaligned and stored without TMA."""
        swap = swapped(config)
        defines = {
            "BLOCK_M": config["block_m"], "BLOCK_N": config["block_n"], "STAGES": config["num_stages"],
            "ROWS": config["cluster_m"], "COLS": config["cluster_n"], "SPLIT": config["split_k"],
            "STREAM": config["stream_k"], "BF16": int(dtype == "bf16"),
            "SWAPPED": int(swap), **({"DIRECT": 1} if direct else {}),
            **({"STORES_IN_RING": 1} if stores_in_ring(config, DTYPE_BYTES[dtype]) else {}),
        }  # fmt: skip
        n = config["block_m" if swap else "block_n"]
        # A is K-major, B is MN-major (K-major of one byte an element); swapped, B is the first operand.
        product = Wgmma(n=n, kind=_KINDS[dtype], a_transposed=swap, b_transposed=not swap)
        return self.source(entry=f"{self.name}_cluster", defines=defines, generated=wgmma_header(product))

    def ahead(self, config: Settings, shape: Shape, dtype: Dtype) -> AheadCuda:
        """Return what the compiler needs to compile the program without a GPU."""
        return AheadCuda(
            self.program(config, dtype, direct=_is_direct(shape["N"], dtype)),
            programs=cuda_ctas(config, shape),
            threads=cuda_threads(config),
            shared_bytes=shared_bytes(config, DTYPE_BYTES[dtype], _RESULT_BYTES),
        )

    def prepare(
        self, a: Tensor, b: Tensor, out: Tensor, config: Settings, *, dtype: Dtype,
        bias: Tensor | None, scale: float | None, more: Sequence[Argument] = (),
    ) -> Launch:  # fmt: skip
        """Make the tensor maps and the workspace of stream-K, and return the launch.

        a, b: aligned for TMA, whatever their row pitch; rows of `out` may be unaligned. more: the last arguments.
        """
        import torch

        (n_rows, n_inner), n_cols = a.shape, out.shape[1]
        ahead = self.ahead(config, {"M": n_rows, "N": n_cols, "K": n_inner}, dtype)
        shared = ahead.programs if config["stream_k"] else 0
        tile = config["block_m"] * config["block_n"]
        partial = torch.empty(shared * tile + 4, dtype=torch.float32, device=a.device)
        ready = torch.zeros(config["num_warps"] // 4 * shared + 1, dtype=torch.int32, device=a.device)
        rows = tile_rows(config, n_rows)
        maps = self._maps(a, b, out, config, rows=rows, direct=_is_direct(n_cols, dtype))
        arguments: list[Argument] = [*maps, *([] if bias is None else [bias])]
        arguments += [partial, ready, *([] if scale is None else [float(scale)]), n_rows, n_cols, n_inner]
        # Rows of a tile, and where the last tiles begin to load.
        last_row = row_step(config) * ceil_div(n_rows, row_step(config)) - rows
        arguments += [rows, last_row, self.last_col(config, n_cols)]
        return prepare_cuda(
            ahead.source,  # type: ignore[arg-type]
            programs=ahead.programs,
            threads=ahead.threads,
            shared_bytes=ahead.shared_bytes,
            arguments=[*arguments, config["group_m"], *more],
            overlap=bool(config["pdl"]),
        )

    def last_col(self, config: Settings, n_cols: int) -> int:
        """Return the column from which on no tile begins to load."""
        # What neighbours both store has the same bits; stream-K may divide their steps otherwise.
        anywhere = self.early_columns and not config["stream_k"] and n_cols % 8 == 0
        return max((n_cols if anywhere else 64 * ceil_div(n_cols, 64)) - int(config["block_n"]), 0)

    def _maps(self, a: Tensor, b: Tensor, out: Tensor, config: Settings, *, rows: int, direct: bool) -> list[Argument]:
        """Return the tensor maps of A, B and C, or C itself where it is stored without. rows: those of a tile."""
        (height, width), block_n, block_k = cluster_of(config), config["block_n"], config["block_k"]
        if a.element_size() == 1:
            b_box = block_n // height, block_k
        else:
            # Where boxes of 64 columns do not divide among CTAs, their rows do.
            b_box = block_k // (height if block_n // 64 % height and block_k % height == 0 else 1), 64
        # A warp's 16 rows, of which parts end 8 each; where swapped, tiles begin at any multiple of 8.
        c_box = (8 if swapped(config) or config["split_k"] > 1 else 16), 64
        boxes = ((a, (rows // width, block_k)), (b, b_box), *([] if direct else [(out, c_box)]))
        maps: list[Argument] = [tensor_map(tensor, box, promotion=self.promotion) for tensor, box in boxes]
        return [*maps, *([out] if direct else [])]


def _is_direct(n_cols: int, dtype: Dtype) -> bool:
    """Tell whether lanes store C, whose rows the TMA cannot store."""
    return dtype == "int8" or n_cols * _RESULT_BYTES % TMA_ALIGNMENT > 0

"""Describes the launch of attention over whole sequences in CUDA C++: sm_90, rows of 33 to 64 columns (attention.cu).

Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ledger.operations import Shape
from ledger.records import Dtype

from .attention_family import scale_log2
from .cuda import CudaSource, cuda_source, tensor_map
from .plans import CudaPlan, Workspace
from .targets import ceil_div
from .wgmma import Kind, Wgmma, wgmma_header

if TYPE_CHECKING:
    from torch import Tensor

BLOCK_M, BLOCK_N, COLUMNS = 192, 128, 64
"""Queries and keys of a tile, and its columns."""

WARPS = 16
"""Warps of a CTA: three warpgroups multiply and one loads."""

STAGES = 5
"""Tiles of keys, and of values, that fit beside two blocks of queries."""

_ONES = 16 * 2 * COLUMNS


def shared_bytes(config: Mapping[str, Any]) -> int:
    """Return the shared memory of a CTA, in bytes: queries and tiles, ones, two blocks' numbers, mbarriers."""
    stages = config["num_stages"]
    tiles = 2 * (2 * BLOCK_M + 2 * stages * BLOCK_N) * COLUMNS
    return int(tiles + _ONES + 16 + 8 * (4 + 4 * stages))


def _source(config: Mapping[str, Any], dtype: Dtype, *, causal: bool) -> CudaSource:
    # Scores of 128 keys, with queries in shared memory; 64 columns of values and 8 of ones (MN-major), with weights in
    # registers.
    kind: Kind = "bf16" if dtype == "bf16" else "f16"
    products = (
        Wgmma(n=BLOCK_N, kind=kind, name="score"),
        Wgmma(n=COLUMNS + 8, kind=kind, name="accumulate", a="registers", b_transposed=True),
    )
    defines = {"BF16": int(dtype == "bf16"), "CAUSAL": int(causal), "STAGES": config["num_stages"]}
    return cuda_source(
        __name__, "attention.cu", entry="attention_cuda", defines=defines, generated=wgmma_header(*products)
    )


def cuda_plan(config: Mapping[str, Any], shape: Shape, dtype: Dtype, *, causal: bool, section: int) -> CudaPlan:
    """Return the launch of a configuration. section: query heads that may be in flight at once."""
    s, d = shape["S"], shape["D"]
    heads, kv_heads = shape["B"] * shape["HQ"], shape["B"] * shape["HKV"]
    fetched = Workspace("i32", 1, 0)

    def arguments(tensors: Mapping[str, Tensor]) -> list[Any]:
        boxes = {"q": BLOCK_M, "k": BLOCK_N, "v": BLOCK_N, "y": 16}
        seen = {name: tensors[name].view(kv_heads if name in "kv" else heads, s, d) for name in boxes}
        maps = [tensor_map(seen[name], (rows, COLUMNS)) for name, rows in boxes.items()]
        group = shape["HQ"] // shape["HKV"]
        return [*maps, fetched.allocate(tensors["y"].device), s, heads, group, section, scale_log2(d)]

    return CudaPlan(
        source=_source(config, dtype, causal=causal),
        ctas=min(heads * ceil_div(s, BLOCK_M), config["programs"]),
        threads=32 * WARPS,
        shared_bytes=shared_bytes(config),
        arguments=arguments,
        overlap=False,
    )

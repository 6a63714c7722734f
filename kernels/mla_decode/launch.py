"""Describes the launches of mla_decode's variants, with the shared memory that each needs.

The variants: "generic", Triton for sm_80 and later; "warp_specialised", Gluon for sm_90; "cuda", CUDA C++ for sm_90 in
clusters of two CTAs that share the loads of the cache (cluster.cu), for whole multiples of 128 heads, also with splits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ledger.kernels.common import configs
from ledger.kernels.common.cuda import CudaSource, cuda_source, tensor_map
from ledger.kernels.common.decode import counted_workspaces, polled_workspaces
from ledger.kernels.common.launches import options_of
from ledger.kernels.common.plans import CudaPlan, Operand, Plan, Workspace
from ledger.kernels.common.targets import ceil_div
from ledger.kernels.common.wgmma import Wgmma, wgmma_header
from ledger.operations import MLA_LATENT, MLA_ROPE, MLA_SCALE, Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .device import mla_decode_kernel, mla_decode_warp_specialised

if TYPE_CHECKING:
    from torch import Tensor

NAME = "mla_decode"
VARIANTS = ("generic", "warp_specialised", "cuda")
CLUSTER_HEADS = 128

# The factor of scores whose exponentials are then powers of two.
_SCALE_LOG2 = math.log2(math.e) * MLA_SCALE
_CTA_HEADS, _CTA_THREADS = 64, 512
# AHEAD: the rotary position and most of the first piece. Of 14 the last would wait for products of the right half.
_DEFINES = {"SLOTS": 9, "ROPES": 3, "HELD": 3, "AHEAD": 10}


def shape_of(inputs: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the shape of inputs. Shapes: q (B, H, 576), cache (B, S, 576)."""
    b, h, _ = inputs["q"].shape
    return {"B": b, "H": h, "S": inputs["cache"].shape[1]}


def together(config: Mapping[str, Any], shape: Shape) -> int:
    """Return how many consecutive CTAs wait for each other: all splits of those heads whose splits lie side by side."""
    if config["splits"] == 1 or config["variant"] == "generic":
        return 1
    heads = CLUSTER_HEADS if config["variant"] == "cuda" else shape["H"]
    return int(ceil_div(heads, _CTA_HEADS) * config["splits"])


def plan(config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> Plan | CudaPlan:
    """Return the launch of a configuration. Raises: InputError where the target's chip has too few SMs for it."""
    configs.check_together(NAME, together(config, shape), target)
    if config["variant"] == "cuda":
        return _cuda_plan(config, shape, dtype)
    return _generic_plan(config, shape) if config["variant"] == "generic" else _specialised_plan(config, shape)


def shared_bytes(config: Mapping[str, Any], dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of a program or CTA, in bytes; exact for CUDA C++."""
    element, width = DTYPE_BYTES[dtype], MLA_LATENT + MLA_ROPE
    block_h, block_s = config["block_h"], config["block_s"]
    if config["variant"] == "cuda":
        return _cuda_bytes()
    if config["variant"] == "warp_specialised":
        # The rotary columns of the queries and two tiles of exponentials; both tiles are as large as those columns.
        tiles = block_h * MLA_LATENT + 2 * block_s * width + 2 * block_h * block_s
        return int(element * tiles + 16 * block_h + 1024)
    # A tile that passes through registers, or is transposed for tensor cores, has a copy; 64 keys by TMA have none.
    tiles = config["num_stages"] + (0 if config["tma"] and block_s >= 64 else 1)
    return int(element * (block_h + tiles * block_s) * width + element * block_h * block_s + 2048)


def _generic_plan(config: Mapping[str, Any], shape: Shape) -> Plan:
    splits, block_h, block_s = config["splits"], config["block_h"], config["block_s"]
    blocks = ceil_div(shape["H"], block_h)
    latent, rope = ((1, block_s, width) if config["tma"] else None for width in (MLA_LATENT, MLA_ROPE))
    return Plan(
        function=mla_decode_kernel,
        grid=(blocks, splits, shape["B"]),
        operands={
            "q_ptr": Operand("q"), "latent": Operand("cache", latent), "rope": Operand("cache", rope),
            "y_ptr": Operand("y"),
        },
        workspaces=counted_workspaces(tiles=shape["B"] * blocks, splits=splits, rows=block_h, columns=MLA_LATENT),
        sizes={"n_heads": shape["H"], "n_keys": shape["S"], "scale_log2": _SCALE_LOG2},
        constants={
            "LATENT": MLA_LATENT, "ROPE": MLA_ROPE, "BLOCK_H": block_h, "BLOCK_S": block_s, "SPLITS": splits,
            "STAGES": config["num_stages"], "TMA": config["tma"], "PDL": config["pdl"],
        },
        options=options_of(config, stages=False),
    )  # fmt: skip


def _specialised_plan(config: Mapping[str, Any], shape: Shape) -> Plan:
    splits, block_h, block_s = config["splits"], config["block_h"], config["block_s"]
    blocks, piece = ceil_div(shape["H"], block_h), MLA_LATENT // 4
    rows = shape["B"] * blocks * splits * block_h
    return Plan(
        function=mla_decode_warp_specialised,
        grid=(blocks, splits, shape["B"]),
        operands={
            "q_piece": Operand("q", (1, block_h, piece)), "q_rope": Operand("q", (1, block_h, MLA_ROPE)),
            "latent": Operand("cache", (1, block_s, piece)), "rope": Operand("cache", (1, block_s, MLA_ROPE)),
            "y": Operand("y", (1, block_h, piece)), "y_ptr": Operand("y"),
        },
        # Each half of the columns has statistics of its own.
        workspaces=polled_workspaces(rows=rows, columns=MLA_LATENT, splits=splits, stats=4),
        sizes={"n_heads": shape["H"], "n_keys": shape["S"], "scale_log2": _SCALE_LOG2},
        constants={"SPLITS": splits, "PDL": config["pdl"]},
        options=options_of(config, stages=False),
        gluon=True,
    )  # fmt: skip


def _cuda_bytes() -> int:
    """Return the shared memory of a CTA, in bytes: tiles, corrections and statistics, mbarriers."""
    slots, ropes, held = (_DEFINES[name] for name in ("SLOTS", "ROPES", "HELD"))
    boxes = 2 * slots + ropes + MLA_LATENT // 64 - held + 2
    return 8192 * boxes + 3 * _CTA_HEADS * 4 + 8 * (2 * slots + 2 * ropes + 9)


def _cuda_source(config: Mapping[str, Any], dtype: Dtype) -> CudaSource:
    # Scores of 64 keys, with queries in shared memory or in registers; 128 columns of values (MN-major).
    kind = "bf16" if dtype == "bf16" else "f16"
    products = (
        Wgmma(n=64, kind=kind, name="score"),
        Wgmma(n=64, kind=kind, name="score", a="registers"),
        Wgmma(n=128, kind=kind, name="accumulate", b_transposed=True),
    )
    defines = {**_DEFINES, "BF16": int(dtype == "bf16"), "SPLITS": config["splits"]}
    return cuda_source(
        __name__, "cluster.cu", entry="mla_decode_cluster", defines=defines, generated=wgmma_header(*products)
    )


def _cuda_workspaces(rows: int, splits: int) -> tuple[Workspace, ...]:
    """Return the workspaces of splits: accumulators in fp16, statistics, their greatest, two counters a block."""
    slots = rows * splits if splits > 1 else 1
    return (
        Workspace("fp32", slots * MLA_LATENT // 2),
        Workspace("fp32", slots * 2),
        Workspace("fp32", slots * 2),
        Workspace("i32", 2 * rows // _CTA_HEADS, 0),
    )


def _cuda_plan(config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> CudaPlan:
    rows, splits = shape["B"] * shape["H"], config["splits"]

    def arguments(tensors: Mapping[str, Tensor]) -> list[Any]:
        q, cache, y = (tensors[name] for name in ("q", "cache", "y"))
        maps = [
            tensor_map(q.view(rows, MLA_LATENT + MLA_ROPE), (_CTA_HEADS, 64)),
            tensor_map(cache, (64, 64)),
            tensor_map(cache, (32, 64)),
            tensor_map(y.view(rows, MLA_LATENT), (16, 64)),
        ]
        workspaces = [each.allocate(y.device) for each in _cuda_workspaces(rows, splits)]
        return [*maps, y, *workspaces, shape["H"], shape["S"], _SCALE_LOG2]

    return CudaPlan(
        source=_cuda_source(config, dtype),
        ctas=rows // _CTA_HEADS * splits,
        threads=_CTA_THREADS,
        shared_bytes=_cuda_bytes(),
        arguments=arguments,
        overlap=bool(config["pdl"]),
    )

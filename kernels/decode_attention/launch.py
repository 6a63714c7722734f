"""Describes the launches of decode_attention's variants, with the shared memory that each needs.

The variants: "generic", Triton for all targets; "software_pipelined", Gluon for sm_90, whose loads are issued stages
ahead by the warps that compute; "cuda_cluster" and "cuda_stream_k", CUDA C++ for sm_90 (decode.cu).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ledger.kernels.common import configs
from ledger.kernels.common.attention_family import WIDEST_UNIT, scale_log2
from ledger.kernels.common.cuda import CudaSource, cuda_source
from ledger.kernels.common.decode import UNWRITTEN, counted_workspaces, polled_workspaces
from ledger.kernels.common.launches import options_of
from ledger.kernels.common.plans import CudaPlan, Operand, Plan, Workspace
from ledger.kernels.common.targets import ceil_div, power_of_two, sms_of
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .device import decode_attention_kernel, decode_attention_software_pipelined

if TYPE_CHECKING:
    from torch import Tensor

NAME = "decode_attention"
VARIANTS = ("generic", "software_pipelined", "cuda_cluster", "cuda_stream_k")
CUDA = VARIANTS[2:]

# Query heads of a program without tensor cores: more would need more registers than it has.
_MOST_WITHOUT_TENSOR_CORES = 4


def shape_of(inputs: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the shape of inputs. Shapes: q (B, HQ, D), k (B, HKV, S, D)."""
    b, hkv, s, d = inputs["k"].shape
    return {"B": b, "HQ": inputs["q"].shape[1], "HKV": hkv, "S": s, "D": d}


def together(config: Mapping[str, Any]) -> int:
    """Return how many consecutive programs wait for each other: the splits of a head. With stream-K none waits for
    a later CTA, and those of a cluster begin together.
    """
    return int(config["splits"]) if config["variant"] == "software_pipelined" else 1


def plan(config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> Plan | CudaPlan:
    """Return the launch of a configuration. Raises: InputError where the target's chip has too few SMs for it."""
    configs.check_together(NAME, together(config), target)
    if config["variant"] in CUDA:
        return _cuda_plan(config, shape, dtype, sms_of(target))
    return _generic_plan(config, shape) if config["variant"] == "generic" else _pipelined_plan(config, shape)


def shared_bytes(config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of a program or CTA, in bytes; exact for CUDA C++."""
    element = DTYPE_BYTES[dtype]
    if config["variant"] in CUDA:
        return _cuda_bytes(config, shape)
    if config["variant"] == "software_pipelined":
        (_, block_g, block_d), block_s = _query_block(shape), config["block_s"]
        tiles = 2 * config["num_stages"] * block_s * block_d
        return int(element * (tiles + block_g * (block_d + block_s)) + 4 * 8 * block_g + 1024)
    constants = _generic_constants(config, shape)
    block_g, block_s, block_d = (constants[name] for name in ("BLOCK_G", "BLOCK_S", "BLOCK_D"))
    tiles = 2 * element * block_s * block_d
    operands = element * block_g * (block_d + block_s) if config["tensor_cores"] else 0
    return int(config["num_stages"] * tiles + 2 * operands + 4 * block_d * block_g + 2048)


# Generic


def sharers(config: Mapping[str, Any], shape: Shape) -> int:
    """Return how many programs share a key head's keys, each with some of its query heads."""
    group = shape["HQ"] // shape["HKV"]
    return 1 if config["tensor_cores"] else ceil_div(group, _MOST_WITHOUT_TENSOR_CORES)


def _generic_constants(config: Mapping[str, Any], shape: Shape) -> dict[str, int]:
    heads, splits = shape["HQ"] // shape["HKV"], config["splits"]
    group = ceil_div(heads, sharers(config, shape))
    group_padded, splits_padded = power_of_two(group), power_of_two(splits)
    block_d = max(power_of_two(shape["D"]), 16)
    return {
        "UNIT": math.gcd(shape["D"], WIDEST_UNIT), "HEADS": heads, "SHARERS": sharers(config, shape), "GROUP": group,
        "GROUP_PADDED": group_padded, "BLOCK_G": max(group_padded, 16) if config["tensor_cores"] else group_padded,
        "BLOCK_S": config["block_s"], "BLOCK_D": block_d, "SPLITS": splits, "SPLITS_PADDED": splits_padded,
        # The last program reduces as many columns at once as its registers hold: 64 values a thread.
        "CHUNK_D": min(block_d, max(64 * 32 * config["num_warps"] // (splits_padded * group_padded), 1)),
        "STAGES": config["num_stages"], "TENSOR_CORES": config["tensor_cores"], "TMA": config["tma"],
        "PDL": config["pdl"],
    }  # fmt: skip


def _generic_plan(config: Mapping[str, Any], shape: Shape) -> Plan:
    constants = _generic_constants(config, shape)
    s, d, splits = shape["S"], shape["D"], config["splits"]
    heads = shape["B"] * shape["HKV"]
    block = (1, constants["BLOCK_S"], constants["BLOCK_D"]) if config["tma"] else None
    tiles = heads * constants["SHARERS"]
    return Plan(
        function=decode_attention_kernel,
        grid=(tiles * splits,),
        operands={
            "q_ptr": Operand("q"), "k": Operand("k", block, (heads, s, d)), "v": Operand("v", block, (heads, s, d)),
            "y_ptr": Operand("y"),
        },
        workspaces=counted_workspaces(
            tiles=tiles, splits=splits, rows=constants["GROUP"], columns=constants["BLOCK_D"]
        ),
        sizes={"n_keys": s, "n_units": d // constants["UNIT"], "scale_log2": scale_log2(d)},
        constants=constants,
        options=options_of(config, stages=False),
    )  # fmt: skip


# Software-pipelined


def _query_block(shape: Shape) -> tuple[int, int, int]:
    return 1, max(power_of_two(shape["HQ"] // shape["HKV"]), 8), power_of_two(shape["D"])


def pipelined_constants(config: Mapping[str, Any], shape: Shape) -> dict[str, int]:
    """Return the constants of the Gluon kernel. Each split reduces a share of a group: columns of a row, or rows."""
    group, block_d, splits = shape["HQ"] // shape["HKV"], power_of_two(shape["D"]), config["splits"]
    share = max(power_of_two(ceil_div(power_of_two(group) * block_d, splits)), 4)
    return {
        "GROUP": group, "SPLITS": splits, "SPLITS_PADDED": power_of_two(splits),
        "READERS": ceil_div(group * block_d, share), "ROWS": max(1, share // block_d), "COLS": min(share, block_d),
        "STAGES": config["num_stages"], "PDL": config["pdl"], "LATE_TRIGGER": config["late_trigger"],
    }  # fmt: skip


def _pipelined_plan(config: Mapping[str, Any], shape: Shape) -> Plan:
    constants = pipelined_constants(config, shape)
    s, d, splits, group = shape["S"], shape["D"], config["splits"], constants["GROUP"]
    heads, block = shape["B"] * shape["HKV"], (1, config["block_s"], power_of_two(d))
    rows = heads * constants["READERS"] * splits * constants["ROWS"]
    return Plan(
        function=decode_attention_software_pipelined,
        grid=(heads * splits,),
        operands={
            "q": Operand("q", _query_block(shape), (heads, group, d)), "k": Operand("k", block, (heads, s, d)),
            "v": Operand("v", block, (heads, s, d)), "y_ptr": Operand("y"),
        },
        workspaces=polled_workspaces(rows=rows, columns=constants["COLS"], splits=splits),
        sizes={"n_keys": s, "n_dims": d, "scale_log2": scale_log2(d)},
        constants=constants,
        options=options_of(config, stages=False),
        gluon=True,
    )  # fmt: skip


# CUDA C++


def _cuda_source(config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> CudaSource:
    stream_k = config["variant"] == "cuda_stream_k"
    # CTAs among which an SM's registers are divided: a step of 32 keys takes 224 registers a thread.
    resident = max(1, (8 if config["block_s"] == 32 else 12) // config["num_warps"])
    defines = {
        "GROUP": shape["HQ"] // shape["HKV"], "D": shape["D"], "BLOCK_S": config["block_s"],
        "WARPS": config["num_warps"], "CLUSTER": 1 if stream_k else config["splits"], "STREAM_K": int(stream_k),
        "RESIDENT": resident, "PDL": config["pdl"], "LATE_TRIGGER": config["late_trigger"],
        "BF16": int(dtype == "bf16"),
    }  # fmt: skip
    return cuda_source(__name__, "decode.cu", entry="decode_attention_cuda", defines=defines)


def _ctas(config: Mapping[str, Any], shape: Shape, sms: int) -> int:
    heads = shape["B"] * shape["HKV"]
    if config["variant"] == "cuda_cluster":
        return int(heads * config["splits"])
    return int(min(heads * ceil_div(shape["S"], config["block_s"]), sms * config["ctas_per_sm"]))


def _cuda_bytes(config: Mapping[str, Any], shape: Shape) -> int:
    """Return the shared memory of a CTA: partial sums of its warps and of the other CTAs, queries of every lane."""
    group, d, warps = shape["HQ"] // shape["HKV"], shape["D"], config["num_warps"]
    stream_k = config["variant"] == "cuda_stream_k"
    received = 0 if stream_k or config["splits"] == 1 else config["splits"]
    sums = warps * (2 if stream_k else 1) + received
    return int(sums * (ceil_div(4 * group * (d + 2), 16) * 16) + 512 * warps * (d // 32))


def _cuda_plan(config: Mapping[str, Any], shape: Shape, dtype: Dtype, sms: int) -> CudaPlan:
    ctas, d = _ctas(config, shape, sms), shape["D"]
    # What a CTA leaves for others, as N_FLOATS of the source: the sums of its group and their statistics.
    floats = ctas * ceil_div(shape["HQ"] // shape["HKV"] * (d + 2), 4) * 4
    partial = Workspace("fp32", floats if config["variant"] == "cuda_stream_k" else 1, UNWRITTEN)
    steps, remainder = divmod(shape["B"] * shape["HKV"] * ceil_div(shape["S"], config["block_s"]), ctas)

    def arguments(tensors: Mapping[str, Tensor]) -> list[Any]:
        operands = [tensors[name] for name in ("q", "k", "v", "y")]
        return [*operands, partial.allocate(tensors["y"].device), shape["S"], steps, remainder, scale_log2(d)]

    return CudaPlan(
        source=_cuda_source(config, shape, dtype),
        ctas=ctas,
        threads=32 * config["num_warps"],
        shared_bytes=_cuda_bytes(config, shape),
        arguments=arguments,
        overlap=bool(config["pdl"]),
    )

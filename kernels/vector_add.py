"""Compute y = a + b.

Formula: y[i] = a[i] + b[i]
Shapes: a, b, y (N,) of one dtype (fp16, bf16 or fp32).
Traffic: 2 · e · N bytes read and e · N written, e bytes an element.
Source: none needed; it is the smallest kernel that the contract allows, and shows what the memory gives.
The work model excludes: nothing; each element moves once and is added once.

Precision: the sum is fp32, rounded once to the dtype. Determinism: no element depends on another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.kernel import Tolerance, import_triton
from ledger.kernels.common.baselines import compiled, library
from ledger.kernels.common.row_reductions import wait_for_previous_kernel
from ledger.kernels.common.single_launch import SingleLaunch
from ledger.kernels.common.targets import ceil_div
from ledger.kernels.common.triton_launch import VECTOR_BYTES
from ledger.operations import VECTOR_ADD, Shape
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def vector_add_kernel(a_ptr, b_ptr, y_ptr, n_elements, BLOCK: tl.constexpr, PDL: tl.constexpr):
    wait_for_previous_kernel(PDL)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    # A mask whose edge may lie anywhere would make every load two or four bytes wide; only the last block needs one.
    if start + BLOCK <= n_elements:
        a = tl.load(a_ptr + offsets).to(tl.float32)
        b = tl.load(b_ptr + offsets).to(tl.float32)
        tl.store(y_ptr + offsets, (a + b).to(y_ptr.dtype.element_ty), cache_modifier=".cs")
    else:
        mask = offsets < n_elements
        a = tl.load(a_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + offsets, (a + b).to(y_ptr.dtype.element_ty), mask=mask)


# On an H200 blocks of 2 to 8 KiB an input ran alike to within 1%; one load of 16 bytes a thread and input.
_BLOCK_BYTES = 4096
_WARP_BYTES = 32 * VECTOR_BYTES


def _estimate(config: Mapping[str, Any], shape: Shape, element: int) -> dict[str, int]:
    block = config["block"]
    # Both inputs in fp32, and some for addresses.
    registers = 2 * (block // (32 * config["num_warps"])) + 16
    return {"tile_flops": block, "tile_bytes": 2 * element * block, "registers": registers, "shared_bytes": 0}


LAUNCH = SingleLaunch(
    name="vector_add",
    function=vector_add_kernel,
    inputs=("a", "b"),
    cases=({"N": 2**20}, {"N": 2**28}, {"N": 1}, {"N": 1_000_003}),
    ranges={"block": (32, 65_536), "num_warps": (1, 32)},
    tile=lambda shape, dtype: {"block": _BLOCK_BYTES // DTYPE_BYTES[dtype], "num_warps": _BLOCK_BYTES // _WARP_BYTES},
    counts=lambda shape: (shape["N"], 2 * shape["N"], shape["N"]),
    grid=lambda config, shape: ceil_div(shape["N"], int(config["block"])),
    sizes=lambda shape: {"n_elements": shape["N"]},
    constants=lambda config, shape, element: {"BLOCK": int(config["block"]), "PDL": int(config["pdl"])},
    choices={"block": (512, 1024, 2048, 4096, 8192, 16_384), "num_warps": (2, 4, 8, 16)},
    estimate=_estimate,
)


def vector_add(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b.

    Shapes: a and b alike, of one dtype on one GPU.
    """
    return LAUNCH(a.contiguous().view(-1), b.contiguous().view(-1)).view(a.shape)


def _sum(torch: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: a + b


TORCH = library(lambda torch, out, a, b: torch.add(a, b, out=out), "a", "b")
TORCH_COMPILE = compiled(_sum, "a", "b")


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the sum in float64."""
    return inputs["a"].double() + inputs["b"].double()


KERNEL = LAUNCH.kernel(
    operation=VECTOR_ADD,
    summary="sum of two vectors",
    formula="y = a + b",
    excludes="nothing",
    tolerances={
        "fp16": Tolerance(0.0, 5e-4, "one rounding to 11 bits"),
        "bf16": Tolerance(0.0, 4e-3, "one rounding to 8 bits"),
        "fp32": Tolerance(0.0, 1e-7, "one rounding to 24 bits"),
    },
    reference=reference,
    torch_cpu=TORCH,
    baselines={"torch-eager": TORCH, "torch-compile": TORCH_COMPILE},
)

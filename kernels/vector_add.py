"""Compute y = a + b.

Formula: y[i] = a[i] + b[i]
Shapes: a, b, y (N,) of one dtype (fp16, bf16 or fp32).
Traffic: 2 · e · N bytes read and e · N written, e bytes an element.
Source: none needed; it is the smallest kernel that the contract allows, and shows what the memory gives.
The work model excludes: nothing; each element moves once and is added once.

Precision: the sum is fp32, rounded once to the dtype. Determinism: no element depends on another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ledger.kernel import Ahead, Candidate, Config, Kernel, Launch, Tolerance, import_triton, variations
from ledger.kernels.common import configs
from ledger.kernels.common.baselines import compiled, dtype_name, library
from ledger.kernels.common.row_reductions import wait_for_previous_kernel
from ledger.kernels.common.targets import PDL_TARGETS, ceil_div, device_target
from ledger.kernels.common.triton_launch import VECTOR_BYTES, ahead, fp32_path, prepare
from ledger.operations import VECTOR_ADD, Shape
from ledger.records import Dtype, Work
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


def vector_add(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b.

    Shapes: a and b alike, of one dtype on one GPU.
    """
    import torch

    inputs = {"a": a.contiguous().view(-1), "b": b.contiguous().view(-1)}
    out = torch.empty_like(inputs["a"])
    prepare_triton(inputs, out, config_for({"N": a.numel()}, dtype_name(a, "vector_add"), device_target(a)))()
    return out.view(a.shape)


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return the launch."""
    grid = ceil_div(out.numel(), config["block"])
    tensors = (inputs["a"], inputs["b"], out)
    return prepare(vector_add_kernel, tensors, (out.numel(),), config, grid=grid, constants=_constants(config))


def _constants(config: Config) -> dict[str, int]:
    return {"BLOCK": config["block"], "PDL": config["pdl"]}


def _sum(torch: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: a + b


TORCH = library(lambda torch, out, a, b: torch.add(a, b, out=out), "a", "b")
TORCH_COMPILE = compiled(_sum, "a", "b")


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the sum in float64."""
    return inputs["a"].double() + inputs["b"].double()


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one addition an element; three elements move for it."""
    n, element = shape["N"], DTYPE_BYTES[dtype]
    return Work(flops=n, bytes_read=2 * element * n, bytes_written=element * n)


# On an H200 blocks of 2 to 8 KiB an input ran alike to within 1%; one load of 16 bytes a thread and input.
_BLOCK_BYTES = 4096
_WARP_BYTES = 32 * VECTOR_BYTES


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    configs.check_tuned("vector_add", target)
    pdl = int(target in PDL_TARGETS)
    return {"block": _BLOCK_BYTES // DTYPE_BYTES[dtype], "num_warps": _BLOCK_BYTES // _WARP_BYTES, "pdl": pdl}


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    configs.check_keys("vector_add", config, ("block", "num_warps", "pdl"))
    configs.check_target("vector_add", target)
    configs.check_bf16("vector_add", dtype, target)
    configs.check_powers("vector_add", config, (("block", 32, 65_536), ("num_warps", 1, 32)))
    configs.check_pdl("vector_add", config, target)


def compile_ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return what Triton needs to compile the kernel without a GPU."""
    pointers, sizes = ("a_ptr", "b_ptr", "y_ptr"), {"n_elements": "i32"}
    return ahead(vector_add_kernel, pointers, sizes, config, dtype=dtype, constants=_constants(config))


CASES: tuple[dict[str, int], ...] = (
    {"N": 2**20},
    {"N": 2**28},
    {"N": 1},
    {"N": 1_000_003},
)


def candidates(shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing."""
    choices = {"block": (512, 1024, 2048, 4096, 8192, 16_384), "num_warps": (2, 4, 8, 16)}
    for config in variations(config_for(shape, dtype, target), choices):
        held = config["block"] // (32 * config["num_warps"])
        yield Candidate(
            config=config,
            tiles=ceil_div(shape["N"], config["block"]),
            tile_flops=config["block"],
            tile_bytes=2 * DTYPE_BYTES[dtype] * config["block"],
            warps=config["num_warps"],
            # Both inputs in fp32, and some for addresses.
            registers=2 * held + 16,
            shared_bytes=0,
        )


KERNEL = Kernel(
    name="vector_add",
    operation=VECTOR_ADD,
    summary="sum of two vectors",
    formula="y = a + b",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="nothing",
    path=fp32_path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(0.0, 5e-4, "one rounding to 11 bits"),
        "bf16": Tolerance(0.0, 4e-3, "one rounding to 8 bits"),
        "fp32": Tolerance(0.0, 1e-7, "one rounding to 24 bits"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": TORCH},
    reference=reference,
    launched="^vector_add_kernel$",
    baselines={"torch-eager": TORCH, "torch-compile": TORCH_COMPILE},
    ahead=compile_ahead,
    candidates=candidates,
)

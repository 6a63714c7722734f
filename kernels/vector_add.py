"""Compute y = a + b.

Formula: y[i] = a[i] + b[i]
Shapes: a, b, y (N,) of one dtype (fp16, bf16 or fp32).
Traffic: 2 · e · N bytes read and e · N written, e bytes an element.
Source: none needed; it is the smallest kernel that the contract allows, and shows what the memory gives.
The work model excludes: nothing; each element moves once and is added once.

Precision: the sum is fp32, rounded once to the dtype. Determinism: no element depends on another.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Ahead, Candidate, Config, Kernel, Launch, Tolerance, import_triton, keeping, variations
from ledger.operations import VECTOR_ADD, Shape
from ledger.records import Dtype, Path, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

triton, tl = import_triton()


@triton.jit
def vector_add_kernel(a_ptr, b_ptr, y_ptr, n_elements, BLOCK: tl.constexpr, PDL: tl.constexpr):
    if PDL:
        # The next kernel's blocks may be placed now; this one's wait until all before it is written.
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
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
    major, minor = torch.cuda.get_device_capability(a.device)
    prepare_triton(inputs, out, config_for({"N": a.numel()}, _dtype_name(a), f"sm_{major}{minor}"))()
    return out.view(a.shape)


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return the launch."""
    a, b = inputs["a"], inputs["b"]
    n_elements = out.numel()
    grid = (-(-n_elements // config["block"]),)
    constants = _constants(config)

    def launch() -> None:
        vector_add_kernel[grid](a, b, out, n_elements, **constants, num_warps=config["num_warps"], **_early(config))

    return launch


def _constants(config: Config) -> dict[str, int]:
    return {"BLOCK": config["block"], "PDL": config["pdl"]}


def _early(config: Config) -> dict[str, bool]:
    """Return the launch option of programmatic dependent launch, which older targets and versions do not know."""
    return {"launch_pdl": True} if config["pdl"] else {}


def _dtype_name(tensor: Tensor) -> Dtype:
    import torch

    names: dict[object, Dtype] = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    if tensor.dtype not in names:
        raise InputError(f"vector_add: dtype is {tensor.dtype}; expected float16, bfloat16 or float32")
    return names[tensor.dtype]


def prepare_torch(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return torch.add: the CPU implementation, and the library's baseline on a GPU."""
    import torch

    a, b = inputs["a"], inputs["b"]
    return lambda: torch.add(a, b, out=out)


def prepare_torch_compile(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return what torch.compile makes of a + b."""
    compiled, a, b = _compiled(), inputs["a"], inputs["b"]
    return keeping(lambda: compiled(a, b))


@functools.cache
def _compiled() -> Callable[[Tensor, Tensor], Tensor]:
    import torch

    def add(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    # One compiled function for all shapes; without this the ninth shape would silently run eagerly.
    torch._dynamo.config.recompile_limit = 1024
    compiled: Callable[[Tensor, Tensor], Tensor] = torch.compile(add, dynamic=False)
    return compiled


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the sum in float64."""
    return inputs["a"].double() + inputs["b"].double()


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count one addition an element; three elements move for it."""
    n, element = shape["N"], DTYPE_BYTES[dtype]
    return Work(flops=n, bytes_read=2 * element * n, bytes_written=element * n)


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return fp32: operands are widened before the addition."""
    return "fp32"


_TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100")
# On an H200 blocks of 2 to 8 KiB an input ran alike to within 1%; one load of 16 bytes a thread and input.
_BLOCK_BYTES = 4096
_WARP_BYTES = 32 * 16


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    if target not in _TARGETS:
        raise InputError(f"vector_add: no launch configuration for {target}; expected one of: {', '.join(_TARGETS)}")
    element = DTYPE_BYTES[dtype]
    return {
        "block": _BLOCK_BYTES // element,
        "num_warps": _BLOCK_BYTES // _WARP_BYTES,
        "pdl": int(target in _PDL_TARGETS),
    }


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    if set(config) != set(_CONFIG_KEYS):
        raise InputError(
            f"vector_add: configuration keys are {','.join(sorted(config))}; expected {','.join(_CONFIG_KEYS)}"
        )
    if target not in _TARGETS:
        raise InputError(f"vector_add: target {target} is unknown; expected one of: {', '.join(_TARGETS)}")
    if target == "sm_75" and dtype == "bf16":
        raise InputError("vector_add: sm_75 has no bf16; expected fp16 or fp32")
    for key, least, most in (("block", 32, 65_536), ("num_warps", 1, 32)):
        value = config[key]
        if not least <= value <= most or value & (value - 1):
            raise InputError(f"vector_add: {key} is {value}; expected a power of two from {least} to {most}")
    if config["pdl"] not in (0, 1) or (config["pdl"] and target not in _PDL_TARGETS):
        raise InputError(f"vector_add: pdl is {config['pdl']}; expected 0, or 1 from sm_90 up")


_CONFIG_KEYS = ("block", "num_warps", "pdl")
_PDL_TARGETS = ("sm_90", "sm_100")


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return what Triton needs to compile the kernel without a GPU."""
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "y_ptr"), f"*{dtype}")
    constants = _constants(config)
    return Ahead(
        function=vector_add_kernel,
        signature={**pointers, "n_elements": "i32", **dict.fromkeys(constants, "constexpr")},
        constants=constants,
        options={"num_warps": config["num_warps"], **_early(config)},
    )


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
            tiles=-(-shape["N"] // config["block"]),
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
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(0.0, 5e-4, "one rounding to 11 bits"),
        "bf16": Tolerance(0.0, 4e-3, "one rounding to 8 bits"),
        "fp32": Tolerance(0.0, 1e-7, "one rounding to 24 bits"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch},
    reference=reference,
    launched="^vector_add_kernel$",
    baselines={"torch-eager": prepare_torch, "torch-compile": prepare_torch_compile},
    ahead=ahead,
    candidates=candidates,
)

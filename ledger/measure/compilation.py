"""Compiles a kernel ahead of time, as a launch would compile it. Needs triton and torch, no GPU.

The Triton compiler specialises on the arguments (multiples of 16, integers that are 1). They are found by running the
launcher on tensors without storage. CUDA C++ is compiled by NVRTC. For an AMD target the machine code's assembly is
kept in place of PTX and cubin. Imports torch and triton, only when called.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ledger.analysis import amdgcn
from ledger.analysis.amdgcn import is_amd
from ledger.analysis.occupancy import WARP_THREADS
from ledger.errors import InputError, MachineError, explained, shortened
from ledger.kernel import Ahead, AheadCuda, Config, Kernel
from ledger.measure.cubin_tools import Resources, resources_of
from ledger.operations import Shape
from ledger.records import Dtype

_HINT = [["tt.divisibility", 16]]


@dataclass(frozen=True)
class Launched:
    """Hold what a launch passes to the compiler: grid, multiples of 16 and integers that are 1, by argument."""

    grid: tuple[int, ...]
    multiples: frozenset[str]
    ones: frozenset[str]


@dataclass(frozen=True)
class Compiled:
    """Hold compiled code with its resources. Units: bytes of shared memory a block.

    compiler: triton or nvrtc, with its version. grid: None where the launcher could not be run without data.
    assembly: the AMD GCN code; None for NVIDIA's targets, which have ptx and cubin instead.
    """

    compiler: str
    ptx: str
    cubin: bytes
    resources: Resources | amdgcn.Resources
    shared_bytes: int
    warps: int
    grid: tuple[int, ...] | None
    assembly: str | None = None


def compile_cuda(ahead: AheadCuda, target: str) -> Compiled:
    """Return a kernel of CUDA C++, compiled. Raises: InputError, as for a target of AMD; MachineError."""
    if is_amd(target):
        raise InputError(f"target {target}: the variant is CUDA C++, for NVIDIA's targets; expected variant=generic")
    cubin = ahead.source.cubin(target)
    return Compiled(
        compiler=ahead.source.compiler(),
        ptx=ahead.source.ptx(target),
        cubin=cubin,
        resources=resources_of(cubin, ahead.source.entry),
        shared_bytes=ahead.shared_bytes,
        warps=ahead.threads // WARP_THREADS,
        grid=(ahead.programs,),
    )


def compile_triton(ahead: Ahead, target: str, launched: Launched | None) -> Compiled:
    """Return a kernel of Triton or Gluon, compiled. Raises: MachineError when triton cannot compile it."""
    compiled = compile_ahead(ahead, target, launched)
    grid = None if launched is None else launched.grid
    if is_amd(target):
        text: str = compiled.asm["amdgcn"]
        return Compiled(
            compiler=f"triton {triton_version()}",
            ptx="",
            cubin=b"",
            resources=amdgcn.resources(text),
            shared_bytes=compiled.metadata.shared,
            warps=int(compiled.metadata.num_warps),
            grid=grid,
            assembly=text,
        )
    cubin: bytes = compiled.asm["cubin"]
    return Compiled(
        compiler=f"triton {triton_version()}",
        ptx=compiled.asm["ptx"],
        cubin=cubin,
        resources=resources_of(cubin, compiled.metadata.name),
        shared_bytes=compiled.metadata.shared,
        warps=_warps(compiled),
        grid=grid,
    )


def launched_with(kernel: Kernel, ahead: Ahead, config: Config, *, shape: Shape, dtype: Dtype) -> Launched | None:
    """Return the arguments that the kernel's own launcher passes, found by running it on tensors without storage.

    None when the launcher needs real data, or launches another function than the one to compile.
    """
    if "triton" not in kernel.implementations:
        return None
    calls: list[tuple[tuple[Any, ...], Any]] = []

    def record_call(*arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        del warmup, options
        calls.append((arguments, grid))

    try:
        ahead.function.run = record_call
        inputs, out = _empty_tensors(kernel, shape, dtype)
        kernel.implementations["triton"](inputs, out, config)()
    # A kernel file may do anything with its tensors; hints are then assumed, and the result says so.
    except Exception:  # noqa: BLE001
        return None
    finally:
        vars(ahead.function).pop("run", None)
    if len(calls) != 1 or not isinstance(calls[0][1], tuple):
        return None
    return _hints(ahead, *calls[0])


def _empty_tensors(kernel: Kernel, shape: Shape, dtype: Dtype) -> tuple[dict[str, Any], Any]:
    """Return the inputs and the output of a cell as tensors without storage."""
    import torch

    from ledger.measure.inputs import torch_dtype

    operation = kernel.operation
    element, written = torch_dtype(dtype), torch_dtype(operation.output_dtype(dtype))
    inputs = {spec.name: torch.empty(spec.dims, dtype=element, device="meta") for spec in operation.inputs(shape)}
    return inputs, torch.empty(operation.output_dims(shape), dtype=written, device="meta")


def _hints(ahead: Ahead, arguments: tuple[Any, ...], grid: tuple[int, ...]) -> Launched:
    import torch

    values = dict(zip(ahead.function.arg_names, arguments, strict=False))
    unspecialised = {p.name for p in ahead.function.params if p.do_not_specialize}
    integers = {name: v for name, v in values.items() if isinstance(v, int) and name not in unspecialised}
    pointers = {name for name, v in values.items() if isinstance(v, torch.Tensor) and name not in unspecialised}
    return Launched(
        grid=tuple(grid),
        multiples=frozenset(pointers | {name for name, value in integers.items() if value % 16 == 0}),
        ones=frozenset(name for name, value in integers.items() if value == 1),
    )


def compile_ahead(ahead: Ahead, target: str, launched: Launched | None) -> Any:
    """Return triton's compiled kernel. Raises: MachineError when triton cannot compile it."""
    import triton

    signature, constants, names = dict(ahead.signature), dict(ahead.constants), list(ahead.signature)
    pointers = frozenset(name for name, kind in signature.items() if kind.startswith("*"))
    multiples = pointers if launched is None else launched.multiples
    for name in frozenset[str]() if launched is None else launched.ones:
        signature[name], constants[name] = "constexpr", 1
    hints = {(names.index(name),): _HINT for name in names if name in multiples}
    source = _source_type(ahead)(ahead.function, signature, constants, hints)
    with stderr_held() as taken:
        try:
            return triton.compile(source, target=_gpu_target(target), options=dict(ahead.options))
        # Triton and its tools raise errors of any type, and print the rest.
        except Exception as error:
            reason = shortened(" ".join(f"{explained(error, 10_000)} {taken()}".split()), 1000)
            raise MachineError(f"triton {triton_version()} cannot compile for {target}: {reason}") from error


def _gpu_target(target: str) -> Any:
    from triton.backends.compiler import GPUTarget

    if is_amd(target):
        return GPUTarget("hip", target, amdgcn.WAVE_THREADS)
    return GPUTarget("cuda", int(target.removeprefix("sm_")), WARP_THREADS)


@contextmanager
def stderr_held() -> Iterator[Callable[[], str]]:
    """Hold back what is written to stderr, by libraries too. Yield a function that takes it; the rest is written."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        before = os.dup(2)
        os.dup2(held.fileno(), 2)

        def take() -> str:
            sys.stderr.flush()
            held.seek(0)
            text = held.read().decode(errors="replace")
            held.seek(0)
            held.truncate()
            return text

        try:
            yield take
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            if left := take():
                print(left, end="", file=sys.stderr)


def _source_type(ahead: Ahead) -> Any:
    """Return triton's type of a kernel's source: Gluon functions have their own."""
    from triton.compiler import ASTSource

    gluon = getattr(ahead.function, "is_gluon", None)
    if gluon is None or not gluon():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def _warps(compiled: Any) -> int:
    """Return the warps of a block as the code requires them; a warp-specialised kernel has more than its option."""
    threads = re.search(r"\.(?:req|max)ntid\s+(\d+)", compiled.asm["ptx"])
    return int(compiled.metadata.num_warps) if threads is None else int(threads[1]) // WARP_THREADS


def triton_version() -> str:
    """Return the version of the installed triton."""
    import triton

    return str(triton.__version__)

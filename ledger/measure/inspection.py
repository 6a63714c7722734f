"""Compiles a kernel ahead of time and says what the compiler made of it. Needs triton and torch, no GPU.

CUDA C++ is compiled by NVRTC; triton's own tools read both.

What is compiled is what a launch would compile: the launcher is run on tensors without storage and its arguments are
looked at where triton would (multiples of 16, ones), because the compiler specialises on them. Imports torch and
triton, only when called.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.isa import Instructions, read
from ledger.analysis.occupancy import WARP_THREADS, Occupancy, occupancy
from ledger.errors import InputError, MachineError, explained, shortened
from ledger.kernel import Ahead, AheadCuda, Kernel
from ledger.operations import Shape
from ledger.records import Dtype, Hardware, Path

_HINT = [["tt.divisibility", 16]]


@dataclass(frozen=True)
class Launched:
    """Hold what a launch would tell the compiler: grid, multiples of 16 and integers that are 1, by argument."""

    grid: tuple[int, ...]
    multiples: frozenset[str]
    ones: frozenset[str]


@dataclass(frozen=True)
class Inspection:
    """Hold what the compiler made of one kernel on one architecture. Units: bytes; registers a thread.

    named_path: the path that the kernel file names and that a forecast's roof is taken from.
    hints: whether the arguments' hints come from the launcher ("launch") or had to be assumed ("assumed").
    compiler: triton or nvrtc, with its version.
    """

    kernel: str
    shape: dict[str, int]
    dtype: Dtype
    target: str
    hardware: str
    triton: str
    config: dict[str, int | str]
    named_path: Path
    instructions: Instructions
    registers: int
    stack_bytes: int
    shared_bytes: int
    warps: int
    occupancy: Occupancy
    grid: tuple[int, ...] | None
    waves: float | None
    hints: str
    compiler: str

    @property
    def agrees(self) -> bool:
        """Tell whether the compiler takes the path that the kernel file names."""
        return self.instructions.path == self.named_path


def inspect(
    kernel: Kernel, hardware: Hardware, *, shape: Shape, dtype: Dtype, config: Mapping[str, int | str] | None = None
) -> Inspection:
    """Return what triton compiles for a cell; config replaces single values of the kernel's own configuration.

    Raises: InputError for a cell or a configuration that the kernel does not offer, or a target that is no NVIDIA
    GPU; MachineError when triton is missing or cannot compile it.
    """
    full = _config(kernel, hardware, shape, dtype, config or {})
    if kernel.ahead is None:
        raise InputError(f"{kernel.name}: says nothing about compiling ahead of time; expected Kernel(ahead=…)")
    ahead = kernel.ahead(full, shape, dtype, hardware.target)
    built = (
        _build_cuda(ahead, hardware.target)
        if isinstance(ahead, AheadCuda)
        else _build_triton(ahead, hardware.target, launched_with(kernel, ahead, full, shape=shape, dtype=dtype))
    )
    fits = occupancy(hardware, registers=built.usage["REG"], shared_bytes=built.shared_bytes, warps=built.warps)
    programs = None if built.grid is None else _product(built.grid)
    return Inspection(
        kernel=kernel.name,
        shape=dict(shape),
        dtype=dtype,
        target=hardware.target,
        hardware=hardware.name,
        triton=_triton_version(),
        config=full,
        named_path=kernel.path(dtype, hardware.target, "triton"),
        instructions=read(built.ptx, _tool("nvdisasm", "-c", data=built.cubin), dtype),
        registers=built.usage["REG"],
        stack_bytes=built.usage["STACK"],
        shared_bytes=built.shared_bytes,
        warps=built.warps,
        occupancy=fits,
        grid=built.grid,
        waves=None if programs is None or not fits.blocks else programs / (fits.blocks * hardware.limits.sms),
        hints="assumed" if built.grid is None else "launch",
        compiler=built.compiler,
    )


@dataclass(frozen=True)
class _Built:
    compiler: str
    ptx: str
    cubin: bytes
    usage: dict[str, int]
    shared_bytes: int
    warps: int
    grid: tuple[int, ...] | None


def _build_cuda(ahead: AheadCuda, target: str) -> _Built:
    cubin = ahead.source.cubin(target)
    return _Built(
        compiler=ahead.source.compiler(),
        ptx=ahead.source.ptx(target),
        cubin=cubin,
        usage=_resources(cubin, ahead.source.entry),
        shared_bytes=ahead.shared_bytes,
        warps=ahead.threads // WARP_THREADS,
        grid=(ahead.programs,),
    )


def _build_triton(ahead: Ahead, target: str, launched: Launched | None) -> _Built:
    compiled = compile_ahead(ahead, target, launched)
    cubin: bytes = compiled.asm["cubin"]
    return _Built(
        compiler=f"triton {_triton_version()}",
        ptx=compiled.asm["ptx"],
        cubin=cubin,
        usage=_resources(cubin, compiled.metadata.name),
        shared_bytes=compiled.metadata.shared,
        warps=_warps(compiled),
        grid=None if launched is None else launched.grid,
    )


def _config(
    kernel: Kernel, hardware: Hardware, shape: Shape, dtype: Dtype, changes: Mapping[str, int | str]
) -> dict[str, int | str]:
    if not re.fullmatch(r"sm_\d+", hardware.target):
        raise InputError(f"target {hardware.target} is no NVIDIA GPU; expected sm_75, sm_80, sm_89, sm_90 or sm_100")
    kernel.check_offers(shape, dtype)
    config = kernel.config(shape, dtype, hardware.target)
    if strange := sorted(set(changes) - set(config)):
        raise InputError(f"--config: {strange[0]!r} is not a key of {kernel.name}; expected: {', '.join(config)}")
    full = {**config, **changes}
    kernel.check_config(full, shape, dtype, hardware.target)
    return full


def launched_with(
    kernel: Kernel, ahead: Ahead, config: Mapping[str, int | str], *, shape: Shape, dtype: Dtype
) -> Launched | None:
    """Return what the kernel's own launcher passes, found by running it on tensors without storage.

    None when the launcher needs real data, or launches another function than the one to compile.
    """
    import torch

    from ledger.measure.inputs import torch_dtype

    if "triton" not in kernel.implementations:
        return None
    element, written = torch_dtype(dtype), torch_dtype(kernel.operation.output_dtype(dtype))
    calls: list[tuple[tuple[Any, ...], Any]] = []

    def look(*arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        del warmup, options
        calls.append((arguments, grid))

    try:
        inputs = {spec.name: torch.empty(spec.dims, dtype=element, device="meta") for spec in _inputs(kernel, shape)}
        out = torch.empty(kernel.operation.output_dims(shape), dtype=written, device="meta")
        ahead.function.run = look
        kernel.implementations["triton"](inputs, out, config)()
    # A kernel file may do anything with its tensors; hints are then assumed, and the caller says so.
    except Exception:  # noqa: BLE001
        return None
    finally:
        vars(ahead.function).pop("run", None)
    if len(calls) != 1 or not isinstance(calls[0][1], tuple):
        return None
    arguments, grid = calls[0]
    values = dict(zip(ahead.function.arg_names, arguments, strict=False))
    plain = {p.name for p in ahead.function.params if p.do_not_specialize}
    integers = {name: v for name, v in values.items() if isinstance(v, int) and name not in plain}
    pointers = {name for name, v in values.items() if isinstance(v, torch.Tensor) and name not in plain}
    return Launched(
        grid=tuple(grid),
        multiples=frozenset(pointers | {name for name, value in integers.items() if value % 16 == 0}),
        ones=frozenset(name for name, value in integers.items() if value == 1),
    )


def _inputs(kernel: Kernel, shape: Shape) -> Any:
    return kernel.operation.inputs(shape)


def compile_ahead(ahead: Ahead, target: str, launched: Launched | None) -> Any:
    """Return triton's compiled kernel. Raises: MachineError when triton cannot compile it."""
    import triton
    from triton.backends.compiler import GPUTarget

    signature, constants, names = dict(ahead.signature), dict(ahead.constants), list(ahead.signature)
    pointers = frozenset(name for name, kind in signature.items() if kind.startswith("*"))
    multiples = pointers if launched is None else launched.multiples
    for name in frozenset[str]() if launched is None else launched.ones:
        signature[name], constants[name] = "constexpr", 1
    hints = {(names.index(name),): _HINT for name in names if name in multiples}
    source = _source_type(ahead)(ahead.function, signature, constants, hints)
    gpu = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    with _stderr_held() as said:
        try:
            return triton.compile(source, target=gpu, options=dict(ahead.options))
        # Triton and its tools raise whatever they like, and print the rest.
        except Exception as error:
            words = shortened(" ".join(f"{explained(error, 10_000)} {said()}".split()), 1000)
            raise MachineError(f"triton {_triton_version()} cannot compile for {target}: {words}") from error


@contextmanager
def _stderr_held() -> Iterator[Callable[[], str]]:
    """Hold back what is written to stderr, by libraries too, and yield what takes it; what was not taken is written."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        before = os.dup(2)
        os.dup2(held.fileno(), 2)

        def take() -> str:
            sys.stderr.flush()
            held.seek(0)
            words = held.read().decode(errors="replace")
            held.seek(0)
            held.truncate()
            return words

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
    """Return the warps of a block as the code asks for them; a warp-specialised kernel has more than its option."""
    threads = re.search(r"\.(?:req|max)ntid\s+(\d+)", compiled.asm["ptx"])
    return int(compiled.metadata.num_warps) if threads is None else int(threads[1]) // WARP_THREADS


def _triton_version() -> str:
    import triton

    return str(triton.__version__)


def _product(grid: tuple[int, ...]) -> int:
    total = 1
    for size in grid:
        total *= size
    return total


def _resources(cubin: bytes, function: str) -> dict[str, int]:
    """Return registers a thread (REG) and bytes of stack (STACK) as the binary says."""
    said = _tool("cuobjdump", "--dump-resource-usage", data=cubin)
    found = re.search(rf"Function {re.escape(function)}:\s*\n\s*(.*)", said)
    usage = {} if found is None else {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", found[1])}
    if not {"REG", "STACK"} <= set(usage):
        raise MachineError(f"cuobjdump says nothing of {function}: {said.strip()[:200]!r}; expected its resource usage")
    return usage


def _tool(name: str, *options: str, data: bytes) -> str:
    """Return the output of one of the tools that come with triton."""
    import triton

    path = FilePath(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    if not path.is_file():
        raise MachineError(f"{name} is not among triton's tools; expected it in triton/backends/nvidia/bin")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(data)
        file.flush()
        done = subprocess.run([path, *options, file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"{name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout

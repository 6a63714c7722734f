"""Compiles a kernel ahead of time and reports what the compiler made of it. Needs triton and torch, no GPU.

Imports torch and triton, only when called.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ledger.analysis import amdgcn
from ledger.analysis.isa import Instructions, read
from ledger.analysis.occupancy import Occupancy, occupancy
from ledger.errors import InputError
from ledger.kernel import AheadCuda, Config, Kernel
from ledger.kernel_files import implementation_for
from ledger.measure.compilation import Compiled, compile_cuda, compile_triton, launched_with, triton_version
from ledger.measure.cubin_tools import disassembled
from ledger.operations import Shape
from ledger.records import Dtype, Hardware, Path, Roof, Work
from ledger.roofline import roof_of


@dataclass(frozen=True)
class Inspection:
    """Hold what the compiler made of one kernel on one architecture. Units: bytes; registers a thread.

    named_path: the instruction path that the kernel file names, from which a forecast takes its roof.
    hints: whether the arguments' hints come from the launcher ("launch") or were assumed ("assumed").
    compiler: triton or nvrtc, with its version.
    wrong_roof: the roof of the named path is not that of the path that the compiler takes.
    amd: the registers and spills of an AMD target, of which registers and stack_bytes are a part; None for NVIDIA.
    """

    kernel: str
    shape: Mapping[str, int]
    dtype: Dtype
    target: str
    hardware: str
    triton: str
    config: Config
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
    wrong_roof: bool
    amd: amdgcn.Resources | None = None

    @property
    def agrees(self) -> bool:
        """Return whether the compiler takes the path that the kernel file names."""
        return self.instructions.path == self.named_path


def inspect(
    kernel: Kernel, hardware: Hardware, *, shape: Shape, dtype: Dtype, config: Config | None = None
) -> Inspection:
    """Return what the compiler makes of a cell; config replaces single values of the kernel's own configuration.

    Raises: InputError for a cell or a configuration that the kernel does not offer, or a target that kernels
    are not compiled for; MachineError when triton is missing or cannot compile it.
    """
    full = _full_config(kernel, hardware, shape, dtype, config or {})
    compiled = _compile(kernel, hardware.chip, full, shape, dtype)
    resources = compiled.resources
    fits = occupancy(hardware, registers=resources.registers, shared_bytes=compiled.shared_bytes, warps=compiled.warps)
    blocks = None if compiled.grid is None else math.prod(compiled.grid)
    named = kernel.path(dtype, hardware.target, implementation_for(kernel, hardware))
    if compiled.assembly is None:
        instructions = read(compiled.ptx, disassembled(compiled.cubin), dtype)
    else:
        instructions = amdgcn.read(compiled.assembly)
    return Inspection(
        kernel=kernel.name,
        shape=dict(shape),
        dtype=dtype,
        target=hardware.target,
        hardware=hardware.name,
        triton=triton_version(),
        config=full,
        named_path=named,
        instructions=instructions,
        registers=resources.registers,
        stack_bytes=resources.stack_bytes,
        shared_bytes=compiled.shared_bytes,
        warps=compiled.warps,
        occupancy=fits,
        grid=compiled.grid,
        waves=None if blocks is None or not fits.blocks else blocks / (fits.blocks * hardware.limits.sms),
        hints="assumed" if compiled.grid is None else "launch",
        compiler=compiled.compiler,
        wrong_roof=_wrong_roof(hardware, kernel.work(shape, dtype), named, instructions.path),
        amd=resources if isinstance(resources, amdgcn.Resources) else None,
    )


def _wrong_roof(hardware: Hardware, work: Work, named: Path, taken: Path | None) -> bool:
    """Tell whether the roof of the named path differs from that of the path taken.

    Scalar paths have one roof where memory binds under each; one that a profile does not name (bf16, fp16) is no slower
    than fp32. A tensor path is never a scalar one.
    """
    if taken == named:
        return False
    paths = [path for path in (named, taken) if path is not None]
    if any(path.endswith("_tensor") for path in paths):
        return True
    try:
        roofs = [_scalar_roof(hardware, path) for path in paths]
    except InputError:
        return True
    return any(work.flops / roof.peak_flop_per_s > work.bytes / roof.bandwidth_bytes_per_s for roof in roofs)


def _scalar_roof(hardware: Hardware, path: Path) -> Roof:
    """Return the roof of a scalar path, or that of fp32 where a profile does not name it. Raises: InputError."""
    try:
        return roof_of(hardware, path)
    except InputError:
        return roof_of(hardware, "fp32")


def _compile(kernel: Kernel, target: str, config: Config, shape: Shape, dtype: Dtype) -> Compiled:
    """Return what is compiled."""
    if kernel.ahead is None:
        raise InputError(f"{kernel.name}: cannot be compiled ahead of time; expected Kernel(ahead=…)")
    ahead = kernel.ahead(config, shape, dtype, target)
    if isinstance(ahead, AheadCuda):
        return compile_cuda(ahead, target)
    return compile_triton(ahead, target, launched_with(kernel, ahead, config, shape=shape, dtype=dtype))


def _full_config(
    kernel: Kernel, hardware: Hardware, shape: Shape, dtype: Dtype, changes: Config
) -> dict[str, int | str]:
    """Return the kernel's own configuration with some values replaced, checked."""
    if not re.fullmatch(r"sm_\d+", hardware.target) and hardware.target not in amdgcn.TARGETS:
        expected = ", ".join(("sm_75", "sm_80", "sm_89", "sm_90", "sm_100", *amdgcn.TARGETS))
        raise InputError(f"target {hardware.target}: kernels are not compiled for it; expected one of: {expected}")
    kernel.check_offers(shape, dtype)
    own = kernel.config(shape, dtype, hardware.chip)
    for key, value in changes.items():
        if key not in own:
            raise InputError(f"--config: {key!r} is not a key of {kernel.name}; expected one of: {', '.join(own)}")
        if isinstance(value, str) != isinstance(own[key], str):
            expected = "text" if isinstance(own[key], str) else "an integer"
            raise InputError(f"--config: {key} is {value!r}; expected {expected}, as in {key}={own[key]}")
    full = {**own, **changes}
    kernel.check_config(full, shape, dtype, hardware.chip)
    return full

"""Compiles a kernel ahead of time, without a GPU, and reads what the compiler made of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ledger.cuda import compile_cuda, compile_to_ptx
from ledger.kernel import AheadCuda

# Bytes that a block may use on each architecture: CUDA C++ Programming Guide, table of compute capabilities.
SHARED_LIMIT = {"sm_75": 64 << 10, "sm_80": 163 << 10, "sm_89": 99 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10}
TENSOR_CORE = {
    "sm_80": r"\bmma\.sync",
    "sm_89": r"\bmma\.sync",
    "sm_90": r"wgmma\.mma_async",
    "sm_100": r"tcgen05\.mma",
}


class Compiled(NamedTuple):
    """Hold the intermediate code, shared memory in bytes, local memory (spills) in bytes and registers a thread."""

    ptx: str
    shared: int
    stack: int
    registers: int


def compile_ahead(
    kernel: Any,
    config: Mapping[str, int],
    shape: Mapping[str, int],
    dtype: str,
    target: str,
    *,
    multiples: Collection[str] = (),
) -> Compiled:
    """Compile a kernel for a target as a launch would: pointers are multiples of 16, and of the sizes those named."""
    import triton
    from triton.backends.compiler import GPUTarget

    ahead = kernel.ahead(config, shape, dtype, target)
    if isinstance(ahead, AheadCuda):
        registers, stack = resources(compile_cuda(ahead.source, target))
        return Compiled(compile_to_ptx(ahead.source, target), ahead.shared_bytes, stack, registers)
    names = list(ahead.signature)
    aligned = [name for name, kind in ahead.signature.items() if kind.startswith("*") or name in multiples]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = _source_type(ahead.function)(ahead.function, dict(ahead.signature), dict(ahead.constants), attributes)
    architecture = int(target.removeprefix("sm_"))
    made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=dict(ahead.options))
    registers, stack = resources(made.asm["cubin"])
    return Compiled(made.asm["ptx"], made.metadata.shared, stack, registers)


def resources(cubin: bytes) -> tuple[int, int]:
    """Return registers a thread and bytes of local memory (spills) of a cubin's kernel."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    usage = re.search(r"REG:(\d+) STACK:(\d+)", done.stdout)
    assert usage, done.stdout
    return int(usage[1]), int(usage[2])


def _source_type(function: Any) -> Any:
    """Return triton's type of a kernel's source: Gluon functions have their own."""
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource if getattr(function, "is_gluon", lambda: False)() else ASTSource

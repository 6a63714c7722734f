"""Compiles a kernel ahead of time, without a GPU, and reads what the compiler made of it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledger.kernel import AheadCuda

needs_nvrtc = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("cuda", "torch", "triton")),
    reason="cuda.bindings, torch and triton are not all installed",
)

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
        registers, stack = resources(ahead.source.cubin(target))
        return Compiled(ahead.source.ptx(target), ahead.shared_bytes, stack, registers)
    names = list(ahead.signature)
    aligned = [name for name, kind in ahead.signature.items() if kind.startswith("*") or name in multiples]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = _source_type(ahead.function)(ahead.function, dict(ahead.signature), dict(ahead.constants), attributes)
    architecture = int(target.removeprefix("sm_"))
    made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=dict(ahead.options))
    registers, stack = resources(made.asm["cubin"])
    return Compiled(made.asm["ptx"], made.metadata.shared, stack, registers)


def instructions(cubin: bytes) -> list[str]:
    """Return the machine instructions of a cubin's kernel in their order, without predicates."""
    listing = _tool("nvdisasm", cubin, "-c")
    plain = (re.sub(r"/\*[0-9a-f]*\*/", "", line).strip() for line in listing.splitlines())
    return [re.sub(r"^@!?U?P\w+\s+", "", line) for line in plain if line.endswith(";")]


def counts(code: list[str], *names: str) -> list[int]:
    """Return how many of the machine instructions there are of each name, all that begin with it."""
    return [sum(line.startswith(name) for line in code) for name in names]


def overwritten(code: list[str]) -> list[str]:
    """Return the instructions that write a register which wgmma products in flight may still read.

    Products end, the oldest batch first, at the wait that says how many batches may remain. ptxas has been seen to give
    their operands' registers away before, where the next operands are loaded ahead of that wait.
    """
    found, batch, under_way = [], set[int](), list[set[int]]()
    for line in code:
        if product := re.match(r"HGMMA\.\S+\s+R\d+, R(\d+), ", line):
            batch |= set(range(int(product[1]), int(product[1]) + 4))
        if line.startswith("HGMMA"):
            if "gsb0" in line:
                under_way, batch = [*under_way, batch], set()
        elif wait := re.match(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d+)", line):
            under_way = under_way[max(len(under_way) - int(wait[1]), 0) :]
        elif written := re.match(r"(?!ST|SYNCS|RED|BAR|BRA|ATOM|UTM)(\S+)\s+(?:P\d+, )?R(\d+)\b", line):
            wide = 4 if re.search(r"\.128|\.4$", written[1]) else 2 if re.search(r"\.64|WIDE", written[1]) else 1
            if set(range(int(written[2]), int(written[2]) + wide)) & batch.union(*under_way):
                found.append(line)
    return found


def resources(cubin: bytes) -> tuple[int, int]:
    """Return registers a thread and bytes of local memory (spills) of a cubin's kernel."""
    listing = _tool("cuobjdump", cubin, "--dump-resource-usage")
    usage = re.search(r"REG:(\d+) STACK:(\d+)", listing)
    assert usage, listing
    return int(usage[1]), int(usage[2])


def _tool(name: str, cubin: bytes, option: str) -> str:
    """Return what one of the tools that Triton brings says of a cubin."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout


def _source_type(function: Any) -> Any:
    """Return triton's type of a kernel's source: Gluon functions have their own."""
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource if getattr(function, "is_gluon", lambda: False)() else ASTSource

"""Reads machine code with the tools that triton installs: nvdisasm and cuobjdump. Imports triton, only when called."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path as FilePath

from ledger.errors import MachineError


@dataclass(frozen=True)
class Resources:
    """Hold what the binary says of one kernel: registers a thread, and bytes of stack a thread."""

    registers: int
    stack_bytes: int


def resources_of(cubin: bytes, function: str) -> Resources:
    """Return the registers and the stack of a kernel. Raises: MachineError when the tool does not name it."""
    printed = _run("cuobjdump", "--dump-resource-usage", cubin=cubin)
    line = re.search(rf"Function {re.escape(function)}:\s*\n\s*(.*)", printed)
    usage = {} if line is None else {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", line[1])}
    if not {"REG", "STACK"} <= set(usage):
        raise MachineError(
            f"cuobjdump names no resources of {function}: {printed.strip()[:200]!r}; expected REG and STACK"
        )
    return Resources(registers=usage["REG"], stack_bytes=usage["STACK"])


def disassembled(cubin: bytes) -> str:
    """Return the SASS of a cubin. Raises: MachineError without the tool."""
    return _run("nvdisasm", "-c", cubin=cubin)


def _run(name: str, *options: str, cubin: bytes) -> str:
    import triton

    path = FilePath(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    if not path.is_file():
        raise MachineError(f"{name} is not among triton's tools; expected it in triton/backends/nvidia/bin")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([path, *options, file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"{name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout

"""Loads a kernel once a process, for tests that ask many times what it says of itself."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ledger import kernel_files
from ledger.kernel_files import KernelFile


@cache
def load_kernel(name: str, root: Path | None = None, *, launch: bool = False) -> KernelFile:
    """Load a kernel as ledger does, or return it as it was loaded before."""
    return kernel_files.load_kernel(name, root, launch=launch)

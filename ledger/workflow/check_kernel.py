"""Loads a kernel file and checks it on this machine; a file that cannot be loaded is a failed check."""

from __future__ import annotations

import ast
from pathlib import Path as FilePath

from ledger.analysis.kernel_check import Finding
from ledger.device.facts import gpu_target
from ledger.errors import InputError, UnknownName
from ledger.kernel_files import execute, kernel_closure
from ledger.kernel_folder import own_folder
from ledger.measure.kernel_check import check_kernel


def check_named(name: str, root: FilePath | None) -> tuple[FilePath, list[Finding]]:
    """Return the file of a kernel and the findings about it.

    Raises: UnknownName; MachineError without torch, or without triton where the kernel needs it.
    """
    try:
        closure, shipped = kernel_closure(name, root)
    except UnknownName:
        raise
    except InputError as error:
        return own_folder(root or FilePath.cwd()) / f"{name}.py", [Finding("loads", "failed", str(error))]
    source = closure.source
    try:
        file = execute(closure, launch=gpu_target() is not None, shipped=shipped)
    except InputError as error:
        return source.file, [Finding("loads", "failed", str(error))]
    docstring = ast.get_docstring(ast.parse(source.data.decode("utf-8-sig")))
    findings = [Finding("loads", "passed", f"from {source.path}")]
    return source.file, [*findings, *check_kernel(file, docstring, root=root, gpu=gpu_target())]

"""Loads wrong twins of kernels: the closure of a kernel with one file edited, executed as a sealed closure is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from mutants.kernels import Mutant

from ledger.kernel_files import execute, kernel_closure
from ledger.sources.closure import SHIPPED_PATH, Closure


def twin_closure(mutant: Mutant, folder: Path, root: Path | None = None) -> Closure:
    """Return the closure of a mutant's kernel with its edit; every file of it is written below `folder`.

    mutant.file: the file it edits, relative to kernels/ ("common/row_reductions.py", "matmul/cluster.cu"), or "" for
    the kernel's own module. root: the repository of a kernel that is not shipped. Each twin has files of its own, so
    that none reads the source lines of another.
    """
    closure, _ = kernel_closure(mutant.kernel, root)
    edited = f"{SHIPPED_PATH}/{mutant.file}" if mutant.file else closure.source.path
    listed = [source.path for source in closure.files]
    assert edited in listed, f"{mutant.kernel}/{mutant.name}: {edited} is not among {', '.join(listed)}"
    files = []
    for source in closure.files:
        data = mutant.apply(source.data.decode()).encode() if source.path == edited else source.data
        file = folder / f"{mutant.kernel}-{mutant.name}" / source.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        files.append(replace(source, data=data, file=file))
    return replace(closure, files=tuple(files))


def load_twin(mutant: Mutant, folder: Path, root: Path | None = None) -> Any:
    """Return the KERNEL of a wrong twin, with triton."""
    return execute(twin_closure(mutant, folder, root), launch=True, shipped=True).kernel

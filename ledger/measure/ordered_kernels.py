"""Loads the kernels of an order, from the sources it contains and those shipped with the package."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path as FilePath

from ledger.callables.subject import is_callable
from ledger.callables.subject_files import execute_case
from ledger.canonical import encode, object_id
from ledger.errors import InputError
from ledger.kernel_files import KernelFile, shipped_folder
from ledger.records import (
    Digest,
    Order,
    OrderedCell,
)
from ledger.sources.closure import Closure
from ledger.sources.rebuild import rebuild


def kernels_of(order: Order, *, folder: FilePath, now: bool = False) -> Callable[[OrderedCell], KernelFile]:
    """Return a function that loads the kernel or callable of a cell of the order, ready to launch.

    folder: where the order's sources are written, so that compilers and debuggers find them. now: execute those of
    callables too, which are measured in processes of their own.
    """
    texts = {digest: text.encode() for digest, text in order.files.items()}

    @cache
    def sources(digest: Digest) -> Closure:
        manifest = order.kernels[digest]
        if object_id(encode(manifest)) != digest:
            raise InputError(f"kernel {manifest.entry}: the order's manifest is not the one that {digest[:10]} names")
        return rebuild(manifest, texts, folder=folder / "sources" / digest[:16], shipped=shipped_folder("kernels"))

    loaded: dict[tuple[Digest, str], KernelFile] = {}

    def find(cell: OrderedCell) -> KernelFile:
        # A callable is one with its arguments, which are of its case.
        key = (cell.kernel_sha256, cell.case.model_dump_json() if is_callable(cell.case.kernel) else "")
        if key not in loaded:
            closure = sources(cell.kernel_sha256)
            loaded[key] = execute_case(closure, cell.case, shipped=not closure.carried, now=now)
        return loaded[key]

    return find


def carried_names(order: Order) -> list[str]:
    """Return the modules whose source an order contains; the measuring machine will execute them."""
    return sorted(
        {
            file.module or file.path
            for manifest in order.kernels.values()
            for file in manifest.files
            if file.sha256 in order.files
        }
    )

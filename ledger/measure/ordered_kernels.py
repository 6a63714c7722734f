"""Loads the kernels of an order, from the sources it contains and those shipped with the package."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path as FilePath

from ledger.canonical import encode, object_id
from ledger.errors import InputError
from ledger.kernel_files import KernelFile, execute, shipped_folder
from ledger.records import (
    Digest,
    Order,
)
from ledger.sources.rebuild import rebuild


def kernels_of(order: Order, *, folder: FilePath) -> Callable[[Digest], KernelFile]:
    """Return a function that loads a kernel of the order by its digest, ready to launch.

    folder: where the order's sources are written, so that compilers and debuggers find them.
    """
    texts = {digest: text.encode() for digest, text in order.files.items()}

    @cache
    def find(digest: Digest) -> KernelFile:
        manifest = order.kernels[digest]
        if object_id(encode(manifest)) != digest:
            raise InputError(f"kernel {manifest.entry}: the order's manifest is not the one that {digest[:10]} names")
        closure = rebuild(manifest, texts, folder=folder / "sources" / digest[:16], shipped=shipped_folder("kernels"))
        return execute(closure, launch=True, shipped=not closure.carried)

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

"""Reads the cells and the baselines that the commands forecast, bench, timeline and tune are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledger.cli.open_ledger import find_root
from ledger.cli.options import parse_dtype, parse_shape
from ledger.errors import InputError

if TYPE_CHECKING:
    from ledger.kernel import Kernel
    from ledger.kernel_files import KernelFile
    from ledger.measure.contestants import Cell


def cells_of(kernel: Kernel, shapes: Sequence[str] | None, dtypes: Sequence[str] | None) -> list[Cell]:
    """Return the cells given; without shapes or dtypes, all that the kernel lists. Raises: InputError."""
    sizes = [parse_shape(shape) for shape in shapes] if shapes else [dict(case) for case in kernel.cases]
    kinds = [parse_dtype(dtype) for dtype in dtypes] if dtypes else list(kernel.dtypes)
    return [(size, kind) for size in sizes for kind in kinds]


def check_cells(names: Sequence[str], shapes: Sequence[str] | None, dtypes: Sequence[str] | None) -> None:
    """Check kernels, shapes and dtypes that a command is given, before it loads torch. Raises: InputError."""
    from ledger.kernel_files import load_kernel

    for shape in shapes or ():
        parse_shape(shape)
    for dtype in dtypes or ():
        parse_dtype(dtype)
    root = find_root()
    for name in names:
        kernel = load_kernel(name, root).kernel
        for size, kind in cells_of(kernel, shapes, dtypes):
            kernel.check_offers(size, kind)


def tuned_cells(kernel: Kernel, shapes: Sequence[str] | None, dtypes: Sequence[str] | None) -> list[Cell]:
    """Return the cells to tune: every shape given, in the dtypes given or the kernel's first. Raises: InputError."""
    if not shapes:
        raise InputError(f"--shape: none given; expected one, with {','.join(kernel.operation.shape_keys)}")
    cells = cells_of(kernel, shapes, dtypes or [kernel.dtypes[0]])
    for shape, dtype in cells:
        kernel.check_offers(shape, dtype)
    return cells


def baseline_set(names: Sequence[str] | None, files: Sequence[KernelFile]) -> frozenset[str] | None:
    """Return the baselines given, as rows name them; None for all. Raises: InputError for one that no kernel has."""
    from ledger.measure.contestants import baseline_names

    if names is None:
        return None
    known = frozenset[str]().union(*(baseline_names(file.kernel) for file in files))
    only = frozenset(name.replace("-", "_") for name in names)
    if unknown := sorted(only - known):
        raise InputError(
            f"--baseline: {', '.join(unknown)} is no baseline of {', '.join(file.kernel.name for file in files)}; "
            f"expected some of: {', '.join(sorted(known))}"
        )
    return only

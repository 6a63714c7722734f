"""Renders a kernel file: formula, shapes, work, tolerances, what its work model leaves out.

Needs neither torch nor triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.analysis.formatting import harmless, shape_text, si
from ledger.kernel import Kernel
from ledger.kernel_files import KernelFile
from ledger.records import Work
from ledger.roofline import arithmetic_intensity


def kernel_document(file: KernelFile) -> dict[str, Any]:
    """Return a kernel's own words and its work for each of its cases, as one JSON value."""
    kernel = file.kernel
    return {
        "name": kernel.name,
        "operation": kernel.operation.name,
        "summary": kernel.summary,
        "formula": kernel.formula,
        "shape_keys": list(kernel.operation.shape_keys),
        "dtypes": list(kernel.dtypes),
        "implementations": list(kernel.implementations),
        "baselines": list(kernel.baselines),
        "excludes": kernel.excludes,
        "tolerances": {
            dtype: {"atol": bound.atol, "rtol": bound.rtol, "reason": bound.reason}
            for dtype, bound in kernel.tolerances.items()
        },
        "cases": [
            {"shape": dict(case), "dtype": dtype, "work": kernel.work(case, dtype).model_dump(mode="json")}
            for case in kernel.cases
            for dtype in kernel.dtypes
        ],
        "shipped": file.shipped,
        "sha256": file.sha256,
    }


def render_kernels(kernels: Sequence[Kernel], console: Console) -> None:
    """Print the kernels, one a line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "shape", "dtypes", "summary"):
        table.add_column(heading, no_wrap=heading == "name")
    for kernel in kernels:
        words = (kernel.name, ", ".join(kernel.operation.shape_keys), ", ".join(kernel.dtypes), kernel.summary)
        table.add_row(*(Text(harmless(word)) for word in words))
    console.print(table)


def render_kernel(file: KernelFile, console: Console) -> None:
    """Print one kernel."""
    kernel = file.kernel
    origin = "shipped with the package" if file.shipped else "from this repository"
    console.print(Text(harmless(kernel.name), style="bold"), Text(harmless(kernel.summary)))
    console.print(Text(f"{origin}, SHA-256 {file.sha256[:12]}", style="dim"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    for label, words in _facts(kernel):
        grid.add_row(label, Text(harmless(words)))
    console.print()
    console.print(grid)
    console.print()
    console.print(_work(kernel))


def _facts(kernel: Kernel) -> list[tuple[str, str]]:
    facts = [
        ("formula", kernel.formula),
        ("operation", f"{kernel.operation.name} over {', '.join(kernel.operation.shape_keys)}"),
        ("runs as", ", ".join(kernel.implementations)),
        ("compared with", ", ".join(kernel.baselines) or "nothing"),
        ("left out", kernel.excludes),
    ]
    for dtype, bound in kernel.tolerances.items():
        facts.append((f"{dtype} within", f"{bound.atol:g} + {bound.rtol:g} · |reference|: {bound.reason}"))
    return facts


def _work(kernel: Kernel) -> Table:
    """Return the work of the kernel's own cases; dtypes that move the same bytes share a line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("case", "dtype", "work", "read", "written", "FLOP/byte"):
        table.add_column(heading, justify="left" if heading in ("case", "dtype") else "right")
    for case in kernel.cases:
        sharing: dict[Work, list[str]] = {}
        for dtype in kernel.dtypes:
            sharing.setdefault(kernel.work(case, dtype), []).append(dtype)
        for work, dtypes in sharing.items():
            amounts = (si(work.flops, "FLOP"), si(work.bytes_read, "B"), si(work.bytes_written, "B"))
            words = (shape_text(case), ", ".join(dtypes), *amounts, _intensity(work))
            table.add_row(*(Text(harmless(word)) for word in words))
    return table


def _intensity(work: Work) -> str:
    if not work.bytes:
        return ""
    value = arithmetic_intensity(work)
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"

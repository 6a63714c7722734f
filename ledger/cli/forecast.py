"""The command forecast: what built-in forecasters say of cells; seals nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.cells import cells_of
from ledger.cli.open_ledger import find_root, open_ledger, refuse_if_refused
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out
from ledger.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.forecasters.answer import Measured


def forecast(
    subject: Annotated[str, typer.Argument(metavar="KERNEL", help="Kernel; see: ledger kernels list.")],
    hw: Annotated[str, typer.Option("--hw", help="Hardware profile; see: ledger hardware list.")],
    dtype: Annotated[list[str] | None, typer.Option(help="Data types (default: the kernel's first).")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Shapes, as B=32,H=4096 (default: the kernel's).")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Forecasters, comma-separated (default: all).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what built-in forecasters say of a kernel's cells, and the terms that explain it; seals nothing."""
    from ledger.forecasters.registry import answers, forecasters_named
    from ledger.kernel_files import load_kernel
    from ledger.record_files import load_hardware
    from ledger.render.answers_text import answers_document, render_answers
    from ledger.workflow.question import make_question

    names, root = forecasters_named(by), find_root()
    file, hardware = load_kernel(subject, root), load_hardware(hw, root)
    cells = cells_of(file.kernel, shape, dtype or [file.kernel.dtypes[0]])
    earlier = _earlier(names)
    questions = [make_question(file.kernel, hardware, shape=s, dtype=d, earlier=earlier) for s, d in cells]
    answered = [(question, answers(question, names)) for question in questions]
    if as_json:
        emit({"cells": answers_document(answered)})
    else:
        render_answers(answered, out())


def _earlier(names: Sequence[str]) -> tuple[Measured, ...]:
    """Return what the ledger of this folder has measured, where a forecaster asks for it; nothing without a ledger."""
    from ledger.forecasters import persistence

    if persistence.NAME not in names or find_root() is None:
        return ()
    try:
        book = open_ledger().book
    except StateError:
        return ()
    refuse_if_refused(book)
    return persistence.measured_runs(book)

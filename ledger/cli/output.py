"""Prints results on stdout, and progress and messages on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


_LONG = 1_000_000


def emit(document: Any) -> None:
    """Print one JSON document on stdout, indented unless it is long: indenting megabytes takes seconds."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False)
    if len(text) < _LONG:
        text = json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False)
    sys.stdout.write(f"{text}\n")


def out() -> Console:
    """Return the console for results."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


@contextmanager
def paged() -> Iterator[Console]:
    """Yield the console for long results: on a terminal through the user's pager where they fill more than a screen."""
    console = out()
    if not (console.is_terminal and sys.stdin.isatty()):
        yield console
        return
    # less: keep colours, leave what fits on a screen, and the screen as it is.
    os.environ.setdefault("LESS", "FRX")
    with console.pager(styles=True):
        yield console


def err() -> Console:
    """Return the console for progress and messages."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Print a line on stderr; control characters are escaped."""
    from rich.text import Text

    from ledger.analysis.formatting import harmless

    err().print(Text(harmless(text)), soft_wrap=True)


@contextmanager
def progress_bar(title: str, *, limit: int) -> Iterator[Callable[[int, int, str], None]]:
    """Show a progress bar on stderr; yield its update function (done, total, text up to `limit` characters)."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from ledger.analysis.formatting import harmless

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=err()) as bar:
        task = bar.add_task(title, total=None)

        def show(done: int, total: int, text: str) -> None:
            bar.update(task, description=harmless(text, limit=limit), completed=done, total=total)

        yield show

"""Prints results on stdout, and progress and messages on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


_LONG = 1_000_000
_PATIENCE_S = 1.0
"""How long a step may take before a terminal shows that it is at work."""


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
    # Nothing is shown before all is laid out.
    with console.pager(styles=True), working("laying out"):
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
def working(what: str) -> Iterator[None]:
    """Show on a terminal, once a step takes longer than a second, what is done and for how long; on stderr."""
    if not sys.stderr.isatty():
        yield
        return
    from threading import Timer

    begun, shown = time.monotonic(), ExitStack()
    timer = Timer(_PATIENCE_S, lambda: shown.enter_context(_spinner(what, begun)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        shown.close()


def _spinner(what: str, begun: float) -> Progress:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    made = Progress(*columns, console=err(), transient=True)
    task = made.add_task(what, total=None)
    made.tasks[task].start_time = begun
    return made


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

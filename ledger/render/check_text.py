"""Renders the findings of `ledger check`, one a line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.analysis.formatting import harmless
from ledger.analysis.kernel_check import Finding

_STYLES = {"passed": "green", "failed": "bold red", "skipped": "dim"}


def render_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print what was checked, whether it passed, and what was found."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in findings:
        words = (Text(one.status, style=_STYLES[one.status]), Text(harmless(one.check)), Text(harmless(one.detail)))
        table.add_row(*words)
    console.print(table)

"""Renders the order of seals, measurements and withdrawals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from ledger.analysis.formatting import harmless
from ledger.render.fitted_table import Column, print_fitted
from ledger.render.tables import MANY, print_rows

_WIDE = 110
_LONGEST_NAME = 30
KEYS = ("commit", "date_self_declared", "kind", "id", "what", "author", "forecaster")
"""What an event holds, in this order."""

Events = Mapping[str, Sequence[Any]]
"""A timeline by columns."""


def events_of(events: Events) -> list[dict[str, Any]]:
    """Return the events of a timeline, each as one value."""
    return [dict(zip(KEYS, event, strict=True)) for event in zip(*(events[key] for key in KEYS), strict=True)]


def keys_shown(width: int) -> tuple[str, ...]:
    """Return what a terminal shows of events: on a narrow one the id gives way, as the commit names the event."""
    return tuple(key for key in KEYS if key != "id" or width >= _WIDE)


def render_timeline(columns: Events, console: Console) -> None:
    """Print a timeline with each commit's own date, labelled as what it is."""
    authors, forecasters = columns["author"], columns["forecaster"]
    # Names that are all the same give way.
    same = all(name is None or name == author for name, author in zip(forecasters, authors, strict=True))
    hidden = {key for key in KEYS if key not in keys_shown(console.width)} | ({"forecaster"} if same else set())
    names = {name: harmless(name or "", _LONGEST_NAME) for name in {*authors, *forecasters}}
    texts: dict[str, tuple[str, Callable[[Any], str]]] = {
        "commit": ("commit", lambda commit: commit[:10]),
        "date_self_declared": ("self-declared date", lambda when: harmless(when[:16].replace("T", " "))),
        "author": ("author", names.__getitem__),
        "forecaster": ("forecaster", names.__getitem__),
        "kind": ("kind", str),
        "id": ("id", lambda identity: identity[:10]),
        "what": ("what", harmless),
    }
    shown = {heading: [*map(text, columns[key])] for key, (heading, text) in texts.items() if key not in hidden}
    if len(authors) > MANY:
        ranks = {"id": 3, "author": 2, "forecaster": 1}
        found = [Column(name, column, ranks.get(name, 0), right=False) for name, column in shown.items()]
        print_fitted(console, found)
        return
    rows = list(zip(*shown.values(), strict=True))
    print_rows(console, tuple(shown), rows, folding=("author", "forecaster", "what"))

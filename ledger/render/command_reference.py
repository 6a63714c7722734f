"""Renders the command line's own help as one Markdown page. Pure; the application is given, not imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ledger.render.markdown_page import escape, table


def walk(command: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield each command below an application or group, by its whole name. command: as typer.main.get_command gives."""
    for key, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*name, key))
    if not hasattr(command, "commands"):
        yield " ".join(name), command


def options_of(command: Any) -> dict[str, Any]:
    """Return a command's options by their long name, except --help."""
    found = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    return {max(one.opts, key=len): one for one in found}


def render_markdown(application: Any) -> str:
    """Return a section for each command: what it does, its arguments and its options, in the words of --help."""
    parts = ["# Commands", "Rendered from `ledger COMMAND --help`; not committed."]
    for name, command in walk(application):
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        rows = [(f"`{one.name.upper()}`", escape(one.help or "")) for one in arguments]
        rows += [(f"`{'`, `'.join(one.opts)}`", escape(one.help or "")) for one in options_of(command).values()]
        parts += [f"## ledger {name}", escape(command.help or "")]
        parts += [table(("option", "what"), rows).rstrip()] if rows else []
    return "\n\n".join(parts) + "\n"

"""The commands hardware list and hardware show."""

from __future__ import annotations

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out

hardware_app = typer.Typer(no_args_is_help=True, help="List hardware profiles, or show one as a card.")


@hardware_app.command("list")
def hardware_list(as_json: JsonOption = False) -> None:
    """List all profiles."""
    from ledger.record_files import hardware_names, load_hardware

    profiles = [load_hardware(name, find_root()) for name in hardware_names(find_root())]
    if as_json:
        keep = {"name", "title", "target", "device_names", "ceilings"}
        emit([{**p.model_dump(mode="json", include=keep), "ceilings": list(p.ceilings)} for p in profiles])
        return
    from ledger.render.hardware_card import render_list

    render_list(profiles, out())


@hardware_app.command("show")
def hardware_show(name: str, as_json: JsonOption = False) -> None:
    """Show one profile and its peaks."""
    from ledger.record_files import load_hardware
    from ledger.render import hardware_card as card

    profile = load_hardware(name, find_root())
    if as_json:
        emit(card.document(profile))
    else:
        card.render(profile, out())

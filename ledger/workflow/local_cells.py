"""Tells which cells and claims this machine can measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.analysis.book import CellView, ClaimView
from ledger.device.facts import facts_for, require_profile
from ledger.errors import MachineError
from ledger.records import ForecastV2, Hardware
from ledger.sources.platform import contradicted_pins


def split_by_device(cells: Sequence[CellView]) -> tuple[list[CellView], list[tuple[CellView, str]]]:
    """Return the cells whose device and pinned software are here, and the others, each with the reason."""
    here: list[CellView] = []
    elsewhere: list[tuple[CellView, str]] = []
    asked: dict[str, Mapping[str, str] | str] = {}
    for cell in cells:
        profile = cell.forecast.hardware_sha256
        if profile not in asked:
            asked[profile] = _software_or_problem(cell.hardware)
        found = asked[profile]
        if not isinstance(found, str) and isinstance(cell.forecast, ForecastV2):
            found = next(contradicted_pins(cell.forecast.pins, found), found)
        if isinstance(found, str):
            elsewhere.append((cell, found))
        else:
            here.append(cell)
    return here, elsewhere


def split_claims_by_device(claims: Sequence[ClaimView]) -> tuple[list[ClaimView], list[tuple[ClaimView, str]]]:
    """Return the claims whose device and pinned software are here, and the others, each with the reason."""
    here: list[ClaimView] = []
    elsewhere: list[tuple[ClaimView, str]] = []
    for view in claims:
        found = _software_or_problem(view.hardware)
        if not isinstance(found, str):
            found = next(contradicted_pins(view.claim.pins, found), found)
        if isinstance(found, str):
            elsewhere.append((view, found))
        else:
            here.append(view)
    return here, elsewhere


def _software_or_problem(hardware: Hardware | None) -> Mapping[str, str] | str:
    """Return the software of this machine's device of a profile, or why the profile describes none here."""
    assert hardware is not None
    try:
        facts = facts_for(hardware)
        require_profile(hardware, facts)
    except MachineError as error:
        return str(error)
    return facts.versions

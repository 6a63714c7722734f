"""Seals the answers of named forecasters: what --by of the command predict does."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ledger.cli.output import say, working

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.analysis.campaign import CellRequest
    from ledger.cli.sealing import Sealing
    from ledger.records import CeilingKind
    from ledger.workflow.named_forecasts import Known

_SHOWN = 5


def sealed_by(
    names: str | None,
    sealing: Sealing,
    *,
    programs: Sequence[str] = (),
    source: FilePath | None = None,
    cells: Sequence[CellRequest] = (),
    ceilings: CeilingKind | None = None,
) -> None:
    """Seal what each named forecaster answers: a seal each, of the cells of a campaign file or of those given."""
    from ledger.analysis.campaign import parse_open_campaign
    from ledger.forecasters.command import participant
    from ledger.forecasters.registry import participants_named
    from ledger.record_files import parse_yaml, read_bytes
    from ledger.sources.platform import parse_pin
    from ledger.workflow.named_forecasts import all_named_drafts
    from ledger.workflow.seal import check_new, prepare

    repository, pins, campaign, why = sealing.repository, list(sealing.pins), None, ""
    chosen = participants_named(names, [participant(text) for text in programs])
    if source is not None:
        found, cells = parse_open_campaign(parse_yaml(read_bytes(source), what=str(source)), what=str(source))
        campaign, why, ceilings = found.campaign, found.why, found.ceilings
        pins = [*found.pins, *pins]
        for one in chosen:
            check_new(repository, campaign, repository.head(), one.name)
    pinned = dict(parse_pin(text) for text in pins)
    with working("resolving"):
        prepared = [prepare(cell, root=repository.root, ceilings=ceilings) for cell in cells]
    with working("asking the forecasters"):
        known = known_now()
        answered, silent = all_named_drafts(prepared, chosen, known, pins=pinned)
    for reason in silent:
        say(f"{reason}; sealed nothing")
    seals = []
    for one, drafts in answered:
        say(f"{one.name} {one.version}:")
        for name, reason in list(drafts.left_out.items())[:_SHOWN]:
            say(f"{one.name}: left out {name}: {reason}")
        if len(drafts.left_out) > _SHOWN:
            say(f"{one.name}: left out {len(drafts.left_out) - _SHOWN} more")
        seals.append(sealing.seal(drafts.drafts, campaign=campaign, why=why, author=drafts.author))
    sealing.show(seals)


def known_now() -> Known:
    """Return what the ledger of this folder has measured at HEAD; nothing without a ledger.

    Raises: EvidenceRefused where its evidence is.
    """
    from ledger.cli.open_ledger import find_root, open_ledger, refuse_if_refused
    from ledger.errors import StateError
    from ledger.forecasters.track import measured_runs
    from ledger.workflow.named_forecasts import Known

    if find_root() is None:
        return Known()
    try:
        book = open_ledger().book
    except StateError:
        return Known()
    refuse_if_refused(book)
    return Known(book.head, measured_runs(book))

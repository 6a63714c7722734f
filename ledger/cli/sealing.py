"""Shows drafts and seals them, with the options that every way of sealing shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ledger.cli.output import emit, out, say, working
from ledger.cli.witness import log_records, stamp_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.analysis.campaign import Request
    from ledger.git.commit import Repository
    from ledger.records import CeilingKind
    from ledger.workflow.seal import Author, Draft, SealedCommit


@dataclass(frozen=True, kw_only=True)
class Sealing:
    """Seal forecasts with the options that a single forecast and a campaign share."""

    repository: Repository = field(kw_only=False)
    pins: Sequence[str]
    tsa: str | None
    log: bool
    sign: bool
    check: bool
    dry_run: bool
    as_json: bool
    confirm: bool = False
    hidden: bool = False
    _unsealed: list[dict[str, Any]] = field(default_factory=list, init=False)

    def campaign(self, source: FilePath) -> None:
        """Seal the campaign of a file."""
        from ledger.analysis.campaign import parse_campaign
        from ledger.record_files import parse_yaml, read_bytes
        from ledger.workflow.seal import check_new

        campaign, requests = parse_campaign(parse_yaml(read_bytes(source), what=str(source)), what=str(source))
        forecaster = self.repository.identity()
        check_new(self.repository, campaign.campaign, self.repository.head(), forecaster)
        drafts = self._drafts(requests, campaign.ceilings, pins=(*campaign.pins, *self.pins))
        self.show([self.seal(drafts, campaign=campaign.campaign, why=campaign.why)])

    def forecasts(self, requests: Sequence[Request], ceilings: CeilingKind | None) -> list[Draft]:
        """Seal forecasts that are no campaign; return what was sealed."""
        drafts = self._drafts(requests, ceilings, pins=self.pins)
        sealed = self.seal(drafts, campaign=None, why="")
        self.show([sealed])
        return [] if sealed is None else drafts

    def _drafts(self, requests: Sequence[Request], kind: CeilingKind | None, *, pins: Sequence[str]) -> list[Draft]:
        from ledger.sources.platform import parse_pin
        from ledger.workflow.seal import draft

        pinned = dict(parse_pin(text) for text in pins)
        with working("resolving"):
            return [draft(request, root=self.repository.root, ceilings=kind, pins=pinned) for request in requests]

    def seal(
        self, drafts: Sequence[Draft], *, campaign: str | None, why: str, author: Author | None = None
    ) -> SealedCommit | None:
        """Show drafts with their sight and seal them; None where nothing is to be sealed."""
        from ledger.cli.prompts import confirmed
        from ledger.render.forecast_table import drafts_table
        from ledger.workflow.hidden import hide, vault
        from ledger.workflow.path_check import check_paths
        from ledger.workflow.seal import check_distinct, seal
        from ledger.workflow.sight import with_sights

        check_distinct(drafts)
        with working("looking for what was timed before"):
            drafts, told = with_sights(self.repository, drafts)
        with working("compiling"):
            told += check_paths(drafts, self.repository.root) if self.check else ()
        for line in told:
            say(line)
        if not self.as_json:
            out().print(drafts_table([item.forecast for item in drafts]))
        if self.dry_run:
            shown = [item.forecast.model_dump(mode="json") for item in drafts]
            self._unsealed.append(
                {"campaign": campaign, "forecaster": author and author.name, "why": why, "forecasts": shown}
            )
            say("dry run: nothing is sealed")
            return None
        if self.confirm and not confirmed("Seal this forecast? It cannot be changed later"):
            say("nothing is sealed")
            return None
        hiding = partial(hide, self.repository) if self.hidden else None
        with working("sealing"):
            sealed = seal(
                self.repository, drafts, campaign=campaign, why=why, sign=self.sign, author=author, hide=hiding
            )
        if self.hidden:
            say(
                f"the text and the salt are in {vault(self.repository)} of this clone alone: keep a copy of that folder"
            )
        if sealed.note:
            say(sealed.note)
        return sealed

    def show(self, seals: Sequence[SealedCommit | None]) -> None:
        """Show what was sealed, or as JSON would have been; have it stamped and logged where that is wanted."""
        if self.dry_run and self.as_json:
            emit(self._unsealed)
        sealed = [one for one in seals if one is not None]
        if not sealed:
            return
        _show(sealed, as_json=self.as_json)
        paths = [one.path for one in sealed]
        stamp_records(self.repository, paths, self.tsa)
        log_records(self.repository, paths, self.tsa, wanted=self.log)


def _show(seals: Sequence[SealedCommit], *, as_json: bool) -> None:
    if as_json:
        emit([{"id": sealed.id, "path": sealed.path, "commit": sealed.commit} for sealed in seals])
        return
    for sealed in seals:
        out().print(f"sealed {sealed.id}", soft_wrap=True)
        number = sealed.prediction.sequence
        out().print(f"  file   {sealed.path}\n  commit {sealed.commit}\n  number {number}", soft_wrap=True)

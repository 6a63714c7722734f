"""The command doctor: finds faults of this machine or this ledger."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.kept_lists import listed
from ledger.cli.open_ledger import open_ledger
from ledger.cli.options import DeviceOption, JsonOption
from ledger.cli.output import emit, out, working
from ledger.errors import EvidenceRefused, LedgerError, MachineError

if TYPE_CHECKING:
    from ledger.workflow.doctor import Condition


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Repair the ledger's own files.")] = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find and repair problems. Of this machine and the ledger's files; exit 2 if broken, 3 if evidence is refused."""
    from ledger.workflow.doctor import examine

    with working("examining"):
        findings = examine(FilePath.cwd(), repair=repair, device=device)
    evidence, refused = _evidence()
    findings += evidence
    if as_json:
        emit([{"what": f.what, "state": f.state, "remedy": f.remedy} for f in findings])
    else:
        for finding in findings:
            out().print(f"{finding.state:8} {finding.what}", markup=False, soft_wrap=True)
            if finding.remedy:
                out().print(f"         {finding.remedy}", markup=False, soft_wrap=True)
    if refused:
        raise EvidenceRefused(f"doctor: {evidence[0].what}; see ledger audit")
    broken = sum(finding.state == "broken" for finding in findings)
    if broken:
        raise MachineError(f"doctor: {broken} broken; see the remedies above, or run: ledger doctor --repair")


def _evidence() -> tuple[list[Condition], bool]:
    """Return what the judge says of the ledger around the current folder, if any, and whether it refuses it."""
    from ledger.analysis.formatting import count_text
    from ledger.workflow.doctor import Condition

    try:
        # What a killed writer left is named, and finished only by --repair.
        ledger = open_ledger(uncommitted_is_refused=False, recovers=False)
    except LedgerError:
        # No ledger here: examine says so.
        return [], False
    try:
        kept = listed(ledger, "cells", lambda _count, _held: ("state",))
    except LedgerError as error:
        return [Condition(f"the evidence cannot be judged: {error}", "broken", "ledger audit")], False
    if refused := kept.more["refused"]:
        what = f"the evidence is refused for {count_text(len(refused), 'reason')}"
        return [Condition(what, "broken", "ledger audit names each; no repair removes a refusal")], True
    return [Condition(f"the evidence of {count_text(len(kept.columns['state']), 'forecast')} holds", "good")], False

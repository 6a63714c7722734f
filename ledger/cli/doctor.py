"""The command doctor: finds faults of this machine or this ledger."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

import typer

from ledger.cli.options import DeviceOption, JsonOption
from ledger.cli.output import emit, out, working
from ledger.errors import MachineError


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Repair the ledger's own files.")] = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find and repair problems. Of this machine and of the ledger's own files; exit 2 if broken."""
    from ledger.workflow.doctor import examine

    with working("examining"):
        findings = examine(FilePath.cwd(), repair=repair, device=device)
    if as_json:
        emit([{"what": f.what, "state": f.state, "remedy": f.remedy} for f in findings])
    else:
        for finding in findings:
            out().print(f"{finding.state:8} {finding.what}", markup=False, soft_wrap=True)
            if finding.remedy:
                out().print(f"         {finding.remedy}", markup=False, soft_wrap=True)
    broken = sum(finding.state == "broken" for finding in findings)
    if broken:
        raise MachineError(f"doctor: {broken} broken; see the remedies above, or run: ledger doctor --repair")

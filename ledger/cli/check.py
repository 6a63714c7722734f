"""The command check: a kernel file against its reference, its work model and what a kernel file needs."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, working


def check(
    name: Annotated[str, typer.Argument(help="Kernel; see: ledger kernels list.")], as_json: JsonOption = False
) -> None:
    """Check a kernel file without a GPU. What it lacks, its work model, and its result over odd shapes."""
    from ledger.analysis.kernel_check import documents
    from ledger.errors import ThresholdMissed
    from ledger.render.check_text import render_findings
    from ledger.workflow.check_kernel import check_named

    with working("checking"):
        path, findings = check_named(name, find_root())
    failed = sum(one.status == "failed" for one in findings)
    if as_json:
        emit({"name": name, "path": str(path), "passed": not failed, "checks": documents(findings)})
    else:
        render_findings(findings, out())
    if failed:
        raise ThresholdMissed(f"{path}: {failed} of {len(findings)} checks failed")

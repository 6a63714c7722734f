"""The command audit: the whole ledger of a repository, checked from a clone."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.open_ledger import freeze_records
from ledger.cli.options import JsonOption
from ledger.cli.output import emit, out, progress_bar, say, working
from ledger.errors import EvidenceRefused, InputError, ThresholdMissed

if TYPE_CHECKING:
    from ledger.evidence.audit_result import Audit


def audit(
    source: Annotated[str, typer.Argument(metavar="[PATH or URL]", help="Repository to audit.")] = ".",
    revision: Annotated[str, typer.Option("--at", help="Commit, branch or tag to audit.")] = "HEAD",
    recompute: Annotated[bool, typer.Option("--recompute", help="Recompute the output samples, on the CPU.")] = False,
    run_code: Annotated[
        bool, typer.Option("--run-code", help="With --recompute: run the sealed sources of callables, as yourself.")
    ] = False,
    allowed_signers: Annotated[
        FilePath | None, typer.Option("--allowed-signers", help="Keys that you trust, as ssh-keygen(1) has them.")
    ] = None,
    tsa_roots: Annotated[
        FilePath | None, typer.Option("--tsa-roots", help="Time-stamping roots that you trust, PEM.")
    ] = None,
    log_roots: Annotated[
        FilePath | None,
        typer.Option("--log-roots", help="Public log that you trust: trusted root of sigstore, JSON."),
    ] = None,
    log_identity: Annotated[
        str | None, typer.Option("--log-identity", help="Whose log entries count: an e-mail address or URI.")
    ] = None,
    log_issuer: Annotated[
        str | None, typer.Option("--log-issuer", help="Who must have confirmed that identity, a URL.")
    ] = None,
    log_entries: Annotated[
        FilePath | None, typer.Option("--log-entries", help="All log entries of that identity, as you collected them.")
    ] = None,
    challenge: Annotated[
        str | None, typer.Option("--challenge", help="Your challenge: exit 1 unless a measurement answers it.")
    ] = None,
    since: Annotated[
        FilePath | None, typer.Option("--since", help="Your checkpoint: recompute and show only what is new since.")
    ] = None,
    checkpoint: Annotated[
        FilePath | None, typer.Option("--checkpoint", help="Write a checkpoint, if the audit holds.")
    ] = None,
    page: Annotated[
        FilePath | None, typer.Option("--page", help="Write one page for an interviewer: timeline, sight, scores.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a whole ledger without trusting its author. Works on a sanitised clone."""
    from ledger.evidence import audit as audits
    from ledger.evidence.audit_result import document
    from ledger.evidence.challenge import anchor_of
    from ledger.evidence.checkpoint import read_checkpoint, write_checkpoint
    from ledger.evidence.log_levels import LogTrust
    from ledger.evidence.trust_levels import Trust
    from ledger.workflow.audit_index import AuditIndex

    if run_code and not recompute:
        raise InputError("--run-code: given without --recompute; expected both")
    if challenge is not None:
        anchor_of(challenge)
    memory = AuditIndex(since) if since or checkpoint else None
    trust = Trust(allowed_signers=allowed_signers, tsa_roots=tsa_roots)
    log = LogTrust(log_roots, log_identity, log_issuer, log_entries, tsa_roots)
    with progress_bar("recomputing", limit=60) if recompute or challenge else working("auditing") as show:
        result = audits.audit(
            source,
            revision=revision,
            recomputed=recompute,
            trust=trust if allowed_signers or tsa_roots else None,
            challenge=challenge,
            progress=show,
            log=log if log_roots or log_identity or log_issuer or log_entries else None,
            code=run_code,
            since=None if since is None else read_checkpoint(since),
            checkpointed=checkpoint is not None,
            memory=memory,
        )
    freeze_records()
    if checkpoint is not None:
        if result.checkpoint is not None:
            write_checkpoint(checkpoint, result.checkpoint)
            assert memory is not None
            memory.write(checkpoint)
        say(f"wrote {checkpoint}" if result.checkpoint else f"{checkpoint} is not written: the audit does not hold")
    if page is not None:
        from ledger.render.audit_page import audit_page

        page.write_text(audit_page(result), encoding="utf-8")
        say(f"wrote {page}")
    if as_json:
        emit(document(result))
    elif page is None:
        from ledger.render.audit_text import render_audit

        render_audit(result, out())
    _exit_by_verdict(result)


def _exit_by_verdict(result: Audit) -> None:
    if result.verdict == "refused":
        raise EvidenceRefused(f"{result.source}: {result.reason}")
    if result.verdict == "undetermined":
        raise InputError(f"{result.source}: undetermined: {result.reason}")
    if result.answers is not None and not any(answer.proven for answer in result.answers):
        raise ThresholdMissed(f"{result.source}: no measurement answers the challenge")

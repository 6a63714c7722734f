"""Audits a ledger without trusting its author: a sanitised clone, one pinned commit, every verdict recomputed.

Nothing of the audited repository runs, is imported or is checked out; its configuration has no effect. The checks are
those of judge. What each level proves, and what nobody can prove, is printed with the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from typing import Protocol as Structure

from ledger.analysis.book import Book, CellView
from ledger.analysis.formatting import count_text
from ledger.budgets import MAX_NOTES
from ledger.callables.subject import recompute_command
from ledger.errors import BudgetExceeded, EvidenceRefused, LedgerError, StateError
from ledger.evidence.audit_result import Audit, Verdict, shown_cells
from ledger.evidence.beyond_commit import other_refs, uncommitted
from ledger.evidence.challenge import Answer, anchor_of, answers
from ledger.evidence.checkpoint import (
    Checkpoint,
    checkpoint_of,
    contradictions,
    digest_of,
    holds_tree,
    old_paths,
    only_new,
    records_of,
    since_note,
    states_of,
)
from ledger.evidence.draw_checks import with_draws
from ledger.evidence.judge import Growth, judge, uncollected
from ledger.evidence.log_levels import LogTrust, apply_log
from ledger.evidence.recompute import Progress, Skipped, recompute, recompute_notes, with_recomputed
from ledger.evidence.recompute_budget import OVER_BUDGET
from ledger.evidence.record_checks import Tree, record_blobs
from ledger.evidence.run_code import code_jobs, code_notes, run_code
from ledger.evidence.sight_checks import read_notes
from ledger.evidence.source_checks import with_unlisted_sources
from ledger.evidence.trust_levels import Trust, apply_trust
from ledger.git.clone import Clone, sanitised_clone
from ledger.git.history import History, ledger_tree, read_history
from ledger.git.reader import Reader
from ledger.git.tree_files import blobs_at, commit_of
from ledger.records import Finding

_NO_MEMORY = "this machine has too little memory for it"


def audit(
    source: str,
    *,
    revision: str = "HEAD",
    recomputed: bool = False,
    trust: Trust | None = None,
    challenge: str | None = None,
    progress: Progress | None = None,
    log: LogTrust | None = None,
    code: bool = False,
    since: Checkpoint | None = None,
    checkpointed: bool = False,
    memory: Memory | None = None,
) -> Audit:
    """Return the audit of a repository given by path or URL, at one commit.

    recomputed: recompute the output samples from their seals. trust: the auditor's own keys and roots. challenge: the
    text that the auditor gave; the audit names the measurements that answer it and recomputes their samples. progress:
    called before each measurement that is recomputed. log: the roots and the identity of a public log that the auditor
    trusts. code: run the sealed sources of callables, with the auditor's rights, to recompute their samples.
    since: what an earlier audit saw; only what is new is recomputed and shown. checkpointed: return what this one saw.
    memory: what is known of the records that the earlier audit saw, so that they need not be judged again.
    Raises: InputError when `source` names no repository, or for a challenge that is none.
    """
    anchor = None if challenge is None else anchor_of(challenge)
    try:
        with uncollected(), sanitised_clone(source) as clone:
            reader = Reader(clone.git_dir, clone.environment)
            broken: tuple[Finding, ...] = ()
            # Keys, roots, a challenge and code that is run are asked of old records too.
            alone = not (trust or log or challenge or code) and (not recomputed or (since and since.recomputed))
            part = _part(since, memory, reader, revision) if since and memory and alone else None
            with reader.blobs() as blobs:
                if part is None:
                    history = read_history(reader, revision, wait=False)
                    broken = () if since is None else tuple(contradictions(since, history, reader))
                    notes_on_sight = read_notes(reader, history.head, blobs.read)
                    blobs.plan(record_blobs(history.tree))
                    judged = judge(history, blobs.read, notes=notes_on_sight, files_at=partial(blobs_at, reader))
                    tree = history.tree
                    if memory is not None and checkpointed and not judged.refused:
                        memory.keep(reader, history, judged)
                else:
                    judged, tree = part
                old = frozenset[str]() if since is None or broken else old_paths(since, reader)
                with _keeping(judged.findings):
                    book = with_unlisted_sources(judged, tree, blobs.read)
                    trusted = apply_trust(book, tree, reader, blobs.read, trust or Trust())
                    logged = apply_log(trusted.book, tree, blobs.read, log or LogTrust())
                    jobs = code_jobs(judged, tree, blobs.read) if code else []
            notes = [*other_refs(clone, reader, judged.head), *uncommitted(source, tree)]
    except StateError as error:
        return Audit(source, "undetermined", str(error), None, ())
    except (BudgetExceeded, MemoryError) as error:
        return _not_judged(source, error)
    except EvidenceRefused as error:
        finding = Finding(code="unsound-object", severity="refused", path="", message=str(error))
        return Audit(source, "refused", str(error), None, (), (finding,))
    book = replace(logged.book, findings=(*logged.book.findings, *broken))
    notes += [*trusted.notes, *logged.notes, *_old_customs(clone)]
    found: tuple[Answer, ...] | None = None
    left_over: list[Skipped] = []
    if since is not None and not broken:
        count = memory.records() if part and memory else records_of(book)
        notes.insert(0, since_note(since, count, recomputed=recomputed, judged=part is None))
    if recomputed or anchor is not None:
        # A challenge, and code that is run, ask for old measurements too.
        rests = old if since is not None and since.recomputed and anchor is None and not code else frozenset[str]()
        result = recompute(book, only=_without(book, rests) if rests else None, progress=progress)
        book = with_recomputed(book, result)
        agreed = result.agreed
        if code:
            ran, theirs = run_code(jobs, book), {job.recorded.path for job in jobs}
            book, agreed = with_recomputed(book, ran), agreed | ran.agreed
            notes += code_notes(jobs, ran)
            result = replace(result, skipped=tuple(item for item in result.skipped if item.path not in theirs))
        notes += recompute_notes(result)
        left_over = [item for item in result.skipped if recomputed and item.reason == OVER_BUDGET]
        found = None if challenge is None else answers(book, challenge, agreed)
    elif book.records or book.ratios:
        cases = [*(one.measurement.case for one in book.records), *(one.measurement.case for one in book.ratios)]
        command = recompute_command(case.kernel for case in cases)
        notes.append(f"samples: positions only, no level 1: {command} computes their values")
    # Level 5 needs the level 1 that was recomputed.
    book, told = with_draws(book, book.drawn, trusted.times, None if challenge is None else challenge.strip())
    notes += told
    doubts = [f"object {name[:12]} breaks git's own rules ({message})" for name, message in clone.warnings]
    doubts += [f"{item.name} is not recomputed: {item.reason}" for item in left_over]
    shown = shown_cells(book) if checkpointed or since is not None else {}
    states = _states(book, shown)
    counts = Counter((kind, state) for _, kind, state, _ in states)
    if memory is not None and (part or checkpointed):
        memory.set_states(states)
        counts = memory.states()
    audited = _conclude(source, book, (*notes, *_challenge_notes(found)), doubts, counts)
    audited = replace(audited, answers=found, log=logged.status)
    if checkpointed and audited.verdict == "holds":
        made = checkpoint_of(book, tree, shown, recomputed=recomputed)
        if since is not None and memory is not None and part:
            findings = tuple(sorted({*since.findings, *made.findings}))
            whole = {"records": memory.records(), "cells": memory.digests(), "findings": findings}
            made = made.model_copy(update={**whole, "states": states_of(counts)})
        audited = replace(audited, checkpoint=made)
    if since is not None and not broken:
        new = only_new(since, book, old, shown)
        audited = replace(audited, book=new, findings=new.findings)
    return audited


class Memory(Structure):
    """Stand for what an auditor keeps of the records of an earlier audit."""

    def grow(self, reader: Reader, before: str, head: str) -> Growth | None:
        """Return what the commits after a checkpoint's add; None where all must be judged."""

    def keep(self, reader: Reader, history: History, book: Book) -> None:
        """Keep what is known of a whole ledger."""

    def set_states(self, rows: Iterable[tuple[str, str, str, str]]) -> None:
        """Keep name, kind, state, and digest of what is shown, of cells and claims."""

    def states(self) -> Counter[tuple[str, str]]:
        """Return how many cells and claims there are of each kind and state."""

    def digests(self) -> tuple[str, ...]:
        """Return the digests of what is shown of all cells and claims that are shown."""

    def records(self) -> int:
        """Return how many records there are."""


def _part(since: Checkpoint, memory: Memory, reader: Reader, revision: str) -> tuple[Book, Tree] | None:
    """Return the book of what is new since a checkpoint, with the tree; None where all must be judged.

    The old part is the one that was audited: its commit is in the history, and the digest over path and git's name of
    each of its files is the checkpoint's. No later commit changes a file of it (growth).
    """
    try:
        head = commit_of(reader, revision)
        if not holds_tree(since, ledger_tree(reader, since.commit)):
            return None
    except LedgerError:
        return None
    found = memory.grow(reader, since.commit, head)
    if found is None:
        return None
    # What only bears on the new records was not gathered with all that bears on it.
    apart = {sealed.path for sealed in found.book.seals if sealed.id not in found.judged}
    book = replace(
        found.book,
        cells=tuple(view for view in found.book.cells if view.sealed.id in found.judged),
        findings=tuple(one for one in found.book.findings if one.path not in apart),
    )
    return book, ledger_tree(reader, head)


def _states(book: Book, shown: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return name, kind and state of each cell and claim, and the digest of what is shown of it. kind: as _kind."""
    rows: list[tuple[str, str, str, str]]
    rows = [(view.name, _kind(view), view.state, digest_of(view.name, shown.get(view.name))) for view in book.cells]
    rows += [(view.name, "cell", view.state, "") for view in book.hidden]
    return rows + [(one.name, "claim", one.state, digest_of(one.name, shown.get(one.name))) for one in book.claims]


def _kind(view: CellView) -> str:
    """Return cell, or scored for one that has no run of its own and that another seal's run scores."""
    return "scored" if view.counted is None and view.scored is not None else "cell"


def _without(book: Book, paths: Set[str]) -> list[str]:
    every = [*(one.path for one in book.records), *(one.path for one in book.ratios)]
    return [path for path in every if path not in paths]


@contextmanager
def _keeping(findings: tuple[Finding, ...]) -> Iterator[None]:
    """Let what was found stand when the rest cannot be judged. Raises: BudgetExceeded with the findings."""
    try:
        yield
    except (BudgetExceeded, StateError, MemoryError) as error:
        raise BudgetExceeded(str(error) or _NO_MEMORY, findings) from error


def _not_judged(source: str, error: BudgetExceeded | MemoryError) -> Audit:
    """Return the audit of a ledger that costs too much: undetermined, unless something was refused before."""
    reason = str(error) or _NO_MEMORY
    findings = error.findings if isinstance(error, BudgetExceeded) else ()
    refused = sum(finding.severity == "refused" for finding in findings)
    text = f"{refused} findings refuse the evidence; the rest is not judged: {reason}" if refused else reason
    return Audit(source, "refused" if refused else "undetermined", text, None, (), findings)


def _old_customs(clone: Clone) -> Iterator[str]:
    """Yield the objects that break git's rules as old programs did."""
    for name, message in clone.warnings[:MAX_NOTES]:
        yield f"object {name[:12]} breaks git's rules as old programs did ({message})"


def _challenge_notes(found: tuple[Answer, ...] | None) -> Iterator[str]:
    """Yield what became of the auditor's challenge."""
    if found is not None and not found:
        yield "no measurement carries the challenge"
    for answer in found or ():
        how = (
            "its samples were computed after the challenge was given" if answer.proven else "its samples prove nothing"
        )
        percent = "" if answer.percent is None else f" at {answer.percent:.1f}% of its roof"
        yield f"{answer.cell} run {answer.run}{percent} carries the challenge: {how}"


def _conclude(
    source: str, book: Book, notes: tuple[str, ...], doubts: Sequence[str], counts: Counter[tuple[str, str]]
) -> Audit:
    """Return the verdict of a judged book. doubts: what keeps one that is not refused from being good.

    counts: how many cells and claims of the whole ledger have each state.
    """
    if book.refused:
        verdict: Verdict = "refused"
        reason = f"{len(book.refused)} findings refuse the evidence"
    elif not book.seals and not counts:
        verdict, reason = "undetermined", "no ledger here: no seal in predictions/ at this commit"
    elif doubts:
        more = f" and {len(doubts) - 1} more" if len(doubts) > 1 else ""
        verdict, reason = "undetermined", f"{doubts[0]}{more}"
    else:
        verdict, reason = "holds", _holds(counts)
    return Audit(source, verdict, reason, book, notes, book.findings)


def _holds(counts: Counter[tuple[str, str]]) -> str:
    """Return what became of all forecasts and claims."""
    cells, scored, claims = (
        {state: n for (kind, state), n in counts.items() if kind == one} for one in ("cell", "scored", "claim")
    )
    total, scored_total = sum(cells.values()) + sum(scored.values()), sum(scored.values())
    parts = [f"{cells.pop('measured', 0)} measured"]
    parts += [f"{scored_total} scored by their runs"] if scored_total else []
    parts += [f"{n} {state}" for state, n in sorted(cells.items(), key=lambda item: (-item[1], item[0]))]
    text = f"{count_text(total, 'forecast')}: {', '.join(parts)}" if total else ""
    settled = f"{claims.get('measured', 0)} of {sum(claims.values())} claims are settled" if claims else ""
    return "; ".join(filter(None, (text, settled)))

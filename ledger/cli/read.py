"""The commands that only read: report, status, log, score, roofline, hardware, kernels, audit and doctor."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.open_ledger import emit, find_root, open_place, out, refuse_if_refused, say, settle
from ledger.errors import EvidenceRefused, InputError, StateError, ThresholdMissed

if TYPE_CHECKING:
    from ledger.analysis.book import Book
    from ledger.evidence.audit import Audit
    from ledger.records import Hardware

_BY_CELL = ("rows", "missing")
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]

hardware_app = typer.Typer(no_args_is_help=True, help="List hardware profiles, or show one as a card.")
kernels_app = typer.Typer(no_args_is_help=True, help="List kernels, or show one with its work and roof.")


def report(
    ids: Annotated[list[str] | None, typer.Argument(help="Seals or SEAL#CELL names to show (default: all).")] = None,
    html: Annotated[FilePath | None, typer.Option(help="Write a self-contained page instead.")] = None,
    markdown: Annotated[FilePath | None, typer.Option(help="Write Markdown instead.")] = None,
    site: Annotated[
        FilePath | None, typer.Option(help="Write all pages into a folder: report, seals, benchmarks.")
    ] = None,
    fail_on_miss: Annotated[
        float | None, typer.Option(min=0, help="Exit 1 when a gap is larger than this many points.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Reconcile predictions with measurements; refuses to open when a prediction post-dates its measurement."""
    from ledger.render import report as reports
    from ledger.workflow.select import named

    if ids and (html or markdown or site):
        raise InputError("report: cells are named together with --html, --markdown or --site, which hold all of them")
    place = open_place()
    book = place.book
    only = {cell.short_name for name in ids for cell in named(book, name)} if ids else None
    if as_json:
        emit(_only(reports.document(book), only))
    refuse_if_refused(book)
    if html is not None:
        html.write_text(reports.html(book), encoding="utf-8")
    if markdown is not None:
        markdown.write_text(reports.markdown(book), encoding="utf-8")
    if site is not None:
        from ledger.render.site import write_site

        say(f"wrote {len(write_site(book, place.root, site))} pages to {site}")
    if not (html or markdown or site or as_json):
        reports.render(book, out(), only=only)
    if fail_on_miss is not None:
        check_miss(book, fail_on_miss, only)


def _only(document: dict[str, Any], only: set[str] | None) -> dict[str, Any]:
    """Return a report with the rows of some cells alone."""
    if only is None:
        return document
    kept = {key: [row for row in document[key] if f"{row['seal'][:10]}#{row['cell']}" in only] for key in _BY_CELL}
    return {**document, **kept}


def check_miss(book: Book, points: float, only: set[str] | None) -> None:
    """Check that no gap is larger than `points`. Raises: ThresholdMissed, naming the cells."""
    missed = []
    for cell in book.cells:
        gap = cell.counted.verification.gap if cell.counted else None
        if gap is not None and abs(gap.percent) > points and (only is None or cell.short_name in only):
            missed.append(f"{cell.short_name} by {gap.percent:+.1f}")
    if missed:
        miss = "1 cell misses" if len(missed) == 1 else f"{len(missed)} cells miss"
        raise ThresholdMissed(f"{miss} by more than {points:g} points: {'; '.join(missed)}")


def status(as_json: JsonOption = False) -> None:
    """List what is open, stale, void and measured."""
    from ledger.render import lists as listing

    book = open_place(uncommitted_is_refused=False).book
    if as_json:
        cells = [{"seal": c.sealed.id, "cell": c.forecast.cell, "state": c.state, "blind": c.blind} for c in book.cells]
        emit({"head": book.head, "cells": cells, "refused": [f.model_dump(mode="json") for f in book.refused]})
    else:
        listing.render_status(book, out())


def log(as_json: JsonOption = False) -> None:
    """Print the timeline: seals, measurements and withdrawals in the order of the history."""
    from ledger.render import lists as listing

    book = open_place(uncommitted_is_refused=False).book
    if as_json:
        emit(listing.timeline(book))
    else:
        listing.render_timeline(book, out())


def score(as_json: JsonOption = False) -> None:
    """Score the forecasters: bias, error, coverage, and proper scores of intervals and probabilities."""
    from ledger.analysis import score as scores

    book = open_place().book
    refuse_if_refused(book)
    table = scores.score_book(book)
    if as_json:
        emit(scores.document(table))
    else:
        scores.render(table, out())


def roofline(
    hw: Annotated[
        list[str] | None, typer.Option("--hw", help="Profiles to draw, by name or file (default: those of the cells).")
    ] = None,
    bench: Annotated[
        list[FilePath] | None, typer.Option("--bench", help="JSON of ledger bench whose rows are drawn too.")
    ] = None,
    kernel: Annotated[list[str] | None, typer.Option("--kernel", help="Draw the dots of this kernel only.")] = None,
    campaign: Annotated[
        list[str] | None, typer.Option("--campaign", help="Draw the forecasts of this campaign only.")
    ] = None,
    output: Annotated[
        FilePath | None, typer.Option("-o", "--output", help="Folder for PNG, SVG, JSON and Markdown.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the roofline with every verified cell, on the terminal or as PNG and SVG."""
    from ledger.render import roofline_plot as plot

    document = _roofline(hw or [], bench or [], kernel, campaign)
    if as_json:
        emit(document)
    elif output is not None:
        for path in plot.write(document, output):
            out().print(f"wrote {path}", markup=False)
    else:
        plot.terminal(document, out())


def _roofline(
    hw: list[str], benches: list[FilePath], kernels: list[str] | None, campaigns: list[str] | None
) -> dict[str, Any]:
    """Return the document that a roofline is drawn from."""
    from ledger.canonical import parse_json
    from ledger.kernel import load_kernel
    from ledger.record_files import read_bytes
    from ledger.render.bench_points import add_bench
    from ledger.render.roofline_plot import only_campaigns, only_kernels, roofline_document

    root, book = find_root(), None
    try:
        book = open_place().book
        refuse_if_refused(book)
    except StateError:
        if not hw:
            raise
    cells = () if book is None else book.cells
    names = hw or sorted({cell.forecast.case.hardware for cell in cells if cell.counted})
    if not names:
        raise InputError("no cell is verified yet; expected one, or a profile to draw: ledger roofline --hw h200")
    hardwares = [_profile(name, root) for name in names]
    document = roofline_document(hardwares, book)
    for path in benches:
        value = parse_json(read_bytes(path), what=str(path))
        add_bench(
            document, value, what=str(path), hardwares=hardwares, kernel_of=lambda name: load_kernel(name, root).kernel
        )
    if campaigns is not None:
        document = only_campaigns(document, campaigns)
    return document if kernels is None else only_kernels(document, kernels)


def _profile(name: str, root: FilePath | None) -> Hardware:
    """Return a profile by its name, or from a file, as a calibration on another machine leaves one."""
    from ledger.record_files import load_hardware, read_hardware

    return read_hardware(FilePath(name)) if name.endswith(".yaml") else load_hardware(name, root)


@hardware_app.command("list")
def hardware_list(as_json: JsonOption = False) -> None:
    """List the profiles: the repository's and those shipped with the package."""
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
    """Show one profile as a card: peaks, ridge points, the bandwidth pyramid, the traps."""
    from ledger.record_files import load_hardware
    from ledger.render import hardware_card as card

    profile = load_hardware(name, find_root())
    if as_json:
        emit(card.document(profile))
    else:
        card.render(profile, out())


@kernels_app.command("list")
def kernels_list(as_json: JsonOption = False) -> None:
    """List the kernels: the repository's and those shipped with the package."""
    from ledger.kernel import kernel_names, load_kernel

    kernels = [load_kernel(name, find_root()).kernel for name in kernel_names(find_root())]
    if as_json:
        emit([{"name": k.name, "operation": k.operation.name, "dtypes": list(k.dtypes)} for k in kernels])
        return
    from ledger.render.hardware_card import render_kernels

    render_kernels(kernels, out())


@kernels_app.command("show")
def kernels_show(name: str, as_json: JsonOption = False) -> None:
    """Show one kernel: formula, shapes, work, tolerances, what its work model leaves out."""
    from ledger.kernel import load_kernel
    from ledger.render import hardware_card as card

    file = load_kernel(name, find_root())
    if as_json:
        emit(card.kernel_document(file))
    else:
        card.render_kernel(file, out())


def audit(
    source: Annotated[str, typer.Argument(metavar="[PATH or URL]", help="Repository to audit.")] = ".",
    revision: Annotated[str, typer.Option("--at", help="Commit, branch or tag to audit.")] = "HEAD",
    recompute: Annotated[bool, typer.Option("--recompute", help="Make the output samples anew, on the CPU.")] = False,
    allowed_signers: Annotated[
        FilePath | None, typer.Option("--allowed-signers", help="Keys that you trust, as ssh-keygen(1) has them.")
    ] = None,
    tsa_roots: Annotated[
        FilePath | None, typer.Option("--tsa-roots", help="Time-stamping roots that you trust, PEM.")
    ] = None,
    challenge: Annotated[
        str | None, typer.Option("--challenge", help="What you handed over: exit 1 unless a measurement answers it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a whole ledger as a stranger would, from a sanitised clone, trusting nothing of its author's."""
    from ledger.evidence import audit as audits
    from ledger.evidence.trust_levels import Trust

    trust = Trust(allowed_signers=allowed_signers, tsa_roots=tsa_roots)
    result = audits.audit(source, revision=revision, recomputed=recompute, trust=trust, challenge=challenge)
    settle()
    if as_json:
        emit(audits.document(result))
    else:
        from ledger.render.lists import render_audit

        render_audit(result, out())
    _exit_by_verdict(result)


def _exit_by_verdict(result: Audit) -> None:
    if result.verdict == "refused":
        raise EvidenceRefused(f"{result.source}: {result.reason}")
    if result.verdict == "undetermined":
        raise InputError(f"{result.source}: undetermined: {result.reason}")
    if result.answers is not None and not any(answer.proven for answer in result.answers):
        raise ThresholdMissed(f"{result.source}: no measurement answers the challenge")


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Repair what is the ledger's own.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Explain what is wrong with this machine or this ledger, and repair what is the ledger's own."""
    from ledger.workflow.doctor import examine

    findings = examine(FilePath.cwd(), repair=repair)
    if as_json:
        emit([{"what": f.what, "state": f.state, "remedy": f.remedy} for f in findings])
        return
    for finding in findings:
        out().print(f"{finding.state:8} {finding.what}", markup=False, soft_wrap=True)
        if finding.remedy:
            out().print(f"         {finding.remedy}", markup=False, soft_wrap=True)
    if any(finding.state == "broken" for finding in findings):
        say("broken things are left; see the remedies above, or run: ledger doctor --repair")

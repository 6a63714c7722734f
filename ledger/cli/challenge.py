"""The command challenge: draws a text for an auditor; seals a domain, and what its forecaster says of shapes drawn."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.options import JsonOption, check_sight, parse_sight
from ledger.cli.output import emit, out, say, working
from ledger.errors import InputError

if TYPE_CHECKING:
    from ledger.analysis.campaign import Seen

ChallengeOption = Annotated[
    str | None, typer.Option("--challenge", help="Challenge of an auditor; it enters the generated inputs.")
]


def anchor(challenge: str | None) -> str | None:
    """Return the digest of a challenge, which enters the generated inputs; None without one. Raises: InputError."""
    from ledger.evidence.challenge import anchor_of

    return None if challenge is None else anchor_of(challenge)


def challenge(
    domain: Annotated[
        FilePath | None, typer.Option("--domain", help="Seal the domains of a YAML file, with the forecaster of --by.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Forecaster who will answer; see: ledger forecast.")] = None,
    draw: Annotated[
        str | None,
        typer.Option(
            "--draw",
            metavar="SEAL,…",
            help="Draw from those domains, and seal the answers; all: every one not drawn yet.",
        ),
    ] = None,
    pulse: Annotated[
        str | None, typer.Option("--pulse", help="File or URL of the drand round (default: drand's own).")
    ] = None,
    secret: Annotated[str | None, typer.Option("--secret", help="The auditor's text that draws, given later.")] = None,
    sight: Annotated[
        str | None, typer.Option(help="Of drawn cells, what had been timed before: blind, near or informed.")
    ] = None,
    known: Annotated[str, typer.Option(help="What had been timed, in a sentence; sealed with the sight.")] = "",
    output: Annotated[
        FilePath | None, typer.Option("-o", "--output", help="Campaign file of the drawn cells, for other forecasters.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a challenge for a measurement, or shapes for forecasts. Shapes are drawn from a sealed domain."""
    from ledger.analysis.campaign import Seen

    if domain is not None and draw is not None:
        raise InputError("--domain: given together with --draw; expected one of them")
    if draw is None and (sight is not None or known or output is not None):
        raise InputError("--sight, --known, --output: expected with --draw")
    if domain is not None:
        if by is None or pulse is not None or secret is not None:
            raise InputError("--domain: expected with --by NAME, and without --pulse and --secret, which draw later")
        _seal_domains(domain, by, as_json=as_json)
    elif draw is not None:
        if by is not None:
            raise InputError("--by: given together with --draw; the domain's seal names the forecaster")
        declared = parse_sight(sight)
        check_sight(declared, known)
        seen = Seen(sight=declared, known=known)
        _seal_answers(draw, pulse, secret, seen, output, as_json=as_json)
    elif by is not None or pulse is not None or secret is not None:
        raise InputError("--by, --pulse, --secret: expected with --domain or --draw")
    else:
        _draw_text(as_json=as_json)


def _draw_text(*, as_json: bool) -> None:
    from ledger.analysis.draws import commitment_to
    from ledger.evidence.challenge import anchor_of, draw

    text = draw()
    if as_json:
        emit({"challenge": text, "anchor": anchor_of(text), "commitment": commitment_to(text)})
        return
    out().print(text, markup=False)
    say(f"to measure: ledger verify --challenge {text} SEAL#CELL (or ledger order --challenge …, then ledger measure)")
    say(f"to audit:   ledger audit --challenge {text} PATH-or-URL")
    say(f"to draw shapes: give {commitment_to(text)} first (auditor: in the domain), the text once it is sealed")


def _seal_domains(path: FilePath, by: str, *, as_json: bool) -> None:
    from ledger.cli.open_ledger import open_ledger, refuse_if_refused
    from ledger.forecasters.registry import participants_named
    from ledger.git.commit import Repository
    from ledger.records import PredictionV2
    from ledger.workflow import draws

    (one, *more) = participants_named(by)
    if more:
        raise InputError(f"--by: {by!r} names {1 + len(more)} forecasters; expected one, who answers alone")
    declared, repository, book = draws.read_domains(path), Repository(FilePath.cwd()), None
    if repository.head() is not None:
        book = open_ledger().book
        refuse_if_refused(book)
    with working("sealing"):
        found = draws.seal_domains(repository, book, declared, one)
    if as_json:
        emit([{"id": sealed.id, "path": sealed.path, "commit": sealed.commit} for sealed in found])
        return
    for sealed in found:
        out().print(f"sealed {sealed.id}\n  file   {sealed.path}\n  commit {sealed.commit}", soft_wrap=True)
        prediction = sealed.prediction
        assert isinstance(prediction, PredictionV2) and prediction.domain is not None
        when = draws.due(prediction.domain)
        if when["round"] is not None:
            say(f"drawn by round {when['round']} of drand at {when['drawn_at']}; stamp the seal before: ledger witness")
        say(f"then: ledger challenge --draw {sealed.id[:10]}; measure by {when['deadline']}")


def _seal_answers(
    names: str, source: str | None, secret: str | None, seen: Seen, output: FilePath | None, *, as_json: bool
) -> None:
    from ledger.cli.open_ledger import open_ledger, refuse_if_refused
    from ledger.cli.sealing import Sealing
    from ledger.evidence.draw_checks import domain_of
    from ledger.record_files import write_atomically
    from ledger.workflow import draws
    from ledger.workflow.pulses import pulses_of

    opened = open_ledger()
    refuse_if_refused(opened.book)
    origins = draws.origins_named(opened.book, names, secret)
    domains = [domain for origin in origins if (domain := domain_of(origin)) is not None]
    with working("verifying the pulse"):
        pulses = tuple(pulses_of(domains, source, secret))
    with working("asking the forecasters"):
        answered = draws.draw_drafts(opened.repository, opened.book, origins, pulses, root=opened.root, seen=seen)
    if output is not None:
        write_atomically(output, draws.drawn_campaign(output, [one for drafts, _ in answered for one in drafts], seen))
    sealing = Sealing(
        opened.repository, pins=(), tsa=None, log=False, sign=False, check=False, dry_run=False, as_json=as_json
    )
    sealing.show([sealing.seal(drafts, campaign=None, why="", author=author) for drafts, author in answered])
    deadline = min(domain.deadline for domain in domains)
    say(f"measure them by {deadline}: ledger verify, or ledger order; the pulse is their anchor")
    if output is not None:
        say(f"for other forecasters: ledger predict --from {output} --by NAME,…, then measure with --once")

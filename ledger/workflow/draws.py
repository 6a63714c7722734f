"""Seals domains with the code of their forecaster, and later the forecaster's answers to what was drawn from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path as FilePath
from typing import Annotated, Any

import yaml
from pydantic import Field

from ledger.analysis.book import Book, Sealed
from ledger.analysis.campaign import CellRequest, Seen, parse_open_campaign
from ledger.analysis.draws import (
    commitment_to,
    contradictions,
    drawn_cells,
    randomness_of,
    round_at,
    round_time,
    seconds_of,
)
from ledger.callables.subject import is_callable
from ledger.canonical import encode, object_id, record_errors
from ledger.errors import InputError, StateError, UnknownName
from ledger.evidence.draw_checks import domain_of
from ledger.forecasters.code import code_objects, package_sources
from ledger.forecasters.registry import Participating, participants_named
from ledger.forecasters.track import measured_runs
from ledger.git.commit import Repository
from ledger.kernel import Kernel
from ledger.record_files import parse_yaml, read_bytes
from ledger.records import (
    Beacon,
    Count,
    Digest,
    Domain,
    Draw,
    Dtype,
    Line,
    Name,
    Participant,
    Positive,
    PredictionV2,
    Pulse,
    Record,
    ShapeKey,
    SizeRange,
)
from ledger.workflow.named_forecasts import Known, named_drafts
from ledger.workflow.seal import Author, Draft, Prepared, SealedCommit, prepare, seal

_TRIED = 64
DEFAULT_DELAY_S = 600
MAX_DOMAINS = 1000


class DomainFile(Record):
    """Hold a domain as its author writes it. delay_s: of the beacon. auditor: digest of an auditor's secret instead."""

    kernel: Line
    hardware: Name
    dtypes: Annotated[tuple[Dtype, ...], Field(min_length=1, max_length=16)]
    sizes: Annotated[dict[ShapeKey, SizeRange], Field(min_length=1, max_length=12)]
    cells: Positive
    deadline: Line
    delay_s: Count = DEFAULT_DELAY_S
    auditor: Digest | None = None


def read_domains(path: FilePath) -> tuple[DomainFile, ...]:
    """Return the domains that a YAML file declares: one, or a list `domains` whose entries override what is beside it.

    Raises: InputError.
    """
    value = parse_yaml(read_bytes(path), what=str(path))
    if not isinstance(value, dict) or "domains" not in value:
        with record_errors(str(path), DomainFile):
            return (DomainFile.model_validate(value, strict=False),)
    common, entries = {key: item for key, item in value.items() if key != "domains"}, value["domains"]
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_DOMAINS:
        raise InputError(f"{path}: domains: expected a list of 1 to {MAX_DOMAINS} domains")
    made = []
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise InputError(f"{path}: domain {number}: got {str(entry)[:80]!r}; expected the keys of a domain")
        with record_errors(f"{path}: domain {number}", DomainFile):
            made.append(DomainFile.model_validate({**common, **entry}, strict=False))
    return tuple(made)


def seal_domains(
    repository: Repository,
    book: Book | None,
    declared: Sequence[DomainFile],
    one: Participating,
    *,
    sign: bool = False,
) -> tuple[SealedCommit, ...]:
    """Seal domains with the code of the forecaster who will answer, each by itself, once all of them are checked.

    Raises: InputError, StateError, RecordError.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    checked = [_checked(repository, each, now) for each in declared]
    participant, objects = _participant(one, _known(book, None))
    return tuple(
        seal(repository, (), author=Author(one.name, participant, {}, {**objects, **kept}), sign=sign, domain=domain)
        for domain, kept in checked
    )


def _checked(repository: Repository, declared: DomainFile, now: datetime) -> tuple[Domain, dict[str, bytes]]:
    """Return a domain with the objects of its kernel and profile. Raises: InputError, RecordError."""
    if is_callable(declared.kernel):
        raise InputError(
            f"domain: kernel {declared.kernel!r} is a callable; expected a kernel, see ledger kernels list"
        )
    first = CellRequest(
        kernel=declared.kernel,
        hardware=declared.hardware,
        dtype=declared.dtypes[0],
        shape={key: size.low - size.low % -size.multiple_of for key, size in declared.sizes.items()},
    )
    found = prepare(first, root=repository.root)
    beacon = None
    if declared.auditor is None:
        sealed_at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        number = round_at(int((now + timedelta(seconds=declared.delay_s)).timestamp()))
        beacon = Beacon(sealed_at=sealed_at, delay_s=max(1, declared.delay_s), round=number)
    with record_errors("domain"):
        domain = Domain(
            kernel=declared.kernel,
            kernel_sha256=found.resolved.file.sha256,
            dtypes=declared.dtypes,
            hardware=declared.hardware,
            hardware_sha256=object_id(found.profile),
            sizes=dict(sorted(declared.sizes.items())),
            cells=declared.cells,
            deadline=declared.deadline,
            beacon=beacon,
            auditor_sha256=declared.auditor,
        )
    for message in contradictions(domain):
        raise InputError(f"domain {message}")
    if seconds_of(domain.deadline) <= now.timestamp():
        raise InputError(f"domain: deadline {domain.deadline} is past; expected a time to come")
    _try(domain, found.resolved.file.kernel)
    return domain, {**found.resolved.file.closure.objects, domain.hardware_sha256: found.profile}


def _try(domain: Domain, kernel: Kernel) -> None:
    """Check that what may be drawn can be asked for. Raises: InputError naming a shape that cannot."""
    for number in range(_TRIED):
        ((dtype, sizes),) = drawn_cells(domain.model_copy(update={"cells": 1}), f"{number:064x}", b"")
        kernel.check_shape(dict(sizes))
        kernel.work(dict(sizes), dtype)


def _request(domain: Domain, dtype: Dtype, sizes: Sequence[tuple[str, int]], seen: Seen) -> CellRequest:
    with record_errors("--sight, --known"):
        return CellRequest(
            kernel=domain.kernel,
            hardware=domain.hardware,
            dtype=dtype,
            shape=dict(sizes),
            sight=seen.sight,
            known=seen.known,
        )


def _participant(one: Participating, known: Known) -> tuple[Participant, dict[str, bytes]]:
    """Return what a seal says of a forecaster's code, and the objects that make it up."""
    sources = one.sources() if one.sources is not None else package_sources(one.module)
    model = None if one.model is None else one.model(known.runs)
    code, objects = code_objects(
        one.name, one.version, sources, command=one.command, distributions=one.distributions(), model=model
    )
    return Participant(kind="program", version=one.version, sha256=code), objects


def _known(book: Book | None, ancestors: Collection[str] | None) -> Known:
    """Return what a ledger had measured in some commits; None: all of it."""
    if book is None:
        return Known(None, ())
    commits = {recorded.id: recorded.commit.sha for recorded in book.records}
    runs = measured_runs(book)
    return Known(book.head, tuple(run for run in runs if ancestors is None or commits[run.record] in ancestors))


# The draw


def origins_named(book: Book, names: str, secret: str | None) -> tuple[Sealed, ...]:
    """Return the seals of domains, each by four or more digits of its id, in the order given.

    names: comma-separated; `all`: every domain from which nothing was drawn and that this secret, or drand, draws.
    Raises: UnknownName.
    """
    if names == "all":
        wanted = None if secret is None else commitment_to(secret.strip())
        drawn = {one.origin.id for one in book.drawn}
        origins = [sealed for sealed in book.seals if sealed.id not in drawn and _drawn_by(sealed, wanted)]
        if not origins:
            raise UnknownName("--draw all: no sealed domain is left to draw; seal one: ledger challenge --domain FILE")
        return tuple(origins)
    named = [_origin_named(book, name.strip()) for name in names.split(",")]
    return tuple({sealed.id: sealed for sealed in named}.values())


def _drawn_by(sealed: Sealed, auditor: Digest | None) -> bool:
    domain = domain_of(sealed)
    return domain is not None and domain.auditor_sha256 == auditor


def _origin_named(book: Book, name: str) -> Sealed:
    found = [sealed for sealed in book.seals if sealed.id.startswith(name) and domain_of(sealed) is not None]
    if len(name) < 4 or len(found) != 1:
        raise UnknownName(f"{name!r} names {len(found)} seals of a domain; expected four or more digits that name one")
    return found[0]


def draw_drafts(
    repository: Repository,
    book: Book,
    origins: Sequence[Sealed],
    pulses: Sequence[Pulse],
    *,
    root: FilePath | None,
    seen: Seen,
) -> tuple[tuple[tuple[Draft, ...], Author], ...]:
    """Return what the sealed forecasters answer to the cells that pulses draw, ready to be sealed, a seal a domain.

    Each knows what was measured before its domain was sealed. Raises: StateError where a forecaster, a kernel or a
    profile is not what was sealed; InputError where it does not answer every cell.
    """
    knowns: dict[tuple[str, ...], Known] = {}
    found = []
    for origin, pulse in zip(origins, pulses, strict=True):
        known = _known(book, set(repository.git("rev-list", origin.commit.sha).split()))
        # Forecasters are asked once about what several domains know.
        known = knowns.setdefault(tuple(run.record for run in known.runs), known)
        found.append(_answered(origin, pulse, known, root=root, seen=seen))
    return tuple(found)


def _answered(
    origin: Sealed, pulse: Pulse, known: Known, *, root: FilePath | None, seen: Seen
) -> tuple[tuple[Draft, ...], Author]:
    """Return what the sealed forecaster answers to the cells that a pulse draws. Raises: as `draw_drafts`."""
    domain, prediction = domain_of(origin), origin.prediction
    assert domain is not None and isinstance(prediction, PredictionV2)
    (one,) = participants_named(prediction.forecaster)
    participant, _ = _participant(one, known)
    if participant != prediction.participant:
        raise StateError(f"{one.name}: its code is not what seal {origin.id[:10]} names; expected that version")
    cells: list[Prepared] = []
    for dtype, sizes in drawn_cells(domain, origin.id, randomness_of(pulse)):
        cells.append(prepare(_request(domain, dtype, sizes, seen), root=root))
    for cell in cells:
        if (cell.resolved.file.sha256, object_id(cell.profile)) != (domain.kernel_sha256, domain.hardware_sha256):
            raise StateError(f"kernel {domain.kernel} or profile {domain.hardware} has changed since the domain's seal")
    answered = named_drafts(cells, one, known)
    if answered.left_out:
        name, reason = next(iter(answered.left_out.items()))
        raise InputError(f"{one.name} does not answer {name}: {reason}; a draw is sealed whole")
    data = encode(pulse)
    drafts = tuple(
        replace(item, forecast=item.forecast.model_copy(update={"draw": _draw(origin.id, object_id(data), number)}))
        for number, item in enumerate(answered.drafts)
    )
    author = replace(answered.author, objects={**answered.author.objects, object_id(data): data})
    return drafts, author


def drawn_campaign(path: FilePath, drafts: Sequence[Draft], seen: Seen) -> bytes:
    """Return drawn cells as a campaign file without regime and percent, named after the file. Raises: InputError."""
    cells = [item.forecast.case for item in drafts]
    entries = [
        {"kernel": case.kernel, "hardware": case.hardware, "dtype": case.dtype, "shape": dict(case.shape)}
        for case in cells
    ]
    document = {"campaign": path.stem, **seen.model_dump(exclude_defaults=True), "cells": entries}
    parse_open_campaign(document, what=str(path))
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000, default_flow_style=None).encode()


def _draw(seal_id: Digest, challenge: Digest, number: int) -> Draw:
    return Draw(domain_seal=seal_id, challenge=challenge, index=number)


def due(domain: Domain) -> dict[str, Any]:
    """Return when a domain is drawn and measured at the latest, for people and programs."""
    at = None if domain.beacon is None else datetime.fromtimestamp(round_time(domain.beacon.round), UTC)
    drawn = None if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"round": domain.beacon.round if domain.beacon else None, "drawn_at": drawn, "deadline": domain.deadline}

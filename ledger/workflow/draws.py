"""Seals domains with the code of their forecaster, and later the forecaster's answers to what was drawn from it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path as FilePath
from typing import Annotated, Any

from pydantic import Field

from ledger.analysis.book import Book, Sealed
from ledger.analysis.campaign import CellRequest
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
from ledger.canonical import encode, object_id, parse_json, record_errors
from ledger.errors import InputError, MachineError, StateError, UnknownName
from ledger.evidence.beacon import CHAIN, check_signature
from ledger.evidence.draw_checks import domain_of
from ledger.forecasters.code import code_objects, package_sources
from ledger.forecasters.registry import Participating
from ledger.forecasters.track import measured_runs
from ledger.git.commit import Repository
from ledger.kernel import Kernel
from ledger.record_files import parse_yaml, read_bytes
from ledger.records import (
    PULSE_SCHEMA,
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
    Sight,
    SizeRange,
)
from ledger.workflow.named_forecasts import Known, named_drafts
from ledger.workflow.seal import Author, Draft, Prepared, SealedCommit, prepare, seal

MAX_PULSE_BYTES = 8192
_PATIENCE_S = 20
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
        with record_errors(str(path)):
            return (DomainFile.model_validate(value, strict=False),)
    common, entries = {key: item for key, item in value.items() if key != "domains"}, value["domains"]
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_DOMAINS:
        raise InputError(f"{path}: domains: expected a list of 1 to {MAX_DOMAINS} domains")
    made = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise InputError(f"{path}: domains.{number}: {entry!r}; expected the keys of a domain")
        with record_errors(f"{path}: domains.{number}"):
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


def _request(
    domain: Domain, dtype: Dtype, sizes: Sequence[tuple[str, int]], sight: Sight | None, words: str
) -> CellRequest:
    with record_errors("sight"):
        return CellRequest(
            kernel=domain.kernel,
            hardware=domain.hardware,
            dtype=dtype,
            shape=dict(sizes),
            sight=sight,
            known=words,
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


def origin_named(book: Book, name: str) -> Sealed:
    """Return the seal of a domain, by four or more digits of its id. Raises: UnknownName."""
    found = [sealed for sealed in book.seals if sealed.id.startswith(name) and domain_of(sealed) is not None]
    if len(name) < 4 or len(found) != 1:
        raise UnknownName(f"{name!r} names {len(found)} seals of a domain; expected four or more digits that name one")
    return found[0]


def pulse_of(domain: Domain, source: str | None, secret: str | None) -> Pulse:
    """Return the pulse that a domain names, its signature verified. source: file or URL of the round; None: drand's.

    Raises: InputError, EvidenceRefused for a signature that is not quicknet's, MachineError.
    """
    if domain.beacon is None:
        if secret is None or source is not None:
            raise InputError("this domain is drawn by an auditor's secret; expected --secret TEXT, without --pulse")
        pulse = Pulse(schema=PULSE_SCHEMA, round=None, signature=None, secret=secret.strip())
        if commitment_to(secret.strip()) != domain.auditor_sha256:
            raise InputError("--secret: its digest is not the one that the domain names; expected the auditor's text")
        return pulse
    if secret is not None:
        raise InputError("this domain is drawn by a round of drand; expected --pulse FILE or URL, without --secret")
    wanted = domain.beacon.round
    where = source or f"https://api.drand.sh/{CHAIN}/public/{wanted}"
    value = parse_json(_fetched(where) if "://" in where else read_bytes(FilePath(where)), what=where)
    fields = value if isinstance(value, dict) else {}
    if fields.get("round") != wanted:
        raise InputError(f"{where}: is round {fields.get('round')}; expected {wanted}, which the domain names")
    with record_errors(where):
        pulse = Pulse(schema=PULSE_SCHEMA, round=wanted, signature=fields.get("signature"), secret=None)
    assert pulse.signature is not None
    check_signature(wanted, pulse.signature)
    return pulse


def _fetched(url: str) -> bytes:
    """Return what lies at a web address. Raises: InputError, MachineError."""
    if not url.startswith(("https://", "http://")):
        raise InputError(f"{url}: no address of the web; expected https://… or a file")
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            data: bytes = answer.read(MAX_PULSE_BYTES + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise MachineError(f"{url}: {error}; expected a round of drand: give it as a file, --pulse FILE") from error
    if len(data) > MAX_PULSE_BYTES:
        raise InputError(f"{url}: more than {MAX_PULSE_BYTES} bytes; expected a round of drand")
    return data


def draw_drafts(
    repository: Repository,
    book: Book,
    origin: Sealed,
    pulse: Pulse,
    one: Participating,
    *,
    root: FilePath | None,
    sight: Sight | None = None,
    words: str = "",
) -> tuple[tuple[Draft, ...], Author]:
    """Return what the sealed forecaster answers to the cells that a pulse draws, ready to be sealed.

    sight, words: what had been timed of them before, as declared.
    It knows what was measured before the domain was sealed. Raises: StateError where the forecaster, the kernel or the
    profile is not what was sealed; InputError where it does not answer every cell.
    """
    domain, prediction = domain_of(origin), origin.prediction
    assert domain is not None and isinstance(prediction, PredictionV2)
    known = _known(book, set(repository.git("rev-list", origin.commit.sha).split()))
    participant, _ = _participant(one, known)
    if (one.name, participant) != (prediction.forecaster, prediction.participant):
        raise StateError(f"{one.name}: its code is not what seal {origin.id[:10]} names; expected that version")
    cells: list[Prepared] = []
    for dtype, sizes in drawn_cells(domain, origin.id, randomness_of(pulse)):
        cells.append(prepare(_request(domain, dtype, sizes, sight, words), root=root))
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


def _draw(seal_id: Digest, challenge: Digest, number: int) -> Draw:
    return Draw(domain_seal=seal_id, challenge=challenge, index=number)


def due(domain: Domain) -> dict[str, Any]:
    """Return when a domain is drawn and measured at the latest, for people and programs."""
    at = None if domain.beacon is None else datetime.fromtimestamp(round_time(domain.beacon.round), UTC)
    drawn = None if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"round": domain.beacon.round if domain.beacon else None, "drawn_at": drawn, "deadline": domain.deadline}

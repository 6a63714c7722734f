"""Turns forecasts into a sealed prediction: resolves kernel, profile and roof, builds the record, commits it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ledger import __version__
from ledger.analysis.campaign import CellRequest, Guess, Request, milli, millionths
from ledger.analysis.formatting import count_text
from ledger.analysis.protocols import protocol_for
from ledger.analysis.work_model import excess
from ledger.callables.subject import is_callable
from ledger.canonical import (
    cell_key,
    decode,
    decode_any,
    encode,
    next_link,
    object_id,
    object_path,
    record_errors,
    record_id,
    record_path,
)
from ledger.device.facts import cpu_cores
from ledger.errors import InputError
from ledger.git.commit import Repository
from ledger.git.reader import Reader, quiet_environment
from ledger.kernel import Kernel
from ledger.kernel_files import KernelFile, build_case, load_kernel
from ledger.operations import OPERATIONS
from ledger.record_files import load_hardware
from ledger.records import (
    SEAL_SCHEMA_V2,
    Argument,
    Case,
    CaseV2,
    CeilingKind,
    Commitment,
    Domain,
    ForecastV2,
    Hardware,
    Participant,
    Path,
    Prediction,
    PredictionV2,
    Ratio,
    RoofV2,
    Tool,
    Work,
    is_gpu,
)
from ledger.roofline import roof_of
from ledger.workflow.index_file import ask_index
from ledger.workflow.record_index import RecordIndex
from ledger.workflow.resolve_callable import Resolved, resolve_callable

TOOL = Tool(name="roofline-ledger", version=__version__)


@dataclass(frozen=True)
class Draft:
    """Hold a forecast that is ready to be sealed, with what it was resolved from.

    profile: the stored bytes of the hardware profile.
    """

    forecast: ForecastV2
    kernel: KernelFile
    hardware: Hardware
    profile: bytes

    @property
    def objects(self) -> dict[str, bytes]:
        """Return the objects that the forecast names, by digest."""
        return {**self.kernel.closure.objects, self.forecast.hardware_sha256: self.profile}


@dataclass(frozen=True)
class ClaimDraft:
    """Hold a claim that is ready to be sealed, with the objects that it names, by digest."""

    claim: Ratio
    objects: Mapping[str, bytes]


@dataclass(frozen=True)
class Author:
    """Hold who forecast, where it is not the committer: what a seal says of it, and the objects that it names."""

    name: str
    participant: Participant
    extensions: Mapping[str, Any]
    objects: Mapping[str, bytes]


@dataclass(frozen=True)
class SealedCommit:
    """Hold the result of sealing; `note` says what was left undone in the index, if anything."""

    id: str
    path: str
    commit: str
    prediction: Prediction
    note: str | None


@dataclass(frozen=True)
class Prepared:
    """Hold a cell resolved against its kernel and its profile, before anybody says what to expect of it.

    profile: the stored bytes of the hardware profile.
    """

    request: CellRequest
    resolved: Resolved
    roof: RoofV2
    hardware: Hardware
    profile: bytes


def prepare(
    request: CellRequest,
    *,
    root: FilePath | None,
    ceilings: CeilingKind | None = None,
    arguments: tuple[Argument, ...] | None = None,
) -> Prepared:
    """Return a cell resolved against the kernel, the profile and the roof of the path that the compiler takes.

    arguments: those of a callable, where the request has no text of them.
    Raises: UnknownName, InputError, RecordError.
    """
    hardware = load_hardware(request.hardware, root)
    if is_callable(request.kernel):
        resolved = resolve_callable(request, root, hardware, arguments)
    else:
        resolved = _resolve(request, root, hardware)
    return Prepared(request, resolved, _roof(resolved.path, hardware, ceilings), hardware, encode(hardware))


def draft(
    request: Request,
    *,
    root: FilePath | None,
    ceilings: CeilingKind | None = None,
    pins: Mapping[str, str] | None = None,
    arguments: tuple[Argument, ...] | None = None,
) -> Draft:
    """Return a person's forecast, ready to be sealed. pins: as for draft_of. Raises: as prepare."""
    return draft_of(prepare(request, root=root, ceilings=ceilings, arguments=arguments), request, pins=pins)


def draft_of(cell: Prepared, guess: Guess, *, pins: Mapping[str, str] | None = None) -> Draft:
    """Return a forecast of a cell, ready to be sealed.

    pins: platform packages whose versions the measurement must match, name -> version specifier. Raises: RecordError.
    """
    request, resolved = cell.request, cell.resolved
    with record_errors(resolved.cell):
        forecast = ForecastV2(
            cell=resolved.cell,
            operation=resolved.file.kernel.operation.name,
            case=resolved.case,
            work=resolved.work,
            roof=cell.roof,
            protocol=protocol_for(resolved.case.implementation),
            kernel_sha256=resolved.file.sha256,
            hardware_sha256=object_id(cell.profile),
            regime=guess.regime,
            percent_milli=milli(guess.pct),
            low_milli=None if guess.low is None else milli(guess.low),
            high_milli=None if guess.high is None else milli(guess.high),
            probabilities_ppm=None if guess.prob is None else millionths(guess.prob),
            why=request.why,
            sight=request.sight,
            known=request.known,
            pins=dict(pins or {}),
            draw=None,
        )
    return Draft(forecast, resolved.file, cell.hardware, cell.profile)


def _resolve(request: CellRequest, root: FilePath | None, hardware: Hardware) -> Resolved:
    """Return a forecast of a kernel file, resolved."""
    file = load_kernel(request.kernel, root)
    case = _case(request, file.kernel, hardware)
    with record_errors(cell_key(case)):
        work = file.kernel.work(case.shape, case.dtype)
        _check_work(file.kernel, case.shape, work)
    path = file.kernel.path(case.dtype, hardware.target, case.implementation)
    return Resolved(file, case, cell_key(case), work, path)


def _roof(path: Path, hardware: Hardware, ceilings: CeilingKind | None) -> RoofV2:
    """Return the roof of the instruction path that the compiler takes for a case."""
    roof = roof_of(hardware, path, ceilings)
    return RoofV2(
        ceilings=roof.ceilings,
        path=roof.path,
        peak_flop_per_s=roof.peak_flop_per_s,
        bandwidth_bytes_per_s=roof.bandwidth_bytes_per_s,
    )


def _case(request: CellRequest, kernel: Kernel, hardware: Hardware) -> CaseV2:
    """Return the case that a request names; on a CPU all cores where it names no thread count."""
    assert request.dtype is not None, "a request for a kernel has one"
    threads = request.threads
    if threads is None and not is_gpu(hardware.target):
        threads = cpu_cores()
    case = build_case(kernel, hardware, shape=request.shape, dtype=request.dtype, threads=threads)
    if request.config is None:
        return case
    kernel.check_config(request.config, request.shape, request.dtype, hardware.chip)
    return CaseV2(
        kernel=case.kernel,
        shape=case.shape,
        dtype=case.dtype,
        hardware=case.hardware,
        implementation=case.implementation,
        config=request.config,
        threads=case.threads,
        arguments=case.arguments,
    )


def _check_work(kernel: Kernel, shape: Mapping[str, int], work: Work) -> None:
    """Check that shape and work model are of a kernel's operation as ledger defines it, or the judge would refuse."""
    operation = OPERATIONS.get(kernel.operation.name)
    if operation is not None and set(shape) != set(operation.shape_keys):
        keys = f"kernel {kernel.name}: shape keys are {','.join(sorted(shape))}"
        raise InputError(f"{keys}; {operation.name} has {','.join(operation.shape_keys)}: give it a name of its own")
    words = excess(operation, shape, work) if operation is not None else None
    if words is not None:
        raise InputError(f"kernel {kernel.name}: its work model says {words}; expected compulsory traffic and products")


def seal(
    repository: Repository,
    drafts: Sequence[Draft],
    *,
    campaign: str | None = None,
    why: str = "",
    sign: bool = False,
    claims: Sequence[ClaimDraft] = (),
    author: Author | None = None,
    domain: Domain | None = None,
    hide: Callable[[Sequence[ForecastV2], str], tuple[Commitment, ...]] | None = None,
) -> SealedCommit:
    """Seal forecasts, or claims, as one prediction in one commit and return once it is on disk.

    author: who forecast; None: the committer. domain: what may be drawn later, instead of forecasts.
    hide: (forecasts, forecaster) -> what is sealed instead of them.
    Raises: StateError, RecordError; InputError for a campaign that this forecaster sealed before.
    """
    committer = repository.identity()
    forecaster = committer if author is None else author.name
    nonce = secrets.token_hex(16)
    forecasts = tuple(item.forecast for item in drafts)
    ratios = tuple(item.claim for item in claims)
    named = [*(item.objects for item in drafts), *(item.objects for item in claims)]
    objects = {object_path("predictions", digest): data for held in named for digest, data in held.items()}
    objects.update(
        (object_path("predictions", digest), data) for digest, data in (author.objects if author else {}).items()
    )
    hidden = () if hide is None else hide(forecasts, forecaster)
    sealed: list[tuple[str, PredictionV2]] = []

    def compose(parent: str | None) -> tuple[Mapping[str, bytes], str]:
        if campaign is not None:
            check_new(repository, campaign, parent, forecaster)
        sequence, previous = next_link(chain_tips(repository, parent))
        record = _prediction(
            () if hidden else forecasts,
            forecaster,
            author,
            sequence=sequence,
            previous=previous,
            campaign=campaign,
            why=why,
            nonce=nonce,
            hidden=hidden,
            domain=domain,
            ratios=ratios,
        )
        data = encode(record)
        identity = record_id(PredictionV2, data)
        # What is committed must be what any later reader accepts.
        decode(PredictionV2, data, what="new seal")
        sealed[:] = [(identity, record)]
        first = campaign or next(iter([*(one.cell for one in forecasts), *(one.cell for one in ratios)]), "a domain")
        count = count_text(len(ratios), "claim") if ratios else count_text(len(forecasts), "cell")
        title = f"Seal {first}: {count}{', hidden' if hidden else ''}"
        return {record_path("predictions", identity): data, **objects}, f"{title}\n\nSeal-Id: {identity}\n"

    written = repository.commit(compose, sign=sign)
    identity, record = sealed[0]
    return SealedCommit(identity, record_path("predictions", identity), written.commit, record, written.index_note)


def _prediction(
    forecasts: tuple[ForecastV2, ...],
    forecaster: str,
    author: Author | None,
    *,
    sequence: int,
    previous: tuple[str, ...],
    campaign: str | None,
    why: str,
    nonce: str,
    hidden: tuple[Commitment, ...],
    domain: Domain | None,
    ratios: tuple[Ratio, ...],
) -> PredictionV2:
    """Return the record of a seal."""
    return PredictionV2(
        schema=SEAL_SCHEMA_V2,
        rule="regime/2",
        tool=TOOL,
        forecaster=forecaster[:400],
        participant=None if author is None else author.participant,
        sequence=sequence,
        previous=previous,
        campaign=campaign,
        metric="percent-of-roof/1",
        repeats="first-run/1",
        cells=forecasts,
        commitments=hidden,
        ratios=ratios,
        domain=domain,
        why=why,
        nonce=nonce,
        extensions={} if author is None else dict(author.extensions),
    )


def check_new(repository: Repository, campaign: str, commit: str | None, forecaster: str) -> None:
    """Check that no seal of a forecaster at a commit carries a campaign's name. Raises: InputError."""
    if commit is None:
        return
    reader = Reader(repository.git_dir, quiet_environment())
    path = ask_index(
        repository.git_dir, lambda index: RecordIndex(index, reader, commit).campaign(campaign, forecaster[:400])
    )
    if path is not None:
        raise InputError(f"campaign {campaign!r} was sealed before ({path}); expected a new name")


def chain_tips(repository: Repository, parent: str | None) -> dict[str, int]:
    """Return the ids and sequences of the seals at the tips of the chain, as seen from a commit."""
    held: dict[str, Prediction] = {}
    for path in repository.newest_seals(parent):
        assert parent is not None
        data = repository.show(parent, path)
        record = decode_any(data, what=path)
        assert isinstance(record, Prediction), path
        held[record_id(type(record), data)] = record
    named = {previous for record in held.values() for previous in record.previous}
    return {identity: record.sequence for identity, record in held.items() if identity not in named}


def check_distinct(drafts: Sequence[Draft]) -> None:
    """Check that no cell is duplicated in one seal. Raises: InputError."""
    seen: dict[str, Case] = {}
    for item in drafts:
        name, case = item.forecast.cell, item.forecast.case
        first = seen.setdefault(name, case)
        if first is case:
            continue
        if first.hardware != case.hardware:
            raise InputError(
                f"cell {name} occurs twice, on {first.hardware} and {case.hardware}, and a cell's name holds no "
                "hardware; expected one campaign a device"
            )
        if first.cell != case.cell:
            raise InputError(
                f"cell {name} occurs twice, with other arguments, which its name does not hold; expected the sizes "
                "that vary in shape, or one campaign each"
            )
        raise InputError(f"cell {name} is duplicated in the campaign; expected each cell once")

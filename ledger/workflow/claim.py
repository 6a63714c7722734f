"""Drafts claims: what a change does to the time of one case, and that the others stay as they are. Times nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ledger.analysis.campaign import Request
from ledger.canonical import cell_key, encode, object_id, record_errors
from ledger.errors import InputError, StateError
from ledger.git.commit import Repository
from ledger.measure.comparison_effort import claim_protocol
from ledger.records import CaseV2, Dtype, Hardware, Ratio, Revision, Sight
from ledger.workflow.compare_plan import Pair, Plan, Skipped, Wanted, plan
from ledger.workflow.revisions import Side, two_sides
from ledger.workflow.seal import ClaimDraft

MOST = 1000.0
"""The largest ratio that is claimed; the smallest is one over it."""


@dataclass(frozen=True)
class Claimed:
    """Hold what is said of a ratio, time of base ÷ time of head. why, sight, known, pins: as in a forecast."""

    ratio: float
    low: float
    high: float
    why: str = ""
    sight: Sight | None = None
    known: str = ""
    pins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the numbers. Raises: InputError."""
        if not all(math.isfinite(one) and 1 / MOST <= one <= MOST for one in (self.low, self.ratio, self.high)):
            raise InputError(
                f"--ratio: got {self.low:g} to {self.high:g} around {self.ratio:g}; expected ratios from {1 / MOST:g} "
                f"to {MOST:g}"
            )
        if not self.low <= self.ratio <= self.high:
            raise InputError(
                f"the interval {self.low:g} to {self.high:g} does not hold {self.ratio:g}; expected low ≤ ratio ≤ high"
            )


def unchanged(share: float, like: Claimed) -> Claimed:
    """Return the claim that a time changes by at most a share. Raises: InputError."""
    if not 0 < share < 1:
        raise InputError(f"--unchanged: got {100 * share:g}%; expected a percentage between 0 and 100, as 2%")
    return replace(like, ratio=1.0, low=1 / (1 + share), high=1 + share, why="unchanged")


@dataclass(frozen=True)
class Subject:
    """Name the one case that a ratio is claimed of; a callable may do without dtype and shape."""

    name: str
    shape: Mapping[str, int] | None
    dtype: Dtype | None
    args: str | None = None


def draft_claims(
    repository: Repository,
    hardware: Hardware,
    *,
    base: str,
    head: str,
    named: tuple[Subject, Claimed] | None,
    others: Claimed | None,
    suite: Sequence[Request] = (),
    threads: int | None = None,
) -> tuple[list[ClaimDraft], list[str]]:
    """Return claims ready to be sealed, with what is to be told of cases that none is made of.

    named: the case of which a ratio is claimed. others: what is claimed of every other case of the repository's
    kernels whose sources differ, or of `suite`. Raises: InputError for a revision that is not below HEAD, a case that
    is not on both sides, or when nothing is left to claim.
    """
    with two_sides(repository.root, base, head) as (first, second):
        for side in (first, second):
            _require_below(repository, side)
        pairs: list[tuple[Pair, Claimed]] = []
        told = list(filter(None, (first.missing_text, second.missing_text)))
        if named is not None:
            subject, claimed = named
            pairs.append((_one(subject, first, second, hardware, threads), claimed))
        if others is not None:
            wanted = Wanted(requests=tuple(suite), threads=threads, model_only=True)
            found = plan(first, second, hardware, wanted, on_progress=lambda _text: None)
            taken = {pair.head.case.cell for pair, _ in pairs}
            pairs += [(pair, others) for pair in found.pairs if pair.head.case.cell not in taken]
            told += _left_out(found)
        if not pairs:
            raise InputError(f"nothing to claim: no case differs between {first.name} and {second.name}")
        return [_draft(pair, claimed, first, second, hardware, len(pairs)) for pair, claimed in pairs], told


def _require_below(repository: Repository, side: Side) -> None:
    """Check that a commit is in the history of HEAD, where a claim of it will stand. Raises: InputError."""
    shared = ""
    with suppress(StateError):
        shared = repository.git("merge-base", side.commit, "HEAD")
    if shared != side.commit:
        raise InputError(
            f"commit {side.name} ({side.commit[:10]}) is not in the history of HEAD, on which the claim will stand; "
            f"merge it first, or take what both share: git merge-base {side.name} HEAD"
        )


def _one(subject: Subject, base: Side, head: Side, hardware: Hardware, threads: int | None) -> Pair:
    """Return the one case that a ratio is claimed of. Raises: InputError."""
    wanted = Wanted(
        names=(subject.name,),
        shapes=() if subject.shape is None else (subject.shape,),
        dtypes=() if subject.dtype is None else (subject.dtype,),
        args=subject.args,
        everything=True,
        threads=threads,
        model_only=True,
    )
    found = plan(base, head, hardware, wanted, on_progress=lambda _text: None)
    if len(found.pairs) == 1:
        return found.pairs[0]
    reasons = "; ".join(f"{one.reason} {one.detail}".strip() for one in found.skipped)
    raise InputError(
        f"{subject.name}: names {len(found.pairs)} cases of both commits{f' ({reasons})' if reasons else ''}; expected "
        "one: --shape and --dtype"
    )


def _left_out(found: Plan) -> Iterator[str]:
    for one in found.skipped:
        yield f"no claim of {_skipped_text(one)}"


def _skipped_text(one: Skipped) -> str:
    return f"{' '.join(filter(None, (one.subject, one.cell)))}: {' '.join(filter(None, (one.reason, one.detail)))}"


def _draft(pair: Pair, claimed: Claimed, base: Side, head: Side, hardware: Hardware, count: int) -> ClaimDraft:
    case: CaseV2 = pair.head.case
    operation = pair.head.kernel.operation.name
    if pair.base.kernel.operation.name != operation:
        before = pair.base.kernel.operation.name
        raise InputError(f"{case.kernel}: computes {before} in {base.name} and {operation} in {head.name}")
    profile = encode(hardware)
    cell = cell_key(case)
    with record_errors(cell):
        claim = Ratio(
            cell=cell,
            operation=operation,
            case=case,
            base=Revision(commit=base.commit, kernel_sha256=pair.base.file.sha256),
            head=Revision(commit=head.commit, kernel_sha256=pair.head.file.sha256),
            hardware_sha256=object_id(profile),
            protocol=claim_protocol(case.implementation, count),
            ratio_ppm=round(1e6 * claimed.ratio),
            low_ppm=round(1e6 * claimed.low),
            high_ppm=round(1e6 * claimed.high),
            sight=claimed.sight,
            known=claimed.known,
            pins=dict(claimed.pins),
            why=claimed.why,
        )
    objects = {**pair.base.file.closure.objects, **pair.head.file.closure.objects, claim.hardware_sha256: profile}
    return ClaimDraft(claim, objects)

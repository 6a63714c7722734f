"""Settles open claims: times both commits in turn on this device and makes the records that say what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path as FilePath
from statistics import median_high

from ledger import __version__
from ledger.analysis.book import ClaimView
from ledger.analysis.claims import stored
from ledger.analysis.formatting import sizes_text
from ledger.analysis.revealing import masked_text
from ledger.device.facts import facts_for
from ledger.device.machine_names import machine_names
from ledger.errors import InputError, LedgerError
from ledger.measure.comparison import Compared, Origin, SideResult, compare_once
from ledger.measure.comparison_effort import effort_of, follows
from ledger.measure.run_cell import require_live
from ledger.records import (
    RATIO_SCHEMA,
    Config,
    DeviceFactsV2,
    PredictionV2,
    RatioMeasurement,
    Revision,
    TimedSide,
    Tool,
    is_gpu,
)
from ledger.workflow.compare_plan import Pair, Wanted, plan
from ledger.workflow.revisions import Side, two_sides

Progress = Callable[[str], None]


def settle(claims: Sequence[ClaimView], start: FilePath, *, on_progress: Progress) -> Iterator[RatioMeasurement]:
    """Time claims whose device is here, one after the other, and yield a record of each.

    start: a folder of the repository. A claim whose sources are not the sealed ones here is named to `on_progress`.
    Raises: InputError where a side cannot be had; MachineError after a fault that left the GPU unusable.
    """

    def commits(view: ClaimView) -> tuple[str, str]:
        return view.claim.base.commit, view.claim.head.commit

    done = 0
    for (base, head), group in groupby(sorted(claims, key=commits), key=commits):
        with two_sides(start, base, head) as (first, second):
            for view in group:
                done += 1
                case = view.claim.case
                words = f"{case.kernel} {sizes_text(case)} {case.dtype}"
                on_progress(f"{done} of {len(claims)}: {words}")
                try:
                    pair = _pair(view, first, second)
                except LedgerError as error:
                    on_progress(f"skipped {view.short_name}: {error}")
                    continue
                yield _settled(view, pair)
                if view.hardware is not None and is_gpu(view.hardware.target):
                    require_live(f"claim {view.short_name}", "settled claims are kept: run the same command again")


def _pair(view: ClaimView, base: Side, head: Side) -> Pair:
    """Return both sides of a claim, loaded. Raises: InputError where they are not what was sealed."""
    claim, hardware = view.claim, view.hardware
    assert hardware is not None and isinstance(view.sealed.prediction, PredictionV2)
    if not follows(claim.protocol, claim.case.implementation, len(view.sealed.prediction.ratios)):
        raise InputError("was sealed with another timing protocol than this version follows: use the one that sealed")
    wanted = Wanted(
        names=(claim.case.kernel,),
        shapes=(claim.case.shape,),
        dtypes=(claim.case.dtype,),
        everything=True,
        threads=claim.case.threads,
        arguments=claim.case.arguments,
    )
    found = plan(base, head, hardware, wanted, on_progress=lambda _text: None)
    if len(found.pairs) != 1:
        raise InputError("; ".join(f"{one.reason} {one.detail}".strip() for one in found.skipped) or "names no case")
    (pair,) = found.pairs
    for side, version, sealed in (("base", pair.base, claim.base), ("head", pair.head, claim.head)):
        if version.file.sha256 != sealed.kernel_sha256:
            raise InputError(
                f"sources of its {side} are {version.file.sha256[:10]} here; sealed is {sealed.kernel_sha256[:10]}: "
                "install the packages that they import in the versions of the seal"
            )
    if pair.head.case != claim.case:
        raise InputError("its case is another one here; expected the sealed one")
    return pair


def _settled(view: ClaimView, pair: Pair) -> RatioMeasurement:
    claim, hardware = view.claim, view.hardware
    assert hardware is not None
    facts = facts_for(hardware)
    started, when = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = compare_once(
        pair.base,
        pair.head,
        facts=facts,
        device="cuda" if is_gpu(hardware.target) else "cpu",
        error=claim.protocol.parameters["error_ppm"] / 1e6,
        effort=effort_of(claim.protocol),
        origin=Origin(view.sealed.id, claim.cell, len(view.runs), samples=claim.protocol.parameters["sample_elements"]),
    )
    return _record(view, pair, found, facts, when, round(1e3 * (time.monotonic() - started)))


def _record(
    view: ClaimView, pair: Pair, found: Compared, facts: DeviceFactsV2, when: str, device_ms: int
) -> RatioMeasurement:
    claim, taken = view.claim, found.taken
    rounds = ([], [], []) if taken is None else taken.samples
    failure = found.failure
    if failure is not None:
        failure = masked_text(failure, machine_names())[:8000]
    return RatioMeasurement(
        schema=RATIO_SCHEMA,
        tool=Tool(name="roofline-ledger", version=__version__),
        seal=view.sealed.id,
        cell=claim.cell,
        run=len(view.runs),
        anchor=None,
        case=claim.case,
        hardware_sha256=claim.hardware_sha256,
        protocol=claim.protocol,
        device=facts,
        status="measured" if failure is None else "failed",
        failure=failure,
        failed_side=found.side,
        base=_side(claim.base, pair.base.case.config, found.sides[0], rounds[0]),
        head=_side(claim.head, pair.head.case.config, found.sides[1], rounds[1]),
        again_ps=tuple(rounds[2]),
        input_sets=found.input_sets,
        bytes_per_set=found.bytes_per_set,
        **stored(found.judged),
        started_at=when,
        device_ms=device_ms,
        extensions={},
    )


def _side(sealed: Revision, config: Config, result: SideResult, rounds: Sequence[int]) -> TimedSide:
    return TimedSide(
        commit=sealed.commit,
        kernel_sha256=sealed.kernel_sha256,
        config=dict(config),
        correctness=result.correctness,
        samples=result.samples,
        rounds_ps=tuple(rounds),
        median_ps=median_high(rounds) if rounds else None,
    )

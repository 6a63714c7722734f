"""Checks claims of ratios and what settled them: check 17 of judge. Reads no clock and no device.

A claim names two commits and the manifests of one subject there. Both commits must be in the history, and the files
that a manifest lists must be those of its commit. What settled a claim must come after its seal, be of the same two
manifests in the same order, carry samples at the positions that the seal draws, and its ratio must follow from its
rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median_high

from ledger.analysis.book import Binding, ClaimView, RecordedRatio, Sealed, State
from ledger.analysis.claims import judged, known_protocol, protocol_problem, stored
from ledger.analysis.consistency import device
from ledger.budgets import MAX_REVISION_STEPS, MAX_REVISIONS_READ
from ledger.callables.subject import is_callable
from ledger.canonical import cell_key, object_id
from ledger.errors import BudgetExceeded, StateError
from ledger.evidence.findings import Findings
from ledger.evidence.object_checks import Objects
from ledger.evidence.record_checks import GatheredRecords, ReadBlob
from ledger.evidence.run_checks import check_order, is_earlier
from ledger.evidence.seal_checks import COMPARED_ROUNDS, binds, bound_to_their_seals, is_entry, numbers_and_failures
from ledger.git.ancestry import Ancestry
from ledger.operations import OPERATIONS
from ledger.records import (
    Case,
    CaseV2,
    Correctness,
    KernelSource,
    PredictionV2,
    Ratio,
    RatioMeasurement,
    Revision,
    Samples,
    TimedSide,
)
from ledger.sources.closure import MAX_SOURCE_BYTES, SHIPPED_PATH, normalised
from ledger.sources.platform import contradicted_pins, unreadable_pins

FilesAt = Callable[[str, Sequence[str]], Mapping[str, str]]
"""Return the blobs of regular files of a commit by path, of those that are there. Raises: StateError."""
VACUOUS_FACTOR = 4
"""An interval of a claim that holds 1 and whose ends are so far apart excludes next to nothing."""
_PACKAGE = "ledger/kernel_files.py"
"""A file that the repository of this package has: the kernels that ship with it lie in its folder kernels/."""


@dataclass(frozen=True)
class SideSamples:
    """Hold the samples of one side of a measured ratio, as those of a measurement are looked at."""

    seal: str
    cell: str
    run: int
    anchor: str | None
    case: Case
    samples: Samples | None
    correctness: Correctness | None


def samples_of(measured: RatioMeasurement, side: TimedSide) -> SideSamples:
    """Return the samples of one side of a measured ratio."""
    return SideSamples(
        measured.seal,
        measured.cell,
        measured.run,
        measured.anchor,
        measured.case,
        side.samples,
        side.correctness,
    )


@dataclass
class ClaimChecks:
    """Check the claims of all seals. files_at: None where the files of commits are not looked at."""

    gathered: GatheredRecords
    objects: Objects
    ancestry: Ancestry
    chained: set[str]
    withdrawn: set[tuple[str, str | None]]
    read: ReadBlob
    files_at: FilesAt | None

    def __post_init__(self) -> None:
        """Know no files of any commit yet."""
        self._same: dict[tuple[str, str], str | None] = {}
        self._before: dict[tuple[str, int], bool] = {}
        self._of_package: set[str] = set()
        self._steps = 0

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {commit.sha: commit.position for commit in self.gathered.history.commits}

    @property
    def _findings(self) -> Findings:
        return self.gathered.findings

    def recorded(self) -> tuple[RecordedRatio, ...]:
        """Return every measured ratio, in the order of the history."""
        made = (
            RecordedRatio(identity, path, self.gathered.first_commit(path), measured)
            for path, (identity, measured) in self.gathered.ratios.items()
        )
        return tuple(sorted(made, key=lambda one: (one.commit.position, one.path)))

    def views(self, seals: Sequence[Sealed], recorded: Sequence[RecordedRatio]) -> tuple[ClaimView, ...]:
        """Return every claim with what settled it."""
        by_id = {sealed.id: sealed for sealed in seals}
        claims = {sealed.id: {claim.cell: claim for claim in claims_of(sealed)} for sealed in seals}
        runs: dict[tuple[str, str], list[RecordedRatio]] = {}
        for one in recorded:
            sealed = by_id.get(one.measurement.seal)
            cells = () if sealed is None else claims[sealed.id]
            if check_order(self.gathered, self.ancestry, sealed=sealed, cells=cells, recorded=one):
                runs.setdefault((one.measurement.seal, one.measurement.cell), []).append(one)
        for finding in numbers_and_failures(list(runs.values())):
            self._findings.add(finding)
        self._copies(recorded)
        return tuple(
            self._view(sealed, claim, runs.get((sealed.id, claim.cell), []))
            for sealed in seals
            for claim in claims_of(sealed)
        )

    def _view(self, sealed: Sealed, claim: Ratio, runs: list[RecordedRatio]) -> ClaimView:
        hardware = self.objects.hardware(claim.hardware_sha256, sealed.path)
        with self._findings.about_one(sealed.path):
            self._check_claim(sealed, claim)
            if hardware is not None and hardware.name != claim.case.hardware:
                message = f"the sealed profile is {hardware.name}; the case says another"
                self._findings.refuse("profile-misnamed", sealed.path, message)
        for run in runs:
            with self._findings.about_one(run.path):
                self._check_run(sealed, claim, run)
                if hardware is not None:
                    for finding in device(hardware, run.measurement):
                        self._findings.add(finding.model_copy(update={"path": run.path}))
        state = self._state(sealed, claim, runs)
        settled = bool(runs) and state != "refused"
        return ClaimView(
            sealed=sealed,
            claim=claim,
            hardware=hardware,
            state=state,
            runs=tuple(runs),
            levels=(0,) if settled else (),
            binding=self._binding(sealed, claim, runs) if settled else "none",
        )

    def _state(self, sealed: Sealed, claim: Ratio, runs: Sequence[RecordedRatio]) -> State:
        refused = self._findings.refused
        if refused(sealed.path) or any(refused(run.path) for run in runs):
            return "refused"
        if any(run.measurement.status == "measured" for run in runs):
            return "measured"
        if not self.withdrawn.isdisjoint(((sealed.id, None), (sealed.id, claim.cell))):
            return "void"
        return "failed" if runs else "open"

    def _binding(self, sealed: Sealed, claim: Ratio, runs: Sequence[RecordedRatio]) -> Binding:
        counted = next((run.measurement for run in runs if run.measurement.status == "measured"), None)
        if counted is None or sealed.path not in self.chained:
            return "none"
        both = all(binds(claim, samples_of(counted, side)) for side in (counted.base, counted.head))
        return "positions only" if both else "none"

    # The claim

    def _check_claim(self, sealed: Sealed, claim: Ratio) -> None:
        refuse, flag, path, name = self._findings.refuse, self._findings.flag, sealed.path, claim.cell
        if (problem := protocol_problem(claim.protocol)) is not None:
            refuse("place-unknown", path, f"{name}: {problem}")
        if not name.startswith(cell_key(claim.case)):
            flag("cell-misnamed", path, f"cell {name} is {cell_key(claim.case)} by its case")
        for problem in unreadable_pins(claim.pins):
            refuse("pin-unreadable", path, f"{name}: {problem}")
        operation = OPERATIONS.get(claim.operation)
        if is_callable(claim.case.kernel):
            flag("callable", path, f"{name}: its samples are not recomputed")
        elif operation is None:
            flag("operation-unknown", path, f"{claim.operation} is not known here: its samples are not checked")
        elif set(claim.case.shape) != set(operation.shape_keys):
            keys = f"{name}: shape keys are {','.join(sorted(claim.case.shape))}"
            refuse("shape-unlike-operation", path, f"{keys}; {operation.name} has {','.join(operation.shape_keys)}")
        if claim.low_ppm <= 1_000_000 <= claim.high_ppm and claim.high_ppm >= VACUOUS_FACTOR * claim.low_ppm:
            low, high = claim.low_ppm / 1e6, claim.high_ppm / 1e6
            flag("vacuous-interval", path, f"{name}: {low:g} to {high:g} excludes next to nothing")
        if claim.base.kernel_sha256 == claim.head.kernel_sha256:
            flag("claim-idle", path, f"{name}: base and head have the same sources: no change is measured")
        for side, revision in (("base", claim.base), ("head", claim.head)):
            self._check_revision(sealed, claim, side, revision)
        self._check_shipped(sealed, claim)

    def _check_revision(self, sealed: Sealed, claim: Ratio, side: str, revision: Revision) -> None:
        source = self.objects.kernel_source(revision.kernel_sha256, sealed.path)
        where = f"{claim.cell}: its {side} {revision.commit[:12]}"
        if not self._precedes(revision.commit, sealed.commit.position):
            message = f"{where} is not in the history before the claim, as after a squash or a rebase: undo that, and "
            message += "merge the branch that has the commit with a merge commit"
            self._findings.refuse("revision-unknown", sealed.path, message)
            return
        if source is None:
            return
        if not is_entry(claim.case.kernel, source.entry):
            message = f"the sealed sources of its {side} are of {source.entry}; the case says {claim.case.kernel}"
            self._findings.refuse("source-misnamed", sealed.path, message)
        unlike = self._unlike(revision, source)
        if unlike is not None:
            message = f"{where} has {unlike}; its manifest {revision.kernel_sha256[:12]} is of other sources"
            self._findings.refuse("revision-differs", sealed.path, message)

    def _check_shipped(self, sealed: Sealed, claim: Ratio) -> None:
        """Check what ships with the package, which one installation gives to both sides, unless it is the repository's.

        No commit holds these files, so nothing else tells that they are what ran.
        """
        if self.files_at is None or not self._of_package.isdisjoint((claim.base.commit, claim.head.commit)):
            return
        sources = [self.objects.kernel_source(one.kernel_sha256, sealed.path) for one in (claim.base, claim.head)]
        base, head = ({} if one is None else {file.path: file.sha256 for file in one.files} for one in sources)
        for path in sorted(base.keys() & head.keys()):
            if path.startswith(f"{SHIPPED_PATH}/") and base[path] != head[path]:
                message = f"{claim.cell}: {path} ships with the package, and its base and head have two versions of it"
                self._findings.refuse("revision-differs", sealed.path, message)
                return

    def _precedes(self, commit: str, position: int) -> bool:
        """Tell whether a commit is a proper ancestor of the commit at a position. Raises: BudgetExceeded."""
        key = (commit, position)
        if key not in self._before:
            self._before[key] = self._is_before(commit, position)
        return self._before[key]

    def _is_before(self, commit: str, position: int) -> bool:
        sought = self._positions.get(commit, position)
        parents = self.gathered.history.parents
        seen: set[int] = set()
        left = [position] if sought < position else []
        while left:
            above = [parent for parent in parents[left.pop()] if parent >= sought and parent not in seen]
            if sought in above:
                return True
            seen.update(above)
            left += above
            self._steps += len(above)
            if self._steps > MAX_REVISION_STEPS:
                raise BudgetExceeded(f"claims are more than {MAX_REVISION_STEPS} commits from what they name in all")
        return False

    def _unlike(self, revision: Revision, source: KernelSource) -> str | None:
        """Return which file of a manifest is not that of its commit, in words; None where all are."""
        key = (revision.commit, revision.kernel_sha256)
        if self.files_at is None:
            return None
        if key not in self._same:
            if len(self._same) >= MAX_REVISIONS_READ:
                raise BudgetExceeded(f"claims name more than {MAX_REVISIONS_READ} versions of sources; expected fewer")
            self._same[key] = self._differing(self.files_at, revision.commit, source)
        return self._same[key]

    def _differing(self, files_at: FilesAt, commit: str, source: KernelSource) -> str | None:
        own = {file.path: file for file in source.files if not file.path.startswith(f"{SHIPPED_PATH}/")}
        shipped = {file.path.replace(SHIPPED_PATH, "kernels", 1): file for file in source.files if file.path not in own}
        try:
            blobs = files_at(commit, (*own, *shipped, _PACKAGE))
        except StateError as error:
            return f"no files that can be read ({str(error)[:200]})"
        if _PACKAGE in blobs:
            self._of_package.add(commit)
        # Elsewhere what ships with the package is no part of the repository.
        for path, file in {**own, **(shipped if _PACKAGE in blobs else {})}.items():
            blob = blobs.get(path)
            data = None if blob is None else self.read(blob, MAX_SOURCE_BYTES)
            if data is None or object_id(normalised(data)) != file.sha256:
                return f"no {path}" if blob is None else f"another {path}"
        return None

    # What settled it

    def _check_run(self, sealed: Sealed, claim: Ratio, run: RecordedRatio) -> None:
        measured, path, refuse = run.measurement, run.path, self._findings.refuse
        for name in CaseV2.model_fields:
            got, expected = getattr(measured.case, name), getattr(claim.case, name)
            if got != expected:
                refuse("case-changed", path, f"{name} is {got!r}; sealed is {expected!r}")
        pairs = (("base", measured.base, claim.base), ("head", measured.head, claim.head))
        for side, timed, sought in pairs:
            if (timed.commit, timed.kernel_sha256) != (sought.commit, sought.kernel_sha256):
                message = f"its {side} is {timed.commit[:12]} with sources {timed.kernel_sha256[:12]}; "
                message += f"sealed is {sought.commit[:12]} with {sought.kernel_sha256[:12]}"
                refuse("revision-changed", path, message)
        for words in contradicted_pins(claim.pins, measured.device.versions):
            refuse("pin-changed", path, words)
        if measured.head.config != measured.case.config:
            refuse("case-changed", path, "the configuration of its head is not that of its case")
        if measured.hardware_sha256 != claim.hardware_sha256:
            refuse("profile-changed", path, f"hardware profile was {measured.hardware_sha256[:12]} when measured")
        if measured.protocol != claim.protocol:
            refuse("protocol-changed", path, "its protocol or parameters are not the sealed ones")
        if is_earlier(run.commit.when, sealed.commit.when):
            message = "its commit date is before its seal's; dates prove nothing, the graph decides"
            self._findings.flag("date-order", path, message)
        sides = [(claim, samples_of(measured, side)) for side in (measured.base, measured.head)]
        if len(bound_to_their_seals(sides)) < len(sides):
            refuse("binding-broken", path, "its samples are not at the positions drawn from its seal")
        if measured.status == "measured" and known_protocol(claim.protocol):
            for message in _contradictions(claim, measured):
                refuse("ratio-contradicted", path, message)
            held = measured.input_sets * measured.bytes_per_set
            if held < claim.protocol.parameters["footprint_min_bytes"]:
                self._findings.flag("maybe-warm", path, f"the input sets hold {held} bytes, fewer than sealed")

    def _copies(self, recorded: Sequence[RecordedRatio]) -> None:
        """Refuse series of timings that are those of another side, or of another record, to the last digit."""
        seen: dict[tuple[int, ...], str] = {}
        for one in recorded:
            measured = one.measurement
            for rounds in (measured.base.rounds_ps, measured.head.rounds_ps, measured.again_ps):
                unlike = len(set(rounds))
                if unlike < 2:
                    continue
                if rounds in seen:
                    message = f"has the very same series of timings as {seen[rounds]}"
                    add = self._findings.refuse if unlike >= COMPARED_ROUNDS else self._findings.flag
                    add("evidence-copied", one.path, message)
                    break
                seen[rounds] = one.path


def claims_of(sealed: Sealed) -> tuple[Ratio, ...]:
    """Return the claims of a seal."""
    prediction = sealed.prediction
    return prediction.ratios if isinstance(prediction, PredictionV2) else ()


def _contradictions(claim: Ratio, measured: RatioMeasurement) -> Iterator[str]:
    """Yield where the numbers of a measured ratio do not follow from its rounds."""
    series = (measured.base.rounds_ps, measured.head.rounds_ps, measured.again_ps)
    fold = claim.protocol.parameters["fold"]
    if len(set(map(len, series))) != 1 or len(series[0]) < fold:
        yield f"{', '.join(str(len(one)) for one in series)} rounds; expected as many of each, {fold} at least"
        return
    for name, side in (("base", measured.base), ("head", measured.head)):
        if side.median_ps != median_high(side.rounds_ps):
            yield f"median of the {name} is {side.median_ps} ps; its rounds give {median_high(side.rounds_ps)}"
    for name, value in stored(judged(claim.protocol, *series)).items():
        told = getattr(measured, name)
        # A logarithm may differ in its last digit between machines.
        if (told is None) != (value is None) or (told is not None and value is not None and abs(told - value) > 1):
            yield f"{name} is {told}; its rounds give {value}"

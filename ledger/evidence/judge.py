"""Judges a whole ledger: the numbered checks, and the Book they give. Pure: a history and a blob reader in.

 1  files      every ledger file is a regular file at a path that the format knows
 2  append     no commit changes or removes a ledger file, and every file ever added is there at the head
 3  digest     a record's name is the SHA-256 of its bytes under its kind's domain
 4  canonical  a record's bytes are the canonical form of a valid record
 5  objects    every object a record names is there, its name is its SHA-256, and it parses; in version 2 so is every
               file that a kernel's manifest lists
 6  alone      a commit introduces one record at most; never a seal together with a measurement
 7  chain      a seal's chain holds exactly the seals of its history, and its sequence follows the highest of them
 8  order      a measurement's seal was introduced in a proper ancestor of the measurement's commit
 9  subject    the measured cell is in the seal, and what was run is what was sealed
10  binding    the recorded output samples are at the positions drawn from the seal
11  physics    the numbers do not contradict the hardware, the dtype or themselves
12  dates      commit dates that contradict the graph are disclosed; they never decide
13  claims     what a seal says of itself follows from its own profile, operation and case; a declared sight that
               records disprove is flagged, and so are cells of one seal that are one case; a profile unlike the
               shipped one, and a path unlike the dtype's, are disclosed
14  repeats    runs that were left out or copied are refused; repeated, parallel and failed ones are disclosed
15  named      what the seal of a named forecaster says of its code and answers is there; what they rest on precedes it
16  reveals    what reveals a hidden forecast comes after its seal and is what was sealed
17  ratios     a claim's commits are in the history and hold the sources that it names; what settles it is of both,
               comes after it, and its ratio follows from its rounds
18  draws      drawn cells are all those that the round, or secret, named beforehand draws from the domain sealed before

Checks 1 to 4 and 6 are in record_checks, 5 in object_checks, 7 in chain, 8, 9, 11 and 12 in run_checks, 10, 13 and 14
in seal_checks, roofs of 13 in roof_checks, 15 in forecaster_checks, 16 in reveals, 17 in claim_checks, 18 in
draw_checks. Verdicts are computed every time and read from nowhere.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from ledger.analysis.book import Binding, Book, CellView, Recorded, RecordedRatio, Revealed, Run, Sealed, State
from ledger.analysis.hiding import public_part
from ledger.analysis.sight import Devices, declared
from ledger.analysis.sight_notes import SightNotes
from ledger.budgets import MAX_LISTED_REVISIONS
from ledger.errors import BudgetExceeded, LedgerError
from ledger.evidence.chain import check_chain
from ledger.evidence.claim_checks import ClaimChecks, FilesAt, claims_of
from ledger.evidence.draw_checks import check_anchor, check_draws, with_deadlines
from ledger.evidence.findings import NOT_JUDGED
from ledger.evidence.forecaster_checks import check_forecasters
from ledger.evidence.known_cases import in_order, known_cases
from ledger.evidence.object_checks import Objects
from ledger.evidence.record_checks import GatheredRecords, ReadBlob, check_alone, gather
from ledger.evidence.repeated_cases import answering, repeated_cells
from ledger.evidence.reveals import commitments_of, open_hidden
from ledger.evidence.roof_checks import unlike_path, unlike_shipped
from ledger.evidence.run_checks import UNREADABLE, CheckedRun, check_order, check_run, verdict_of
from ledger.evidence.seal_checks import Precedes, binds, bound_to_their_seals, check_repeats, claims, unknown_features
from ledger.evidence.sight_checks import CellSight, SightChecks
from ledger.evidence.staleness import CurrentDigest, is_stale, subject_of_seal
from ledger.evidence.void_checks import check_voids
from ledger.git.ancestry import Ancestry
from ledger.git.history import History
from ledger.record_files import shipped_like
from ledger.records import Finding, Forecast, ForecastV2, Hardware, KernelSource


def judge(
    history: History,
    read: ReadBlob,
    *,
    current: CurrentDigest | None = None,
    notes: SightNotes | None = None,
    files_at: FilesAt | None = None,
) -> Book:
    """Return the book of a ledger.

    current: what an open cell names with another digest makes it stale; asked for open cells alone. None: no
    cell is stale. notes: what campaigns/sight.yaml says of old seals. files_at: gives the files of commits that
    claims name; None: they are not compared.
    Raises: BudgetExceeded, with what was found, for a ledger that costs more than budgets allows.
    """
    with uncollected():
        gathered = gather(history, read)
        try:
            ancestry = Ancestry(history, gathered.introduced, gathered.seals, wanted=_record_positions(gathered))
            objects, chained = Objects(gathered, read), check_chain(gathered, ancestry)
            reveals = open_hidden(gathered, ancestry)
            case = _Case(gathered, ancestry, objects, chained, current, reveals)
            ratios = ClaimChecks(gathered, objects, ancestry, chained, case.withdrawn, read, files_at)
            return case.book(notes or SightNotes(), ratios)
        except BudgetExceeded as error:
            raise BudgetExceeded(str(error), gathered.findings.all()) from error


@dataclass(frozen=True)
class Growth:
    """Hold what new commits add to a ledger that was judged before and holds.

    book: of the new records and of those that bear on them; of its cells those of the seals in `judged` may have
    changed. added: ids of the new records. sighted: the seals among `judged` whose sight was judged too; the sight of
    the others is as it was.
    """

    book: Book
    added: frozenset[str]
    judged: frozenset[str]
    sighted: frozenset[str]


def judge_part(
    gathered: GatheredRecords,
    ancestry: Ancestry,
    *,
    sound_before: Collection[str],
    profiles: Mapping[str, str],
    precedes: Precedes,
    read: ReadBlob,
    notes: SightNotes,
) -> Book:
    """Return the book of some records of a ledger, among which are all that bear on those that are asked about.

    sound_before: paths of the seals of an earlier history that holds; the commits of the others and of the records
    that are new are checked too. profiles: digests of all profiles that the whole ledger names, and what names them.
    precedes: tells which runs of a cell come before others.
    """
    with uncollected():
        check_alone(gathered)
        objects, chained = Objects(gathered, read), check_chain(gathered, ancestry, sound_before=sound_before)
        case = _Case(gathered, ancestry, objects, chained, None, open_hidden(gathered, ancestry))
        case.profiles, case.precedes = profiles, precedes
        return case.book(notes, ClaimChecks(gathered, objects, ancestry, chained, case.withdrawn, read, None))


def _record_positions(gathered: GatheredRecords) -> set[int]:
    """Return the commits that introduced a record."""
    return {position for path in gathered.records for position in gathered.introduced.get(path, ())}


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend the search for cyclic garbage: records hold no cycles, and it walks all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Case:
    """Bring measurements and seals together."""

    def __init__(
        self,
        gathered: GatheredRecords,
        ancestry: Ancestry,
        objects: Objects,
        chained: set[str],
        current: CurrentDigest | None,
        reveals: tuple[Revealed, ...],
    ) -> None:
        self.gathered = gathered
        self.ancestry = ancestry
        self.objects = objects
        self.chained = chained
        self.current = current
        self.reveals = reveals
        self.by_id = {sealed.id: sealed for sealed in gathered.seals.values()}
        self.seals = sorted(self.by_id.values(), key=lambda sealed: (sealed.commit.position, sealed.path))
        self.forecasts = {
            sealed.id: {forecast.cell: forecast for forecast in sealed.prediction.cells} for sealed in self.seals
        }
        # What is measured of a hidden cell is checked as any other; without its forecast it has no verdict.
        for sealed in self.seals:
            public = {cell: public_part(one) for cell, one in commitments_of(sealed).items()}
            self.forecasts[sealed.id].update(public)
        self.recorded = sorted(
            (
                Recorded(identity, path, gathered.first_commit(path), measurement)
                for path, (identity, measurement) in gathered.measurements.items()
            ),
            key=lambda recorded: (recorded.commit.position, recorded.path),
        )
        self.voided = check_voids(gathered, ancestry, self.forecasts)
        self.withdrawn = {(item.void.seal, item.void.cell) for item in self.voided}
        self.claimed = {
            (sealed.id, claim.cell): claim.operation for sealed in self.seals for claim in claims_of(sealed)
        }
        self.profiles: Mapping[str, str] = {}
        self.precedes: Precedes = self._precedes
        self.compared: set[tuple[str, str]] = set()
        self.unlike: dict[str, tuple[Finding, ...]] = {}

    def book(self, notes: SightNotes, ratios: ClaimChecks) -> Book:
        """Make checks 8 to 18 and return the book."""
        runs: dict[tuple[str, str], list[CheckedRun]] = {}
        belonging = [recorded for recorded in self.recorded if self._belongs(recorded)]
        pairs = [(self.forecasts[r.measurement.seal][r.measurement.cell], r.measurement) for r in belonging]
        follow = bound_to_their_seals(pairs) if pairs else set()
        for index, recorded in enumerate(belonging):
            key = (recorded.measurement.seal, recorded.measurement.cell)
            sealed = self.by_id[recorded.measurement.seal]
            found = check_run(
                self.gathered.findings,
                self.objects,
                sealed=sealed,
                forecast=self.forecasts[sealed.id][recorded.measurement.cell],
                recorded=recorded,
                bound=index in follow,
            )
            runs.setdefault(key, []).append(found)
        for finding in check_repeats([[item.recorded for item in items] for items in runs.values()], self.precedes):
            self.gathered.findings.add(finding)
        check_forecasters(self.gathered, self.objects, self.seals)
        drawn = check_draws(self.gathered, self.objects, self.ancestry, self.seals)
        for recorded in belonging:
            forecast = self.forecasts[recorded.measurement.seal][recorded.measurement.cell]
            check_anchor(self.gathered, forecast, recorded.path, recorded.measurement)
        settled = ratios.recorded()
        cells = with_deadlines(self.gathered, self._cells(runs, notes, settled), drawn)
        hidden = tuple(self._hidden_views(runs))
        claims = ratios.views(self.seals, settled)
        findings = self.gathered.findings.all()
        return Book(
            head=self.gathered.history.head,
            cells=cells,
            seals=tuple(self.seals),
            records=tuple(self.recorded),
            voids=self.voided,
            findings=findings,
            reveals=self.reveals,
            hidden=hidden,
            drawn=drawn,
            claims=claims,
            ratios=settled,
        )

    def _hidden_views(self, runs: Mapping[tuple[str, str], list[CheckedRun]]) -> Iterator[CellView]:
        """Yield a view of each forecast that is still hidden, without runs; note those that are measured."""
        for sealed in self.seals:
            measured = 0
            for cell in commitments_of(sealed):
                forecast = self.forecasts[sealed.id][cell]
                measured += (sealed.id, cell) in runs
                view = self._view(sealed, forecast, [], CellSight(declared(forecast)[0]), ())
                yield replace(view, state="refused" if view.state == "refused" else "hidden")
            if measured:
                message = f"{measured} hidden forecasts are measured and not revealed: they count as missing"
                self.gathered.findings.note("unrevealed", sealed.path, message)

    def _precedes(self, pairs: Sequence[tuple[str, int]]) -> list[bool]:
        """Tell of each pair whether a file was introduced in a proper ancestor of a commit."""
        if not pairs:
            return []
        paths, positions = {path for path, _ in pairs}, {position for _, position in pairs}
        ancestry = Ancestry(self.gathered.history, self.gathered.introduced, paths, wanted=positions)
        return [ancestry.precedes(path, [position]) for path, position in pairs]

    def _cells(
        self,
        runs: Mapping[tuple[str, str], list[CheckedRun]],
        notes: SightNotes,
        settled: Sequence[RecordedRatio],
    ) -> tuple[CellView, ...]:
        for sealed in self.seals:
            with self.gathered.findings.about_one(sealed.path):
                for finding in unknown_features(sealed.prediction, *map(public_part, commitments_of(sealed).values())):
                    self.gathered.findings.add(finding.model_copy(update={"path": sealed.path}))
        devices = self._devices()
        sights = SightChecks(
            known_cases(devices, in_order(self.recorded, settled), self._operation_of, self.ancestry, self._positions),
            notes,
            self.gathered.findings,
        )
        cells: list[CellView] = []
        earlier: dict[object, deque[str]] = {}
        for sealed in self.seals:
            for forecast, sight in sights.of(sealed):
                cell = forecast.case.cell
                found = runs.get((sealed.id, forecast.cell), [])
                cells.append(self._view(sealed, forecast, found, sight, tuple(earlier.get(cell, ()))))
                earlier.setdefault(cell, deque(maxlen=MAX_LISTED_REVISIONS)).append(cells[-1].name)
        for finding in repeated_cells(cells, devices):
            self.gathered.findings.add(finding)
        return answering(cells, devices, self._answer)

    def _devices(self) -> Devices:
        """Return which of the sealed profiles describe one device."""
        digests = {
            cell.hardware_sha256: sealed.path for sealed in self.seals for cell in self.forecasts[sealed.id].values()
        }
        digests |= {claim.hardware_sha256: sealed.path for sealed in self.seals for claim in claims_of(sealed)}
        digests = {**self.profiles, **digests}
        profiles = (self.objects.hardware(digest, path) for digest, path in digests.items())
        return Devices(profile for profile in profiles if profile is not None)

    def _operation_of(self, recorded: Recorded | RecordedRatio) -> str | None:
        seal, cell = recorded.measurement.seal, recorded.measurement.cell
        forecast = self.forecasts.get(seal, {}).get(cell)
        return self.claimed.get((seal, cell)) if forecast is None else forecast.operation

    def _positions(self, path: str) -> tuple[int, ...]:
        return self.gathered.introduced.get(path, ())

    def _answer(self, view: CellView, run: Run) -> Run | None:
        """Return what another forecast's run says of a cell that was sealed before it."""
        if view.hardware is None or not self.ancestry.precedes(view.sealed.path, self._positions(run.recorded.path)):
            return None
        checked = CheckedRun(run.recorded, run.verification.findings)
        rule = view.sealed.prediction.rule
        return verdict_of(
            self.gathered.findings, view.forecast, checked, hardware=view.hardware, blind=view.blind, rule=rule
        )

    def _belongs(self, recorded: Recorded) -> bool:
        sealed = self.by_id.get(recorded.measurement.seal)
        cells = () if sealed is None else self.forecasts[sealed.id]
        return check_order(self.gathered, self.ancestry, sealed=sealed, cells=cells, recorded=recorded)

    def _view(
        self, sealed: Sealed, forecast: Forecast, found: list[CheckedRun], sight: CellSight, revises: tuple[str, ...]
    ) -> CellView:
        source = self._source(sealed, forecast)
        hardware = self.objects.hardware(forecast.hardware_sha256, sealed.path)
        with self.gathered.findings.about_one(sealed.path):
            for finding in claims(forecast, hardware, source):
                self.gathered.findings.add(finding.model_copy(update={"path": sealed.path}))
            if hardware is not None:
                self._disclose_roof(sealed, forecast, hardware)
        readable = [item for item in found if all(one.code not in (UNREADABLE, NOT_JUDGED) for one in item.findings)]
        runs: tuple[Run, ...] = ()
        if hardware is not None:
            findings = self.gathered.findings
            rule = sealed.prediction.rule
            runs = tuple(
                verdict_of(findings, forecast, item, hardware=hardware, blind=sight.blind, rule=rule)
                for item in readable
            )
        state = self._state(sealed, forecast, found)
        return CellView(
            sealed=sealed,
            forecast=forecast,
            hardware=hardware,
            state=state,
            sight=sight.sight,
            revises=revises,
            runs=runs,
            levels=(0,) if found and state != "refused" else (),
            binding=self._binding(sealed, forecast, found) if found and state != "refused" else "none",
            corrections=sight.corrections,
        )

    def _disclose_roof(self, sealed: Sealed, forecast: Forecast, hardware: Hardware) -> None:
        """Disclose a path that is not the dtype's, and once a seal what its profile has unlike the shipped one."""
        found: list[Finding] = []
        # A profile whose numbers give no roof is refused among the claims.
        with suppress(LedgerError, ArithmeticError, ValueError):
            found += unlike_path(forecast, hardware)
            if (sealed.path, forecast.hardware_sha256) not in self.compared:
                self.compared.add((sealed.path, forecast.hardware_sha256))
                digest = forecast.hardware_sha256
                if digest not in self.unlike:
                    self.unlike[digest] = tuple(unlike_shipped(hardware, shipped_like(hardware)))
                found += self.unlike[digest]
        for finding in found:
            self.gathered.findings.add(finding.model_copy(update={"path": sealed.path}))

    def _source(self, sealed: Sealed, forecast: Forecast) -> KernelSource | None:
        """Return the manifest of a forecast of version 2; in version 1 the digest is that of the kernel file itself."""
        if isinstance(forecast, ForecastV2):
            return self.objects.kernel_source(forecast.kernel_sha256, sealed.path)
        self.objects.sound("predictions", forecast.kernel_sha256, sealed.path)
        return None

    def _state(self, sealed: Sealed, forecast: Forecast, found: list[CheckedRun]) -> State:
        refused = self.gathered.findings.refused
        if refused(sealed.path) or any(refused(item.recorded.path) for item in found):
            return "refused"
        if any(item.recorded.measurement.status == "measured" for item in found):
            return "measured"
        if not self.withdrawn.isdisjoint(((sealed.id, None), (sealed.id, forecast.cell))):
            return "void"
        if found:
            return "failed"
        stale = self.current is not None and is_stale(subject_of_seal(forecast), self.current)
        return "stale" if stale else "open"

    def _binding(self, sealed: Sealed, forecast: Forecast, found: list[CheckedRun]) -> Binding:
        """Return what is known of the samples of the run that counts; their values are recomputed by audit alone."""
        finished = [item.recorded.measurement for item in found if item.recorded.measurement.status == "measured"]
        bound = bool(finished) and binds(forecast, finished[0])
        return "positions only" if bound and sealed.path in self.chained else "none"

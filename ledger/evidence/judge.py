"""Judges a whole ledger: the numbered checks, and the Book they give. Pure: a history and a blob reader in.

 1  files      every ledger file is a plain file at a place that the format knows
 2  append     no commit changes or removes a ledger file, and every file ever added is there at the head
 3  digest     a record's name is the SHA-256 of its bytes under its kind's domain
 4  canonical  a record's bytes are the canonical form of a valid record
 5  objects    every object a record names is there, its name is its SHA-256, and it parses; in version 2 so is every
               file that a kernel's manifest lists
 6  alone      a commit introduces one record at most; never a seal together with a measurement
 7  chain      a seal's chain holds exactly the seals of its history, and its sequence follows the highest of them
 8  order      a measurement's seal was introduced in a proper ancestor of the measurement's commit
 9  subject    the measured cell is in the seal, and what was run is what was sealed
10  binding    the recorded output samples lie at the positions drawn from the seal
11  physics    the numbers do not contradict the hardware, the dtype or themselves
12  dates      commit dates that contradict the graph are disclosed; they never decide
13  claims     what a seal says of itself follows from its own profile, operation and case; a blind forecast of what
               another kernel was measured at before is noted
14  repeats    runs that were left out or copied are refused; repeated, parallel and failed ones are disclosed

Checks 1 to 6 are in object_checks, 7 in chain, 10, 13 and 14 in seal_checks. Verdicts are computed every time and
read from nowhere.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ledger.analysis.book import Book, CellView, Recorded, Run, Sealed, State, Voided
from ledger.analysis.reconcile import refutations, verify_cell
from ledger.errors import LedgerError
from ledger.evidence.chain import check_chain
from ledger.evidence.object_checks import GatheredRecords, Objects, ReadBlob, gather
from ledger.evidence.seal_checks import bound_to_their_seals, check_repeats, claims, unknown_places
from ledger.git.ancestry import Ancestry
from ledger.git.history import History
from ledger.operations import OPERATIONS
from ledger.records import Finding, Forecast, ForecastV2, Hardware, KernelSource, Measurement, Verification

MIN_SAMPLES = 16
"""Output samples below which a measurement counts as not bound to its seal."""

UNREADABLE = "counters-unreadable"
UNDER_ANOTHER_NAME = "measured-under-another-name"


CurrentDigest = Callable[[Literal["kernel", "hardware"], str], str | None]
"""Return the digest of a kernel or profile as it is now, by its name; None when there is none of that name."""


def judge(history: History, read: ReadBlob, *, current: CurrentDigest | None = None) -> Book:
    """Return the book of a ledger.

    current: what an open cell names with another digest makes it stale; asked for open cells alone. None where nobody
    wants to know.
    """
    with uncollected():
        gathered = gather(history, read)
        ancestry = Ancestry(history, gathered.introduced, (*gathered.seals, *gathered.measurements))
        case = _Case(gathered, ancestry, Objects(gathered, read), check_chain(gathered, ancestry), current)
        return case.book()


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


@dataclass
class _Found:
    """Hold a measurement that belongs to a cell of a seal, with what the checks said of it."""

    recorded: Recorded
    findings: tuple[Finding, ...]


class _Case:
    """Bring measurements and seals together."""

    def __init__(
        self,
        gathered: GatheredRecords,
        ancestry: Ancestry,
        objects: Objects,
        chained: set[str],
        current: CurrentDigest | None,
    ) -> None:
        self.gathered = gathered
        self.ancestry = ancestry
        self.objects = objects
        self.chained = chained
        self.current = current
        self.by_id = {sealed.id: sealed for sealed in gathered.seals.values()}
        self.seals = sorted(self.by_id.values(), key=lambda sealed: (sealed.commit.position, sealed.path))
        self.forecasts = {
            sealed.id: {forecast.cell: forecast for forecast in sealed.prediction.cells} for sealed in self.seals
        }
        self.recorded = sorted(
            (
                Recorded(identity, path, gathered.first_commit(path), measurement)
                for path, (identity, measurement) in gathered.measurements.items()
            ),
            key=lambda recorded: (recorded.commit.position, recorded.path),
        )
        self.voided = self._voids()

    def book(self) -> Book:
        """Make checks 8 to 14 and return the book."""
        runs: dict[tuple[str, str], list[_Found]] = {}
        belonging = [recorded for recorded in self.recorded if self._check_order(recorded)]
        pairs = [(self.forecasts[r.measurement.seal][r.measurement.cell], r.measurement) for r in belonging]
        follow = bound_to_their_seals(pairs) if pairs else set()
        for place, recorded in enumerate(belonging):
            key = (recorded.measurement.seal, recorded.measurement.cell)
            runs.setdefault(key, []).append(self._check_content(recorded, bound=place in follow))
        for finding in check_repeats([[item.recorded for item in found] for found in runs.values()], self.ancestry):
            self.gathered.findings.add(finding)
        cells = self._cells(runs)
        findings = tuple(self.gathered.findings.found)
        seals = tuple(self.seals)
        return Book(self.gathered.history.head, cells, seals, tuple(self.recorded), self.voided, findings)

    def _cells(self, runs: Mapping[tuple[str, str], list[_Found]]) -> tuple[CellView, ...]:
        measured: dict[object, list[tuple[int, ...]]] = {}
        alike: dict[object, list[tuple[str, tuple[int, ...]]]] = {}
        for recorded in self.recorded:
            if recorded.measurement.status == "measured":
                places = self.gathered.introduced.get(recorded.path, ())
                case = recorded.measurement.case
                measured.setdefault(case.cell, []).append(places)
                forecast = self.forecasts.get(recorded.measurement.seal, {}).get(recorded.measurement.cell)
                if forecast is not None:
                    alike.setdefault((forecast.operation, *case.cell[1:]), []).append((case.kernel, places))
        for sealed in self.seals:
            for finding in unknown_places(sealed.prediction):
                self.gathered.findings.add(finding.model_copy(update={"path": sealed.path}))
        cells: list[CellView] = []
        earlier: dict[object, list[str]] = {}
        for sealed in self.seals:
            for forecast in sealed.prediction.cells:
                cell = forecast.case.cell
                # Blind must be shown: a measurement on a parallel branch may have been known.
                blind = all(self.ancestry.precedes(sealed.path, places) for places in measured.get(cell, ()))
                if blind:
                    self._name_alike(sealed, forecast, alike.get((forecast.operation, *cell[1:]), ()))
                found = runs.get((sealed.id, forecast.cell), [])
                cells.append(self._view(sealed, forecast, found, blind, tuple(earlier.get(cell, ()))))
                earlier.setdefault(cell, []).append(cells[-1].name)
        return tuple(cells)

    def _name_alike(self, sealed: Sealed, forecast: Forecast, measured: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Note that a blind forecast's operation, shape, dtype and device may have been measured by another kernel."""
        others = {name for name, places in measured if not self.ancestry.precedes(sealed.path, places)}
        for name in sorted(others - {forecast.case.kernel}):
            words = f"{forecast.cell} is blind, yet {forecast.operation} of this shape, dtype and device was measured"
            self.gathered.findings.note(UNDER_ANOTHER_NAME, sealed.path, f"{words} as kernel {name}, not after it")

    def _voids(self) -> tuple[Voided, ...]:
        voided = []
        for path, (identity, void) in self.gathered.voids.items():
            sealed = self.by_id.get(void.seal)
            if sealed is None or (void.cell is not None and void.cell not in self.forecasts[sealed.id]):
                message = f"withdraws {void.seal[:12]}#{void.cell or ''}, which is not in this ledger"
                self.gathered.findings.refuse("seal-unknown", path, message)
            elif not self.ancestry.precedes(sealed.path, self.gathered.introduced.get(path, ())):
                message = f"withdraws {void.seal[:12]}, which was not introduced in a proper ancestor of its commit"
                self.gathered.findings.refuse("void-precedes", path, message)
            else:
                voided.append(Voided(identity, path, self.gathered.first_commit(path), void))
        return tuple(voided)

    # 8 order

    def _check_order(self, recorded: Recorded) -> bool:
        """Tell whether a measurement belongs to a cell of a seal; refuse one whose seal does not come before it."""
        findings, measurement = self.gathered.findings, recorded.measurement
        sealed = self.by_id.get(measurement.seal)
        if sealed is None:
            findings.refuse("seal-unknown", recorded.path, f"its seal {measurement.seal[:12]} is not in this ledger")
            return False
        if measurement.cell not in self.forecasts[sealed.id]:
            findings.refuse("cell-unknown", recorded.path, f"its cell {measurement.cell} is not in its seal")
            return False
        if not self.ancestry.precedes(sealed.path, self.gathered.introduced.get(recorded.path, ())):
            message = (
                f"prediction {sealed.id[:12]} (commit {sealed.commit.sha[:12]}) is no proper ancestor of this "
                f"measurement (commit {recorded.commit.sha[:12]}); a prediction comes before its measurement"
            )
            findings.refuse("prediction-postdates", recorded.path, message)
        return True

    # 9 subject, 10 binding, 11 physics, 12 dates

    def _check_content(self, recorded: Recorded, *, bound: bool) -> _Found:
        findings, path, measurement = self.gathered.findings, recorded.path, recorded.measurement
        sealed = self.by_id[measurement.seal]
        forecast = self.forecasts[sealed.id][measurement.cell]
        hardware = self.objects.hardware(forecast.hardware_sha256, sealed.path)
        for attachment in measurement.attachments:
            if not self.objects.sound("verifications", attachment.sha256, path):
                findings.refuse("attachment-lost", path, f"its evidence {attachment.name} is missing or altered")
        if measurement.protocol != forecast.protocol:
            findings.refuse("protocol-changed", path, "its timing protocol or parameters are not the sealed ones")
        if not bound:
            findings.refuse("binding-broken", path, "its samples do not lie at the positions drawn from its seal")
        if hardware is not None:
            for finding in _physics(forecast, measurement, hardware, path):
                findings.add(finding)
        if _earlier(recorded.commit.when, sealed.commit.when):
            findings.flag(
                "date-order", path, "its commit date lies before its seal's; dates prove nothing, the graph decides"
            )
        return _Found(recorded, findings.about(path))

    def _view(
        self, sealed: Sealed, forecast: Forecast, found: list[_Found], blind: bool, revises: tuple[str, ...]
    ) -> CellView:
        source = self._source(sealed, forecast)
        hardware = self.objects.hardware(forecast.hardware_sha256, sealed.path)
        for finding in claims(forecast, hardware, source):
            self.gathered.findings.add(finding.model_copy(update={"path": sealed.path}))
        readable = [item for item in found if all(finding.code != UNREADABLE for finding in item.findings)]
        runs = tuple(self._run(forecast, item, hardware, blind) for item in readable) if hardware is not None else ()
        state = self._state(sealed, forecast, found)
        return CellView(
            sealed=sealed,
            forecast=forecast,
            hardware=hardware,
            state=state,
            blind=blind,
            revises=revises,
            runs=runs,
            levels=self._levels(sealed, forecast, found) if found and state != "refused" else (),
        )

    def _source(self, sealed: Sealed, forecast: Forecast) -> KernelSource | None:
        """Return the manifest of a forecast of version 2; in version 1 the digest is that of the kernel file itself."""
        if isinstance(forecast, ForecastV2):
            return self.objects.kernel_source(forecast.kernel_sha256, sealed.path)
        self.objects.sound("predictions", forecast.kernel_sha256, sealed.path)
        return None

    def _run(self, forecast: Forecast, found: _Found, hardware: Hardware, blind: bool) -> Run:
        measurement = found.recorded.measurement
        try:
            verification = verify_cell(
                forecast=forecast, measurement=measurement, hardware=hardware, blind=blind, findings=found.findings
            )
        except (LedgerError, ArithmeticError) as error:
            words = f"its numbers cannot be judged: {error}"
            self.gathered.findings.refuse(UNREADABLE, found.recorded.path, words)
            verification = Verification(
                seal=measurement.seal,
                cell=measurement.cell,
                run=measurement.run,
                predicted_regime=forecast.regime,
                measured_regime=None,
                predicted_percent=forecast.percent_milli / 1000,
                measured_percent=None,
                grade=None,
                gap=None,
                blind=blind,
                findings=self.gathered.findings.about(found.recorded.path),
            )
        return Run(found.recorded, verification)

    def _state(self, sealed: Sealed, forecast: Forecast, found: list[_Found]) -> State:
        refused = self.gathered.findings.refused
        if refused(sealed.path) or any(refused(item.recorded.path) for item in found):
            return "refused"
        if any(item.recorded.measurement.status == "measured" for item in found):
            return "measured"
        if any(v.void.seal == sealed.id and v.void.cell in (None, forecast.cell) for v in self.voided):
            return "void"
        if found:
            return "failed"
        return "stale" if self._is_stale(forecast) else "open"

    def _is_stale(self, forecast: Forecast) -> bool:
        if self.current is None:
            return False
        kernel = self.current("kernel", forecast.case.kernel)
        hardware = self.current("hardware", forecast.case.hardware)
        return (kernel, hardware) != (forecast.kernel_sha256, forecast.hardware_sha256)

    def _levels(self, sealed: Sealed, forecast: Forecast, found: list[_Found]) -> tuple[int, ...]:
        bound = forecast.operation in OPERATIONS and any(
            item.recorded.measurement.samples is not None
            and len(item.recorded.measurement.samples.positions) >= MIN_SAMPLES
            for item in found
        )
        return (0, 1) if bound and sealed.path in self.chained else (0,)


def _physics(forecast: Forecast, measurement: Measurement, hardware: Hardware, path: str) -> list[Finding]:
    try:
        found = refutations(forecast=forecast, measurement=measurement, hardware=hardware)
    except (LedgerError, ArithmeticError) as error:
        return [Finding(code=UNREADABLE, severity="refused", path=path, message=str(error))]
    return [finding.model_copy(update={"path": path}) for finding in found]


def _earlier(when: str, than: str) -> bool:
    try:
        return datetime.fromisoformat(when) < datetime.fromisoformat(than)
    except (ValueError, TypeError, OverflowError):
        return False

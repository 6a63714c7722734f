"""Checks what the seal of a named forecaster says of its code, its answers and what they rest on: check 15 of judge.

Every object that it names must be there and be what its name says, the answers must be of the sealed cells, and each
measurement that they rest on must have been introduced before the seal; before that of the domain where cells were
drawn. A seal that names code alone, without answers, is checked likewise. Whether the code gives these answers is not
checked: its bytes are in the ledger for whoever wants to run them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ledger.analysis.book import Sealed
from ledger.budgets import MAX_RECORD_BYTES, MAX_RESTED
from ledger.canonical import object_path
from ledger.errors import BudgetExceeded
from ledger.evidence.object_checks import Objects
from ledger.evidence.record_checks import GatheredRecords
from ledger.git.ancestry import Ancestry
from ledger.records import (
    FORECASTER,
    ForecasterAnswers,
    ForecasterCode,
    ForecastV2,
    MeasurementSet,
    PredictionV2,
)
from ledger.sources.closure import MAX_SOURCE_BYTES


def check_forecasters(gathered: GatheredRecords, objects: Objects, seals: Sequence[Sealed]) -> None:
    """Check every seal that names a forecaster's code or answers. Raises: BudgetExceeded."""
    resting: list[tuple[Sealed, MeasurementSet]] = []
    for sealed in seals:
        prediction = sealed.prediction
        if not isinstance(prediction, PredictionV2):
            continue
        with gathered.findings.about_one(sealed.path):
            if FORECASTER in prediction.extensions:
                rests = _check(gathered, objects, sealed, prediction)
                if rests is not None:
                    resting.append((sealed, rests))
            elif (code := _code_alone(prediction)) is not None:
                _refuse_contradictions(gathered, sealed, _names(prediction, _code(objects, sealed, code)))
    if resting:
        _check_order(gathered, resting, {sealed.id: sealed for sealed in seals})


def _check(
    gathered: GatheredRecords, objects: Objects, sealed: Sealed, prediction: PredictionV2
) -> MeasurementSet | None:
    """Check what one seal names; return the measurements that its answers rest on."""
    digest = answers_digest(prediction)
    code = prediction.participant.sha256 if prediction.participant is not None else None
    if digest is None or code is None:
        message = "names answers of a forecaster without digests of both its answers and its code"
        gathered.findings.refuse("forecaster-unreadable", sealed.path, message)
        return None
    manifest = _code(objects, sealed, code)
    answers = objects.decoded(ForecasterAnswers, digest, sealed.path, limit=MAX_RECORD_BYTES)
    if answers is None:
        return None
    named_by = object_path("predictions", digest)
    for answer in answers.cells.values():
        if answer.transcript is not None:
            objects.sound("predictions", answer.transcript, named_by)
    _refuse_contradictions(gathered, sealed, _contradictions(prediction, manifest, answers))
    if answers.measurements is None:
        return None
    return objects.decoded(MeasurementSet, answers.measurements, named_by, limit=MAX_RECORD_BYTES)


def _code_alone(prediction: PredictionV2) -> str | None:
    """Return the digest of code that a seal names; None of a domain and what is drawn from it, which draws look at."""
    drawn = any(isinstance(cell, ForecastV2) and cell.draw is not None for cell in prediction.cells)
    if prediction.participant is None or prediction.domain is not None or drawn:
        return None
    return prediction.participant.sha256


def _code(objects: Objects, sealed: Sealed, digest: str) -> ForecasterCode | None:
    """Return the manifest of a forecaster's code, its files looked at; None with a finding."""
    manifest = objects.decoded(ForecasterCode, digest, sealed.path)
    if manifest is not None:
        named_by = object_path("predictions", digest)
        for file in manifest.files:
            objects.sound("predictions", file.sha256, named_by, limit=MAX_SOURCE_BYTES)
        if manifest.model is not None:
            objects.sound("predictions", manifest.model, named_by)
    return manifest


def _refuse_contradictions(gathered: GatheredRecords, sealed: Sealed, messages: Iterable[str]) -> None:
    for message in messages:
        gathered.findings.refuse("forecaster-contradicted", sealed.path, message)


def answers_digest(prediction: PredictionV2) -> str | None:
    """Return the digest of the answers that a seal names; None where its extension is not of this form."""
    value = prediction.extensions.get(FORECASTER)
    digest = value.get("answers") if isinstance(value, dict) and set(value) == {"answers"} else None
    known = isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef")
    return digest if known else None


def _contradictions(
    prediction: PredictionV2, manifest: ForecasterCode | None, answers: ForecasterAnswers
) -> Iterator[str]:
    """Yield where a seal, the answers and the code that it names do not agree."""
    yield from _names(prediction, manifest, (answers.forecaster, answers.version))
    cells = {forecast.cell for forecast in prediction.cells} | {one.cell for one in prediction.commitments}
    if set(answers.cells) != cells:
        yield "the answers are not of the sealed cells"


def _names(prediction: PredictionV2, manifest: ForecasterCode | None, *answering: tuple[str, str]) -> Iterator[str]:
    """Yield where a seal and the code, and the answers if any, are not of one forecaster and version."""
    said = {(prediction.forecaster, prediction.participant.version if prediction.participant else None), *answering}
    said |= {(manifest.name, manifest.version)} if manifest else set()
    if len(said) > 1:
        what = "seal, answers and code" if answering else "seal and code"
        yield f"{what} name different forecasters: {sorted(map(str, said))}"[:1000]


def _known_by(sealed: Sealed, by_id: Mapping[str, Sealed]) -> Sealed:
    """Return the seal before which a forecaster's data must be: of drawn cells that of the domain, else its own."""
    draws = (cell.draw for cell in sealed.prediction.cells if isinstance(cell, ForecastV2))
    first = next((draw for draw in draws if draw is not None), None)
    return sealed if first is None else by_id.get(first.domain_seal, sealed)


def _check_order(
    gathered: GatheredRecords, resting: Sequence[tuple[Sealed, MeasurementSet]], by_id: Mapping[str, Sealed]
) -> None:
    """Check that what answers rest on was introduced in proper ancestors of a seal's commit. Raises: BudgetExceeded."""
    if sum(len(rests.measurements) for _, rests in resting) > MAX_RESTED:
        raise BudgetExceeded(f"answers of forecasters rest on more than {MAX_RESTED} measurements in all")
    paths = {identity: path for path, (identity, _) in gathered.measurements.items()}
    positions = {commit.sha: commit.position for commit in gathered.history.commits}
    before = {sealed.path: _known_by(sealed, by_id).path for sealed, _ in resting}
    introduced = {path: gathered.introduced.get(path, ()) for path in (*before, *before.values())}
    wanted = {position for found in introduced.values() for position in found}
    ancestry = Ancestry(gathered.history, gathered.introduced, paths.values(), wanted=wanted)
    for sealed, rests in resting:
        own = introduced[sealed.path]
        if rests.commit not in positions or any(positions[rests.commit] >= position for position in own):
            message = f"rests on commit {rests.commit[:12]}, which does not come before it in this history"
            gathered.findings.refuse("training-later", sealed.path, message)
        unknown = [identity for identity in rests.measurements if identity not in paths]
        if unknown:
            message = f"rests on {len(unknown)} measurements that are not in this ledger, such as {unknown[0][:12]}"
            gathered.findings.refuse("training-unknown", sealed.path, message)
        known = (paths[identity] for identity in rests.measurements if identity in paths)
        later = [path for path in known if not ancestry.precedes(path, introduced[before[sealed.path]])]
        if later:
            whose = "its" if before[sealed.path] == sealed.path else "its domain's"
            message = f"rests on {len(later)} measurements that were not introduced in a proper ancestor of {whose} "
            gathered.findings.refuse("training-later", sealed.path, f"{message}commit, such as {later[0]}")

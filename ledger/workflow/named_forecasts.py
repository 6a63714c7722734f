"""Turns what a named forecaster answers into drafts, and into what its seal says of its author."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledger.analysis.campaign import Guess
from ledger.analysis.formatting import count_text, duration
from ledger.canonical import encode, object_id, record_errors
from ledger.errors import InputError
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
from ledger.forecasters.code import code_objects, package_sources
from ledger.forecasters.registry import Participating, check_work
from ledger.forecasters.track import Outcomes, blind_outcomes, is_blind, outcomes, with_uncertainty
from ledger.records import (
    FORECASTER,
    Case,
    ForecasterAnswers,
    MeasurementSet,
    Participant,
    Regime,
    StoredAnswer,
    StoredTerm,
)
from ledger.workflow.seal import Author, Draft, Prepared, draft_of

_LEAST_PERCENT = 0.001


class NothingAnswered(InputError):
    """A forecaster that answers none of the cells that it was asked about."""


@dataclass(frozen=True)
class Known:
    """Hold what a ledger has measured at a commit, and how each forecaster's answers to it turn out."""

    commit: str | None = None
    runs: tuple[Measured, ...] = ()
    _outcomes: dict[tuple[str, bool], Outcomes] = field(default_factory=dict)

    def outcomes(self, one: Participating, case: Case) -> Outcomes:
        """Return how a forecaster's answers to measured cases turn out, as hard as a case; none if asked once only."""
        if not one.repeatable:
            return Outcomes()
        key = one.name, is_blind(case, self.runs)
        if key not in self._outcomes:
            ask = one.forecast if one.asked_without is None else one.asked_without(self.runs)
            self._outcomes[key] = blind_outcomes(ask, self.runs) if key[1] else outcomes(ask, self.runs)
        return self._outcomes[key]


@dataclass(frozen=True)
class NamedDrafts:
    """Hold the drafts of one forecaster with its author's part of the seal, and why cells were left out."""

    drafts: tuple[Draft, ...]
    author: Author
    left_out: Mapping[str, str]


def answer(question: Question, one: Participating, known: Known) -> tuple[Answer | NoAnswer, str]:
    """Return a forecaster's answer with interval and probabilities, and how these were made."""
    check_work(question)
    said = one.forecast(Question(question.case, question.work, question.roof, question.hardware, known.runs))
    if isinstance(said, NoAnswer):
        return said, ""
    return with_uncertainty(said, question.case.kernel, known.outcomes(one, question.case))


def named_drafts(
    cells: Sequence[Prepared], one: Participating, known: Known, *, pins: Mapping[str, str] | None = None
) -> NamedDrafts:
    """Return a forecaster's drafts of cells; those that it does not answer are left out.

    Raises: NothingAnswered where it answers none of them; RecordError.
    """
    drafts, stored, left_out, how = [], {}, {}, set()
    transcripts: dict[str, bytes] = {}
    for cell in cells:
        name = cell.resolved.cell
        question = Question(cell.resolved.case, cell.resolved.work, cell.roof, cell.hardware)
        said, uncertainty = answer(question, one, known)
        if isinstance(said, NoAnswer) or said.regime is None:
            left_out[name] = said.reason if isinstance(said, NoAnswer) else "names no regime"
            continue
        how.add(uncertainty)
        if said.transcript is not None:
            transcripts[object_id(said.transcript)] = said.transcript
        stored[name] = _stored(said)
        with record_errors(f"{one.name}: {name}"):
            drafts.append(draft_of(_explained(cell, said), _guess(said, said.regime), pins=pins))
    if not drafts:
        reasons = "; ".join(reason for reason, _ in Counter(left_out.values()).most_common(3))
        raise NothingAnswered(f"{one.name} answers none of {count_text(len(cells), 'cell')}: {reasons}")
    author = _author(one, stored, left_out, "; ".join(sorted(how)), known, transcripts)
    return NamedDrafts(tuple(drafts), author, left_out)


def all_named_drafts(
    cells: Sequence[Prepared], chosen: Sequence[Participating], known: Known, *, pins: Mapping[str, str] | None = None
) -> tuple[list[tuple[Participating, NamedDrafts]], list[str]]:
    """Return the drafts of each forecaster, and why others, who answer no cell, seal nothing.

    Raises: NothingAnswered where none of them answers any; RecordError.
    """
    answered, silent = [], []
    for one in chosen:
        try:
            answered.append((one, named_drafts(cells, one, known, pins=pins)))
        except NothingAnswered as error:
            silent.append(str(error))
    if not answered:
        raise NothingAnswered("; ".join(silent))
    return answered, silent


def _guess(said: Answer, regime: Regime) -> Guess:
    """Return an answer as a person would have written it: within 0 and 100% of the roof."""
    percent = min(max(round(said.percent, 3), _LEAST_PERCENT), 100.0)
    low = None if said.low is None else min(max(round(said.low, 3), 0.0), percent)
    high = None if said.high is None else max(min(round(said.high, 3), 100.0), percent)
    return Guess(regime=regime, pct=percent, low=low, high=high, prob=_millionths(said.probabilities))


def _millionths(shares: Mapping[Regime, float] | None) -> dict[Regime, float] | None:
    """Return probabilities that sum to 1 when rounded to a millionth."""
    if shares is None:
        return None
    counts = {regime: round(share * 1e6) for regime, share in shares.items()}
    counts[max(counts, key=lambda regime: counts[regime])] += 10**6 - sum(counts.values())
    return {regime: count / 1e6 for regime, count in counts.items()}


def _explained(cell: Prepared, said: Answer) -> Prepared:
    """Return a cell with the answer's times as its reasoning."""
    times = [
        f"{term.name} {duration(round(term.value * 1e12))}" for term in said.terms if term.unit == "s" and term.value
    ]
    why = f"{said.forecaster} {said.version}: {', '.join(times)}"[:4000]
    return Prepared(cell.request.model_copy(update={"why": why}), cell.resolved, cell.roof, cell.hardware, cell.profile)


def _stored(said: Answer) -> StoredAnswer:
    return StoredAnswer(
        time_ps=max(1, round(said.time_s * 1e12)),
        terms=tuple(StoredTerm(name=term.name, value=repr(float(term.value)), unit=term.unit) for term in said.terms),
        assumes=said.assumes,
        transcript=None if said.transcript is None else object_id(said.transcript),
    )


def _author(
    one: Participating,
    stored: dict[str, StoredAnswer],
    left_out: dict[str, str],
    uncertainty: str,
    known: Known,
    transcripts: dict[str, bytes],
) -> Author:
    """Return what a seal says of a forecaster, and the objects that it names."""
    sources = one.sources() if one.sources is not None else package_sources(one.module)
    model = None if one.model is None else one.model(known.runs)
    code, objects = code_objects(
        one.name, one.version, sources, command=one.command, distributions=one.distributions(), model=model
    )
    rests = _measurement_set(known) if one.repeatable else None
    answers = encode(
        ForecasterAnswers(
            schema="ledger/forecaster-answers/1",
            forecaster=one.name,
            version=one.version,
            cells=stored,
            left_out=left_out,
            uncertainty=uncertainty[:8000],
            measurements=None if rests is None else object_id(rests),
        )
    )
    named = {object_id(data): data for data in (answers, rests) if data is not None}
    participant = Participant(kind="program", version=one.version, sha256=code)
    extensions = {FORECASTER: {"answers": object_id(answers)}}
    return Author(one.name, participant, extensions, {**objects, **transcripts, **named})


def _measurement_set(known: Known) -> bytes | None:
    """Return the names of the measurements that answers may rest on; None where there are none."""
    if known.commit is None or not known.runs:
        return None
    names = tuple(sorted(run.record for run in known.runs))
    return encode(MeasurementSet(schema="ledger/measurement-set/1", commit=known.commit, measurements=names))

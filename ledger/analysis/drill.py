"""Drills a student on measured cells: which resource bound them, and what percent of their roof they reached. Pure.

A question is a sealed and measured cell. The student's answer replaces its forecast; verdict, gap and the sentence
that explains it are then computed and scored as for any forecast. A drill file holds cells of a ledger without what
an answer does not need (single rounds, samples, files); it is not evidence.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from pydantic import Field

from ledger.analysis.book import Book, CellView, Commit, Recorded, Run, Sealed, short_name
from ledger.analysis.campaign import Guess, milli, millionths
from ledger.analysis.estimate import Estimate, estimate_document
from ledger.analysis.formatting import PATH_NAMES
from ledger.analysis.metrics import TABLE, capability_of
from ledger.analysis.reconcile import verify_cell
from ledger.analysis.steady_timing import rounds_clock_mhz
from ledger.callables.subject import work_of
from ledger.canonical import record_errors, validate
from ledger.errors import InputError
from ledger.records import (
    SEAL_SCHEMA,
    CaseV2,
    Counters,
    Digest,
    Forecast,
    ForecastV2,
    Hardware,
    Measurement,
    MeasurementV2,
    Prediction,
    Record,
    TimingV2,
)
from ledger.records import Tool as RecordTool
from ledger.roofline import arithmetic_intensity, ridge_point, time_lower_bound_s

STUDENT = "you"
_ESTIMATED = ("intensity", "ridge")
"""What an answer may hold beside a forecast, in FLOP/byte."""


class Question(Record):
    """Hold one measured cell to be guessed, with the forecast that was sealed for it; both in either version."""

    seal: Digest
    forecast: ForecastV2 | Forecast
    measurement: MeasurementV2 | Measurement


class Drill(Record):
    """Hold the measured cells of a ledger, with the profiles that they name by digest."""

    schema_: Literal["ledger/drill/1"] = Field(alias="schema")
    tool: RecordTool
    hardware: dict[Digest, Hardware]
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Answered:
    """Hold a question with the student's forecast instead of the sealed one, judged, and what was estimated before."""

    question: Question
    view: CellView
    estimates: tuple[Estimate, ...] = ()


def has_intensity(question: Question) -> bool:
    """Tell whether a student is asked for the intensity: not of a call that makes no counted operations."""
    return question.forecast.work.flops > 0


def estimates_of(question: Question, intensity: float | None, ridge: float | None) -> tuple[Estimate, Estimate]:
    """Return a student's intensity and ridge point, in FLOP/byte, beside the true ones; None: not estimated."""
    work, roof = question.forecast.work, question.forecast.roof
    return (
        Estimate("intensity", "FLOP/byte", intensity, arithmetic_intensity(work)),
        Estimate("ridge", "FLOP/byte", ridge, ridge_point(roof)),
    )


def drill_of(book: Book, tool: RecordTool) -> Drill:
    """Return the drill of a ledger's measured cells whose regime is known.

    Raises: InputError when there is none.
    """
    questions: list[Question] = []
    hardware: dict[str, Hardware] = {}
    for view in book.cells:
        run = view.counted
        if run is None or view.hardware is None or not run.verification.regimes:
            continue
        hardware[view.forecast.hardware_sha256] = view.hardware
        reduced = _reduced(run.recorded.measurement, view.hardware)
        questions.append(Question(seal=view.sealed.id, forecast=view.forecast, measurement=reduced))
    if not questions:
        raise InputError("no cell of this ledger is measured with a known regime; expected at least one to drill on")
    return Drill(schema="ledger/drill/1", tool=tool, hardware=hardware, questions=tuple(questions))


def _reduced(measurement: Measurement, hardware: Hardware) -> Measurement:
    """Return a measurement without what no verdict needs."""
    timing, counters = measurement.timing, measurement.counters
    assert timing is not None
    one: dict[str, Any] = {"rounds_ps": (timing.median_ps,)}
    if isinstance(timing, TimingV2):
        clock = rounds_clock_mhz(timing)
        one["sm_clock_mhz"] = () if clock is None else (round(clock),)
    return measurement.model_copy(
        update={
            "timing": timing.model_copy(update=one),
            "counters": None if counters is None else _few(counters, hardware),
            "samples": None if measurement.samples is None else _none_of(measurement.samples),
            "attachments": (),
        }
    )


def _few(counters: Counters, hardware: Hardware) -> Counters:
    capability = capability_of(hardware.target)
    wanted = {row.metrics.get(capability) for row in TABLE if not row.name.startswith(("stall_", "limit_", "l1_"))}
    kernels = tuple(
        kernel.model_copy(update={"metrics": {n: m for n, m in kernel.metrics.items() if n in wanted}})
        for kernel in counters.kernels
    )
    return counters.model_copy(update={"kernels": kernels, "command": "ncu"})


def _none_of(samples: Any) -> Any:
    return samples.model_copy(update={"positions": (), "bits": ()})


def question_key(question: Question) -> str:
    """Return what names a question for ever: its seal, cell and device."""
    return f"{short_name(question.seal, question.forecast.cell)} {question.forecast.case.hardware}"


def choose(drill: Drill, *, count: int, seed: int, rank: Mapping[str, int] | None = None) -> tuple[Question, ...]:
    """Return questions drawn from the seed: kernels in turn, GPUs in turn within a kernel, each shape once at first.

    A kernel with many cells is no likelier to come first than one with few.
    rank: by question_key, the lowest first; 1 where none is given.
    """
    drawn = random.Random(seed)
    shuffled = drawn.sample(drill.questions, len(drill.questions))
    seen: set[object] = set()
    first: list[Question] = []
    again: list[Question] = []
    for question in shuffled:
        case = question.forecast.case
        key = (case.kernel, tuple(sorted(case.shape.items())), case.hardware)
        (again if key in seen else first).append(question)
        seen.add(key)
    listed = _in_turn(first, drawn, "kernel", "hardware") + _in_turn(again, drawn, "kernel", "hardware")
    ranks = rank or {}
    return tuple(sorted(listed, key=lambda question: ranks.get(question_key(question), 1)))[:count]


def _in_turn(questions: Sequence[Question], drawn: random.Random, field: str, *fields: str) -> list[Question]:
    """Return questions so that the values of a field of their cases come in turn, and within each the next field's.

    drawn: gives the order of the values.
    """
    piles: dict[object, list[Question]] = {}
    for question in questions:
        piles.setdefault(getattr(question.forecast.case, field), []).append(question)
    ordered = [_in_turn(pile, drawn, *fields) if fields else pile for pile in piles.values()]
    drawn.shuffle(ordered)
    return [question for turn in zip_longest(*ordered) for question in turn if question is not None]


def answer(drill: Drill, question: Question, guess: Guess, estimates: tuple[Estimate, ...] = ()) -> Answered:
    """Return the verdict on a guess. Raises: RecordError for an interval or probabilities that do not fit."""
    hardware = drill.hardware[question.forecast.hardware_sha256]
    forecast = _forecast(question.forecast, guess)
    verdict = verify_cell(
        forecast=forecast,
        measurement=question.measurement,
        hardware=hardware,
        blind=True,
        findings=(),
        rule="regime/2" if isinstance(question.forecast, ForecastV2) else "regime/1",
    )
    no_commit = Commit(sha="0" * 40, when="", author=STUDENT, position=0)
    recorded = Recorded(id=question.seal, path="", commit=no_commit, measurement=question.measurement)
    view = CellView(
        sealed=Sealed(id=question.seal, path="", commit=no_commit, prediction=_prediction(forecast)),
        forecast=forecast,
        hardware=hardware,
        state="measured",
        sight="blind",
        revises=(),
        runs=(Run(recorded, verdict),),
        levels=(),
    )
    return Answered(question, view, estimates)


def _forecast(sealed: Forecast, guess: Guess) -> Forecast:
    """Return a sealed forecast with its numbers replaced by a guess. Raises: RecordError."""
    with record_errors(sealed.cell):
        return Forecast(
            cell=sealed.cell,
            operation=sealed.operation,
            case=sealed.case,
            work=sealed.work,
            roof=sealed.roof,
            protocol=sealed.protocol,
            kernel_sha256=sealed.kernel_sha256,
            hardware_sha256=sealed.hardware_sha256,
            regime=guess.regime,
            percent_milli=milli(guess.pct),
            low_milli=None if guess.low is None else milli(guess.low),
            high_milli=None if guess.high is None else milli(guess.high),
            probabilities_ppm=None if guess.prob is None else millionths(guess.prob),
            why="",
        )


def _prediction(forecast: Forecast) -> Prediction:
    return Prediction(
        schema=SEAL_SCHEMA,
        rule="regime/1",
        tool=RecordTool(name="drill", version="1"),
        forecaster=STUDENT,
        sequence=1,
        previous=(),
        campaign=None,
        metric="percent-of-roof/1",
        repeats="first-run/1",
        cells=(forecast,),
        why="",
        nonce="0" * 32,
        extensions={},
    )


def book_of(answered: Sequence[Answered]) -> Book:
    """Return the student's answers as a book that score scores; it is written nowhere."""
    views = tuple(one.view for one in answered)
    return Book(head="", cells=views, seals=(), records=(), voids=(), findings=())


def question_document(question: Question) -> dict[str, Any]:
    """Return what a student is shown: neither the answer nor the work and the roof, which are asked for as well.

    arguments: of a callable, None for a kernel. work: only what no argument tells, that of a callable where its
    forecaster gave it. estimates: what is asked beside the forecast.
    """
    case, work = question.forecast.case, question.forecast.work
    listed = case.arguments if isinstance(case, CaseV2) else None
    return {
        "cell": question.forecast.cell,
        "kernel": case.kernel,
        "shape": dict(case.shape),
        "dtype": case.dtype,
        "hardware": case.hardware,
        "config": dict(case.config),
        "arguments": None if listed is None else [one.text for one in listed],
        "work": {"flops": work.flops, "bytes": work.bytes} if work_of(case) == "given" else None,
        "estimates": [name for name in _ESTIMATED if name != "intensity" or has_intensity(question)],
        "path": PATH_NAMES[question.forecast.roof.path],
        "ceilings": question.forecast.roof.ceilings,
    }


def result_document(answered: Answered) -> dict[str, Any]:
    """Return a judged answer."""
    run, forecast = answered.view.runs[0], answered.view.forecast
    verdict, timing = run.verification, answered.question.measurement.timing
    sealed = answered.question.forecast
    work, roof = sealed.work, sealed.roof
    return {
        "cell": forecast.cell,
        "estimates": [estimate_document(one) for one in answered.estimates],
        "flops": work.flops,
        "bytes": work.bytes,
        "intensity_flop_per_byte": arithmetic_intensity(work),
        "ridge_flop_per_byte": ridge_point(roof),
        "floor_us": time_lower_bound_s(work, roof) * 1e6,
        "regime": forecast.regime,
        "percent": forecast.percent_milli / 1000,
        "measured_regime": verdict.measured_regime,
        "also_regime": verdict.also_regime,
        "measured_percent": verdict.measured_percent,
        "measured_us": None if timing is None else timing.median_ps / 1e6,
        "regime_right": verdict.regime_is_right,
        "gap_points": verdict.gap.percent if verdict.gap else None,
        "explanation": verdict.gap.sentence if verdict.gap else None,
        "sealed_forecast": {"regime": sealed.regime, "percent": sealed.percent_milli / 1000},
    }


def parse_guesses(value: Any, questions: Sequence[Question], *, what: str) -> list[Guess]:
    """Return the guess of each question from {"CELL": {"regime": …, "pct": …}}. Raises: InputError, RecordError."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what}: not an object; expected {{CELL: {{regime, pct}}}} with the cells of the questions")
    missing = [question.forecast.cell for question in questions if question.forecast.cell not in value]
    if missing:
        raise InputError(
            f"{what}: no answer for {missing[0]}; expected one for each question (same --seed and --count)"
        )
    return [
        validate(Guess, _without_estimates(value[q.forecast.cell]), what=f"{what}: {q.forecast.cell}")
        for q in questions
    ]


def _without_estimates(value: Any) -> Any:
    return {key: v for key, v in value.items() if key not in _ESTIMATED} if isinstance(value, Mapping) else value


def parse_estimates(value: Mapping[str, Any], question: Question, *, what: str) -> tuple[Estimate, ...]:
    """Return the intensity and the ridge of an answer that parse_guesses took; none where it has neither.

    Raises: InputError.
    """
    answered = value[question.forecast.cell]
    found: dict[str, float | None] = {}
    for name in _ESTIMATED:
        given = answered.get(name)
        if given is not None and (
            not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given < float("inf")
        ):
            raise InputError(f"{what}: {question.forecast.cell}: {name} is {given!r}; expected FLOP/byte, 0 or more")
        found[name] = given
    return estimates_of(question, found["intensity"], found["ridge"]) if set(found.values()) != {None} else ()

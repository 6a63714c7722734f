"""The command drill: guess measured cells, on recorded data and without a GPU."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.output import emit, err, out, say
from ledger.errors import InputError, StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.analysis.campaign import Guess
    from ledger.analysis.drill import Answered, Drill, Question


def drill(
    source: Annotated[
        FilePath | None,
        typer.Option("--from", help="Ledger or drill file (default: this ledger, else the cells that ship)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Draws the questions; the same seed, the same ones.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many cells to guess.")] = 5,
    answers: Annotated[FilePath | None, typer.Option(help="JSON file with your answers, by cell.")] = None,
    export: Annotated[FilePath | None, typer.Option(help="Write the measured cells as a drill file instead.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document; without --answers the questions.")
    ] = False,
) -> None:
    """Guess what bound measured kernels and how near their roof they came; then see, and be scored."""
    from ledger.analysis import drill as drills
    from ledger.analysis import score as scores
    from ledger.render.score_table import render_scores

    drawn = secrets.randbelow(100_000) if seed is None else seed
    found, name = _find(source)
    if export is not None:
        _export(found, export, as_json=as_json)
        return
    questions = drills.choose(found, count=count, seed=drawn)
    if as_json and answers is None:
        emit({"from": name, "seed": drawn, "questions": [drills.question_document(one) for one in questions]})
        return
    if answers is not None:
        answered = _from_file(found, questions, answers)
    else:
        answered = _ask(found, questions, f"{name}, seed {drawn}")
    table = scores.score_book(drills.book_of(answered))
    if as_json:
        results = [drills.result_document(one) for one in answered]
        emit({"from": name, "seed": drawn, "results": results, "score": scores.document(table)[0]})
        return
    if answers is not None:
        for one in answered:
            _show(one)
    render_scores(table, out())


def _find(source: FilePath | None) -> tuple[Drill, str]:
    """Return the cells to drill on, and where they are from."""
    from ledger.workflow.drill_files import read_drill
    from ledger.workflow.drills import drill_of_ledger, shipped_drill

    if source is not None and source.is_file():
        return read_drill(source), str(source)
    root = source if source is not None else find_root()
    if root is not None:
        try:
            return drill_of_ledger(root), f"the ledger in {root.resolve().name}"
        except (StateError, InputError):
            if source is not None:
                raise
    return shipped_drill(), "the cells that ship with ledger"


def _export(found: Drill, path: FilePath, *, as_json: bool) -> None:
    from ledger.analysis.formatting import count_words
    from ledger.workflow.drill_files import write_drill

    write_drill(path, found)
    if as_json:
        emit({"path": str(path), "cells": len(found.questions)})
    else:
        say(f"wrote {path}: {count_words(len(found.questions), 'cell')}")


def _from_file(found: Drill, questions: Sequence[Question], path: FilePath) -> list[Answered]:
    from ledger.analysis.drill import answer, parse_guesses
    from ledger.canonical import parse_json
    from ledger.record_files import read_bytes

    guesses = parse_guesses(parse_json(read_bytes(path), what=str(path)), questions, what=str(path))
    return [answer(found, question, guess) for question, guess in zip(questions, guesses, strict=True)]


def _ask(found: Drill, questions: Sequence[Question], title: str) -> list[Answered]:
    from ledger.analysis.drill import answer
    from ledger.analysis.formatting import count_words

    if not sys.stdin.isatty():
        raise InputError("stdin is no terminal; expected --answers FILE, or --json for the questions alone")
    err().print(f"{count_words(len(questions), 'cell')} from {title}. Ctrl-C ends the drill.\n", markup=False)
    answered: list[Answered] = []
    for number, question in enumerate(questions, start=1):
        _pose(question, f"{number} of {len(questions)}")
        try:
            guess = _guess()
        except (KeyboardInterrupt, EOFError):
            if not answered:
                raise KeyboardInterrupt from None
            err().print("\n")
            break
        answered.append(answer(found, question, guess))
        _show(answered[-1])
    return answered


def _pose(question: Question, position: str) -> None:
    from rich.text import Text

    from ledger.analysis.formatting import case_words, harmless
    from ledger.render.forecast_table import roof_sentence

    console, forecast = err(), question.forecast
    console.print(Text(f"{position}  {harmless(case_words(forecast.case))}", style="bold"))
    console.print(Text(roof_sentence(forecast.work, forecast.roof)))
    if forecast.case.config:
        words = ", ".join(f"{key}={value}" for key, value in forecast.case.config.items())
        console.print(Text(harmless(f"launched with {words}"), style="dim"))


def _guess() -> Guess:
    from ledger.analysis.campaign import Guess
    from ledger.canonical import record_errors
    from ledger.cli.prompts import bound, choose, percent, until
    from ledger.errors import LedgerError
    from ledger.records import Regime

    while True:
        regime = choose("Which resource bound it", get_args(Regime))
        pct = until("Percent of the roof it reached", percent)
        low = until("No lower than (empty: no interval)", bound)
        high = None if low is None else until("No higher than", bound)
        try:
            with record_errors("answer"):
                guess = Guess(regime=regime, pct=pct, low=low, high=high)
            check_interval(guess)
            return guess
        except LedgerError as error:
            say(f"  {error}; once more")


def check_interval(guess: Guess) -> None:
    """Check that an interval has both ends and holds the percent. Raises: InputError."""
    if (guess.low is None) != (guess.high is None):
        raise InputError("an interval needs both ends; expected both or neither")
    if guess.low is not None and guess.high is not None and not guess.low <= guess.pct <= guess.high:
        raise InputError(f"the interval {guess.low:g} to {guess.high:g} does not hold {guess.pct:g}")


def _show(answered: Answered) -> None:
    from rich.text import Text

    from ledger.analysis.drill import result_document
    from ledger.analysis.formatting import case_words, harmless, signed

    told = result_document(answered)
    right = "right" if told["regime_right"] else "not"
    console = out()
    console.print(Text(harmless(case_words(answered.view.forecast.case)), style="bold"))
    gap = "" if told["gap_points"] is None else f", {signed(told['gap_points'])} points from your {told['percent']:g}%"
    line = f"measured {told['measured_regime']}, {told['measured_percent']:.1f}% in {told['measured_us']:.3g} µs"
    console.print(Text(f"{line}; {right} {told['regime']}{gap}", style="green" if right == "right" else "yellow"))
    if told["explanation"]:
        console.print(Text(harmless(told["explanation"])))
    sealed = told["sealed_forecast"]
    words = f"its sealed forecast: {sealed['regime']} {sealed['percent']:g}%"
    console.print(Text(harmless(f"{words}: {sealed['why']}" if sealed["why"] else words), style="dim"))
    console.print()

"""The command drill: practise on measured cells and on facts of GPUs, on recorded data and without a GPU."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.drill_prompts import ask_questions, keep, need_terminal, show_calibration, show_result
from ledger.cli.drill_quiz import quiz
from ledger.cli.open_ledger import find_root
from ledger.cli.output import emit, out, say, working
from ledger.errors import InputError, StateError
from ledger.suggestions import install_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.analysis.drill import Answered, Drill, Question
    from ledger.workflow.practice import Practice


def drill(
    source: Annotated[
        FilePath | None,
        typer.Option("--from", help="Ledger or drill file (default: this ledger, else the cells shipped with ledger)."),
    ] = None,
    cards: Annotated[bool, typer.Option("--cards", help="Ask about GPUs instead: pyramid, peaks, ridges.")] = False,
    hw: Annotated[list[str] | None, typer.Option("--hw", help="With --cards: this profile; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed that draws the questions.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many questions.")] = 5,
    answers: Annotated[FilePath | None, typer.Option(help="JSON file with your answers, by cell or key.")] = None,
    history: Annotated[
        FilePath | None,
        typer.Option("--history", help="File that keeps your practice (default on a terminal: one of your own)."),
    ] = None,
    export: Annotated[FilePath | None, typer.Option(help="Write the measured cells as a drill file instead.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document; without --answers the questions.")
    ] = False,
) -> None:
    """Practise forecasts on measured kernels. Intensity, ridge, regime, percent, or facts of GPUs; see your score."""
    from ledger.analysis import drill as drills
    from ledger.analysis import score as scores
    from ledger.canonical import parse_json
    from ledger.record_files import read_bytes
    from ledger.render.score_table import render_scores

    drawn = secrets.randbelow(100_000) if seed is None else seed
    practice = _practice(history, answers, as_json=as_json)
    if cards:
        quiz(hw, answers, practice, count=count, seed=drawn, as_json=as_json)
        return
    if hw:
        raise InputError("--hw: given without --cards; expected both, or cells chosen by --from")
    given = None if answers is None else parse_json(read_bytes(answers), what=str(answers))
    if answers is None and export is None and not as_json:
        need_terminal()
    found, name = _find(source)
    if export is not None:
        _export(found, export, as_json=as_json)
        return
    ranks = practice.ranks() if practice else {}
    questions = drills.choose(found, count=count, seed=drawn, rank=ranks)
    if answers is not None:
        answered = _judged(found, questions, given, what=str(answers))
        keep(practice, answered)
    elif as_json:
        emit({"from": name, "seed": drawn, "questions": [drills.question_document(one) for one in questions]})
        return
    else:
        answered = ask_questions(found, questions, f"{name}, seed {drawn}", practice)
    table = scores.score_book(drills.book_of(answered))
    if as_json:
        results = [drills.result_document(one) for one in answered]
        emit({"from": name, "seed": drawn, "results": results, "score": scores.document(table)[0]})
        return
    for one in answered if answers is not None else ():
        show_result(one)
    render_scores(table, out())
    show_calibration(practice)


def _practice(path: FilePath | None, answers: FilePath | None, *, as_json: bool) -> Practice | None:
    """Return the practice that answers are kept in: that of --history, or a person's own where a terminal asks."""
    from ledger.workflow.practice import Practice, default_path

    if path is None and (as_json or answers is not None or not sys.stdin.isatty()):
        return None
    practice = Practice(path or default_path())
    if not practice.is_scheduled:
        say(f"no question is repeated in time: fsrs is not installed; {install_command('drill')}")
    return practice


def _find(source: FilePath | None) -> tuple[Drill, str]:
    """Return the cells to drill on, and where they are from."""
    from ledger.workflow.drill_files import read_drill
    from ledger.workflow.drills import remembered_drill, shipped_drill

    if source is not None and source.is_file():
        return read_drill(source), str(source)
    root = source if source is not None else find_root()
    if root is not None:
        try:
            with working("judging the ledger"):
                return remembered_drill(root), f"the ledger in {root.resolve().name}"
        except (StateError, InputError):
            if source is not None:
                raise
    with working("reading cells"):
        return shipped_drill(), "the cells that ship with ledger"


def _export(found: Drill, path: FilePath, *, as_json: bool) -> None:
    from ledger.analysis.formatting import count_text
    from ledger.workflow.drill_files import write_drill

    write_drill(path, found)
    if as_json:
        emit({"path": str(path), "cells": len(found.questions)})
    else:
        say(f"wrote {path}: {count_text(len(found.questions), 'cell')}")


def _judged(found: Drill, questions: Sequence[Question], value: Any, *, what: str) -> list[Answered]:
    from ledger.analysis.drill import answer, parse_estimates, parse_guesses

    guesses = parse_guesses(value, questions, what=what)
    return [
        answer(found, question, guess, parse_estimates(value, question, what=what))
        for question, guess in zip(questions, guesses, strict=True)
    ]

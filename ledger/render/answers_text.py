"""Renders what forecasters answer: a table a cell, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ledger.analysis.formatting import case_text, duration, harmless, si
from ledger.forecasters.answer import Answer, NoAnswer, Question, Term, answer_document
from ledger.render.forecast_table import roof_sentence
from ledger.render.tables import print_rows

_PREFIXED = ("B/s", "FLOP/s", "B", "FLOP", "Hz")

Answered = tuple[Question, tuple[Answer | NoAnswer, ...]]


def render_answers(answered: Sequence[Answered], console: Console) -> None:
    """Print each cell with its roof, and below it a line a forecaster."""
    headings = ("forecaster", "regime", "percent", "time", "terms")
    for number, (question, given) in enumerate(answered):
        if number:
            console.print()
        console.print(Text(harmless(case_text(question.case)), style="bold"))
        console.print(Text(roof_sentence(question.work, question.roof)))
        print_rows(console, headings, [_row(one) for one in given], folding=("terms",))


def _row(answer: Answer | NoAnswer) -> tuple[str, ...]:
    if isinstance(answer, NoAnswer):
        return answer.forecaster, "-", "-", "-", harmless(answer.reason)
    percent = f"{answer.percent:.1f}"
    if answer.low is not None and answer.high is not None:
        percent += f" ({answer.low:.1f}–{answer.high:.1f})"
    terms = answer.instead or ", ".join(f"{term.name} {_term_text(term)}" for term in answer.terms)
    time = duration(round(answer.time_s * 1e12))
    return answer.forecaster, answer.regime or "not determined", percent, time, harmless(terms)


def _term_text(term: Term) -> str:
    if term.unit == "s":
        return duration(round(term.value * 1e12)) if term.value else "0 s"
    if term.unit == "1":
        return f"{term.value:.4g}"
    return si(term.value, term.unit) if term.unit in _PREFIXED else f"{term.value:.3g} {term.unit}"


def answers_document(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    """Return cells with their answers as one JSON value; `unanswered` says who does not answer, and why."""
    return [
        {
            "kernel": question.case.kernel,
            "shape": dict(question.case.shape),
            "dtype": question.case.dtype,
            "hardware": question.case.hardware,
            "roof": question.roof.model_dump(mode="json"),
            "answers": [answer_document(one) for one in given if isinstance(one, Answer)],
            "unanswered": [
                {"forecaster": one.forecaster, "version": one.version, "reason": one.reason}
                for one in given
                if isinstance(one, NoAnswer)
            ],
        }
        for question, given in answered
    ]

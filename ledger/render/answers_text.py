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
    """Print each cell with its roof, below it a line a forecaster, and below those what their answers are made of."""
    headings = ("forecaster", "regime", "percent", "time")
    for number, (question, given) in enumerate(answered):
        if number:
            console.print()
        console.print(Text(harmless(case_text(question.case)), style="bold"))
        console.print(Text(roof_sentence(question.work, question.roof)))
        print_rows(console, headings, [_row(one) for one in given], folding=())
        for one in given:
            console.print(Text(harmless(f"{one.forecaster}: {_terms(one)}"), style="dim"))


def _row(answer: Answer | NoAnswer) -> tuple[str, ...]:
    if isinstance(answer, NoAnswer):
        return answer.forecaster, "-", "-", "-"
    percent = f"{answer.percent:.1f}"
    if answer.low is not None and answer.high is not None:
        percent += f" ({answer.low:.1f}–{answer.high:.1f})"
    return answer.forecaster, answer.regime or "not determined", percent, duration(round(answer.time_s * 1e12))


def _terms(answer: Answer | NoAnswer) -> str:
    """Return why an answer is none, or its terms but for times of 0."""
    if isinstance(answer, NoAnswer):
        return answer.reason
    told = (f"{term.name} {_term_text(term)}" for term in answer.terms if term.value or term.unit != "s")
    return answer.instead or ", ".join(told)


def _term_text(term: Term) -> str:
    if term.unit == "s":
        return duration(round(term.value * 1e12))
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

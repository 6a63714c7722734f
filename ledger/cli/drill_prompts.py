"""Asks the questions of a drill on a terminal, and shows each result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ledger.cli.output import err, out
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.analysis.campaign import Guess
    from ledger.analysis.drill import Answered, Drill, Question


def ask_questions(found: Drill, questions: Sequence[Question], title: str) -> list[Answered]:
    """Return the answers of a person, until the last question or Ctrl-C. Raises: InputError without a terminal."""
    from ledger.analysis.drill import answer
    from ledger.analysis.formatting import count_text

    if not sys.stdin.isatty():
        raise InputError("stdin is no terminal; expected --answers FILE, or --json for the questions alone")
    err().print(f"{count_text(len(questions), 'cell')} from {title}. Ctrl-C ends the drill.\n", markup=False)
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
        show_result(answered[-1])
    return answered


def _pose(question: Question, position: str) -> None:
    from rich.text import Text

    from ledger.analysis.formatting import case_text, harmless
    from ledger.render.forecast_table import roof_sentence

    console, forecast = err(), question.forecast
    console.print(Text(f"{position}  {harmless(case_text(forecast.case))}", style="bold"))
    console.print(Text(roof_sentence(forecast.work, forecast.roof)))
    if forecast.case.config:
        config = ", ".join(f"{key}={value}" for key, value in forecast.case.config.items())
        console.print(Text(harmless(f"launched with {config}"), style="dim"))


def _guess() -> Guess:
    from ledger.analysis.campaign import Guess
    from ledger.canonical import record_errors
    from ledger.cli.prompts import ask_percent, choose_regime

    regime = choose_regime("Which resource bound it")
    pct, low, high = ask_percent("Percent of the roof it reached")
    with record_errors("answer"):
        return Guess(regime=regime, pct=pct, low=low, high=high)


def show_result(answered: Answered) -> None:
    """Print what was measured, whether the guess was right, and the sealed forecast."""
    from rich.text import Text

    from ledger.analysis.drill import result_document
    from ledger.analysis.formatting import case_text, harmless, signed

    result = result_document(answered)
    right = "right" if result["regime_right"] else "not"
    console = out()
    console.print(Text(harmless(case_text(answered.view.forecast.case)), style="bold"))
    gap = (
        ""
        if result["gap_points"] is None
        else f", {signed(result['gap_points'])} points from your {result['percent']:g}%"
    )
    regimes = " or ".join(filter(None, (result["measured_regime"], result["also_regime"])))
    line = f"measured {regimes}, {result['measured_percent']:.1f}% in {result['measured_us']:.3g} µs"
    console.print(Text(f"{line}; {right} {result['regime']}{gap}", style="green" if right == "right" else "yellow"))
    if result["explanation"]:
        console.print(Text(harmless(result["explanation"])))
    sealed = result["sealed_forecast"]
    line = f"its sealed forecast: {sealed['regime']} {sealed['percent']:g}%"
    console.print(Text(harmless(f"{line}: {sealed['why']}" if sealed["why"] else line), style="dim"))
    console.print()

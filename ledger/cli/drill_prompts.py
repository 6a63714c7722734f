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
    from ledger.analysis.estimate import Estimate
    from ledger.workflow.practice import Practice

_INTENSITY = (
    "FLOP of one call over the bytes that it must move at least: each input read once, each output written once. "
    "Of a callable whose work is counted, FLOP are those of products alone."
)
_NO_OPERATIONS = "This call makes no counted operations: its intensity is 0, and memory sets the time lower bound."
_RIDGE = "Peak of that path over the bandwidth of main memory: the intensity from which arithmetic binds."


def need_terminal() -> None:
    """Stop where nobody can be asked. Raises: InputError."""
    if not sys.stdin.isatty():
        raise InputError("stdin is no terminal; expected --answers FILE, or --json for the questions alone")


def ask_questions(
    found: Drill, questions: Sequence[Question], title: str, practice: Practice | None = None
) -> list[Answered]:
    """Return the answers of a person, until the last question or Ctrl-C."""
    from ledger.analysis.drill import answer
    from ledger.analysis.formatting import count_text

    err().print(f"{count_text(len(questions), 'cell')} from {title}. Ctrl-C ends the drill.\n", markup=False)
    answered: list[Answered] = []
    for number, question in enumerate(questions, start=1):
        _pose(question, f"{number} of {len(questions)}")
        try:
            estimates = _estimates(question)
            guess = _guess()
        except (KeyboardInterrupt, EOFError):
            if not answered:
                raise KeyboardInterrupt from None
            err().print("\n")
            break
        answered.append(answer(found, question, guess, estimates))
        keep(practice, answered[-1:])
        show_result(answered[-1], estimated=False)
    return answered


def _pose(question: Question, position: str) -> None:
    from rich.text import Text

    from ledger.analysis.drill import question_document
    from ledger.analysis.formatting import case_text, harmless, si

    console, case = err(), question.forecast.case
    console.print(Text(f"{position}  {harmless(case_text(case))}", style="bold"))
    shown = question_document(question)
    console.print(Text(harmless(f"arithmetic on {shown['path']}, ceilings: {shown['ceilings']}")))
    if case.config:
        config = ", ".join(f"{key}={value}" for key, value in case.config.items())
        console.print(Text(harmless(f"launched with {config}"), style="dim"))
    if shown["arguments"] is not None:
        console.print(Text(harmless(f"arguments {' '.join(shown['arguments'])}")))
    if shown["work"] is not None:
        work = question.forecast.work
        console.print(Text(f"work, as its forecaster gave it: {si(work.flops, 'FLOP')} over {si(work.bytes, 'B')}"))


def _estimates(question: Question) -> tuple[Estimate, ...]:
    """Ask for intensity and ridge, then show both."""
    from rich.text import Text

    from ledger.analysis.drill import estimates_of, has_intensity
    from ledger.cli.prompts import until
    from ledger.render.forecast_table import roof_sentence

    intensity = None
    if has_intensity(question):
        intensity = until("Arithmetic intensity, FLOP/byte (empty: show it)", positive, _INTENSITY)
    else:
        err().print(_NO_OPERATIONS, markup=False)
    ridge = until("Ridge point of that path, FLOP/byte (empty: show it)", positive, _RIDGE)
    found = estimates_of(question, intensity, ridge)
    _show_estimates(found)
    err().print(Text(roof_sentence(question.forecast.work, question.forecast.roof)))
    return found


def _show_estimates(found: Sequence[Estimate]) -> None:
    from rich.text import Text

    for one in found:
        style = "" if one.guess is None else "green" if one.is_near else "yellow"
        err().print(Text(f"  {one.text}", style=style))


def positive(text: str) -> float | None:
    """Return a number above 0, None for an empty answer. Raises: InputError."""
    if not text:
        return None
    try:
        number = float(text.replace(",", ""))
    except ValueError as error:
        raise InputError(f"got {text!r}; expected a number, as in 206") from error
    if not 0 < number < float("inf"):
        raise InputError(f"got {text!r}; expected a number above 0")
    return number


def _guess() -> Guess:
    from ledger.analysis.campaign import Guess
    from ledger.canonical import record_errors
    from ledger.cli.prompts import ask_percent, choose_regime, probability, until

    regime = choose_regime("Which resource bound it")
    pct, low, high = ask_percent("Percent of the roof it reached")
    sure = until("How sure of the regime, in percent (empty: not stated)", lambda text: probability(text, regime))
    with record_errors("answer"):
        return Guess(regime=regime, pct=pct, low=low, high=high, prob=sure)


def keep(practice: Practice | None, answered: Sequence[Answered]) -> None:
    """Keep answers in a person's practice, where there is one."""
    from datetime import UTC, datetime

    from ledger.analysis.drill import question_key
    from ledger.analysis.practice import review_of_cell

    for one in answered if practice is not None else ():
        assert practice is not None
        at = datetime.now(UTC).isoformat(timespec="seconds")
        practice.add(review_of_cell(one, key=question_key(one.question), at=at, sitting=practice.sitting))


def show_calibration(practice: Practice | None) -> None:
    """Print what all sittings say, and how many questions are due."""
    from rich.text import Text

    from ledger.analysis.formatting import count_text
    from ledger.analysis.practice import calibration_text

    if practice is None:
        return
    out().print()
    for number, line in enumerate(calibration_text(practice.history.reviews)):
        out().print(Text(line if number == 0 else f"  {line}", style="bold" if number == 0 else ""))
    due = f"{count_text(practice.due(), 'question')} due again; " if practice.is_scheduled else ""
    out().print(Text(f"{due}kept in {practice.path}", style="dim"), soft_wrap=True)


def show_result(answered: Answered, *, estimated: bool = True) -> None:
    """Print what was measured, whether the guess was right, and the sealed forecast. estimated: the estimates, too."""
    from rich.text import Text

    from ledger.analysis.drill import result_document
    from ledger.analysis.formatting import case_text, harmless, signed

    result = result_document(answered)
    right = "right" if result["regime_right"] else "not"
    console = out()
    console.print(Text(harmless(case_text(answered.view.forecast.case)), style="bold"))
    if estimated:
        for one in answered.estimates:
            console.print(Text(f"  {one.text}"))
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
    console.print(Text(line, style="dim"))
    console.print()

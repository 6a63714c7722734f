"""Asks about GPUs: memory pyramid, peaks, ridge points, figures with sparsity."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ledger.cli.drill_prompts import need_terminal, positive, show_calibration
from ledger.cli.open_ledger import find_root
from ledger.cli.output import emit, err, out
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.analysis.estimate import Estimate
    from ledger.analysis.hardware_quiz import Fact
    from ledger.workflow.practice import Practice


def quiz(
    names: list[str] | None,
    answers: FilePath | None,
    practice: Practice | None,
    *,
    count: int,
    seed: int,
    as_json: bool,
) -> None:
    """Ask about profiles, all GPUs where none is named. Raises: InputError, UnknownName."""
    from ledger.analysis.estimate import estimate_document
    from ledger.analysis.hardware_quiz import choose_facts
    from ledger.record_files import hardware_names, load_hardware
    from ledger.records import is_gpu

    root = find_root()
    profiles = [load_hardware(name, root) for name in names or hardware_names(root)]
    gpus = [one for one in profiles if names or is_gpu(one.target)]
    asked = choose_facts(gpus, count=count, seed=seed, rank=practice.ranks() if practice else {})
    if as_json and answers is None:
        questions = [
            {"key": one.key, "hardware": one.hardware, "question": one.question, "unit": one.unit} for one in asked
        ]
        emit({"seed": seed, "questions": questions})
        return
    found = _ask(asked, practice) if answers is None else _from_file(asked, answers, practice, shown=not as_json)
    if as_json:
        emit({"seed": seed, "results": [{"key": fact.key, **estimate_document(one)} for fact, one in found]})
        return
    right = sum(one.is_near for _, one in found)
    out().print(f"{right} of {len(found)} within a factor of 1.25")
    show_calibration(practice)


def _ask(asked: Sequence[Fact], practice: Practice | None) -> list[tuple[Fact, Estimate]]:
    """Return the answers of a person, until the last question or Ctrl-C. Raises: InputError without a terminal."""
    from rich.text import Text

    from ledger.cli.prompts import until

    need_terminal()
    found: list[tuple[Fact, Estimate]] = []
    for number, fact in enumerate(asked, start=1):
        err().print(Text(f"{number} of {len(asked)}  {fact.question}", style="bold"))
        unit = f", {fact.unit}" if fact.unit else ""
        try:
            guess = until(f"About how much{unit} (empty: show it)", positive, "Within a factor of 1.25 is right.")
        except (KeyboardInterrupt, EOFError):
            if not found:
                raise KeyboardInterrupt from None
            err().print("\n")
            break
        found.append((fact, _judged(fact, guess, practice)))
        _show(*found[-1])
    return found


def _from_file(
    asked: Sequence[Fact], path: FilePath, practice: Practice | None, *, shown: bool
) -> list[tuple[Fact, Estimate]]:
    """Return the answers of a file, {KEY: NUMBER}. Raises: InputError."""
    from ledger.canonical import parse_json
    from ledger.record_files import read_bytes

    value: Any = parse_json(read_bytes(path), what=str(path))
    if not isinstance(value, Mapping):
        raise InputError(f"{path}: not an object; expected {{KEY: NUMBER}} with the keys of the questions")
    found = []
    for fact in asked:
        given = value.get(fact.key)
        if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < float("inf"):
            raise InputError(f"{path}: {fact.key!r} is {given!r}; expected a number above 0, in {fact.unit or 'units'}")
        found.append((fact, _judged(fact, float(given), practice)))
        if shown:
            _show(*found[-1])
    return found


def _judged(fact: Fact, guess: float | None, practice: Practice | None) -> Estimate:
    from ledger.analysis.estimate import Estimate
    from ledger.analysis.practice import review_of_fact

    estimate = Estimate("it is", fact.unit, guess, fact.truth)
    if practice is not None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        practice.add(review_of_fact(estimate, key=fact.key, at=at, sitting=practice.sitting))
    return estimate


def _show(fact: Fact, one: Estimate) -> None:
    from rich.text import Text

    from ledger.analysis.formatting import harmless

    style = "" if one.guess is None else "green" if one.is_near else "yellow"
    out().print(Text(harmless(fact.question), style="bold"))
    out().print(Text(one.text, style=style))
    out().print(Text(harmless(fact.why), style="dim"))
    out().print()

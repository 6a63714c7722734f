"""Lists the built-in forecasters and asks them. Pure, but for what a forecaster itself reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.errors import InputError, UnknownName
from ledger.forecasters import (
    analytic,
    learned,
    lookup,
    matmul_heuristics,
    measured_roofline,
    naive_roofline,
    no_overlap,
    persistence,
    rule_of_thumb,
)
from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
from ledger.records import Distribution
from ledger.suggestions import unknown

Forecaster = Callable[[Question], Answer | NoAnswer]


@dataclass(frozen=True)
class Participating:
    """Hold a forecaster as it takes part: its name, its answers and where they come from.

    module: that of this package which answers. repeatable: whether measured cells may be asked too, to tell how far
    off it is. sources: path -> bytes, where they are not those of the module. model: (runs) -> fitted parameters.
    asked_without: (runs) -> what answers like `forecast`, sooner, where a question knows these runs but for a few.
    """

    name: str
    version: str
    forecast: Forecaster
    module: str
    repeatable: bool = True
    command: tuple[str, ...] = ()
    sources: Callable[[], dict[str, bytes]] | None = None
    distributions: Callable[[], tuple[Distribution, ...]] = tuple
    model: Callable[[tuple[Measured, ...]], bytes] | None = None
    asked_without: Callable[[tuple[Measured, ...]], Forecaster] | None = None


def _built_in(module: Any) -> Participating:
    return Participating(
        module.NAME,
        module.VERSION,
        module.forecast,
        module.__name__,
        distributions=getattr(module, "distributions", tuple),
        model=getattr(module, "model_bytes", None),
        asked_without=getattr(module, "asked_without", None),
    )


_MODULES = (
    naive_roofline, measured_roofline, no_overlap, rule_of_thumb, persistence, analytic, learned, matmul_heuristics,
    lookup,
)  # fmt: skip
PARTICIPANTS: Mapping[str, Participating] = {module.NAME: _built_in(module) for module in _MODULES}
FORECASTERS: Mapping[str, Forecaster] = {name: one.forecast for name, one in PARTICIPANTS.items()}


def forecasters_named(names: str | None) -> tuple[str, ...]:
    """Return the forecasters of a list such as naive-roofline,persistence; all for None.

    Raises: UnknownName; InputError for a name that is there twice.
    """
    chosen = tuple(FORECASTERS) if names is None else tuple(name.strip() for name in names.split(","))
    for name in chosen:
        if name not in FORECASTERS:
            raise UnknownName(f"--by: {unknown('forecaster', name, FORECASTERS)}")
        if chosen.count(name) > 1:
            raise InputError(f"--by: duplicate forecaster {name!r}; expected each once")
    return chosen


def participants_named(names: str | None, programs: Sequence[Participating] = ()) -> tuple[Participating, ...]:
    """Return the forecasters of a list, as they take part, and programs, which need not be in the list.

    Without a list the programs alone, and without either all that are built in.

    Raises: as forecasters_named; InputError for programs of one name.
    """
    own = [one.name for one in programs]
    if twice := sorted({name for name in own if own.count(name) > 1}):
        raise InputError(f"--program: duplicate name {twice[0]!r}; expected each once")
    if names is None:
        return (*(() if programs else PARTICIPANTS.values()), *programs)
    listed = [name for name in names.split(",") if name.strip() not in own]
    chosen = forecasters_named(",".join(listed)) if listed else ()
    return (*(PARTICIPANTS[name] for name in chosen), *programs)


def check_work(question: Question) -> None:
    """Check that a cell has work to forecast. Raises: InputError."""
    work = question.work
    if not (work.flops or work.bytes):
        raise InputError(f"{question.case.kernel}: its work is 0 FLOP and 0 bytes; expected some, or no roof applies")


def answers_of(question: Question, chosen: Iterable[Participating]) -> tuple[Answer | NoAnswer, ...]:
    """Return what each forecaster says. Raises: InputError for a cell without work."""
    check_work(question)
    return tuple(one.forecast(question) for one in chosen)


def answers(question: Question, names: Iterable[str]) -> tuple[Answer | NoAnswer, ...]:
    """Return what each named forecaster says. Raises: InputError for a cell without work."""
    check_work(question)
    return tuple(FORECASTERS[name](question) for name in names)
